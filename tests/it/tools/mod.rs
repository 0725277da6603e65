//! The tools a model explores with, on real directories and repositories.
#![expect(clippy::print_stderr, reason = "what is skipped is said")]

mod files;
mod git;
mod hostile;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use lm_core::{
    files::WorkspaceFiles,
    tools::{GitUser, OUTPUT_CAP, ToolOutput, Tools},
};
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A directory with a workspace in it, and room beside it.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("lm-tools-").tempdir().unwrap();
        fs::create_dir(directory.path().join("ws")).unwrap();
        Self { directory }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("ws").canonicalize().unwrap()
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        write(&self.root().join(path), content);
        self
    }

    fn tools(&self) -> Tools {
        tools(&self.root(), GitUser::default())
    }

    fn run(&self, name: &str, input: Value) -> ToolOutput {
        run(&self.tools(), name, &input.to_string())
    }

    /// The text of a call that must work.
    fn text(&self, name: &str, input: Value) -> String {
        let output = self.run(name, input);
        assert!(!output.is_error, "{name}: {}", output.text);
        output.text
    }

    /// The text of a call that must not work.
    fn error(&self, name: &str, input: Value) -> String {
        let output = self.run(name, input);
        assert!(output.is_error, "{name}: {}", output.text);
        assert!(output.files.is_empty());
        output.text
    }
}

fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn tools(root: &Path, user: GitUser) -> Tools {
    Tools::new(Arc::new(WorkspaceFiles::open(root).unwrap()), user)
}

fn run(tools: &Tools, name: &str, input: &str) -> ToolOutput {
    let output = tools.run(name, input, Instant::now() + Duration::from_secs(30), &CancellationToken::new());
    assert!(output.text.chars().count() <= OUTPUT_CAP, "{name} gave {} characters", output.text.chars().count());
    assert!(!output.text.trim().is_empty(), "{name} said nothing");
    output
}
