//! The handle on the root, and reading through it.

use std::{
    io::{self, Read as _, Seek as _},
    path::{Component, Path, PathBuf},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, File, OpenOptions},
};
use sha2::{Digest as _, Sha256};

use super::{
    Encoding, Excluded, FileStamp, FileText, OpenError, ReadError, display_path,
    ignore_rules::{MetRules, Remembered},
    secrets, text,
    text::Content,
};

/// How much of a file is judged beyond what is shown of it, in bytes: a token that the cap cuts in two
/// is not shown by its beginning.
const JUDGED_BEYOND: u64 = 4096;
/// How often a file is read that changes meanwhile.
const READ_ATTEMPTS_MAX: u32 = 4;

/// A workspace's files, read through a handle on its root.
#[derive(Debug)]
pub struct WorkspaceFiles {
    root: PathBuf,
    pub(super) handle: Dir,
    pub(super) remembered: Remembered,
    excluded: Excluded,
}

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A pipe, a socket, a device.
    Other,
}

/// The bytes of a regular file, as far as they were wanted.
pub(super) struct RawFile {
    /// Those up to the cap, and a few behind it.
    pub(super) bytes: Vec<u8>,
    cap: usize,
    stamp: FileStamp,
}

impl RawFile {
    /// What was asked for.
    fn wanted(&self) -> &[u8] {
        &self.bytes[..self.bytes.len().min(self.cap)]
    }

    /// Whether the file is longer than what was asked for.
    pub(super) fn is_truncated(&self) -> bool {
        self.bytes.len() > self.cap
    }
}

impl WorkspaceFiles {
    /// Opens a directory as a workspace, for as long as a question or a build takes: on Windows nobody
    /// can rename or remove a directory that is open.
    pub fn open(root: &Path) -> Result<Self, OpenError> {
        match Dir::open_ambient_dir(root, ambient_authority()) {
            Ok(handle) => Ok(Self {
                root: root.to_path_buf(),
                handle,
                remembered: Remembered::default(),
                excluded: Excluded::default(),
            }),
            Err(source) => Err(OpenError { root: root.to_path_buf(), source }),
        }
    }

    /// The same without the places that a person has excluded.
    #[must_use]
    pub fn leaving_out(mut self, excluded: &Excluded) -> Self {
        self.excluded = excluded.clone();
        self
    }

    /// Whether a path, relative to the root, is an excluded place; not whether it lies in one.
    pub(super) fn is_excluded(&self, path: &Path) -> bool {
        !self.excluded.is_empty() && self.excluded.names(&self.root.join(path))
    }

    /// The root, for people; files are not opened by joining to it.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads up to `cap` bytes of a file, given relative to the root. Links are followed as long as
    /// they stay inside; what counts is the file they lead to. What a `.livememoryignore` leaves out is
    /// refused, by its name and by that of a link to it.
    pub fn read(&self, path: &Path, cap: u64) -> Result<FileText, ReadError> {
        self.read_in_batch(path, cap, &MetRules::default())
    }

