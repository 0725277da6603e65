//! From a request to its reply: which part of the daemon answers what.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use lm_proto::{
    DataDirectory,
    message::{Ask, Failure, FailureKind, Observation, Reply, Report, Request, SessionEnvironment, inherited_keys},
};
use tokio_util::sync::CancellationToken;

use super::{
    clock, doctor, memory_report, people_report,
    provider_report::chosen_for_report,
    reports::{self, Subject},
    status::{Ending, Status},
    trial::Trial,
};
use crate::{
    agent::provider,
    budget::Budget,
    llm::pricing::PriceOverrides,
    settings::{Changed, Problem, Provider, SettingsStore, show},
    workspace::{Clock, PauseError, Progress, Question, Workspaces, daily_limits, root::RootError},
};

/// While the file named by this variable exists, questions wait before they are answered; it is
/// how tests have one in flight (`docs/testing.md`).
pub const HOLD_FILE_VARIABLE: &str = "LIVE_MEMORY_TEST_HOLD_FILE";

/// How often the hold file is looked for.
const HOLD_POLL: Duration = Duration::from_millis(10);

/// More requests than this at once are refused: what grows without end ends badly.
const RUNNING_MAX: usize = 100;

/// A request may ask for less or more than the settings say, within these bounds.
const TIMEOUT_S: std::ops::RangeInclusive<u32> = 1..=1_800;
const ANSWER_TOKENS: std::ops::RangeInclusive<u32> = 256..=32_000;

/// Settings that the log is opened with.
const AT_START: &[&str] = &["log_level", "log_file", "log_max_bytes", "log_backups"];

/// More problems with settings are not repeated in each answer.
const NOTES_MAX: usize = 3;

/// Everything that requests are answered from. Cloning gives another handle on the same.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it holds a clock")]
pub struct Dispatcher {
    data: DataDirectory,
    workspaces: Arc<Workspaces>,
    settings: Arc<SettingsStore>,
    status: Arc<Status>,
    budget: Budget,
    clock: Clock,
    hold_file: Option<PathBuf>,
}

impl Dispatcher {
    /// Answers from the workspaces and settings of a data directory.
    #[must_use]
    pub fn new(data: DataDirectory, settings: Arc<SettingsStore>, status: Arc<Status>) -> Self {
        let clock = clock::clock();
        let budget = Budget::open(&data, clock());
        let home = settings.home().map(Into::into);
        let workspaces = Arc::new(Workspaces::new(data.clone(), home, budget.clone(), Arc::clone(&clock)));
        let hold_file = std::env::var_os(HOLD_FILE_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { data, workspaces, settings, status, budget, clock, hold_file }
    }

    /// The daemon's counters.
    #[must_use]
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// How long the daemon stays when nothing happens; zero is for ever. May change while it runs.
    #[must_use]
    pub fn idle_exit(&self) -> Duration {
        Duration::from_secs(self.settings.for_daemon().idle_exit_s)
    }

    /// Whether work goes on that belongs to no request and that a leaving daemon would lose.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.workspaces.is_working()
    }

    /// Writes what the memories have learned and not written. Blocks on the file system.
    pub fn save(&self) {
        self.workspaces.save();
    }

    /// Answers one request. Dropping the future and cancelling the token both end the work.
    ///
    /// A question counts from this call on, also where the future is dropped before it ever ran.
    pub fn reply(
        &self,
        request: Request,
        progress: Progress,
        cancel: CancellationToken,
    ) -> impl Future<Output = Result<Reply, Failure>> + Send + use<> {
        let question = matches!(request, Request::Ask(_)).then(|| self.status.question());
        let this = self.clone();
        async move {
            let outcome = this.perform(request, progress, cancel.clone()).await;
            if let Some(question) = question {
                question.end(match &outcome {
                    Ok(_) => Ending::Answered,
                    // Work that has noticed the cancellation ends with some failure that nobody is told.
                    Err(_) if cancel.is_cancelled() => Ending::Cancelled,
                    Err(failure) if matches!(failure.kind, FailureKind::InvalidRequest | FailureKind::Busy) => {
                        Ending::Refused
                    }
                    Err(failure) => Ending::Failed(failure.message.clone()),
                });
            }
            outcome
        }
    }

