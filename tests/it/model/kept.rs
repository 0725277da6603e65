//! What is kept from daemon to daemon.

use std::{fs, path::PathBuf, process::Stdio};

use lm_tests::{
    ModelServer, Sandbox,
    daemon::{kill, running_pid, wait_until_left},
    files_below,
    model_server::{Gate, SeenRequest, Turn},
    observed::workspace_stats,
    wait_until,
};
use serde_json::json;

use super::{BOTH, Place, SERVER, answer_in, text};

fn memory_files(sandbox: &Sandbox, prefix: &str) -> Vec<PathBuf> {
    let is_wanted = |path: &PathBuf| {
        path.parent().is_some_and(|parent| parent.ends_with("memory"))
            && path.file_name().unwrap().to_str().unwrap().starts_with(prefix)
    };
    let mut files: Vec<_> = files_below(&sandbox.data().workspaces()).into_iter().filter(is_wanted).collect();
    files.sort();
    files
}

fn end(place: &Place, kindly: bool) {
    let data = place.sandbox.data();
    if kindly {
        assert!(place.sandbox.run(&["stop"]).status.success());
    } else {
        kill(running_pid(&data));
    }
    wait_until_left(&data);
}

/// Reads at the first question, then counts.
fn counting() -> impl FnMut(&SeenRequest) -> Turn + Send {
    let mut asked = 0;
    move |_| {
        asked += 1;
        match asked {
            1 => Turn::calls([("Read", json!({ "file_path": "src/server.rs" }))]),
            _ => Turn::text(&format!("answer number {asked} (src/server.rs:1)")),
        }
    }
}

#[test]
fn the_conversation_goes_on_byte_for_byte_after_an_end_of_any_kind() {
    for format in BOTH {
        let place = Place::with(&[SERVER, ("README.md", "# Demo\n")]);
        let server = ModelServer::start(counting());
        place.choose(&server, format, json!({}));
        for question in 0..6 {
            place.ask(&format!("question {question}"));
            end(&place, question % 2 == 0);
        }
        assert_eq!(server.logs(), 1, "{format:?}: every request continues the one before");
        let last = server.requests().pop().unwrap();
        for number in 2..7 {
            assert!(last.holds(&format!("answer number {number} ")), "{format:?}: {number} was lost");
        }
        // The cache of the provider outlives the daemon.
        assert!(server.bill().loss() <= 0.01, "{format:?}: {}", server.bill().loss());
    }
}

