//! From a directory to the root of its workspace.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::{
    path::{PathRefusal, PathStyle, comparable, normalize},
    repository::{Marker, lists_submodule, marker},
};
use crate::files::Excluded;
use crate::settings::{RepoRootMode, Settings};

/// Where a workspace begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root {
    /// The canonical directory: links resolved, letters as on the disk, no `\\?\` in front.
    pub path: PathBuf,
    /// The full SHA-256 of the canonical path in hexadecimal; names what is kept of the workspace.
    pub key: String,
    /// How git marks it.
    pub marker: Option<Marker>,
}

/// What decides which directory is the root.
#[derive(Clone, Copy, Debug)]
pub struct RootRules<'a> {
    /// False: the exact directory is the workspace.
    pub canonicalize: bool,
    /// Which repository counts where one lies in another.
    pub mode: RepoRootMode,
    /// Absolute paths and globs of what is never read.
    pub exclude: &'a [String],
    /// The home directory, which is no workspace, nor is anything above it.
    pub home: Option<&'a Path>,
}

impl<'a> RootRules<'a> {
    /// The rules that a request's settings give.
    #[must_use]
    pub fn new(settings: &'a Settings, home: Option<&'a Path>) -> Self {
        Self {
            canonicalize: settings.canonicalize_workspace,
            mode: settings.repo_root_mode,
            exclude: &settings.exclude,
            home,
        }
    }
}

/// Why a directory belongs to no workspace.
#[derive(Debug, Error)]
pub enum RootError {
    /// Its text alone says so.
    #[error(transparent)]
    Refused(#[from] PathRefusal),
    /// It is not there.
    #[error("`{}` does not exist; give an existing directory as `cwd`", .0.display())]
    Missing(PathBuf),
    /// It is there and cannot be entered.
    #[error("cannot enter `{}`: {source}", path.display())]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A device, a socket or a pipe.
    #[error("`{}` is neither a directory nor a file; give a directory as `cwd`", .0.display())]
    NotADirectory(PathBuf),
    /// Everything on the machine, or everything of its user.
    #[error("`{}` is {what}, which is no workspace; give a project directory as `cwd`", path.display())]
    TooWide {
        /// The directory.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Nothing is checked out there.
    #[error("`{}` is a bare git repository, which has no files to read; give a working tree of it as `cwd`", .0.display())]
    Bare(PathBuf),
    /// The user wants it left alone.
    #[error("`{}` is excluded by the setting exclude (`{pattern}`), so no question about it is answered", path.display())]
    Excluded {
        /// The directory.
        path: PathBuf,
        /// What excludes it.
        pattern: String,
    },
}

/// Finds the root that `directory` belongs to. A file stands for the directory it lies in.
///
/// # Errors
/// Where there is no workspace; every message says what to do.
pub fn find(directory: &Path, rules: RootRules<'_>) -> Result<Root, RootError> {
    let given = normalize(&directory.to_string_lossy(), PathStyle::NATIVE)?;
    // Only text that was not changed on the way may be looked up; a path that is not Unicode is as it was.
    let given = if directory.to_str().is_some() { PathBuf::from(given) } else { directory.to_owned() };
    let directory = enter(&given)?;
    let home = rules.home.map(|home| canonical(home).unwrap_or_else(|_| home.to_owned()));
    let home = home.as_deref();
    check_excluded(&[&given, &directory], rules)?;

    let (path, marker) = if rules.canonicalize { nearest(&directory, home, rules.mode)? } else { (directory, None) };
    if let Some(what) = too_wide(&path, home) {
        return Err(RootError::TooWide { path, what });
    }
    check_excluded(&[&path], rules)?;
    let key = key(&path);
    Ok(Root { path, key, marker })
}

/// A file of a workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its workspace.
    pub root: Root,
    /// Where it lies in it: relative to the root, with `/` between parts. The file need not exist.
    pub path: String,
}

/// Finds the workspace of a file, which need not exist any more, from the directory it lies in. Outside
/// any repository that directory alone would be too little; the workspace is then that of the session's
/// directory, if the file lies in it.
///
/// # Errors
/// Where it lies in no workspace, or in a place that is excluded.
pub fn place(file: &Path, session: Option<&Path>, rules: RootRules<'_>) -> Result<Place, RootError> {
    let given = PathBuf::from(normalize(&file.to_string_lossy(), PathStyle::NATIVE)?);
    let missing = || RootError::Missing(given.clone());
    let mut existing = given.parent().ok_or_else(missing)?;
    let mut below = vec![given.file_name().ok_or_else(missing)?];
    while !existing.is_dir() {
        // `..` after something that is gone leads nowhere.
        below.push(existing.file_name().ok_or_else(missing)?);
        existing = existing.parent().ok_or_else(missing)?;
    }
    let mut root = find(existing, rules)?;
    let directory = enter(existing)?;
    if root.marker.is_none() {
        root = find(session.ok_or_else(missing)?, rules)?;
    }
    let canonical: PathBuf = std::iter::once(directory.as_os_str()).chain(below.into_iter().rev()).collect();
    check_excluded(&[&given, &canonical], rules)?;
    let relative = canonical.strip_prefix(&root.path).map_err(|_| missing())?;
    let parts: Option<Vec<&str>> = relative.components().map(|part| part.as_os_str().to_str()).collect();
    let path = parts.ok_or_else(missing)?.join("/");
    Ok(Place { root, path })
}

/// Under which keys something may be kept of a directory that is gone: its own, then those of the
/// directories above it that are gone too.
#[must_use]
pub fn keys_when_gone(directory: &Path) -> Vec<(PathBuf, String)> {
    let Ok(given) = normalize(&directory.to_string_lossy(), PathStyle::NATIVE).map(PathBuf::from) else {
        return Vec::new();
    };
    let gone: Vec<&Path> = given.ancestors().take_while(|path| fs::symlink_metadata(path).is_err()).collect();
    let Some(existing) = given.ancestors().nth(gone.len()) else { return Vec::new() };
    // What is left may have been named through a link.
    let existing = (canonical(existing).unwrap_or_else(|_| existing.to_owned()), existing);
    let resolved = gone.into_iter().map(|path| match path.strip_prefix(existing.1) {
        Ok(rest) => existing.0.join(rest),
        Err(_) => path.to_owned(),
    });
    resolved.map(|path| (path.clone(), key(&path))).collect()
}

/// The canonical form of a directory, or of the directory a file lies in.
fn enter(given: &Path) -> Result<PathBuf, RootError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => RootError::Missing(given.to_owned()),
        _ => RootError::Unreadable { path: given.to_owned(), source },
    };
    let metadata = fs::metadata(given).map_err(failed)?;
    let path = canonical(given).map_err(failed)?;
    if metadata.is_dir() {
        return Ok(path);
    }
    match path.parent() {
        Some(parent) if metadata.is_file() => Ok(parent.to_owned()),
        _ => Err(RootError::NotADirectory(given.to_owned())),
    }
}

