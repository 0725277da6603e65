//! Private surroundings of one test: a home, a data directory, a place for repositories.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use lm_proto::DataDirectory;
use tempfile::TempDir;

use crate::binaries;

/// A home of its own; when dropped, the daemon that lives in it is drained and all of it removed.
#[derive(Debug)]
pub struct Sandbox {
    root: TempDir,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Sandbox {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        let root = tempfile::Builder::new().prefix("lm-").tempdir().unwrap();
        fs::create_dir(root.path().join("home")).unwrap();
        Self { root }
    }

    /// The directory that everything else lies in.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The home directory.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// The data directory, created on first use.
    #[must_use]
    pub fn data(&self) -> DataDirectory {
        DataDirectory::open_at(self.root.path().join("data")).unwrap()
    }

    /// A fresh directory for a workspace.
    #[must_use]
    pub fn workspace(&self, name: &str) -> PathBuf {
        let path = self.root.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// A program with a cleared environment that only knows this sandbox.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.home()).env("LIVE_MEMORY_DATA_DIR", self.root.path().join("data"));
        // What Windows processes cannot do without; absent elsewhere.
        for name in
            ["SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TEMP", "TMP", "PATH", "COMSPEC", "WINEPREFIX"]
        {
            if let Some(value) = std::env::var_os(name).filter(|_| cfg!(windows) || name == "PATH") {
                command.env(name, value);
            }
        }
        command.current_dir(self.root.path()).stdin(Stdio::null());
        command
    }

    /// `lm-shim` with arguments.
    #[must_use]
    pub fn shim(&self, arguments: &[&str]) -> Command {
        // The daemon is looked for beside the shim, so both must have been built.
        let _ = binaries::core();
        let mut command = self.command(binaries::shim());
        command.args(arguments);
        command
    }

    /// Runs `lm-shim` to its end.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.shim(arguments).output().unwrap()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Best effort: a test that failed early may have no daemon, or one that no longer answers.
        let _ = self.shim(&["stop"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}
