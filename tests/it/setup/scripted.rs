//! Without a terminal: options say everything, and what is missing is named.

use std::{fs, net::TcpListener};

use lm_tests::{
    Sandbox,
    run::{failed, stdout, succeeded},
};
use serde_json::{Value, json};

use super::{KEY, ask, assert_key_is_nowhere, config, one_line, server, setup, silent_server};

#[test]
fn a_choice_is_tried_for_free_priced_stored_and_answers() {
    let sandbox = Sandbox::new();
    let server = server();
    fs::write(sandbox.data().config_file(), r#"{"log_level": "trace"}"#).unwrap();
    let arguments = ["--provider", "anthropic", "--base-url", &server.url(), "--key-stdin", "--yes"];
    let output = setup(&sandbox, &arguments, &format!("{KEY}\r\n"));
    let said = succeeded(&output);
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    let said = one_line(&said);
    assert!(said.contains("answers and takes the key") && said.contains("claude-haiku-5-5, which it offers"), "{said}");
    assert!(said.contains("about $0.0010 for a question") && said.contains("$5.00 a day"), "{said}");
    assert_eq!((server.other_requests(), server.requests().len()), (vec!["GET /v1/models".to_owned()], 0));
    let expected = json!({"log_level": "trace", "provider": "anthropic", "base_url": server.url(), "api_key": KEY});
    assert_eq!(config(&sandbox), expected);
    let answer = ask(&sandbox, &[]);
    assert_eq!((&answer["provider"], &answer["model"]), (&json!("anthropic"), &json!("claude-haiku-5-5")));
    let stats = sandbox.run(&["stats", "--json"]);
    assert_key_is_nowhere(&sandbox, &[&output, &stats, &sandbox.run(&["doctor"])]);
}

#[test]
fn a_choice_that_fails_its_test_stores_nothing_unless_it_is_wanted() {
    let sandbox = Sandbox::new();
    let server = server();
    let arguments = ["--provider", "anthropic", "--base-url", &server.url(), "--key-stdin", "--yes"];
    let wrong = "sk-canary-wrong-0123456789";
    let output = setup(&sandbox, &arguments, wrong);
    let said = one_line(&failed(&output, 1));
    assert!(said.contains("authentication failed") && said.contains("--store-anyway"), "{said}");
    assert_eq!((config(&sandbox), stdout(&output)), (Value::Null, String::new()));

    // What is no key at all is not sent.
    let said = failed(&setup(&sandbox, &arguments, "my canary key"), 1);
    assert!(said.contains("holds white space") && !said.contains("canary"), "{said}");
    let said = failed(&setup(&sandbox, &arguments, "\n"), 1);
    assert!(said.contains("standard input holds no key"), "{said}");
    assert_eq!(server.other_requests(), ["GET /v1/models (refused)"]);

    succeeded(&setup(&sandbox, &[&arguments[..], &["--store-anyway"]].concat(), wrong));
    assert_eq!(config(&sandbox)["api_key"], wrong);
}

#[test]
fn a_model_that_the_server_has_not_is_named_with_those_it_has() {
    let sandbox = Sandbox::new();
    let server = server();
    let key = sandbox.root().join("key.txt");
    fs::write(&key, format!("{KEY}\n")).unwrap();
    let arguments = |model: &[&'static str]| {
        let file = key.to_str().unwrap().to_owned();
        let mut arguments = ["--provider", "other", "--base-url"].map(str::to_owned).to_vec();
        arguments.extend([server.url(), "--key-file".into(), file, "--yes".into()]);
        arguments.extend(model.iter().map(|&word| word.to_owned()));
        arguments
    };
    let run = |model: &[&'static str]| {
        let arguments = arguments(model);
        setup(&sandbox, &arguments.iter().map(String::as_str).collect::<Vec<_>>(), "")
    };
    let unknown = run(&["--model", "gpt-6-lunar"]);
    let said = one_line(&failed(&unknown, 1));
    assert!(said.contains("did you mean gpt-6-luna?") && said.contains("claude-haiku-5-5"), "{said}");
    let missing = run(&[]);
    let said = one_line(&failed(&missing, 1));
    assert!(said.contains("models") && said.contains("gpt-6-luna"), "{said}");
    assert_eq!(config(&sandbox), Value::Null);
    let known = run(&["--model", "gpt-6-luna"]);
    succeeded(&known);
    assert_eq!(ask(&sandbox, &[])["provider"], "openai");
    assert_key_is_nowhere(&sandbox, &[&unknown, &missing, &known]);
}

#[test]
fn a_server_that_does_not_run_is_said_with_what_to_do() {
    let sandbox = Sandbox::new();
    // Nobody listens where somebody just did.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{address}/v1");
    let said = setup(&sandbox, &["--provider", "ollama", "--base-url", &url, "--model", "m", "--yes"], "");
    let said = one_line(&failed(&said, 1));
    assert!(said.contains("no connection to") && said.contains("start the server"), "{said}");
    assert_eq!(config(&sandbox), Value::Null);
    let said = failed(
        &setup(&sandbox, &["--provider", "other", "--base-url", "localhost:1/v1", "--model", "m", "--yes"], ""),
        1,
    );
    assert!(said.contains("base_url") && said.contains("http"), "{said}");
}

#[test]
fn a_key_of_the_session_is_used_and_not_stored() {
    let sandbox = Sandbox::new();
    let server = server();
    let mut command = sandbox.shim(&["setup", "--provider", "anthropic", "--base-url", &server.url(), "--yes"]);
    command.args(["--key-env", "ANTHROPIC_API_KEY"]);
    let unset = failed(&command.output().unwrap(), 1);
    assert!(unset.contains("ANTHROPIC_API_KEY is not set here"), "{unset}");
    let output = command.env("ANTHROPIC_API_KEY", KEY).output().unwrap();
    succeeded(&output);
    assert_eq!(config(&sandbox), json!({"provider": "anthropic", "base_url": server.url()}));
    assert_eq!(ask(&sandbox, &[("ANTHROPIC_API_KEY", KEY)])["provider"], "anthropic");
    assert_eq!(ask(&sandbox, &[])["provider"], "offline", "without it there is no key");
    assert_key_is_nowhere(&sandbox, &[&output]);
    // Another vendor's key is never taken for this one.
    let said = failed(&setup(&sandbox, &["--provider", "deepseek", "--key-env", "OPENAI_API_KEY", "--yes"], ""), 2);
    assert!(said.contains("not the key of DeepSeek"), "{said}");
}

#[test]
fn another_choice_leaves_nothing_of_the_last_one_and_offline_nothing_at_all() {
    let sandbox = Sandbox::new();
    let (first, second) = (server(), silent_server());
    let anthropic = ["--provider", "anthropic", "--base-url", &first.url(), "--yes"];
    let model = ["--model", "claude-haiku-5-5"];
    succeeded(&setup(&sandbox, &[&anthropic[..], &model, &["--key-stdin"]].concat(), KEY));
    // The same again keeps key and model; elsewhere neither goes along.
    succeeded(&setup(&sandbox, &anthropic, ""));
    assert_eq!((config(&sandbox)["api_key"].as_str(), config(&sandbox)["model"].as_str()), (Some(KEY), Some(model[1])));
    let local = ["--provider", "llamacpp", "--base-url", &second.url(), "--model", "gpt-6-luna", "--yes"];
    succeeded(&setup(&sandbox, &local, ""));
    assert_eq!(
        config(&sandbox),
        json!({"provider": "openai", "base_url": second.url(), "model": "gpt-6-luna"}),
        "a key does not follow to another address"
    );
    let said = succeeded(&setup(&sandbox, &["--provider", "offline"], ""));
    assert!(said.contains("consent") && said.contains("taken back"), "{said}");
    assert_eq!(config(&sandbox), json!({"provider": "offline"}));
    assert_eq!(ask(&sandbox, &[])["provider"], "offline");
    assert_eq!(second.requests().len(), 0);
}

#[test]
fn a_variable_that_shadows_the_choice_is_said() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.shim(&["setup", "--provider", "offline"]);
    let output = command.env("LIVE_MEMORY_PROVIDER", "anthropic").output().unwrap();
    succeeded(&output);
    let said = one_line(&lm_tests::run::stderr(&output));
    assert!(said.contains("LIVE_MEMORY_PROVIDER in this session's environment"), "{said}");
}

