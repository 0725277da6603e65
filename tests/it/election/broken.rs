//! A daemon that does not start: a clear error in bounded time, and no storm of attempts.

use std::{fs, time::Instant};

use lm_tests::{
    Sandbox, binaries,
    daemon::{Installation, has_left, texts},
};

/// The shim itself stands in for a broken daemon: it refuses the daemon's arguments and ends.
#[test]
fn one_that_ends_is_started_a_few_times_and_then_left_alone() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let installation = Installation::with_core(&sandbox, "broken", binaries::shim(), 1_000);
    let start_log = data.start_log().display().to_string();
    for _ in 0..6 {
        let output = installation.ask(&sandbox);
        let (answer, error) = texts(&output);
        assert!(!output.status.success() && answer.is_empty(), "{answer}");
        assert!(error.contains(&start_log), "{error}");
    }
    let (_, error) = texts(&installation.ask(&sandbox));
    assert!(error.contains("3 times within a minute"), "{error}");
    let starts: serde_json::Value = serde_json::from_slice(&fs::read(data.start_record()).unwrap()).unwrap();
    assert_eq!(starts["started"].as_array().unwrap().len(), 3);
    let logs = fs::read_dir(data.logs()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    assert!(logs.sum::<u64>() < 100_000);
}

#[cfg(unix)]
#[test]
fn one_that_does_nothing_is_given_up_in_time_and_ended() {
    use std::os::unix::fs::PermissionsExt;

    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let program = sandbox.root().join("sleeper");
    let pid_file = sandbox.root().join("sleeper.pid");
    fs::write(&program, format!("#!/bin/sh\necho $$ > '{}'\nexec sleep 999\n", pid_file.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let installation = Installation::with_core(&sandbox, "sleeping", &program, 1_000);
    let start = Instant::now();
    // Two at once: the second must not wait for the lock and then try it all over again.
    std::thread::scope(|scope| {
        for asked in [(); 2].map(|()| scope.spawn(|| installation.ask(&sandbox))) {
            let output = asked.join().unwrap();
            let (_, error) = texts(&output);
            assert!(!output.status.success() && error.contains(&data.core_log().display().to_string()), "{error}");
        }
    });
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    let pid = fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    assert!(rustix::process::test_kill_process(pid).is_err(), "the program is still there");
}

#[test]
fn a_missing_one_is_named_with_its_place() {
    let sandbox = Sandbox::new();
    let installation = Installation::built_at(&sandbox, 1_000);
    fs::remove_file(installation.directory().join(binaries::core().file_name().unwrap())).unwrap();
    let output = installation.ask(&sandbox);
    let (_, error) = texts(&output);
    assert!(!output.status.success(), "{error}");
    let place = installation.directory().file_name().unwrap().to_str().unwrap();
    assert!(error.contains("cannot find lm-core") && error.contains(place), "{error}");
    assert!(has_left(&sandbox.data()));
}
