//! What marks a directory as a git repository, told from its files alone. Git itself is never asked:
//! it runs programs that a repository's configuration names.

use std::{
    fs,
    io::Read,
    path::{Component, Path, PathBuf},
};

/// What a directory is to git.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marker {
    /// A working tree with its own `.git` directory.
    Repository,
    /// A working tree added by `git worktree`.
    LinkedWorktree,
    /// A working tree whose repository lies inside another's `.git`.
    Submodule,
    /// A working tree whose `.git` file leads to a repository elsewhere.
    Separated,
    /// A repository without a working tree.
    Bare,
}

/// A `.git` file holds one path; a longer file is something else.
const GIT_FILE_MAX: u64 = 8 << 10;
/// Larger lists of submodules are not read.
const GITMODULES_MAX: u64 = 1 << 20;

/// How git marks `directory`, which must be absolute; `None` where it does not.
#[must_use]
pub fn marker(directory: &Path) -> Option<Marker> {
    let dot_git = directory.join(".git");
    match fs::metadata(&dot_git) {
        Ok(metadata) if metadata.is_dir() && dot_git.join("HEAD").symlink_metadata().is_ok() => {
            // A link to another tree's `.git` still makes this a working tree.
            return Some(Marker::Repository);
        }
        Ok(metadata) if metadata.is_file() => {
            if let Some(target) = git_file(&dot_git) {
                return Some(classify(&directory.join(target)));
            }
        }
        _ => {}
    }
    is_bare(directory).then_some(Marker::Bare)
}

/// The path in a `.git` file.
fn git_file(path: &Path) -> Option<PathBuf> {
    let text = read_small(path, GIT_FILE_MAX)?;
    let target = text.strip_prefix("gitdir:")?.trim();
    (!target.is_empty() && !target.contains('\0')).then(|| PathBuf::from(target))
}

/// What kind of tree has its repository at `target`. A repository that is gone, as after a move, is
/// judged by its path, so that its tree still is not taken for a part of the tree around it.
fn classify(target: &Path) -> Marker {
    let parents: Vec<_> = target
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let in_worktrees = parents.len() >= 2 && parents[parents.len() - 2] == "worktrees";
    if target.join("commondir").exists() || (in_worktrees && !target.join("objects").exists()) {
        Marker::LinkedWorktree
    } else if parents.iter().rev().skip(1).any(|name| *name == "modules") {
        Marker::Submodule
    } else {
        Marker::Separated
    }
}

/// A repository's own files in the open, and not inside a `.git` directory.
fn is_bare(directory: &Path) -> bool {
    !directory.components().any(|component| component.as_os_str() == ".git")
        && directory.join("HEAD").is_file()
        && directory.join("objects").is_dir()
        && directory.join("refs").is_dir()
}

/// Whether the repository with its tree at `outer` counts the tree at `inner` to its submodules.
#[must_use]
pub fn lists_submodule(outer: &Path, inner: &Path) -> bool {
    let Ok(relative) = inner.strip_prefix(outer) else { return false };
    let Some(text) = read_small(&outer.join(".gitmodules"), GITMODULES_MAX) else { return false };
    text.lines().filter_map(|line| line.trim().strip_prefix("path")).any(|rest| {
        let value = rest.trim_start().strip_prefix('=').map(|value| value.trim().trim_matches('"'));
        value.is_some_and(|value| !value.is_empty() && Path::new(value) == relative)
    })
}

fn read_small(path: &Path, longest: u64) -> Option<String> {
    // Looked at before it is opened: opening a pipe would wait for its writer.
    if !fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= longest) {
        return None;
    }
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(longest).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}
