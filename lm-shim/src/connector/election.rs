//! Who starts the daemon, and the start itself.

use std::{
    fs::{self, File, OpenOptions},
    path::Path,
    time::Duration,
};

use lm_proto::{
    Build,
    endpoint::Stream,
    handshake::{Intent, Welcome},
};
use tokio::time::{Instant, timeout_at};

use super::{
    ConnectError, Connector, POLL_FIRST, environment, foreign, log_of,
    meeting::{Met, meet},
    open_lock, poll_pause,
    program::Program,
    starts::{Starts, now_ms},
};
use crate::spawn::{self, Spawned};

/// A daemon that has not answered so long after it was started has failed to start.
const START_LIMIT: Duration = Duration::from_secs(8);
/// The same where it first waits for a predecessor to finish its answers.
const REPLACE_LIMIT: Duration = Duration::from_secs(12);
/// A starter that lost the election waits so long for the winner before it tries again.
const WINNER_LIMIT: Duration = Duration::from_millis(500);
/// The start log is emptied when it is longer than this, in bytes.
const START_LOG_MAX: u64 = 64 * 1024;

impl Connector {
    /// Starts or replaces the daemon, unless somebody else just has.
    pub(super) async fn elect(&self, program: &Program, deadline: Instant) -> Result<(Stream, Welcome), ConnectError> {
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
        program: &Path,
        own: Build,
        mut replaces: bool,
        deadline: Instant,
    ) -> Result<(Stream, Welcome), ConnectError> {
        let began = Instant::now();
        let limit = began + if replaces { REPLACE_LIMIT } else { START_LIMIT };
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
                        began.elapsed().as_secs(),
                        self.said_since(said_before)
                    )));
                }
                child.release();
                return Err(self.unreachable());
            }
            poll_pause(&mut pause, limit).await;
        }
    }

    fn spawn(&self, program: &Path, own: Build, replaces: bool) -> Result<Spawned, ConnectError> {
        let mut arguments = vec!["--build-stamp".into(), own.stamp.to_string().into()];
        // A stand-in for a home directory is found again by the same rules, and known as one.
        if !self.data.is_temporary() {
            arguments.extend(["--data-dir".into(), self.data.root().as_os_str().to_owned()]);
        }
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

    fn start_failed(&self, how: String) -> ConnectError {
        ConnectError::StartFailed { how, start_log: self.data.start_log(), log: log_of(&self.data) }
    }
}

enum StartLock {
    Held { lock: File, had_to_wait: bool },
    NotNeeded(Stream, Welcome),
}
