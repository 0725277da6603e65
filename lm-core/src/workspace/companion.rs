//! The conversation that a workspace has with its model, kept from question to question.
//!
//! It begins anew, with the newest answers carried over, when the model or its key changes (caches and
//! thoughts belong to one model) and when the window fills up. Not allowed here: asking the model.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use lm_proto::message::ObservationKind;
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{answer::WindowFill, inquiry::prompt_window, prompts, provider::ChosenModel},
    files::{Excluded, WorkspaceFiles},
    llm::ModelSettings,
    memory::{
        log::{Epoch, Fork, Log, Retain, Source},
        tokens::TokenEstimate,
    },
    settings::Settings,
    tools::{GitUser, LeftBehind, Tools, directory_tree},
};

/// How long the listing of a tree may take; what is not listed by then is found with the tools.
const TREE_TIME: Duration = Duration::from_secs(2);

/// A conversation and what it is held with.
#[derive(Debug)]
pub(super) struct Companion {
    root: PathBuf,
    git_user: GitUser,
    git_left_behind: LeftBehind,
    key: String,
    state: Mutex<State>,
    /// Held by who begins a conversation, so that questions that arrive together share one.
    beginning: tokio::sync::Mutex<()>,
    observed: Mutex<Observed>,
}

/// Placeholder, to be replaced by the manifest of known files: the paths that were observed, bounded.
#[derive(Default, Debug)]
struct Observed(BTreeSet<String>);

/// More files are not counted.
const OBSERVED_MAX: usize = 10_000;

#[derive(Default)]
struct State {
    current: Option<Current>,
    /// By model.
    estimates: BTreeMap<String, TokenEstimate>,
    fill: WindowFill,
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("State").field("fill", &self.fill).finish_non_exhaustive()
    }
}

struct Current {
    with: ModelSettings,
    log: Log,
    system: Arc<str>,
    name: Arc<str>,
}

/// A view of the conversation for one question.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) fork: Fork,
    pub(super) system: Arc<str>,
    /// Names the conversation in requests.
    pub(super) name: Arc<str>,
    pub(super) estimate: TokenEstimate,
}

/// What a report says about a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConversationStatus {
    /// Answers that it holds.
    pub answers: usize,
    /// How often it has begun anew.
    pub epoch: u64,
    /// How full the window was at the last question.
    pub fill: WindowFill,
}

impl Companion {
    /// None was begun yet.
    pub(super) fn new(root: &Path, key: &str) -> Self {
        Self {
            root: root.to_path_buf(),
            git_user: GitUser::from_environment(),
            git_left_behind: LeftBehind::default(),
            key: key.to_owned(),
            state: Mutex::default(),
            beginning: tokio::sync::Mutex::default(),
            observed: Mutex::default(),
        }
    }

    /// Placeholder, to be replaced by learning from the file: notes its path, relative to the root.
    pub(super) fn observed(&self, _files: &WorkspaceFiles, path: &str, _kind: ObservationKind, _settings: &Settings) {
        let mut observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        if observed.0.len() < OBSERVED_MAX {
            observed.0.insert(path.to_owned());
        }
    }

