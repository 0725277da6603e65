//! `lm-shim hook`: what a session reads and edits reaches the daemon, and nothing ever goes wrong.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::{SinkExt, StreamExt};
use lm_proto::{
    Build, Endpoint,
    codec::{ClientFramed, frame},
    handshake::{Hello, Intent, Welcome},
    message::{ClientMessage, DaemonMessage, Observation, ObservationKind, Reply, Request},
};
use lm_tests::{
    Sandbox,
    daemon::{block_on, kill, running_pid, wait_until_left},
    observed::{done, hook, observed_files, payload, repository, settled, stats, with_input, workspace_stats},
    run::succeeded,
};
use serde_json::{Value, json};

/// Longer than it ever takes, and short enough to tell waiting from not waiting.
const FUNCTIONAL: Duration = Duration::from_secs(2);

/// A sandbox whose daemon runs.
fn started() -> Sandbox {
    let sandbox = Sandbox::new();
    succeeded(&sandbox.run(&["config", "show"]));
    sandbox
}

/// Runs a hook that must end soon, well and without a word.
#[track_caller]
fn assert_silent(what: &str, mut command: Command, input: &[u8]) {
    let start = Instant::now();
    let output = with_input(&mut command, input);
    let took = start.elapsed();
    assert_eq!(output.status.code(), Some(0), "{what}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{what}: {output:?}");
    assert!(took < FUNCTIONAL, "{what}: it took {took:?}");
}

fn edit(root: &Path, file: &str) -> Vec<u8> {
    done("Edit", &root.join(file), root).to_string().into_bytes()
}

#[test]
fn what_a_session_reads_and_edits_is_observed() {
    let sandbox = started();
    let root = repository(&sandbox, "project");
    let tools = ["Read", "Write", "Edit", "MultiEdit", "NotebookEdit"];
    for tool in tools {
        let output = hook(&sandbox, done(tool, &root.join(tool), &root).to_string().as_bytes());
        assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    }
    let observations = settled(&sandbox, 5);
    assert_eq!(observations["taken"], 5, "{observations}");
    assert_eq!(observed_files(&sandbox, "project"), 5);
    let text = succeeded(&sandbox.run(&["stats"]));
    assert!(text.contains("5 observations of what sessions read and edit"), "{text}");
}

#[test]
fn a_file_is_found_from_its_own_place_and_a_relative_one_from_the_sessions() {
    let sandbox = started();
    let (here, elsewhere) = (repository(&sandbox, "here"), repository(&sandbox, "elsewhere"));
    fs::create_dir(here.join("deep")).unwrap();
    fs::write(here.join("deep/new.rs"), "fn new() {}").unwrap();
    let relative = payload("Edit", Path::new("new.rs"), &here.join("deep"));
    let in_another = done("Read", &elsewhere.join("a.rs"), &here);
    for payload in [relative, in_another] {
        let _ = hook(&sandbox, payload.to_string().as_bytes());
    }
    settled(&sandbox, 2);
    assert_eq!((observed_files(&sandbox, "here"), observed_files(&sandbox, "elsewhere")), (1, 1));
    // Nothing was asked; the workspaces are open all the same.
    assert_eq!(stats(&sandbox)["questions"]["answered"], 0);
}

#[test]
fn other_tools_other_events_and_failures_are_passed_over() {
    let sandbox = started();
    let root = repository(&sandbox, "project");
    let edited = |change: fn(&mut Value)| {
        let mut payload = done("Edit", &root.join("a"), &root);
        change(&mut payload);
        payload.to_string().into_bytes()
    };
    for passed_over in [
        edited(|payload| payload["tool_name"] = "Bash".into()),
        edited(|payload| payload["hook_event_name"] = "PreToolUse".into()),
        edited(|payload| payload["hook_event_name"] = "PostToolUseFailure".into()),
        edited(|payload| payload["tool_response"]["success"] = false.into()),
        edited(|payload| payload["tool_input"] = json!({})),
        b"{}".to_vec(),
    ] {
        assert!(hook(&sandbox, &passed_over).status.success());
    }
    let _ = hook(&sandbox, &edit(&root, "b"));
    let observations = settled(&sandbox, 1);
    assert_eq!(observations["taken"], 1, "{observations}");
    assert_eq!(observed_files(&sandbox, "project"), 1);
}

