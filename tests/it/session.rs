//! A session of the MCP server with the real daemon behind it.

use std::{fs, path::PathBuf, time::Duration};

use lm_tests::{McpClient, Sandbox, wait_until};
use serde_json::{Value, json};

/// A session that was answered once, so that it is connected, and whose next questions are held by
/// the daemon while the file exists.
fn held_session(sandbox: &Sandbox) -> (McpClient, PathBuf) {
    let hold = sandbox.root().join("hold");
    let workspace = sandbox.workspace("w");
    fs::write(workspace.join("retry.rs"), "/// Doubles the pause.\nfn exponential_backoff() {}\n").unwrap();
    let mut command = sandbox.shim(&[]);
    command.env("LIVE_MEMORY_TEST_HOLD_FILE", &hold).env("CLAUDE_PROJECT_DIR", workspace);
    let mut client = McpClient::initialized(command);
    let (failed, text) = client.ask(json!({"question": "where is exponential_backoff?"}));
    assert!(!failed && text.contains("retry.rs:"), "{text}");
    fs::write(&hold, "").unwrap();
    (client, hold)
}

fn questions(sandbox: &Sandbox) -> Option<Value> {
    let output = sandbox.run(&["stats", "--json"]);
    let stats: Value = serde_json::from_slice(&output.stdout).ok()?;
    Some(stats["questions"].clone())
}

/// Waits until the daemon has so many questions.
fn wait_for_running(sandbox: &Sandbox, running: u64) {
    wait_until(&format!("{running} running"), || questions(sandbox).filter(|counts| counts["running"] == running));
}

/// Waits until so many questions were cancelled, and checks that only the first was answered.
fn wait_for_cancelled(sandbox: &Sandbox, cancelled: u64) {
    let questions = wait_until(&format!("{cancelled} cancelled"), || {
        questions(sandbox).filter(|counts| counts["cancelled"] == cancelled && counts["running"] == 0)
    });
    assert_eq!((&questions["answered"], &questions["failed"]), (&json!(1), &json!(0)), "{questions}");
}

#[test]
fn a_question_is_answered_while_pings_are() {
    let sandbox = Sandbox::new();
    let (mut client, hold) = held_session(&sandbox);
    let id =
        client.request_ask(json!({"question": "where is exponential_backoff?", "max_answer_tokens": 1_000_000_000}));
    assert!(client.rest().is_empty());
    fs::remove_file(hold).unwrap();
    let (failed, text) = client.asked(id);
    assert!(!failed && text.contains("retry.rs:"), "{text}");
}

#[test]
fn a_cancelled_question_is_stopped_in_the_daemon() {
    let sandbox = Sandbox::new();
    let (mut client, _hold) = held_session(&sandbox);
    let id = client.request_ask(json!({"question": "where is exponential_backoff?"}));
    wait_for_running(&sandbox, 1);
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    wait_for_cancelled(&sandbox, 1);
    assert!(client.rest().is_empty(), "a cancelled call was replied to");
}

#[test]
fn a_question_cancelled_at_once_counts_as_cancelled() {
    let sandbox = Sandbox::new();
    let (mut client, _hold) = held_session(&sandbox);
    let mut both = String::new();
    for id in 101..=120 {
        let call = json!({"name": "ask_live_memory", "arguments": {"question": "where is exponential_backoff?"}});
        both += &format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call}));
    }
    client.send_bytes(both.as_bytes());
    wait_for_running(&sandbox, 20);
    // Some of these reach the daemon together with their question, some later.
    let mut more = String::new();
    for id in 101..=120 {
        let cancelled = json!({"requestId": id});
        more += &format!("{}\n", json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    }
    client.send_bytes(more.as_bytes());
    wait_for_cancelled(&sandbox, 20);
    assert!(client.rest().is_empty(), "a cancelled call was replied to");
}

#[test]
fn a_session_that_ends_takes_its_questions_with_it() {
    let sandbox = Sandbox::new();
    let (mut client, _hold) = held_session(&sandbox);
    client.request_ask(json!({"question": "where is exponential_backoff?"}));
    client.request_ask(json!({"question": "what doubles the pause?"}));
    wait_for_running(&sandbox, 2);
    client.end_input();
    assert!(client.exit_within(Duration::from_secs(6)).success());
    wait_for_cancelled(&sandbox, 2);
}

#[cfg(unix)]
#[test]
fn a_session_that_is_killed_takes_its_questions_with_it_and_leaves_the_daemon() {
    use rustix::process::{Pid, Signal, kill_process};

    let sandbox = Sandbox::new();
    let (mut client, hold) = held_session(&sandbox);
    client.request_ask(json!({"question": "where is exponential_backoff?"}));
    wait_for_running(&sandbox, 1);
    kill_process(Pid::from_raw(client.pid().try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_for_cancelled(&sandbox, 1);
    fs::remove_file(hold).unwrap();
    let output = sandbox.shim(&["ask", "--cwd", "w", "where is exponential_backoff?"]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("retry.rs:"));
}
