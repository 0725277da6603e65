//! A daemon's life: what ends it, and what does not.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use lm_proto::{Endpoint, handshake::Intent};
use lm_tests::{
    Sandbox, binaries,
    daemon::{
        Hold, ask, ask_command, assert_answered, block_on, has_left, notes, running_pid, starts, texts,
        wait_until_asked, wait_until_left, welcome,
    },
    wait_until,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn foreground(sandbox: &Sandbox) -> Command {
    let mut command = sandbox.command(binaries::core());
    command.arg("--foreground").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn held_question(sandbox: &Sandbox, hold: &Hold) -> Child {
    let mut command = ask_command(sandbox);
    let child = hold.on(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_asked(&sandbox.data(), 1);
    child
}

#[test]
fn a_drained_daemon_finishes_its_answers_first() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let hold = Hold::new(&sandbox);
    let client = held_question(&sandbox, &hold);
    let mut stopping = sandbox.shim(&["stop"]).spawn().unwrap();
    wait_until("the daemon to drain", || {
        let welcome = welcome(&data, Intent::Probe).unwrap();
        (welcome.state == lm_proto::handshake::State::Draining).then_some(())
    });
    hold.release();
    assert_answered(&client.wait_with_output().unwrap());
    assert!(stopping.wait().unwrap().success());
    assert!(has_left(&data));
    assert_eq!(starts(&data), 1, "the question was answered by the daemon that left");
}

#[test]
fn a_question_that_outlasts_the_drain_goes_to_the_successor() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let hold = Hold::new(&sandbox);
    let client = held_question(&sandbox, &hold);
    let first = running_pid(&data);
    assert!(sandbox.run(&["stop"]).status.success());
    wait_until("a successor", || {
        welcome(&data, Intent::Probe).ok().map(|daemon| daemon.pid).filter(|&pid| pid != first)
    });
    hold.release();
    assert_answered(&client.wait_with_output().unwrap());
}

#[test]
fn an_idle_daemon_leaves_and_takes_its_endpoint_along() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    assert_answered(&ask_command(&sandbox).env("LIVE_MEMORY_IDLE_EXIT_S", "1").output().unwrap());
    wait_until_left(&data);
    assert!(cfg!(windows) || !Endpoint::of(&data).address().exists());
    assert_eq!(notes(&data), None);
    assert_answered(&ask(&sandbox));
}

/// The daemon leaves although the file is still there: nothing works on the question any more.
#[test]
fn a_question_ends_with_its_client() {
    let sandbox = Sandbox::new();
    let hold = Hold::new(&sandbox);
    let mut command = ask_command(&sandbox);
    command.env("LIVE_MEMORY_IDLE_EXIT_S", "1");
    let mut client = hold.on(&mut command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until_asked(&sandbox.data(), 1);
    client.kill().unwrap();
    client.wait().unwrap();
    wait_until_left(&sandbox.data());
}

#[test]
fn in_the_foreground_it_serves_and_says_so_in_both_places() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let daemon = foreground(&sandbox).spawn().unwrap();
    let pid = running_pid(&data);
    assert_eq!(pid, daemon.id());
    assert_answered(&ask(&sandbox));
    assert_eq!(starts(&data), 1);

    let second = foreground(&sandbox).output().unwrap();
    let (_, error) = texts(&second);
    assert_eq!(second.status.code(), Some(1));
    assert!(error.contains("already runs") && error.contains(&pid.to_string()), "{error}");

    assert!(sandbox.run(&["stop"]).status.success());
    let output = daemon.wait_with_output().unwrap();
    let (out, error) = texts(&output);
    assert!(output.status.success() && out.is_empty() && error.contains("listening"), "{error}");
}

#[test]
fn a_client_that_talks_nonsense_or_nothing_harms_nobody() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    assert_answered(&ask(&sandbox));
    let pid = running_pid(&data);
    block_on(async {
        let endpoint = Endpoint::of(&data);
        let mut nonsense = endpoint.connect().await.unwrap();
        let mut silent = endpoint.connect().await.unwrap();
        nonsense.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3).as_slice()).await.unwrap();
        assert_closed(&mut nonsense).await;
        assert_answered(&ask(&sandbox));
        assert_closed(&mut silent).await;
    });
    assert_eq!(running_pid(&data), pid);
}

async fn assert_closed(stream: &mut (impl AsyncReadExt + Unpin)) {
    let mut bytes = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes)).await;
    // Closed with or without an error, as long as it is closed.
    let _ = end.expect("the daemon keeps the connection");
    assert!(bytes.is_empty());
}

#[test]
fn thousands_of_short_connections_do_it_no_harm() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    assert_answered(&ask(&sandbox));
    let pid = running_pid(&data);
    block_on(async {
        let endpoint = Endpoint::of(&data);
        let count = if cfg!(windows) { 500 } else { 5_000 };
        for _ in 0..count {
            // A full queue is the client's to wait for.
            while endpoint.connect().await.is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    assert_answered(&ask(&sandbox));
    assert_eq!(running_pid(&data), pid);
}

#[test]
fn its_log_is_rotated_and_holds_no_question() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let log = sandbox.root().join("elsewhere.log");
    let mut command = sandbox.shim(&["ask", "where is canary-4711 kept"]);
    command.current_dir(lm_tests::daemon::workspace(&sandbox));
    for (name, value) in [("LEVEL", "debug"), ("MAX_BYTES", "4096"), ("BACKUPS", "2")] {
        command.env(format!("LIVE_MEMORY_LOG_{name}"), value);
    }
    let output = command.env("LIVE_MEMORY_LOG_FILE", &log).output().unwrap();
    assert!(output.status.success(), "{}", texts(&output).1);
    let backup = sandbox.root().join("elsewhere.log.2");
    block_on(async {
        let endpoint = Endpoint::of(&data);
        for _ in 0..300 {
            if let Ok(mut stream) = endpoint.connect().await {
                let _ = stream.write_all(&[b'x'; 64]).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        }
    });
    wait_until("the log to be rotated", || backup.exists().then_some(()));
    for file in [&log, &sandbox.root().join("elsewhere.log.1"), &backup] {
        let text = fs::read_to_string(file).unwrap();
        assert!(text.len() <= 4_096 && !text.contains("canary-4711"), "{text}");
    }
    assert!(!sandbox.root().join("elsewhere.log.3").exists());
    assert!(!data.core_log().exists());
}
