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

/// Lets the daemon begin with what a client has just asked; a question that is cancelled before that
/// is dropped without a trace. It is asked for its statistics twice, each time by a new process.
fn let_it_begin(sandbox: &Sandbox, client: &mut McpClient) {
    assert!(client.rest().is_empty());
    for _ in 0..2 {
        assert!(sandbox.run(&["stats"]).status.success());
    }
}

/// Waits until so many questions were cancelled, and checks that only the first was answered.
fn wait_for_cancelled(sandbox: &Sandbox, cancelled: u64) {
    let questions = wait_until(&format!("{cancelled} cancelled"), || {
        let output = sandbox.run(&["stats", "--json"]);
        let stats: Value = serde_json::from_slice(&output.stdout).ok()?;
        (stats["questions"]["cancelled"] == cancelled).then(|| stats["questions"].clone())
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
    let_it_begin(&sandbox, &mut client);
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    wait_for_cancelled(&sandbox, 1);
    assert!(client.rest().is_empty(), "a cancelled call was replied to");
}

#[test]
fn a_session_that_ends_takes_its_questions_with_it() {
    let sandbox = Sandbox::new();
    let (mut client, _hold) = held_session(&sandbox);
    client.request_ask(json!({"question": "where is exponential_backoff?"}));
    client.request_ask(json!({"question": "what doubles the pause?"}));
    let_it_begin(&sandbox, &mut client);
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
    let_it_begin(&sandbox, &mut client);
    kill_process(Pid::from_raw(client.pid().try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_for_cancelled(&sandbox, 1);
    fs::remove_file(hold).unwrap();
    let output = sandbox.shim(&["ask", "--cwd", "w", "where is exponential_backoff?"]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("retry.rs:"));
}
