//! One workspace per repository root, and the door through which the daemon asks them.
//!
//! Here a directory becomes a root ([`path`], [`repository`], [`root`]), a root becomes an open
//! workspace, and questions about one take turns; what sessions read and edit finds its workspace
//! (`observe`, `intake`), and what is kept of one is forgotten (`forget`). Not allowed here: reading the
//! files of a workspace (that is `files`' door), deciding what an answer looks like (that is the
//! agent's), the network.

mod admission;
mod briefing;
mod companion;
mod forget;
pub mod freshness;
mod gate;
mod intake;
mod kept;
mod learning;
mod model_answer;
mod observe;
pub mod path;
mod people;
mod preload;
mod recall;
mod registry;
pub mod repository;
pub mod root;
pub mod scope;
pub mod store;
mod texts;
mod upkeep;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::{Duration, Instant, SystemTime},
};

use lm_proto::{
    DataDirectory,
    message::{Answer, Failure, FailureKind, Observation},
    question,
};
use tokio_util::sync::CancellationToken;

pub use companion::{Exported, Imported, KnownFact, MemoryStatus, PartlyForgotten, Remembered};
pub use forget::{PauseError, Paused};
pub use kept::KeptSize;
pub use observe::{Dropped, ObservationStatus};
pub use people::{Of, PastAnswer, PeopleError};
pub use registry::{Forgotten, WorkspaceStatus};

use self::{
    admission::{Limits, Permit, QueueFull},
    intake::Intake,
    model_answer::{ModelQuestion, Unanswered},
    observe::Observations,
    registry::{Registry, Workspace},
    root::{RootError, RootRules},
};
use crate::{
    agent::{
        inquiry::{Reserved, Tally},
        offline::{self, Timing, Why},
        provider::ChosenModel,
    },
    budget::{Budget, Limits as DailyLimits, price_note},
    files::Excluded,
    llm::{Timeouts, Transport, Usage},
    retrieval::{SearchError, SearchLimits, SearchOutcome},
    settings::Settings,
};

/// A question on its way to a workspace.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it holds a key")]
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
    /// Who answers: the model that was chosen, nobody, or why the choice cannot be followed.
    pub model: Result<Option<ChosenModel>, String>,
    /// What the asker should know besides the answer, such as settings that were not accepted.
    pub notes: Vec<String>,
}

/// What time it is.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Tells the asker what is being done.
pub type Progress = Arc<dyn Fn(String) + Send + Sync>;

/// What of the time left is kept for rendering and the way back.
const RESERVE: Duration = Duration::from_millis(500);

/// How long the search for places may take where a model has used up all the time there was.
const FALLBACK: Duration = Duration::from_secs(3);

/// How long after its deadline a question to a model is given up, whatever it is at.
const BACKSTOP: Duration = Duration::from_secs(10);

/// How long a question waits for what was observed before it.
const SETTLING: Duration = Duration::from_millis(100);

/// All workspaces that were asked about since the daemon started.
#[expect(missing_debug_implementations, reason = "it holds a clock")]
pub struct Workspaces {
    registry: Arc<Registry>,
    observations: Arc<Observations>,
    home: Option<PathBuf>,
    budget: Budget,
    clock: Clock,
    transport: OnceLock<Result<Arc<Transport>, String>>,
}

/// An answer, and why the chosen model did not give it.
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// The answer.
    pub answer: Answer,
    /// What kept the model from answering, if something did.
    pub trouble: Option<String>,
}

impl Workspaces {
    /// None yet; what is kept of them lies in the data directory. The home directory is never a
    /// workspace.
    #[must_use]
    pub fn new(data: DataDirectory, home: Option<PathBuf>, budget: Budget, clock: Clock) -> Self {
        let home = home.filter(|home| home.is_absolute());
        let registry = Arc::new(Registry::new(data));
        let intake = Intake { registry: Arc::clone(&registry), home: home.clone() };
        let saving = Arc::clone(&registry);
        let observations = Observations::new(
            move |observed, is_forgotten| intake.take_in(observed, is_forgotten),
            move || saving.save_all(),
        );
        Self { registry, observations, home, budget, clock, transport: OnceLock::new() }
    }

