//! What sessions have read and edited, on its way into the memories of the workspaces.
//!
//! Taking up an observation only queues it: whoever reports it waits for nothing. The queue keeps one
//! entry for a file however often it is reported, is bounded, and is emptied by one thread of low
//! priority that ends when there is nothing left to do. A question waits briefly for what was reported
//! before it. Not allowed here: what an observation means, and reading files.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use lm_proto::message::ObservationKind;
use tokio::sync::Notify;

use crate::{retrieval::lower_priority, settings::Settings};

/// As many files wait at most; then the one that has waited longest falls out.
const WAITING_MAX: usize = 10_000;
/// What was taken in is saved so soon: each save writes all that is known of a workspace's files.
const SAVED_WITHIN: Duration = Duration::from_secs(2);
/// A longer path leads nowhere on any system.
const PATH_BYTES_MAX: usize = 32 << 10;

/// A file that something happened to.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    /// As the client gave it.
    pub(super) path: String,
    pub(super) kind: ObservationKind,
    /// The session's directory; empty where it is not known.
    pub(super) cwd: PathBuf,
    /// What holds for the session.
    pub(super) settings: Arc<Settings>,
}

/// One that waits.
#[derive(Clone, Debug)]
struct Waiting {
    observed: Observed,
    /// The number of its last report.
    last: u64,
}

/// What became of an observation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// A workspace has it.
    Taken,
    /// No workspace has it.
    Dropped(Reason),
}

/// Why no workspace has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// The setting `passive_ingestion` is off.
    Off,
    /// Learning is paused in its workspace.
    Paused,
    /// The setting `exclude` names its place.
    Excluded,
    /// It lies outside `file_globs`.
    OutOfScope,
    /// It is none that is learned from: ignored, binary, bearing secrets, or not there.
    LeftOut,
    /// It lies in no workspace.
    Outside,
    /// Its workspace cannot be opened.
    Unreadable,
    /// Too many files were waiting.
    Overflow,
    /// Its workspace was emptied before it had its turn.
    Forgotten,
}

/// What a report says about observations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObservationStatus {
    /// Files that wait to be taken in.
    pub waiting: usize,
    /// Taken in since the daemon started.
    pub taken: u64,
    /// Dropped since then, by reason.
    pub dropped: Dropped,
}

/// How many observations were dropped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// The setting `passive_ingestion` is off.
    pub off: u64,
    /// Learning is paused in their workspace.
    pub paused: u64,
    /// The setting `exclude` names their place.
    pub excluded: u64,
    /// They lie outside `file_globs`.
    pub out_of_scope: u64,
    /// They are none that is learned from: ignored, binary, bearing secrets, or not there.
    pub left_out: u64,
    /// They lie in no workspace.
    pub outside: u64,
    /// Their workspace cannot be opened.
    pub unreadable: u64,
    /// Too many files were waiting.
    pub overflow: u64,
    /// Their workspace was emptied before they had their turn.
    pub forgotten: u64,
}

impl Dropped {
    fn count(&mut self, reason: Reason, count: u64) {
        *match reason {
            Reason::Off => &mut self.off,
            Reason::Paused => &mut self.paused,
            Reason::Excluded => &mut self.excluded,
            Reason::OutOfScope => &mut self.out_of_scope,
            Reason::LeftOut => &mut self.left_out,
            Reason::Outside => &mut self.outside,
            Reason::Unreadable => &mut self.unreadable,
            Reason::Overflow => &mut self.overflow,
            Reason::Forgotten => &mut self.forgotten,
        } += count;
    }
}

/// Puts one observation where it belongs, unless the workspace of a key was forgotten since; may block
/// on the file system.
type TakeIn = dyn Fn(&Observed, &dyn Fn(&str) -> bool) -> Outcome + Send + Sync;

/// The observations that wait.
pub(super) struct Observations {
    state: Mutex<State>,
    /// Told whenever one is done.
    progress: Notify,
    take_in: Box<TakeIn>,
    /// Writes to the disk what was taken in.
    save: Box<dyn Fn() + Send + Sync>,
    /// Told of each arrival, for the thread that empties the queue.
    arrival: Condvar,
    /// For the thread that empties the queue.
    own: Weak<Self>,
}

