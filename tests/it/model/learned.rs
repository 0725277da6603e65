//! What the coding agent does reaches the model: names of files, and what they hold where a question is
//! about it.

use std::process::Stdio;

use lm_tests::{
    ModelServer,
    daemon::{kill, running_pid, wait_until_left},
    model_server::{Gate, SeenRequest, Turn},
    observed::{hook, observed_files, payload, repository_at, settled, workspace_stats},
    wait_until,
};
use serde_json::json;

use super::{BOTH, CLIENT, Place, SERVER, answer_in};

fn observe(place: &Place, tool: &str, path: &str) {
    assert!(
        hook(&place.sandbox, payload(tool, &place.root.join(path), &place.root).to_string().as_bytes())
            .status
            .success()
    );
}

fn place() -> (Place, ModelServer) {
    let place = Place::with(&[SERVER, CLIENT]);
    repository_at(&place.root);
    let server = ModelServer::start(|_: &SeenRequest| Turn::text("Noted."));
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false }));
    place.ask("Qqq?");
    (place, server)
}

#[test]
fn the_next_question_names_what_was_read_and_edited_once() {
    let (place, server) = place();
    observe(&place, "Read", "src/client.rs");
    place.write("src/new.rs", "pub fn fresh() {}\n");
    observe(&place, "Write", "src/new.rs");
    settled(&place.sandbox, 2);
    place.ask("Www?");
    let question = server.requests().pop().unwrap().question();
    assert!(question.contains("the coding agent has edited: src/new.rs."), "{question}");
    assert!(question.contains("It has read: src/client.rs."), "{question}");
    // Names only: no text of theirs costs anything until it is asked about.
    assert!(!question.contains("fresh()") && !question.contains("localhost"), "{question}");
    place.ask("Www?");
    assert!(!server.requests().pop().unwrap().question().contains("src/new.rs"));
    place.ask("What is fresh?");
    assert!(server.requests().pop().unwrap().question().contains("pub fn fresh() {}"));
}

#[test]
fn an_observed_edit_of_what_was_shown_is_told_with_its_text() {
    let (place, server) = place();
    place.ask("What is the_default_port?");
    assert!(server.requests().pop().unwrap().holds("8080"));
    place.write(SERVER.0, &SERVER.1.replace("8080", "9191"));
    observe(&place, "Edit", "src/server.rs");
    place.ask("Www?");
    let question = server.requests().pop().unwrap().question();
    assert!(question.contains("9191") && question.contains("edited: src/server.rs"), "{question}");
}

#[test]
fn what_is_known_outlives_the_daemon() {
    let (place, server) = place();
    observe(&place, "Read", "src/client.rs");
    settled(&place.sandbox, 1);
    let data = place.sandbox.data();
    wait_until("the list of known files to be kept", || {
        let kept = lm_tests::files_below(&data.workspaces());
        let snapshot = kept.iter().find(|path| path.ends_with("memory/memory.json"))?;
        std::fs::read_to_string(snapshot).ok()?.contains("src/client.rs").then_some(())
    });
    kill(running_pid(&data));
    wait_until_left(&data);
    place.ask("Www?");
    let question = server.requests().pop().unwrap().question();
    assert!(question.contains("read: src/client.rs"), "{question}");
    assert_eq!(observed_files(&place.sandbox, "project"), 1);
}

#[test]
fn however_much_arrives_between_questions_little_is_told() {
    let (place, server) = place();
    for file in 0..300 {
        let name = format!("src/generated/module_with_a_long_name_{file}.rs");
        place.write(&name, &"// much text of no use\n".repeat(200));
        observe(&place, "Write", &name);
    }
    // On a busy machine a hook may leave before it is heard, since it never waits: as many come again.
    let came = || {
        let observations = settled(&place.sandbox, 0);
        assert!(observations["dropped"].as_object().unwrap().values().all(|dropped| dropped == 0), "{observations}");
        observations["taken"].as_u64().unwrap()
    };
    while came() < 300 {
        observe(&place, "Write", "src/generated/module_with_a_long_name_0.rs");
    }
    place.ask("Www?");
    let question = server.requests().pop().unwrap().question();
    assert!(question.len() < 3_000 && question.contains(" more."), "{} bytes: {question}", question.len());
    let memory = workspace_stats(&place.sandbox, "project").unwrap()["memory"].take();
    assert_eq!(memory["observations"], came());
}

#[test]
fn outside_the_globs_nothing_is_learned() {
    let (place, server) = place();
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false, "file_globs": "*.md" }));
    place.write("docs/deep/notes.md", "notes\n");
    observe(&place, "Read", "src/client.rs");
    observe(&place, "Read", "docs/deep/notes.md");
    settled(&place.sandbox, 2);
    place.ask("Www?");
    let question = server.requests().pop().unwrap().question();
    assert!(question.contains("read: docs/deep/notes.md.") && !question.contains("client"), "{question}");
}

#[test]
fn what_is_observed_while_a_question_runs_is_told_to_the_next() {
    let (place, server) = place();
    let gate = Gate::default();
    let held = gate.clone();
    server.set_model(move |_: &SeenRequest| Turn::text("Noted.").gated(&held));
    let asking = place.command("Www?").stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the question at the model", || (gate.waiting() == 1).then_some(()));
    observe(&place, "Read", "src/client.rs");
    settled(&place.sandbox, 1);
    gate.open();
    answer_in(&asking.wait_with_output().unwrap());
    place.ask("Xxx?");
    let question = server.requests().pop().unwrap().question();
    assert!(question.contains("read: src/client.rs."), "{question}");
}

#[test]
fn who_works_in_a_place_finds_its_index_there() {
    let place = Place::with(&[SERVER, CLIENT]);
    repository_at(&place.root);
    assert!(place.sandbox.run(&["config", "show"]).status.success());
    observe(&place, "Read", "src/client.rs");
    wait_until("the index", || {
        let workspace = workspace_stats(&place.sandbox, "project")?;
        (workspace["index"]["state"] == "ready").then_some(())
    });
}