    /// Takes up that a session has read or edited a file, and returns at once; its workspace is found and
    /// told in the background. The settings are the session's.
    pub fn observe(&self, observation: Observation, settings: Settings) {
        let Observation { path, kind, cwd, .. } = observation;
        self.observations.add(path, kind, cwd.into(), settings);
    }

    /// Whether observations wait or are being taken in.
    #[must_use]
    pub fn is_observing(&self) -> bool {
        !self.observations.is_idle()
    }

    /// Writes what was learned and is not on the disk yet. Blocks on the file system.
    pub fn save(&self) {
        self.registry.save_all();
    }

    /// What became of observations.
    #[must_use]
    pub fn observations(&self) -> ObservationStatus {
        self.observations.status()
    }

    /// The connections to models, which all workspaces share. Made when first needed: reading the
    /// system's certificates takes longer than the daemon's start.
    ///
    /// # Errors
    /// The system's TLS or proxy configuration cannot be used.
    pub fn transport(&self) -> Result<Arc<Transport>, String> {
        let made = || Transport::new(Timeouts::default()).map(Arc::new).map_err(|error| error.to_string());
        self.transport.get_or_init(made).clone()
    }

    /// Answers a question about the workspace that its directory belongs to.
    ///
    /// # Errors
    /// Where there is no such workspace, no room, no time, or the search failed.
    pub async fn ask(
        &self,
        question: Question,
        progress: Progress,
        cancel: CancellationToken,
    ) -> Result<Reply, Failure> {
        // Work that was begun ends when this future is dropped, too.
        let cancel = cancel.child_token();
        let _guard = cancel.clone().drop_guard();
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(cancelled()),
            outcome = self.answer(question, progress, cancel.clone()) => outcome,
        }
    }

    async fn answer(
        &self,
        question: Question,
        progress: Progress,
        cancel: CancellationToken,
    ) -> Result<Reply, Failure> {
        let started = Instant::now();
        let due = started + question.time_left;
        question::check(&question.text).map_err(|error| invalid(error.to_string()))?;
        let (workspace, excluded) = self.open(&question, due).await?;
        // What its session has just read or edited is known to the answer.
        self.observations.settled(SETTLING.min(question.time_left)).await;

        let limits = Limits::new(&question.settings);
        let permit = match tokio::time::timeout_at(due.into(), workspace.admission.enter(limits)).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(QueueFull { waiting })) => {
                return Err(busy(format!(
                    "{waiting} questions are waiting for this workspace already; ask again later, \
                     or raise max_queue_size"
                )));
            }
            Err(_) => {
                return Err(busy(format!(
                    "other questions about this workspace took all of the {} s; ask again, or raise default_timeout_s",
                    question.time_left.as_secs()
                )));
            }
        };
        let queued = started.elapsed();

        let turn = Turn { workspace, excluded, question, started, queued, due, progress, cancel, permit };
        match &turn.question.model {
            Ok(None) => turn.offline(Why::NoneChosen).await.map(|answer| Reply { answer, trouble: None }),
            Ok(Some(chosen)) => match self.by_model_in_time(&turn, chosen).await {
                Ok(answer) => {
                    turn.workspace.answered.fetch_add(1, Ordering::Relaxed);
                    Ok(Reply { answer, trouble: None })
                }
                Err(_) if turn.cancel.is_cancelled() => Err(cancelled()),
                Err(Unanswered { reason, tally }) => {
                    let provider = chosen.settings.provider.name();
                    tracing::warn!(provider, reason, "the model has not answered");
                    turn.instead_of(provider, reason, tally).await
                }
            },
            Err(reason) => {
                let (provider, reason) = (turn.question.settings.provider.word(), reason.clone());
                turn.instead_of(provider, reason, Tally::default()).await
            }
        }
    }

    /// The same, given up where something that ought to keep to the deadline does not.
    async fn by_model_in_time(&self, turn: &Turn, chosen: &ChosenModel) -> Result<Answer, Unanswered> {
        let asking = tokio::time::timeout_at((turn.due + BACKSTOP).into(), self.by_model(turn, chosen));
        match asking.await {
            Ok(answered) => answered,
            Err(_) => Err("it was not done long after its time was up".to_owned().into()),
        }
    }

    async fn by_model(&self, turn: &Turn, chosen: &ChosenModel) -> Result<Answer, Unanswered> {
        let transport = self.transport()?;
        let limits = daily_limits(&turn.question.settings);
        let spending = Spending {
            budget: self.budget.clone(),
            clock: Arc::clone(&self.clock),
            root: turn.workspace.root.path.display().to_string(),
            model: chosen.model.clone(),
            limits,
        };
        let reserve = |usage: &Usage, cost: Option<f64>, is_first: bool| -> Result<Reserved, String> {
            let reserved = match is_first {
                true => self.budget.reserve(&limits, usage, cost, (self.clock)()).map_err(|error| error.to_string())?,
                false => self.budget.reserve_anyway(usage, cost),
            };
            Ok(Box::new(reserved))
        };
        spending.check()?;
        let book = |usage: &Usage, cost: Option<f64>| spending.book(usage, cost);
        let question = ModelQuestion {
            workspace: &turn.workspace,
            excluded: &turn.excluded,
            question: &turn.question,
            chosen,
            transport: &transport,
            book: &book,
            reserve: &reserve,
            spending: &spending,
            price_note: price_note(&chosen.model, chosen.prices.is_some(), &limits),
            due: turn.due,
            started: turn.started,
            queued: turn.queued,
            progress: &turn.progress,
            cancel: &turn.cancel,
        };
        question.answer().await
    }

    /// Finds the root and opens it, off the threads that serve others: a network disk may hang.
    async fn open(&self, question: &Question, due: Instant) -> Result<(Arc<Workspace>, Excluded), Failure> {
        let (registry, home) = (Arc::clone(&self.registry), self.home.clone());
        let (directory, settings) = (question.cwd.clone(), Arc::clone(&question.settings));
        let open = tokio::task::spawn_blocking(move || {
            let root = root::find(&directory, RootRules::new(&settings, home.as_deref())).inspect_err(|error| {
                if matches!(error, RootError::Missing(_)) {
                    registry.close_vanished();
                }
            })?;
            let path = root.path.clone();
            let workspace = registry.get(root).map_err(|source| RootError::Unreadable { path, source })?;
            Ok((workspace, root::excluded(&settings.exclude)))
        });
        match tokio::time::timeout_at(due.into(), open).await {
            Ok(Ok(opened)) => opened.map_err(|error: RootError| invalid(error.to_string())),
            Ok(Err(error)) => {
                tracing::error!("opening a workspace failed: {error}");
                Err(Failure::new(FailureKind::Internal, "opening the workspace failed; the daemon's log says more"))
            }
            Err(_) => {
                Err(busy(format!("`{}` did not answer in time; check the disk it lies on", question.cwd.display())))
            }
        }
    }

    /// Whether background work is going on that a leaving daemon would lose.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.is_observing()
            || self.registry.all().iter().any(|workspace| {
                workspace.admission.busy() != (0, 0)
                    || workspace.retriever.is_working()
                    || workspace.companion.is_summarising()
            })
    }

    /// The open workspaces, sorted by root. May block on the file system.
    #[must_use]
    pub fn status(&self) -> Vec<WorkspaceStatus> {
        self.registry.status()
    }

    /// The root that a directory belongs to, without opening it. May block on the file system.
    ///
    /// # Errors
    /// As when a question is asked there.
    pub fn find_root(&self, directory: &std::path::Path, settings: &Settings) -> Result<root::Root, RootError> {
        root::find(directory, RootRules::new(settings, self.home.as_deref()))
    }
}

