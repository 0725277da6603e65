//! Looks at many known files without opening them.
//!
//! Every directory on the way is opened once, by a name without separators in the one above it, so
//! that a file costs one call of the system and no name leads outside. In the order of their paths the
//! files of a directory, and the directories of a tree, come one after the other.

use std::{
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

use cap_std::fs::Dir;

use super::{
    FileStamp, WorkspaceFiles,
    ignore_rules::{OWN_RULES, OwnRules},
};

/// As deep a directory is kept open; each takes a file handle.
const DEEPEST: usize = 64;

/// A look at one file after the other. It goes by the rules that it first met in a directory.
pub(crate) struct Glance<'a> {
    files: &'a WorkspaceFiles,
    root_rules: OwnRules,
    /// The directories above the last file, from the first below the root.
    open: Vec<Level>,
    /// The path of the deepest of them.
    reached: PathBuf,
}

struct Level {
    name: OsString,
    directory: Dir,
    rules: OwnRules,
}

impl WorkspaceFiles {
    /// Looks at files one after the other.
    pub(crate) fn glance(&self) -> Glance<'_> {
        let root_rules = OwnRules::default().descend(self, Path::new(""));
        Glance { files: self, root_rules, open: Vec::new(), reached: PathBuf::new() }
    }
}

impl Glance<'_> {
    /// The stamp of a regular file, given relative to the root. None wherever that alone does not tell:
    /// it is not there, a link is on the way to it, it is now shut by a person's rules, the system
    /// refuses. Then reading it says which.
    pub(crate) fn stamp(&mut self, path: &Path) -> Option<FileStamp> {
        let parts: Option<Vec<_>> =
            path.components().map(|part| if let Component::Normal(name) = part { Some(name) } else { None }).collect();
        let parts = parts?;
        let (name, directories) = parts.split_last()?;
        if directories.len() > DEEPEST {
            return None;
        }
        let shared = self.open.iter().zip(directories).take_while(|(level, name)| level.name == **name).count();
        for _ in shared..self.open.len() {
            self.open.pop();
            self.reached.pop();
        }
        for name in &directories[shared..] {
            let level = self.enter(name)?;
            self.open.push(level);
            self.reached.push(name);
        }
        let (directory, rules) = match self.open.last() {
            Some(level) => (&level.directory, &level.rules),
            None => (&self.files.handle, &self.root_rules),
        };
        if rules.is_unreadable() || rules.matched(path, false) == Some(true) || self.files.is_excluded(path) {
            return None;
        }
        // A name without separators is looked up as it is: a link is seen as a link.
        let metadata = directory.symlink_metadata(name).ok()?;
        metadata.is_file().then(|| FileStamp::of(&metadata))
    }

    fn enter(&self, name: &std::ffi::OsStr) -> Option<Level> {
        let (directory, rules) = match self.open.last() {
            Some(level) => (&level.directory, &level.rules),
            None => (&self.files.handle, &self.root_rules),
        };
        let path = self.reached.join(name);
        if rules.is_unreadable() || rules.matched(&path, true) == Some(true) || self.files.is_excluded(&path) {
            return None;
        }
        if !directory.symlink_metadata(name).ok()?.is_dir() {
            return None;
        }
        let directory = directory.open_dir(name).ok()?;
        let rules = match directory.symlink_metadata(OWN_RULES) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => rules.clone(),
            _ => rules.descend(self.files, &path),
        };
        Some(Level { name: name.to_os_string(), directory, rules })
    }
}
