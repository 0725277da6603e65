//! How the store touches the disk: private files, whole or not at all, and never anything but a file.
//!
//! Everything that changes the disk passes through here, so that tests can let each step fail.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
};

use tempfile::TempPath;

/// How files are called before they are in place.
const FRESH_PREFIX: &str = ".fresh-";
const FRESH_SUFFIX: &str = ".new";

/// The bytes of a regular file; none where there is nothing.
///
/// # Errors
/// Why it cannot be read, as the end of a sentence that begins with its name.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, String> {
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    // Looked at before it is opened, since not every system can refuse links when opening.
    match fs::symlink_metadata(path) {
        Ok(metadata) => check(&metadata, bytes_max)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    }
    let file = open(OpenOptions::new().read(true), path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    check(&metadata, bytes_max)?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default() + 1);
    file.take(bytes_max).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(Some(bytes))
}

fn check(metadata: &fs::Metadata, bytes_max: u64) -> Result<(), String> {
    let kind = metadata.file_type();
    if kind.is_dir() {
        Err("is a directory".to_owned())
    } else if kind.is_symlink() {
        Err("is a link, and links are not followed".to_owned())
    } else if !kind.is_file() {
        Err("is not a regular file".to_owned())
    } else if metadata.len() > bytes_max {
        Err(format!("is larger than {} MiB", bytes_max >> 20))
    } else {
        Ok(())
    }
}

/// Whether something other than a regular file lies there.
pub(super) fn is_obstacle(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

/// Whether anything lies there, even a link to nowhere.
pub(super) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Opens a file, but no link, and without waiting for the other end of a pipe. What it creates is
/// readable by the user alone.
pub(super) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;

        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::NOFOLLOW;
        options.mode(0o600).custom_flags(flags.bits().cast_signed());
    }
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Writes all of it from where the file stands.
pub(super) fn write(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    if let Err(error) = step() {
        // As a full disk does it: a part is written all the same.
        file.write_all(&bytes[..bytes.len() / 2])?;
        return Err(error);
    }
    // In pieces, so that a test's kill can come between them.
    bytes.chunks(if cfg!(test) { 100 } else { usize::MAX }).try_for_each(|piece| file.write_all(piece))
}

/// Cuts the file, or lengthens it.
pub(super) fn set_length(file: &File, length: u64) -> io::Result<()> {
    step()?;
    file.set_len(length)
}

/// Makes what was written durable.
pub(super) fn sync(file: &File) -> io::Result<()> {
    step()?;
    // Only a power failure would tell the difference, and thousands of them take minutes on a busy disk.
    if cfg!(test) { Ok(()) } else { file.sync_data() }
}

/// Writes `bytes` behind the first `length` bytes of a file that has at least as many; what lay behind
/// them is gone. Durable when it returns.
pub(super) fn write_behind(file: &mut File, length: u64, bytes: &[u8]) -> io::Result<()> {
    if file.metadata()?.len() != length {
        set_length(file, length)?;
    } else if bytes.is_empty() {
        return Ok(());
    }
    file.seek(SeekFrom::Start(length))?;
    write(file, bytes)?;
    sync(file)
}

/// Whether syncing a file makes the name durable that it was just given, as Linux' file systems do it: a
/// name is a change of the file, and changes are made durable in their order.
pub(super) const SYNCING_KEEPS_THE_NAME: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Makes a file and the name durable that it was just given, where [`SYNCING_KEEPS_THE_NAME`].
pub(super) fn sync_with_name(path: &Path) -> io::Result<()> {
    step()?;
    let file = open(OpenOptions::new().read(true), path)?;
    if cfg!(test) { Ok(()) } else { file.sync_all() }
}

/// A file beside its later place, complete, and durable if wanted; it goes away with the value that is
/// returned.
pub(super) fn write_fresh(directory: &Path, bytes: &[u8], durable: bool) -> io::Result<TempPath> {
    step()?;
    // The crate creates files with mode 0600.
    let mut file = tempfile::Builder::new().prefix(FRESH_PREFIX).suffix(FRESH_SUFFIX).tempfile_in(directory)?;
    write(file.as_file_mut(), bytes)?;
    if durable {
        sync(file.as_file())?;
    }
    // Closed before it is moved, for Windows' sake.
    Ok(file.into_temp_path())
}

