//! The MCP server of a session, seen by its client.

use std::{
    io::Read,
    process::{Command, Stdio},
    time::Duration,
};

use lm_proto::message::Request;
use lm_tests::{
    Behaviour, McpClient, Sandbox, ScriptedDaemon,
    mcp_client::{VERSION, initialize_parameters},
};
use serde_json::{Value, json};

/// The time in which a shim must leave after the end of its input.
const END_LIMIT: Duration = Duration::from_secs(6);

fn server(sandbox: &Sandbox) -> Command {
    sandbox.shim(&[])
}

fn text_of(reply: &Value) -> &str {
    reply["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {reply}"))
}

#[test]
fn the_handshake_shows_one_read_only_tool() {
    let sandbox = Sandbox::new();
    let _daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::hold());
    let mut client = McpClient::start(server(&sandbox));
    let server = client.initialize(json!({"roots": {}, "elicitation": {}}));
    assert_eq!(server["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
    let tools = client.call("tools/list", json!({}))["result"].clone();
    let shown = serde_json::to_string_pretty(&json!({"initialize": server, "tools/list": tools})).unwrap();
    insta::assert_snapshot!(shown.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

#[test]
fn a_version_that_is_spoken_is_echoed_and_any_other_answered_with_the_newest() {
    let sandbox = Sandbox::new();
    let _daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::hold());
    for (offered, answered) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        (VERSION, VERSION),
        ("1999-01-01", VERSION),
        ("2026-07-28", VERSION),
        ("DRAFT-9", VERSION),
    ] {
        let mut client = McpClient::start(server(&sandbox));
        let reply = client.call("initialize", initialize_parameters(offered, json!({})));
        assert_eq!(reply["result"]["protocolVersion"], answered, "{offered}: {reply}");
        assert!(client.rest().is_empty());
        assert_eq!(client.call("tools/list", json!({}))["result"]["tools"][0]["name"], "ask_live_memory");
    }
}

#[test]
fn before_initialize_ping_is_answered_and_nothing_ends_the_session() {
    let sandbox = Sandbox::new();
    let mut client = McpClient::start(server(&sandbox));
    for method in ["notifications/initialized", "notifications/cancelled", "notifications/unheard-of"] {
        client.send(&json!({"jsonrpc": "2.0", "method": method}));
    }
    assert!(client.rest().is_empty());
    assert_eq!(client.call("server/discover", json!({}))["error"]["code"], -32601);
    let early = client.call("tools/list", json!({}));
    assert!(text_of(&early).contains("initialize"), "{early}");
    client.initialize(json!({}));
    assert_eq!(client.call("server/discover", json!({}))["error"]["code"], -32601);
    assert_eq!(client.call("prompts/list", json!({}))["error"]["code"], -32601);
    assert!(client.rest().is_empty());
}

#[test]
fn an_answer_is_one_text_with_its_trailer() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("in `src/main.rs:1`"));
    let workspace = sandbox.workspace("w");
    let mut command = server(&sandbox);
    command.env("LIVE_MEMORY_MODEL", "m").env("OTHER", "o");
    let mut client = McpClient::initialized(command);
    let arguments = json!({"question": " where? ", "cwd": workspace, "max_answer_tokens": 1_000_000_000, "more": [1]});
    assert_eq!(client.ask(arguments), (false, "in `src/main.rs:1`\n\noffline · 1 ms".into()));
    let ask = daemon.questions().remove(0);
    assert_eq!((ask.question.as_str(), ask.cwd.as_str()), ("where?", workspace.to_str().unwrap()));
    assert_eq!((ask.max_answer_tokens, ask.timeout_s), (Some(1_000_000_000), None));
    assert!(ask.environment.contains(&("LIVE_MEMORY_MODEL".into(), "m".into())));
    assert!(ask.environment.iter().all(|(name, _)| name.starts_with("LIVE_MEMORY_")), "{:?}", ask.environment);
}

