//! The conversation from question to question: it grows, is shared by parallel questions, begins anew.

use std::{process::Stdio, time::Duration};

use lm_tests::{
    ModelServer,
    model_server::{Gate, Script, SeenRequest, Turn},
    wait_until,
};
use serde_json::json;

use super::{BOTH, Place, SERVER, answer_in, text};

/// Reads what the question names, then answers with it.
fn echo(request: &SeenRequest) -> Turn {
    let question = request.question();
    let last = request.messages.last().unwrap();
    if last.pieces.iter().any(|piece| piece.raw.contains("tool_result") || piece.raw.contains("\"tool\""))
        || last.role == "tool"
    {
        return Turn::text("Answered from src/server.rs:1.");
    }
    if question.contains("read") {
        return Turn::calls([
            ("Read", json!({ "file_path": "src/server.rs" })),
            ("Glob", json!({ "pattern": "**/*.rs" })),
        ]);
    }
    Turn::text("Answered at once.")
}

#[test]
fn questions_continue_one_log_and_little_of_the_cache_is_lost() {
    for format in BOTH {
        let place = Place::with(&[SERVER]);
        for file in 0..40 {
            place.write(&format!("src/module_{file}.rs"), &format!("pub fn f{file}() {{}}\n").repeat(40));
        }
        let mut step = 0;
        // Each question reads other files, in rounds of up to three.
        let server = ModelServer::start(move |_: &SeenRequest| {
            step += 1;
            if step % 4 == 0 {
                return Turn::text(&format!("Answer {step} (src/server.rs:1)."));
            }
            let read = |file: usize| ("Read", json!({ "file_path": format!("src/module_{}.rs", file % 40) }));
            Turn::calls((0..step % 4).map(|call| read(step * 3 + call)))
        });
        place.choose(&server, format, json!({}));
        for question in 0..8 {
            let answer = place.ask(&format!("Question {question}?"));
            assert_eq!(answer["provider"], json!(if format == BOTH[0] { "anthropic" } else { "openai" }));
        }
        assert_eq!(server.logs(), 1, "one append-only log");
        let bill = server.bill();
        assert!(bill.loss() <= 0.01, "{format:?}: {} of the prompt could have come from the cache", bill.loss());
        assert!(bill.hit_ratio() > 0.8, "{format:?}: {}", bill.hit_ratio());
    }
}

#[test]
fn parallel_answers_are_all_kept() {
    let place = Place::with(&[SERVER]);
    let gate = Gate::default();
    let held = gate.clone();
    let server = ModelServer::start(move |request: &SeenRequest| {
        let question = request.question();
        let number = question.split("number ").nth(1).map_or("none", |rest| &rest[..1]);
        Turn::text(&format!("kept-{number}")).gated(&held)
    });
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false }));
    let asked: Vec<_> = (0..4)
        .map(|number| {
            let mut command = place.command(&format!("number {number}"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    wait_until("four questions at the model", || (gate.waiting() == 4).then_some(()));
    gate.open();
    for child in asked {
        assert!(text(&answer_in(&child.wait_with_output().unwrap())).starts_with("kept-"));
    }
    place.ask("number 9");
    let last = server.requests().pop().unwrap();
    for number in 0..4 {
        assert!(last.holds(&format!("kept-{number}")), "answer {number} was lost");
    }
}

#[test]
fn serial_questions_wait_for_each_other() {
    let place = Place::with(&[SERVER]);
    let gate = Gate::default();
    let held = gate.clone();
    let server = ModelServer::start(move |_: &SeenRequest| Turn::text("in turn").gated(&held));
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false, "concurrency": "serial" }));
    let children: Vec<_> = (0..3).map(|_| place.command("And now?").stdout(Stdio::piped()).spawn().unwrap()).collect();
    wait_until("a question at the model", || (gate.waiting() == 1).then_some(()));
    gate.open();
    for child in children {
        assert_eq!(text(&answer_in(&child.wait_with_output().unwrap())), "in turn\n");
    }
    // Each saw the answers before it.
    let answers: Vec<usize> = server.requests().iter().map(|request| request.raw.matches("in turn").count()).collect();
    assert_eq!(answers, [0, 1, 2]);
}

