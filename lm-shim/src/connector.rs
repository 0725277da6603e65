//! Finds the daemon, elects and starts one where that is allowed, and asks it.
//!
//! probe → start lock → probe again → spawn → poll the endpoint and the child together. Who holds
//! the start lock decides alone; whether a daemon lives is decided by an answered handshake or by
//! its life lock, never by a process id or the age of a file.
//!
//! Not allowed here: what requests mean. This is about reaching a daemon, not about what it says.

mod election;
mod environment;
mod error;
mod meeting;
mod program;
mod starts;

use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use lm_proto::{
    Build, DataDirectory, Endpoint,
    handshake::Intent,
    message::{Answer, Ask, Failure, FailureKind, Observation, Reply, Request},
};
use thiserror::Error;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::error::ConnectError;
use self::{
    meeting::{Met, meet},
    program::Program,
};
use crate::connection::{Connection, Event};

/// Polling starts with the first of these pauses and slows down to the second.
const POLL_FIRST: Duration = Duration::from_millis(1);
const POLL_SLOWEST: Duration = Duration::from_millis(20);
/// How long reaching a daemon may take for a question.
const ASK_CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// How often a question is asked again of the successor of a daemon that is leaving.
const DRAINING_RETRIES: u32 = 3;

/// On whose behalf a connection is made, which decides what may be done to get it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The MCP server of a session.
    Mcp,
    /// A person's question or setting.
    Ask,
    /// A report: looking must not change what is looked at.
    Stats,
}

impl Role {
    /// Whether it may start a daemon where none runs, and replace an older one.
    fn may_start(self) -> bool {
        matches!(self, Self::Mcp | Self::Ask)
    }
}

/// What came of draining.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drained {
    /// No daemon was running.
    WasNotRunning,
    /// The daemon has left.
    Left,
}

/// Why a question has no answer.
#[derive(Debug, Error)]
pub(crate) enum AskError {
    /// No daemon could be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The daemon said no, and why.
    #[error("{}", .0.message)]
    Failed(Failure),
    /// Two daemons were lost over it.
    #[error("the daemon ended twice while answering ({reason}); see `{}`", log.display())]
    Lost {
        /// What was seen of it.
        reason: String,
        /// The daemon's log.
        log: PathBuf,
    },
    /// The asker has changed their mind.
    #[error("cancelled")]
    Cancelled,
}

/// The way to the daemon of one data directory.
#[derive(Debug)]
pub(crate) struct Connector {
    data: DataDirectory,
    current: Mutex<Option<Arc<Connection>>>,
}

impl Connector {
    /// A way to the daemon of `data`; nothing is done yet.
    pub(crate) fn new(data: DataDirectory) -> Self {
        Self { data, current: Mutex::new(None) }
    }

    /// Connects, and first starts or replaces the daemon if need be and `role` may.
    ///
    /// # Errors
    /// Everything that keeps a client from being served, by `deadline` at the latest.
    pub(crate) async fn connect(&self, role: Role, deadline: Instant) -> Result<Connection, ConnectError> {
        let program = Program::find(&self.data);
        let own = program.as_ref().map_or_else(|_| Build::with_stamp(0), |program| program.build);
        match meet(&self.data, Intent::Serve, own, deadline).await? {
            Met::Ready(stream, daemon) if !role.may_start() || daemon.build >= own => {
                return Ok(Connection::new(stream, daemon));
            }
            Met::NoCommonProtocol(daemon) if daemon.build >= own => {
                return Err(ConnectError::TooOld { own, daemon: daemon.build });
            }
            Met::NoCommonProtocol(daemon) if !role.may_start() => {
                return Err(ConnectError::DaemonTooOld { own, daemon: daemon.build });
            }
            Met::Foreign if !role.may_start() => return Err(foreign(&self.data)),
            _ if !role.may_start() => return Err(ConnectError::NotRunning),
            _ => {}
        }
        let (stream, daemon) = self.elect(&program?, deadline).await?;
        Ok(Connection::new(stream, daemon))
    }

