//! What a workspace remembers, kept from question to question and from daemon to daemon.
//!
//! The conversation with the model is the log; it begins anew, with what is known and the newest answers
//! carried over, when the model or its key changes (caches and thoughts belong to one model) and when the
//! window fills up. Beside it stand the files that are known, the facts and the archive (`knowledge`). All
//! are kept on the disk by the [`Store`]: an answer before it is given, facts before the conversation that
//! they come from is left, the rest a little later. Not allowed here: asking the model.
//!
//! Two locks, always in this order: the store's, held while something is written, and the state's, held
//! for moments only. So what is on the disk is in the order of what is in memory.

mod knowledge;
mod luggage;
mod people;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub(super) use self::knowledge::Material;
use self::knowledge::{ARCHIVE_BYTES_MAX, Summaries, Summarising};
pub use self::{
    luggage::{Exported, Imported},
    people::{KnownFact, PartlyForgotten, Remembered},
};
use super::{
    model_answer::TOOL_SPECS,
    preload::{self, Preloaded},
    recall::Recollection,
    store::{EpochHeader, KeptEpoch, Opened as OpenedStore, Store, StoreError},
    texts::Texts,
};
use crate::{
    agent::{answer::WindowFill, inquiry::prompt_window, prefix_gate::PrefixGate, prompts, provider::ChosenModel},
    files::{Excluded, FileStamp, FileText, WorkspaceFiles},
    memory::{
        archive::{Archive, Entry, PastAnswer},
        compaction::{self, Moment, Policy, Sizes, Step},
        ledger::{Ledger, pattern::Pattern},
        log::{Epoch, Exchange, Fork, Log, NextEpoch, Provenance, Retain, Source},
        manifest::{Gap, Look, Manifest},
        tokens::TokenEstimate,
        told::Standing,
    },
    settings::Settings,
    tools::{GitUser, LeftBehind, READ_CAP, Tools, directory_tree},
};

/// How long the listing of a tree may take; what is not listed by then is found with the tools.
const TREE_TIME: Duration = Duration::from_secs(2);
/// How long looking at the files that facts rest on may take when a conversation begins.
const FACTS_TIME: Duration = Duration::from_secs(2);
/// After so many seconds without a request a provider's cache entry is gone.
const CACHE_SECONDS: u64 = 300;
/// Of what a prompt may fill, how much a question may find taken while a summary is still being written.
const WHILE_SUMMARISING: f64 = 0.93;

/// What is remembered of one workspace.
#[derive(Debug)]
pub(super) struct Companion {
    root: PathBuf,
    git_user: GitUser,
    git_left_behind: LeftBehind,
    key: String,
    store: Mutex<Store>,
    state: Mutex<State>,
    texts: Texts,
    /// Held by who begins a conversation, so that questions that arrive together share one.
    beginning: tokio::sync::Mutex<()>,
    summarising: Summarising,
}

struct State {
    current: Option<Current>,
    /// The files that are known.
    manifest: Manifest<FileStamp>,
    /// What is known.
    ledger: Ledger,
    /// What is not in the window any more.
    archive: Archive,
    /// Whether the archive on the disk is not the one here.
    archive_is_behind: bool,
    summaries: Summaries,
    /// Files that a person had forgotten, which stay so until they are seen anew.
    forgotten_files: BTreeSet<Arc<str>>,
    /// How often something was forgotten since the workspace was opened.
    forgettings: u64,
    /// What was, to keep it from coming back with answers that were under way.
    recently_forgotten: Vec<Pattern>,
    /// Why the window is too small, if it is.
    misfit: Option<String>,
    /// By model.
    estimates: BTreeMap<String, TokenEstimate>,
    fill: WindowFill,
    /// What was not preloaded, and why.
    skipped: Vec<String>,
    /// What was found on the disk and could not be used.
    set_aside: Vec<String>,
    /// Why nothing is written at present.
    unwritten: Option<String>,
    /// Something that belongs into the snapshot has changed since the last one.
    is_unsaved: bool,
    /// Everything was to be forgotten: whatever is still under way has nowhere to go.
    is_forgotten: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            current: None,
            manifest: Manifest::default(),
            ledger: Ledger::default(),
            archive: Archive::with_room(ARCHIVE_BYTES_MAX),
            archive_is_behind: false,
            summaries: Summaries::default(),
            forgotten_files: BTreeSet::new(),
            forgettings: 0,
            recently_forgotten: Vec::new(),
            misfit: None,
            estimates: BTreeMap::new(),
            fill: WindowFill::default(),
            skipped: Vec::new(),
            set_aside: Vec::new(),
            unwritten: None,
            is_unsaved: false,
            is_forgotten: false,
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("State").field("fill", &self.fill).finish_non_exhaustive()
    }
}

