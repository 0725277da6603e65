//! What an answer holds and what it rests on.

use lm_tests::{
    ModelServer,
    model_server::{ReadingModel, Script, Turn},
};
use serde_json::json;

use super::{BOTH, CLIENT, Place, SERVER, text};

fn reading(answer: &str, parallel: bool) -> ReadingModel {
    let need = |(path, text): (&str, &str)| (path.to_owned(), text.lines().last().unwrap().to_owned());
    let marks = [("src/server.rs", "the_default_port"), ("src/client.rs", "the_host")];
    ReadingModel { needs: marks.map(need).to_vec(), answer: answer.to_owned(), parallel }
}

#[test]
fn a_model_reads_and_its_answer_is_checked() {
    for format in BOTH {
        let place = Place::with(&[SERVER, CLIENT]);
        let server = ModelServer::start(reading(
            "The port is 8080 (src/server.rs:2-3), the host is set in `client.rs:2`, unlike src/server.rs:99.",
            false,
        ));
        place.choose(&server, format, json!({}));
        // No word of it leads to a file, so that everything has to be read.
        let answer = place.ask("Qqq and www?");
        assert_eq!(
            text(&answer),
            "The port is 8080 (src/server.rs:2-3), the host is set in `client.rs:2`, unlike src/server.rs:99 (no such \
             place).\n"
        );
        assert_eq!((&answer["model"], &answer["truncated"]), (&json!("claude-haiku-5-5"), &json!(false)));
        let sources: Vec<_> =
            answer["sources"].as_array().unwrap().iter().map(|source| source["path"].clone()).collect();
        assert_eq!(sources, ["src/server.rs", "src/client.rs"], "{format:?}");
        assert_eq!(answer["sources"][0]["last_line"], 3);
        assert_eq!(answer["sources"][0]["sha256"].as_str().unwrap().len(), 64);
        assert_eq!(answer["files_seen"].as_array().unwrap().len(), 2);
        assert_eq!(answer["citations"], json!({ "right": 2, "wrong": 1 }));
        assert_eq!((&answer["usage"]["requests"], &answer["usage"]["tool_calls"]), (&json!(3), &json!(2)));
        // What the program says it cost is what the server would bill.
        let (said, billed) = (answer["usage"]["cost_usd"].as_f64().unwrap(), server.bill().dollars);
        assert!((said - billed).abs() <= billed * 0.001, "{said} is not {billed}");
        assert_eq!(server.logs(), 1);
    }
}

#[test]
fn several_files_are_read_in_one_turn() {
    for format in BOTH {
        let place = Place::with(&[SERVER, CLIENT]);
        let server = ModelServer::start(reading("Both are known (src/server.rs:3).", true));
        place.choose(&server, format, json!({}));
        let answer = place.ask("Qqq and www?");
        assert_eq!((&answer["usage"]["requests"], &answer["usage"]["tool_calls"]), (&json!(2), &json!(2)));
        let trailer = place.sandbox.shim(&["ask", "Again, which port?"]).current_dir(&place.root).output().unwrap();
        let (answer, _) = lm_tests::daemon::texts(&trailer);
        assert!(answer.starts_with("Both are known (src/server.rs:3).\n"), "{answer}");
        assert_eq!(server.requests().len(), 3, "the second question needs no reading");
    }
}

#[test]
fn excerpts_answer_a_question_without_looking() {
    for format in BOTH {
        let place = Place::with(&[SERVER, CLIENT]);
        let server = ModelServer::start(reading("8080 on localhost (src/server.rs:3, src/client.rs:2).", true));
        place.choose(&server, format, json!({}));
        let answer = place.ask("What are the_default_port and the_host?");
        assert_eq!((&answer["usage"]["requests"], &answer["usage"]["tool_calls"]), (&json!(1), &json!(0)));
        assert_eq!(answer["files_seen"].as_array().unwrap().len(), 2);
        assert_eq!(answer["citations"], json!({ "right": 2, "wrong": 0 }));
        // What stands in the conversation is not shown again.
        place.ask("Once more: what are the_default_port and the_host?");
        let last = server.requests().pop().unwrap();
        assert_eq!(last.raw.matches("// the_default_port").count(), 1, "{}", last.raw);
    }
}

#[test]
fn a_cold_question_shows_excerpts_and_wants_the_model_to_look() {
    let place = Place::with(&[SERVER, CLIENT]);
    let server = ModelServer::start(Script::new([
        Turn::text("Port 80, as everywhere."),
        Turn::text("I cannot know."),
        Turn::text("Warm: 8080."),
    ]));
    place.choose(&server, BOTH[0], json!({}));
    let answer = place.ask("What is the_default_port?");
    assert_eq!(text(&answer), "I cannot know.\n");
    let requests = server.requests();
    assert!(requests[0].question().contains("src/server.rs:\n<excerpt>\n"), "{}", requests[0].question());
    assert!(requests[1].question().contains("names nothing seen"), "{}", requests[1].question());
    // Something is known by now: the next answer stands, and nothing is shown twice.
    assert_eq!(text(&place.ask("What is the_default_port now?")), "Warm: 8080.\n");
    assert!(!server.requests()[2].question().contains("word search"));
}

#[test]
fn the_cold_guard_can_be_switched_off() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(Script::new([Turn::text("Port 80, as everywhere.")]));
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false }));
    assert_eq!(text(&place.ask("Which port?")), "Port 80, as everywhere.\n");
}

#[test]
fn the_trailer_and_progress_are_for_a_terminal_and_the_answer_alone_goes_to_stdout() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(reading("8080 (src/server.rs:3).", true));
    place.write(CLIENT.0, CLIENT.1);
    place.choose(&server, BOTH[0], json!({}));
    let output = place.sandbox.shim(&["ask", "Which port?"]).current_dir(&place.root).output().unwrap();
    assert_eq!(lm_tests::daemon::texts(&output), ("8080 (src/server.rs:3).\n".to_owned(), String::new()));
}

#[test]
fn every_tool_is_offered_in_the_same_bytes_each_time() {
    let place = Place::with(&[SERVER, CLIENT]);
    let server = ModelServer::start(reading("Known.", true));
    place.choose(&server, BOTH[0], json!({}));
    place.ask("Which port?");
    place.ask("Which host?");
    let requests = server.requests();
    let names: Vec<_> = requests[0].tools.iter().map(|tool| tool.json()["name"].clone()).collect();
    assert_eq!(names, ["Read", "Grep", "Glob", "find_paths", "get_changed_files", "git_search", "recall"]);
    for request in &requests {
        let bytes = |request: &lm_tests::model_server::SeenRequest| {
            request.tools.iter().map(|tool| tool.raw.clone()).collect::<Vec<_>>()
        };
        assert_eq!(bytes(request), bytes(&requests[0]));
    }
}
