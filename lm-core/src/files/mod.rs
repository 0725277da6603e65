//! The one door to workspace files.
//!
//! Every byte of a workspace is read through a directory handle on its root, so that no path and no
//! link leads outside. Only regular files are opened, nothing is mapped into memory (a mapped file
//! that another program truncates kills the reader), and what bears secrets does not pass. Not
//! allowed in here: opening a workspace path by any other way, writing, starting a process, knowing
//! what the text is wanted for.

mod door;
mod excluded;
mod glance;
mod ignore_rules;
mod names;
mod secrets;
mod stamp;
mod text;
mod walk;
mod worktrees;

pub use door::{PathKind, WorkspaceFiles};
pub use excluded::Excluded;
pub use names::display_path;
pub use stamp::FileStamp;
pub use walk::{FoundFile, WalkLimits, WalkReport};

pub(crate) use ignore_rules::MetRules;
pub(crate) use names::{path_from_bytes, path_to_bytes};
pub(crate) use secrets::{holds_secret, is_secret_name};
pub(crate) use walk::nanoseconds;

use std::{io, path::PathBuf};

use thiserror::Error;

/// The text of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileText {
    /// The text: no byte order mark, no NUL, valid UTF-8.
    pub text: String,
    /// Of the raw bytes that were read, lower-case hexadecimal; of the beginning where truncated.
    pub sha256: String,
    /// The whole file in bytes.
    pub size: u64,
    /// Of the very bytes that were read: had the file changed meanwhile, it would differ.
    pub stamp: FileStamp,
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
    /// A person has said that it is not to be read.
    #[error("`{0}` is left out by a `.livememoryignore` and is never shown")]
    Ignored(String),
    /// Nobody knows what is not to be read.
    #[error(
        "`{path}` is not read, because `{rules}` cannot be read as text and so says nothing about what is below it; make it a text file of at most 1 MiB, or remove it"
    )]
    UnreadableRules {
        /// The file that was asked for, safe to display.
        path: String,
        /// The file of rules, safe to display.
        rules: String,
    },
    /// A person excluded the place where it lies.
    #[error("`{0}` lies in a place that the setting exclude names and is never read")]
    Excluded(String),
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

#[cfg(test)]
mod tests;
