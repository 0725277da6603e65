//! Time, rounds, length and window of one question.

use lm_tests::{
    ModelServer,
    model_server::{Gate, Script, SeenRequest, Turn},
};
use serde_json::json;

use super::{BOTH, Place, SERVER, answer_in, assert_fallback, text};

fn asked_for_an_answer(request: &SeenRequest) -> bool {
    request.messages.last().unwrap().pieces.iter().any(|piece| piece.raw.contains("Answer now with what you have seen"))
}

#[test]
fn rounds_end_with_answer_now_inside_the_last_tool_result() {
    for format in BOTH {
        let place = Place::with(&[SERVER]);
        let server = ModelServer::start(|request: &SeenRequest| {
            if asked_for_an_answer(request) {
                Turn::text("All I have seen is src/server.rs:1.")
            } else {
                Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))])
            }
        });
        place.choose(&server, format, json!({ "max_iterations": 3 }));
        let answer = place.ask("Loop for ever?");
        assert_eq!(text(&answer), "All I have seen is src/server.rs:1.\n");
        assert_eq!(server.requests().len(), 4, "three rounds and the answer");
    }
}

#[test]
fn a_model_that_never_answers_is_replaced_by_places() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(|_: &SeenRequest| Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))]));
    place.choose(&server, BOTH[0], json!({ "max_iterations": 2 }));
    let answer = place.ask("Where is the_default_port?");
    assert_fallback(&answer, "without an answer");
    assert!(text(&answer).contains("src/server.rs"), "{answer}");
    assert!(answer["usage"]["cost_usd"].as_f64().unwrap() > 0.0, "what it cost is told");
    assert!(server.requests().len() <= 4);
    server.set_model(Script::new([Turn::text("Better now."), Turn::text("Better now.")]));
    assert_eq!(text(&place.ask("And now?")), "Better now.\n");
}

#[test]
fn an_answer_longer_than_its_budget_is_cut_and_says_so() {
    let place = Place::with(&[SERVER]);
    let long = "word ".repeat(2_000);
    let server = ModelServer::start(Script::new([Turn::text(&long)]));
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false }));
    let output = place.command("Tell it all").args(["--max-answer-tokens", "256"]).output().unwrap();
    let answer = answer_in(&output);
    assert_eq!(answer["truncated"], true);
    assert!(text(&answer).len() < 256 * 5 && text(&answer).contains("Cut to 256 tokens"), "{}", text(&answer).len());
    let request = server.requests().remove(0);
    assert!(request.question().contains("at most 256 tokens"), "{}", request.question());
    assert!(request.json()["max_tokens"].as_u64().unwrap() < 8_192);
}

#[test]
fn an_answer_that_the_model_was_cut_in_says_so() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(Script::new([Turn::text("The beginning of").stopping("max_tokens")]));
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false }));
    assert_eq!(place.ask("Tell it all")["truncated"], true);
}

#[test]
fn a_model_that_is_too_slow_is_replaced_by_places_in_time() {
    let place = Place::with(&[SERVER]);
    let gate = Gate::default();
    let server = ModelServer::start(Script::new([Turn::text("never told").gated(&gate)]));
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false }));
    let output = place.command("Where is the_default_port?").args(["--timeout", "1"]).output().unwrap();
    let answer = answer_in(&output);
    assert_fallback(&answer, "in time");
    assert!(answer["timing"]["total_ms"].as_u64().unwrap() < 20_000, "{answer}");
    server.set_model(Script::new([Turn::text("Quick.")]));
    assert_eq!(text(&place.ask("And now?")), "Quick.\n");
}

#[test]
fn what_was_said_before_time_ran_out_is_told_and_not_kept() {
    let place = Place::with(&[SERVER]);
    let gate = Gate::default();
    // Start, ping, the beginning of the text and two pieces of it.
    gate.let_through(5);
    let server = ModelServer::start(Script::new([Turn::text("It begins in src/server.rs:1 and then").gated(&gate)]));
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false }));
    let output = place.command("Where?").args(["--timeout", "1"]).output().unwrap();
    let answer = answer_in(&output);
    assert_eq!((&answer["truncated"], &answer["provider"]), (&json!(true), &json!("anthropic")), "{answer}");
    assert!(text(&answer).contains("Time ran out"), "{answer}");
    server.set_model(Script::new([Turn::text("Whole.")]));
    place.ask("And now?");
    assert!(!server.requests().pop().unwrap().holds("It begins"));
}

#[test]
fn a_question_that_would_overflow_the_window_stops_reading_and_answers() {
    let place = Place::with(&[SERVER]);
    place.write("big.txt", &"a line of a big file, to be read in full\n".repeat(400));
    let server = ModelServer::start(|request: &SeenRequest| {
        if asked_for_an_answer(request) {
            Turn::text("As far as I got (big.txt:1).")
        } else {
            Turn::calls((0..4).map(|_| ("Read", json!({ "file_path": "big.txt" }))))
        }
    });
    place.choose(&server, BOTH[0], json!({ "max_context_tokens": 32_000, "model": "claude-haiku-4-5" }));
    let answer = place.ask("What is in the big file?");
    assert_eq!(text(&answer), "As far as I got (big.txt:1).\n");
    for request in server.requests() {
        assert!(request.tokens() <= 32_000, "{} tokens", request.tokens());
    }
    assert!(server.requests().pop().unwrap().holds("not shown: the context window is full"));
}
