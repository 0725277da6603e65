//! What a model was shown and is no longer so: every question is told of it before it is asked.

use std::{
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, SystemTime},
};

use lm_tests::{
    ModelServer,
    daemon::{kill, running_pid, wait_until_left},
    model_server::{Gate, SeenRequest, Turn},
    observed::{payload, with_input},
    wait_until,
};
use serde_json::json;

use super::{BOTH, Place, SERVER, answer_in, text};

/// Has a file read at the first question and answers at once from then on.
fn reading_once(path: &'static str) -> impl FnMut(&SeenRequest) -> Turn + Send {
    let mut asked = 0;
    move |_| {
        asked += 1;
        if asked == 1 {
            Turn::calls([("Read", json!({ "file_path": path }))])
        } else {
            Turn::text("Noted (src/server.rs:1).")
        }
    }
}

/// A place whose model has read the server's file, and the server.
fn place_that_knows() -> (Place, ModelServer) {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(reading_once("src/server.rs"));
    place.choose(&server, BOTH[0], json!({}));
    place.ask("Qqq?");
    (place, server)
}

/// What the next question is told, with its words.
fn told(place: &Place, server: &ModelServer) -> String {
    place.ask("Www?");
    server.requests().pop().unwrap().question()
}

fn touch(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn every_kind_of_change_is_told_before_the_next_question() {
    type Change = fn(&Path);
    let cases: [(&str, Change, &[&str]); 8] = [
        ("edited", |root| fs::write(root.join("src/server.rs"), SERVER.1.replace("8080", "9090")).unwrap(), &["9090"]),
        (
            "edited within its size and with its time put back",
            |root| {
                let path = root.join("src/server.rs");
                let before = fs::metadata(&path).unwrap().modified().unwrap();
                fs::write(&path, SERVER.1.replace("8080", "7171")).unwrap();
                touch(&path, before);
            },
            &["7171"],
        ),
        ("deleted", |root| fs::remove_file(root.join("src/server.rs")).unwrap(), &["Gone: `src/server.rs`"]),
        (
            "renamed",
            |root| fs::rename(root.join("src/server.rs"), root.join("src/other.rs")).unwrap(),
            &["Moved", "src/server.rs", "src/other.rs"],
        ),
        (
            "made again with other text",
            |root| {
                fs::remove_file(root.join("src/server.rs")).unwrap();
                fs::write(root.join("src/server.rs"), "pub const PORT: u16 = 6060;\n").unwrap();
            },
            &["PORT: u16 = 6060"],
        ),
        (
            "a directory in its place",
            |root| {
                fs::remove_file(root.join("src/server.rs")).unwrap();
                fs::create_dir(root.join("src/server.rs")).unwrap();
            },
            &["src/server.rs", "Not to be read"],
        ),
        (
            "no text any more",
            |root| fs::write(root.join("src/server.rs"), b"\x7fELF\0\0\0\0").unwrap(),
            &["src/server.rs", "Not to be read"],
        ),
        (
            "now holds a secret",
            |root| {
                fs::write(
                    root.join("src/server.rs"),
                    "const KEY: &str = \"ghp_q7Zt1LxV0sPd9KfR3mWb8YcN5hJg2TuE6aQv\";\n",
                )
                .unwrap()
            },
            &["src/server.rs", "Not to be read"],
        ),
    ];
    for (name, change, expected) in cases {
        let (place, server) = place_that_knows();
        change(&place.root);
        let question = told(&place, &server);
        for text in expected {
            assert!(question.contains(text), "{name}: `{text}` is missing in\n{question}");
        }
        assert!(!question.contains("ghp_q7Zt"), "{name}");
        // Told once.
        let again = told(&place, &server);
        assert!(!again.contains("src/server.rs"), "{name}: {again}");
        assert_eq!(server.logs(), 1, "{name}");
    }
}

#[test]
fn what_is_unchanged_is_not_told() {
    let (place, server) = place_that_knows();
    assert!(!told(&place, &server).contains("src/server.rs"));
    // Written again as it was, and touched.
    place.write(SERVER.0, SERVER.1);
    assert!(!told(&place, &server).contains("src/server.rs"));
    touch(&place.root.join(SERVER.0), SystemTime::now() - Duration::from_secs(3600));
    assert!(!told(&place, &server).contains("src/server.rs"));
}

#[test]
fn a_file_that_comes_back_as_it_was_is_said_to_be_back() {
    let (place, server) = place_that_knows();
    fs::remove_file(place.root.join(SERVER.0)).unwrap();
    assert!(told(&place, &server).contains("Gone: `src/server.rs`"));
    place.write(SERVER.0, SERVER.1);
    let question = told(&place, &server);
    assert!(question.contains("Again as they were shown: `src/server.rs`"), "{question}");
}

#[test]
fn what_changed_while_no_daemon_ran_is_told_too() {
    let (place, server) = place_that_knows();
    let data = place.sandbox.data();
    kill(running_pid(&data));
    wait_until_left(&data);
    place.write(SERVER.0, &SERVER.1.replace("8080", "9090"));
    let question = told(&place, &server);
    assert!(question.contains("9090"), "{question}");
    assert_eq!(server.logs(), 1, "the conversation goes on");
}

#[test]
fn earlier_answers_that_rest_on_a_changed_file_are_named() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(reading_once("src/server.rs"));
    place.choose(&server, BOTH[0], json!({}));
    place.ask("Qqq of the harbour?");
    place.write(SERVER.0, &SERVER.1.replace("8080", "9090"));
    let question = told(&place, &server);
    assert!(question.contains("Qqq of the harbour?"), "{question}");
}

