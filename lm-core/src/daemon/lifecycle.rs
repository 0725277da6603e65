//! From start to end: lock, bind, serve, drain.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use lm_proto::{Build, DataDirectory, Endpoint, endpoint::Listener};
use thiserror::Error;
use tokio_util::task::TaskTracker;

use super::{
    dispatch::Dispatcher,
    lock::LifeLock,
    logging::{self, LogOptions},
    notes::DaemonNotes,
    server::{Leaving, Server},
    status::Status,
};
use crate::settings::SettingsStore;

/// How long to wait for the life lock of a daemon that has just died: the kernel closes its socket
/// a little before it gives its lock back.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long to wait for one that is leaving; longer than it may take ([`DRAIN_LIMIT`]).
const PATIENCE_WITH_PREDECESSOR: Duration = Duration::from_secs(10);
/// How long running requests may go on once the daemon is leaving.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// How long the last replies and farewells may take.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
/// How often the daemon looks whether it is still wanted.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// How a daemon is to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it lives.
    pub data: DataDirectory,
    /// What it tells its clients it is.
    pub build: Build,
    /// Started by a person, not by a shim.
    pub foreground: bool,
    /// Wait for a predecessor that is leaving.
    pub replaces: bool,
    /// What a person has set.
    pub settings: Arc<SettingsStore>,
    /// Its log.
    pub log: LogOptions,
}

/// How it ended without an error.
#[derive(Debug)]
pub enum Ended {
    /// Another daemon holds the data directory, as it should be.
    LostElection,
    /// It has served and left. The lock is to be kept until the process ends, so that a successor
    /// never overlaps with what still runs in this process.
    Left(LifeLock),
}

/// Why a daemon could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A person started a second one.
    #[error("a daemon already runs for `{data}`{who}; stop it first with `lm-shim stop`")]
    AlreadyRunning {
        /// The data directory.
        data: String,
        /// Its process id where that is known, with words around it.
        who: String,
    },
    /// The lock file is unusable.
    #[error("cannot lock `{path}`: {source}; the data directory must lie on a file system with locks")]
    Lock {
        /// The lock's file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system lets no signal be heard.
    #[error("cannot listen for signals: {0}; too many files may be open on this machine")]
    Signals(io::Error),
    /// Nowhere to listen.
    #[error("cannot listen anywhere: {0}; remove what is in the way, or move the data directory")]
    NoEndpoint(String),
    /// Clients could not find it.
    #[error("cannot record the endpoint in `{path}`: {source}")]
    Record {
        /// The record.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Runs a daemon from its election to its end.
///
/// # Errors
/// Where it cannot start.
pub async fn run(options: Options) -> Result<Ended, StartError> {
    let data = &options.data;
    let patience = match (options.foreground, options.replaces) {
        (_, true) => PATIENCE_WITH_PREDECESSOR,
        _ => PATIENCE,
    };
    let lock = LifeLock::acquire(data, patience)
        .await
        .map_err(|source| StartError::Lock { path: data.life_lock().display().to_string(), source })?;
    let Some(lock) = lock else {
        return if options.foreground { Err(already_running(data)) } else { Ok(Ended::LostElection) };
    };

    // Only the holder of the lock logs: nobody else may rotate the file.
    let log = start_log(&options);
    for problem in options.settings.for_request(&[]).problems {
        tracing::warn!("a setting is not accepted: {problem}");
    }
    let mut signals = Signals::listen().map_err(StartError::Signals)?;
    let (endpoint, listener) = bind(data)?;
    let status = Arc::new(Status::new(options.build, endpoint.address().to_owned(), log));
    if let Err(error) = DaemonNotes::about(&status).write(data) {
        tracing::warn!(%error, "cannot write notes about this daemon");
    }
    tracing::info!(pid = status.pid, build = %options.build, endpoint = %endpoint.address().display(), "listening");

    let server = Arc::new(Server {
        dispatcher: Dispatcher::new(data.clone(), Arc::clone(&options.settings), Arc::clone(&status)),
        build: options.build,
        leaving: Leaving::default(),
        connections: TaskTracker::new(),
    });
    let accepting = async { server.accept_all(&listener).await };
    let living = async {
        let reason = reason_to_leave(&server, &endpoint, &listener, &mut signals).await;
        tracing::info!(reason, "leaving");
        drain(&server, &mut signals).await;
    };
    tokio::join!(accepting, living);

    // Ours alone: a successor may have bound the same path already.
    if endpoint.leads_to(&listener) {
        let _ = endpoint.remove_stale();
    }
    drop(listener);
    server.connections.close();
    let _ = tokio::time::timeout(FAREWELL_LIMIT, server.connections.wait()).await;
    DaemonNotes::remove_own(data);
    tracing::info!("left");
    Ok(Ended::Left(lock))
}

fn already_running(data: &DataDirectory) -> StartError {
    let who = DaemonNotes::read(data).map(|notes| format!(" (process {})", notes.pid)).unwrap_or_default();
    StartError::AlreadyRunning { data: data.root().display().to_string(), who }
}

/// Opens the log, or where that fails the one in the data directory, and says which it is.
fn start_log(options: &Options) -> Option<std::path::PathBuf> {
    let mut log = options.log.clone();
    let fallback = options.data.core_log();
    match logging::check(&log.file) {
        Ok(()) => {}
        Err(error) if log.file != fallback && logging::check(&fallback).is_ok() => {
            let chosen = std::mem::replace(&mut log.file, fallback);
            logging::start(&log);
            tracing::warn!(%error, "cannot log to `{}`; logging here instead", chosen.display());
            return Some(log.file);
        }
        Err(_) => {
            logging::start(&log);
            return None;
        }
    }
    logging::start(&log);
    Some(log.file)
}

/// Listens on the first candidate that can be had. Only under the life lock.
fn bind(data: &DataDirectory) -> Result<(Endpoint, Listener), StartError> {
    let mut refusals = Vec::new();
    for endpoint in Endpoint::candidates(data) {
        // Some file systems know no sockets, some directories belong to others, and what is not a
        // socket is never removed: there is always another place to try.
        match endpoint.remove_stale().and_then(|()| endpoint.listen()) {
            Ok(listener) => {
                record(data, &endpoint)?;
                for refusal in refusals {
                    tracing::warn!("passed over an endpoint: {refusal}");
                }
                return Ok((endpoint, listener));
            }
            Err(error) => refusals.push(format!("`{}`: {error}", endpoint.address().display())),
        }
    }
    Err(StartError::NoEndpoint(refusals.join("; ")))
}

fn record(data: &DataDirectory, endpoint: &Endpoint) -> Result<(), StartError> {
    let Err(source) = endpoint.record(data) else { return Ok(()) };
    // A full disk: without any record clients go to the first candidate.
    let _ = std::fs::remove_file(data.endpoint_record());
    if Endpoint::of(data) == *endpoint {
        tracing::warn!(error = %source, "cannot record the endpoint");
        return Ok(());
    }
    Err(StartError::Record { path: data.endpoint_record().display().to_string(), source })
}

/// Waits until there is a reason to leave, and says which.
async fn reason_to_leave(
    server: &Server,
    endpoint: &Endpoint,
    listener: &Listener,
    signals: &mut Signals,
) -> &'static str {
    let checks = async {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if !endpoint.leads_to(listener) {
                return "the endpoint no longer leads here";
            }
            let idle_exit = server.dispatcher.idle_exit();
            let idle = server.dispatcher.status().idle_since().map(|since| since.elapsed());
            if !idle_exit.is_zero() && idle.is_some_and(|idle| idle >= idle_exit) && !server.dispatcher.is_working() {
                return "nothing to do";
            }
        }
    };
    tokio::select! {
        reason = checks => reason,
        reason = signals.asking_to_leave() => reason,
        () = server.leaving.draining.cancelled() => "a client asked for it",
    }
}