struct Current {
    /// Tells the model and the key apart from others; see [`crate::llm::ModelSettings::fingerprint`].
    with: String,
    log: Log,
    system: Arc<str>,
    name: Arc<str>,
    gate: Arc<PrefixGate>,
    /// How many bytes of answers the next epoch takes over, if it has to begin.
    ended: Option<usize>,
    /// How many of its exchanges are summed up.
    summarised: Option<usize>,
    /// When the last answer came, in seconds since 1970; the provider's cache then held the conversation.
    answered_at: Option<u64>,
}

/// What is kept beside the log.
#[derive(Serialize, Deserialize)]
struct Snapshot {
    manifest: Manifest<FileStamp>,
    /// Corrections of token estimates by model.
    corrections: BTreeMap<String, f64>,
    #[serde(default)]
    ledger: Ledger,
    #[serde(default)]
    summaries: Summaries,
    /// The conversation that is summed up, and how many of its exchanges.
    #[serde(default)]
    summarised: Option<(String, usize)>,
    #[serde(default)]
    forgotten_files: BTreeSet<Arc<str>>,
}

/// A view of the conversation for one question.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) fork: Fork,
    pub(super) system: Arc<str>,
    /// Names the conversation in requests.
    pub(super) name: Arc<str>,
    pub(super) estimate: TokenEstimate,
    pub(super) gate: Arc<PrefixGate>,
}

/// What a report says about a memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryStatus {
    /// Answers that the conversation holds.
    pub answers: usize,
    /// How often it has begun anew.
    pub epoch: u64,
    /// How full the window was at the last question.
    pub fill: WindowFill,
    /// Files that are known.
    pub known_files: usize,
    /// Those of them that the coding agent was seen to read or change.
    pub observed_files: usize,
    /// Observations of the coding agent's deeds so far.
    pub observations: u64,
    /// Documents that the conversation began with.
    pub preloaded: Vec<String>,
    /// Documents that were not preloaded, with the reason.
    pub skipped: Vec<String>,
    /// What of it could not be read and lies in quarantine, and why nothing is written, if so.
    pub troubles: Vec<String>,
    /// Facts that are known.
    pub facts: usize,
    /// Those of them that rest on files which have changed since, as far as is known.
    pub stale_facts: usize,
    /// What can be found with recall besides.
    pub archived: usize,
    /// What the archive had no room for.
    pub archive_dropped: u64,
    /// How often a conversation was summed up.
    pub compactions: u64,
    /// How often one began anew without that, since the window was full.
    pub shed: u64,
    /// Notes that were no facts: instructions, or without a file that was shown.
    pub dropped_notes: u64,
    /// Why the last summary failed, if it did.
    pub summary_failure: Option<String>,
    /// Whether one is being written.
    pub summing_up: bool,
}