#[test]
fn what_belongs_to_no_workspace_or_is_left_out_is_counted_and_dropped() {
    let sandbox = started();
    let root = repository(&sandbox, "project");
    let plain = sandbox.workspace("plain");
    let hook_with = |variables: &[(&str, &str)], payload: Value| {
        let mut command = sandbox.shim(&["hook"]);
        command.envs(variables.iter().copied());
        assert!(with_input(&mut command, payload.to_string().as_bytes()).status.success());
    };
    let excluded = root.join("private").display().to_string();
    let read = |path: &Path| payload("Read", path, &root);
    hook_with(&[], read(&plain.join("x")));
    hook_with(&[], read(&sandbox.home().join(".bashrc")));
    hook_with(&[], read(Path::new(if cfg!(windows) { "C:\\x" } else { "/etc/hosts" })));
    hook_with(&[("LIVE_MEMORY_PASSIVE_INGESTION", "false")], read(&root.join("a")));
    hook_with(&[("LIVE_MEMORY_EXCLUDE", &excluded)], read(&root.join("private/a")));
    hook_with(&[("LIVE_MEMORY_FILE_GLOBS", "src/*,*.md")], read(&root.join("test/a.rs")));
    hook_with(&[("LIVE_MEMORY_FILE_GLOBS", "src/*,*.md")], done("Read", &root.join("src/deep/a.rs"), &root));
    hook_with(&[], read(&root.join("missing.rs")));
    hook_with(&[], done("Read", &root.join(".env"), &root));
    fs::write(root.join("picture.png"), b"\x89PNG\0\0").unwrap();
    hook_with(&[], read(&root.join("picture.png")));
    let observations = settled(&sandbox, 10);
    assert_eq!(observations["taken"], 1, "{observations}");
    let dropped = &observations["dropped"];
    assert_eq!(
        (&dropped["outside"], &dropped["off"], &dropped["excluded"], &dropped["out_of_scope"], &dropped["left_out"]),
        (&json!(3), &json!(1), &json!(1), &json!(1), &json!(3)),
        "{observations}"
    );
    // What a session works on without a repository is its own workspace.
    hook_with(&[], done("Read", &plain.join("deep/x"), &plain));
    settled(&sandbox, 11);
    assert_eq!(observed_files(&sandbox, "plain"), 1);
}

#[test]
fn file_globs_that_are_none_are_refused() {
    let sandbox = started();
    let refused = sandbox.run(&["config", "set", "file_globs=/etc/*"]);
    assert_eq!(refused.status.code(), Some(1));
    succeeded(&sandbox.run(&["config", "set", "file_globs=src/*.rs,*.md"]));
    let shown = succeeded(&sandbox.run(&["config", "show"]));
    assert!(shown.contains("src/*.rs, *.md"), "{shown}");
}

#[test]
fn without_a_daemon_it_does_nothing_and_creates_nothing() {
    let sandbox = Sandbox::new();
    let root = repository(&sandbox, "project");
    assert_silent("no data directory", sandbox.shim(&["hook"]), &edit(&root, "a"));
    assert!(!sandbox.root().join("data").exists(), "a data directory was made");
    let mut homeless = sandbox.shim(&["hook"]);
    homeless.env_remove("LIVE_MEMORY_DATA_DIR");
    assert_silent("nothing in the home directory", homeless, &edit(&root, "a"));
    assert_eq!(fs::read_dir(sandbox.home()).unwrap().count(), 0, "something was made in the home directory");
    let mut homeless = sandbox.shim(&["hook"]);
    homeless.env_remove("LIVE_MEMORY_DATA_DIR").env_remove(lm_tests::sandbox::HOME_VARIABLE);
    assert_silent("no home directory", homeless, &edit(&root, "a"));
    let mut relative = sandbox.shim(&["hook"]);
    relative.env("LIVE_MEMORY_DATA_DIR", "relative");
    assert_silent("a data directory that is none", relative, &edit(&root, "a"));
    let _ = sandbox.data();
    assert_silent("an empty data directory", sandbox.shim(&["hook"]), &edit(&root, "a"));
    assert!(!sandbox.data().daemon_notes().exists(), "a daemon was started");
}

#[test]
fn a_daemon_that_was_killed_is_not_missed() {
    let sandbox = started();
    let root = repository(&sandbox, "project");
    kill(running_pid(&sandbox.data()));
    wait_until_left(&sandbox.data());
    assert_silent("a stale socket", sandbox.shim(&["hook"]), &edit(&root, "a"));
    assert!(lm_tests::daemon::has_left(&sandbox.data()), "a daemon was started");
}