#[derive(Default)]
struct State {
    /// By the order in which their files were first reported.
    waiting: BTreeMap<u64, Waiting>,
    by_path: HashMap<String, u64>,
    /// The number of the next report.
    next: u64,
    /// What was reported before the number is forgotten, by the workspace's key. Gone with the last of
    /// those that waited.
    forgotten: HashMap<String, u64>,
    /// The one being taken in.
    in_work: Option<u64>,
    /// Whether there is a thread that will look again.
    is_worked_on: bool,
    taken: u64,
    dropped: Dropped,
    /// What held last: as a rule it holds for the next one too, and is kept once.
    settings: Option<Arc<Settings>>,
}

impl State {
    /// Whether all that came before `ticket` is done.
    fn is_done(&self, ticket: u64) -> bool {
        let first = self.waiting.keys().next().copied().into_iter().chain(self.in_work).min();
        first.is_none_or(|first| first >= ticket)
    }

    fn take_first(&mut self) -> Option<(u64, Waiting)> {
        let (number, waiting) = self.waiting.pop_first()?;
        self.by_path.remove(&waiting.observed.path);
        Some((number, waiting))
    }

    fn put(&mut self, observed: Observed) {
        let last = self.next;
        self.next += 1;
        if let Some(earlier) = self.by_path.get(&observed.path).and_then(|number| self.waiting.get_mut(number)) {
            let kind = newest(earlier.observed.kind, observed.kind);
            *earlier = Waiting { observed: Observed { kind, ..observed }, last };
            return;
        }
        if self.waiting.len() >= WAITING_MAX && self.take_first().is_some() {
            self.dropped.count(Reason::Overflow, 1);
        }
        self.by_path.insert(observed.path.clone(), last);
        self.waiting.insert(last, Waiting { observed, last });
    }

    fn shared(&mut self, settings: Settings) -> Arc<Settings> {
        match &self.settings {
            Some(last) if **last == settings => Arc::clone(last),
            _ => Arc::clone(self.settings.insert(Arc::new(settings))),
        }
    }
}

/// The newest of two counts, but having been read says nothing new of a file that was edited.
fn newest(earlier: ObservationKind, later: ObservationKind) -> ObservationKind {
    match (earlier, later) {
        (ObservationKind::Edited, ObservationKind::Read) => ObservationKind::Edited,
        _ => later,
    }
}