#[test]
fn a_question_that_is_given_up_leaves_nothing_behind() {
    let place = Place::with(&[SERVER]);
    let gate = Gate::default();
    let server = ModelServer::start(Script::new([Turn::text("never told").gated(&gate)]));
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false }));
    let mut child = place.command("the abandoned question").spawn().unwrap();
    wait_until("a question at the model", || (gate.waiting() == 1).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    // The request is dropped with it, within a second and not at the end of its time.
    wait_until("the request to be dropped", || (server.clients_left() == 1).then_some(()));
    server.set_model(Script::new([Turn::text("a fresh answer")]));
    assert_eq!(text(&place.ask("And now?")), "a fresh answer\n");
    assert!(!server.requests().pop().unwrap().holds("abandoned"));
}

#[test]
fn another_model_begins_anew_and_knows_what_was_answered() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(echo);
    place.choose(&server, BOTH[0], json!({}));
    place.ask("Please read it: first question");
    place.choose(&server, BOTH[0], json!({ "model": "claude-haiku-4-5" }));
    place.ask("A second question");
    assert_eq!(server.logs(), 2, "caches belong to one model");
    let last = server.requests().pop().unwrap();
    assert!(last.holds("first question") && last.holds("Answered from src/server.rs:1."));
    assert!(!last.holds("the_default_port"), "what was read is read anew");
}

#[test]
fn an_answer_that_comes_after_the_model_was_changed_is_kept_without_its_tool_rounds() {
    let place = Place::with(&[SERVER]);
    let gate = Gate::default();
    let held = gate.clone();
    let server = ModelServer::start(move |request: &SeenRequest| {
        if request.model != "claude-haiku-5-5" {
            return Turn::text("from the second model");
        }
        if request.holds("the_default_port") {
            Turn::text("from the first model").gated(&held)
        } else {
            Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))])
        }
    });
    let without_guard = json!({ "force_explore_when_cold": false });
    place.choose(&server, BOTH[0], without_guard.clone());
    let slow = place.command("a slow question").stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the answer of the first model", || (gate.waiting() == 1).then_some(()));
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false, "model": "claude-haiku-4-5" }));
    place.ask("a quick question");
    gate.open();
    assert_eq!(text(&answer_in(&slow.wait_with_output().unwrap())), "from the first model\n");
    place.ask("and now?");
    let last = server.requests().pop().unwrap();
    assert!(last.holds("a slow question") && last.holds("from the first model"), "the answer was lost");
    assert!(last.holds("from the second model") && !last.holds("the_default_port"), "{}", last.raw);
}

#[test]
fn a_full_window_begins_anew_with_the_newest_answers() {
    let place = Place::with(&[SERVER]);
    place.write("big.txt", &"a line of a big file, to be read in full\n".repeat(400));
    let mut step = 0;
    let server = ModelServer::start(move |request: &SeenRequest| {
        if request.is_summary() {
            return Turn::text("- [big.txt] It has four hundred lines.");
        }
        step += 1;
        if step % 2 == 1 {
            Turn::calls([("Read", json!({ "file_path": "big.txt" }))])
        } else {
            Turn::text(&format!("answer number {} (big.txt:1)", step / 2))
        }
    });
    place.choose(&server, BOTH[0], json!({ "max_context_tokens": 40_000, "model": "claude-haiku-4-5" }));
    for question in 0..14 {
        let answer = place.ask(&format!("question {question}"));
        assert_eq!(answer["provider"], "anthropic", "{answer}");
    }
    assert!(server.logs() >= 2, "the window was never full");
    let last = server.requests().into_iter().rfind(|request| !request.is_summary()).unwrap();
    assert!(last.holds("answer number 13"), "the newest answer is carried over");
    for request in server.requests() {
        assert!(request.tokens() <= 40_000, "{} tokens", request.tokens());
    }
}

#[test]
fn a_prompt_that_the_model_finds_too_long_is_shortened_once() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(Script::new([
        Turn::text("the first answer"),
        Turn::context_too_long(),
        Turn::text("the second answer"),
    ]));
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false }));
    place.ask("first?");
    assert_eq!(text(&place.ask("second?")), "the second answer\n");
    assert!(!server.requests().pop().unwrap().holds("the first answer"));
}

#[test]
fn the_same_conversation_goes_on_after_some_time() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(echo);
    place.choose(&server, BOTH[0], json!({}));
    place.ask("Please read it");
    server.clock().advance(Duration::from_secs(400));
    place.ask("Another question");
    assert_eq!(server.logs(), 1);
    let (_, tokens, _) = server.usages().pop().unwrap();
    assert_eq!(tokens.read, 0, "the provider's cache has expired, the conversation has not");
}
