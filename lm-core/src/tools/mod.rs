//! The read-only tools that a model explores a workspace with.
//!
//! A tool takes the JSON text of a call and gives text: a result within a fixed size, or an error
//! that tells the model what to do. Nothing fails silently: an empty result says that it is empty, a
//! partial one says how far it got and how to go on. Workspace files are read and listed through
//! [`crate::files`] alone, and git repositories by `gix`, in this process. Not allowed in here:
//! starting a process, writing anything, opening a workspace file by another way, knowing who asks.

mod arguments;
mod git;
mod globs;
mod paths;
mod pattern;
mod read;
mod recall;
mod registry;
mod search;
mod target;
mod text;
mod tree;

use std::{path::PathBuf, sync::Arc, time::Instant};

use tokio_util::sync::CancellationToken;

use crate::files::{ReadError, WorkspaceFiles};

pub use git::{GitUser, LeftBehind};
pub use read::READ_CAP;
pub use recall::{Memory, Recalled};
pub use registry::{ToolSpecification, specifications};
pub use text::OUTPUT_CAP;
pub use tree::{DirectoryTree, directory_tree};

/// The tools of one workspace.
pub struct Tools {
    files: Arc<WorkspaceFiles>,
    git: git::Git,
    memory: Option<Arc<dyn Memory>>,
}

impl std::fmt::Debug for Tools {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tools").field("files", &self.files).finish_non_exhaustive()
    }
}

/// What a tool gives back to the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToolOutput {
    /// At most [`OUTPUT_CAP`] characters.
    pub text: String,
    /// Whether it tells what went wrong instead of a result.
    pub is_error: bool,
    /// The files whose text is in it, or that what is in it rests on.
    pub files: Vec<FileSeen>,
}

/// A file whose text a tool has shown, whole or in part, or that something it told rests on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FileSeen {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Of the bytes that were read, lower-case hexadecimal.
    pub sha256: String,
    /// Whether the file is longer than what was read, so that the hash is that of its beginning.
    pub truncated: bool,
    /// Whether text of it was shown.
    pub is_shown: bool,
}

/// When a tool has to end.
#[derive(Clone, Copy, Debug)]
struct Limits<'a> {
    deadline: Instant,
    cancel: &'a CancellationToken,
}

impl Limits<'_> {
    fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() >= self.deadline
    }
}

/// Why a tool has no result: told to the model, which may do better.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ToolError(String);

impl From<ReadError> for ToolError {
    fn from(error: ReadError) -> Self {
        Self(error.to_string())
    }
}

impl ToolOutput {
    /// A result that shows no file's text.
    fn plain(text: String) -> Self {
        Self { text, is_error: false, files: Vec::new() }
    }

    fn error(text: String) -> Self {
        Self { text: text::cap(text), is_error: true, files: Vec::new() }
    }
}

impl Tools {
    /// The tools for a workspace; of the user's git configuration only what `git` leads to is known.
    #[must_use]
    pub fn new(files: Arc<WorkspaceFiles>, git: GitUser) -> Self {
        Self::sharing(files, git, LeftBehind::default())
    }

    /// The same, sharing with other tools of the workspace which threads hang.
    #[must_use]
    pub fn sharing(files: Arc<WorkspaceFiles>, git: GitUser, left_behind: LeftBehind) -> Self {
        let git = git::Git::new(Arc::clone(&files), git, left_behind);
        Self { files, git, memory: None }
    }

    /// The same, with something to recall.
    #[must_use]
    pub fn remembering(self, memory: Arc<dyn Memory>) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// Runs a call and blocks until it is done or the deadline has passed. `input` is the JSON text of
    /// the arguments as the model gave it.
    #[must_use]
    pub fn run(&self, name: &str, input: &str, deadline: Instant, cancel: &CancellationToken) -> ToolOutput {
        let limits = Limits { deadline, cancel };
        match registry::dispatch(self, name, input, &limits) {
            Ok(mut output) => {
                output.text = text::cap(output.text);
                output
            }
            Err(ToolError(_)) if cancel.is_cancelled() => ToolOutput::error("the call was cancelled".into()),
            Err(ToolError(text)) => ToolOutput::error(text),
        }
    }

    /// Runs a call on a thread that may block.
    pub async fn call(
        self: Arc<Self>,
        name: Arc<str>,
        input: Arc<str>,
        deadline: Instant,
        cancel: CancellationToken,
    ) -> ToolOutput {
        let running = tokio::task::spawn_blocking(move || self.run(&name, &input, deadline, &cancel));
        match running.await {
            Ok(output) => output,
            Err(error) => ToolOutput::error(format!("the tool broke off: {error}; try another call")),
        }
    }
}
