//! A clock that tests move, shared with the daemon.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use tempfile::TempDir;

/// Names the file with the offset in seconds that a daemon under test adds to its clock.
pub const CLOCK_VARIABLE: &str = "LIVE_MEMORY_TEST_CLOCK_FILE";

/// The system's clock plus an offset that only grows.
#[derive(Debug)]
pub struct Clock {
    directory: TempDir,
    offset: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        let directory = tempfile::Builder::new().prefix("lm-clock-").tempdir().unwrap();
        let clock = Self { directory, offset: AtomicU64::new(0) };
        clock.write(0);
        clock
    }
}

impl Clock {
    /// The file to name in [`CLOCK_VARIABLE`].
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("offset")
    }

    /// Moves server and daemons forward by whole seconds.
    pub fn advance(&self, by: Duration) {
        let offset = self.offset.fetch_add(by.as_secs(), Ordering::SeqCst) + by.as_secs();
        self.write(offset);
    }

    /// The time that holds.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        SystemTime::now() + Duration::from_secs(self.offset.load(Ordering::SeqCst))
    }

    fn write(&self, offset: u64) {
        // In one step, since a daemon may read at any moment.
        let path: &Path = self.directory.path();
        fs::write(path.join("new"), offset.to_string()).unwrap();
        fs::rename(path.join("new"), self.file()).unwrap();
    }
}
