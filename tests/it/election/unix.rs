//! What only Unix has: sockets as files, signals, sessions, modes, inherited descriptors.

use std::{
    fs,
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use lm_proto::{DataDirectory, Endpoint, handshake::Intent};
use lm_tests::{
    Sandbox, binaries,
    daemon::{
        ask, assert_answered, block_on, notes, running_pid, signal, starts, texts, wait_until_left, welcome, workspace,
    },
    wait_until,
};
use rustix::process::{Pid, Signal, kill_process_group};

fn socket(data: &DataDirectory) -> PathBuf {
    data.run().join("core.sock")
}

#[test]
fn a_stale_socket_is_no_obstacle() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    drop(UnixListener::bind(socket(&data)).unwrap());
    assert_answered(&ask(&sandbox));
    assert_eq!(Endpoint::of(&data).address(), socket(&data));
}

#[test]
fn what_is_not_a_socket_is_left_alone_and_got_around() {
    let obstacles: [fn(&Path); 3] = [
        |path| fs::write(path, "").unwrap(),
        |path| fs::create_dir(path).unwrap(),
        |path| symlink("/nonexistent/socket", path).unwrap(),
    ];
    for place in obstacles {
        let sandbox = Sandbox::new();
        let data = sandbox.data();
        place(&socket(&data));
        let before = fs::symlink_metadata(socket(&data)).unwrap();
        assert_answered(&ask(&sandbox));
        assert_answered(&ask(&sandbox));
        assert_eq!(starts(&data), 1);
        let after = fs::symlink_metadata(socket(&data)).unwrap();
        assert_eq!((before.ino(), before.file_type()), (after.ino(), after.file_type()));
        let chosen = Endpoint::of(&data).address().to_owned();
        assert_ne!(chosen, socket(&data));
        assert!(sandbox.run(&["stop"]).status.success());
        assert!(!chosen.exists(), "its socket goes with the daemon");
    }
}

#[test]
fn a_daemon_that_hangs_is_named_and_not_doubled() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    assert_answered(&ask(&sandbox));
    let pid = running_pid(&data);
    signal(pid, Signal::STOP);
    let start = Instant::now();
    let output = ask(&sandbox);
    let elapsed = start.elapsed();
    signal(pid, Signal::CONT);
    let (_, error) = texts(&output);
    assert!(!output.status.success(), "{error}");
    assert!(error.contains(&pid.to_string()) && error.contains(&data.core_log().display().to_string()), "{error}");
    assert!(elapsed.as_secs() < 10, "{elapsed:?}");
    assert_answered(&ask(&sandbox));
    assert_eq!((running_pid(&data), starts(&data)), (pid, 1));
}

#[test]
fn a_daemon_whose_socket_was_taken_away_makes_room() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    assert_answered(&ask(&sandbox));
    let first = running_pid(&data);
    fs::rename(socket(&data), data.run().join("moved.sock")).unwrap();
    assert_answered(&ask(&sandbox));
    let second = running_pid(&data);
    assert_ne!(first, second);
    assert!(socket(&data).exists(), "the first one's end left its successor's socket alone");
    assert_answered(&ask(&sandbox));
    assert_eq!((running_pid(&data), starts(&data)), (second, 2));
}

#[test]
fn a_data_directory_moved_away_ends_its_daemon() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    assert_answered(&ask(&sandbox));
    let pid = Pid::from_raw(running_pid(&data).cast_signed()).unwrap();
    fs::rename(data.root(), sandbox.root().join("moved")).unwrap();
    // Not waited for by its parent, which has ended: it disappears, rather than becoming defunct.
    wait_until("the daemon to end", || rustix::process::test_kill_process(pid).is_err().then_some(()));
}

