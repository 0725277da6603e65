//! One workspace per repository root, and the door through which the daemon asks them.

pub mod path;
pub mod repository;
pub mod root;

use std::{path::PathBuf, sync::Arc, time::Duration};

use lm_proto::{
    DataDirectory,
    message::{Answer, Failure},
};
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;

/// A question on its way to a workspace.
#[derive(Clone, Debug)]
pub struct Question {
    /// In natural language, as the client sent it.
    pub text: String,
    /// The directory asked from, as the client sent it.
    pub cwd: PathBuf,
    /// The longest answer wanted, in tokens.
    pub max_answer_tokens: u32,
    /// Time left until a best-effort answer is due.
    pub time_left: Duration,
    /// The settings that hold for this question.
    pub settings: Arc<Settings>,
}

/// Tells the asker what is being done.
pub type Progress = Arc<dyn Fn(String) + Send + Sync>;

/// All workspaces that were asked about since the daemon started.
#[derive(Debug)]
pub struct Workspaces {
    _data: DataDirectory,
}

impl Workspaces {
    /// None yet; what is kept of them lies in the data directory.
    #[must_use]
    pub fn new(data: DataDirectory) -> Self {
        Self { _data: data }
    }

    /// Answers a question about the workspace that its directory belongs to.
    pub async fn ask(
        &self,
        question: Question,
        _progress: Progress,
        _cancel: CancellationToken,
    ) -> Result<Answer, Failure> {
        Ok(Answer { text: format!("(skeleton) {}", question.text), trailer: String::new(), json: "{}".into() })
    }

    /// Whether background work is going on that a leaving daemon would lose.
    #[must_use]
    pub fn is_working(&self) -> bool {
        false
    }
}
