//! Finds the daemon, elects and starts one where that is allowed, and asks it.
//!
//! probe → start lock → probe again → spawn → poll the endpoint and the child together. Who holds
//! the start lock decides alone; whether a daemon lives is decided by an answered handshake or by
//! its life lock, never by a process id or the age of a file.
//!
//! Not allowed here: what requests mean. This is about reaching a daemon, not about what it says.

mod environment;
mod error;
mod meeting;
mod program;
mod starts;

use std::{
    fs::{self, File, OpenOptions},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use lm_proto::{
    Build, DataDirectory, Endpoint,
    endpoint::Stream,
    handshake::{Intent, Welcome},
    message::{Answer, Ask, Failure, FailureKind, Reply, Request},
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
    starts::{Starts, now_ms},
};
use crate::{
    connection::{Connection, Event},
    spawn::{self, Spawned},
};

/// A daemon that has not answered so long after it was started has failed to start.
const START_LIMIT: Duration = Duration::from_secs(8);
/// The same where it first waits for a predecessor to finish its answers.
const REPLACE_LIMIT: Duration = Duration::from_secs(12);
/// A starter that lost the election waits so long for the winner before it tries again.
const WINNER_LIMIT: Duration = Duration::from_millis(500);
/// Polling starts with the first of these pauses and slows down to the second.
const POLL_FIRST: Duration = Duration::from_millis(1);
const POLL_SLOWEST: Duration = Duration::from_millis(20);
/// How long reaching a daemon may take for a question.
const ASK_CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// How often a question is asked again of the successor of a daemon that is leaving.
const DRAINING_RETRIES: u32 = 3;
/// The start log is emptied when it is longer than this, in bytes.
const START_LOG_MAX: u64 = 64 * 1024;

/// On whose behalf a connection is made, which decides what may be done to get it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(dead_code, reason = "some roles have no command yet")]
pub(crate) enum Role {
    /// The MCP server of a session.
    Mcp,
    /// A person's question or setting.
    Ask,
    /// A hook, which never waits and never starts anything.
    Hook,
    /// A report: looking must not change what is looked at.
    Stats,
    /// Stopping the daemon.
    Stop,
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
                    Event::Reply(Ok(Reply::Report(_))) => {
                        let message = "the daemon answered a question with a report";
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

    /// The connection that questions share, opened where there is none.
    async fn shared(&self, role: Role) -> Result<Arc<Connection>, ConnectError> {
        // Held while connecting: questions that come at once wait for one connection.
        let mut current = self.current.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| !connection.is_lost()) {
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
            match meet(&self.data, Intent::Drain, own, deadline).await? {
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

    /// Starts or replaces the daemon, unless somebody else just has.
    async fn elect(&self, program: &Program, deadline: Instant) -> Result<(Stream, Welcome), ConnectError> {
        let own = program.build;
        let waiting_since = now_ms();
        let (_lock, had_to_wait) = match self.start_lock(own, deadline).await? {
            StartLock::Held { lock, had_to_wait } => (lock, had_to_wait),
            StartLock::NotNeeded(stream, daemon) => return Ok((stream, daemon)),
        };
        let mut starts = Starts::read(&self.data);
        let replaces = match meet(&self.data, Intent::Serve, own, deadline).await? {
            Met::Ready(stream, daemon) if daemon.build >= own || !starts.may_replace() => return Ok((stream, daemon)),
            Met::NoCommonProtocol(daemon) if daemon.build >= own => {
                return Err(ConnectError::TooOld { own, daemon: daemon.build });
            }
            Met::NoCommonProtocol(daemon) if !starts.may_replace() => {
                return Err(ConnectError::DaemonTooOld { own, daemon: daemon.build });
            }
            Met::Ready(..) | Met::NoCommonProtocol(_) => {
                // Whatever it answers: it leaves, or it has left.
                meet(&self.data, Intent::Drain, own, deadline).await?;
                true
            }
            Met::Draining(_) => true,
            Met::Nobody | Met::Foreign => false,
        };
        if had_to_wait && starts.failed_since(waiting_since) {
            return Err(self.start_failed("another program has just tried it in vain".into()));
        }
        if let Some((failures, wait_s)) = starts.refusal() {
            return Err(ConnectError::StartsLimited { failures, wait_s, start_log: self.data.start_log() });
        }
        let path = program.install(&self.data)?;
        starts.begin(replaces);
        starts.write(&self.data);
        let outcome = self.start(&path, own, replaces, deadline).await;
        match &outcome {
            Ok(_) => starts.succeeded(),
            Err(_) => starts.failed(),
        }
        starts.write(&self.data);
        if outcome.is_ok() {
            program.remove_older(&self.data);
        }
        outcome
    }

    /// Takes the start lock, or a connection to a daemon that somebody else has started meanwhile.
    async fn start_lock(&self, own: Build, deadline: Instant) -> Result<StartLock, ConnectError> {
        let path = self.data.start_lock();
        let unusable = |source| ConnectError::Lock { path: path.clone(), source };
        let lock = open_lock(&path, true).map_err(unusable)?;
        let mut pause = POLL_FIRST;
        let mut had_to_wait = false;
        loop {
            // Named in full: std has a method of the same name from Rust 1.89 on.
            match fs4::FileExt::try_lock(&lock) {
                Ok(()) => return Ok(StartLock::Held { lock, had_to_wait }),
                Err(fs4::TryLockError::WouldBlock) => had_to_wait = true,
                Err(fs4::TryLockError::Error(source)) => return Err(unusable(source)),
            }
            match meet(&self.data, Intent::Serve, own, deadline).await? {
                Met::Ready(stream, daemon) if daemon.build >= own => return Ok(StartLock::NotNeeded(stream, daemon)),
                _ => {}
            }
            if Instant::now() >= deadline {
                return Err(self.timed_out("another program that is starting the daemon"));
            }
            poll_pause(&mut pause, deadline).await;
        }
    }

    /// Starts a daemon and waits for it. Only under the start lock.
    async fn start(
        &self,
        program: &std::path::Path,
        own: Build,
        mut replaces: bool,
        deadline: Instant,
    ) -> Result<(Stream, Welcome), ConnectError> {
        let limit = Instant::now() + if replaces { REPLACE_LIMIT } else { START_LIMIT };
        let limit = limit.min(deadline);
        let said_before = self.prepare_start_log();
        let mut child = self.spawn(program, own, replaces)?;
        let mut lost_at = None;
        let mut was_repeated = false;
        let mut pause = POLL_FIRST;
        loop {
            let met = match timeout_at(limit, meet(&self.data, Intent::Serve, own, limit)).await {
                Ok(met) => met?,
                Err(_) => Met::Nobody,
            };
            match met {
                Met::Ready(stream, daemon) => {
                    child.release();
                    return Ok((stream, daemon));
                }
                Met::NoCommonProtocol(daemon) => return Err(ConnectError::TooOld { own, daemon: daemon.build }),
                Met::Foreign if Instant::now() >= limit => return Err(foreign(&self.data)),
                _ => {}
            }
            match (child.exit_code(), lost_at) {
                (None, _) => {}
                (Some(0), None) => lost_at = Some(Instant::now()),
                // It lost to a daemon that then neither answered nor stayed: it is our turn again.
                (Some(0), Some(lost)) if !was_repeated && lost.elapsed() > WINNER_LIMIT => {
                    (was_repeated, replaces, lost_at) = (true, true, None);
                    child = self.spawn(program, own, replaces)?;
                }
                (Some(0), Some(_)) => {}
                (Some(code), _) => {
                    return Err(self.start_failed(format!("it ended with code {code}{}", self.said_since(said_before))));
                }
            }
            if Instant::now() >= limit {
                // A child without the life lock is no daemon and never becomes one.
                if !self.life_lock_is_held() {
                    child.kill();
                    return Err(self.start_failed(format!(
                        "it did not answer within {} s{}",
                        START_LIMIT.as_secs(),
                        self.said_since(said_before)
                    )));
                }
                child.release();
                return Err(self.unreachable());
            }
            poll_pause(&mut pause, limit).await;
        }
    }

    fn spawn(&self, program: &std::path::Path, own: Build, replaces: bool) -> Result<Spawned, ConnectError> {
        let mut arguments = vec![
            "--data-dir".into(),
            self.data.root().as_os_str().to_owned(),
            "--build-stamp".into(),
            own.stamp.to_string().into(),
        ];
        if replaces {
            arguments.push("--replace".into());
        }
        let daemon = spawn::Daemon {
            program,
            arguments: &arguments,
            environment: &environment::inherited(std::env::vars_os()),
            directory: &self.data.run(),
            start_log: &self.data.start_log(),
        };
        daemon.spawn().map_err(|source| ConnectError::Spawn { path: program.to_owned(), source })
    }

    /// Keeps the start log short and returns its length.
    fn prepare_start_log(&self) -> u64 {
        let path = self.data.start_log();
        let length = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        if length <= START_LOG_MAX {
            return length;
        }
        let _ = OpenOptions::new().write(true).truncate(true).open(path);
        0
    }

    /// The last line that a starting daemon has added to the start log.
    fn said_since(&self, length: u64) -> String {
        let log = fs::read(self.data.start_log()).unwrap_or_default();
        let added = log.get(usize::try_from(length).unwrap_or(usize::MAX)..).unwrap_or_default();
        let added = String::from_utf8_lossy(added);
        added.lines().rfind(|line| !line.trim().is_empty()).map_or_else(String::new, |line| {
            let line: String = line.trim().chars().take(500).collect();
            format!(" and said `{line}`")
        })
    }

    fn life_lock_is_held(&self) -> bool {
        let Ok(file) = open_lock(&self.data.life_lock(), false) else { return false };
        // Held for a moment only; a starting daemon is more patient than that.
        matches!(fs4::FileExt::try_lock(&file), Err(fs4::TryLockError::WouldBlock))
    }

    fn start_failed(&self, how: String) -> ConnectError {
        ConnectError::StartFailed { how, start_log: self.data.start_log(), log: log_of(&self.data) }
    }

    fn timed_out(&self, what: &'static str) -> ConnectError {
        ConnectError::TimedOut { what, log: log_of(&self.data) }
    }

    fn unreachable(&self) -> ConnectError {
        let endpoint = Endpoint::of(&self.data).address().to_owned();
        ConnectError::Unreachable { who: who(&self.data), endpoint, log: log_of(&self.data) }
    }
}

enum StartLock {
    Held { lock: File, had_to_wait: bool },
    NotNeeded(Stream, Welcome),
}

fn open_lock(path: &std::path::Path, create: bool) -> std::io::Result<File> {
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