#[test]
fn it_survives_the_group_and_terminal_of_its_starter() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    // The group's leader stays, as a session would, while its child asks.
    let mut command = sandbox.command(Path::new("/bin/sh"));
    command.arg("-c").arg(format!("'{}' ask 'the port'; sleep 99", binaries::shim().display()));
    let _ = binaries::core();
    let mut leader = command.current_dir(workspace(&sandbox)).process_group(0).stdout(Stdio::null()).spawn().unwrap();
    let pid = running_pid(&data);
    let group = Pid::from_raw(leader.id().cast_signed()).unwrap();
    kill_process_group(group, Signal::HUP).unwrap();
    leader.wait().unwrap();
    let _ = kill_process_group(group, Signal::KILL);
    signal(pid, Signal::HUP);
    assert_answered(&ask(&sandbox));
    assert_eq!((running_pid(&data), starts(&data)), (pid, 1));
}

#[test]
fn signals_that_ask_it_to_leave_make_it_leave_cleanly() {
    for asked in [Signal::TERM, Signal::INT] {
        let sandbox = Sandbox::new();
        let data = sandbox.data();
        assert_answered(&ask(&sandbox));
        signal(running_pid(&data), asked);
        wait_until_left(&data);
        assert!(!socket(&data).exists());
        assert_eq!(notes(&data), None);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn it_inherits_no_file_no_place_and_no_secret() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let (mut reader, writer) = std::io::pipe().unwrap();
    // Descriptor 9 is open in the shim, as a shell's script may leave it.
    let mut command = sandbox.command(Path::new("/bin/sh"));
    command.arg("-c").arg(format!("'{}' ask 'the port' 9>&0 2>&9", binaries::shim().display())).stdin(writer);
    command.env("LIVE_MEMORY_API_KEY", "canary-1").env("ANTHROPIC_API_KEY", "canary-2");
    let _ = binaries::core();
    let doomed = sandbox.workspace("doomed");
    let output = command.current_dir(&doomed).output().unwrap();
    drop(command);
    assert!(output.status.success(), "{}", texts(&output).1);
    // Ends only when nobody holds the other end any more.
    std::io::Read::read_to_end(&mut reader, &mut Vec::new()).unwrap();

    let process = PathBuf::from(format!("/proc/{}", running_pid(&data)));
    for entry in fs::read_dir(process.join("fd")).unwrap().map(Result::unwrap) {
        let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let expected: &Path = match number {
            0 | 1 => Path::new("/dev/null"),
            2 => &data.start_log(),
            _ => {
                let text = target.to_string_lossy().into_owned();
                // Its own: what the runtime polls with, its files, and the workspace it reads.
                // For a moment also what the standard library counts processors by.
                let own = ["anon_inode:", "socket:", "pipe:", "/proc/", "/sys/fs/cgroup/"]
                    .iter()
                    .any(|own| text.starts_with(own));
                assert!(own || target.starts_with(data.root()) || target == doomed, "{number} is {text}");
                continue;
            }
        };
        assert_eq!(target, expected, "descriptor {number}");
    }
    assert_eq!(fs::read_link(process.join("cwd")).unwrap(), data.run());
    let environment = fs::read(process.join("environ")).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains("canary"));

    fs::remove_dir_all(doomed).unwrap();
    assert_answered(&ask(&sandbox));
    assert_eq!(starts(&data), 1);
}

#[test]
fn nothing_it_makes_is_open_to_others() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    fs::remove_dir_all(data.root()).unwrap();
    let mut command = sandbox.command(Path::new("/bin/sh"));
    command.arg("-c").arg(format!("umask 000; '{}' ask 'the port'", binaries::shim().display()));
    let _ = binaries::core();
    let output = command.current_dir(workspace(&sandbox)).output().unwrap();
    assert!(output.status.success(), "{}", texts(&output).1);
    let mut left = vec![data.root().to_owned()];
    let mut seen = 0;
    while let Some(path) = left.pop() {
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            // The daemon lives: a file that it writes anew has had another name until it was whole.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => panic!("cannot look at {}: {error}", path.display()),
        };
        assert_eq!(metadata.mode() & 0o077, 0, "{} is {:o}", path.display(), metadata.mode());
        seen += usize::from(metadata.is_file() || metadata.file_type().is_socket());
        if metadata.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert!(seen >= 7, "only {seen} files were looked at");
}

