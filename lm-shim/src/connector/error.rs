//! Why there is no connection, and what to do about it.

use std::{io, path::PathBuf};

use lm_proto::Build;
use thiserror::Error;

/// Why there is no connection to a daemon.
#[derive(Debug, Error)]
pub(crate) enum ConnectError {
    /// Nobody listens, and this role starts nothing.
    #[error("the daemon is not running; it starts with the next question")]
    NotRunning,
    /// There is no program to start.
    #[error("cannot find lm-core in `{}`; install both programs in one directory", .0.display())]
    CoreMissing(PathBuf),
    /// The program cannot be copied to where it runs from.
    #[error("cannot copy lm-core to `{}`: {source}; make room or set LIVE_MEMORY_DATA_DIR to another directory", path.display())]
    Install {
        /// The copy.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The program cannot be run at all.
    #[error("cannot run `{}`: {source}", path.display())]
    Spawn {
        /// The program.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It ran and ended before it answered.
    #[error("the daemon did not start: {how}; see `{}` and `{}`", start_log.display(), log.display())]
    StartFailed {
        /// How it ended and what it said.
        how: String,
        /// What it said before its log was open.
        start_log: PathBuf,
        /// Its log.
        log: PathBuf,
    },
    /// It was started too often for nothing.
    #[error("the daemon failed to start {failures} times within a minute; trying again in {wait_s} s; see `{}`", start_log.display())]
    StartsLimited {
        /// How often.
        failures: usize,
        /// Seconds until it may be tried again.
        wait_s: u64,
        /// What it said.
        start_log: PathBuf,
    },
    /// A daemon is there and does not answer.
    #[error("the daemon{who} accepts connections but does not answer; end that process and ask again; see `{}`", log.display())]
    Hung {
        /// Its process id where that is known, with words around it.
        who: String,
        /// Its log.
        log: PathBuf,
    },
    /// A daemon holds the life lock and nobody can reach it.
    #[error("a daemon{who} is running but cannot be reached at `{}`; end that process and ask again; see `{}`", endpoint.display(), log.display())]
    Unreachable {
        /// Its process id where that is known, with words around it.
        who: String,
        /// Where it was looked for.
        endpoint: PathBuf,
        /// Its log.
        log: PathBuf,
    },
    /// Somebody else listens where the daemon should.
    #[error("`{}` belongs to another user or program, so nothing is sent there; remove it, or set LIVE_MEMORY_DATA_DIR to a directory of yours", .0.display())]
    Foreign(PathBuf),
    /// The daemon is of a later version with which nothing can be exchanged.
    #[error("the running daemon ({daemon}) is newer than this program ({own}); restart the session to get its version")]
    TooOld {
        /// This program's build.
        own: Build,
        /// The daemon's.
        daemon: Build,
    },
    /// The daemon is of an earlier version with which nothing can be exchanged, and may not be
    /// replaced by this role or not so often.
    #[error("the running daemon ({daemon}) is older than this program ({own}); stop it with `lm-shim stop`")]
    DaemonTooOld {
        /// This program's build.
        own: Build,
        /// The daemon's.
        daemon: Build,
    },
    /// Time ran out while something else was going on.
    #[error("gave up waiting for {what}; see `{}`", log.display())]
    TimedOut {
        /// For what.
        what: &'static str,
        /// The daemon's log.
        log: PathBuf,
    },
    /// The lock that keeps two programs from starting two daemons is unusable.
    #[error("cannot lock `{}`: {source}; the data directory must lie on a file system with locks", path.display())]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}