impl Companion {
    /// Takes up what an earlier daemon left in `directory`. Blocks on the file system.
    pub(super) fn open(root: &Path, key: &str, directory: &Path) -> Self {
        let opened: OpenedStore<Snapshot> = Store::open(directory, root, key);
        let OpenedStore { mut store, epoch, snapshot, mut set_aside } = opened;
        let archived: Vec<Entry> = store.load_archive();
        set_aside.extend(store.take_set_aside());
        let mut state = State {
            set_aside: set_aside.iter().map(ToString::to_string).collect(),
            current: epoch.map(Current::restore),
            ..State::default()
        };
        archived.into_iter().for_each(|entry| state.archive.add(entry));
        if let Some(snapshot) = snapshot {
            state.manifest = snapshot.manifest;
            state.ledger = snapshot.ledger;
            state.summaries = snapshot.summaries;
            state.forgotten_files = snapshot.forgotten_files;
            if let (Some(current), Some((name, count))) = (&mut state.current, snapshot.summarised)
                && *current.name == name
            {
                current.summarised = Some(count.min(current.log.exchanges().len()));
            }
            for (model, correction) in snapshot.corrections {
                let estimate = TokenEstimate::of_model(&model).with_correction(correction);
                state.estimates.insert(model, estimate);
            }
        }
        Self {
            root: root.to_path_buf(),
            git_user: GitUser::from_environment(),
            git_left_behind: LeftBehind::default(),
            key: key.to_owned(),
            store: Mutex::new(store),
            state: Mutex::new(state),
            texts: Texts::default(),
            beginning: tokio::sync::Mutex::default(),
            summarising: Summarising::default(),
        }
    }

    /// The tools for one question, and the files they look at. Not kept: an open directory cannot be
    /// renamed on Windows.
    pub(super) fn tools(self: &Arc<Self>, excluded: &Excluded) -> Result<(Arc<WorkspaceFiles>, Arc<Tools>), String> {
        let files = WorkspaceFiles::open(&self.root).map_err(|error| error.to_string())?;
        let files = Arc::new(files.leaving_out(excluded));
        let tools = Tools::sharing(Arc::clone(&files), self.git_user.clone(), self.git_left_behind.clone());
        let memory = Recollection { companion: Arc::clone(self), files: Arc::clone(&files) };
        Ok((files, Arc::new(tools.remembering(Arc::new(memory)))))
    }

    /// A view of the conversation with `chosen`, which begins here if there is none.
    pub(super) async fn fork(
        self: &Arc<Self>,
        chosen: &ChosenModel,
        settings: &Arc<Settings>,
        files: &Arc<WorkspaceFiles>,
        due: Instant,
        cancel: &CancellationToken,
    ) -> Result<Opened, String> {
        let _one_begins = self.beginning.lock().await;
        if let Some(opened) = self.continued(chosen, settings) {
            return Ok(opened);
        }
        let (this, chosen, settings, files) =
            (Arc::clone(self), chosen.clone(), Arc::clone(settings), Arc::clone(files));
        let (deadline, cancel) = ((Instant::now() + TREE_TIME).min(due), cancel.clone());
        let begun =
            tokio::task::spawn_blocking(move || this.begin(&chosen, &settings, &files, deadline, &cancel)).await;
        begun.map_err(|error| format!("beginning a conversation broke off: {error}"))?
    }

    /// Begins a conversation, so that the first question finds it there. Blocks on the file system.
    pub(super) fn begin_now(
        &self,
        chosen: &ChosenModel,
        settings: &Settings,
        files: &WorkspaceFiles,
        deadline: Instant,
    ) {
        let _one_begins = self.beginning.blocking_lock();
        if let Err(error) = self.begin(chosen, settings, files, deadline, &CancellationToken::new()) {
            tracing::warn!(root = %self.root.display(), error, "a conversation cannot begin yet");
        }
    }

