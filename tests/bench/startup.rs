//! How fast the processes are there, how soon a first question is answered, and how much memory they
//! take when idle.
//!
//! Each round measures everything once, `true` included, so that all rows had the same machine.
//! Prints a Markdown table for `docs/benchmarks.md`; nothing is asserted about speed.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and fails by stopping")]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lm_proto::{
    Build, DataDirectory, Endpoint,
    handshake::{Hello, Intent, Welcome},
};
use lm_tests::{Sandbox, binaries, corpus::Corpus, wait_until};

const ROUNDS: usize = 60;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"benchmark","version":"1"}}}"#;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sandbox = Sandbox::new();
    let launcher = launcher(&sandbox);
    // Every round's daemon has a data directory of its own; this one serves the shims.
    drop(started_daemon(&runtime, &sandbox, "warm-up"));
    assert!(sandbox.run(&["ask", "where is anything?"]).status.code().is_some());

    // A home in which no daemon was ever started, and one in which it has left.
    let (fresh, left) = (Sandbox::new(), Sandbox::new());
    drop(started_daemon(&runtime, &left, "data"));
    let project = sandbox.workspace("project");
    fs::create_dir_all(project.join(".git/objects")).unwrap();
    fs::create_dir_all(project.join(".git/refs")).unwrap();
    fs::write(project.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(project.join("file.rs"), "fn main() {}\n").unwrap();
    let [short, long] = [2_000, 1_400_000].map(|bytes| edit_of(&project.join("file.rs"), bytes));

    let mut rows: [(&str, Vec<Duration>); 9] = [
        ("`true`: start → end", Vec::new()),
        ("`sh -c :`: start → end", Vec::new()),
        ("shim: start → `initialize` answered", Vec::new()),
        ("shim through the plugin's launcher: the same", Vec::new()),
        ("daemon: start → handshake answered", Vec::new()),
        ("`lm-shim hook`: start → end", Vec::new()),
        ("`lm-shim hook`, a payload of 1.4 MB", Vec::new()),
        ("`lm-shim hook`, the daemon has left", Vec::new()),
        ("`lm-shim hook`, no daemon ever", Vec::new()),
    ];
    for round in 0..ROUNDS {
        rows[0].1.push(run_to_end(&mut Command::new("true")));
        rows[1].1.push(run_to_end(Command::new("sh").args(["-c", ":"])));
        rows[2].1.push(initialize(sandbox.command(binaries::shim())).0);
        rows[3].1.push(initialize(sandbox.command(&launcher)).0);
        rows[4].1.push(started_daemon(&runtime, &sandbox, &format!("daemon {round}")).took);
        rows[5].1.push(hook(&sandbox, &short));
        rows[6].1.push(hook(&sandbox, &long));
        rows[7].1.push(hook(&left, &short));
        rows[8].1.push(hook(&fresh, &short));
    }
    println!("| what | median ms | fastest ms | 95 % within ms | × `true` |\n|---|---|---|---|---|");
    let base = median(&mut rows[0].1).as_secs_f64();
    for (what, times) in &mut rows {
        let median = median(times);
        let [fastest, slow] = [times[0], times[times.len() * 95 / 100]].map(milliseconds);
        println!(
            "| {what} | {:.2} | {fastest:.2} | {slow:.2} | {:.1} |",
            milliseconds(median),
            median.as_secs_f64() / base
        );
    }

    println!("\n| resident memory, idle | MB |\n|---|---|");
    let daemon = started_daemon(&runtime, &sandbox, "idle");
    let (_, mut shim) = initialize(sandbox.command(binaries::shim()));
    // Two seconds without anything to do: an idle process, not one that is still starting.
    thread::sleep(Duration::from_secs(2));
    println!("| shim | {} |", resident(shim.0.id()));
    println!("| daemon | {} |", resident(daemon.child.0.id()));
    drop(shim.0.stdin.take());
    first_answers();
}

/// The payload of an edit, as long as the file that is quoted in it.
fn edit_of(file: &Path, bytes: usize) -> Vec<u8> {
    let payload = serde_json::json!({
        "session_id": "benchmark",
        "cwd": file.parent().unwrap(),
        "hook_event_name": "PostToolUse",
        "tool_name": "Edit",
        "tool_input": { "file_path": file, "old_string": "a", "new_string": "b" },
        "tool_response": { "filePath": file, "originalFile": "text \"quoted\"\n".repeat(bytes / 15) },
    });
    payload.to_string().into_bytes()
}

