//! Several versions on one machine: the newer one wins, once.

use lm_proto::{
    Build,
    handshake::{Intent, State},
};
use lm_tests::{
    Sandbox, binaries,
    daemon::{
        FAKE_ANSWER, FakeDaemon, Installation, ask, assert_answered, running_pid, starts, texts, welcome, workspace,
    },
    mcp_client::McpClient,
};
use serde_json::json;

fn own() -> Build {
    Build::of_core_binary(binaries::core())
}

fn older() -> Build {
    Build { stamp: own().stamp - 1, ..own() }
}

fn newer() -> Build {
    Build { version: own().version + 1, stamp: 0 }
}

#[test]
fn an_older_daemon_is_replaced() {
    let sandbox = Sandbox::new();
    for state in [State::Ready, State::NoCommonProtocol] {
        let fake = FakeDaemon::start(&sandbox.data(), older(), state);
        let output = ask(&sandbox);
        assert_answered(&output);
        assert!(!texts(&output).0.contains(FAKE_ANSWER));
        assert!(fake.was_drained());
        assert!(sandbox.run(&["stop"]).status.success());
    }
}

#[test]
fn a_newer_daemon_is_used() {
    let sandbox = Sandbox::new();
    let fake = FakeDaemon::start(&sandbox.data(), newer(), State::Ready);
    let output = ask(&sandbox);
    assert_answered(&output);
    assert!(texts(&output).0.contains(FAKE_ANSWER));
    assert!(!fake.was_drained());
    assert_eq!(starts(&sandbox.data()), 0);
}

#[test]
fn a_newer_daemon_that_cannot_be_understood_means_restart_the_session() {
    let sandbox = Sandbox::new();
    let fake = FakeDaemon::start(&sandbox.data(), newer(), State::NoCommonProtocol);
    let output = ask(&sandbox);
    let (_, error) = texts(&output);
    assert!(!output.status.success() && error.contains("restart the session"), "{error}");
    assert!(!fake.was_drained());
    assert_eq!(starts(&sandbox.data()), 0);
}

#[test]
fn two_builds_in_turn_start_two_daemons_at_most() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let stamp = own().stamp;
    let installations = [Installation::built_at(&sandbox, stamp - 20), Installation::built_at(&sandbox, stamp - 10)];
    for _ in 0..10 {
        for installation in &installations {
            assert_answered(&installation.ask(&sandbox));
        }
    }
    assert_eq!(starts(&data), 2);
}

/// Several clients notice an older daemon together; one of them replaces it.
#[test]
fn a_replacement_happens_once_for_all() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let older = Installation::built_at(&sandbox, own().stamp - 10);
    assert_answered(&older.ask(&sandbox));
    let first = running_pid(&data);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(|| ask(&sandbox))).collect();
        for asked in asking {
            assert_answered(&asked.join().unwrap());
        }
    });
    assert_ne!(running_pid(&data), first);
    assert_eq!(starts(&data), 2);
}

/// A client keeps its server for the whole session; a rebuild is taken up all the same.
#[test]
fn a_session_takes_up_a_rebuilt_daemon() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let installation = Installation::built_at(&sandbox, own().stamp - 10);
    let shim = installation.directory().join(binaries::shim().file_name().unwrap());
    let mut client = McpClient::initialized(sandbox.command(&shim));
    let workspace = workspace(&sandbox);
    let mut ask = || client.ask(json!({ "question": "where is the port set", "cwd": workspace }));
    assert!(!ask().0);
    let first = welcome(&data, Intent::Probe).unwrap();
    assert!(!ask().0);
    assert_eq!(welcome(&data, Intent::Probe).unwrap().pid, first.pid);
    installation.rebuild(own().stamp - 5);
    assert!(!ask().0);
    let second = welcome(&data, Intent::Probe).unwrap();
    assert!(second.build > first.build && second.pid != first.pid, "{first:?} {second:?}");
}