    /// Asks, over a connection that is kept for the next question.
    ///
    /// A daemon that dies over the question is replaced and its successor asked once.
    ///
    /// # Errors
    /// Where there is no answer. Dropping the future cancels the question too.
    pub(crate) async fn ask(
        &self,
        role: Role,
        ask: Ask,
        mut on_progress: impl FnMut(String),
        cancel: &CancellationToken,
    ) -> Result<Answer, AskError> {
        let asked_at = Instant::now();
        let (mut losses, mut drains) = (0, 0);
        loop {
            let connection = tokio::select! {
                connection = self.shared(role) => connection?,
                () = cancel.cancelled() => return Err(AskError::Cancelled),
            };
            let mut pending = connection.start(Request::Ask(with_time_left(&ask, asked_at.elapsed())));
            let reason = loop {
                let event = tokio::select! {
                    event = pending.next() => event,
                    () = cancel.cancelled() => return Err(AskError::Cancelled),
                };
                match event {
                    Event::Progress(message) => on_progress(message),
                    Event::Reply(Ok(Reply::Answer(answer))) => return Ok(answer),
                    Event::Reply(Ok(Reply::Report(_) | Reply::Noted)) => {
                        let message = "the daemon answered a question with something else";
                        return Err(AskError::Failed(Failure::new(FailureKind::Internal, message)));
                    }
                    Event::Reply(Err(failure)) if failure.kind == FailureKind::Draining => {
                        drains += 1;
                        if drains > DRAINING_RETRIES {
                            return Err(AskError::Failed(failure));
                        }
                        break failure.message;
                    }
                    Event::Reply(Err(failure)) => return Err(AskError::Failed(failure)),
                    Event::Lost(reason) => {
                        losses += 1;
                        break reason;
                    }
                }
            };
            self.forget(&connection).await;
            if losses > 1 {
                return Err(AskError::Lost { reason, log: self.data.core_log() });
            }
        }
    }

    /// Reports observations over a connection of its own, which ends with it; gives back those that no
    /// daemon has taken up by `deadline`.
    pub(crate) async fn observe(&self, observations: Vec<Observation>, deadline: Instant) -> Vec<Observation> {
        let Ok(connection) = self.connect(Role::Mcp, deadline).await else { return observations };
        let begin = |observation: Observation| {
            let pending = connection.start(Request::Observe(observation.clone()));
            (observation, pending)
        };
        let started: Vec<_> = observations.into_iter().map(begin).collect();
        let mut left = Vec::new();
        for (observation, mut pending) in started {
            let is_done = match timeout_at(deadline, pending.next()).await {
                Ok(Event::Reply(Ok(_))) => true,
                // The same report would be refused again.
                Ok(Event::Reply(Err(failure))) => failure.kind == FailureKind::InvalidRequest,
                Ok(Event::Progress(_) | Event::Lost(_)) | Err(_) => false,
            };
            if !is_done {
                left.push(observation);
            }
        }
        left
    }

