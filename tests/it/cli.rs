//! The command line as people and scripts use it.

use std::{
    io::{Read, Write},
    path::Path,
    process::{Command, Output, Stdio},
};

use lm_proto::{
    message::{ClientMessage, Failure, FailureKind, Reply, Report, Request},
    question::{CUT_TO, LONGER_ANSWER},
};
use lm_tests::{Behaviour, Sandbox, ScriptedDaemon, scripted_daemon::Seen};
use serde_json::Value;

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs a command that reads `input`.
fn run_with_input(mut command: Command, input: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that fails at once does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn report(text: &str, json: &str, healthy: bool) -> Behaviour {
    let report = Report { text: text.into(), json: json.into(), healthy };
    Behaviour { progress: vec![], outcome: Some(Ok(Reply::Report(report))) }
}

fn requests(daemon: &ScriptedDaemon) -> Vec<Request> {
    daemon
        .seen()
        .into_iter()
        .filter_map(|seen| match seen {
            Seen::Message(ClientMessage::Request { request, .. }) => Some(request),
            _ => None,
        })
        .collect()
}

#[test]
fn help_is_short_and_fits_a_terminal() {
    let sandbox = Sandbox::new();
    let mut all = String::new();
    for arguments in [
        &["--help"][..],
        &["ask", "--help"],
        &["setup", "--help"],
        &["stop", "--help"],
        &["config", "--help"],
        &["config", "show", "--help"],
        &["config", "set", "--help"],
        &["config", "unset", "--help"],
        &["stats", "--help"],
        &["doctor", "--help"],
        &["empty", "--help"],
        &["reset", "--help"],
        &["pause", "--help"],
        &["resume", "--help"],
        &["remember", "--help"],
        &["forget", "--help"],
        &["pin", "--help"],
        &["ledger", "--help"],
        &["history", "--help"],
        &["export", "--help"],
        &["import", "--help"],
        &["hook", "--help"],
    ] {
        let output = sandbox.run(arguments);
        assert!(output.status.success() && output.stderr.is_empty());
        let help = stdout(&output);
        let widest = help.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{widest} columns:\n{help}");
        all += &format!("$ lm-shim {}\n{help}\n", arguments.join(" "));
    }
    insta::assert_snapshot!(all.replace("lm-shim.exe", "lm-shim"));
    let version = stdout(&sandbox.run(&["--version"]));
    assert_eq!(version, format!("lm-shim {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_right() {
    let sandbox = Sandbox::new();
    for (arguments, expected) in [
        (&["stat"][..], "'stats'"),
        (&["aks", "q"], "'ask'"),
        (&["sotp"], "'stop'"),
        (&["ask", "--timeout", "soon", "q"], "'--timeout <S>': give a whole number from 1"),
        (&["ask", "--timeout", "0", "q"], "'--timeout <S>': give a whole number from 1"),
        (&["ask", "--max-answer-tokens", "0", "q"], "--max-answer-tokens"),
        (&["ask", " "], "question is empty"),
        (&["config"], "Usage: lm-shim config"),
        (&["config", "set"], "NAME=VALUE"),
        (&["config", "set", "sk-ant-oops"], "argument 1 has no `=`"),
        (&["config", "set", "a=-", "b=-"], "only one value can come from standard input"),
        (&["config", "unset"], "NAME"),
        (&["stats", "extra"], "extra"),
    ] {
        let output = sandbox.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(
            output.stdout.is_empty() && stderr(&output).replace(".exe", "").contains(expected),
            "{}",
            stderr(&output)
        );
        assert!(!stderr(&output).contains("oops"), "what may be a secret was repeated");
    }
}

#[test]
fn ask_prints_the_answer_and_nothing_else() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("in `a.rs:1`\n").with_progress(&["reading"]));
    let output = sandbox.run(&["ask", "where", "is it?"]);
    assert!(output.status.success());
    assert_eq!((stdout(&output), stderr(&output)), ("in `a.rs:1`\n".into(), String::new()));
    let ask = daemon.questions().remove(0);
    assert_eq!(ask.question, "where is it?");
    assert!(Path::new(&ask.cwd).is_absolute());
    assert_eq!((ask.timeout_s, ask.max_answer_tokens), (None, None));
}

#[test]
fn ask_sends_what_its_options_say() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("a"));
    let nested = sandbox.workspace("w/n");
    let arguments = ["ask", "--cwd", "n", "--timeout", "7", "--max-answer-tokens", "500", "--json", "q"];
    let mut command = sandbox.shim(&arguments);
    command.current_dir(nested.parent().unwrap()).env("LIVE_MEMORY_PROVIDER", "offline");
    let output = command.output().unwrap();
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(answer["answer"], "a");
    let ask = daemon.questions().remove(0);
    assert_eq!(std::fs::canonicalize(&ask.cwd).unwrap(), std::fs::canonicalize(&nested).unwrap());
    assert!(Path::new(&ask.cwd).is_absolute());
    assert_eq!((ask.timeout_s, ask.max_answer_tokens), (Some(7), Some(500)));
    assert!(ask.environment.contains(&("LIVE_MEMORY_PROVIDER".into(), "offline".into())));
}