/// What is spent on a model for one workspace.
#[derive(Clone)]
struct Spending {
    budget: Budget,
    clock: Clock,
    /// The workspace's path.
    root: String,
    model: String,
    limits: DailyLimits,
}

impl Spending {
    /// Whether more may be spent today; else why not.
    fn check(&self) -> Result<(), String> {
        self.budget.check(&self.limits, (self.clock)()).map_err(|reached| reached.to_string())
    }

    /// Books a request, and says whether another one may follow.
    fn book(&self, usage: &Usage, cost: Option<f64>) -> bool {
        self.budget.book(&self.root, &self.model, usage, cost, (self.clock)());
        self.check().is_ok()
    }
}

/// The most that a person wants to spend in a day.
#[must_use]
pub fn daily_limits(settings: &Settings) -> DailyLimits {
    DailyLimits { usd: settings.daily_budget_usd, tokens: settings.daily_budget_tokens }
}

/// A question whose turn has come.
struct Turn {
    workspace: Arc<Workspace>,
    /// Places below it that are never read.
    excluded: Excluded,
    question: Question,
    started: Instant,
    queued: Duration,
    due: Instant,
    progress: Progress,
    cancel: CancellationToken,
    permit: Permit,
}

impl Turn {
    /// The answer that stands in for a model's.
    async fn instead_of(mut self, provider: &'static str, reason: String, tally: Tally) -> Result<Reply, Failure> {
        self.due = self.due.max(Instant::now() + FALLBACK);
        let why = Why::NotAnswered { provider, reason: reason.clone(), tally };
        match self.offline(why).await {
            Ok(answer) => Ok(Reply { answer, trouble: Some(reason) }),
            // Both reasons: the first is the one to do something about.
            Err(failure) => Err(Failure::new(
                failure.kind,
                format!("{provider} has not answered: {reason}; and without it {}", failure.message),
            )),
        }
    }