/// The root of the repository around `directory`, else the directory itself.
fn nearest(directory: &Path, home: Option<&Path>, mode: RepoRootMode) -> Result<(PathBuf, Option<Marker>), RootError> {
    // A repository of the whole home directory (dotfiles) or machine is no workspace of what lies in it.
    let mut roots = directory
        .ancestors()
        .take_while(|ancestor| too_wide(ancestor, home).is_none())
        .filter_map(|ancestor| Some((ancestor.to_owned(), marker(ancestor)?)));
    let Some((mut path, mut kind)) = roots.next() else { return Ok((directory.to_owned(), None)) };
    if kind == Marker::Bare {
        return Err(RootError::Bare(path));
    }
    if mode == RepoRootMode::Outermost {
        for (outer, outer_kind) in roots {
            // A linked worktree is a tree of its own wherever it lies, and so is a clone in a clone.
            let folds = match kind {
                Marker::Submodule => outer_kind != Marker::Bare,
                Marker::Repository | Marker::Separated => lists_submodule(&outer, &path),
                Marker::LinkedWorktree | Marker::Bare => false,
            };
            if !folds {
                break;
            }
            (path, kind) = (outer, outer_kind);
        }
    }
    Ok((path, Some(kind)))
}

/// What a path is if it is more than a project.
fn too_wide(path: &Path, home: Option<&Path>) -> Option<&'static str> {
    if path.parent().is_none() {
        return Some(if cfg!(windows) { "a whole drive" } else { "the root of the file system" });
    }
    if cfg!(unix) && ["/proc", "/sys", "/dev"].iter().any(|place| path.starts_with(place)) {
        return Some("a place of the system that holds no files of yours");
    }
    match home {
        Some(home) if home == path => Some("your home directory"),
        Some(home) if home.starts_with(path) => Some("a directory above your home directory"),
        _ => None,
    }
}

/// The places that the setting `exclude` names. May block on the file system.
#[must_use]
pub fn excluded(patterns: &[String]) -> Excluded {
    Excluded::new(patterns, |pattern| canonical(pattern).ok())
}

/// Refuses what a pattern of the setting matches, itself or anything above it.
fn check_excluded(paths: &[&Path], rules: RootRules<'_>) -> Result<(), RootError> {
    for pattern in rules.exclude {
        let excluded = excluded(std::slice::from_ref(pattern));
        if let Some(path) = paths.iter().find(|path| path.ancestors().any(|above| excluded.names(above))) {
            return Err(RootError::Excluded { path: path.to_path_buf(), pattern: pattern.clone() });
        }
    }
    Ok(())
}

/// The SHA-256 of a canonical path's bytes in hexadecimal.
fn key(path: &Path) -> String {
    use std::fmt::Write as _;

    let digest = match path.to_str() {
        Some(text) => Sha256::digest(comparable(text, PathStyle::NATIVE).as_bytes()),
        None => Sha256::digest(path.as_os_str().as_encoded_bytes()),
    };
    digest.iter().fold(String::with_capacity(64), |mut key, byte| {
        let _ = write!(key, "{byte:02x}");
        key
    })
}

/// The path with links resolved, and its letters as they are on the disk.
#[cfg(not(any(windows, target_os = "macos")))]
fn canonical(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// The path with links resolved, and its letters as they are on the disk: the kernel knows which case
/// a volume keeps, `realpath` may repeat what was asked.
#[cfg(target_os = "macos")]
fn canonical(path: &Path) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;

    let resolved = fs::canonicalize(path)?;
    let named = fs::File::open(&resolved).ok().and_then(|file| rustix::fs::getpath(file).ok());
    Ok(named.map_or(resolved, |path| PathBuf::from(std::ffi::OsString::from_vec(path.into_bytes()))))
}

/// The path with links resolved, and its letters as they are on the disk. A drive that is mapped from
/// another machine keeps its letter, since the final path would be a network path.
#[cfg(windows)]
fn canonical(path: &Path) -> io::Result<PathBuf> {
    let resolved = fs::canonicalize(path)?;
    let local = resolved.to_str().and_then(|text| normalize(text, PathStyle::Windows).ok());
    match local {
        Some(local) => Ok(PathBuf::from(local)),
        None => std::path::absolute(path),
    }
}

#[cfg(test)]
#[path = "root_tests.rs"]
mod tests;