    /// Begins a conversation, or the next epoch of the one there was.
    fn begin(
        &self,
        chosen: &ChosenModel,
        settings: &Settings,
        files: &WorkspaceFiles,
        deadline: Instant,
        cancel: &CancellationToken,
    ) -> Result<Opened, String> {
        let estimate = self.estimate(chosen);
        let policy = policy(settings);
        let window = prompt_window(chosen.window, settings.max_answer_tokens);
        let root_name = self.root.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let floor = estimate.bytes((chosen.window as f64 * settings.compaction_floor) as u64);
        let forgotten = self.state().forgotten_files.clone();
        let Preloaded { mut opening, documents, skipped } =
            preload::load(files, settings, floor, &forgotten, deadline, cancel);
        // The tree gives way where the rest of what always stands in a prompt takes its room.
        let documents_bytes: usize = documents.iter().map(|(_, file)| file.text.len()).sum();
        let without_tree = prompts::system(&root_name, "", false).len() + tool_bytes() + documents_bytes;
        let share = settings.dirtree_fraction * chosen.window as f64 / window.max(1) as f64;
        let tree_tokens = compaction::tree_tokens(window, share, estimate.tokens(without_tree), &policy);
        let tree = directory_tree(files, estimate.bytes(tree_tokens), deadline, cancel)?;
        let system: Arc<str> = prompts::system(&root_name, &tree.text, tree.complete).into();
        let carried = estimate.bytes(compaction::floor_tokens(window, policy.floor));
        let knowledge = compaction::carried(carried).knowledge;
        let known = self.look_at_facts(files, Instant::now() + FACTS_TIME, cancel);

        let mut store = self.store();
        let now = SystemTime::now();
        let (log, name, gate, left) = {
            let mut state = self.state();
            let block = state.ledger.block(&known, knowledge);
            let answers = carried.saturating_sub(block.text.len());
            state.add_notes(&mut opening, block);
            let is_with = |current: &Current| current.with == chosen.settings.fingerprint(&current.name);
            let (log, left) = match state.current.take() {
                Some(last) => {
                    let is_full = is_with(&last);
                    let was_whole = last.ended != Some(usize::MAX);
                    state.summaries.shed += u64::from(is_full && was_whole && last.summarised.is_none());
                    // Without a summary, and for another model, only answers are of use.
                    let all = last.log.exchanges().len();
                    let summarised = last.summarised.filter(|_| is_full).unwrap_or(all);
                    let bytes = last.ended.map_or(answers, |bytes| bytes.min(answers));
                    let NextEpoch { log, left } = last.log.next_epoch(opening, bytes, summarised);
                    (log, left)
                }
                None => (Log::new(Epoch::default(), opening), Vec::new()),
            };
            let name = self.name(log.epoch());
            let gate = Arc::new(PrefixGate::default());
            let current = Current {
                with: chosen.settings.fingerprint(&name),
                log: log.clone(),
                system: Arc::clone(&system),
                name: Arc::clone(&name),
                gate: Arc::clone(&gate),
                ended: None,
                summarised: None,
                answered_at: None,
            };
            state.misfit = compaction::misfit(&sizes(&current, &estimate, window), &policy);
            state.current = Some(current);
            state.skipped = skipped;
            state.is_unsaved = true;
            (log, name, gate, left)
        };
        tracing::info!(epoch = log.epoch().0, answers = log.exchanges().len(), "a conversation begins");
        for (path, file) in documents {
            self.looked(&path.into(), &file, now);
        }
        // What is not in the new journal is in the archive before the old one goes.
        self.archive(&mut store, left.iter().map(|exchange| past_answer(exchange)).collect());
        let written = self.write_all(&mut store);
        self.note_written(written);
        Ok(Opened { fork: log.fork(), system, name, estimate, gate })
    }