    /// The connection that questions share, opened where there is none.
    async fn shared(&self, role: Role) -> Result<Arc<Connection>, ConnectError> {
        // Held while connecting: questions that come at once wait for one connection.
        let mut current = self.current.lock().await;
        // A daemon that was rebuilt or updated meanwhile is taken up by a session that goes on: its
        // client may never restart this process.
        let installed = Program::find(&self.data).map(|program| program.build).ok();
        let is_current = |connection: &Connection| Some(connection.daemon().build) >= installed;
        if let Some(connection) = current.as_ref().filter(|known| !known.is_lost() && is_current(known)) {
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(self.connect(role, Instant::now() + ASK_CONNECT_LIMIT).await?);
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }

    async fn forget(&self, connection: &Arc<Connection>) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            *current = None;
        }
    }

    /// Asks the daemon to finish its work and leave, and waits until it has left.
    ///
    /// # Errors
    /// Where a daemon is there and does not leave by `deadline`.
    pub(crate) async fn drain(&self, deadline: Instant) -> Result<Drained, ConnectError> {
        let own = Program::find(&self.data).map_or_else(|_| Build::with_stamp(0), |program| program.build);
        let mut leaving: Option<u32> = None;
        let mut pause = POLL_FIRST;
        loop {
            // Asked once: whoever answers after that may be a successor, which is to stay.
            let intent = if leaving.is_none() { Intent::Drain } else { Intent::Probe };
            match meet(&self.data, intent, own, deadline).await? {
                Met::Ready(_, daemon) | Met::Draining(daemon) | Met::NoCommonProtocol(daemon) => {
                    // Another process is a successor that somebody has started meanwhile.
                    if leaving.is_some_and(|pid| pid != daemon.pid) {
                        return Ok(Drained::Left);
                    }
                    leaving = Some(daemon.pid);
                }
                Met::Foreign if leaving.is_none() && !self.life_lock_is_held() => return Err(foreign(&self.data)),
                Met::Nobody | Met::Foreign if !self.life_lock_is_held() => {
                    return Ok(if leaving.is_some() { Drained::Left } else { Drained::WasNotRunning });
                }
                // Starting, leaving, or cut off from its endpoint.
                Met::Nobody | Met::Foreign => {}
            }
            if Instant::now() >= deadline {
                return Err(match leaving {
                    Some(_) => self.timed_out("the daemon to leave"),
                    None => self.unreachable(),
                });
            }
            poll_pause(&mut pause, deadline).await;
        }
    }

    fn life_lock_is_held(&self) -> bool {
        let Ok(file) = open_lock(&self.data.life_lock(), false) else { return false };
        // Held for a moment only; a starting daemon is more patient than that.
        matches!(fs4::FileExt::try_lock(&file), Err(fs4::TryLockError::WouldBlock))
    }

    fn timed_out(&self, what: &'static str) -> ConnectError {
        ConnectError::TimedOut { what, log: log_of(&self.data) }
    }

    fn unreachable(&self) -> ConnectError {
        let endpoint = Endpoint::of(&self.data).address().to_owned();
        ConnectError::Unreachable { who: who(&self.data), endpoint, log: log_of(&self.data) }
    }
}

fn open_lock(path: &Path, create: bool) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

async fn poll_pause(pause: &mut Duration, limit: Instant) {
    sleep((*pause).min(limit.saturating_duration_since(Instant::now()))).await;
    *pause = (*pause * 3 / 2).min(POLL_SLOWEST);
}

/// The question with what is left of its time, where it has a limit of its own.
fn with_time_left(ask: &Ask, passed: Duration) -> Ask {
    let passed = u32::try_from(passed.as_secs()).unwrap_or(u32::MAX);
    Ask { timeout_s: ask.timeout_s.map(|limit| limit.saturating_sub(passed).max(1)), ..ask.clone() }
}

fn foreign(data: &DataDirectory) -> ConnectError {
    ConnectError::Foreign(Endpoint::of(data).address().to_owned())
}

/// The error about a daemon that is there and says nothing.
fn hung(data: &DataDirectory) -> ConnectError {
    ConnectError::Hung { who: who(data), log: log_of(data) }
}

fn who(data: &DataDirectory) -> String {
    let pid = notes(data).and_then(|notes| notes["pid"].as_u64());
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

/// The log that the daemon says it writes, else the usual one.
fn log_of(data: &DataDirectory) -> PathBuf {
    notes(data).and_then(|notes| notes["log"].as_str().map(PathBuf::from)).unwrap_or_else(|| data.core_log())
}

/// The daemon's notes about itself, good enough for messages.
fn notes(data: &DataDirectory) -> Option<serde_json::Value> {
    serde_json::from_slice(&fs::read(data.daemon_notes()).ok()?).ok()
}
