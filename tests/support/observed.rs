//! What sessions read and edit: the payloads of their hooks, and what the daemon says it took in.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::{Sandbox, run, wait_until};

/// A directory that is a repository, as far as a workspace's root goes; git need not be installed.
#[must_use]
pub fn repository(sandbox: &Sandbox, name: &str) -> PathBuf {
    let root = sandbox.workspace(name);
    repository_at(&root);
    root
}

/// Makes a directory such a repository.
pub fn repository_at(root: &Path) {
    fs::create_dir_all(root.join(".git/objects")).unwrap();
    fs::create_dir_all(root.join(".git/refs")).unwrap();
    fs::write(root.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
}

/// The payload of a hook after a tool, as Claude Code 2.1.197 writes it.
#[must_use]
pub fn payload(tool: &str, path: &Path, cwd: &Path) -> Value {
    let key = if tool == "NotebookEdit" { "notebook_path" } else { "file_path" };
    json!({
        "session_id": "5c3a0f3e-0000-4000-8000-000000000000",
        "transcript_path": "/home/me/.claude/projects/x/t.jsonl",
        "cwd": cwd,
        "permission_mode": "default",
        "hook_event_name": "PostToolUse",
        "tool_name": tool,
        "tool_input": { key: path, "old_string": "a", "new_string": "b" },
        "tool_response": { "filePath": path, "originalFile": "a\n", "userModified": false },
        "tool_use_id": "toolu_01",
    })
}

/// The payload after a tool that has written a file, which is written.
#[must_use]
pub fn done(tool: &str, path: &Path, cwd: &Path) -> Value {
    let path = cwd.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "fn text() {}\n").unwrap();
    payload(tool, &path, cwd)
}

/// `lm-shim hook` with a payload.
#[must_use]
pub fn hook(sandbox: &Sandbox, payload: &[u8]) -> Output {
    with_input(&mut sandbox.shim(&["hook"]), payload)
}

/// A program with an input, to its end.
#[must_use]
pub fn with_input(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // One that has heard enough does not read on.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// What the daemon says of itself.
#[must_use]
pub fn stats(sandbox: &Sandbox) -> Value {
    run::json(&sandbox.run(&["stats", "--json"]))
}

/// What it says of a workspace that is open, by the end of its root.
#[must_use]
pub fn workspace_stats(sandbox: &Sandbox, name: &str) -> Option<Value> {
    let stats = stats(sandbox);
    let mut all = stats["workspaces"].as_array()?.iter();
    all.find(|workspace| workspace["root"].as_str().is_some_and(|root| Path::new(root).ends_with(name))).cloned()
}

/// Waits until nothing waits to be taken in, and gives what became of all that came.
pub fn settled(sandbox: &Sandbox, came: u64) -> Value {
    wait_until("observations to be taken in", || {
        let observations = stats(sandbox)["observations"].take();
        let dropped: u64 = observations["dropped"].as_object()?.values().filter_map(Value::as_u64).sum();
        let done = observations["taken"].as_u64()? + dropped;
        (observations["waiting"] == 0 && done >= came).then_some(observations)
    })
}

/// How many files were observed in a workspace.
#[must_use]
pub fn observed_files(sandbox: &Sandbox, name: &str) -> u64 {
    workspace_stats(sandbox, name).and_then(|workspace| workspace["observed"]["files"].as_u64()).unwrap_or_default()
}
