//! Notes about the running daemon, for people and error messages; nothing is decided by them.

use std::{fs, io, path::PathBuf, time::UNIX_EPOCH};

use lm_proto::DataDirectory;
use serde::{Deserialize, Serialize};

use super::status::Status;

/// What the file says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DaemonNotes {
    /// Process id.
    pub pid: u32,
    /// Version and stamp.
    pub build: String,
    /// When it started, in seconds since the Unix epoch.
    pub started_at: u64,
    /// The socket's path or the pipe's name.
    pub endpoint: PathBuf,
    /// Its log.
    pub log: Option<PathBuf>,
    /// The file it runs from.
    pub executable: Option<PathBuf>,
}

impl DaemonNotes {
    /// Notes about this process.
    #[must_use]
    pub fn about(status: &Status) -> Self {
        Self {
            pid: status.pid,
            build: status.build.to_string(),
            started_at: status.started_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            endpoint: status.endpoint.clone(),
            log: status.log.clone(),
            executable: std::env::current_exe().ok(),
        }
    }

    /// The notes of the daemon of this data directory, which may be gone.
    pub fn read(data: &DataDirectory) -> Option<Self> {
        serde_json::from_slice(&fs::read(data.daemon_notes()).ok()?).ok()
    }

    /// Writes them, whole or not at all.
    ///
    /// # Errors
    /// Where the run directory cannot be written.
    pub fn write(&self, data: &DataDirectory) -> io::Result<()> {
        let fresh = data.daemon_notes().with_extension("json.new");
        fs::write(&fresh, serde_json::to_vec_pretty(self)?)?;
        fs::rename(fresh, data.daemon_notes())
    }

    /// Removes the notes of a daemon that leaves, not those of another one.
    pub fn remove_own(data: &DataDirectory) {
        if Self::read(data).is_some_and(|notes| notes.pid == std::process::id()) {
            let _ = fs::remove_file(data.daemon_notes());
        }
    }
}