#[test]
fn ask_reads_its_question_from_standard_input() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("a"));
    for arguments in [&["ask", "-"][..], &["ask"]] {
        let output = run_with_input(sandbox.shim(arguments), b" from\ninput \n");
        assert!(output.status.success(), "{}", stderr(&output));
    }
    assert!(daemon.questions().iter().all(|ask| ask.question == "from\ninput"));
    assert_eq!(sandbox.run(&["ask"]).status.code(), Some(2), "an empty input is no question");
    let long = run_with_input(sandbox.shim(&["ask"]), &vec![b'x'; 1 << 20]);
    assert_eq!(long.status.code(), Some(2));
    assert!(stderr(&long).contains("longer than 65536 bytes"), "{}", stderr(&long));
}

#[test]
fn failures_are_one_line_on_standard_error() {
    let sandbox = Sandbox::new();
    let _daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour {
        progress: vec![],
        outcome: Some(Err(Failure::new(FailureKind::InvalidRequest, "no such directory;\n  give another"))),
    });
    for arguments in [&["ask", "q"][..], &["stats"], &["config", "show"], &["config", "set", "a=b"]] {
        let output = sandbox.run(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stdout(&output), "");
        assert_eq!(stderr(&output), "lm-shim: no such directory; give another\n");
    }
    let mut homeless = sandbox.shim(&["ask", "q"]);
    homeless.env("LIVE_MEMORY_DATA_DIR", "relative");
    let output = homeless.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("lm-shim: LIVE_MEMORY_DATA_DIR is `relative`"), "{}", stderr(&output));
}

#[test]
fn nothing_that_a_terminal_obeys_is_passed_on() {
    const HOSTILE: &str = "a\x1b[2J\u{9b}31m\u{202e}b";
    const SHOWN: &str = "a␛[2J\u{fffd}31m\u{fffd}b";
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |request| match request {
        Request::Ask(_) => Behaviour::answer(HOSTILE),
        Request::ConfigUnset { .. } => {
            let failure = Failure::new(FailureKind::InvalidRequest, HOSTILE);
            Behaviour { progress: vec![], outcome: Some(Err(failure)) }
        }
        _ => report(HOSTILE, &serde_json::json!({ "root": HOSTILE }).to_string(), true),
    });
    for arguments in [&["ask", "q"][..], &["stats"], &["config", "show"]] {
        assert_eq!(stdout(&sandbox.run(arguments)), format!("{SHOWN}\n"), "{arguments:?}");
    }
    assert_eq!(stderr(&sandbox.run(&["config", "unset", "x"])), format!("lm-shim: {SHOWN}\n"));
    // A program gets it all, escaped.
    let json = stdout(&sandbox.run(&["stats", "--json"]));
    assert!(!json.trim_end().contains(|letter: char| letter.is_control() || letter == '\u{202e}'), "{json:?}");
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["root"], HOSTILE);
    drop(daemon);
}

#[test]
fn options_are_called_as_the_command_line_has_them() {
    let sandbox = Sandbox::new();
    let cut = format!("1  x\n\n{CUT_TO}512 tokens. {LONGER_ANSWER}\n");
    let _daemon = ScriptedDaemon::start(&sandbox, move |request| match request {
        Request::Ask(ask) if ask.question == "cut" => Behaviour::answer(cut.clone()),
        _ => {
            let failure = Failure::new(FailureKind::InvalidRequest, "`/` is too much; give a directory as `cwd`");
            Behaviour { progress: vec![], outcome: Some(Err(failure)) }
        }
    });
    let answer = stdout(&sandbox.run(&["ask", "cut"]));
    assert!(answer.contains("Ask with a larger --max-answer-tokens for the rest."), "{answer}");
    let failed = stderr(&sandbox.run(&["ask", "q"]));
    assert_eq!(failed, "lm-shim: `/` is too much; give a directory with `--cwd`\n");
}

