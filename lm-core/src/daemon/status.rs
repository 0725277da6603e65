//! What the daemon counts about itself, for the reports that show it.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Instant, SystemTime},
};

use lm_proto::Build;

/// The daemon's counters and what it is; shared by everything that serves.
#[derive(Debug)]
pub struct Status {
    /// When the daemon started.
    pub started_at: SystemTime,
    /// Its process id.
    pub pid: u32,
    /// Its build.
    pub build: Build,
    /// The socket's path or the pipe's name.
    pub endpoint: PathBuf,
    /// The log it writes; `None` where no file could be opened.
    pub log: Option<PathBuf>,
    clients: AtomicUsize,
    running: AtomicUsize,
    questions: AtomicUsize,
    answered: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    cancelled: AtomicU64,
    last_error: Mutex<Option<LastError>>,
    last_activity: Mutex<Instant>,
}

/// The error that happened last.
#[derive(Clone, Debug)]
pub struct LastError {
    /// When.
    pub at: SystemTime,
    /// What, without the text of any question.
    pub message: String,
}

/// How a question ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// With an answer.
    Answered,
    /// With a failure, described for [`Status::last_error`].
    Failed(String),
    /// Not taken on: it was at fault itself, or there was no room for it. Nothing is wrong with the daemon.
    Refused,
    /// By its client, before there was an answer.
    Cancelled,
}

impl Status {
    /// A daemon that has just started.
    #[must_use]
    pub fn new(build: Build, endpoint: PathBuf, log: Option<PathBuf>) -> Self {
        Self {
            started_at: SystemTime::now(),
            pid: std::process::id(),
            build,
            endpoint,
            log,
            clients: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            questions: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            last_error: Mutex::new(None),
            last_activity: Mutex::new(Instant::now()),
        }
    }

    /// Clients connected now.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Requests being worked on now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Questions that have arrived and not ended yet, waiting ones included.
    #[must_use]
    pub fn questions(&self) -> usize {
        self.questions.load(Ordering::Acquire)
    }

    /// Questions answered since the start.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Questions that failed since the start.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Questions refused since the start: they were at fault themselves, or came while there was no room.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Questions cancelled, or left by their client, since the start.
    #[must_use]
    pub fn cancelled(&self) -> u64 {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// The last error, if there was any.
    #[must_use]
    pub fn last_error(&self) -> Option<LastError> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers an error for reports.
    pub fn note_error(&self, message: impl Into<String>) {
        let noted = LastError { at: SystemTime::now(), message: message.into() };
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(noted);
    }

    /// Counts how a question ended.
    pub fn count(&self, ending: Ending) {
        let counter = match ending {
            Ending::Answered => &self.answered,
            Ending::Cancelled => &self.cancelled,
            Ending::Refused => &self.refused,
            Ending::Failed(message) => {
                self.note_error(message);
                &self.failed
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Since when nobody is connected and nothing is worked on; `None` while somebody is.
    #[must_use]
    pub fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.clients() == 0 && self.running() == 0;
        is_idle.then(|| *self.last_activity.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a client for as long as the returned value lives.
    #[must_use]
    pub fn client(self: &Arc<Self>) -> Presence {
        Presence::new(Arc::clone(self), |status| &status.clients)
    }

    /// Counts a request as running for as long as the returned value lives.
    #[must_use]
    pub fn request(self: &Arc<Self>) -> Presence {
        Presence::new(Arc::clone(self), |status| &status.running)
    }

    /// Counts a question as running until it has ended.
    #[must_use]
    pub fn question(self: &Arc<Self>) -> OpenQuestion {
        OpenQuestion { presence: Presence::new(Arc::clone(self), |status| &status.questions), ending: None }
    }
}

/// One counted client or request; not counted any more when dropped.
#[derive(Debug)]
pub struct Presence {
    status: Arc<Status>,
    counter: fn(&Status) -> &AtomicUsize,
}

impl Presence {
    fn new(status: Arc<Status>, counter: fn(&Status) -> &AtomicUsize) -> Self {
        counter(&status).fetch_add(1, Ordering::Relaxed);
        Self { status, counter }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // The time first: whoever sees the count at zero must see this moment with it.
        *self.status.last_activity.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        (self.counter)(&self.status).fetch_sub(1, Ordering::Release);
    }
}

/// A question that has not ended yet. Dropped before it is told how it ended, it was cancelled.
#[derive(Debug)]
pub struct OpenQuestion {
    presence: Presence,
    ending: Option<Ending>,
}

impl OpenQuestion {
    /// It has ended.
    pub fn end(mut self, ending: Ending) {
        self.ending = Some(ending);
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        // Before it stops being counted as running, so that it is never counted nowhere.
        self.presence.status.count(self.ending.take().unwrap_or(Ending::Cancelled));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_when_nobody_is_there_and_nothing_runs() {
        let status = Arc::new(Status::new(Build::with_stamp(1), "e".into(), None));
        let started = status.idle_since().unwrap();
        let client = status.client();
        let request = status.request();
        assert_eq!((status.clients(), status.running()), (1, 1));
        drop(client);
        assert_eq!(status.idle_since(), None);
        drop(request);
        assert!(status.idle_since().unwrap() > started);
    }

    #[test]
    fn a_question_is_running_until_it_ends_and_dropped_it_was_cancelled() {
        let status = Arc::new(Status::new(Build::with_stamp(1), "e".into(), None));
        let (first, second) = (status.question(), status.question());
        assert_eq!((status.questions(), status.cancelled()), (2, 0));
        first.end(Ending::Answered);
        assert_eq!((status.questions(), status.answered()), (1, 1));
        drop(second);
        assert_eq!((status.questions(), status.cancelled()), (0, 1));
    }

    #[test]
    fn a_failure_is_counted_and_remembered() {
        let status = Status::new(Build::with_stamp(1), "e".into(), None);
        status.count(Ending::Answered);
        status.count(Ending::Cancelled);
        status.count(Ending::Failed("the disk is full".into()));
        assert_eq!((status.answered(), status.failed(), status.cancelled()), (1, 1, 1));
        assert_eq!(status.last_error().unwrap().message, "the disk is full");
    }

    #[test]
    fn a_refusal_is_no_failure_of_the_daemon() {
        let status = Status::new(Build::with_stamp(1), "e".into(), None);
        status.count(Ending::Refused);
        assert_eq!((status.refused(), status.failed()), (1, 0));
        assert!(status.last_error().is_none());
    }
}