#[test]
fn wrong_arguments_are_results_that_say_what_is_expected() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("a"));
    let mut client = McpClient::initialized(server(&sandbox));
    for (arguments, expected) in [
        (json!({}), "the question is empty"),
        (json!({"question": ""}), "the question is empty"),
        (json!({"question": {"text": "q"}}), "`question` must be a string"),
        (json!({"question": "q", "cwd": 7}), "`cwd` must be a string"),
        (json!({"question": "q", "max_answer_tokens": "500"}), "`max_answer_tokens` must be a positive whole number"),
        (json!({"question": "q", "cwd": "src"}), "`cwd` is `src`, which is not an absolute path"),
        (json!({"question": "q", "cwd": "file://elsewhere/w"}), "not an absolute path"),
    ] {
        let (failed, text) = client.ask(arguments);
        assert!(failed && text.contains(expected), "{text}");
    }
    let unknown = client.call("tools/call", json!({"name": "rm", "arguments": {}}));
    assert!(text_of(&unknown).contains("ask_live_memory"), "{unknown}");
    assert!(daemon.questions().is_empty());
}

#[test]
fn what_fails_in_the_daemon_is_a_result_with_its_words() {
    let sandbox = Sandbox::new();
    let _daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::fail("the disk is full; make room in /data"));
    let mut client = McpClient::initialized(server(&sandbox));
    let (failed, text) = client.ask(json!({"question": "q"}));
    assert!(failed && text.contains("the disk is full; make room in /data"), "{text}");
}

#[test]
fn a_long_answer_is_cut_between_characters_and_says_so() {
    for unit in ["x", "€", "🦀", "日本語 "] {
        let sandbox = Sandbox::new();
        let _daemon = ScriptedDaemon::start(&sandbox, move |_| Behaviour::answer(unit.repeat(400_000 / unit.len())));
        let mut client = McpClient::initialized(server(&sandbox));
        let (failed, text) = client.ask(json!({"question": "q"}));
        assert!(!failed && text.len() < 62_000, "{}", text.len());
        let (shown, mark) = text.split_once("\n\n[cut here").expect("a mark");
        assert!(shown.len() > 59_000 && shown.starts_with(unit) && mark.ends_with("offline · 1 ms"), "{mark}");
    }
}

#[test]
fn the_directory_is_the_calls_else_the_clients_root_else_the_project_else_our_own() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("a"));
    let [call, root, project, own] = ["call", "the röot", "project", "own"].map(|name| sandbox.workspace(name));
    let mut asked = 0;
    let mut cwd_of = |client: &mut McpClient, arguments: Value| {
        asked += 1;
        let id = client.request_ask(arguments);
        daemon.wait_for_questions(asked);
        assert!(!client.asked(id).0);
        daemon.questions().pop().unwrap().cwd
    };
    let command = || {
        let mut command = server(&sandbox);
        command.current_dir(&own);
        command
    };

    let mut client = McpClient::initialized(command());
    let found = cwd_of(&mut client, json!({"question": "q", "cwd": ""}));
    assert_eq!(std::fs::canonicalize(found).unwrap(), std::fs::canonicalize(&own).unwrap());
    assert_eq!(cwd_of(&mut client, json!({"question": "q", "cwd": call})), call.to_str().unwrap());

    let mut with_project = command();
    with_project.env("CLAUDE_PROJECT_DIR", &project);
    let mut client = McpClient::initialized(with_project);
    assert_eq!(cwd_of(&mut client, json!({"question": "q"})), project.to_str().unwrap());
    assert!(client.rest().is_empty(), "roots were asked of a client that has none");

    // Asked with the first call that needs it, and once.
    let mut with_project = command();
    with_project.env("CLAUDE_PROJECT_DIR", &project);
    let mut client = McpClient::start(with_project);
    client.initialize(json!({"roots": {"listChanged": true}}));
    assert_eq!(cwd_of(&mut client, json!({"question": "q", "cwd": call})), call.to_str().unwrap());
    assert!(client.rest().is_empty(), "roots were asked for before they were needed");
    for uri in [uri_of(&root), uri_of(&call)] {
        let id = client.request_ask(json!({"question": "q"}));
        let roots = client.next("roots/list", |message| message["method"] == "roots/list");
        client.send(
            &json!({"jsonrpc": "2.0", "id": roots["id"], "result": {"roots": [{"uri": "https://x"}, {"uri": uri}]}}),
        );
        assert!(!client.asked(id).0);
        let (failed, _) = client.ask(json!({"question": "q"}));
        assert!(!failed && client.rest().is_empty(), "roots were asked for again");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
    }
    // As paths: a URI has slashes where Windows has backslashes.
    let found = daemon.questions().into_iter().rev().take(4).map(|ask| std::path::PathBuf::from(ask.cwd));
    assert_eq!(found.collect::<Vec<_>>(), [&call, &call, &root, &root].map(Clone::clone));
}

