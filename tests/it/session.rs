//! A session of the MCP server with the real daemon behind it.

use std::{fs, path::PathBuf, time::Duration};

use futures_util::SinkExt;
use lm_proto::{
    Build, Endpoint,
    codec::{ClientFramed, Codec},
    handshake::{Hello, Intent, State, Welcome},
    message::{Ask, ClientMessage, Request},
};
use lm_tests::{McpClient, Sandbox, daemon, wait_until};
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
fn a_question_cancelled_before_it_was_begun_counts_as_cancelled() {
    let sandbox = Sandbox::new();
    let (client, _hold) = held_session(&sandbox);
    let workspace = sandbox.workspace("w");
    daemon::block_on(async {
        let mut stream = Endpoint::of(&sandbox.data()).connect().await.unwrap();
        Hello::new(Intent::Serve, Build::default()).write(&mut stream).await.unwrap();
        assert_eq!(Welcome::read(&mut stream).await.unwrap().state, State::Ready);
        let mut messages = ClientFramed::new(stream, Codec::default());
        for id in 0..20 {
            let ask = Ask {
                question: "where is exponential_backoff?".into(),
                cwd: workspace.to_str().unwrap().into(),
                max_answer_tokens: None,
                timeout_s: None,
                environment: vec![],
            };
            messages.feed(ClientMessage::Request { id, request: Request::Ask(ask) }).await.unwrap();
            messages.feed(ClientMessage::Cancel { id }).await.unwrap();
        }
        messages.flush().await.unwrap();
        wait_for_cancelled(&sandbox, 20);
    });
    drop(client);
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

#[cfg(unix)]
#[test]
fn a_shim_whose_client_is_killed_leaves() {
    use std::{io::Read, path::Path, process::Stdio, sync::mpsc};

    use lm_tests::{
        binaries,
        mcp_client::{VERSION, initialize_parameters},
    };
    let sandbox = Sandbox::new();
    let _ = binaries::core();
    let input = sandbox.root().join("input");
    lm_tests::make_pipe(&input);
    // A client that holds the only writing end of the shim's input.
    let script = "\"$1\" < input & exec 3> input; printf '%s\\n' \"$2\" \"$3\" >&3; read -r never";
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": initialize_parameters(VERSION, json!({}))});
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let mut command = sandbox.command(Path::new("/bin/sh"));
    command.args(["-c", script, "sh", binaries::shim().to_str().unwrap()]);
    command.args([initialize.to_string(), initialized.to_string()]);
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = client.stdout.take().unwrap();
    let (sender, said) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = output.read(&mut chunk) {
            let _ = sender.send(String::from_utf8_lossy(&chunk[..length]).into_owned());
        }
    });
    let reply = said.recv_timeout(lm_tests::wait::DEADLINE).unwrap();
    assert!(reply.contains("serverInfo"), "{reply}");
    let _ = daemon::running_pid(&sandbox.data());
    daemon::kill(client.id());
    client.wait().unwrap();
    // Its output ends when it has left, since nobody else has it.
    let limit = Duration::from_secs(6);
    assert_eq!(said.recv_timeout(limit), Err(mpsc::RecvTimeoutError::Disconnected), "the shim is still there");
    reader.join().unwrap();
}