#[test]
fn a_closed_output_is_no_failure() {
    let sandbox = Sandbox::new();
    let _daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("x".repeat(1 << 20)));
    let mut child = sandbox.shim(&["ask", "q"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(said, "");
}

#[cfg(unix)]
#[test]
fn an_interrupt_cancels_the_question() {
    use rustix::process::{Pid, Signal, kill_process};

    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::hold());
    let mut child = sandbox.shim(&["ask", "q"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    daemon.wait_for_questions(1);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    daemon.wait_for_cancel();
}

#[test]
fn reports_are_shown_as_text_or_json_and_tell_their_health() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |request| match request {
        Request::Stats { .. } => report("all is well", "{\"n\":1}", true),
        Request::ConfigShow { .. } => report("budget is shadowed", "{\"n\":2}", false),
        _ => report("done", "{}", true),
    });
    for (arguments, code, text) in [
        (&["stats"][..], 0, "all is well\n"),
        (&["stats", "--json"], 0, "{\"n\":1}\n"),
        (&["config", "show"], 1, "budget is shadowed\n"),
        (&["config", "show", "--json"], 1, "{\"n\":2}\n"),
        (&["config", "unset", "budget", "model"], 0, "done\n"),
    ] {
        let output = sandbox.run(arguments);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(code), text), "{}", stderr(&output));
        assert_eq!(stderr(&output), "");
    }
    let asked = requests(&daemon);
    assert!(matches!(&asked[0], Request::Stats { cwd, .. } if Path::new(cwd).is_absolute()));
    assert!(matches!(&asked[4], Request::ConfigUnset { names, .. } if *names == ["budget", "model"]));
}

#[test]
fn reports_name_the_keys_of_a_session_and_only_questions_hold_their_values() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |request| match request {
        Request::Ask(_) => Behaviour::answer("a"),
        _ => report("r", "{}", true),
    });
    for arguments in [&["stats"][..], &["doctor"], &["ask", "q"], &["config", "show"]] {
        let mut command = sandbox.shim(arguments);
        command.env("OPENAI_API_KEY", "canary").env("ANTHROPIC_API_KEY", "canary").env("DEEPSEEK_API_KEY", "");
        // Nobody else's word counts.
        command.env("LIVE_MEMORY_INHERITED_KEYS", "OTHER");
        assert!(command.output().unwrap().status.success());
    }
    let named: Vec<Option<String>> = requests(&daemon)
        .into_iter()
        .map(|request| match request {
            // Their values go with questions alone, for a provider that was chosen without a key.
            Request::Ask(ask) => {
                let values: Vec<_> = ask.environment.iter().filter(|(_, value)| value == "canary").collect();
                assert_eq!(values.len(), 2, "{values:?}");
                ask.environment.into_iter().filter(|(_, value)| value != "canary").collect()
            }
            Request::Stats { environment, .. }
            | Request::Doctor { environment, .. }
            | Request::ConfigShow { environment } => environment,
            other => panic!("{other:?}"),
        })
        .map(|environment| {
            assert!(environment.iter().all(|(_, value)| value != "canary"), "{environment:?}");
            environment.into_iter().find(|(name, _)| name == "LIVE_MEMORY_INHERITED_KEYS").map(|(_, names)| names)
        })
        .collect();
    let both = Some("ANTHROPIC_API_KEY,OPENAI_API_KEY".to_owned());
    assert_eq!(named, [both.clone(), both, None, None]);
}

