//! Measures how long a question waits until it is known which files changed since they were shown.
//!
//! `cargo bench -p lm-tests --bench freshness` writes files below a temporary directory. Each figure is
//! the median of several runs. Nothing is asserted but that the findings are right.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark's output and its failures")]

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use lm_core::{
    files::{FileStamp, WorkspaceFiles},
    memory::delta::{Change, DeltaLimits, Shown, What, render},
    workspace::freshness::{Finding, KnownFile, check},
};
use tokio_util::sync::CancellationToken;

const RUNS: usize = 21;
const FILES: usize = 1_000;

fn main() {
    let directory = tempfile::TempDir::new().unwrap();
    for (what, place) in [
        ("25 in a directory", (|number| format!("src/area{}/file{number}.rs", number / 25)) as fn(usize) -> String),
        ("each in a directory of its own, ten deep", |number| {
            format!("a/b{}/c{}/d/e/f/g/h/i/own{number}/file.rs", number / 100, number / 10)
        }),
    ] {
        let root = directory.path().join(what.replace([' ', ','], "_"));
        let paths: Vec<String> = (0..FILES).map(place).collect();
        paths.iter().for_each(|path| write(&root, path, 0));
        // What was written in the last two seconds would be read in any case.
        thread::sleep(Duration::from_secs(3));
        println!("\n{FILES} known files, {what}");
        measure(&root, &paths);
    }
}

fn text(path: &str, version: usize) -> String {
    let mut text = String::new();
    for line in 0..60 {
        let version = if line == 30 { version } else { 0 };
        writeln!(text, "pub fn function_{line}() -> &'static str {{ \"{path} {version}\" }}").unwrap();
    }
    text
}

fn write(root: &Path, path: &str, version: usize) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text(path, version)).unwrap();
}

struct Seen {
    path: String,
    sha256: String,
    stamp: FileStamp,
    looked_at_ns: i64,
}

fn look(root: &Path, paths: &[String]) -> Vec<Seen> {
    let files = WorkspaceFiles::open(root).unwrap();
    let see = |path: &String| {
        let looked_at_ns = now();
        let text = files.read(Path::new(path), 1 << 20).unwrap();
        Seen { path: path.clone(), sha256: text.sha256, stamp: text.stamp, looked_at_ns }
    };
    paths.iter().map(see).collect()
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_nanos()).unwrap()
}

fn measure(root: &Path, paths: &[String]) {
    let seen = look(root, paths);
    let known: Vec<KnownFile<'_>> = seen
        .iter()
        .map(|seen| KnownFile {
            path: &seen.path,
            sha256: &seen.sha256,
            stamp: Some(seen.stamp),
            looked_at_ns: seen.looked_at_ns,
            whole: true,
        })
        .collect();
    let doubtful: Vec<KnownFile<'_>> = known.iter().map(|known| KnownFile { stamp: None, ..*known }).collect();
    let run = |known: &[KnownFile<'_>]| {
        let start = Instant::now();
        // As for a question: the root is opened anew.
        let files = WorkspaceFiles::open(root).unwrap();
        let deadline = start + Duration::from_secs(60);
        let found = check(&files, known, now(), deadline, &CancellationToken::new());
        (start.elapsed(), found)
    };
    let time = |what: &str, known: &[KnownFile<'_>], expected: usize| {
        let mut times: Vec<Duration> = (0..RUNS)
            .map(|_| {
                let (time, found) = run(known);
                assert_eq!(found.len(), expected, "{what}");
                time
            })
            .collect();
        times.sort_unstable();
        println!("  {what}: {:.2} ms, worst {:.2} ms", milliseconds(times[RUNS / 2]), milliseconds(times[RUNS - 1]));
    };
    time("unchanged", &known, 0);
    time("unchanged, but all to be read", &doubtful, FILES);
    for path in paths.iter().step_by(10) {
        write(root, path, 1);
    }
    time("a tenth changed", &known, FILES / 10);
    notice(&run(&known).1, paths);
    let moved: Vec<PathBuf> = paths.iter().skip(5).step_by(50).map(|path| root.join(path)).collect();
    for path in &moved {
        fs::rename(path, path.with_extension("moved")).unwrap();
    }
    time("a tenth changed, a fiftieth moved", &known, FILES / 10 + moved.len());
    let found = run(&known).1;
    let placed = found.iter().filter(|(_, finding)| matches!(finding, Finding::Gone { now_at: Some(_) })).count();
    println!("  of {} that moved {placed} were found again", moved.len());
    paths.iter().for_each(|path| write(root, path, 2));
    time("all changed", &known, FILES);
    notice(&run(&known).1, paths);
}

/// The notice of what changed, with the old texts at hand.
fn notice(found: &[(usize, Finding)], paths: &[String]) {
    let before: Vec<String> = found.iter().map(|(index, _)| text(&paths[*index], 0)).collect();
    let changes: Vec<Change<'_>> = found
        .iter()
        .zip(&before)
        .map(|((index, finding), before)| {
            let what = match finding {
                Finding::Changed { text } => What::Edited { before: Some(before), after: &text.text },
                _ => What::Stale,
            };
            Change { path: &paths[*index], what, answers: &[] }
        })
        .collect();
    let start = Instant::now();
    let rendered = render(&changes, DeltaLimits { bytes: 48 << 10, bytes_per_file: 16 << 10 });
    let time = start.elapsed();
    let complete = rendered.shown.iter().filter(|shown| **shown == Shown::Completely).count();
    println!(
        "  the notice of {}: {:.2} ms, {} bytes, {complete} shown completely",
        changes.len(),
        milliseconds(time),
        rendered.text.len()
    );
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
