//! Settings as people and sessions see them: the file, the environment, what holds.

use std::fs;

use lm_tests::{
    Sandbox,
    run::{failed, json, stderr, succeeded},
    wait_until,
};
use serde_json::{Value, json};

/// Where the value of a setting comes from and what it is, for a session with these variables.
fn held(sandbox: &Sandbox, name: &str, session: &[(&str, &str)]) -> (Value, Value) {
    let output = sandbox.shim(&["config", "show", "--json"]).envs(session.iter().copied()).output().unwrap();
    let setting = json(&output)["settings"][name].clone();
    (setting["value"].clone(), setting["origin"].clone())
}

fn write(sandbox: &Sandbox, text: impl AsRef<[u8]>) {
    fs::write(sandbox.data().config_file(), text).unwrap();
}

fn written(sandbox: &Sandbox) -> Value {
    serde_json::from_slice(&fs::read(sandbox.data().config_file()).unwrap()).unwrap()
}

#[test]
fn a_setting_is_set_shown_and_unset_under_any_of_its_names() {
    let sandbox = Sandbox::new();
    assert_eq!(held(&sandbox, "default_timeout_s", &[]), (json!(60), json!("default")));
    let said =
        succeeded(&sandbox.run(&["config", "set", "LIVE_MEMORY_DEFAULT_TIMEOUT_S=30", "REPO_ROOT_MODE=outermost"]));
    assert!(said.contains("default_timeout_s = 30 (config.json)"), "{said}");
    assert_eq!(held(&sandbox, "default_timeout_s", &[]), (json!(30), json!("config")));
    assert_eq!(written(&sandbox), json!({"default_timeout_s": 30, "repo_root_mode": "outermost"}));
    let shown = succeeded(&sandbox.run(&["config", "show"]));
    assert!(
        shown.lines().any(|line| line.starts_with("default_timeout_s") && line.contains("(config.json)")),
        "{shown}"
    );
    succeeded(&sandbox.run(&["config", "unset", "default_timeout_s", "repo_root_mode"]));
    assert_eq!(held(&sandbox, "default_timeout_s", &[]), (json!(60), json!("default")));
}

#[cfg(unix)]
#[test]
fn the_file_is_private_and_replaced_as_a_whole() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    let sandbox = Sandbox::new();
    write(&sandbox, "{\"theirs\": [1, {\"a\": null}]}");
    let before = fs::metadata(sandbox.data().config_file()).unwrap().ino();
    succeeded(&sandbox.run(&["config", "set", "model=m"]));
    let after = fs::metadata(sandbox.data().config_file()).unwrap();
    assert_ne!(after.ino(), before, "written beside and renamed");
    assert_eq!(after.permissions().mode() & 0o777, 0o600);
    assert_eq!(written(&sandbox), json!({"theirs": [1, {"a": null}], "model": "m"}));
    let names: Vec<_> = fs::read_dir(sandbox.data().root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with(".config-")), "{names:?}");
}

#[test]
fn one_wrong_change_changes_nothing_and_names_what_is_right() {
    let sandbox = Sandbox::new();
    let said = failed(&sandbox.run(&["config", "set", "max_answer_tokens=500", "provder=offline"]), 1);
    assert!(said.contains("did you mean `provider`?"), "{said}");
    let said = failed(&sandbox.run(&["config", "set", "max_answer_tokens=500", "default_timeout_s=4"]), 1);
    assert!(said.contains("a whole number from 5 to 1800"), "{said}");
    let said = failed(&sandbox.run(&["config", "set", "data_dir=/elsewhere"]), 1);
    assert!(said.contains("LIVE_MEMORY_DATA_DIR in the environment"), "{said}");
    let said = failed(&sandbox.run(&["config", "unset", "max_answer_token"]), 1);
    assert!(said.contains("did you mean `max_answer_tokens`?"), "{said}");
    assert!(!sandbox.data().config_file().exists());
}

#[test]
fn a_sessions_environment_holds_for_that_session_and_shadows_the_file() {
    let sandbox = Sandbox::new();
    let mine = [("LIVE_MEMORY_MAX_ANSWER_TOKENS", "777"), ("LIVE_MEMORY_USERCONFIG_CONCURRENCY", "serial")];
    // This session starts the daemon, and yet its variables are not another session's.
    assert_eq!(held(&sandbox, "max_answer_tokens", &mine), (json!(777), json!("environment")));
    assert_eq!(held(&sandbox, "max_answer_tokens", &[]), (json!(4096), json!("default")));
    assert_eq!(held(&sandbox, "concurrency", &mine), (json!("serial"), json!("plugin")));

    let set = ["config", "set", "max_answer_tokens=1000", "concurrency=parallel"];
    let said = succeeded(&sandbox.shim(&set).envs(mine).output().unwrap());
    assert!(said.contains("LIVE_MEMORY_MAX_ANSWER_TOKENS in this session's environment shadows"), "{said}");
    assert_eq!(held(&sandbox, "max_answer_tokens", &mine), (json!(777), json!("environment")));
    assert_eq!(held(&sandbox, "max_answer_tokens", &[]), (json!(1000), json!("config")));
    assert_eq!(held(&sandbox, "concurrency", &mine), (json!("parallel"), json!("config")));
    // Empty is unset, and so is what the client left unfilled.
    for unset in ["", "${LIVE_MEMORY_MAX_ANSWER_TOKENS}"] {
        let session = [("LIVE_MEMORY_MAX_ANSWER_TOKENS", unset)];
        assert_eq!(held(&sandbox, "max_answer_tokens", &session), (json!(1000), json!("config")));
    }
    let stats = json(&sandbox.shim(&["stats", "--json"]).envs(mine).output().unwrap());
    assert_eq!(stats["settings"]["shadowed"], json!([{"name": "max_answer_tokens", "by": "environment"}]));
}