fn uri_of(path: &std::path::Path) -> String {
    let path = path.to_str().unwrap().replace('\\', "/").replace(' ', "%20").replace('ö', "%C3%B6");
    format!("file://{}{path}", if path.starts_with('/') { "" } else { "/" })
}

#[test]
fn a_client_that_never_names_its_roots_does_not_hold_up_a_call() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("a"));
    let mut command = server(&sandbox);
    let project = sandbox.workspace("project");
    command.env("CLAUDE_PROJECT_DIR", &project);
    let mut client = McpClient::start(command);
    client.initialize(json!({"roots": {}}));
    for _ in 0..3 {
        assert!(!client.ask(json!({"question": "q"})).0);
    }
    assert!(daemon.questions().iter().all(|ask| ask.cwd == project.to_str().unwrap()));
    assert_eq!(client.rest().len(), 1, "one roots/list");
}

/// A call of the tool that asks for progress.
fn call_with_token(question: &str, token: &Value) -> Value {
    json!({"name": "ask_live_memory", "arguments": {"question": question}, "_meta": {"progressToken": token}})
}

#[test]
fn progress_is_told_in_order_to_those_who_asked_for_it() {
    let sandbox = Sandbox::new();
    let daemon =
        ScriptedDaemon::start(&sandbox, |_| Behaviour::hold().with_progress(&["reading", "ranking", "writing"]));
    let mut client = McpClient::initialized(server(&sandbox));
    client.request_ask(json!({"question": "q"}));
    daemon.wait_for_questions(1);
    let tokens = [json!(7), json!("t")];
    for token in &tokens {
        client.request("tools/call", call_with_token("q", token));
    }
    let mut told = std::collections::HashMap::<String, Vec<Value>>::new();
    for _ in 0..6 {
        let step = client.next("progress", |message| message["method"] == "notifications/progress");
        told.entry(step["params"]["progressToken"].to_string()).or_default().push(step["params"].clone());
    }
    for token in &tokens {
        let steps = &told[&token.to_string()];
        let words: Vec<&str> = steps.iter().filter_map(|step| step["message"].as_str()).collect();
        assert_eq!(words, ["reading", "ranking", "writing"]);
        assert!(steps.is_sorted_by(|a, b| a["progress"].as_f64() < b["progress"].as_f64()), "{steps:?}");
    }
    assert!(client.rest().is_empty(), "progress was told to a call that did not ask for it");
}

#[test]
fn progress_never_comes_with_or_after_its_answer() {
    let sandbox = Sandbox::new();
    let _daemon = ScriptedDaemon::start(&sandbox, |request| match request {
        Request::Ask(ask) if ask.question == "long" => Behaviour::hold().with_progress(&["reading"]),
        _ => Behaviour::answer("a").with_progress(&["reading", "ranking"]),
    });
    let mut client = McpClient::initialized(server(&sandbox));
    let quick: Vec<i64> =
        (0..20).map(|token| client.request("tools/call", call_with_token("quick", &json!(token)))).collect();
    client.request("tools/call", call_with_token("long", &json!("long")));
    for id in quick {
        assert!(!client.asked(id).0);
    }
    // What is shown of the long call was held back for as long as that of the others would have been.
    let step = client.next("progress", |message| message["method"] == "notifications/progress");
    assert_eq!(step["params"]["progressToken"], "long", "progress of a call that had its answer");
    assert!(client.rest().is_empty());
}