/// Whether a file is one that a crash kept from its place.
pub(super) fn is_leftover(name: &str) -> bool {
    name.starts_with(FRESH_PREFIX) && name.ends_with(FRESH_SUFFIX)
}

/// Moves a fresh file to its place, instead of what lies there.
#[cfg(not(windows))]
pub(super) fn put(fresh: TempPath, target: &Path) -> io::Result<()> {
    step()?;
    fresh.persist(target).map_err(|refused| refused.error)
}

/// Scanners hold fresh files open for a moment (astral-sh/uv#1491), so that a rename is retried.
#[cfg(windows)]
pub(super) fn put(mut fresh: TempPath, target: &Path) -> io::Result<()> {
    const ATTEMPTS: u32 = 10;
    step()?;
    let mut attempt = 1;
    loop {
        match fresh.persist(target) {
            Ok(()) => return Ok(()),
            Err(refused) if refused.error.kind() == io::ErrorKind::PermissionDenied && attempt < ATTEMPTS => {
                fresh = refused.path;
                std::thread::sleep(std::time::Duration::from_millis(10 << attempt.min(5)));
                attempt += 1;
            }
            Err(refused) => return Err(refused.error),
        }
    }
}

/// Moves whatever lies at `from`, itself and not what it links to.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    step()?;
    fs::rename(from, to)
}

/// Gives a regular file a second name, or where that cannot be done a copy.
pub(super) fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    step()?;
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    let mut source = open(OpenOptions::new().read(true), from)?;
    let mut target = open(OpenOptions::new().write(true).create_new(true), to)?;
    io::copy(&mut source, &mut target)?;
    target.sync_data()
}

/// Removes whatever lies there; links are removed, not followed.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    step()?;
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Makes renames and removals in a directory durable.
#[cfg(unix)]
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    step()?;
    if cfg!(test) {
        return Ok(());
    }
    match File::open(directory)?.sync_all() {
        // A file system that knows no such thing is no reason to fail.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}

/// There is no such thing on this system.
#[cfg(not(unix))]
pub(super) fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

/// What lies in a directory, by name; names that are not text are not ours.
pub(super) fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    names.filter_map(Result::transpose).collect()
}

/// Removes all that lies in a directory but `kept`, as far as that can be done, and says what could not.
pub(super) fn clear(directory: &Path, kept: &str) -> io::Result<()> {
    let mut failed = None;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name() != kept
            && let Err(error) = remove(&entry.path())
        {
            failed.get_or_insert(error);
        }
    }
    sync_directory(directory)?;
    failed.map_or(Ok(()), Err)
}

/// Bytes in a file or below a directory, links not followed.
pub(super) fn size(path: &Path) -> u64 {
    let mut total: u64 = 0;
    let mut open = vec![path.to_path_buf()];
    while let Some(path) = open.pop() {
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {
                open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
            }
            Ok(metadata) => total = total.saturating_add(metadata.len()),
            Err(_) => {}
        }
    }
    total
}

/// Passed before every change of the disk.
#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "in tests it fails")]
fn step() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
use faults::step;

/// Steps that fail, on the thread that asks for it.
#[cfg(test)]
pub(super) mod faults {
    use std::{cell::Cell, io};

    /// Which steps fail.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(in super::super) enum Faults {
        /// None.
        Never,
        /// One, after so many that succeed.
        Once(usize),
        /// All, after so many that succeed: a disk that stays full, or a power failure.
        From(usize),
    }

    thread_local! {
        static FAULTS: Cell<Faults> = const { Cell::new(Faults::Never) };
        static PASSED: Cell<usize> = const { Cell::new(0) };
    }

    /// Lets steps fail from now on.
    pub(in super::super) fn set(faults: Faults) {
        FAULTS.set(faults);
        PASSED.set(0);
    }

    /// How many steps there were since.
    pub(in super::super) fn passed() -> usize {
        PASSED.get()
    }

    pub(super) fn step() -> io::Result<()> {
        let number = PASSED.replace(PASSED.get() + 1);
        let fails = match FAULTS.get() {
            Faults::Never => false,
            Faults::Once(after) => number == after,
            Faults::From(after) => number >= after,
        };
        if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}
