//! What tells cheaply whether a file may have changed.

use serde::{Deserialize, Serialize};

use super::walk::nanoseconds;

/// What the file system says of a file besides its bytes. Where two stamps differ the file may have
/// changed; where they agree it has not, if it has a `changed_ns` and both times lay well before the
/// first look, since clocks of file systems tick slowly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileStamp {
    /// In bytes.
    pub size: u64,
    /// When its text last changed, in nanoseconds since 1970; 0 where unknown. Programs can set it.
    pub modified_ns: i64,
    /// When anything of it last changed, in nanoseconds since 1970; on Unix alone, where no program can
    /// set it.
    pub changed_ns: Option<i64>,
    /// Tells it from another file that is put in its place: on Unix the number of its inode, on Windows
    /// the time it was created.
    pub identity: Option<u64>,
}

impl FileStamp {
    pub(super) fn of(metadata: &cap_std::fs::Metadata) -> Self {
        let modified = metadata.modified().map_or(0, |modified| nanoseconds(modified.into_std()));
        let (changed_ns, identity) = kept_by_the_system(metadata);
        Self { size: metadata.len(), modified_ns: modified, changed_ns, identity }
    }

    /// The same, but so that nobody trusts it.
    pub(super) fn distrusted(self) -> Self {
        Self { changed_ns: None, ..self }
    }
}

#[cfg(unix)]
fn kept_by_the_system(metadata: &cap_std::fs::Metadata) -> (Option<i64>, Option<u64>) {
    use cap_std::fs::MetadataExt as _;
    (Some(super::walk::changed(metadata)), Some(metadata.ino()))
}

#[cfg(windows)]
fn kept_by_the_system(metadata: &cap_std::fs::Metadata) -> (Option<i64>, Option<u64>) {
    use cap_std::fs::MetadataExt as _;
    (None, Some(metadata.creation_time()))
}

#[cfg(not(any(unix, windows)))]
fn kept_by_the_system(_: &cap_std::fs::Metadata) -> (Option<i64>, Option<u64>) {
    (None, None)
}