    /// As [`Self::read`], one of many files that are read one after the other.
    pub(crate) fn read_in_batch(&self, path: &Path, cap: u64, met: &MetRules) -> Result<FileText, ReadError> {
        let shown = || display_path(path);
        if path.components().any(|part| matches!(part, Component::RootDir | Component::Prefix(_))) {
            return Err(ReadError::Outside(shown()));
        }
        let resolved = self.handle.canonicalize(path).map_err(|source| self.refusal(path, source))?;
        if secrets::is_secret_name(&resolved) || secrets::is_secret_name(path) {
            return Err(ReadError::Secret(shown()));
        }
        self.check_own_rules(path, met)?;
        if resolved != path {
            self.check_own_rules(&resolved, met).map_err(|error| rename(error, path))?;
        }
        // Asked before opening: even an open without reading is noticed at the other end of a pipe.
        match self.handle.symlink_metadata(&resolved) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Err(ReadError::NotRegular(shown())),
            Err(source) => return Err(self.refusal(path, source)),
        }
        let raw = self.load_settled(&resolved, cap).map_err(|error| rename(error, path))?;
        let sha256 = hexadecimal(&Sha256::digest(raw.wanted()));
        let (stamp, truncated) = (raw.stamp, raw.is_truncated());
        let (text, encoding) = understand(raw, path)?;
        Ok(FileText { text, sha256, size: stamp.size, stamp, encoding, truncated })
    }

    /// What tells whether a file, given relative to the root, may have changed since. For a regular
    /// file inside alone; its name and what it holds are not judged.
    pub fn stamp(&self, path: &Path) -> Result<FileStamp, ReadError> {
        if path.components().any(|part| matches!(part, Component::RootDir | Component::Prefix(_))) {
            return Err(ReadError::Outside(display_path(path)));
        }
        let metadata = self.handle.metadata(path).map_err(|source| self.refusal(path, source))?;
        if !metadata.is_file() {
            return Err(ReadError::NotRegular(display_path(path)));
        }
        Ok(FileStamp::of(&metadata))
    }

    /// Whether the root's path still leads to the directory that was opened. On Windows, where an open
    /// directory stays, whether there is one.
    pub(crate) fn root_is_there(&self) -> bool {
        let Ok(now) = Dir::open_ambient_dir(&self.root, ambient_authority()) else { return false };
        is_same_directory(&self.handle, &now)
    }

    /// Whether nothing at all lies in the root, as where a disk is no longer mounted.
    pub(crate) fn root_is_empty(&self) -> bool {
        self.handle.entries().is_ok_and(|mut entries| entries.next().is_none())
    }

    /// What a path, relative to the root, leads to; links are followed as long as they stay inside.
    pub fn kind(&self, path: &Path) -> Result<PathKind, ReadError> {
        if path.components().any(|part| matches!(part, Component::RootDir | Component::Prefix(_))) {
            return Err(ReadError::Outside(display_path(path)));
        }
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let metadata = self.handle.metadata(path).map_err(|source| self.refusal(path, source))?;
        Ok(match metadata.file_type() {
            kind if kind.is_file() => PathKind::File,
            kind if kind.is_dir() => PathKind::Directory,
            _ => PathKind::Other,
        })
    }

    /// Reads a file that a walk has just found, for searching: without asking for its type again,
    /// without a hash, without asking the rules that the walk has asked. Refuses the same files as
    /// [`Self::read`].
    pub(crate) fn read_found(&self, path: &Path, cap: u64) -> Result<SearchText, ReadError> {
        let raw = self.load(path, cap, JUDGED_BEYOND)?;
        let truncated = raw.is_truncated();
        let (text, _) = understand(raw, path)?;
        Ok(SearchText { text, truncated })
    }

    /// As [`Self::read_found`], but gives no text for a file whose bytes are not `wanted`, before any
    /// work is spent on them; and whether the file is longer than the cap.
    pub(crate) fn read_found_if(
        &self,
        path: &Path,
        cap: u64,
        wanted: impl FnOnce(&[u8]) -> bool,
    ) -> Result<(Option<String>, bool), ReadError> {
        let raw = self.load(path, cap, JUDGED_BEYOND)?;
        if text::looks_binary(&raw.bytes) {
            return Err(ReadError::Binary(display_path(path)));
        }
        let truncated = raw.is_truncated();
        if !wanted(raw.wanted()) {
            return Ok((None, truncated));
        }
        let (text, _) = understand(raw, path)?;
        Ok((Some(text), truncated))
    }

    /// Reads a file whole if it is regular and small, whatever it holds; none otherwise.
    pub(super) fn read_rules(&self, path: &Path, cap: u64) -> Option<String> {
        if !self.handle.symlink_metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            return None;
        }
        let raw = self.load(path, cap, 0).ok()?;
        Some(String::from_utf8_lossy(&raw.bytes).into_owned())
    }

    /// Reads a regular file up to the cap, and at most so many bytes `beyond` it.
    pub(super) fn load(&self, path: &Path, cap: u64, beyond: u64) -> Result<RawFile, ReadError> {
        let (mut file, stamp) = self.open_regular(path)?;
        let bytes = read_up_to(&mut file, stamp.size, cap.saturating_add(beyond))
            .map_err(|source| self.refusal(path, source))?;
        Ok(RawFile { bytes, cap: usize::try_from(cap).unwrap_or(usize::MAX), stamp })
    }

    /// As [`Self::load`], with a stamp that belongs to the bytes: a file that changes while it is read
    /// is read again, and one that never rests has a stamp that nobody trusts.
    fn load_settled(&self, path: &Path, cap: u64) -> Result<RawFile, ReadError> {
        let (mut file, mut stamp) = self.open_regular(path)?;
        let refusal = |source| self.refusal(path, source);
        let mut attempts = 0;
        loop {
            let bytes = read_up_to(&mut file, stamp.size, cap.saturating_add(JUDGED_BEYOND)).map_err(refusal)?;
            let after = FileStamp::of(&file.metadata().map_err(refusal)?);
            attempts += 1;
            // The clock of a file system ticks slowly: two changes may bear one time.
            let is_all = bytes.len() as u64 == stamp.size.min(cap.saturating_add(JUDGED_BEYOND));
            let settled = after == stamp && (is_all || text::looks_binary(&bytes));
            if settled || attempts == READ_ATTEMPTS_MAX {
                let stamp = if settled { stamp } else { after.distrusted() };
                return Ok(RawFile { bytes, cap: usize::try_from(cap).unwrap_or(usize::MAX), stamp });
            }
            stamp = after;
            file.rewind().map_err(refusal)?;
        }
    }

    fn open_regular(&self, path: &Path) -> Result<(File, FileStamp), ReadError> {
        let file = open_without_waiting(&self.handle, path).map_err(|source| self.refusal(path, source))?;
        let metadata = file.metadata().map_err(|source| self.refusal(path, source))?;
        if !metadata.is_file() {
            return Err(ReadError::NotRegular(display_path(path)));
        }
        Ok((file, FileStamp::of(&metadata)))
    }

    fn refusal(&self, path: &Path, source: io::Error) -> ReadError {
        let shown = display_path(path);
        if is_escape(&source) {
            return ReadError::Outside(shown);
        }
        ReadError::Io { path: shown, source }
    }
}

