//! Measures retrieval without a model: first answers, the index in the background, and memory.
//!
//! `cargo bench -p lm-tests --bench retrieval [-- NAME…]` writes trees below cargo's temporary
//! directory (a few gigabytes, kept for the next run), and runs each scenario in a process of its own
//! so that peaks of memory are its own. Figures are printed, nothing is asserted.
#![expect(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a benchmark's output and its failures")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use lm_core::{
    files::WorkspaceFiles,
    retrieval::{IndexState, Retriever, SearchLimits, SearchOutcome},
};
use lm_tests::corpus::Corpus;
use tokio_util::sync::CancellationToken;

/// The daemon's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SCENARIOS: [&str; 5] = ["middling", "large", "restart", "huge", "directory"];
const SCENARIO_VARIABLE: &str = "LM_BENCH_SCENARIO";

fn main() {
    if let Ok(name) = env::var(SCENARIO_VARIABLE) {
        return run(&name);
    }
    let wanted: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for name in SCENARIOS {
        if (wanted.is_empty() && name != "directory") || wanted.iter().any(|argument| argument == name) {
            let status = Command::new(env::current_exe().unwrap()).env(SCENARIO_VARIABLE, name).status().unwrap();
            assert!(status.success(), "{name} failed");
        }
    }
}

fn place(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("retrieval-bench").join(name);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    place
}

fn run(name: &str) {
    println!("\n{name}");
    match name {
        "middling" => measure(&place("middling"), Corpus::middling(), true),
        "large" => measure(&place("large"), Corpus::large(), true),
        // After `large`: a new process finds what the other one left.
        "restart" => measure(&place("large"), Corpus::large(), false),
        "huge" => measure(&place("huge"), Corpus::huge(), true),
        "directory" => ask_directory(),
        other => panic!("no scenario {other}"),
    }
}

fn measure(root: &Path, corpus: Corpus, fresh: bool) {
    if env::var_os("LM_BENCH_WRITE").is_none() {
        // Writing the tree takes memory that must not count.
        let name = env::var(SCENARIO_VARIABLE).unwrap();
        let status = Command::new(env::current_exe().unwrap())
            .env(SCENARIO_VARIABLE, &name)
            .env("LM_BENCH_WRITE", "1")
            .status()
            .unwrap();
        assert!(status.success());
    } else {
        let bytes = corpus.write(root);
        println!("  tree: {} files, {:.0} MB", corpus.files, bytes as f64 / 1e6);
        std::process::exit(0);
    }
    let index = root.with_extension("index");
    if fresh {
        let _ = fs::remove_dir_all(&index);
    }
    println!("  resident before: {}", memory());
    let retriever = Retriever::new(Arc::new(WorkspaceFiles::open(root).unwrap()), index);
    let start = Instant::now();
    let outcome = ask(&retriever, &Corpus::question(1));
    println!(
        "  first answer: {:?}, {:?}, {} files, {} places",
        start.elapsed(),
        outcome.how,
        outcome.files_searched,
        outcome.places.len()
    );
    println!("  after the first answer: {}", memory());
    while retriever.is_working() {
        thread::sleep(Duration::from_millis(20));
    }
    let status = retriever.status();
    println!(
        "  index: {:?}, {} files, {:.0} MB, built in {:?}",
        status.state,
        status.files,
        status.bytes as f64 / 1e6,
        status.built_in
    );
    println!("  after the build: {}", memory());
    // Files written in the last moments count as changed once.
    ask(&retriever, &Corpus::question(2));
    while retriever.is_working() {
        thread::sleep(Duration::from_millis(20));
    }
    if status.state == IndexState::Ready {
        let mut times: Vec<Duration> = (3..33)
            .map(|number| {
                let start = Instant::now();
                ask(&retriever, &Corpus::question(number));
                start.elapsed()
            })
            .collect();
        times.sort();
        println!("  warm answers: p50 {:?}, p95 {:?}, worst {:?}", times[15], times[28], times[29]);
    }
    thread::sleep(Duration::from_secs(1));
    println!("  a second later: {}", memory());
}

/// Answers one question about a directory of the user's choice, for a look at quality.
fn ask_directory() {
    let root = PathBuf::from(env::var("LM_BENCH_ROOT").unwrap());
    let index = place("directory").with_extension("index");
    let _ = fs::remove_dir_all(&index);
    let retriever = Retriever::new(Arc::new(WorkspaceFiles::open(&root).unwrap()), index);
    for question in env::var("LM_BENCH_QUESTIONS").unwrap().lines() {
        let start = Instant::now();
        let outcome = ask(&retriever, question);
        let took = start.elapsed();
        println!(
            "\n{question}\n  {took:?} {:?} {:?} coverage {:.2} absent {:?} suggestions {:?} {:?}",
            outcome.verdict, outcome.how, outcome.coverage, outcome.absent_terms, outcome.suggestions, outcome.left_out
        );
        for place in &outcome.places {
            println!("  {:6.2} {}:{}-{} {}", place.score, place.path, place.first_line, place.last_line, place.why);
        }
        while retriever.is_working() {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn ask(retriever: &Retriever, question: &str) -> SearchOutcome {
    let limits =
        SearchLimits { deadline: Instant::now() + Duration::from_secs(60), max_places: 8, max_excerpt_chars: 12_000 };
    retriever.search(question, limits, &|_| {}, &CancellationToken::new()).unwrap()
}

/// Resident memory and its peak, where the system tells.
fn memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<f64>().ok()
    };
    match (field("VmRSS:"), field("VmHWM:"), field("RssAnon:")) {
        (Some(now), Some(peak), Some(anonymous)) => {
            format!("{:.1} MB resident ({:.1} MB anonymous), peak {:.1} MB", now / 1e3, anonymous / 1e3, peak / 1e3)
        }
        _ => "memory unknown on this system".into(),
    }
}