#[test]
fn a_cancelled_call_stops_in_the_daemon_and_gets_no_reply() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |request| match request {
        Request::Ask(ask) if ask.question == "long" => Behaviour::hold(),
        _ => Behaviour::answer("a"),
    });
    let mut client = McpClient::initialized(server(&sandbox));
    client.send(&json!({"jsonrpc": "2.0", "id": "c1", "method": "tools/call",
        "params": {"name": "ask_live_memory", "arguments": {"question": "long"}}}));
    daemon.wait_for_questions(1);
    // While it runs, others are answered.
    assert!(client.rest().is_empty());
    assert!(!client.ask(json!({"question": "short"})).0);
    let cancelled = json!({"requestId": "c1", "reason": "AbortError: user-cancel"});
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    daemon.wait_for_cancel();
    assert!(!client.ask(json!({"question": "short"})).0);
    assert!(client.rest().is_empty(), "a cancelled call was replied to");
}

#[test]
fn calls_run_at_the_same_time() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |request| match request {
        Request::Ask(ask) if ask.question.starts_with("long") => Behaviour::hold(),
        _ => Behaviour::answer("a"),
    });
    let mut client = McpClient::initialized(server(&sandbox));
    for index in 0..4 {
        client.request_ask(json!({"question": format!("long {index}")}));
    }
    daemon.wait_for_questions(4);
    assert!(!client.ask(json!({"question": "short"})).0);
}

#[test]
fn the_end_of_input_ends_the_session_in_every_state() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::hold());
    let mut silent = McpClient::start(server(&sandbox));
    silent.end_input();
    assert!(silent.exit_within(END_LIMIT).success());

    let mut idle = McpClient::initialized(server(&sandbox));
    idle.end_input();
    assert!(idle.exit_within(END_LIMIT).success());

    let mut busy = McpClient::initialized(server(&sandbox));
    let id = busy.request_ask(json!({"question": "long"}));
    daemon.wait_for_questions(1);
    busy.end_input();
    assert!(busy.asked(id).0, "the call gets a reply that says why there is no answer");
    assert!(busy.exit_within(END_LIMIT).success());
    daemon.wait_for_cancel();
}

#[test]
fn what_was_asked_before_the_end_of_input_is_still_answered() {
    let sandbox = Sandbox::new();
    let _daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("a"));
    let mut client = McpClient::initialized(server(&sandbox));
    let id = client.request_ask(json!({"question": "q"}));
    let all = client.until_the_end();
    assert!(all.iter().any(|message| message["id"] == id && message["result"]["isError"] == false), "{all:?}");
}

#[test]
fn an_output_that_nobody_reads_any_more_ends_the_session() {
    let sandbox = Sandbox::new();
    let mut client = McpClient::start_unread(server(&sandbox));
    client.close_output();
    client.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
    assert!(client.exit_within(END_LIMIT).success());
}

#[test]
fn an_unread_output_does_not_keep_the_session_from_its_end() {
    let sandbox = Sandbox::new();
    let _daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("x".repeat(50_000)));
    let mut client = McpClient::start_unread(server(&sandbox));
    client.request("initialize", initialize_parameters(VERSION, json!({})));
    for _ in 0..20 {
        client.request_ask(json!({"question": "q"}));
    }
    client.end_input();
    assert!(client.exit_within(END_LIMIT).success());
}

