//! Questions answered by a model, through the real programs and a scripted model server.

mod answers;
mod branches;
mod broken;
mod budget;
mod by_hand;
mod compaction;
mod conversation;
mod fresh;
mod kept;
mod learned;
mod limits;
mod machine;
mod preloaded;
mod privacy;
mod recall;
mod together;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use lm_tests::{ModelServer, Sandbox, daemon::texts, model_server::Format};
use serde_json::{Value, json};

/// The key that every server of these tests gets, and nobody else may see.
const KEY: &str = "sk-canary-0123456789";

/// A workspace whose questions go to a model server.
struct Place {
    sandbox: Sandbox,
    root: PathBuf,
}

impl Place {
    fn with(files: &[(&str, &str)]) -> Self {
        let sandbox = Sandbox::new();
        let root = sandbox.workspace("project");
        let place = Self { sandbox, root };
        for (path, text) in files {
            place.write(path, text);
        }
        place
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Lets a server answer from now on.
    fn choose(&self, server: &ModelServer, format: Format, more: Value) {
        let provider = match format {
            Format::Messages => "anthropic",
            Format::ChatCompletions => "openai",
        };
        let mut config = json!({
            "provider": provider,
            "base_url": server.url(),
            "api_key": KEY,
            "model": "claude-haiku-5-5",
        });
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        fs::write(self.sandbox.data().config_file(), config.to_string()).unwrap();
    }

    fn command(&self, question: &str) -> Command {
        let mut command = self.sandbox.shim(&["ask", "--json", question]);
        command.current_dir(&self.root);
        command
    }

    fn ask(&self, question: &str) -> Value {
        answer_in(&self.command(question).output().unwrap())
    }
}

/// The JSON of an answer.
#[track_caller]
fn answer_in(output: &Output) -> Value {
    let (stdout, stderr) = texts(output);
    assert!(output.status.success(), "{:?}\n{stdout}\n{stderr}", output.status);
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}\n{stderr}"))
}

/// The answer's text.
#[track_caller]
fn text(answer: &Value) -> &str {
    answer["answer"].as_str().unwrap()
}

/// Fails unless the answer is places with a reason.
#[track_caller]
fn assert_fallback(answer: &Value, reason: &str) {
    assert_eq!(answer["provider"], "offline", "{answer}");
    let told = answer["instead_of"]["reason"].as_str().unwrap();
    assert!(told.contains(reason), "`{reason}` is not in `{told}`");
    assert!(text(answer).contains("because "), "{answer}");
}

const BOTH: [Format; 2] = [Format::Messages, Format::ChatCompletions];

const SERVER: (&str, &str) =
    ("src/server.rs", "//! Serves.\npub fn port() -> u16 {\n    8080 // the_default_port\n}\n");
const CLIENT: (&str, &str) = ("src/client.rs", "pub fn connect() {\n    let host = \"localhost\"; // the_host\n}\n");
