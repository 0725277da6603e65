//! The tool `recall`: what left the window is found again, and said to be stale where it is.

use lm_tests::{
    ModelServer,
    model_server::{Script, SeenRequest, Turn},
    observed::workspace_stats,
};
use serde_json::json;

use super::{BOTH, Place, SERVER, text};

/// A place whose one answer left the window unsummarised: the model was changed and carried nothing over.
fn place_with_an_archived_answer(server: &ModelServer) -> Place {
    let place = Place::with(&[SERVER]);
    let settings = |model: &str| json!({ "model": model, "compaction_floor": 0.02, "force_explore_when_cold": false });
    place.choose(server, BOTH[0], settings("claude-haiku-5-5"));
    place.ask("Which harbour does the server use?");
    place.choose(server, BOTH[0], settings("claude-haiku-4-5"));
    place
}

/// A long answer, which has no room in the next conversation.
fn long_answer() -> Turn {
    let padding = "It is all about the harbour and its ships, which come and go. ".repeat(300);
    Turn::text(&format!("The harbour is 8080 (src/server.rs:3). {padding}"))
}

/// The results of tools in the last request.
fn told(server: &ModelServer) -> String {
    server.requests().pop().unwrap().messages.last().unwrap().pieces.iter().map(|piece| piece.raw.clone()).collect()
}

#[test]
fn what_is_recalled_is_checked_before_it_is_told() {
    for is_changed in [false, true] {
        let server = ModelServer::start(Script::new([
            Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))]),
            long_answer(),
            Turn::calls([("recall", json!({ "query": "harbour server" }))]),
            Turn::text("As I said."),
        ]));
        let place = place_with_an_archived_answer(&server);
        if is_changed {
            place.write(SERVER.0, &SERVER.1.replace("8080", "9090"));
        }
        assert_eq!(text(&place.ask("What about ships?")), "As I said.\n");
        let first = &server.requests()[2];
        assert!(!first.holds("The harbour is 8080"), "it has left the window");
        let told = told(&server);
        assert!(told.contains("Which harbour does the server use?") && told.contains("The harbour is 8080"), "{told}");
        assert_eq!(told.contains("STALE, changed since: `src/server.rs`"), is_changed, "{told}");
        assert_eq!(workspace_stats(&place.sandbox, "project").unwrap()["memory"]["archived"], 1);
    }
}

/// An answer that rests on something recalled is known to rest on its files.
#[test]
fn a_change_of_what_was_recalled_is_told_later() {
    let server = ModelServer::start(Script::new([
        Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))]),
        long_answer(),
        Turn::calls([("recall", json!({ "query": "harbour" }))]),
        Turn::text("The harbour is 8080."),
        Turn::text("Noted."),
    ]));
    let place = place_with_an_archived_answer(&server);
    place.ask("Xyzzy?");
    place.write(SERVER.0, &SERVER.1.replace("8080", "9090"));
    place.ask("And now?");
    let question = server.requests().pop().unwrap().question();
    assert!(question.contains("9090") && question.contains("Xyzzy?"), "{question}");
}

#[test]
fn what_is_not_remembered_is_said_and_the_archive_outlives_the_daemon() {
    let server = ModelServer::start(Script::new([
        Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))]),
        long_answer(),
        Turn::text("A new conversation."),
    ]));
    let place = place_with_an_archived_answer(&server);
    place.ask("Begin anew?");
    assert!(place.sandbox.run(&["stop"]).status.success());
    lm_tests::daemon::wait_until_left(&place.sandbox.data());
    server.set_model(|request: &SeenRequest| {
        if request.holds("A new thing is asked") && request.holds("Nothing that was noted") {
            return Turn::text("Nothing is known.");
        }
        if request.holds("The harbour is 8080") {
            return Turn::calls([("recall", json!({ "query": "zebra crossing" }))]);
        }
        Turn::calls([("recall", json!({ "query": "harbour", "limit": 3 }))])
    });
    assert_eq!(text(&place.ask("A new thing is asked?")), "Nothing is known.\n");
}
