//! The retriever: the state of its index, and the work behind it.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    IndexState, IndexStatus, LeftOut, SearchError, SearchLimits, SearchOutcome,
    index::{self, Changes, IndexError, MOST_FILES, WorkspaceIndex},
    search::{IndexedError, Search},
};
use crate::files::{Excluded, OpenError, WorkspaceFiles};

/// How long after a failure the index is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Threads that build an index. Memory grows with each; more would be felt by whoever works here.
const MOST_BUILDERS: usize = 2;

/// Finds places in one workspace.
pub struct Retriever {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    /// Opened for each search and each build and closed after it: on Windows nobody can rename or
    /// remove a directory while it is open.
    root: PathBuf,
    directory: PathBuf,
    /// Ends the background work when the retriever is dropped.
    stop: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: IndexState,
    index: Option<Arc<WorkspaceIndex>>,
    /// Whether the directory was looked at.
    opened: bool,
    built_in: Option<Duration>,
    failed: Option<Instant>,
    /// How many files there were when they were too many.
    too_large_at: Option<usize>,
}

impl fmt::Debug for Retriever {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Retriever").field("root", &self.shared.root).finish_non_exhaustive()
    }
}

impl Drop for Retriever {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl Retriever {
    /// For a workspace whose index lies, or will lie, in a directory of its own.
    #[must_use]
    pub fn new(root: PathBuf, index_directory: PathBuf) -> Self {
        let shared =
            Shared { root, directory: index_directory, stop: CancellationToken::new(), state: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Searches for what a question is about. Blocks until done, the deadline, or cancellation. The
    /// first search has the index built in the background, later ones have it kept up.
    pub fn search(
        &self,
        question: &str,
        limits: SearchLimits,
        progress: &dyn Fn(&str),
        cancel: &CancellationToken,
    ) -> Result<SearchOutcome, SearchError> {
        self.search_without(&Excluded::default(), question, limits, progress, cancel)
    }

    /// The same without the places that a person has excluded; the index is kept up without them.
    pub fn search_without(
        &self,
        excluded: &Excluded,
        question: &str,
        limits: SearchLimits,
        progress: &dyn Fn(&str),
        cancel: &CancellationToken,
    ) -> Result<SearchOutcome, SearchError> {
        let files = WorkspaceFiles::open(&self.shared.root).map_err(|OpenError { root, source }| {
            SearchError::Workspace { root: root.display().to_string(), source }
        })?;
        let files = files.leaving_out(excluded);
        let search = Search::new(&files, question, limits, progress, cancel)?;
        if search.is_general() {
            let (outcome, listed) = search.overview()?;
            // The next question will want an index.
            if self.shared.index().is_none() {
                self.shared.start_build(listed, excluded);
            }
            return Ok(outcome);
        }
        if let Some(index) = self.shared.index() {
            match search.by_index(&index) {
                Ok((outcome, changes)) => {
                    if !changes.is_empty() {
                        self.shared.start(Work::Update(index, changes), excluded);
                    }
                    return Ok(outcome);
                }
                Err(IndexedError::Search(error)) => return Err(error),
                Err(IndexedError::Index(error)) => {
                    // An update may have replaced what was being read; if not, it is damaged.
                    warn!(%error, "the index cannot be read; searching live");
                    self.shared.drop_index(&index);
                }
            }
        }
        let outcome = search.live();
        // Also after a search that was given up: the next one shall be faster.
        let seen = match &outcome {
            Ok(outcome) => outcome.1,
            Err(_) => 0,
        };
        self.shared.start_build(seen, excluded);
        outcome.map(|(outcome, _)| outcome)
    }

    /// Has the index opened, or built in the background, before there is a question. Blocks for moments.
    pub fn prepare(&self, excluded: &Excluded) {
        let is_new = matches!(self.shared.state().phase, IndexState::Unopened);
        if is_new && self.shared.index().is_none() {
            self.shared.start_build(0, excluded);
        }
    }

    /// Where the index stands.
    #[must_use]
    pub fn status(&self) -> IndexStatus {
        let state = self.shared.state();
        let index = state.index.as_deref();
        IndexStatus {
            state: state.phase.clone(),
            files: index.map_or(0, WorkspaceIndex::text_files),
            bytes: index.map_or(0, WorkspaceIndex::text_bytes),
            built_in: state.built_in,
            left_out: index.map_or(LeftOut::default(), WorkspaceIndex::left_out),
        }
    }

    /// How many segments the index has.
    #[cfg(test)]
    pub(super) fn segments(&self) -> usize {
        self.shared.state().index.as_deref().map_or(0, WorkspaceIndex::segments)
    }

    /// Ends background work, waits for that up to `limit`, and keeps no index from then on; searches
    /// that are going on or still come are live. Blocks.
    pub fn close(&self, limit: Duration) {
        const POLL: Duration = Duration::from_millis(2);
        self.shared.stop.cancel();
        let start = Instant::now();
        while self.is_working() && start.elapsed() < limit {
            thread::sleep(POLL);
        }
        let mut state = self.shared.state();
        (state.index, state.opened) = (None, true);
        state.phase = IndexState::Unopened;
    }

    /// Whether background work is going on.
    #[must_use]
    pub fn is_working(&self) -> bool {
        matches!(self.shared.state().phase, IndexState::Building | IndexState::Updating)
    }
}

enum Work {
    Build,
    Update(Arc<WorkspaceIndex>, Changes),
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index, if there is a complete one; opens what an earlier process left.
    fn index(&self) -> Option<Arc<WorkspaceIndex>> {
        let mut state = self.state();
        if !state.opened {
            state.opened = true;
            match WorkspaceIndex::open(&self.directory, &self.root) {
                Ok(index) => {
                    debug!(files = index.files.len(), "opened the index");
                    state.index = Some(Arc::new(index));
                    state.phase = IndexState::Ready;
                }
                Err(error) => debug!(%error, "no index to open"),
            }
        }
        state.index.clone()
    }

    /// Forgets an index that cannot be read, unless it was replaced meanwhile.
    fn drop_index(&self, broken: &Arc<WorkspaceIndex>) {
        let mut state = self.state();
        if state.phase == IndexState::Ready && state.index.as_ref().is_some_and(|index| Arc::ptr_eq(index, broken)) {
            state.index = None;
            state.phase = IndexState::Unopened;
        }
    }

    /// Starts building unless it is known to be in vain.
    pub(super) fn start_build(self: &Arc<Self>, files_seen: usize, excluded: &Excluded) {
        {
            let mut state = self.state();
            if files_seen > MOST_FILES {
                state.phase = IndexState::TooLarge;
                state.too_large_at = Some(files_seen);
                return;
            }
            // It was its bytes that were too many; unless it has shrunk they still are.
            if state.too_large_at.is_some_and(|then| files_seen * 10 > then * 9) {
                return;
            }
            if state.failed.is_some_and(|failed| failed.elapsed() < RETRY_AFTER) {
                return;
            }
        }
        self.start(Work::Build, excluded);
    }

    /// Starts background work, unless there is some; what is not done now is found again by the next
    /// question.
    fn start(self: &Arc<Self>, work: Work, excluded: &Excluded) {
        {
            let mut state = self.state();
            if matches!(state.phase, IndexState::Building | IndexState::Updating) || self.stop.is_cancelled() {
                return;
            }
            // Decided by a search that began before the index became what it is now.
            let is_late = match &work {
                Work::Build => state.index.is_some(),
                Work::Update(index, _) => !state.index.as_ref().is_some_and(|present| Arc::ptr_eq(present, index)),
            };
            if is_late {
                return;
            }
            state.phase = match work {
                Work::Build => IndexState::Building,
                Work::Update(..) => IndexState::Updating,
            };
        }
        let (shared, excluded) = (Arc::clone(self), excluded.clone());
        let started = thread::Builder::new().name("index".into()).spawn(move || {
            lower_priority();
            // However it ends, it must not look as if it went on.
            let finished = Finished(&shared);
            shared.run(work, &excluded);
            drop(finished);
        });
        if let Err(error) = started {
            self.fail(&IndexError::Io(error));
        }
    }

    fn run(&self, work: Work, excluded: &Excluded) {
        let files = WorkspaceFiles::open(&self.root).map_err(|error| IndexError::Io(error.source));
        let built = files.map(|files| files.leaving_out(excluded)).and_then(|files| match work {
            Work::Build => {
                let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_BUILDERS);
                WorkspaceIndex::build(&files, &self.directory, threads, &self.stop).map(|built| {
                    info!(files = built.index.files.len(), milliseconds = built.took.as_millis(), "built the index");
                    (built.index, Some(built.took))
                })
            }
            Work::Update(index, changes) => {
                debug!(written = changes.written.len(), deleted = changes.deleted.len(), "updating the index");
                index.update(&files, &changes, &self.stop).map(|index| (index, None))
            }
        });
        match built {
            Ok((index, built_in)) => {
                let mut state = self.state();
                state.index = Some(Arc::new(index));
                state.phase = IndexState::Ready;
                state.built_in = built_in.or(state.built_in);
                (state.failed, state.too_large_at) = (None, None);
            }
            Err(IndexError::TooLarge) => {
                let files = 1.max(self.state().too_large_at.unwrap_or(0));
                let mut state = self.state();
                state.phase = IndexState::TooLarge;
                state.too_large_at = Some(files);
                state.index = None;
            }
            Err(IndexError::Stopped) if self.stop.is_cancelled() => self.state().phase = IndexState::Unopened,
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&self, error: &IndexError) {
        warn!(%error, "cannot keep an index; searches are live");
        let mut state = self.state();
        state.index = None;
        state.phase = IndexState::Failed(error.to_string());
        state.failed = Some(Instant::now());
        drop(state);
        // A damaged one would be damaged again; nothing of it is worth keeping.
        if let Err(error) = index::delete(&self.directory) {
            debug!(%error, "cannot delete the index");
        }
    }
}

struct Finished<'a>(&'a Shared);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if matches!(state.phase, IndexState::Building | IndexState::Updating) {
            state.phase = IndexState::Failed("building the index ended early".into());
            state.failed = Some(Instant::now());
        }
    }
}

/// Whoever works at this machine comes first. Threads started from this one inherit it.
#[cfg(target_os = "linux")]
pub fn lower_priority() {
    // On Linux niceness belongs to the thread. It may be forbidden; then nothing is lost but courtesy.
    let _ = rustix::process::nice(10);
}

/// Whoever works at this machine comes first; here threads have no priority that could be given up.
#[cfg(not(target_os = "linux"))]
pub fn lower_priority() {}
