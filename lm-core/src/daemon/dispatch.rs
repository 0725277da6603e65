//! From a request to its reply: which part of the daemon answers what.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use lm_proto::message::{Ask, Failure, FailureKind, Reply, Request, SessionEnvironment};
use tokio_util::sync::CancellationToken;

use super::status::{Ending, Status};
use crate::{
    settings::Settings,
    workspace::{Progress, Question, Workspaces},
};

/// While the file named by this variable exists, questions wait before they are answered; it is
/// how tests have one in flight (`docs/testing.md`).
pub const HOLD_FILE_VARIABLE: &str = "LIVE_MEMORY_TEST_HOLD_FILE";

/// How often the hold file is looked for.
const HOLD_POLL: Duration = Duration::from_millis(10);

/// More requests than this at once are refused: what grows without end ends badly.
const RUNNING_MAX: usize = 100;

/// Everything that requests are answered from.
#[derive(Debug)]
pub struct Dispatcher {
    workspaces: Workspaces,
    status: Arc<Status>,
    idle_exit: Duration,
    hold_file: Option<PathBuf>,
}

impl Dispatcher {
    /// Answers from these workspaces; `idle_exit` is how long to stay when nothing happens.
    #[must_use]
    pub fn new(workspaces: Workspaces, status: Arc<Status>, idle_exit: Duration) -> Self {
        let hold_file = std::env::var_os(HOLD_FILE_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { workspaces, status, idle_exit, hold_file }
    }

    /// The daemon's counters.
    #[must_use]
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// How long the daemon stays when nothing happens; zero is for ever. May change while it runs.
    #[must_use]
    pub fn idle_exit(&self) -> Duration {
        self.idle_exit
    }

    /// Whether work goes on that belongs to no request and that a leaving daemon would lose.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.workspaces.is_working()
    }

    /// Answers one request. Dropping the future and cancelling the token both end the work.
    pub async fn reply(
        &self,
        request: Request,
        progress: Progress,
        cancel: CancellationToken,
    ) -> Result<Reply, Failure> {
        if self.status.running() > RUNNING_MAX {
            return Err(Failure::new(
                FailureKind::Busy,
                format!("{RUNNING_MAX} requests are already being worked on; ask again when some have finished"),
            ));
        }
        match request {
            Request::Ask(ask) => self.ask(ask, progress, cancel).await,
            _ => Err(Failure::new(FailureKind::InvalidRequest, "this daemon only answers questions")),
        }
    }

    async fn ask(&self, ask: Ask, progress: Progress, cancel: CancellationToken) -> Result<Reply, Failure> {
        tracing::info!(cwd = ask.cwd, "a question arrived");
        let counted = CountedOnce(Some(&self.status));
        let outcome = self.answer(ask, progress, cancel).await;
        counted.end(match &outcome {
            Ok(_) => Ending::Answered,
            Err(failure) => Ending::Failed(failure.message.clone()),
        });
        outcome
    }

    async fn answer(&self, ask: Ask, progress: Progress, cancel: CancellationToken) -> Result<Reply, Failure> {
        let asked_at = Instant::now();
        let settings = self.settings_for(&ask.environment)?;
        self.hold(&cancel).await?;
        let limit = Duration::from_secs(ask.timeout_s.unwrap_or(settings.default_timeout_s).into());
        let question = Question {
            text: ask.question,
            cwd: ask.cwd.into(),
            max_answer_tokens: ask.max_answer_tokens.unwrap_or(settings.max_answer_tokens),
            time_left: limit.saturating_sub(asked_at.elapsed()),
            settings,
        };
        self.workspaces.ask(question, progress, cancel).await.map(Reply::Answer)
    }

    /// The settings that hold for a request of a session with these variables.
    #[expect(clippy::unnecessary_wraps, reason = "a session's variables can be wrong")]
    fn settings_for(&self, _environment: &SessionEnvironment) -> Result<Arc<Settings>, Failure> {
        Ok(Arc::new(Settings::default()))
    }

    async fn hold(&self, cancel: &CancellationToken) -> Result<(), Failure> {
        let Some(file) = &self.hold_file else { return Ok(()) };
        while file.exists() {
            tokio::select! {
                () = cancel.cancelled() => return Err(Failure::new(FailureKind::Draining, "cancelled")),
                () = tokio::time::sleep(HOLD_POLL) => {}
            }
        }
        Ok(())
    }
}

/// Counts a question as cancelled unless it is told how it ended.
struct CountedOnce<'a>(Option<&'a Status>);

impl CountedOnce<'_> {
    fn end(mut self, ending: Ending) {
        if let Some(status) = self.0.take() {
            status.count(ending);
        }
    }
}

impl Drop for CountedOnce<'_> {
    fn drop(&mut self) {
        if let Some(status) = self.0 {
            status.count(Ending::Cancelled);
        }
    }
}