#[test]
fn a_damaged_memory_is_set_aside_and_said_and_nothing_is_lost_that_can_be_read() {
    let cases: [(&str, &[u8]); 7] = [
        ("an empty file", b""),
        ("an empty list", b"[]"),
        ("null", b"null"),
        ("not UTF-8", b"\xff\xfe\xfd"),
        ("a foreign version", br#"{"version":99,"root":"/","key":"k"}"#),
        ("half a file", br#"{"version":1,"root":"/home/"#),
        ("something else", b"SQLite format 3\0"),
    ];
    for (name, bytes) in cases {
        let place = Place::with(&[SERVER]);
        let server = ModelServer::start(counting());
        place.choose(&server, BOTH[0], json!({}));
        place.ask("question 0");
        end(&place, true);
        for file in memory_files(&place.sandbox, "memory") {
            fs::write(file, bytes).unwrap();
        }
        let journals = memory_files(&place.sandbox, "journal");
        assert_eq!(journals.len(), 1, "{name}");
        fs::write(&journals[0], bytes).unwrap();
        assert!(text(&place.ask("question 1")).starts_with("answer number"), "{name}");
        let memory = workspace_stats(&place.sandbox, "project").unwrap()["memory"].take();
        let troubles = memory["troubles"].to_string();
        assert!(troubles.contains("journal-0"), "{name}: {troubles}");
        assert!(!memory_files(&place.sandbox, "journal").is_empty(), "{name}");
        let kept = files_below(&place.sandbox.data().workspaces());
        assert!(kept.iter().any(|path| path.to_str().unwrap().contains("quarantine")), "{name}: {kept:?}");
    }
}

#[test]
fn a_journal_that_is_gone_while_the_daemon_runs_is_written_again() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(counting());
    place.choose(&server, BOTH[0], json!({}));
    place.ask("question 0");
    for file in memory_files(&place.sandbox, "journal") {
        fs::remove_file(file).unwrap();
    }
    place.ask("question 1");
    end(&place, false);
    place.ask("question 2");
    assert_eq!(server.logs(), 1);
    assert!(server.requests().pop().unwrap().holds("answer number 2 "));
}

#[test]
fn the_memory_of_one_place_is_not_taken_for_that_of_another() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(counting());
    place.choose(&server, BOTH[0], json!({}));
    place.ask("question of the first place");
    end(&place, true);
    let other = place.sandbox.workspace("other");
    fs::create_dir_all(other.join("src")).unwrap();
    fs::write(other.join(SERVER.0), SERVER.1).unwrap();
    let ask = || {
        let mut command = place.sandbox.shim(&["ask", "--json", "question of the second place"]);
        answer_in(&command.current_dir(&other).output().unwrap())
    };
    ask();
    end(&place, true);
    // As somebody might who copies a home directory together by hand.
    let directories: Vec<PathBuf> =
        place.sandbox.data().workspaces().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let [one, two] = directories.as_slice() else { panic!("{directories:?}") };
    let swap = place.sandbox.root().join("swap");
    fs::rename(one, &swap).unwrap();
    fs::rename(two, one).unwrap();
    fs::rename(&swap, two).unwrap();
    ask();
    assert!(!server.requests().pop().unwrap().holds("first place"));
}

#[test]
fn answers_that_come_after_everything_was_forgotten_are_not_kept() {
    let place = Place::with(&[SERVER]);
    let gate = Gate::default();
    let held = gate.clone();
    let server = ModelServer::start(move |request: &SeenRequest| {
        if request.question().contains("slow") {
            Turn::text("never to be kept").gated(&held)
        } else {
            Turn::text("quick")
        }
    });
    place.choose(&server, BOTH[0], json!({ "force_explore_when_cold": false }));
    place.ask("a quick question");
    let slow = place.command("the slow question").stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the slow question", || (gate.waiting() == 1).then_some(()));
    let emptied = place.sandbox.shim(&["empty"]).current_dir(&place.root).output().unwrap();
    assert!(emptied.status.success());
    gate.open();
    assert_eq!(text(&answer_in(&slow.wait_with_output().unwrap())), "never to be kept\n");
    place.ask("what is known now?");
    let last = server.requests().pop().unwrap();
    assert!(!last.holds("never to be kept") && !last.holds("a quick question"), "{}", last.raw);
    end(&place, true);
    for file in files_below(&place.sandbox.data().workspaces()) {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(16).any(|window| window == b"never to be kept"), "{}", file.display());
    }
}

#[test]
fn every_answer_knows_what_it_rests_on_also_for_the_next_daemon() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(counting());
    place.choose(&server, BOTH[0], json!({}));
    let answer = place.ask("Which harbour?");
    assert_eq!(answer["files_seen"][0]["path"], "src/server.rs", "{answer}");
    end(&place, false);
    let sha256 = answer["files_seen"][0]["sha256"].as_str().unwrap();
    let journal = fs::read(&memory_files(&place.sandbox, "journal")[0]).unwrap();
    let holds = |text: &str| journal.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds(sha256) && holds("src/server.rs"), "{}", String::from_utf8_lossy(&journal));
    place.write(SERVER.0, &SERVER.1.replace("8080", "9090"));
    place.ask("Www?");
    let question = server.requests().pop().unwrap().question();
    assert!(question.contains("check before you repeat an answer: “Which harbour?”"), "{question}");
}
