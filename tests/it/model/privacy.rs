//! What is sent, to whom, and what never is.

use std::fs;

use lm_tests::{
    ModelServer,
    daemon::texts,
    files_below,
    model_server::{Script, SeenRequest, Turn},
};
use serde_json::json;

use super::{BOTH, KEY, Place, SERVER, answer_in, assert_fallback, text};

#[test]
fn a_key_in_the_environment_chooses_nothing() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(Script::new([]));
    let mut command = place.command("Where is the_default_port?");
    command.env("ANTHROPIC_API_KEY", KEY).env("LIVE_MEMORY_BASE_URL", server.url());
    let answer = answer_in(&command.output().unwrap());
    assert_eq!((&answer["provider"], &answer["instead_of"]), (&json!("offline"), &json!(null)));
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn a_provider_without_a_key_uses_the_one_that_the_session_has() {
    let place = Place::with(&[SERVER]);
    let options = lm_tests::model_server::ServerOptions { key: Some(KEY.into()), ..Default::default() };
    let server = ModelServer::with(options, |_: &SeenRequest| Turn::text("Let in."));
    let ask = |key: &str| {
        let mut command = place.command("Where is the_default_port?");
        command
            .env("ANTHROPIC_API_KEY", key)
            .env("LIVE_MEMORY_PROVIDER", "anthropic")
            .env("LIVE_MEMORY_FORCE_EXPLORE_WHEN_COLD", "false");
        command
    };
    // To an address that a session names, and a repository may be behind that, no such key is sent.
    let other = ModelServer::start(|_: &SeenRequest| Turn::text("Let in."));
    let let_in = answer_in(&ask(KEY).env("LIVE_MEMORY_BASE_URL", other.url()).output().unwrap());
    assert_eq!(text(&let_in), "Let in.\n");
    assert!(other.requests().iter().all(|request| !request.headers.iter().any(|(_, value)| value.contains(KEY))));
    let refused = answer_in(&ask(KEY).env("LIVE_MEMORY_BASE_URL", server.url()).output().unwrap());
    assert_fallback(&refused, "authentication failed");
    assert!(place.sandbox.run(&["config", "set", &format!("base_url={}", server.url())]).status.success());
    let ask = |key: &str| answer_in(&ask(key).output().unwrap());
    assert_eq!(text(&ask(KEY)), "Let in.\n");
    let refused = ask("sk-another-0123456789");
    assert_fallback(&refused, "authentication failed");
    assert!(!refused.to_string().contains("another-0123456789"));
}

#[test]
fn a_kept_key_does_not_follow_an_address_of_the_session() {
    let place = Place::with(&[SERVER]);
    let (mine, other) = (ModelServer::start(Script::new([])), ModelServer::start(Script::new([])));
    place.choose(&mine, BOTH[0], json!({}));
    let mut command = place.command("Where is the_default_port?");
    command.env("LIVE_MEMORY_BASE_URL", other.url());
    assert_fallback(&answer_in(&command.output().unwrap()), "LIVE_MEMORY_API_KEY");
    assert_eq!((mine.requests().len(), other.requests().len()), (0, 0));
    assert_eq!((mine.other_requests().len(), other.other_requests().len()), (0, 0));
}

