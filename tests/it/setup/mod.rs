//! `lm-shim setup`: choosing who answers, in scripts and at a terminal.

mod budget;
#[cfg(unix)]
mod interactive;
mod scripted;

use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};

use lm_tests::{
    ModelServer, Sandbox,
    daemon::{texts, workspace},
    files_below,
    model_server::{Script, SeenRequest, ServerOptions, Turn},
};
use serde_json::Value;

/// The key that lets one in, and that nobody else may see.
const KEY: &str = "sk-canary-setup-0123456789";

/// A server that lets in whoever has the key, and says where the port is set.
fn server() -> ModelServer {
    let options = ServerOptions { key: Some(KEY.into()), ..ServerOptions::default() };
    ModelServer::with(options, |_: &SeenRequest| Turn::text("In `server.rs:2`."))
}

/// A server that must not be asked anything.
fn silent_server() -> ModelServer {
    ModelServer::start(Script::new([]))
}

/// Runs `lm-shim setup` with something on standard input.
fn setup(sandbox: &Sandbox, arguments: &[&str], input: &str) -> Output {
    let mut command = sandbox.shim(&["setup"]);
    command.args(arguments);
    feed(command, input)
}

fn feed(mut command: Command, input: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may have ended without reading, which its exit code tells.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// A text without its line breaks.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What `config.json` holds; null where there is none.
fn config(sandbox: &Sandbox) -> Value {
    fs::read(sandbox.data().config_file()).map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap())
}

/// The answer to a question about a workspace.
fn ask(sandbox: &Sandbox, variables: &[(&str, &str)]) -> Value {
    let mut command = sandbox.shim(&["ask", "--json", "where is the port set"]);
    command.envs(variables.iter().copied()).env("LIVE_MEMORY_FORCE_EXPLORE_WHEN_COLD", "false");
    let output = command.current_dir(workspace(sandbox)).output().unwrap();
    let (stdout, stderr) = texts(&output);
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}\n{stderr}"))
}

/// Fails where the key stands in what was said or in any file but `config.json`.
#[track_caller]
fn assert_key_is_nowhere(sandbox: &Sandbox, outputs: &[&Output]) {
    for output in outputs {
        let (stdout, stderr) = texts(output);
        assert!(!stdout.contains("canary") && !stderr.contains("canary"), "{stdout}\n{stderr}");
    }
    for file in files_below(sandbox.data().root()) {
        let bytes = fs::read(&file).unwrap_or_default();
        let holds = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
        assert!(!holds || file == sandbox.data().config_file(), "{}", file.display());
    }
}
