//! The daemon's system calls while it answers, seen by `strace`.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use libtest_mimic::Trial;
use lm_tests::{Sandbox, binaries, wait_until};

use crate::lanes::{Problem, present, program};

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::ignorable_test("daemon::it_starts_no_process_and_connects_to_nothing", || {
        present(it_starts_no_process_and_connects_to_nothing())
    })]
}

/// In a repository whose configuration names programs, as a hostile one would.
fn it_starts_no_process_and_connects_to_nothing() -> Result<(), Problem> {
    let strace = program("strace")?;
    if !Command::new(&strace).args(["-qq", "true"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    {
        return Err(Problem::Absent("strace may not trace here".into()));
    }
    let _ = binaries::core();
    let sandbox = Sandbox::new();
    let repository = hostile_repository(&sandbox);
    let trace = sandbox.root().join("trace");
    let mut traced = sandbox.command(&strace);
    traced.args(["-f", "-qq", "-o"]).arg(&trace);
    traced.args(["-e", "trace=execve,execveat,fork,vfork,clone,clone3,socket,connect,bind"]);
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

    let calls = fs::read_to_string(trace).unwrap();
    let count = |name: &str| calls.lines().filter(|line| line.contains(name)).count();
    assert_eq!(count(" execve("), 1, "only strace's own start of the daemon: {calls}");
    assert!(count(" clone") > 0, "the trace shows no threads, so it shows nothing: {calls}");
    assert!(count(" socket(") > 0, "the trace shows no socket, so it shows nothing: {calls}");
    for line in calls.lines() {
        let starts_process = [" execveat(", " fork(", " vfork("].iter().any(|name| line.contains(name))
            || (line.contains(" clone") && line.contains('{') && !line.contains("CLONE_THREAD"))
            || (line.contains(" clone(") && !line.contains("CLONE_THREAD"));
        assert!(!starts_process, "a process: {line}");
        assert!(!line.contains(" socket(") || line.contains("AF_UNIX"), "a connection: {line}");
    }
    assert!(!repository.join("started").exists(), "a program named by the repository was run");
    Ok(())
}

fn hostile_repository(sandbox: &Sandbox) -> std::path::PathBuf {
    let repository = sandbox.workspace("repository");
    let write = |relative: &str, text: &str| {
        let path = repository.join(relative);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).unwrap();
        fs::write(path, text).unwrap();
    };
    write(".git/HEAD", "ref: refs/heads/main\n");
    fs::create_dir_all(repository.join(".git/objects")).unwrap();
    fs::create_dir_all(repository.join(".git/refs")).unwrap();
    let run = "touch started";
    write(
        ".git/config",
        &format!(
            "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {run}\n\tsshCommand = {run}\n\
             [filter \"run\"]\n\tclean = {run}\n\tsmudge = {run}\n\tprocess = {run}\n[diff \"run\"]\n\ttextconv = {run}\n"
        ),
    );
    write(".gitattributes", "* filter=run diff=run\n");
    write(
        "src/retry.rs",
        "/// Doubles with each attempt.\npub fn compute_retry_delay(attempt: u32) -> u64 {\n    1 << attempt\n}\n",
    );
    repository
}