/// Lets running requests and what was observed finish, up to a limit or to a second signal.
async fn drain(server: &Server, signals: &mut Signals) {
    let Leaving { draining, hurried, closing } = &server.leaving;
    draining.cancel();
    tokio::select! {
        () = until_nothing_runs(server, DRAIN_LIMIT) => {}
        _ = signals.asking_to_leave() => {}
    }
    hurried.cancel();
    until_nothing_runs(server, FAREWELL_LIMIT).await;
    let dispatcher = server.dispatcher.clone();
    let saving = tokio::task::spawn_blocking(move || dispatcher.save());
    if !matches!(tokio::time::timeout(FAREWELL_LIMIT, saving).await, Ok(Ok(()))) {
        tracing::warn!("left before all that was learned was written; answers are kept");
    }
    closing.cancel();
}

async fn until_nothing_runs(server: &Server, limit: Duration) {
    let start = Instant::now();
    // What was observed is taken in too: nobody reports it again.
    let is_busy = || server.dispatcher.status().running() > 0 || server.dispatcher.is_observing();
    while is_busy() && start.elapsed() < limit {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The signals that concern a daemon, listened for from before anybody can find it.
#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one that asks to leave. A hang-up is none: it is meant for whoever started us.
    async fn asking_to_leave(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hangup.recv() => tracing::info!("ignored a hang-up"),
            }
        }
    }
}

/// The signals that concern a daemon, listened for from before anybody can find it.
#[cfg(windows)]
struct Signals {
    ctrl_c: tokio::signal::windows::CtrlC,
}

#[cfg(windows)]
impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self { ctrl_c: tokio::signal::windows::ctrl_c()? })
    }

    /// Waits for one that asks to leave.
    async fn asking_to_leave(&mut self) -> &'static str {
        match self.ctrl_c.recv().await {
            Some(()) => "Ctrl-C",
            None => std::future::pending().await,
        }
    }
}