#[test]
fn whatever_the_input_is_it_ends_well() {
    let alive = started();
    let dead = Sandbox::new();
    let root = repository(&alive, "project");
    fs::write(root.join("long"), "x").unwrap();
    // In the order in which the client writes it.
    let long = format!(
        r#"{{"cwd":{root},"hook_event_name":"PostToolUse","tool_name":"Write","tool_input":{{"file_path":{path},"content":{content}}}}}"#,
        root = json!(root),
        path = json!(root.join("long")),
        content = json!("x\n\"y\" ".repeat(1_000_000)),
    );
    let endless = format!("{{\"a\":\"{}", "x".repeat(100 << 20));
    let inputs: [(&str, &[u8]); 9] = [
        ("nothing", b""),
        ("blanks", b" \n\n"),
        ("garbage", b"\xff\xfe\0garbage"),
        ("another type", b"[1, 2, 3]"),
        ("cut short", br#"{"hook_event_name":"PostToolUse","tool_name":"Read","tool_input":{"file_path":"/w"#),
        ("braces", "{\"a\":".repeat(100_000).leak().as_bytes()),
        ("zeros", &[0; 1 << 20]),
        ("7 MB", long.as_bytes()),
        ("100 MB", endless.as_bytes()),
    ];
    for (what, input) in inputs {
        assert_silent(what, alive.shim(&["hook"]), input);
        assert_silent(what, dead.shim(&["hook"]), input);
    }
    // The long one counts like any other, and the daemon is none the worse.
    settled(&alive, 1);
    assert_eq!(observed_files(&alive, "project"), 1);
}

#[test]
fn an_input_that_never_ends_is_not_waited_for() {
    let alive = started();
    let dead = Sandbox::new();
    let root = repository(&alive, "project");
    for (what, sandbox, input) in [
        ("nothing comes", &alive, Vec::new()),
        ("nothing comes and nobody is there", &dead, Vec::new()),
        ("half of it comes", &alive, edit(&root, "half")[..100].to_vec()),
        ("all of it comes", &alive, edit(&root, "whole")),
        ("garbage comes", &alive, b"}{".to_vec()),
    ] {
        let mut command = sandbox.shim(&["hook"]);
        let start = Instant::now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(start.elapsed() < FUNCTIONAL, "{what}: it took {:?}", start.elapsed());
        assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{what}: {output:?}");
        drop(stdin);
    }
    settled(&alive, 1);
    assert_eq!(observed_files(&alive, "project"), 1);
}

#[test]
fn the_help_says_what_it_is() {
    let help = succeeded(&Sandbox::new().run(&["hook", "--help"]));
    assert!(help.contains("standard input") && help.contains("Usage: lm-shim"), "{help}");
    // Whatever a later version's configuration may add.
    assert_silent("an option nobody knows", Sandbox::new().shim(&["hook", "--later"]), b"");
}

/// That a file was edited, which is written.
fn observation(path: &Path) -> Request {
    fs::write(path, "fn text() {}\n").unwrap();
    Request::Observe(Observation {
        path: path.to_str().unwrap().to_owned(),
        kind: ObservationKind::Edited,
        cwd: String::new(),
        environment: vec![],
        origin: "{}".into(),
    })
}

#[test]
fn a_burst_over_one_connection_is_answered_and_stays_bounded() {
    const REPORTS: u64 = 2_000;
    const FILES: u64 = 50;
    let sandbox = started();
    let root = repository(&sandbox, "project");
    let data = sandbox.data();
    block_on(async {
        let mut stream = Endpoint::of(&data).connect().await.unwrap();
        Hello::new(Intent::Serve, Build::default()).write(&mut stream).await.unwrap();
        Welcome::read(&mut stream).await.unwrap();
        let (mut sending, mut receiving) = ClientFramed::new(stream, Default::default()).split();
        let send = async {
            for id in 0..REPORTS {
                let request = observation(&root.join(format!("file-{}", id % FILES)));
                sending.send(ClientMessage::Request { id, request }).await.unwrap();
            }
        };
        let receive = async {
            for expected in 0..REPORTS {
                let message = receiving.next().await.unwrap().unwrap();
                assert_eq!(message, DaemonMessage::Reply { id: expected, outcome: Ok(Reply::Noted) });
            }
        };
        tokio::join!(send, receive);
    });
    let observations = settled(&sandbox, FILES);
    let taken = observations["taken"].as_u64().unwrap();
    assert!((FILES..=REPORTS).contains(&taken), "{observations}");
    assert_eq!(observed_files(&sandbox, "project"), FILES);
}

#[test]
fn a_client_that_leaves_at_once_is_heard() {
    let sandbox = started();
    let root = repository(&sandbox, "project");
    let data = sandbox.data();
    for number in 0..50 {
        let mut stream = Endpoint::of(&data).connect_blocking().unwrap();
        let mut bytes = Hello::new(Intent::Serve, Build::default()).to_bytes().to_vec();
        let request = observation(&root.join(format!("file-{number}")));
        bytes.extend(frame(&ClientMessage::Request { id: 1, request }).unwrap());
        stream.write_all(&bytes).unwrap();
        // Without a glance at what comes back.
        if cfg!(not(target_os = "linux")) {
            let _ = std::io::Read::read_exact(&mut stream, &mut [0; 36]);
        }
        drop(stream);
    }
    settled(&sandbox, 50);
    assert_eq!(observed_files(&sandbox, "project"), 50);
    // What came before the client left is done, and what it asked besides is given up.
    let stats = stats(&sandbox);
    assert_eq!(stats["questions"]["running"], 0, "{stats}");
}

#[test]
fn a_daemon_that_leaves_takes_in_what_was_observed() {
    let sandbox = started();
    let root = repository(&sandbox, "project");
    for number in 0..20 {
        let _ = hook(&sandbox, &edit(&root, &format!("file-{number}")));
    }
    succeeded(&sandbox.run(&["stop"]));
    assert!(sandbox.data().workspaces().read_dir().unwrap().count() == 1, "the workspace was not opened");
    assert!(workspace_stats(&sandbox, "project").is_none(), "no daemon runs");
}

#[cfg(unix)]
mod hung {
    use super::*;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen, socket};

    /// Somebody listens at the daemon's place and does nothing else.
    fn listener(sandbox: &Sandbox, backlog: i32) -> std::os::fd::OwnedFd {
        let address = Endpoint::of(&sandbox.data()).address().to_owned();
        let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&address).unwrap()).unwrap();
        listen(&socket, backlog).unwrap();
        socket
    }

    #[test]
    fn a_daemon_that_never_reads_is_not_waited_for() {
        let sandbox = Sandbox::new();
        let root = repository(&sandbox, "project");
        let _listener = listener(&sandbox, 64);
        assert_silent("nobody accepts", sandbox.shim(&["hook"]), &edit(&root, "a"));
        assert_silent("nobody accepts and nothing comes", sandbox.shim(&["hook"]), b"");
    }

    #[test]
    fn a_daemon_with_a_full_queue_is_not_waited_for() {
        let sandbox = Sandbox::new();
        let root = repository(&sandbox, "project");
        let _listener = listener(&sandbox, 0);
        let address = SocketAddrUnix::new(Endpoint::of(&sandbox.data()).address()).unwrap();
        // The first one fits into a queue of none; others would wait for ever.
        let first = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        connect(&first, &address).unwrap();
        assert_silent("the queue is full", sandbox.shim(&["hook"]), &edit(&root, "a"));
    }

    #[test]
    fn a_daemon_that_is_stopped_hears_of_it_when_it_goes_on() {
        let sandbox = started();
        let root = repository(&sandbox, "project");
        let pid = running_pid(&sandbox.data());
        lm_tests::daemon::signal(pid, rustix::process::Signal::STOP);
        assert_silent("it is stopped", sandbox.shim(&["hook"]), &edit(&root, "a"));
        lm_tests::daemon::signal(pid, rustix::process::Signal::CONT);
        settled(&sandbox, 1);
        assert_eq!(observed_files(&sandbox, "project"), 1);
    }

    #[test]
    fn closed_streams_are_no_reason_to_complain() {
        let sandbox = started();
        let root = repository(&sandbox, "project");
        let shell = |redirections: &str| {
            let mut command = sandbox.command(Path::new("sh"));
            command.args(["-c", &format!("\"$0\" hook {redirections}")]).arg(lm_tests::binaries::shim());
            command
        };
        for redirections in [">&- 2>&-", "<&-", "<&- >&- 2>&-", ">/dev/full 2>/dev/full"] {
            assert_silent(redirections, shell(redirections), &edit(&root, "a"));
        }
        settled(&sandbox, 1);
    }
}
