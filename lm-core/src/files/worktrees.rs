//! Linked git worktrees that lie in the tree of their repository.
//!
//! They hold the same files again, as another branch has them, and are workspaces of their own. They
//! are known by the text of their `.git` file alone, so that one whose repository is gone is known
//! too.

use std::path::{Component, Path, PathBuf};

use super::WorkspaceFiles;

/// The longest `.git` file that is read, in bytes; git writes no longer path.
const GIT_FILE_CAP: u64 = 8 << 10;

/// What the root of a walk is to git.
#[derive(Debug)]
pub(super) enum RootTree {
    /// No working tree.
    None,
    /// The working tree of a repository or of a submodule.
    Main,
    /// A linked worktree of the repository with its data there.
    Linked(PathBuf),
}

impl RootTree {
    /// By what `.git` in the root is, where there is one.
    pub(super) fn new(files: &WorkspaceFiles, dot_git: Option<cap_std::fs::FileType>) -> Self {
        match dot_git {
            None => Self::None,
            Some(kind) if kind.is_file() => repository_of(files, Path::new("")).map_or(Self::Main, Self::Linked),
            Some(_) => Self::Main,
        }
    }
}

/// Whether a directory with a `.git` file is a linked worktree that does not belong to a walk: the
/// walk's root is a working tree itself, or has the repository in it.
///
/// A directory that has nothing but worktrees in it, with their repository beside them or elsewhere,
/// is searched with all of them.
pub(super) fn is_foreign(files: &WorkspaceFiles, root: &RootTree, directory: &Path) -> bool {
    let Some(repository) = repository_of(files, directory) else { return false };
    if let RootTree::Linked(own) = root
        && *own == repository
    {
        return true;
    }
    // The repository of a working tree, not a bare one, nor one of a submodule.
    if repository.file_name().is_none_or(|name| name != ".git") {
        return false;
    }
    !matches!(root, RootTree::None) || lies_inside(files.root(), directory, &repository)
}

fn repository_of(files: &WorkspaceFiles, directory: &Path) -> Option<PathBuf> {
    let raw = files.load(&directory.join(".git"), GIT_FILE_CAP, 1).ok()?;
    if raw.is_truncated() {
        return None;
    }
    repository_in(std::str::from_utf8(&raw.bytes).ok()?)
}

/// The repository that a `.git` file's text leads to, if it is `…/worktrees/<name>` in it. The data of
/// submodules is kept as `….git/modules/<path>`, where `<path>` may end like that too.
fn repository_in(text: &str) -> Option<PathBuf> {
    let target = Path::new(text.strip_prefix("gitdir:")?.trim());
    let worktrees = target.parent()?;
    if !matches!(target.components().next_back()?, Component::Normal(_)) || worktrees.file_name()? != "worktrees" {
        return None;
    }
    let repository = worktrees.parent()?;
    let is_modules = repository.file_name().is_some_and(|name| name == "modules");
    (!is_modules && !repository.as_os_str().is_empty()).then(|| repository.to_path_buf())
}

/// Whether a repository, given absolute or relative to a directory of the workspace, lies in it.
fn lies_inside(root: &Path, directory: &Path, repository: &Path) -> bool {
    let mut whole = PathBuf::new();
    for part in root.join(directory).join(repository).components() {
        if part == Component::ParentDir {
            whole.pop();
        } else {
            whole.push(part);
        }
    }
    whole.starts_with(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worktrees_are_told_from_submodules_by_their_text() {
        for (text, repository) in [
            ("gitdir: /home/u/app/.git/worktrees/feature\n", "/home/u/app/.git"),
            ("gitdir: ../../.git/worktrees/feature", "../../.git"),
            ("gitdir: /srv/app.git/worktrees/x\r\n", "/srv/app.git"),
            ("gitdir: /home/modules/app/.git/worktrees/x\n", "/home/modules/app/.git"),
            ("gitdir: /home/u/.git/modules/sub/worktrees/x\n", "/home/u/.git/modules/sub"),
        ] {
            assert_eq!(repository_in(text), Some(PathBuf::from(repository)), "{text}");
        }
        for text in [
            "gitdir: /home/u/app/.git\n",
            "gitdir: ../.git/modules/sub\n",
            "gitdir: ../.git/modules/worktrees/foo\n",
            "gitdir: /home/u/.git/worktrees/x/modules/sub\n",
            "gitdir: /home/u/.git/worktrees\n",
            "gitdir: /home/u/.git/worktrees/..\n",
            "gitdir: worktrees/x\n",
            "gitdir:\n",
            "/home/u/.git/worktrees/x\n",
            "",
        ] {
            assert_eq!(repository_in(text), None, "{text}");
        }
    }

    #[test]
    fn a_repository_is_looked_for_in_the_workspace() {
        let inside = |repository: &str| lies_inside(Path::new("/ws"), Path::new("a/wt"), Path::new(repository));
        assert!(inside("/ws/main/.git") && inside("../main/.git") && inside("../../main/.git"));
        assert!(!inside("/other/.git") && !inside("../../../other/.git") && !inside("/wsx/.git"));
    }
}