    async fn perform(&self, request: Request, progress: Progress, cancel: CancellationToken) -> Result<Reply, Failure> {
        if self.status.running() > RUNNING_MAX {
            return Err(Failure::new(
                FailureKind::Busy,
                format!("{RUNNING_MAX} requests are already being worked on; ask again when some have finished"),
            ));
        }
        match request {
            Request::Ask(ask) => self.answer(ask, progress, cancel).await,
            // All of these look at files.
            Request::Stats { cwd, environment } => self.blocking(move |this| Ok(this.stats(&cwd, &environment))).await,
            Request::Doctor { cwd, environment } => {
                self.blocking(move |this| Ok(this.doctor(&cwd, &environment))).await
            }
            Request::ConfigShow { environment } => self.blocking(move |this| Ok(this.config_show(&environment))).await,
            Request::ConfigSet { changes, environment } => {
                self.blocking(move |this| this.config_change(this.settings.set(&changes, &environment))).await
            }
            Request::ConfigUnset { names, environment } => {
                self.blocking(move |this| this.config_change(this.settings.unset(&names, &environment))).await
            }
            Request::TryProvider { changes, environment } => {
                self.try_provider(changes, environment, cancel).await.map(Reply::Report)
            }
            Request::Observe(observation) => {
                self.observe(observation);
                Ok(Reply::Noted)
            }
            Request::Empty { everywhere: true, .. } => self.blocking(|this| Ok(this.empty_all())).await,
            Request::Empty { cwd, environment, .. } => self.blocking(move |this| this.empty(&cwd, &environment)).await,
            Request::Reset { cwd, environment } => self.blocking(move |this| this.reset(&cwd, &environment)).await,
            Request::Pause { cwd, paused, environment } => {
                self.blocking(move |this| this.pause(&cwd, paused, &environment)).await
            }
            Request::Remember { .. }
            | Request::Forget { .. }
            | Request::Pin { .. }
            | Request::Ledger { .. }
            | Request::History { .. }
            | Request::Export { .. }
            | Request::Import { .. } => {
                self.blocking(move |this| people_report::by_hand(&this.workspaces, &this.settings, request)).await
            }
        }
    }

    async fn blocking(
        &self,
        work: impl FnOnce(&Self) -> Result<Report, Failure> + Send + 'static,
    ) -> Result<Reply, Failure> {
        let this = self.clone();
        match tokio::task::spawn_blocking(move || work(&this)).await {
            Ok(report) => report.map(Reply::Report),
            Err(error) => {
                tracing::error!(%error, "a report failed");
                Err(Failure::new(FailureKind::Internal, "the report failed; the daemon's log says more"))
            }
        }
    }

    async fn answer(&self, ask: Ask, progress: Progress, cancel: CancellationToken) -> Result<Reply, Failure> {
        tracing::info!(cwd = ask.cwd, "a question arrived");
        let asked_at = Instant::now();
        let resolved = self.settings.for_request(&ask.environment);
        let model = provider::choose(&resolved, &ask.environment);
        self.hold(&progress, &cancel).await?;
        let notes = notes(&resolved.problems);
        let settings = Arc::new(resolved.settings);
        let clamped = |given: Option<u32>, range: &std::ops::RangeInclusive<u32>, default: u32| {
            given.map_or(default, |given| given.clamp(*range.start(), *range.end()))
        };
        let limit = Duration::from_secs(clamped(ask.timeout_s, &TIMEOUT_S, settings.default_timeout_s).into());
        let question = Question {
            text: ask.question,
            cwd: ask.cwd.into(),
            max_answer_tokens: clamped(ask.max_answer_tokens, &ANSWER_TOKENS, settings.max_answer_tokens),
            time_left: limit.saturating_sub(asked_at.elapsed()),
            settings,
            model,
            notes,
        };
        let reply = self.workspaces.ask(question, progress, cancel).await?;
        if let Some(trouble) = reply.trouble {
            self.status.note_error(trouble);
        }
        Ok(Reply::Answer(reply.answer))
    }

    /// Takes up an observation and returns at once.
    pub fn observe(&self, observation: Observation) {
        let settings = self.settings.for_request(&observation.environment).settings;
        self.workspaces.observe(observation, settings);
    }

    /// Whether observations are still to be taken in.
    #[must_use]
    pub fn is_observing(&self) -> bool {
        self.workspaces.is_observing()
    }

    fn empty(&self, cwd: &str, environment: &SessionEnvironment) -> Result<Report, Failure> {
        let settings = self.settings.for_request(environment).settings;
        let forgotten = self.workspaces.empty(cwd.as_ref(), &settings).map_err(|error| refused(&error))?;
        tracing::info!(key = forgotten.key, "a workspace was emptied");
        Ok(memory_report::emptied(&forgotten))
    }

    fn empty_all(&self) -> Report {
        let forgotten = self.workspaces.empty_all();
        tracing::info!(workspaces = forgotten.len(), "all workspaces were emptied");
        memory_report::all_emptied(&forgotten)
    }

    fn reset(&self, cwd: &str, environment: &SessionEnvironment) -> Result<Report, Failure> {
        let resolved = self.settings.for_request(environment);
        // Where it cannot be followed the next question says why.
        let chosen = provider::choose(&resolved, environment).ok().flatten();
        let reset = self.workspaces.reset(cwd.as_ref(), &resolved.settings, chosen.as_ref());
        let (forgotten, begun) = reset.map_err(|error| refused(&error))?;
        tracing::info!(key = forgotten.key, "a workspace was reset");
        Ok(memory_report::reset(&forgotten, &begun))
    }

