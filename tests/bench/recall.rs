//! Measures how well retrieval finds the right files, on sets of questions brought along.
//!
//! `cargo bench -p lm-tests --bench recall -- SET.jsonl…` reads one question a line:
//! `{"root": "/an/absolute/directory", "question": "…", "gold": ["path/of/a/right/file.py", …]}`.
//! With `--non-test-python` only Python files outside tests count as results, as in published
//! figures for SWE-bench-Lite. Figures are printed, nothing is asserted.
#![expect(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a benchmark's output and its failures")]

use std::{
    collections::BTreeMap,
    env, fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use lm_core::retrieval::{IndexState, Retriever, SearchLimits, Verdict};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

const RANKS: [usize; 5] = [1, 3, 5, 10, 20];

#[derive(Deserialize)]
struct Question {
    root: PathBuf,
    question: String,
    gold: Vec<String>,
}

#[derive(Default)]
struct Tally {
    questions: usize,
    all_found: [usize; RANKS.len()],
    any_found: [usize; RANKS.len()],
    recall: [f64; RANKS.len()],
    without_answer: usize,
    times: Vec<Duration>,
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let only_python = arguments.iter().any(|argument| argument == "--non-test-python");
    let details = arguments.iter().any(|argument| argument == "--details");
    let sets: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    if sets.is_empty() {
        println!("no set of questions given; see the head of tests/bench/recall.rs");
    }
    for set in sets {
        let text = fs::read_to_string(set).unwrap_or_else(|error| panic!("cannot read {set}: {error}"));
        let mut by_root: BTreeMap<PathBuf, Vec<Question>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let question: Question = serde_json::from_str(line).unwrap_or_else(|error| panic!("{set}: {error}"));
            by_root.entry(question.root.clone()).or_default().push(question);
        }
        let mut tally = Tally::default();
        for (root, questions) in by_root {
            let index = tempfile::tempdir().unwrap();
            let retriever = Retriever::new(root.clone(), index.path().join("index"));
            // Any question has the index built.
            let _ = ask(&retriever, "index");
            let start = Instant::now();
            while retriever.status().state != IndexState::Ready {
                assert!(start.elapsed() < Duration::from_secs(120), "no index of {}", root.display());
                std::thread::sleep(Duration::from_millis(2));
            }
            for question in questions {
                let found = tally.add(&retriever, &question, only_python);
                if details {
                    println!(
                        "{:?} {} {:?}\n    {:?}",
                        found.first_right,
                        question.question.lines().next().unwrap(),
                        question.gold,
                        found.top
                    );
                }
            }
        }
        tally.print(set);
    }
}

struct Found {
    first_right: Option<usize>,
    top: Vec<String>,
}

impl Tally {
    fn add(&mut self, retriever: &Retriever, question: &Question, only_python: bool) -> Found {
        let start = Instant::now();
        let (paths, verdict) = ask(retriever, &question.question);
        self.times.push(start.elapsed());
        let mut files: Vec<String> = Vec::new();
        for path in paths {
            if !files.contains(&path) && (!only_python || path.ends_with(".py") && !is_test(&path)) {
                files.push(path);
            }
        }
        self.questions += 1;
        self.without_answer += usize::from(verdict == Some(Verdict::Nothing) || files.is_empty());
        for (position, rank) in RANKS.into_iter().enumerate() {
            let top = &files[..rank.min(files.len())];
            let right = question.gold.iter().filter(|gold| top.contains(gold)).count();
            self.all_found[position] += usize::from(right == question.gold.len());
            self.any_found[position] += usize::from(right > 0);
            self.recall[position] += right as f64 / question.gold.len() as f64;
        }
        let first_right = files.iter().position(|file| question.gold.contains(file)).map(|position| position + 1);
        Found { first_right, top: files.into_iter().take(5).collect() }
    }

    fn print(mut self, set: &str) {
        let percent = |counts: [f64; RANKS.len()]| {
            counts.map(|count| format!("{:.1}", 100.0 * count / self.questions as f64)).join(" / ")
        };
        self.times.sort();
        println!("{set}: {} questions", self.questions);
        println!("  at ranks           {RANKS:?}");
        println!("  all right files    {}", percent(self.all_found.map(|count| count as f64)));
        println!("  any right file     {}", percent(self.any_found.map(|count| count as f64)));
        println!("  recall             {}", percent(self.recall));
        println!("  without an answer  {}", self.without_answer);
        println!(
            "  time p50 / p95     {:.1?} / {:.1?}",
            self.times[self.times.len() / 2],
            self.times[self.times.len() * 95 / 100]
        );
    }
}

fn ask(retriever: &Retriever, question: &str) -> (Vec<String>, Option<Verdict>) {
    let limits =
        SearchLimits { deadline: Instant::now() + Duration::from_secs(60), max_places: 40, max_excerpt_chars: 400_000 };
    match retriever.search(question, limits, &|_| {}, &CancellationToken::new()) {
        Ok(outcome) => (outcome.places.into_iter().map(|place| place.path).collect(), Some(outcome.verdict)),
        Err(_) => (Vec::new(), None),
    }
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| {
        matches!(part, "test" | "tests" | "testing")
            || part.starts_with("test_")
            || part.ends_with("_test.py")
            || part == "conftest.py"
    })
}