#[test]
fn standard_error_is_nearly_silent_and_need_not_be_read() {
    let sandbox = Sandbox::new();
    let _daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::fail("no"));
    let mut command = server(&sandbox);
    command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "1").stderr(Stdio::piped());
    let mut client = McpClient::initialized(command);
    for index in 0..500 {
        assert!(client.ask(json!({"question": "q".repeat(100)})).0, "{index}");
    }
    client.end_input();
    assert!(client.exit_within(END_LIMIT).success());
    let mut said = String::new();
    client.take_stderr().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.len() < 16 << 10, "{} bytes: {}", said.len(), &said[..1000]);
}

#[cfg(unix)]
mod with_a_broken_daemon {
    use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

    use lm_tests::{binaries, wait_until};
    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    /// A copy of the shim with a script in the daemon's place.
    fn shim_beside(sandbox: &Sandbox, script: Option<&str>) -> Command {
        let directory = sandbox.workspace("bin");
        let shim: PathBuf = directory.join("lm-shim");
        binaries::copy(binaries::shim(), &shim);
        if let Some(script) = script {
            let core = directory.join("lm-core");
            fs::write(&core, script).unwrap();
            fs::set_permissions(&core, fs::Permissions::from_mode(0o755)).unwrap();
        }
        sandbox.command(&shim)
    }

    /// Ends the processes whose ids a script has noted.
    struct Noted(PathBuf);

    impl Noted {
        fn pids(&self) -> Vec<i32> {
            fs::read_to_string(&self.0).unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            for pid in self.pids().into_iter().filter_map(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    #[test]
    fn the_handshake_does_not_wait_for_a_daemon_that_hangs() {
        let sandbox = Sandbox::new();
        let noted = Noted(sandbox.root().join("pids"));
        let script = format!("#!/bin/sh\necho $$ >> '{}'\nexec sleep 120\n", noted.0.display());
        let mut client = McpClient::initialized(shim_beside(&sandbox, Some(&script)));
        wait_until("the daemon is started in the background", || (!noted.pids().is_empty()).then_some(()));
        assert_eq!(client.call("tools/list", json!({}))["result"]["tools"].as_array().unwrap().len(), 1);
        assert!(client.rest().is_empty());
        client.request_ask(json!({"question": "q"}));
        assert!(client.rest().is_empty());
        client.end_input();
        assert!(client.exit_within(END_LIMIT).success());
    }

    #[test]
    fn a_daemon_that_cannot_start_is_told_by_a_call_and_not_tried_again_and_again() {
        let sandbox = Sandbox::new();
        let noted = Noted(sandbox.root().join("pids"));
        let script = format!("#!/bin/sh\necho $$ >> '{}'\necho 'no room' >&2\nexit 1\n", noted.0.display());
        let mut client = McpClient::initialized(shim_beside(&sandbox, Some(&script)));
        wait_until("the daemon is started in the background", || (!noted.pids().is_empty()).then_some(()));
        let (failed, text) = client.ask(json!({"question": "q"}));
        assert!(failed && text.len() > 20, "{text}");
        assert!(client.rest().is_empty());
        assert!(noted.pids().len() <= 6, "{} starts", noted.pids().len());
    }

    #[test]
    fn a_daemon_that_is_missing_is_told_by_a_call() {
        let sandbox = Sandbox::new();
        let mut command = shim_beside(&sandbox, None);
        // As a desktop application may start it.
        command.env_remove("PATH").env_remove("HOME");
        let mut client = McpClient::initialized(command);
        let (failed, text) = client.ask(json!({"question": "q"}));
        assert!(failed && text.contains("lm-core"), "{text}");
    }

    #[test]
    fn a_data_directory_that_cannot_be_used_is_told_by_a_call() {
        let sandbox = Sandbox::new();
        let mut command = server(&sandbox);
        command.env("LIVE_MEMORY_DATA_DIR", "relative/dir");
        let mut client = McpClient::initialized(command);
        let (failed, text) = client.ask(json!({"question": "q"}));
        assert!(failed && text.contains("LIVE_MEMORY_DATA_DIR") && text.contains("absolute"), "{text}");
    }
}
