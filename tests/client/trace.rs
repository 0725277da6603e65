//! The daemon's system calls while it answers, seen by `strace`: no process is started, nothing outside
//! the workspace and the data directory is opened but the system's own files, nothing is written outside
//! the data directory, and nobody is connected to but the chosen model.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use libtest_mimic::Trial;
use lm_tests::{
    ModelServer, Sandbox, binaries, git,
    model_server::{Script, Turn},
    wait_until,
};
use serde_json::{Value, json};

use crate::lanes::{Problem, present, program};

/// What starts processes, connects, opens and changes.
const TRACED: &str = "trace=execve,execveat,fork,vfork,clone,clone3,socket,connect,bind,sendto,open,openat,openat2,\
                      creat,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat";

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, run: fn() -> Result<(), Problem>| {
        Trial::ignorable_test(format!("daemon::{name}"), move || present(run()))
    };
    vec![
        trial(
            "offline_it_starts_no_process_and_connects_to_nothing",
            offline_it_starts_no_process_and_connects_to_nothing,
        ),
        trial(
            "with_a_model_and_all_tools_it_starts_no_process_and_touches_nothing_else",
            with_a_model_and_all_tools_it_starts_no_process_and_touches_nothing_else,
        ),
    ]
}

fn offline_it_starts_no_process_and_connects_to_nothing() -> Result<(), Problem> {
    session(None)
}

fn with_a_model_and_all_tools_it_starts_no_process_and_touches_nothing_else() -> Result<(), Problem> {
    let script = [Turn::calls(calls()), Turn::text("The delay doubles (src/retry.rs:2).")];
    let server = ModelServer::start(Script::new(script));
    session(Some(&server))?;
    let said: String = server.requests().iter().map(|request| request.raw.clone()).collect();
    assert!(said.contains("+// changed by the second commit"), "the tools saw the history: {said}");
    Ok(())
}

/// Every tool, in the ways that read much, and in ways that it must refuse.
fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("Read", json!({ "file_path": "src/retry.rs" })),
        ("Read", json!({ "file_path": "/etc/passwd" })),
        ("Read", json!({ "file_path": "outward" })),
        ("Read", json!({ "file_path": "../beside" })),
        ("Grep", json!({ "pattern": "delay", "output_mode": "content", "-C": 2 })),
        ("Glob", json!({ "pattern": "**/*" })),
        ("find_paths", json!({ "name": "retry" })),
        ("get_changed_files", json!({})),
        ("git_search", json!({ "query": "second" })),
        ("git_search", json!({ "query": "changed by", "show_diff": true })),
        ("git_search", json!({ "path": "src/retry.rs", "show_diff": true })),
    ]
}