/// `lm-shim hook` from its start to its end, with a payload that is there at once.
fn hook(sandbox: &Sandbox, payload: &[u8]) -> Duration {
    let mut command = sandbox.shim(&["hook"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(payload).unwrap();
    assert!(child.wait().unwrap().success());
    start.elapsed()
}

/// `lm-shim ask` from its start to its end, in a tree of 5,000 source files.
fn first_answers() {
    println!("\n| `lm-shim ask`, 5,000 source files | median ms | slowest ms |\n|---|---|---|");
    let tree = Sandbox::new();
    let root = tree.workspace("tree");
    Corpus::middling().write(&root);
    let ask = |sandbox: &Sandbox, number: u64| {
        let mut command = sandbox.shim(&["ask", "--cwd", root.to_str().unwrap(), &Corpus::question(number)]);
        let start = Instant::now();
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        start.elapsed()
    };
    // A data directory of its own each time: no daemon, no index.
    let mut cold: Vec<Duration> = (0..5).map(|number| ask(&Sandbox::new(), number)).collect();
    let sandbox = Sandbox::new();
    ask(&sandbox, 0);
    let indexed = || {
        let stats = sandbox.run(&["stats", "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
        report["workspaces"]
            .as_array()
            .unwrap()
            .iter()
            .any(|workspace| workspace["index"]["state"] == "ready")
            .then_some(())
    };
    wait_until("the index", indexed);
    let mut warm: Vec<Duration> = (0..50).map(|number| ask(&sandbox, number)).collect();
    for (what, times) in [("no daemon, no index", &mut cold), ("daemon and index ready", &mut warm)] {
        let median = milliseconds(median(times));
        println!("| {what} | {median:.0} | {:.0} |", milliseconds(times[times.len() - 1]));
    }
}

/// Ends the process when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run_to_end(command: &mut Command) -> Duration {
    let start = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    start.elapsed()
}

fn initialize(mut command: Command) -> (Duration, Running) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let start = Instant::now();
    let mut child = Running(command.spawn().unwrap());
    let input = child.0.stdin.as_mut().unwrap();
    writeln!(input, "{INITIALIZE}").unwrap();
    input.flush().unwrap();
    let mut line = String::new();
    BufReader::new(child.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let took = start.elapsed();
    assert!(line.contains("serverInfo"), "not an answer to initialize: {line}");
    (took, child)
}

struct Daemon {
    took: Duration,
    child: Running,
}

/// A daemon in a data directory of its own, polled as a shim polls it.
fn started_daemon(runtime: &tokio::runtime::Runtime, sandbox: &Sandbox, name: &str) -> Daemon {
    let data = DataDirectory::open_at(sandbox.root().join(name)).unwrap();
    let mut command = sandbox.command(binaries::core());
    command.arg("--foreground").env("LIVE_MEMORY_DATA_DIR", data.root()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let child = Running(command.spawn().unwrap());
    while !runtime.block_on(answers(&data)) {
        assert!(start.elapsed() < Duration::from_secs(10), "the daemon does not answer");
        thread::sleep(Duration::from_micros(200));
    }
    Daemon { took: start.elapsed(), child }
}

async fn answers(data: &DataDirectory) -> bool {
    let Ok(mut stream) = Endpoint::of(data).connect().await else { return false };
    Hello::new(Intent::Probe, Build::with_stamp(0)).write(&mut stream).await.is_ok()
        && Welcome::read(&mut stream).await.is_ok()
}

/// The plugin's launcher with the binaries beside it as they are shipped.
fn launcher(sandbox: &Sandbox) -> PathBuf {
    let bin = sandbox.root().join("plugin/bin");
    let shipped = bin.join(format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH));
    fs::create_dir_all(&shipped).unwrap();
    for binary in [binaries::shim(), binaries::core()] {
        let copy = shipped.join(binary.file_name().unwrap());
        fs::copy(binary, &copy).unwrap();
        // The same age, or it would be a newer build that replaces the daemon of the others.
        let modified = fs::metadata(binary).unwrap().modified().unwrap();
        fs::File::options().append(true).open(&copy).unwrap().set_modified(modified).unwrap();
    }
    let launcher = bin.join("lm-shim");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin/bin/lm-shim"), &launcher).unwrap();
    launcher
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// `VmRSS` in MB; only Linux tells it in a file.
fn resident(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kilobytes =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map_or("not known on this system".into(), |kilobytes| format!("{:.1}", kilobytes / 1024.0))
}