    /// How many files were observed.
    pub(super) fn observed_files(&self) -> usize {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner).0.len()
    }

    /// The tools for one question, and the files they look at. Not kept: an open directory cannot be
    /// renamed on Windows.
    pub(super) fn tools(&self, excluded: &Excluded) -> Result<(Arc<WorkspaceFiles>, Arc<Tools>), String> {
        let files = WorkspaceFiles::open(&self.root).map_err(|error| error.to_string())?;
        let files = Arc::new(files.leaving_out(excluded));
        let tools = Arc::new(Tools::sharing(Arc::clone(&files), self.git_user.clone(), self.git_left_behind.clone()));
        Ok((files, tools))
    }

    /// A view of the conversation with `chosen`, which begins here if there is none.
    pub(super) async fn fork(
        &self,
        chosen: &ChosenModel,
        settings: &Settings,
        files: &Arc<WorkspaceFiles>,
        due: Instant,
        cancel: &CancellationToken,
    ) -> Result<Opened, String> {
        let _one_begins = self.beginning.lock().await;
        if let Some(opened) = self.continued(chosen, settings) {
            return Ok(opened);
        }
        let estimate = self.estimate(chosen);
        let tree_tokens = chosen.window as f64 * settings.dirtree_fraction;
        let tree_characters = estimate.bytes(tree_tokens as u64);
        let files = Arc::clone(files);
        let (deadline, cancel) = ((Instant::now() + TREE_TIME).min(due), cancel.clone());
        let listing =
            tokio::task::spawn_blocking(move || directory_tree(&files, tree_characters, deadline, &cancel)).await;
        let tree = listing.map_err(|error| format!("listing the workspace broke off: {error}"))??;
        let name = self.root.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let system: Arc<str> = prompts::system(&name, &tree.text, tree.complete).into();
        let floor = chosen.window as f64 * settings.compaction_floor;

        let mut state = self.lock();
        let log = match state.current.take() {
            Some(last) => last.log.next_epoch(estimate.bytes(floor as u64)),
            None => Log::new(Epoch::default(), Vec::new()),
        };
        tracing::info!(epoch = log.epoch().0, answers = log.exchanges().len(), "a conversation begins");
        let name = self.name(log.epoch());
        let opened = Opened { fork: log.fork(), system: Arc::clone(&system), name: Arc::clone(&name), estimate };
        state.current = Some(Current { with: chosen.settings.clone(), log, system, name });
        Ok(opened)
    }

    /// A view of the conversation as it is, unless it has to begin anew.
    fn continued(&self, chosen: &ChosenModel, settings: &Settings) -> Option<Opened> {
        let estimate = self.estimate(chosen);
        let state = self.lock();
        let current = state.current.as_ref().filter(|current| current.with == chosen.settings)?;
        let tokens = estimate.tokens(current.system.len() + current.log.bytes());
        // Of what a prompt may fill: with a small window the answer's share is most of the rest.
        let fits = prompt_window(chosen.window, settings.max_answer_tokens) as f64;
        if tokens as f64 > fits * settings.compaction_threshold {
            tracing::info!(tokens, window = chosen.window, "the window is full");
            return None;
        }
        Some(Opened {
            fork: current.log.fork(),
            system: Arc::clone(&current.system),
            name: Arc::clone(&current.name),
            estimate,
        })
    }

    fn estimate(&self, chosen: &ChosenModel) -> TokenEstimate {
        let known = self.lock().estimates.get(&chosen.model).cloned();
        known.unwrap_or_else(|| TokenEstimate::of_model(&chosen.model))
    }

    /// Keeps what a fork of the conversation called `name` said. Where another one has begun meanwhile,
    /// with another model perhaps, question and answer are kept in that: tool rounds belong to their own.
    pub(super) fn commit(&self, name: &str, fork: Fork, retain: Retain, sources: BTreeSet<Source>) {
        let mut state = self.lock();
        let Some(current) = &mut state.current else { return };
        let retain = if *current.name == *name { retain } else { Retain::None };
        match current.log.commit(fork, retain, sources.into_iter().collect()) {
            Some(commit) => tracing::debug!(?commit, "an answer was kept"),
            None => tracing::error!("a conversation without an answer was not kept"),
        }
    }

    /// Keeps what was learned about the model.
    pub(super) fn learned(&self, chosen: &ChosenModel, estimate: TokenEstimate, fill: WindowFill) {
        let mut state = self.lock();
        state.estimates.insert(chosen.model.clone(), estimate);
        state.fill = fill;
    }

    /// Lets the conversation called `name` begin anew at the next question: it did not fit.
    pub(super) fn shed(&self, name: &str, bytes: usize) {
        let mut state = self.lock();
        if let Some(current) = state.current.as_mut().filter(|current| *current.name == *name) {
            current.log = current.log.next_epoch(bytes);
            current.name = self.name(current.log.epoch());
        }
    }

    pub(super) fn status(&self) -> ConversationStatus {
        let state = self.lock();
        let Some(current) = &state.current else { return ConversationStatus::default() };
        ConversationStatus { answers: current.log.exchanges().len(), epoch: current.log.epoch().0, fill: state.fill }
    }

    /// A name that no other conversation has.
    fn name(&self, epoch: Epoch) -> Arc<str> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let key = self.key.get(..16).unwrap_or(&self.key);
        format!("lm-{key}-{}-{:x}", epoch.0, now.as_micros()).into()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