/// In a repository whose configuration names programs wherever git knows a place for one.
fn session(server: Option<&ModelServer>) -> Result<(), Problem> {
    let strace = program("strace")?;
    if !Command::new(&strace).args(["-qq", "true"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    {
        return Err(Problem::Absent("strace may not trace here".into()));
    }
    if !git::is_there() {
        return Err(Problem::Absent("git is not installed".into()));
    }
    let _ = binaries::core();
    let sandbox = Sandbox::new();
    let repository = hostile_repository(&sandbox);
    let trace = sandbox.root().join("trace");
    let mut traced = sandbox.command(&strace);
    traced.args(["-f", "-y", "-qq", "-s", "4096", "-o"]).arg(&trace);
    traced.args(["-e", TRACED]);
    if let Some(server) = server {
        let config = json!({ "provider": "anthropic", "base_url": server.url(), "api_key": "sk-test-0123456789" });
        fs::write(sandbox.data().config_file(), config.to_string()).unwrap();
    }
    let mut daemon = traced.arg(binaries::core()).arg("--foreground").stderr(Stdio::null()).spawn().unwrap();
    wait_until("the daemon's endpoint", || sandbox.data().endpoint_record().exists().then_some(()));

    let answered = sandbox
        .shim(&["ask", "--cwd", repository.to_str().unwrap(), "Where is compute_retry_delay?"])
        .output()
        .unwrap();
    let answer = String::from_utf8_lossy(&answered.stdout).into_owned();
    assert!(answer.contains("retry.rs:"), "{answer}{}", String::from_utf8_lossy(&answered.stderr));
    assert!(sandbox.run(&["stop"]).status.success());
    assert!(daemon.wait().unwrap().success());

    let calls = stitched(&fs::read_to_string(trace).unwrap());
    no_process_was_started(&calls);
    let port = server.map(|server| server.url().rsplit(':').next().unwrap().to_owned());
    nobody_else_was_connected_to(&calls, port.as_deref());
    nothing_else_was_opened(&calls, &repository, sandbox.data().root(), &sandbox.home());
    assert!(!sandbox.root().join("mark").exists(), "a program named by the repository was run");
    Ok(())
}

/// The trace with calls in one piece that another thread's stand in the middle of.
fn stitched(trace: &str) -> String {
    let mut begun = HashMap::new();
    let mut calls = String::new();
    for line in trace.lines() {
        let (thread, call) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(beginning) = call.strip_suffix("<unfinished ...>") {
            begun.insert(thread, beginning);
            continue;
        }
        let (beginning, rest) =
            match call.trim_start().strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
                Some((_, rest)) => (begun.remove(thread).unwrap_or(" a call that began before the trace "), rest),
                None => ("", call),
            };
        calls.push_str(&format!("{thread} {beginning}{rest}\n"));
    }
    calls
}

fn count(calls: &str, name: &str) -> usize {
    calls.lines().filter(|line| line.contains(name)).count()
}

fn no_process_was_started(calls: &str) {
    assert_eq!(count(calls, " execve("), 1, "only strace's own start of the daemon: {calls}");
    assert!(count(calls, " clone") > 0, "the trace shows no threads, so it shows nothing: {calls}");
    for line in calls.lines() {
        let starts_process = [" execveat(", " fork(", " vfork("].iter().any(|name| line.contains(name))
            || (line.contains(" clone") && line.contains('{') && !line.contains("CLONE_THREAD"))
            || (line.contains(" clone(") && !line.contains("CLONE_THREAD"));
        assert!(!starts_process, "a process: {line}");
    }
}

fn nobody_else_was_connected_to(calls: &str, port: Option<&str>) {
    assert!(count(calls, " socket(") > 0, "the trace shows no socket, so it shows nothing: {calls}");
    for line in calls.lines() {
        let inet = ["AF_INET,", "AF_INET6,", "AF_NETLINK,", "AF_PACKET,"].iter().any(|family| line.contains(family));
        if port.is_none() {
            assert!(!(line.contains(" socket(") && inet), "a connection: {line}");
        }
        if line.contains(" connect(") && inet {
            let to_server = port.is_some_and(|port| {
                line.contains(&format!("htons({port})")) && line.contains("inet_addr(\"127.0.0.1\")")
            });
            assert!(to_server, "a connection to somebody else: {line}");
        }
        assert!(!line.contains(" sendto(") || !inet, "a datagram: {line}");
    }
    if port.is_some() {
        assert!(calls.contains("inet_addr(\"127.0.0.1\")"), "the trace does not show the model's address");
    }
}

/// Where the system keeps its own files: the loader, certificates, name service, the kernel's reports.
const SYSTEM: [&str; 10] =
    ["/etc", "/lib", "/lib64", "/usr", "/proc", "/sys", "/dev", "/nix", "/run", "/var/lib/ca-certificates"];

fn nothing_else_was_opened(calls: &str, repository: &Path, data: &Path, home: &Path) {
    let mut in_repository = 0;
    for line in calls.lines().filter(|line| opens_or_changes(line)) {
        // What failed has opened and changed nothing.
        if line.contains(" = -1 E") {
            continue;
        }
        let Some(path) = path_of(line) else { panic!("a call that this test does not understand: {line}") };
        let changes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "creat(", " unlink", " rename", " mkdir"]
            .iter()
            .any(|what| line.contains(what));
        let is_data = path.starts_with(data);
        let is_workspace = path.starts_with(repository);
        let is_system = SYSTEM.iter().any(|place| path.starts_with(place));
        let users_git = [".gitconfig", ".config"].iter().any(|name| path.starts_with(home.join(name)));
        // How `cap-std` finds out what the kernel can do; it can never succeed.
        let is_probe = line.contains("\"../.\"");
        // A root is looked for upwards, by its names alone.
        in_repository += usize::from(is_workspace && !changes);
        if changes {
            assert!(is_data || path.starts_with("/dev/") || is_probe, "changed outside the data directory: {line}");
        } else {
            // The directory of the program itself, and what the dynamic loader walks through.
            let is_program = binaries::core().parent().is_some_and(|directory| path.starts_with(directory));
            let is_above = repository.starts_with(&path) || data.starts_with(&path);
            assert!(
                is_data || is_workspace || is_system || users_git || is_program || is_above || is_probe,
                "opened outside the workspace: {line}"
            );
        }
    }
    assert!(in_repository > 2, "the trace does not show the work: {calls}");
}

fn opens_or_changes(line: &str) -> bool {
    [" open(", " openat(", " openat2(", " creat(", " unlink", " rename", " mkdir"]
        .iter()
        .any(|call| line.contains(call))
}

/// The path that a call names: `-y` shows what directory a relative one starts from.
fn path_of(line: &str) -> Option<PathBuf> {
    let arguments = line.split_once('(')?.1;
    let quoted = |text: &str| Some(text.split_once('"')?.1.split('"').next()?.to_owned());
    let named = quoted(arguments)?;
    if named.starts_with('/') {
        return Some(named.into());
    }
    let directory = arguments.split_once('<')?.1.split('>').next()?;
    Some(Path::new(directory).join(named))
}

fn hostile_repository(sandbox: &Sandbox) -> PathBuf {
    let repository = sandbox.workspace("repository");
    let write = |relative: &str, text: &str| {
        let path = repository.join(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let code =
        "/// Doubles with each attempt.\npub fn compute_retry_delay(attempt: u32) -> u64 {\n    1 << attempt\n}\n";
    write("src/retry.rs", code);
    write(".gitattributes", "* filter=run diff=run\n");
    git::repository(sandbox, &repository, "README.md", "# Hostile\n");
    write("src/retry.rs", &format!("{code}// changed by the second commit\n"));
    git::run(sandbox, &repository, &["commit", "--quiet", "--all", "--message", "second"]);
    write("src/retry.rs", &format!("{code}// changed in the working tree\n"));
    fs::write(sandbox.root().join("beside"), "not of the workspace").unwrap();
    std::os::unix::fs::symlink("../beside", repository.join("outward")).unwrap();

    let run = format!("touch {}", sandbox.root().join("mark").display());
    let config = repository.join(".git/config");
    let own = fs::read_to_string(&config).unwrap();
    let named = format!(
        "[core]\n\tfsmonitor = {run}\n\tsshCommand = {run}\n\tpager = {run}\n\teditor = {run}\n\
         [filter \"run\"]\n\tclean = {run}\n\tsmudge = {run}\n\tprocess = {run}\n\trequired = true\n\
         [diff]\n\texternal = {run}\n[diff \"run\"]\n\ttextconv = {run}\n\tcommand = {run}\n\
         [credential]\n\thelper = !{run}\n[gpg]\n\tprogram = {run}\n[log]\n\tshowSignature = true\n"
    );
    fs::write(&config, own + &named).unwrap();
    repository
}
