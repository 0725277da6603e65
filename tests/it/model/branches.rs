//! What `git` changes under a conversation: branches, stashes, rebases. Skipped without the program.

#![expect(clippy::print_stderr, reason = "what is skipped is said")]

use std::process::Command;

use lm_tests::{
    ModelServer,
    model_server::{SeenRequest, Turn},
};
use serde_json::json;

use super::{BOTH, Place};

const FILES: [&str; 4] = ["src/a.rs", "src/b.rs", "src/c.rs", "src/d.rs"];

fn git(place: &Place, arguments: &[&str]) {
    let mut command = Command::new("git");
    let none = place.sandbox.root().join("none");
    command.args(arguments).current_dir(&place.root).env("HOME", &none).env("GIT_CONFIG_NOSYSTEM", "1");
    command.env("GIT_CONFIG_GLOBAL", &none).env("GIT_EDITOR", "true");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "A Person").env(format!("GIT_{role}_EMAIL"), "a@example.org");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn commit(place: &Place, message: &str) {
    git(place, &["add", "-A"]);
    git(place, &["commit", "-q", "-m", message]);
}

fn text_of(path: &str, value: &str) -> String {
    format!("//! {path}\npub const VALUE: &str = \"{value}\";\n")
}

/// A repository on `main`, all of whose files the model has read.
fn known() -> Option<(Place, ModelServer)> {
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("skipped: git is not installed");
        return None;
    }
    let place = Place::with(&[]);
    git(&place, &["init", "-q", "-b", "main"]);
    for path in FILES {
        place.write(path, &text_of(path, "on-main"));
    }
    commit(&place, "All");
    let mut asked = 0;
    let server = ModelServer::start(move |_: &SeenRequest| {
        asked += 1;
        if asked == 1 {
            Turn::calls(FILES.map(|path| ("Read", json!({ "file_path": path }))))
        } else {
            Turn::text("Noted (src/a.rs:1).")
        }
    });
    place.choose(&server, BOTH[0], json!({}));
    place.ask("Qqq?");
    Some((place, server))
}

/// What the next question is told.
fn told(place: &Place, server: &ModelServer) -> String {
    place.ask("Www?");
    server.requests().pop().unwrap().question()
}

/// Fails unless every file is told of exactly where it holds something else than the model was told.
#[track_caller]
fn assert_told(what: &str, told: &str, changed: &[(&str, &str)]) {
    for path in FILES {
        let value = changed.iter().find(|(name, _)| *name == path).map(|(_, value)| *value);
        assert_eq!(told.contains(path), value.is_some(), "{what}: {path}\n{told}");
        assert!(value.is_none_or(|value| told.contains(value)), "{what}: {path}\n{told}");
    }
}

#[test]
fn another_branch_is_told_and_so_is_the_way_back() {
    let Some((place, server)) = known() else { return };
    git(&place, &["switch", "-q", "-c", "other"]);
    assert_told("nothing differs yet", &told(&place, &server), &[]);
    place.write(FILES[0], &text_of(FILES[0], "on-other"));
    std::fs::remove_file(place.root.join(FILES[1])).unwrap();
    commit(&place, "Other");
    let changes = [(FILES[0], "on-other"), (FILES[1], "Gone")];
    assert_told("work on the branch", &told(&place, &server), &changes);
    git(&place, &["switch", "-q", "main"]);
    let back = told(&place, &server);
    assert_told("back on main", &back, &[(FILES[0], "on-main"), (FILES[1], "Again as they were shown")]);
    git(&place, &["switch", "-q", "other"]);
    assert_told("there again", &told(&place, &server), &changes);
    // There and back between two questions is nothing.
    git(&place, &["switch", "-q", "main"]);
    git(&place, &["switch", "-q", "other"]);
    assert_told("there and back", &told(&place, &server), &[]);
    assert_eq!(server.logs(), 1);
}

#[test]
fn a_stash_takes_a_change_back_and_its_end_brings_it_again() {
    let Some((place, server)) = known() else { return };
    place.write(FILES[2], &text_of(FILES[2], "at-work"));
    assert_told("work", &told(&place, &server), &[(FILES[2], "at-work")]);
    git(&place, &["stash", "-q"]);
    assert_told("stashed", &told(&place, &server), &[(FILES[2], "on-main")]);
    git(&place, &["stash", "pop", "-q"]);
    assert_told("popped", &told(&place, &server), &[(FILES[2], "at-work")]);
}

#[test]
fn a_rebase_leaves_no_old_value() {
    let Some((place, server)) = known() else { return };
    git(&place, &["switch", "-q", "-c", "topic"]);
    place.write(FILES[3], &text_of(FILES[3], "on-topic"));
    commit(&place, "Topic");
    git(&place, &["switch", "-q", "main"]);
    place.write(FILES[0], &text_of(FILES[0], "later-on-main"));
    commit(&place, "Main moves on");
    git(&place, &["switch", "-q", "topic"]);
    assert_told("on the topic", &told(&place, &server), &[(FILES[3], "on-topic")]);
    git(&place, &["rebase", "-q", "main"]);
    assert_told("rebased", &told(&place, &server), &[(FILES[0], "later-on-main")]);
    git(&place, &["reset", "-q", "--hard", "HEAD~2"]);
    let reset = told(&place, &server);
    assert_told("reset", &reset, &[(FILES[0], "on-main"), (FILES[3], "on-main")]);
    assert!(!reset.contains("later-on-main") && !reset.contains("on-topic"), "{reset}");
}