/// What a search needs of a file.
pub(crate) struct SearchText {
    /// The text.
    pub(crate) text: String,
    /// Whether the file is longer.
    pub(crate) truncated: bool,
}

fn understand(raw: RawFile, path: &Path) -> Result<(String, Encoding), ReadError> {
    let truncated = raw.is_truncated();
    let shown = truncated.then(|| raw.wanted().to_vec());
    let (text, encoding) = decode(raw.bytes, truncated, path)?;
    // On the decoded text, so that UTF-16 hides nothing.
    if secrets::holds_secret(&text) {
        return Err(ReadError::Secret(display_path(path)));
    }
    match shown {
        None => Ok((text, encoding)),
        Some(shown) => decode(shown, truncated, path),
    }
}

fn decode(bytes: Vec<u8>, truncated: bool, path: &Path) -> Result<(String, Encoding), ReadError> {
    match text::decode(bytes, truncated) {
        Content::Binary => Err(ReadError::Binary(display_path(path))),
        Content::Text(text, encoding) => Ok((text, encoding)),
    }
}

/// Reads no more of a binary file than shows that it is one.
fn read_up_to(file: &mut File, size: u64, cap: u64) -> io::Result<Vec<u8>> {
    let wanted = usize::try_from(size.min(cap)).unwrap_or(usize::MAX);
    // A sparse file claims any size, so the claim is not allocated before it is seen to be text.
    let mut bytes = Vec::with_capacity(wanted.min(64 << 10).saturating_add(1));
    file.by_ref().take(cap.min(text::SNIFFED_BYTES as u64)).read_to_end(&mut bytes)?;
    if text::looks_binary(&bytes) || (bytes.len() as u64) < cap.min(text::SNIFFED_BYTES as u64) {
        return Ok(bytes);
    }
    file.by_ref().take(cap - bytes.len() as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn rename(error: ReadError, path: &Path) -> ReadError {
    let shown = display_path(path);
    match error {
        ReadError::Outside(_) => ReadError::Outside(shown),
        ReadError::NotRegular(_) => ReadError::NotRegular(shown),
        ReadError::Secret(_) => ReadError::Secret(shown),
        ReadError::Ignored(_) => ReadError::Ignored(shown),
        ReadError::Excluded(_) => ReadError::Excluded(shown),
        ReadError::UnreadableRules { rules, .. } => ReadError::UnreadableRules { path: shown, rules },
        ReadError::Binary(_) => ReadError::Binary(shown),
        ReadError::Io { source, .. } => ReadError::Io { path: shown, source },
    }
}

/// Opens so that a pipe put in a file's place blocks nobody, and a link put there is not followed.
#[cfg(unix)]
fn open_without_waiting(directory: &Dir, path: &Path) -> io::Result<File> {
    use cap_std::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    directory.open_with(path, &options)
}

#[cfg(not(unix))]
fn open_without_waiting(directory: &Dir, path: &Path) -> io::Result<File> {
    directory.open_with(path, OpenOptions::new().read(true))
}

#[cfg(unix)]
fn is_same_directory(one: &Dir, other: &Dir) -> bool {
    use cap_std::fs::MetadataExt as _;
    let identity = |directory: &Dir| directory.dir_metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()));
    identity(one).is_some_and(|identity_of_one| identity(other) == Some(identity_of_one))
}

#[cfg(not(unix))]
fn is_same_directory(_: &Dir, _: &Dir) -> bool {
    true
}

/// The error by which `cap-std` refuses a path that leads outside: it has no kind of its own, and no
/// code of the system.
fn is_escape(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}
