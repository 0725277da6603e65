//! What people do with a memory by hand: `remember`, `forget`, `pin`, `ledger`, `history`, `export`, `import`.

use std::{fs, path::Path, process::Stdio};

use lm_tests::{
    ModelServer, files_below,
    model_server::{Gate, SeenRequest, Turn},
    run::{failed, json as json_of, succeeded},
    wait_until,
};
use serde_json::{Value, json};

use super::{BOTH, CLIENT, Place, SERVER, answer_in, text};

fn run(place: &Place, arguments: &[&str]) -> std::process::Output {
    place.sandbox.shim(arguments).current_dir(&place.root).output().unwrap()
}

fn shown(place: &Place, arguments: &[&str]) -> String {
    succeeded(&run(place, arguments)).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn ledger(place: &Place) -> Value {
    json_of(&run(place, &["ledger", "--json"]))["facts"].take()
}

/// Reads the file that a question names, answers with what it is told.
fn reader(request: &SeenRequest) -> Turn {
    let question = request.question();
    if question.contains("read the client") {
        return Turn::calls([("Read", json!({ "file_path": "src/client.rs" }))]);
    }
    if question.contains("read the server") {
        return Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))]);
    }
    Turn::text("An answer about harbours.")
}

fn place(server: &ModelServer) -> Place {
    let place = Place::with(&[SERVER, CLIENT]);
    place.choose(server, BOTH[0], json!({ "force_explore_when_cold": false }));
    place
}

fn last(server: &ModelServer) -> SeenRequest {
    server.requests().pop().unwrap()
}

/// The files of the data directory, but for the search index, in which something occurs.
fn files_with(place: &Place, needle: &str) -> Vec<std::path::PathBuf> {
    let holds = |path: &std::path::PathBuf| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
    };
    let is_index = |path: &Path| path.components().any(|part| part.as_os_str() == "index");
    files_below(&place.sandbox.data().workspaces()).into_iter().filter(|path| !is_index(path) && holds(path)).collect()
}

#[test]
fn a_note_is_told_with_the_next_question_and_from_then_on() {
    let server = ModelServer::start(reader);
    let place = place(&server);
    place.ask("first?");
    let text = shown(&place, &["remember", "releases", "are cut\nfrom the branch stable"]);
    assert!(text.starts_with("Noted as #1") && text.ends_with("releases are cut from the branch stable"), "{text}");
    assert!(
        shown(&place, &["remember", "Releases are cut from the branch stable."]).starts_with("Known already as #1")
    );
    place.ask("second?");
    let question = last(&server).question();
    assert!(question.contains("A person noted, as data:") && question.contains("branch stable"), "{question}");
    place.ask("third?");
    assert!(!last(&server).question().contains("branch stable"), "it is told once");
    assert!(last(&server).holds("branch stable"));
    assert_eq!(server.logs(), 1, "the conversation goes on");
    // It stands at the beginning of the next one, also for another daemon.
    assert!(place.sandbox.run(&["stop"]).status.success());
    place.choose(&server, BOTH[0], json!({ "model": "claude-haiku-4-5" }));
    place.ask("fourth?");
    let opening = &last(&server).messages[0];
    assert!(opening.pieces.iter().any(|piece| piece.raw.contains("branch stable (a person noted this)")));
    let facts = ledger(&place);
    assert_eq!((&facts[0]["origin"], &facts[0]["stale"]), (&json!("user"), &json!([])));
}

#[test]
fn what_cannot_be_noted_is_refused_with_a_reason() {
    let server = ModelServer::start(reader);
    let place = place(&server);
    assert!(failed(&run(&place, &["remember", "  "]), 1).contains("nothing to remember"));
    assert!(failed(&run(&place, &["remember", &"word ".repeat(300)]), 1).contains("at most 1000 bytes"));
    let secret = format!("the key is ghp_{}", "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5");
    assert!(failed(&run(&place, &["remember", &secret]), 1).contains("secret"));
    assert_eq!(ledger(&place), json!([]));
    assert!(failed(&run(&place, &["forget", "x"]), 1).contains("too short"));
    assert!(failed(&run(&place, &["pin", "#99"]), 1).is_empty());
}

#[test]
fn forgetting_says_first_what_it_would_and_then_reaches_everything() {
    let server = ModelServer::start(reader);
    let place = place(&server);
    place.ask("please read the client");
    server.set_model(|_: &SeenRequest| Turn::text("the_host is in src/client.rs:2."));
    place.ask("about the client");
    place.ask("about nothing");
    server.set_model(reader);
    shown(&place, &["remember", "the client is written by Ada"]);
    shown(&place, &["remember", "the moon is far"]);
    // The generation before holds it, too.
    place.choose(&server, BOTH[0], json!({ "model": "claude-haiku-4-5", "force_explore_when_cold": false }));
    place.ask("something else");
    assert!(!files_with(&place, "the_host").is_empty());
    let dry = shown(&place, &["forget", "src/client.rs"]);
    assert!(dry.contains("This would forget what is known of the file `src/client.rs`"), "{dry}");
    assert!(dry.contains("give the same command with --yes"), "{dry}");
    assert!(!files_with(&place, "the_host").is_empty(), "nothing was forgotten yet");
    let done = shown(&place, &["forget", "src/client.rs", "--yes"]);
    assert!(done.starts_with("Forgot what is known of the file `src/client.rs`"), "{done}");
    assert_eq!(files_with(&place, "the_host"), Vec::<std::path::PathBuf>::new());
    let words = shown(&place, &["forget", "ADA", "--yes"]);
    assert!(words.contains("1 fact"), "{words}");
    assert_eq!(files_with(&place, "written by Ada"), Vec::<std::path::PathBuf>::new());
    assert_eq!(ledger(&place).as_array().unwrap().len(), 1);
    place.ask("and now?");
    assert!(!last(&server).holds("written by Ada") && !last(&server).holds("about the client"));
    assert!(last(&server).holds("the moon is far"));
    assert!(shown(&place, &["forget", "ADA", "--yes"]).starts_with("Nothing is known of"));
    // Another daemon has it from nowhere.
    assert!(place.sandbox.run(&["stop"]).status.success());
    place.ask("and later?");
    assert!(!last(&server).holds("written by Ada"));
}

