//! Measures the tools that a model explores with, beside `rg` and `git` where they are installed.
//!
//! `cargo bench -p lm-tests --bench tools [-- NAME…]` writes a tree and a repository below cargo's
//! temporary directory, kept for the next run. Each figure is the median of several runs that take
//! turns with the other program's, so that both meet the same machine. Nothing is asserted.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark's output and its failures")]

use std::{
    env,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use lm_core::{
    files::WorkspaceFiles,
    tools::{GitUser, ToolOutput, Tools, directory_tree},
};
use lm_tests::corpus::Corpus;
use tokio_util::sync::CancellationToken;

const RUNS: usize = 9;
const COMMITS: usize = 60_000;
/// As many small files as a large repository of the kind has.
const TREE: Corpus = Corpus { seed: 7, files: 57_000, usual_bytes: 1_500, files_per_directory: 25 };
const NEEDLE: &str = "quixotic_needle_of_the_haystack";

fn main() {
    let wanted: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|argument| argument == name);
    if wants("files") {
        measure_files();
    }
    if wants("history") {
        measure_history();
    }
}

fn place(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tools-bench").join(name);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    place
}

fn tools(root: &Path) -> Tools {
    Tools::new(Arc::new(WorkspaceFiles::open(root).unwrap()), GitUser::default())
}

fn run(tools: &Tools, name: &str, input: &str) -> ToolOutput {
    let deadline = Instant::now() + Duration::from_secs(60);
    let output = tools.run(name, input, deadline, &CancellationToken::new());
    assert!(!output.is_error, "{name} {input}: {}", output.text);
    output
}

fn measure_files() {
    let root = place("tree");
    if !root.join(".written").exists() {
        TREE.write(&root);
        fs::write(root.join("needle.rs"), format!("fn {NEEDLE}() {{}}\n")).unwrap();
        fs::write(root.join(".written"), "").unwrap();
    }
    let tools = tools(&root);
    assert!(run(&tools, "Grep", &format!(r#"{{"pattern":"{NEEDLE}"}}"#)).text.starts_with("needle.rs\n"));
    println!("\n{} files", TREE.files);
    let grep = format!(r#"{{"pattern":"{NEEDLE}"}}"#);
    pair("Grep, a rare word", || drop(run(&tools, "Grep", &grep)), &["-l", NEEDLE], &root);
    let grep = r#"{"pattern":"\\bparser\\b","output_mode":"count"}"#;
    pair("Grep, counts of a common word", || drop(run(&tools, "Grep", grep)), &["-c", r"\bparser\b"], &root);
    let glob = r#"{"pattern":"**/*needle*"}"#;
    pair("Glob", || drop(run(&tools, "Glob", glob)), &["--files"], &root);
    let find = r#"{"name":"needle"}"#;
    pair("find_paths", || drop(run(&tools, "find_paths", find)), &["--files"], &root);
    let files = WorkspaceFiles::open(&root).unwrap();
    let tree = || {
        let deadline = Instant::now() + Duration::from_secs(60);
        drop(directory_tree(&files, 40_000, deadline, &CancellationToken::new()).unwrap());
    };
    pair("tree", tree, &["--files"], &root);
}

/// Runs both in turns and prints medians.
fn pair(what: &str, mut own: impl FnMut(), arguments: &[&str], root: &Path) {
    let other = || {
        Command::new("rg")
            .args(arguments)
            .current_dir(root)
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.code() != Some(2))
    };
    let has_rg = other();
    own();
    let (mut owns, mut others) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let start = Instant::now();
        own();
        owns.push(start.elapsed());
        if has_rg {
            let start = Instant::now();
            other();
            others.push(start.elapsed());
        }
    }
    let own = median(owns);
    if has_rg {
        let other = median(others);
        println!(
            "  {what}: {:.1} ms, rg {} {:.1} ms, ratio {:.2}",
            milliseconds(own),
            arguments.join(" "),
            milliseconds(other),
            own.as_secs_f64() / other.as_secs_f64()
        );
    } else {
        println!("  {what}: {:.1} ms (rg is not installed)", milliseconds(own));
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn measure_history() {
    let root = place("history");
    if !root.join(".git").exists() && !write_history(&root) {
        println!("\nhistory: skipped, git is not installed");
        return;
    }
    let tools = tools(&root);
    println!("\n{COMMITS} commits");
    for (what, input) in [
        ("by path, changed seldom", r#"{"path":"src/area3/module7/file11.rs","max_results":200}"#),
        ("by path, not there", r#"{"path":"src/area3/absent.rs"}"#),
        ("by message, not there", r#"{"query":"zyzzyva"}"#),
        ("newest commits with patches", r#"{"show_diff":true}"#),
    ] {
        run(&tools, "git_search", input);
        let mut last = String::new();
        let times = (0..RUNS / 2 + 1)
            .map(|_| {
                let start = Instant::now();
                last = run(&tools, "git_search", input).text;
                start.elapsed()
            })
            .collect();
        println!(
            "  git_search {what}: {:.0} ms; {}",
            milliseconds(median(times)),
            last.lines().last().unwrap_or_default()
        );
    }
    let start = Instant::now();
    let status = Command::new("git")
        .args(["log", "--oneline", "--", "src/area3/module7/file11.rs"])
        .current_dir(&root)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    println!("  git log by path: {:.0} ms ({status})", milliseconds(start.elapsed()));
}

/// A linear history over 1,000 files, each commit changing one or two of them.
fn write_history(root: &Path) -> bool {
    fs::create_dir_all(root).unwrap();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(root).env("GIT_CONFIG_GLOBAL", "/dev/null").stdout(Stdio::null());
        command
    };
    if !git(&["init", "-q", "-b", "main"]).status().is_ok_and(|status| status.success()) {
        return false;
    }
    let mut import = git(&["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = import.stdin.take().unwrap();
    let path = |file: usize| format!("src/area{}/module{}/file{}.rs", file % 7, file % 11, file % 13);
    let mut text = String::new();
    for commit in 0..COMMITS {
        text.clear();
        let message = format!("Change number {commit}: rework the {} of the {}\n", commit % 97, commit % 41);
        let time = 1_500_000_000 + commit * 600;
        writeln!(text, "commit refs/heads/main\ncommitter A Person <a@example.org> {time} +0000").unwrap();
        write!(text, "data {}\n{message}", message.len()).unwrap();
        for part in 0..1 + commit % 2 {
            let file = (commit * 31 + part * 17) % 1_001;
            let mut content = String::new();
            for line in 0..40 {
                let version = if line == commit % 40 { commit } else { line };
                writeln!(content, "fn function_{line}_of_{file}() -> u64 {{ {version} }}").unwrap();
            }
            write!(text, "M 100644 inline {}\ndata {}\n{content}", path(file), content.len()).unwrap();
        }
        input.write_all(text.as_bytes()).unwrap();
    }
    drop(input);
    import.wait().unwrap();
    git(&["gc", "-q"]).status().unwrap();
    git(&["reset", "-q", "--hard"]).status().unwrap().success()
}