    /// A view of the conversation as it is, unless it has to begin anew.
    fn continued(&self, chosen: &ChosenModel, settings: &Settings) -> Option<Opened> {
        let estimate = self.estimate(chosen);
        let is_summarising = self.is_summarising();
        let state = self.state();
        let is_with = |current: &&Current| current.with == chosen.settings.fingerprint(&current.name);
        let current = state.current.as_ref().filter(is_with).filter(|current| current.ended.is_none())?;
        // Of what a prompt may fill: with a small window the answer's share is most of the rest.
        let window = prompt_window(chosen.window, settings.max_answer_tokens);
        let sizes = sizes(current, &estimate, window);
        // Where it could be summed up that was tried before; see [`super::upkeep`].
        let has_room = match compaction::step(&sizes, &policy(settings), &Moment::default()) {
            Step::Continue | Step::Stuck => true,
            Step::Summarise | Step::Shed => {
                is_summarising && sizes.prompt() as f64 <= window as f64 * WHILE_SUMMARISING
            }
        };
        if current.summarised.is_some() || !has_room {
            tracing::info!(tokens = sizes.prompt(), window, summarised = current.summarised, "the window is full");
            return None;
        }
        Some(Opened {
            fork: current.log.fork(),
            system: Arc::clone(&current.system),
            name: Arc::clone(&current.name),
            estimate,
            gate: Arc::clone(&current.gate),
        })
    }

    fn estimate(&self, chosen: &ChosenModel) -> TokenEstimate {
        let known = self.state().estimates.get(&chosen.model).cloned();
        known.unwrap_or_else(|| TokenEstimate::of_model(&chosen.model))
    }

    /// Keeps what a fork of the conversation called `name` said, on the disk too. Where another one has
    /// begun meanwhile, with another model perhaps, question and answer are kept in that: tool rounds
    /// belong to their own. Blocks on the file system.
    pub(super) fn commit(&self, name: &str, fork: Fork, retain: Retain, provenance: Provenance) {
        let mut store = self.store();
        let exchange = {
            let mut state = self.state();
            if state.is_forgotten {
                return;
            }
            let is_same = state.current.as_ref().is_some_and(|current| *current.name == *name);
            if !is_same && Self::was_forgotten(&state, &fork, &provenance) {
                return tracing::info!("an answer is not kept: it is about something that was forgotten meanwhile");
            }
            let Some(current) = &mut state.current else { return };
            let retain = if is_same { retain } else { Retain::None };
            let Some(commit) = current.log.commit(fork, retain, provenance) else {
                return tracing::error!("a conversation without an answer was not kept");
            };
            tracing::debug!(?commit, "an answer was kept");
            let Some(exchange) = current.log.exchanges().last().map(Arc::clone) else { return };
            current.answered_at = (exchange.at > 0).then_some(exchange.at);
            state.manifest.told(exchange.observations);
            state.is_unsaved = true;
            exchange
        };
        let written = match store.append(&exchange) {
            // Someone has removed it: all of it is written again.
            Err(StoreError::NoJournal(_)) => self.write_all(&mut store),
            written => written,
        };
        self.note_written(written);
    }

    /// Writes the journal of the present epoch anew.
    fn write_all(&self, store: &mut Store) -> Result<(), StoreError> {
        let (log, system, name, with) = {
            let state = self.state();
            let Some(current) = &state.current else { return Ok(()) };
            (current.log.clone(), Arc::clone(&current.system), Arc::clone(&current.name), current.with.clone())
        };
        let header = EpochHeader { epoch: log.epoch(), name: &name, system: &system, model: &with };
        store.begin(&header, log.opening(), log.exchanges())
    }

    /// Keeps what was learned about the model.
    pub(super) fn learned(&self, chosen: &ChosenModel, estimate: TokenEstimate, fill: WindowFill) {
        let mut state = self.state();
        state.estimates.insert(chosen.model.clone(), estimate);
        state.is_unsaved = true;
        state.fill = fill;
    }

    /// Lets the conversation called `name` begin anew at the next question, with so many bytes of its
    /// answers: it did not fit.
    pub(super) fn shed(&self, name: &str, bytes: usize) {
        let mut state = self.state();
        if let Some(current) = state.current.as_mut().filter(|current| *current.name == *name) {
            current.ended = Some(bytes);
        }
    }

