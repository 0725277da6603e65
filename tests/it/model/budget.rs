//! What a day may cost.

use std::time::Duration;

use lm_tests::{
    ModelServer,
    daemon::texts,
    model_server::{CLOCK_VARIABLE, Fault, Gate, ReportedUsage, SeenRequest, Turn},
};
use serde_json::{Value, json};

use super::{BOTH, Place, SERVER, answer_in, assert_fallback, text};

/// Answers at the price of a million tokens of input: ten cents.
fn dear(_: &SeenRequest) -> Turn {
    let usage = ReportedUsage { input: 90_000, output: 1_000, ..ReportedUsage::default() };
    Turn { usage: Some(usage), ..Turn::text("A dear answer.") }
}

fn ask(place: &Place, server: &ModelServer, question: &str) -> Value {
    let mut command = place.command(question);
    command.env(CLOCK_VARIABLE, server.clock().file());
    answer_in(&command.output().unwrap())
}

fn stats(place: &Place) -> Value {
    let output = place.sandbox.shim(&["stats", "--json"]).current_dir(&place.root).output().unwrap();
    serde_json::from_str(&texts(&output).0).unwrap()
}

#[test]
fn a_budget_that_is_used_up_gives_places_until_the_next_day_across_restarts() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(dear);
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false, "daily_budget_usd": 0.01 }));
    // 90,000 tokens at $0.10 and 1,000 at $0.50 a million: $0.0095.
    assert_eq!(text(&ask(&place, &server, "the_default_port, first?")), "A dear answer.\n");
    assert_eq!(text(&ask(&place, &server, "the_default_port, second?")), "A dear answer.\n");
    let third = ask(&place, &server, "the_default_port, third?");
    assert_fallback(&third, "the daily budget of $0.01");
    assert!(text(&third).contains("daily_budget_usd"), "{third}");
    assert_eq!(server.requests().len(), 2);

    assert!(place.sandbox.run(&["stop"]).status.success());
    assert_fallback(&ask(&place, &server, "the_default_port, after a restart?"), "the daily budget of $0.01");
    let spending = &stats(&place)["spending"];
    let spent = spending["today"]["usd"].as_f64().unwrap();
    assert!((spent - 0.019).abs() < 0.000_1, "{spending}");

    server.clock().advance(Duration::from_secs(24 * 60 * 60));
    assert_eq!(text(&ask(&place, &server, "the_default_port, tomorrow?")), "A dear answer.\n");
    let spending = &stats(&place)["spending"];
    let (today, total) = (spending["today"]["usd"].as_f64().unwrap(), spending["total"]["usd"].as_f64().unwrap());
    assert!(today < 0.01 && total > 0.028, "{spending}");
}

#[test]
fn a_question_that_uses_the_budget_up_ends_with_what_it_has() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(|request: &SeenRequest| {
        let told = request.messages.last().unwrap().pieces.iter().any(|piece| piece.raw.contains("Answer now"));
        let usage = Some(ReportedUsage { input: 50_000, output: 1_000, ..ReportedUsage::default() });
        let turn = if told {
            Turn::text("As far as the money went (src/server.rs:1).")
        } else {
            Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))])
        };
        Turn { usage, ..turn }
    });
    place.choose(&server, BOTH[1], json!({ "daily_budget_tokens": 140_000 }));
    assert_eq!(text(&ask(&place, &server, "Read it all")), "As far as the money went (src/server.rs:1).\n");
    assert_eq!(server.requests().len(), 4, "three rounds: the third went past 140,000 tokens");
    assert_fallback(&ask(&place, &server, "the_default_port?"), "daily budget of 140000 tokens");
}

#[test]
fn an_unknown_price_is_said_to_be_unknown_and_a_set_one_counts() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(dear);
    let unpriced = json!({ "force_explore_when_cold": false, "model": "my-own-model" });
    place.choose(&server, BOTH[1], unpriced);
    let answer = ask(&place, &server, "Which port?");
    assert_eq!(answer["usage"]["cost_usd"], Value::Null);
    assert!(answer["notes"][0].as_str().unwrap().contains("the price of my-own-model is not known"), "{answer}");
    let priced = json!({
        "force_explore_when_cold": false, "model": "my-own-model", "price_input": 1.0, "price_output": 2.0,
    });
    place.choose(&server, BOTH[1], priced);
    let answer = ask(&place, &server, "Which port?");
    let cost = answer["usage"]["cost_usd"].as_f64().unwrap();
    assert!((cost - 0.092).abs() < 1e-9 && answer["notes"] == json!([]), "{answer}");
}

#[test]
fn parallel_questions_do_not_pass_the_budget_together() {
    let place = Place::with(&[SERVER]);
    let gate = Gate::default();
    let waiting = gate.clone();
    let server = ModelServer::start(move |_: &SeenRequest| {
        let usage = ReportedUsage { input: 90_000, output: 1_000, ..ReportedUsage::default() };
        Turn { usage: Some(usage), ..Turn::text("A dear answer.") }.gated(&waiting)
    });
    // Answers of 32,000 tokens at $0.50 a million are expected to cost $0.016 each.
    let more = json!({ "force_explore_when_cold": false, "daily_budget_usd": 0.02, "max_answer_tokens": 32_000 });
    place.choose(&server, BOTH[0], more);
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4)
            .map(|number| {
                scope.spawn({
                    let place = &place;
                    move || place.ask(&format!("the_default_port, question {number}?"))
                })
            })
            .collect();
        let refused = |answers: &[std::thread::ScopedJoinHandle<'_, Value>]| {
            answers.iter().filter(|answer| answer.is_finished()).count() == 2
        };
        lm_tests::wait_until("two questions to be refused", || refused(&asked).then(|| gate.open()));
        let answers: Vec<Value> = asked.into_iter().map(|asked| asked.join().unwrap()).collect();
        let by_model = answers.iter().filter(|answer| answer["provider"] != "offline").count();
        assert_eq!(by_model, 2, "{answers:?}");
    });
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_request_that_breaks_off_is_booked_with_what_it_was_expected_to_cost() {
    for format in BOTH {
        let place = Place::with(&[SERVER]);
        let server = ModelServer::start(move |_: &SeenRequest| {
            Turn::text("one two three").failing(Fault::Silence(if format == BOTH[0] { 4 } else { 2 }))
        });
        place.choose(&server, format, json!({ "force_explore_when_cold": false }));
        let mut command = place.command("the_default_port?");
        command.args(["--timeout", "5"]);
        answer_in(&command.output().unwrap());
        let today = &stats(&place)["spending"]["today"];
        assert!(today["usd"].as_f64().unwrap() > 0.0 && today["requests"] == 1, "{format:?}: {today}");
    }
}