#[test]
fn it_works_without_a_home_or_a_path() {
    let sandbox = Sandbox::new();
    let mut command = Command::new(binaries::shim());
    command.env_clear().env("LIVE_MEMORY_DATA_DIR", sandbox.data().root()).args(["ask", "the port"]);
    let _ = binaries::core();
    assert_answered(&command.current_dir(workspace(&sandbox)).stdin(Stdio::null()).output().unwrap());
}

#[test]
fn running_out_of_descriptors_is_survived() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let mut command = sandbox.command(Path::new("/bin/sh"));
    command.arg("-c").arg(format!("ulimit -n 40; exec '{}' --foreground", binaries::core().display()));
    let mut daemon = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = running_pid(&data);
    block_on(async {
        let mut held = Vec::new();
        for _ in 0..60 {
            held.push(Endpoint::of(&data).connect().await.unwrap());
        }
        let log = || fs::read_to_string(data.core_log()).unwrap();
        wait_until("the limit to be met", || log().contains("cannot accept a connection").then_some(()));
    });
    assert_eq!(welcome(&data, Intent::Probe).unwrap().pid, pid);
    assert_answered(&ask(&sandbox));
    assert!(sandbox.run(&["stop"]).status.success());
    assert!(daemon.wait().unwrap().success());
}

/// Another user has taken our places in the shared directory and listens there.
#[test]
fn an_endpoint_of_another_user_gets_no_question() {
    const SOMEBODY: u32 = 54_321;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can act as two users");
        return;
    }
    // The data directory is too long for a socket, so the daemon must listen in the shared place.
    let sandbox = Sandbox::new();
    let deep = sandbox.root().join("d".repeat(120));
    fs::DirBuilder::new().mode(0o700).create(&deep).unwrap();
    let own_shared = Path::new("/tmp").join(format!("live-memory-{SOMEBODY}"));
    let _cleanup = Cleanup(vec![
        own_shared.clone(),
        format!("/var/tmp/live-memory-{SOMEBODY}").into(),
        format!("/tmp/live-memory-{SOMEBODY}-1").into(),
        format!("/var/tmp/live-memory-{SOMEBODY}-1").into(),
    ]);
    fs::DirBuilder::new().mode(0o777).create(&own_shared).unwrap();
    fs::set_permissions(&own_shared, fs::Permissions::from_mode(0o777)).unwrap();

    // Everything of this installation belongs to somebody; the trap in the shared place to root.
    let installation = lm_tests::daemon::Installation::built_at(&sandbox, 1_000);
    let data = DataDirectory::open_at(deep.join("data")).unwrap();
    let own = [sandbox.root(), &sandbox.home(), &deep, &workspace(&sandbox), installation.directory()];
    for path in own.into_iter().chain([data.root(), &data.run(), &data.logs()]) {
        std::os::unix::fs::chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }
    // Named by the data directory alone, whoever asks.
    let candidates = Endpoint::candidates(&data);
    let trap = UnixListener::bind(own_shared.join(candidates[0].address().file_name().unwrap())).unwrap();
    fs::set_permissions(trap.local_addr().unwrap().as_pathname().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
    trap.set_nonblocking(true).unwrap();

    let command = |arguments: &[&str]| {
        let mut command = sandbox.command(&installation.directory().join("lm-shim"));
        command.args(arguments).env("LIVE_MEMORY_DATA_DIR", data.root()).current_dir(workspace(&sandbox));
        command.uid(SOMEBODY).gid(SOMEBODY);
        command
    };
    assert_answered(&command(&["ask", "where is the secret"]).output().unwrap());
    let mut bytes = Vec::new();
    while let Ok((mut stream, _)) = trap.accept() {
        stream.set_nonblocking(false).unwrap();
        std::io::Read::read_to_end(&mut stream, &mut bytes).unwrap();
    }
    assert_eq!(bytes, b"", "somebody else was told something");
    assert!(command(&["stop"]).status().unwrap().success());
}

struct Cleanup(Vec<PathBuf>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_dir_all(path);
        }
    }
}