#[test]
fn a_document_that_was_forgotten_is_not_loaded_until_a_session_reads_it() {
    let server = ModelServer::start(reader);
    let place = place(&server);
    place.write("README.md", "The canary_of_the_cellar sings.\n");
    place.ask("first?");
    assert!(last(&server).holds("canary_of_the_cellar"));
    shown(&place, &["forget", "README.md", "--yes"]);
    let opens_with = |server: &ModelServer| last(server).messages[0].pieces[0].raw.contains("canary_of_the_cellar");
    place.ask("zzz?");
    assert!(!opens_with(&server));
    let payload = lm_tests::observed::payload("Read", &place.root.join("README.md"), &place.root).to_string();
    let _ = lm_tests::observed::hook(&place.sandbox, payload.as_bytes());
    lm_tests::observed::settled(&place.sandbox, 1);
    place.choose(&server, BOTH[0], json!({ "model": "claude-haiku-4-5", "force_explore_when_cold": false }));
    place.ask("www?");
    assert!(opens_with(&server), "it was seen anew");
}

#[test]
fn an_answer_under_way_does_not_bring_back_what_was_forgotten() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = ModelServer::start(move |request: &SeenRequest| {
        if request.question().contains("slow") { Turn::text("the harbour again").gated(&held) } else { reader(request) }
    });
    let place = place(&server);
    place.ask("first?");
    let slow = place.command("slow?").stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the question", || (gate.waiting() == 1).then_some(()));
    shown(&place, &["forget", "harbour", "--yes"]);
    gate.open();
    assert_eq!(text(&answer_in(&slow.wait_with_output().unwrap())), "the harbour again\n");
    place.ask("and now?");
    assert!(!last(&server).holds("harbour"), "{}", last(&server).raw);
    let history = shown(&place, &["history"]);
    assert!(!history.contains("harbour again"), "{history}");
}

#[test]
fn facts_are_listed_pinned_and_their_history_shown() {
    let server = ModelServer::start(reader);
    let place = place(&server);
    place.ask("what about harbours?");
    shown(&place, &["remember", "one thing"]);
    assert!(shown(&place, &["pin", "one thing"]).starts_with("Pinned 1 fact"));
    assert_eq!(ledger(&place)[0]["pinned"], true);
    assert!(shown(&place, &["pin", "#1", "--off"]).starts_with("No longer pinned: 1 fact"));
    let listed = shown(&place, &["ledger"]);
    assert!(listed.contains("1 fact of") && listed.contains("#1 one thing user"), "{listed}");
    let history = json_of(&run(&place, &["history", "--json", "--limit", "1"]));
    assert_eq!(history["answers"][0]["question"], "what about harbours?");
    assert_eq!(history["answers"][0]["answer"], "An answer about harbours.");
    assert!(shown(&place, &["history"]).contains("> what about harbours? An answer about harbours."));
}

#[test]
fn a_memory_is_taken_along_where_the_repository_is_the_same() {
    let server = ModelServer::start(reader);
    let place = place(&server);
    server.set_model(|request: &SeenRequest| {
        if request.holds("the_default_port") {
            Turn::text("the harbour is src/server.rs:1")
        } else {
            Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))])
        }
    });
    place.ask("Xyzzy?");
    shown(&place, &["remember", "the moon is far"]);
    let file = place.sandbox.root().join("memory.jsonl");
    let name = file.to_str().unwrap();
    shown(&place, &["export", name]);
    assert!(failed(&run(&place, &["export", name]), 1).contains("not taken"));
    let lines = fs::read_to_string(&file).unwrap();
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    assert_eq!(succeeded(&run(&place, &["export"])), lines);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    // Its own: all of it is known.
    assert!(shown(&place, &["import", name]).contains("Took in 0 facts"));
    // A copy somewhere else.
    let copy = place.sandbox.workspace("copy");
    fs::create_dir_all(copy.join("src")).unwrap();
    fs::write(copy.join(SERVER.0), SERVER.1).unwrap();
    let in_copy = |arguments: &[&str]| place.sandbox.shim(arguments).current_dir(&copy).output().unwrap();
    let took = succeeded(&in_copy(&["import", name]));
    assert!(took.starts_with("Took in 1 fact (0 out of date here) and 1 answer"), "{took}");
    let history = succeeded(&in_copy(&["history"]));
    assert!(history.contains("Xyzzy?"), "{history}");
    // Another repository.
    let other = place.sandbox.workspace("other");
    fs::write(other.join("a.rs"), "fn a() {}\n").unwrap();
    let in_other = |arguments: &[&str]| place.sandbox.shim(arguments).current_dir(&other).output().unwrap();
    let refused = failed(&in_other(&["import", name]), 1);
    assert!(refused.contains("the memory of another repository"), "{refused}");
    fs::write(&file, "[]\n").unwrap();
    assert!(failed(&run(&place, &["import", name]), 1).contains("no export of a memory"));
}