#[test]
fn keys_in_a_sessions_environment_are_mentioned_to_that_session() {
    let sandbox = Sandbox::new();
    let workspace = sandbox.workspace("w");
    std::fs::write(workspace.join("a.rs"), "fn some_function() {}\n").unwrap();
    let run = |arguments: &[&str], key: bool| {
        let mut command = sandbox.shim(arguments);
        if key {
            command.env("ANTHROPIC_API_KEY", "canary-of-a-key");
        }
        let output = command.current_dir(&workspace).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let _ = run(&["ask", "where is some_function?"], true);
    for verb in ["stats", "doctor"] {
        let text = run(&[verb], true).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("ANTHROPIC_API_KEY found, not used until a provider is chosen"), "{text}");
        let text = run(&[verb], false);
        assert!(!text.contains("ANTHROPIC_API_KEY"), "{text}");
    }
    let stats: Value = serde_json::from_str(&run(&["stats", "--json"], true)).unwrap();
    assert_eq!(stats["provider"]["inherited_keys"], serde_json::json!(["ANTHROPIC_API_KEY"]));
    assert_eq!(stats["settings"]["problems"], serde_json::json!([]));
    let log = std::fs::read_to_string(sandbox.data().core_log()).unwrap();
    assert!(!log.is_empty() && !log.contains("canary"), "{log}");
}

#[test]
fn a_secret_on_the_command_line_is_set_with_a_note_and_never_repeated() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |_| report("set", "{}", true));
    let noted = sandbox.run(&["config", "set", "api_key=sk-secret=1", "model=m"]);
    assert!(noted.status.success());
    assert!(stderr(&noted).contains("config set api_key=-"), "{}", stderr(&noted));
    let quiet = run_with_input(sandbox.shim(&["config", "set", "model=m", "api_key=-"]), b"sk-secret=1\r\n");
    assert!(quiet.status.success());
    for output in [&noted, &quiet] {
        assert!(!(stdout(output) + &stderr(output)).contains("sk-secret"));
    }
    assert_eq!(stderr(&quiet), "");
    let mut sent: Vec<Vec<(String, String)>> = requests(&daemon)
        .into_iter()
        .map(|request| match request {
            Request::ConfigSet { changes, .. } => changes,
            other => panic!("{other:?}"),
        })
        .collect();
    sent[1].reverse();
    let changes = [("api_key", "sk-secret=1"), ("model", "m")].map(|(name, value)| (name.into(), value.into()));
    assert_eq!(sent, [changes.to_vec(), changes.to_vec()]);
}

#[test]
fn looking_at_a_daemon_that_does_not_run_starts_none() {
    let sandbox = Sandbox::new();
    let text = sandbox.run(&["stats"]);
    assert!(text.status.success());
    assert_eq!(stdout(&text), "The daemon is not running; the first question starts it.\n");
    assert_eq!(stdout(&sandbox.run(&["stats", "--json"])), "{\"running\":false}\n");
    let stopped = sandbox.run(&["stop"]);
    assert!(stopped.status.success());
    assert_eq!(stdout(&stopped), "The daemon was not running.\n");
    assert!(!sandbox.data().daemon_notes().exists(), "a daemon was started");
}

#[test]
fn doctor_shows_its_own_checks_and_the_daemons() {
    let sandbox = Sandbox::new();
    let _daemon = ScriptedDaemon::start(&sandbox, |_| report("ok   settings        config.json", "{\"d\":1}", true));
    let output = sandbox.run(&["doctor"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    for expected in [
        "program         ok: ",
        "lm-core",
        "data directory  ok: ",
        "endpoint        ok: ",
        "daemon          ok: answers",
        "config.json",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    let json: Value = serde_json::from_str(&stdout(&sandbox.run(&["doctor", "--json"]))).unwrap();
    assert_eq!((&json["healthy"], &json["daemon"]["d"]), (&Value::Bool(true), &Value::from(1)));
    assert!(json["shim"].as_array().unwrap().iter().all(|check| check["ok"] == true), "{json}");
}

#[test]
fn doctor_helps_where_the_daemon_cannot_start() {
    let sandbox = Sandbox::new();
    let shim = sandbox.workspace("alone").join(lm_tests::binaries::shim().file_name().unwrap());
    lm_tests::binaries::copy(lm_tests::binaries::shim(), &shim);
    let output = sandbox.command(&shim).arg("doctor").output().unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("program         fail: ") && text.contains("daemon          fail: "), "{text}");
    assert!(text.contains("life lock       ok: free"), "{text}");

    let mut command = sandbox.command(&shim);
    command.args(["doctor", "--json"]).env("LIVE_MEMORY_DATA_DIR", "relative");
    let json: Value = serde_json::from_str(&stdout(&command.output().unwrap())).unwrap();
    assert_eq!(json["healthy"], false);
    assert_eq!(json["shim"][1]["name"], "data directory");
    assert_eq!(json["shim"][1]["ok"], false);
}
