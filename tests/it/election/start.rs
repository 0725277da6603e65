//! From nothing to one daemon, whatever lies in the way.

use std::{fs, process::Stdio};

use lm_proto::{DataDirectory, handshake::Intent};
use lm_tests::{
    Sandbox,
    daemon::{
        Hold, ask, ask_command, assert_answered, has_left, kill, notes, running_pid, starts, texts, wait_until_asked,
        welcome,
    },
    wait_until,
};

#[test]
fn thirty_cold_starts_at_once_leave_one_daemon_and_thirty_answers() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let command = || ask_command(&sandbox).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let clients: Vec<_> = (0..30).map(|_| command()).collect();
    for client in clients {
        assert_answered(&client.wait_with_output().unwrap());
    }
    assert_eq!(starts(&data), 1);
    assert_eq!(welcome(&data, Intent::Probe).unwrap().pid, notes(&data).unwrap().pid);
}

#[test]
fn a_killed_daemon_is_replaced_by_the_next_question() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    for round in 1..=3 {
        assert_answered(&ask(&sandbox));
        assert_eq!(starts(&data), round);
        kill(running_pid(&data));
    }
    assert_answered(&ask(&sandbox));
}

#[test]
fn a_question_survives_the_death_of_its_daemon() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let hold = Hold::new(&sandbox);
    let mut command = ask_command(&sandbox);
    let client = hold.on(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_asked(&data, 1);
    let first = running_pid(&data);
    kill(first);
    let second = wait_until("a successor", || {
        welcome(&data, Intent::Probe).ok().map(|daemon| daemon.pid).filter(|&pid| pid != first)
    });
    wait_until_asked(&data, 2);
    hold.release();
    assert_answered(&client.wait_with_output().unwrap());
    assert_eq!(running_pid(&data), second);
}

#[test]
fn whoever_reads_the_shims_output_sees_its_end() {
    let sandbox = Sandbox::new();
    // `output` reads both pipes to their ends, which a daemon that holds them would never let come.
    let output = ask_command(&sandbox).stderr(Stdio::piped()).output().unwrap();
    assert_answered(&output);
    assert!(!has_left(&sandbox.data()), "the daemon stays");
}

#[test]
fn a_long_data_directory_works_and_all_meet_there() {
    let sandbox = Sandbox::new();
    let path = sandbox.root().join("d".repeat(100)).join("e".repeat(60));
    let data = DataDirectory::open_at(path.clone()).unwrap();
    for _ in 0..2 {
        assert_answered(&ask_command(&sandbox).env("LIVE_MEMORY_DATA_DIR", &path).output().unwrap());
    }
    assert_eq!(starts(&data), 1);
    let stopped = sandbox.shim(&["stop"]).env("LIVE_MEMORY_DATA_DIR", &path).output().unwrap();
    assert!(stopped.status.success(), "{}", texts(&stopped).1);
    assert!(has_left(&data));
}

#[test]
fn the_daemon_runs_from_a_copy_and_earlier_copies_go() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let earlier = data.binaries().join("0.0.1-1");
    fs::create_dir_all(&earlier).unwrap();
    assert_answered(&ask(&sandbox));
    let executable = notes(&data).unwrap().executable;
    assert!(fs::canonicalize(executable).unwrap().starts_with(fs::canonicalize(data.binaries()).unwrap()));
    wait_until("the earlier copy to go", || (!earlier.exists()).then_some(()));
}

#[test]
fn reports_and_stop_start_nothing() {
    let sandbox = Sandbox::new();
    let (report, error) = texts(&sandbox.run(&["stats"]));
    assert!(report.contains("daemon is not running"), "{report}{error}");
    assert!(sandbox.run(&["stop"]).status.success());
    assert!(has_left(&sandbox.data()));
    assert_eq!(starts(&sandbox.data()), 0);
}