impl Observations {
    /// None yet.
    pub(super) fn new(
        take_in: impl Fn(&Observed, &dyn Fn(&str) -> bool) -> Outcome + Send + Sync + 'static,
        save: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            state: Mutex::default(),
            progress: Notify::new(),
            take_in: Box::new(take_in),
            save: Box::new(save),
            arrival: Condvar::new(),
            own: Weak::clone(own),
        })
    }

    /// Queues one and returns at once.
    pub(super) fn add(&self, path: String, kind: ObservationKind, cwd: PathBuf, settings: Settings) {
        let mut state = self.lock();
        if !settings.passive_ingestion {
            return state.dropped.count(Reason::Off, 1);
        }
        if path.len() > PATH_BYTES_MAX {
            return state.dropped.count(Reason::Outside, 1);
        }
        let settings = state.shared(settings);
        state.put(Observed { path, kind, cwd, settings });
        if !state.is_worked_on {
            state.is_worked_on = self.start();
        }
        self.arrival.notify_one();
    }

    /// Starts to empty the queue; false where there can be no thread now.
    fn start(&self) -> bool {
        let Some(own) = self.own.upgrade() else { return false };
        let started = thread::Builder::new().name("observe".into()).spawn(move || {
            lower_priority();
            own.work();
        });
        if let Err(error) = &started {
            tracing::warn!(%error, "cannot take in observations now; the next one tries again");
        }
        started.is_ok()
    }

    fn work(&self) {
        // However it ends, the next observation must find out.
        let working = Working(self);
        let mut unsaved_since = None;
        loop {
            match self.next(unsaved_since) {
                Next::TakeIn(number, waiting) => {
                    self.take_one_in(number, &waiting);
                    unsaved_since.get_or_insert_with(Instant::now);
                }
                Next::Save => {
                    (self.save)();
                    unsaved_since = None;
                }
                Next::Nothing => break,
            }
        }
        std::mem::forget(working);
        self.progress.notify_waiters();
    }

    /// What is to be done next. Waits a little for more where something was taken in, so that a session
    /// that reads file by file does not have all of them written each time.
    fn next(&self, unsaved_since: Option<Instant>) -> Next {
        let mut state = self.lock();
        loop {
            let left = unsaved_since.map(|since| SAVED_WITHIN.saturating_sub(since.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Next::Save;
            }
            if let Some((number, first)) = state.take_first() {
                state.in_work = Some(number);
                return Next::TakeIn(number, first);
            }
            let Some(left) = left else {
                // Under the lock: what comes now starts another thread.
                state.is_worked_on = false;
                state.forgotten.clear();
                return Next::Nothing;
            };
            state = self.arrival.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn take_one_in(&self, number: u64, Waiting { observed, last }: &Waiting) {
        let is_forgotten = |key: &str| self.lock().forgotten.get(key).is_some_and(|before| last < before);
        let outcome = (self.take_in)(observed, &is_forgotten);
        let mut state = self.lock();
        state.in_work = None;
        if state.waiting.is_empty() {
            state.forgotten.clear();
        }
        match outcome {
            Outcome::Taken => state.taken += 1,
            Outcome::Dropped(reason) => state.dropped.count(reason, 1),
        }
        drop(state);
        tracing::trace!(number, ?outcome, "an observation is done");
        self.progress.notify_waiters();
    }

    /// Waits until everything that was queued before this call is taken in, but no longer than `limit`.
    /// Returns whether it is.
    pub(super) async fn settled(&self, limit: Duration) -> bool {
        let ticket = self.lock().next;
        let wait = async {
            loop {
                let mut done = std::pin::pin!(self.progress.notified());
                // Registered before looking, so that nothing is missed in between.
                done.as_mut().enable();
                if self.lock().is_done(ticket) {
                    return;
                }
                done.await;
            }
        };
        tokio::time::timeout(limit, wait).await.is_ok()
    }

    /// Whether nothing waits and nothing is being taken in.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.is_done(state.next)
    }

    /// Lets nothing that was reported until now reach the workspace of a key, or any, and waits for the
    /// one that is being taken in, but no longer than `limit`. Blocks.
    pub(super) fn forget(&self, key: Option<&str>, limit: Duration) {
        const POLL: Duration = Duration::from_millis(2);
        let in_work = {
            let mut state = self.lock();
            match key {
                Some(key) if state.is_worked_on => {
                    let before = state.next;
                    state.forgotten.insert(key.to_owned(), before);
                }
                Some(_) => {}
                None => {
                    let count = std::mem::take(&mut state.waiting).len();
                    state.by_path.clear();
                    state.dropped.count(Reason::Forgotten, count as u64);
                }
            }
            state.in_work
        };
        self.progress.notify_waiters();
        let start = Instant::now();
        while in_work.is_some() && self.lock().in_work == in_work && start.elapsed() < limit {
            thread::sleep(POLL);
        }
    }

    pub(super) fn status(&self) -> ObservationStatus {
        let state = self.lock();
        ObservationStatus {
            waiting: state.waiting.len() + usize::from(state.in_work.is_some()),
            taken: state.taken,
            dropped: state.dropped,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread that empties the queue does next.
enum Next {
    TakeIn(u64, Waiting),
    Save,
    Nothing,
}

/// Dropped where taking in an observation has panicked.
struct Working<'a>(&'a Observations);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.in_work = None;
        state.is_worked_on = false;
        state.dropped.count(Reason::Unreadable, 1);
        drop(state);
        self.0.progress.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