#[test]
fn an_edited_file_holds_at_once_and_a_broken_one_harms_nothing() {
    let sandbox = Sandbox::new();
    // As an editor on Windows leaves it.
    write(&sandbox, "\u{FEFF}{\r\n  \"default_timeout_s\": 44\r\n}\r\n");
    assert_eq!(held(&sandbox, "default_timeout_s", &[]), (json!(44), json!("config")));
    write(&sandbox, "{\"default_timeout_s\": 45}");
    assert_eq!(held(&sandbox, "default_timeout_s", &[]), (json!(45), json!("config")));
    succeeded(&sandbox.run(&["doctor"]));

    let broken = "{\"default_timeout_s\": 46,\n \"model\": }";
    write(&sandbox, broken);
    assert_eq!(held(&sandbox, "default_timeout_s", &[]), (json!(45), json!("config")));
    let problems = json(&sandbox.run(&["stats", "--json"]))["settings"]["problems"].to_string();
    assert!(problems.contains("line 2, column 11"), "{problems}");
    assert!(!sandbox.run(&["doctor"]).status.success());
    let said = failed(&sandbox.run(&["config", "set", "model=m"]), 1);
    assert!(said.contains("line 2, column 11"), "{said}");
    failed(&sandbox.run(&["config", "unset", "model"]), 1);
    assert_eq!(fs::read_to_string(sandbox.data().config_file()).unwrap(), broken, "never overwritten");

    // One value that is not accepted leaves the others in place.
    write(&sandbox, "{\"default_timeout_s\": 1, \"model\": \"m\", \"porvider\": 1}");
    assert_eq!(held(&sandbox, "default_timeout_s", &[]), (json!(45), json!("config")), "the last good one");
    assert_eq!(held(&sandbox, "model", &[]), (json!("m"), json!("config")));
    let stats = json(&sandbox.run(&["stats", "--json"]));
    let problems = stats["settings"]["problems"].to_string();
    assert!(problems.contains("from 5 to 1800") && problems.contains("did you mean `provider`?"), "{problems}");
}

#[test]
fn a_daemon_started_with_a_broken_file_runs_on_defaults() {
    let sandbox = Sandbox::new();
    write(&sandbox, "not json");
    assert_eq!(held(&sandbox, "default_timeout_s", &[]), (json!(60), json!("default")));
    assert_eq!(fs::read_to_string(sandbox.data().config_file()).unwrap(), "not json");
}

#[test]
fn a_key_is_shown_and_logged_nowhere() {
    const CANARY: &str = "sk-canary-8f1d";
    let sandbox = Sandbox::new();
    let session = [("LIVE_MEMORY_LOG_LEVEL", "trace"), ("LIVE_MEMORY_EXTRA_HEADERS", "Authorization: sk-canary-8f1d")];
    let mut said = String::new();
    for arguments in [
        &["config", "set", "api_key=sk-canary-8f1d"][..],
        &["config", "show"],
        &["config", "show", "--json"],
        &["config", "set", "base_url=https://me:sk-canary-8f1d@example.org"],
        &["stats"],
        &["stats", "--json"],
        &["doctor"],
        &["doctor", "--json"],
    ] {
        let output = sandbox.shim(arguments).envs(session).output().unwrap();
        said += &(String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output));
    }
    let leaks: Vec<_> = said.lines().filter(|line| line.contains(CANARY)).collect();
    assert!(leaks.is_empty(), "{leaks:?}");
    assert_eq!(held(&sandbox, "api_key", &session), (json!("set"), json!("config")));
    for entry in fs::read_dir(sandbox.data().logs()).unwrap() {
        let log = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!log.contains(CANARY), "{log}");
    }
}

#[test]
fn the_running_daemon_follows_its_idle_time() {
    let sandbox = Sandbox::new();
    succeeded(&sandbox.run(&["config", "set", "idle_exit_s=1"]));
    wait_until("the daemon leaves", || (!sandbox.data().daemon_notes().exists()).then_some(()));
    assert_eq!(json(&sandbox.run(&["stats", "--json"]))["running"], false);
}

#[test]
fn a_session_that_wants_another_daemon_setting_is_told() {
    let sandbox = Sandbox::new();
    held(&sandbox, "model", &[]);
    let session = [("LIVE_MEMORY_IDLE_EXIT_S", "5")];
    assert_eq!(held(&sandbox, "idle_exit_s", &session), (json!(1800), json!("default")));
    let stats = succeeded(&sandbox.shim(&["stats"]).envs(session).output().unwrap());
    assert!(stats.contains("LIVE_MEMORY_IDLE_EXIT_S holds for the whole daemon"), "{stats}");
}