#[test]
fn without_a_terminal_what_is_missing_is_named_and_nothing_is_started() {
    let sandbox = Sandbox::new();
    for (arguments, expected) in [
        (&[][..], "lm-shim setup --provider anthropic --key-file key.txt --yes"),
        (&["--provider", "anthropic", "--yes"], "--key-stdin or --key-file"),
        (&["--provider", "anthropic", "--key-file", "k"], "add --yes"),
        (&["--provider", "other", "--yes"], "--base-url"),
        (&["--provider", "nobody"], "possible values"),
        (&["--provider", "anthropic", "--key-stdin", "--key-file", "k"], "cannot be used with"),
        (&["--provider", "openai", "--key-env", "PATH", "--yes"], "possible values"),
    ] {
        let said = failed(&setup(&sandbox, arguments, ""), 2);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    // A key is no argument, and is not repeated where somebody tries.
    for arguments in [&["--key", "sk-canary"][..], &["--api-key=sk-canary"]] {
        let said = failed(&setup(&sandbox, arguments, ""), 2);
        assert!(!said.contains("canary"), "{said}");
    }
    let missing = setup(&sandbox, &["--provider", "anthropic", "--key-file", "/no/such/file", "--yes"], "");
    assert!(failed(&missing, 1).contains("/no/such/file"));
    assert_eq!(config(&sandbox), Value::Null);
}
