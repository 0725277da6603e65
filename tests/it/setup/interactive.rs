//! At a terminal it asks.

use std::process::{Child, Output, Stdio};

use lm_tests::{Sandbox, daemon, run, terminal::Terminal, wait_until};
use serde_json::{Value, json};

use super::{KEY, ask, assert_key_is_nowhere, config, one_line, server};

fn begin(sandbox: &Sandbox, arguments: &[&str], variables: &[(&str, &str)]) -> (Child, Terminal) {
    let terminal = Terminal::open();
    let mut command = sandbox.shim(&["setup"]);
    command.args(arguments).envs(variables.iter().copied());
    command.stdin(terminal.stdio()).stdout(Stdio::piped()).stderr(terminal.stdio());
    (command.spawn().unwrap(), terminal)
}

fn end(child: Child, terminal: Terminal) -> (Output, String) {
    let output = child.wait_with_output().unwrap();
    (output, terminal.shown())
}

#[test]
fn it_asks_for_everything_and_never_shows_the_key() {
    let sandbox = Sandbox::new();
    let server = server();
    let (child, mut terminal) = begin(&sandbox, &[], &[]);
    terminal.answer("1 to 10: ", "11");
    terminal.answer("1 to 10: ", "9");
    terminal.answer("ending in /v1: ", &server.url());
    terminal.wait_for("empty for none): ");
    wait_until("the terminal to hide what is typed", || (!terminal.echoes()).then_some(()));
    terminal.type_in(format!("{KEY}\n").as_bytes());
    terminal.answer("Do you want that? [y/N] ", "y");
    // The server has no default model, so it is asked for its models first.
    terminal.answer("leave it as it is) ", "gpt-6-lunar");
    terminal.answer("leave it as it is) ", "gpt-6-luna");
    let (output, shown) = end(child, terminal);
    let said = run::succeeded(&output);
    assert!(said.contains("gpt-6-luna, which it offers"), "{said}");
    assert!(one_line(&shown).contains("did you mean gpt-6-luna?"), "{shown}");
    assert!(one_line(&shown).contains(&format!("sent to {}", server.url())), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(!shown.contains("canary"), "{shown}");
    let expected = json!({"provider": "openai", "base_url": server.url(), "api_key": KEY, "model": "gpt-6-luna"});
    assert_eq!(config(&sandbox), expected);
    assert_key_is_nowhere(&sandbox, &[&output]);
    assert_eq!(ask(&sandbox, &[])["provider"], "openai");
}

#[test]
fn a_key_of_the_session_is_offered_and_consent_is_needed() {
    let sandbox = Sandbox::new();
    let server = server();
    let arguments = ["--provider", "anthropic", "--base-url", &server.url()];
    let session = [("ANTHROPIC_API_KEY", KEY)];
    let begin_and_use_it = || {
        let (child, mut terminal) = begin(&sandbox, &arguments, &session);
        terminal.answer("store no key? [Y/n] ", "");
        terminal.answer("Model [claude-haiku-5-5]: ", "");
        (child, terminal)
    };
    let (child, mut terminal) = begin_and_use_it();
    terminal.answer("Do you want that? [y/N] ", "");
    let (output, shown) = end(child, terminal);
    assert_eq!((output.status.code(), server.other_requests().len()), (Some(1), 0), "{shown}");
    assert!(shown.contains("without consent"), "{shown}");
    assert_eq!(config(&sandbox), Value::Null);

    let (child, mut terminal) = begin_and_use_it();
    terminal.answer("Do you want that? [y/N] ", "perhaps");
    terminal.answer("Do you want that? [y/N] ", "yes");
    let (output, shown) = end(child, terminal);
    run::succeeded(&output);
    assert!(!shown.contains("canary"), "{shown}");
    assert_eq!(config(&sandbox), json!({"provider": "anthropic", "base_url": server.url()}));
}

#[test]
fn what_fails_can_be_stored_or_not() {
    let sandbox = Sandbox::new();
    let server = server();
    for (answer, code) in [("n", 1), ("y", 0)] {
        let arguments = ["--provider", "anthropic", "--base-url", &server.url(), "--model", "m", "--yes"];
        let (child, mut terminal) = begin(&sandbox, &arguments, &[]);
        terminal.wait_for("it is not shown): ");
        wait_until("the terminal to hide what is typed", || (!terminal.echoes()).then_some(()));
        terminal.type_in(b"sk-canary-wrong\n");
        terminal.answer("all the same? [y/N] ", answer);
        let (output, shown) = end(child, terminal);
        assert_eq!(output.status.code(), Some(code), "{shown}");
        assert!(one_line(&shown).contains("authentication failed") && !shown.contains("canary"), "{shown}");
        assert_eq!(config(&sandbox)["api_key"] == "sk-canary-wrong", code == 0);
    }
}

#[test]
fn an_interrupted_prompt_leaves_the_terminal_as_it_was() {
    let sandbox = Sandbox::new();
    let (child, terminal) = begin(&sandbox, &["--provider", "anthropic"], &[]);
    terminal.wait_for("it is not shown): ");
    wait_until("the terminal to hide what is typed", || (!terminal.echoes()).then_some(()));
    daemon::signal(child.id(), rustix::process::Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), terminal.echoes()), (Some(130), true));
    assert_eq!(config(&sandbox), Value::Null);
}
