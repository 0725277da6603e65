//! The tools of the MCP server that the client's hooks call: what a session does is heard of, commands are
//! answered, and nothing a daemon does is ever waited for.

use std::time::{Duration, Instant};

use lm_tests::{
    McpClient, Sandbox,
    daemon::{kill, running_pid, wait_until_left},
    observed::{observed_files, repository, settled},
    run::succeeded,
    wait_until,
};
use serde_json::{Value, json};

/// Longer than a reply ever takes, and far shorter than anything that would be waited for.
const AT_ONCE: Duration = Duration::from_secs(2);

/// What the client's hook sends after a tool, whose file is written.
fn observe(root: &std::path::Path, file: &str) -> Value {
    let path = root.join(file);
    std::fs::write(&path, "fn text() {}\n").unwrap();
    json!({ "name": "observe", "arguments": {
        "event": "PostToolUse", "tool": "Edit", "path": path, "notebook": "", "cwd": root, "session": "s", "agent": "",
    }})
}

#[track_caller]
fn assert_silent(client: &mut McpClient, call: Value) {
    let start = Instant::now();
    let reply = client.call("tools/call", call);
    assert!(start.elapsed() < AT_ONCE, "it took {:?}", start.elapsed());
    assert_eq!(reply["result"]["content"], json!([]), "{reply}");
    assert_ne!(reply["result"]["isError"], true, "{reply}");
}

fn text_of(reply: &Value) -> String {
    let text = reply["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {reply}"));
    let answer: Value = serde_json::from_str(text).unwrap();
    assert_eq!(answer["continue"], false, "{answer}");
    answer["stopReason"].as_str().unwrap().to_owned()
}

fn command(name: &str, arguments: &str, cwd: &std::path::Path) -> Value {
    json!({ "name": "command", "arguments": { "command": name, "arguments": arguments, "cwd": cwd } })
}

#[test]
fn what_a_session_does_is_heard_of_and_starts_the_daemon_that_was_killed() {
    let sandbox = Sandbox::new();
    let root = repository(&sandbox, "project");
    let mut client = McpClient::initialized(sandbox.shim(&[]));
    for file in ["a.rs", "b.rs", "a.rs"] {
        assert_silent(&mut client, observe(&root, file));
    }
    settled(&sandbox, 2);
    assert_eq!(observed_files(&sandbox, "project"), 2);
    kill(running_pid(&sandbox.data()));
    wait_until_left(&sandbox.data());
    assert_silent(&mut client, observe(&root, "c.rs"));
    wait_until("the next daemon to hear of it", || (observed_files(&sandbox, "project") >= 1).then_some(()));
}

#[test]
fn what_is_of_no_interest_is_answered_with_nothing_too() {
    let sandbox = Sandbox::new();
    let mut client = McpClient::initialized(sandbox.shim(&[]));
    for arguments in [
        json!(null),
        json!({}),
        json!({ "tool": "Bash", "path": "/w" }),
        json!({ "tool": ["Read"], "path": { "a": 1 } }),
        json!({ "tool": "Read", "path": "x".repeat(1 << 20) }),
    ] {
        assert_silent(&mut client, json!({ "name": "observe", "arguments": arguments }));
    }
    assert_silent(&mut client, json!({ "name": "command", "arguments": { "command": "other:stats" } }));
}

#[test]
fn a_model_is_told_that_there_is_no_such_tool() {
    let sandbox = Sandbox::new();
    let mut client = McpClient::initialized(sandbox.shim(&[]));
    for name in ["observe", "command"] {
        let reply = client.call(
            "tools/call",
            json!({ "name": name, "arguments": {}, "_meta": { "claudecode/toolUseId": "toolu_1" } }),
        );
        assert!(reply["error"]["message"].as_str().unwrap().contains("ask_live_memory"), "{reply}");
    }
}

#[cfg(unix)]
#[test]
fn a_hook_is_answered_at_once_whatever_the_daemon_does() {
    use rustix::process::Signal;
    let sandbox = Sandbox::new();
    let root = repository(&sandbox, "project");
    let mut client = McpClient::initialized(sandbox.shim(&[]));
    assert_silent(&mut client, observe(&root, "a.rs"));
    settled(&sandbox, 1);
    let pid = running_pid(&sandbox.data());
    lm_tests::daemon::signal(pid, Signal::STOP);
    for number in 0..20 {
        assert_silent(&mut client, observe(&root, &format!("{number}.rs")));
    }
    lm_tests::daemon::signal(pid, Signal::CONT);
    settled(&sandbox, 21);
    assert_eq!(observed_files(&sandbox, "project"), 21);
}

#[test]
fn commands_are_answered_about_the_sessions_workspace() {
    let sandbox = Sandbox::new();
    let root = repository(&sandbox, "project");
    let mut client = McpClient::initialized(sandbox.shim(&[]));
    assert_silent(&mut client, observe(&root, "a.rs"));
    settled(&sandbox, 1);
    let mut typed = |name: &str, arguments: &str| text_of(&client.call("tools/call", command(name, arguments, &root)));
    let paused = typed("live-memory:live-memory-pause", "");
    assert!(paused.contains("project") && paused.contains("`/live-memory-resume`"), "{paused}");
    assert!(typed("live-memory-resume", "").contains("Resumed learning"));
    let json: Value = serde_json::from_str(typed("live-memory-stats", "--json").trim()).unwrap();
    assert_eq!(json["workspace"]["root"], json!(root));
    let noted = "Orders aren't shipped on Sundays";
    typed("live-memory-remember", noted);
    assert!(typed("live-memory-ledger", "").contains(noted), "{}", typed("live-memory-ledger", ""));
    assert!(typed("live-memory-remember", " ").contains("/live-memory-remember TEXT"));
    assert!(typed("live-memory-forget", "Sundays").contains("--yes"));
    assert!(typed("live-memory-ledger", "").contains(noted));
    typed("live-memory-forget", "Sundays --yes");
    assert!(!typed("live-memory-ledger", "").contains(noted));
    assert!(typed("live-memory-empty", "").contains("1 observed file"));
    assert!(typed("live-memory-empty", "all").contains("Nothing was remembered of any workspace"));
    assert!(typed("live-memory-empty", "--frob").contains("Usage: /live-memory-empty"));
    let secret = typed("live-memory-config", "set api_key=sk-secret base_url=http://127.0.0.1:9/v1");
    assert!(!secret.contains("sk-secret"), "{secret}");
    assert!(succeeded(&sandbox.run(&["config", "show"])).contains("127.0.0.1:9"));
    // Standard input belongs to the protocol.
    assert!(typed("live-memory-setup", "--provider anthropic --key-stdin --yes").contains("--key-file"));
}
