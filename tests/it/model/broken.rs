//! Models and servers that do what they should not: nothing half is kept, and the next question works.

use lm_tests::{
    ModelServer,
    model_server::{Fault, Format, ReportedUsage, Say, Script, SeenRequest, Turn},
};
use serde_json::json;

use super::{BOTH, KEY, Place, SERVER, answer_in, assert_fallback, text};

fn raw_call(name: &str, arguments: &str) -> Turn {
    Turn { say: vec![Say::Call { name: name.into(), arguments: arguments.into() }], ..Turn::default() }
}

#[test]
fn calls_of_every_broken_kind_are_told_what_is_wrong() {
    let huge = format!("{{\"file_path\":\"{}\"}}", "x".repeat(100_000));
    let cases = [
        ("unknown", raw_call("Write", r#"{"file_path":"src/server.rs"}"#), "there is no tool `Write`"),
        ("missing", raw_call("Read", "{}"), "file_path"),
        ("wrong type", raw_call("Read", r#"{"file_path":7}"#), "file_path"),
        ("unknown argument", raw_call("Read", r#"{"path":"src/server.rs"}"#), "file_path"),
        ("huge", raw_call("Read", &huge), "65536 are allowed"),
        ("outside", raw_call("Read", r#"{"file_path":"../../etc/passwd"}"#), "workspace"),
        ("no JSON", raw_call("Read", r#"{"file_path": "src/ser"#), "JSON"),
    ];
    for format in BOTH {
        for (kind, call, told) in &cases {
            let place = Place::with(&[SERVER]);
            let server = ModelServer::start(Script::new([
                call.clone(),
                Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))]),
                Turn::text("Found (src/server.rs:3)."),
            ]));
            place.choose(&server, format, json!({}));
            assert_eq!(text(&place.ask("Which port?")), "Found (src/server.rs:3).\n", "{format:?} {kind}");
            let second = &server.requests()[1];
            let result = &second.messages.last().unwrap().pieces.last().unwrap().raw;
            assert!(result.contains(told), "{format:?} {kind}: {result}");
        }
    }
}

#[test]
fn a_call_printed_as_text_is_no_answer() {
    let place = Place::with(&[SERVER]);
    let printed = "<tool_call>\n{\"name\": \"Read\", \"arguments\": {\"file_path\": \"src/server.rs\"}}\n</tool_call>";
    let server = ModelServer::start(Script::new([Turn::text(printed), Turn::text("8080 (src/server.rs:3).")]));
    place.choose(&server, BOTH[1], json!({}));
    assert_eq!(text(&place.ask("Which port?")), "8080 (src/server.rs:3).\n");
    let result = server.requests()[1].messages.last().unwrap().pieces[0].json();
    assert!(result["role"] == "tool" && result["content"].as_str().unwrap().contains("the_default_port"), "{result}");
    // What is no more than recognised is sent back once.
    let broken = "<tool_call>\n{\"name\": \"Read\", \"argu";
    server.set_model(Script::new([Turn::text(broken), Turn::text("8080 again (src/server.rs:3).")]));
    assert_eq!(text(&place.ask("Which port now?")), "8080 again (src/server.rs:3).\n");
    server.set_model(Script::new([Turn::text(broken), Turn::text(broken)]));
    assert_fallback(&place.ask("Which port then?"), "without an answer");
}

#[test]
fn an_empty_answer_is_asked_for_once_more() {
    for format in BOTH {
        let place = Place::with(&[SERVER]);
        let server = ModelServer::start(Script::new([Turn::text(""), Turn::text("Now.")]));
        place.choose(&server, format, json!({ "force_explore_when_cold": false }));
        assert_eq!(text(&place.ask("Which port?")), "Now.\n", "{format:?}");
        server.set_model(Script::new([Turn::text(""), Turn::text("")]));
        assert_fallback(&place.ask("the_default_port?"), "without an answer");
    }
}

#[test]
fn a_refusal_is_told() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(Script::new([Turn::text("").stopping("refusal")]));
    place.choose(&server, BOTH[0], json!({}));
    assert_fallback(&place.ask("the_default_port?"), "declined");
}

#[test]
fn servers_that_fail_are_replaced_by_places_with_the_reason() {
    let cases: Vec<(&str, Vec<Turn>, &str)> = vec![
        ("wrong key", vec![Turn::status(401, "authentication_error", "invalid x-api-key")], "authentication failed"),
        ("no credit", vec![Turn::status(402, "billing_error", "no credit")], "cannot pay"),
        ("unknown model", vec![Turn::status(404, "not_found_error", "model: claude-x")], "unknown"),
        ("overloaded", vec![Turn::overloaded(); 12], "overloaded"),
        ("rate limit", vec![Turn::rate_limited("3600")], "rate limited until"),
        ("reset", vec![Turn::fault(Fault::Reset); 12], "no connection"),
        ("a web page", vec![Turn::fault(Fault::Page("text/html", "<html>login</html>".into()))], "no usable answer"),
        ("half a stream", vec![Turn::text("half an ans").failing(Fault::HalfStream(3)); 12], ""),
    ];
    // Side by side, since most of them wait.
    std::thread::scope(|scope| {
        for format in BOTH {
            for (kind, turns, reason) in &cases {
                scope.spawn(move || fails_and_works_again(format, kind, turns, reason));
            }
        }
    });
}

fn fails_and_works_again(format: Format, kind: &str, turns: &[Turn], reason: &str) {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(Script::new(turns.to_vec()));
    place.choose(&server, format, json!({ "force_explore_when_cold": false }));
    let output = place.command("Where is the_default_port?").args(["--timeout", "3"]).output().unwrap();
    let answer = answer_in(&output);
    assert_fallback(&answer, reason);
    assert!(text(&answer).contains("src/server.rs"), "{format:?} {kind}: {answer}");
    assert!(!text(&answer).contains("half an ans") && !answer.to_string().contains(KEY), "{answer}");
    // Another address, since a back-off is kept for each.
    let next = ModelServer::start(Script::new([Turn::text("It works again.")]));
    place.choose(&next, format, json!({ "force_explore_when_cold": false }));
    assert_eq!(text(&place.ask("And now?")), "It works again.\n", "{format:?} {kind}");
}

#[test]
fn what_is_transient_is_tried_again() {
    for format in BOTH {
        let place = Place::with(&[SERVER]);
        let server = ModelServer::start(Script::new([
            Turn::overloaded(),
            Turn::rate_limited("1"),
            Turn::fault(Fault::Reset),
            Turn::text("At last."),
        ]));
        place.choose(&server, format, json!({ "force_explore_when_cold": false }));
        assert_eq!(text(&place.ask("Which port?")), "At last.\n", "{format:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(Script::new([]));
    place.choose(&server, BOTH[0], json!({ "base_url": "http://127.0.0.1:9" }));
    let output = place.command("Where is the_default_port?").args(["--timeout", "5"]).output().unwrap();
    let answer = answer_in(&output);
    assert_fallback(&answer, "http://127.0.0.1:9");
    let stats = place.sandbox.run(&["stats"]);
    let (stats, _) = lm_tests::daemon::texts(&stats);
    assert!(stats.contains("last error") && stats.contains("127.0.0.1:9"), "{stats}");
}

#[test]
fn a_rest_without_end_is_shortened_and_the_daemon_goes_on() {
    for format in BOTH {
        let place = Place::with(&[SERVER]);
        let server = ModelServer::start(Script::new([Turn::rate_limited("1e18")]));
        place.choose(&server, format, json!({ "force_explore_when_cold": false }));
        for question in ["Where is the_default_port?", "Where is the_default_port now?"] {
            assert_fallback(&place.ask(question), "rate limited until");
        }
        assert_eq!(server.requests().len(), 1, "nobody asks again before the hour is over");
    }
}

#[test]
fn usage_that_cannot_be_true_is_not_believed() {
    let none = ReportedUsage::default();
    let absurd = ReportedUsage { input: u64::MAX / 4, output: u64::MAX / 4, ..none };
    for format in BOTH {
        for usage in [none, absurd] {
            let place = Place::with(&[SERVER]);
            place.write("big.txt", &"a line of a big file, to be read in full\n".repeat(400));
            let server = ModelServer::start(move |request: &SeenRequest| {
                let told = request.messages.last().unwrap().pieces.iter().any(|piece| piece.raw.contains("Answer now"));
                let turn = if told {
                    Turn::text("As far as I got (big.txt:1).")
                } else {
                    Turn::calls((0..3).map(|_| ("Read", json!({ "file_path": "big.txt" }))))
                };
                Turn { usage: Some(usage), ..turn }
            });
            place.choose(&server, format, json!({ "max_context_tokens": 32_000, "daily_budget_usd": 1000 }));
            assert_eq!(text(&place.ask("What is in the big file?")), "As far as I got (big.txt:1).\n", "{usage:?}");
            for request in server.requests() {
                assert!(request.tokens() <= 34_000, "{usage:?}: {} tokens", request.tokens());
            }
        }
    }
}

#[test]
fn an_answer_without_end_is_cut_and_not_waited_for() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(Script::new([Turn::text(&"endless ".repeat(800_000))]));
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false, "max_answer_tokens": 256 }));
    let answer = place.ask("Tell it all");
    assert_eq!((&answer["truncated"], &answer["provider"]), (&json!(true), &json!("anthropic")));
    assert!(text(&answer).len() < 3_000, "{}", text(&answer).len());
    assert_eq!(server.requests().len(), 1);
}
