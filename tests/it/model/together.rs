//! Questions that are asked at once.

use std::process::Stdio;

use lm_tests::{
    ModelServer,
    daemon::{kill, running_pid, wait_until_left},
    model_server::{Gate, SeenRequest, Turn},
    wait_until,
};
use serde_json::json;

use super::{BOTH, Place, SERVER, answer_in, text};

#[test]
fn on_a_cold_prefix_the_others_wait_until_the_first_answer_begins() {
    let place = Place::with(&[SERVER]);
    let gate = Gate::default();
    let held = gate.clone();
    let mut first = true;
    let server = ModelServer::start(move |_: &SeenRequest| {
        let turn = Turn::text("in parallel");
        if std::mem::take(&mut first) { turn.gated(&held) } else { turn }
    });
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false }));
    let asked: Vec<_> = (0..4)
        .map(|number| place.command(&format!("number {number}")).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    wait_until("the first question at the model", || (gate.waiting() == 1).then_some(()));
    // All four have begun by then, and only one was sent.
    wait_until("four questions under way", || {
        let stats = lm_tests::observed::workspace_stats(&place.sandbox, "project")?;
        (stats["questions"]["running"] == 4).then_some(())
    });
    assert_eq!(server.requests().len(), 1);
    gate.open();
    for child in asked {
        assert_eq!(text(&answer_in(&child.wait_with_output().unwrap())), "in parallel\n");
    }
    let cached = server.usages().into_iter().filter(|(_, tokens, _)| tokens.read > 0).count();
    let is_cacheable = server.requests()[0].tokens() >= 4_096;
    assert!(cached == 3 || !is_cacheable, "{cached} of 3 have read what the first wrote");
}

#[test]
fn eight_answers_at_once_are_all_kept_also_by_the_next_daemon() {
    for format in BOTH {
        let place = Place::with(&[SERVER]);
        let server = ModelServer::start(|request: &SeenRequest| {
            let question = request.question();
            let number = question.split("number ").nth(1).map_or("none", |rest| &rest[..1]).to_owned();
            if request.messages.last().unwrap().role == "tool" || question.is_empty() {
                return Turn::text("kept with what was read");
            }
            Turn::text(&format!("kept-{number}"))
        });
        place.choose(&server, format, json!({ "force_explore_when_cold": false, "max_parallel_queries": 8 }));
        let asked: Vec<_> = (0..8)
            .map(|number| place.command(&format!("number {number}")).stdout(Stdio::piped()).spawn().unwrap())
            .collect();
        for child in asked {
            answer_in(&child.wait_with_output().unwrap());
        }
        let data = place.sandbox.data();
        kill(running_pid(&data));
        wait_until_left(&data);
        place.ask("number 9");
        let last = server.requests().pop().unwrap();
        for number in 0..8 {
            assert!(last.holds(&format!("kept-{number}")), "{format:?}: answer {number} was lost\n{}", last.raw);
        }
    }
}

#[test]
fn the_queue_is_bounded_and_says_so() {
    let place = Place::with(&[SERVER]);
    let gate = Gate::default();
    let held = gate.clone();
    let server = ModelServer::start(move |_: &SeenRequest| Turn::text("in turn").gated(&held));
    let settings = json!({ "force_explore_when_cold": false, "concurrency": "serial", "max_queue_size": 2 });
    place.choose(&server, BOTH[0], settings);
    let ask = |number: usize| place.command(&format!("number {number}")).stdout(Stdio::piped()).spawn().unwrap();
    let mut asked = vec![ask(0)];
    wait_until("a question at the model", || (gate.waiting() == 1).then_some(()));
    asked.extend([ask(1), ask(2)]);
    wait_until("two questions in the queue", || {
        let stats = lm_tests::observed::workspace_stats(&place.sandbox, "project")?;
        (stats["questions"]["waiting"] == 2).then_some(())
    });
    let refused = place.command("number 3").output().unwrap();
    let (_, told) = lm_tests::daemon::texts(&refused);
    assert!(!refused.status.success() && told.contains("max_queue_size"), "{told}");
    gate.open();
    for child in asked {
        assert_eq!(text(&answer_in(&child.wait_with_output().unwrap())), "in turn\n");
    }
}