    /// The answer without a model.
    async fn offline(self, why: Why) -> Result<Answer, Failure> {
        let search_started = Instant::now();
        let Self { workspace, excluded, question, started, queued, due, progress, cancel, permit } = self;
        let (outcome, fewer_places, index) = {
            let (workspace, question) = (Arc::clone(&workspace), question.clone());
            let search = move || {
                // Held by the work itself: a question whose asker left still takes its place until it ends.
                let _permit = permit;
                let limits = limits_of(&question, due);
                let told = |message: &str| progress(message.to_owned());
                let outcome = workspace.retriever.search_without(&excluded, &question.text, limits, &told, &cancel);
                let fewer_places = limits.max_places < PLACES_MAX
                    && outcome.as_ref().is_ok_and(|outcome| outcome.places.len() >= limits.max_places);
                (outcome, fewer_places, workspace.retriever.status().state)
            };
            tokio::task::spawn_blocking(search).await.map_err(|error| {
                tracing::error!("the search failed: {error}");
                Failure::new(FailureKind::Internal, "the search failed unexpectedly; the daemon's log says more")
            })?
        };
        let outcome: SearchOutcome = outcome.map_err(|error| search_failed(&error))?;
        workspace.answered.fetch_add(1, Ordering::Relaxed);
        let timing = Timing { total: started.elapsed(), queued, search: search_started.elapsed() };
        Ok(offline::render(&offline::Input {
            workspace: &workspace.root.path,
            outcome: &outcome,
            index: &index,
            fewer_places,
            max_answer_tokens: question.max_answer_tokens,
            why: &why,
            notes: &question.notes,
            timing,
        }))
    }
}

fn search_failed(error: &SearchError) -> Failure {
    match error {
        SearchError::NothingToSearch | SearchError::Workspace { .. } => invalid(error.to_string()),
        SearchError::Cancelled => cancelled(),
    }
}

/// The most places of an answer, however long it may be.
const PLACES_MAX: usize = 8;

/// How much the search may find: what fits into the answer, and a few places more to choose from.
fn limits_of(question: &Question, due: Instant) -> SearchLimits {
    const PLACES_MIN: usize = 2;
    // A place of 60 lines takes about this many tokens.
    const TOKENS_A_PLACE: usize = 500;
    let tokens = question.max_answer_tokens as usize;
    SearchLimits {
        deadline: due.checked_sub(RESERVE).unwrap_or(due),
        max_places: (tokens / TOKENS_A_PLACE).clamp(PLACES_MIN, PLACES_MAX),
        max_excerpt_chars: tokens.saturating_mul(offline::BYTES_A_TOKEN),
    }
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::InvalidRequest, message)
}

fn busy(message: String) -> Failure {
    Failure::new(FailureKind::Busy, message)
}

fn cancelled() -> Failure {
    Failure::new(FailureKind::InvalidRequest, "the question was cancelled")
}