    fn pause(&self, cwd: &str, paused: bool, environment: &SessionEnvironment) -> Result<Report, Failure> {
        let settings = self.settings.for_request(environment).settings;
        let outcome = self.workspaces.pause(cwd.as_ref(), paused, &settings).map_err(|error| match error {
            PauseError::Root(error) => refused(&error),
            PauseError::Kept(_) => Failure::new(FailureKind::Internal, error.to_string()),
        })?;
        tracing::info!(paused, "learning was paused or goes on");
        Ok(memory_report::paused(&outcome, settings.passive_ingestion))
    }

    fn stats(&self, cwd: &str, environment: &SessionEnvironment) -> Report {
        self.about(cwd, environment, reports::stats)
    }

    fn doctor(&self, cwd: &str, environment: &SessionEnvironment) -> Report {
        let config_error = self.settings.error();
        self.about(cwd, environment, |subject| doctor::doctor(subject, config_error.as_ref()))
    }

    /// Collects what a report is made of.
    fn about(
        &self,
        cwd: &str,
        environment: &SessionEnvironment,
        report: impl FnOnce(&Subject<'_>) -> Report,
    ) -> Report {
        let resolved = self.settings.for_request(environment);
        let root = (!cwd.is_empty()).then(|| {
            let root = self.workspaces.find_root(cwd.as_ref(), &resolved.settings);
            root.map(|root| root.path.display().to_string()).map_err(|error| error.to_string())
        });
        let mut workspaces = self.workspaces.status();
        if let Some(Ok(root)) = &root {
            // Stable: the others stay sorted.
            workspaces.sort_by_key(|workspace| workspace.root.to_str() != Some(root));
        }
        let now = (self.clock)();
        report(&Subject {
            status: &self.status,
            data: &self.data,
            resolved: &resolved,
            config_file: self.settings.path(),
            workspaces: &workspaces,
            root: root.as_ref(),
            model: &chosen_for_report(&resolved, environment),
            inherited_keys: &inherited_keys(environment),
            spent: &self.budget.spent(now),
            observations: self.workspaces.observations(),
            now,
        })
    }

    fn config_show(&self, environment: &SessionEnvironment) -> Report {
        let resolved = self.settings.for_request(environment);
        let file = self.settings.path().display().to_string();
        Report {
            text: show::text(&resolved, &file),
            json: show::json(&resolved, &file).to_string(),
            healthy: self.settings.error().is_none(),
        }
    }

    fn config_change(&self, changed: Result<Changed, String>) -> Result<Report, Failure> {
        let changed = changed.map_err(|refusal| Failure::new(FailureKind::InvalidRequest, refusal))?;
        for row in &changed.rows {
            tracing::info!(setting = row.key, "changed in config.json");
        }
        Ok(Report {
            text: show::changed_text(&changed, AT_START),
            json: show::changed_json(&changed, &self.settings.path().display().to_string()).to_string(),
            healthy: true,
        })
    }

    async fn try_provider(
        &self,
        changes: Vec<(String, String)>,
        environment: SessionEnvironment,
        cancel: CancellationToken,
    ) -> Result<Report, Failure> {
        let refused = |reason: String| Failure::new(FailureKind::InvalidRequest, reason);
        let mut resolved = self.settings.preview(&changes).map_err(refused)?;
        let settings = &mut resolved.settings;
        let may_go_unnamed = settings.provider == Provider::Openai && settings.model.is_none();
        let (chosen, names_model) = match provider::choose(&resolved, &environment) {
            // The server may be asked which models it has.
            Err(_) if may_go_unnamed => {
                resolved.settings.model = Some("any".into());
                (provider::choose(&resolved, &environment), false)
            }
            chosen => (chosen, true),
        };
        let Some(chosen) = chosen.map_err(refused)? else {
            return Err(refused("offline answers need no provider, so there is nothing to try".into()));
        };
        let address = chosen.address();
        tracing::info!(address, "trying a provider");
        let trial = Trial {
            chosen,
            names_model,
            own_prices: provider::price_overrides(&resolved.settings) != PriceOverrides::default(),
            limits: daily_limits(&resolved.settings),
            today: self.budget.spent((self.clock)()).today,
        };
        Ok(trial.run(self.workspaces.transport(), cancel).await)
    }

    async fn hold(&self, progress: &Progress, cancel: &CancellationToken) -> Result<(), Failure> {
        let Some(file) = &self.hold_file else { return Ok(()) };
        if file.exists() {
            progress("held".to_owned());
        }
        while file.exists() {
            tokio::select! {
                () = cancel.cancelled() => return Err(Failure::new(FailureKind::Draining, "cancelled")),
                () = tokio::time::sleep(HOLD_POLL) => {}
            }
        }
        Ok(())
    }
}

fn refused(error: &RootError) -> Failure {
    Failure::new(FailureKind::InvalidRequest, error.to_string())
}

/// What an answer says about settings that were not accepted.
fn notes(problems: &[Problem]) -> Vec<String> {
    let mut notes: Vec<_> = problems.iter().take(NOTES_MAX).map(ToString::to_string).collect();
    if problems.len() > NOTES_MAX {
        notes.push(format!("{} more problems with settings; `lm-shim stats` lists all", problems.len() - NOTES_MAX));
    }
    notes
}
