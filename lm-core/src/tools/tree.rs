//! The directory tree that a model is shown from the start.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    path::{Path, PathBuf},
    time::Instant,
};

use tokio_util::sync::CancellationToken;

use super::{Limits, paths, text::counted};
use crate::files::{WorkspaceFiles, display_path};

/// The most files that are named in one directory; more are counted.
const FILES_NAMED: usize = 60;
/// The most directories that are named in one directory.
const DIRECTORIES_NAMED: usize = 200;

/// A workspace's directories and files, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryTree {
    /// One entry a line, indented by depth; what does not fit is counted. Depends on nothing but the
    /// names of the files.
    pub text: String,
    /// How many files the workspace has.
    pub files: usize,
    /// Whether all of them were listed in time.
    pub complete: bool,
}

/// A directory; its entries are opened in the order of their depth as long as there is room.
#[derive(Default)]
struct Directory {
    directories: BTreeMap<String, Directory>,
    /// Sorted.
    files: Vec<OsString>,
    /// Files in it and below.
    total: usize,
    open: bool,
}

/// The tree of a workspace in at most `max_characters` characters. Fails where the workspace cannot be
/// listed, with the reason.
pub fn directory_tree(
    files: &WorkspaceFiles,
    max_characters: usize,
    deadline: Instant,
    cancel: &CancellationToken,
) -> Result<DirectoryTree, String> {
    let limits = Limits { deadline, cancel };
    // A directory is listed in one go by one thread, so its files come one after the other.
    let group = |listed: &mut Vec<(PathBuf, Vec<OsString>)>, path: PathBuf| {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
        match listed.last_mut() {
            Some((last, names)) if last.as_os_str() == parent.as_os_str() => names.push(name.to_owned()),
            _ => listed.push((parent.to_path_buf(), vec![name.to_owned()])),
        }
    };
    let (parts, report) = paths::walk(files, Path::new(""), &limits, group).map_err(|error| error.0)?;
    let mut root = Directory::default();
    for (parent, names) in parts.into_iter().flatten() {
        root.insert(&parent, names);
    }
    Ok(DirectoryTree { text: render(&mut root, max_characters), files: root.total, complete: report.is_complete() })
}

impl Directory {
    fn insert(&mut self, parent: &Path, names: Vec<OsString>) {
        let mut directory = self;
        directory.total += names.len();
        for part in parent {
            let name = display_path(Path::new(part));
            directory = directory.directories.entry(name).or_default();
            directory.total += names.len();
        }
        directory.files.extend(names);
        directory.files.sort_unstable();
    }

    /// The names that are shown.
    fn named(&self) -> impl Iterator<Item = String> {
        self.files.iter().take(FILES_NAMED).map(|name| display_path(Path::new(name)))
    }

    /// The lines that opening it adds, at a depth of its own.
    fn lines(&self, depth: usize) -> usize {
        let indent = depth * 2;
        let directories: usize = self
            .directories
            .iter()
            .take(DIRECTORIES_NAMED)
            .map(|(name, below)| indent + name.chars().count() + closed_suffix(below).len() + 1)
            .sum();
        let files: usize = self.named().map(|name| indent + name.chars().count() + 1).sum();
        directories + files + self.rest().map_or(0, |rest| indent + rest.chars().count() + 1)
    }

    /// What is not named.
    fn rest(&self) -> Option<String> {
        let files = self.files.len().saturating_sub(FILES_NAMED);
        let directories = self.directories.len().saturating_sub(DIRECTORIES_NAMED);
        match (directories, files) {
            (0, 0) => None,
            (0, files) => Some(format!("… {}", counted(files, "more file"))),
            (directories, 0) => Some(format!("… {directories} more directories")),
            (directories, files) => Some(format!("… {directories} more directories, {}", counted(files, "more file"))),
        }
    }

    fn write(&self, depth: usize, text: &mut String) {
        let mut line = |content: &str| {
            text.extend(std::iter::repeat_n(' ', depth * 2));
            text.push_str(content);
            text.push('\n');
        };
        let mut below = Vec::new();
        for (name, directory) in self.directories.iter().take(DIRECTORIES_NAMED) {
            if directory.open {
                below.push((format!("{name}/"), Some(directory)));
            } else {
                below.push((format!("{name}{}", closed_suffix(directory)), None));
            }
        }
        for name in self.named() {
            line(&name);
        }
        if let Some(rest) = self.rest() {
            line(&rest);
        }
        for (shown, directory) in below {
            text.extend(std::iter::repeat_n(' ', depth * 2));
            text.push_str(&shown);
            text.push('\n');
            if let Some(directory) = directory {
                directory.write(depth + 1, text);
            }
        }
    }
}

fn closed_suffix(directory: &Directory) -> String {
    format!("/ ({})", counted(directory.total, "file"))
}

fn render(root: &mut Directory, max_characters: usize) -> String {
    if root.total == 0 {
        return "(no files)\n".chars().take(max_characters).collect();
    }
    let first = root.lines(0);
    if first > max_characters {
        return format!("({})\n", counted(root.total, "file")).chars().take(max_characters).collect();
    }
    root.open = true;
    let mut left = max_characters - first;
    let mut queue: VecDeque<(&mut Directory, usize)> =
        root.directories.values_mut().take(DIRECTORIES_NAMED).map(|directory| (directory, 1)).collect();
    while let Some((directory, depth)) = queue.pop_front() {
        let cost = directory.lines(depth);
        // Opening also drops the count behind the name; that is left as a reserve.
        if cost > left {
            continue;
        }
        left -= cost;
        directory.open = true;
        queue
            .extend(directory.directories.values_mut().take(DIRECTORIES_NAMED).map(|directory| (directory, depth + 1)));
    }
    let mut text = String::new();
    root.write(0, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree<P: AsRef<str>>(paths: &[P], budget: usize) -> String {
        let mut root = Directory::default();
        for path in paths {
            let path = Path::new(path.as_ref());
            root.insert(path.parent().unwrap(), vec![path.file_name().unwrap().to_owned()]);
        }
        render(&mut root, budget)
    }

    const SMALL: &[&str] = &["Cargo.toml", "src/a.rs", "src/deep/b.rs", "src/deep/c.rs", "tests/it.rs"];

    #[test]
    fn all_of_a_small_workspace_is_shown() {
        insta::assert_snapshot!(tree(SMALL, 1_000), @r"
        Cargo.toml
        src/
          a.rs
          deep/
            b.rs
            c.rs
        tests/
          it.rs
        ");
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        insta::assert_snapshot!(tree(SMALL, 80), @r"
        Cargo.toml
        src/
          a.rs
          deep/ (2 files)
        tests/
          it.rs
        ");
        insta::assert_snapshot!(tree(SMALL, 45), @r"
        Cargo.toml
        src/ (3 files)
        tests/ (1 file)
        ");
        insta::assert_snapshot!(tree(SMALL, 20), @"(5 files)");
    }

    proptest! {
        #[test]
        fn the_budget_holds(paths in proptest::collection::vec("[a-c]{1,3}(/[a-c]{1,3}){0,4}", 0..60), budget in 0_usize..600) {
            prop_assert!(tree(&paths, budget).chars().count() <= budget);
        }
    }
}