#[test]
fn an_address_that_is_none_sends_nothing_to_the_vendor() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(Script::new([]));
    place.choose(&server, BOTH[1], json!({ "base_url": "localhost:11434/v1" }));
    assert_fallback(&place.ask("Where is the_default_port?"), "base_url");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn an_excluded_workspace_is_never_sent() {
    let place = Place::with(&[SERVER]);
    let server = ModelServer::start(Script::new([]));
    place.choose(&server, BOTH[0], json!({ "exclude": [place.root.to_str().unwrap()] }));
    let output = place.command("Where is the_default_port?").output().unwrap();
    assert!(!output.status.success() && texts(&output).1.contains("exclude"), "{:?}", texts(&output));
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn an_excluded_place_inside_another_workspace_is_neither_found_nor_read_nor_sent() {
    let place = Place::with(&[
        SERVER,
        ("private/plans.rs", "fn secret_plan_canary() {}\n"),
        ("a/x/b.rs", "fn secret_plan_x() {}\n"),
    ]);
    // Indexed before it was excluded.
    assert_eq!(place.ask("where is secret_plan_canary?")["sources"][0]["path"], "private/plans.rs");
    let server = ModelServer::start(Script::new([
        Turn::calls([
            ("Read", json!({ "file_path": "private/plans.rs" })),
            ("Read", json!({ "file_path": "a/x/b.rs" })),
            ("Grep", json!({ "pattern": "secret_plan", "output_mode": "content" })),
            ("Grep", json!({ "pattern": "secret_plan", "path": "private", "output_mode": "content" })),
            ("Glob", json!({ "pattern": "**/*.rs" })),
        ]),
        Turn::text("Nothing to see."),
    ]));
    let exclude = json!({ "exclude": [place.root.join("private").to_str().unwrap(), "**/x"] });
    place.choose(&server, BOTH[0], exclude.clone());
    assert_eq!(text(&place.ask("where is secret_plan_canary?")), "Nothing to see.\n");
    let last = server.requests().pop().unwrap();
    let said = last.raw.replace("where is secret_plan_canary?", "");
    for trace in ["fn secret_plan", "plans.rs\\n", "b.rs\\n"] {
        assert!(!said.contains(trace), "{trace}: {said}");
    }
    assert!(said.contains("the setting exclude names"), "{said}");
    // Nor without a model, whatever the index still holds.
    place.choose(&server, BOTH[0], json!({ "exclude": exclude["exclude"], "provider": "offline" }));
    let answer = place.ask("where is secret_plan_canary?");
    assert_eq!(answer["sources"], json!([]), "{answer}");
}

#[test]
fn what_bears_secrets_is_never_sent_and_the_key_is_nowhere_but_in_its_file() {
    let place = Place::with(&[SERVER]);
    let secret = "MIIEowIBAAKCAQEAcanarycanarycanarycanarycanarycanarycanarycanary";
    place.write(".env", &format!("PASSWORD={secret}\n"));
    place.write(
        "notes.txt",
        &format!("-----BEGIN RSA PRIVATE KEY-----\n{secret}\n{secret}\n{secret}\n-----END RSA PRIVATE KEY-----\n"),
    );
    place.write(".git/config", &format!("[remote \"origin\"]\n\turl = https://bob:{secret}@git.example/x.git\n"));
    place.write(".git/HEAD", "ref: refs/heads/main\n");
    let server = ModelServer::start(Script::new([
        Turn::calls([
            ("Read", json!({ "file_path": ".env" })),
            ("Read", json!({ "file_path": ".git/config" })),
            ("Grep", json!({ "pattern": "origin", "path": ".git", "output_mode": "content" })),
            ("Read", json!({ "file_path": "notes.txt" })),
            ("Grep", json!({ "pattern": "canary", "output_mode": "content" })),
            ("Grep", json!({ "pattern": "PASSWORD", "path": ".env", "output_mode": "content" })),
        ]),
        Turn::text("Nothing to see."),
    ]));
    place.choose(&server, BOTH[0], json!({ "log_level": "trace" }));
    assert_eq!(text(&place.ask("What is the PASSWORD?")), "Nothing to see.\n");
    for request in server.requests() {
        assert!(!request.raw.contains(secret), "{}", request.raw);
    }
    let data = place.sandbox.data();
    for file in files_below(data.root()) {
        let bytes = fs::read(&file).unwrap_or_default();
        let holds = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
        assert_eq!(holds, file == data.config_file(), "{}", file.display());
    }
    for report in [["stats", "--json"], ["doctor", "--json"], ["config", "show"]] {
        let (stdout, stderr) = texts(&place.sandbox.shim(&report).current_dir(&place.root).output().unwrap());
        assert!(!stdout.contains("canary") && !stderr.contains("canary"), "{report:?}: {stdout}{stderr}");
    }
}
