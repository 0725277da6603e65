//! Why something could not be kept, and what to do about it.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why something could not be kept.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another store was opened on the same directory: this one writes nothing any more.
    #[error("another daemon keeps the memory in `{}` by now, and this one writes nothing there any more; ask again", .0.display())]
    Superseded(PathBuf),
    /// The system refuses.
    #[error("cannot keep `{}`: {source}; {}", path.display(), remedy(source))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is no journal that an exchange could be appended to: no epoch was begun, or someone removed
    /// or cut the file. Beginning an epoch with all that is to be kept makes it good.
    #[error("`{}` has no journal to append to, or it was removed or cut by another program; it is kept again when the conversation begins anew", .0.display())]
    NoJournal(PathBuf),
    /// It would not be read again.
    #[error("`{}` would grow past {} MiB and is not kept; empty this workspace's memory", path.display(), bytes_max >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How large it may be.
        bytes_max: u64,
    },
    /// The content cannot be written as text.
    #[error("cannot keep `{}`: its content cannot be written as JSON: {source}; please report this", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What the encoder says.
        source: io::Error,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space there, or move the data directory with LIVE_MEMORY_DATA_DIR"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "make the disk writable, or move the data directory with LIVE_MEMORY_DATA_DIR"
        }
        io::ErrorKind::PermissionDenied => "give its owner the right to write there",
        io::ErrorKind::FileTooLarge => {
            "raise the limit on the size of files (`ulimit -f`) that the daemon was started with"
        }
        io::ErrorKind::NotFound => "its directory was removed; ask again, or restart the daemon with `lm-shim stop`",
        io::ErrorKind::NotADirectory => "remove what lies there in its place",
        _ => "check the disk it lies on",
    }
}