#[test]
fn an_answer_does_not_leave_with_what_changed_while_it_was_written() {
    for format in BOTH {
        let place = Place::with(&[SERVER]);
        let gate = Gate::default();
        let held = gate.clone();
        let server = ModelServer::start(move |request: &SeenRequest| {
            if request.holds("9090") {
                Turn::text("It is 9090 (src/server.rs:3).")
            } else if request.holds("8080") {
                Turn::text("It is 8080 (src/server.rs:3).").gated(&held)
            } else {
                Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))])
            }
        });
        place.choose(&server, format, json!({}));
        let asking = place.command("Qqq?").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the answer to be written", || (gate.waiting() == 1).then_some(()));
        place.write(SERVER.0, &SERVER.1.replace("8080", "9090"));
        gate.open();
        let answer = answer_in(&asking.wait_with_output().unwrap());
        assert_eq!(text(&answer), "It is 9090 (src/server.rs:3).\n", "{format:?}");
        assert_eq!((&answer["stale"], &answer["usage"]["requests"]), (&json!([]), &json!(3)));
    }
}

#[test]
fn where_there_is_no_time_to_answer_again_it_is_said() {
    let place = Place::with(&[SERVER]);
    let gate = Gate::default();
    let held = gate.clone();
    let server = ModelServer::start(move |request: &SeenRequest| {
        if request.holds("8080") {
            Turn::text("It is 8080 (src/server.rs:3).").gated(&held)
        } else {
            Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))])
        }
    });
    // One round is all it gets.
    place.choose(&server, BOTH[0], json!({ "max_iterations": 1 }));
    let asking = place.command("Qqq?").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the answer to be written", || (gate.waiting() == 1).then_some(()));
    place.write(SERVER.0, &SERVER.1.replace("8080", "9090"));
    gate.open();
    let answer = answer_in(&asking.wait_with_output().unwrap());
    assert_eq!(answer["stale"], json!(["src/server.rs"]), "{answer}");
    assert!(text(&answer).contains("changed while this was being answered"), "{answer}");
    // The next question is told.
    server.set_model(|_: &SeenRequest| Turn::text("Noted."));
    assert!(told(&place, &server).contains("9090"));
}

#[test]
fn what_changes_at_the_moment_it_is_observed_is_not_missed() {
    let (place, server) = place_that_knows();
    let path = place.root.join(SERVER.0);
    for number in 0..20 {
        let value = format!("{}", 5_000 + number);
        place.write(SERVER.0, &SERVER.1.replace("8080", "4000"));
        let payload = payload("Edit", &path, &place.root).to_string();
        let observing = std::thread::spawn({
            let mut command = place.sandbox.shim(&["hook"]);
            move || with_input(&mut command, payload.as_bytes())
        });
        // As large as what it replaces, with its time: whatever the observation has read, this is what holds.
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        place.write(SERVER.0, &SERVER.1.replace("8080", &value));
        touch(&path, before);
        let question = told(&place, &server);
        assert!(question.contains(&value), "{value}: {question}");
        assert!(observing.join().unwrap().status.success());
    }
}

#[test]
fn a_file_that_was_read_in_part_is_known_in_part() {
    let line = |number: usize| format!("pub const LINE_{number}: usize = {number};\n");
    let text: String = (1..=3_000).map(line).collect();
    let place = Place::with(&[("src/long.rs", &text)]);
    let mut asked = 0;
    let server = ModelServer::start(move |_: &SeenRequest| {
        asked += 1;
        if asked == 1 {
            Turn::calls([("Read", json!({ "file_path": "src/long.rs", "offset": 10, "limit": 5 }))])
        } else {
            Turn::text("Noted (src/long.rs:12).")
        }
    });
    place.choose(&server, BOTH[0], json!({}));
    place.ask("Qqq?");
    // Beyond what it was shown: it must neither take the file for unchanged nor for known.
    place.write("src/long.rs", &text.replace("LINE_2000: usize = 2000", "LINE_2000: usize = 7777"));
    let question = told(&place, &server);
    assert!(question.contains("src/long.rs"), "{question}");
    let holds_old = |text: &str| text.contains("LINE_2000: usize = 2000") && !text.contains("7777");
    assert!(!holds_old(&question), "{question}");
    // Inside of it.
    place.write("src/long.rs", &text.replace("LINE_12: usize = 12;", "LINE_12: usize = 8888;"));
    let question = told(&place, &server);
    assert!(question.contains("8888") || question.contains("read them again"), "{question}");
}