    /// How files were when they were last looked at.
    pub(super) fn looks<'a>(&self, paths: impl Iterator<Item = &'a str>) -> Vec<Option<Look<FileStamp>>> {
        let state = self.state();
        paths.map(|path| state.manifest.look(path).cloned()).collect()
    }

    /// Takes note of a file that was read at a moment not before `at`.
    pub(super) fn looked(&self, path: &Arc<str>, file: &FileText, at: SystemTime) {
        self.renewed(path, look_of(file, at));
        self.remember(file);
    }

    /// Keeps a text, to say later what changed in it.
    pub(super) fn remember(&self, file: &FileText) {
        if !file.truncated {
            self.texts.keep(&file.sha256, &file.text);
        }
    }

    /// Forgets a text that must not be shown any more.
    pub(super) fn forget_text(&self, sha256: &str) {
        self.texts.forget(sha256);
    }

    /// Takes note that a file is not what it was, by whoever looked.
    pub(super) fn renewed(&self, path: &Arc<str>, look: Look<FileStamp>) {
        let mut state = self.state();
        state.manifest.looked(path, look);
        state.is_unsaved = true;
    }

    /// A text by its hash, if it is kept.
    pub(super) fn text(&self, sha256: &str) -> Option<Arc<str>> {
        self.texts.get(sha256)
    }

    /// What the coding agent did after so many observations.
    pub(super) fn gap(&self, since: u64) -> Gap {
        self.state().manifest.gap(since)
    }

    /// Takes note of what the coding agent did with a file, and of what was found there.
    pub(super) fn observe(&self, path: Arc<str>, deed: crate::memory::manifest::Deed, look: Look<FileStamp>) {
        let mut state = self.state();
        state.forgotten_files.remove(&path);
        state.manifest.observe(path, deed, look);
        state.is_unsaved = true;
    }

    /// Whether a file is known, be it from the agent or from the log.
    pub(super) fn knows(&self, path: &str) -> bool {
        let state = self.state();
        state.manifest.look(path).is_some()
            || state.current.as_ref().is_some_and(|current| current.log.fork().told().of(path).is_some())
    }

    /// Looks at files that were shown, when nobody waits any more: the next question then sees by their
    /// stamps that they are unchanged, or tells what changed in them. Then writes what is known.
    pub(super) fn settle_later(self: &Arc<Self>, files: &Arc<WorkspaceFiles>, shown: Vec<Source>) {
        let (this, files) = (Arc::clone(self), Arc::clone(files));
        let _settling = tokio::task::spawn_blocking(move || {
            for Source { path, sha256 } in shown {
                let now = SystemTime::now();
                if let Ok(file) = files.read(Path::new(&*path), READ_CAP)
                    && *file.sha256 == *sha256
                {
                    this.looked(&path, &file, now);
                }
            }
            this.save_if_changed();
        });
    }

    /// Writes what is kept beside the log, and what of the log could not be written before. Blocks on
    /// the file system.
    pub(super) fn save_if_changed(&self) {
        let is_unsaved = {
            let state = self.state();
            state.is_unsaved || state.archive_is_behind
        };
        if is_unsaved || self.store().is_behind() {
            self.save();
        }
    }

    fn save(&self) {
        let mut store = self.store();
        let snapshot = {
            let mut state = self.state();
            if state.is_forgotten {
                return;
            }
            // What changes from here on is for the next one.
            state.is_unsaved = false;
            let corrections =
                state.estimates.iter().map(|(model, estimate)| (model.clone(), estimate.correction())).collect();
            Snapshot {
                manifest: state.manifest.clone(),
                corrections,
                ledger: state.ledger.clone(),
                summaries: state.summaries.clone(),
                summarised: state
                    .current
                    .as_ref()
                    .and_then(|current| current.summarised.map(|count| (current.name.to_string(), count))),
                forgotten_files: state.forgotten_files.clone(),
            }
        };
        // What could not be written before comes first.
        self.archive(&mut store, Vec::new());
        let written = store.flush().and_then(|()| store.save(&snapshot));
        let found = store.take_set_aside();
        let mut state = self.state();
        state.is_unsaved |= written.is_err();
        state.set_aside.extend(found.iter().map(ToString::to_string));
        drop(state);
        self.note_written(written);
    }

    /// Forgets everything, on the disk too; answers under way are not kept any more. Blocks on the file
    /// system.
    pub(super) fn forget(&self) -> Result<(), StoreError> {
        let mut store = self.store();
        *self.state() = State { is_forgotten: true, ..State::default() };
        self.texts.clear();
        store.erase()
    }

    pub(super) fn status(&self) -> MemoryStatus {
        let state = self.state();
        let log = state.current.as_ref().map(|current| &current.log);
        MemoryStatus {
            answers: log.map_or(0, |log| log.exchanges().len()),
            epoch: log.map_or(0, |log| log.epoch().0),
            fill: state.fill,
            known_files: state.manifest.len(),
            observed_files: state.manifest.seen(),
            observations: state.manifest.observations(),
            preloaded: log
                .map_or_else(Vec::new, |log| log.opening().said.iter().map(|said| said.path.to_string()).collect()),
            skipped: state.skipped.clone(),
            troubles: state.set_aside.iter().chain(&state.unwritten).chain(&state.misfit).cloned().collect(),
            facts: state.ledger.facts().len(),
            stale_facts: state.stale_facts(),
            archived: state.archive.entries().len(),
            archive_dropped: state.archive.dropped(),
            compactions: state.summaries.done,
            shed: state.summaries.shed,
            dropped_notes: state.summaries.dropped_notes,
            summary_failure: state.summaries.failure.clone(),
            summing_up: self.is_summarising(),
        }
    }

    /// A name that no other conversation has.
    fn name(&self, epoch: Epoch) -> Arc<str> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let key = self.key.get(..16).unwrap_or(&self.key);
        format!("lm-{key}-{}-{:x}", epoch.0, now.as_micros()).into()
    }

    fn note_written(&self, written: Result<(), StoreError>) {
        let unwritten = written.err().map(|error| error.to_string());
        if let Some(reason) = &unwritten {
            tracing::error!(root = %self.root.display(), "the memory is not kept: {reason}");
        }
        self.state().unwritten = unwritten;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn restore(kept: KeptEpoch) -> Self {
        Self {
            with: kept.model.to_string(),
            log: Log::restore(kept.epoch, kept.opening, kept.exchanges),
            system: kept.system,
            name: kept.name,
            gate: Arc::default(),
            // What is missing was sent: the rest of it is not a prefix of anything.
            ended: (kept.lost > 0).then_some(usize::MAX),
            summarised: None,
            answered_at: None,
        }
    }
}

/// What a file's text says of it.
pub(super) fn look_of(file: &FileText, at: SystemTime) -> Look<FileStamp> {
    Look {
        standing: Standing::Text(file.sha256.as_str().into()),
        whole: !file.truncated,
        stamp: Some(file.stamp),
        at_ns: crate::files::nanoseconds(at),
    }
}

/// Bytes of the tools as a model is told of them.
fn tool_bytes() -> usize {
    TOOL_SPECS.iter().map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.get().len()).sum()
}

/// When a conversation begins anew, as the settings have it.
fn policy(settings: &Settings) -> Policy {
    Policy {
        threshold: settings.compaction_threshold,
        floor: settings.compaction_floor,
        cooldown_s: settings.distill_min_interval_s.into(),
    }
}

/// How large a conversation is, where prompts may fill `window` tokens.
fn sizes(current: &Current, estimate: &TokenEstimate, window: u64) -> Sizes {
    let opening = current.log.opening_bytes();
    Sizes {
        window,
        fixed: estimate.tokens(current.system.len() + tool_bytes()),
        opening: estimate.tokens(opening),
        said: estimate.tokens(current.log.bytes() - opening),
        answers: estimate.tokens(current.log.answer_bytes()),
    }
}

/// An answer as it is archived.
fn past_answer(exchange: &Exchange) -> Entry {
    Entry::Answer(PastAnswer::new(&exchange.question, &exchange.answer(), exchange.sources.clone(), exchange.at))
}
