//! What differs from the last commit.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use gix::{
    bstr::{BStr, BString, ByteSlice},
    diff::{Rewrites, index::Change},
    status::{Item, Submodule, UntrackedFiles, index_worktree::iter::Summary, tree_index::TrackRenames},
    submodule::config::Ignore,
};

use super::{Deadline, ToolError, failed, open::Opened};
use crate::{
    files::{display_path, path_from_bytes},
    tools::text::{Page, counted},
};

/// The most files on either side that renames are looked for among.
const RENAME_LIMIT: usize = 200;

/// Lines under their headings, sorted.
#[derive(Default)]
struct Changes {
    staged: BTreeSet<String>,
    unstaged: BTreeSet<String>,
    untracked: BTreeSet<String>,
    conflicts: BTreeSet<String>,
}

/// Lists changes, below a path if it is not empty.
pub(super) fn changed_files(opened: &Opened, path: &Path, deadline: &Deadline) -> Result<String, ToolError> {
    let Opened { repository, prefix, .. } = opened;
    let limit = prefix.join(path);
    let patterns: Vec<BString> = if limit.as_os_str().is_empty() {
        Vec::new()
    } else {
        let mut pattern = BString::from(":(top,literal)");
        pattern.extend_from_slice(
            gix::path::to_unix_separators_on_windows(
                gix::path::into_bstr(&limit).map_err(|error| failed("use the path", error))?,
            )
            .as_ref(),
        );
        vec![pattern]
    };
    let status = repository
        .status(gix::progress::Discard)
        .map_err(|error| failed("compare the working tree", error))?
        .untracked_files(UntrackedFiles::Collapsed)
        // Only which commit a submodule is at: what changed inside belongs to its own workspace.
        .index_worktree_submodules(Submodule::Given { ignore: Ignore::Dirty, check_dirty: true })
        .tree_index_track_renames(TrackRenames::Given(Rewrites { limit: RENAME_LIMIT, ..Rewrites::default() }))
        .should_interrupt_owned(Arc::clone(&deadline.stop));
    let mut changes = Changes::default();
    for item in status.into_iter(patterns).map_err(|error| failed("compare the working tree", error))? {
        changes.add(&item.map_err(|error| failed("compare the working tree", error))?, prefix);
        if deadline.is_over() {
            return Err(ToolError("the time was over before all files were compared; limit the call with path".into()));
        }
    }
    Ok(changes.show(&head(opened), path))
}

/// Where HEAD is.
fn head(opened: &Opened) -> String {
    let repository = &opened.repository;
    let branch = match repository.head_name() {
        Ok(Some(name)) => format!("on branch {}", name.shorten()),
        Ok(None) => "HEAD is detached".to_owned(),
        Err(_) => "HEAD cannot be read".to_owned(),
    };
    match repository.head_id() {
        Ok(id) => format!("{branch}, at commit {}", id.to_hex_with_len(12)),
        Err(_) => format!("{branch}, without a commit yet"),
    }
}

impl Changes {
    fn add(&mut self, item: &Item, prefix: &Path) {
        let shown = |path: &BStr| shown(path, prefix);
        match item {
            Item::TreeIndex(change) => {
                let line = match change {
                    Change::Addition { location, .. } => format!("A {}", shown(location.as_ref())),
                    Change::Deletion { location, .. } => format!("D {}", shown(location.as_ref())),
                    Change::Modification { location, .. } => format!("M {}", shown(location.as_ref())),
                    Change::Rewrite { source_location, location, copy, .. } => format!(
                        "{} {} -> {}",
                        if *copy { 'C' } else { 'R' },
                        shown(source_location.as_ref()),
                        shown(location.as_ref())
                    ),
                };
                self.staged.insert(line);
            }
            Item::IndexWorktree(item) => {
                let mut path = shown(item.rela_path());
                let mark = match item.summary() {
                    Some(Summary::Added) => {
                        if is_directory(item) {
                            path.push('/');
                        }
                        self.untracked.insert(path);
                        return;
                    }
                    Some(Summary::Conflict) => {
                        self.conflicts.insert(path);
                        return;
                    }
                    Some(Summary::Removed) => 'D',
                    Some(Summary::TypeChange) => 'T',
                    Some(Summary::IntentToAdd) => 'A',
                    Some(Summary::Renamed) => 'R',
                    Some(Summary::Copied) => 'C',
                    Some(Summary::Modified) => 'M',
                    None => return,
                };
                self.unstaged.insert(format!("{mark} {path}"));
            }
        }
    }

    fn show(self, head: &str, path: &Path) -> String {
        let groups = [
            ("In conflict", self.conflicts),
            ("Staged", self.staged),
            ("Not staged", self.unstaged),
            ("Untracked", self.untracked),
        ];
        let total: usize = groups.iter().map(|(_, lines)| lines.len()).sum();
        let mut page = Page::default();
        let mut left_out = 0;
        for (heading, lines) in groups.into_iter().filter(|(_, lines)| !lines.is_empty()) {
            let mut fits = page.push(&format!("{heading}:"));
            for line in lines {
                fits = fits && page.push(&format!("  {line}"));
                left_out += usize::from(!fits);
            }
        }
        let mut remarks = Vec::new();
        if total == 0 {
            let place =
                if path.as_os_str().is_empty() { String::new() } else { format!(" at `{}`", display_path(path)) };
            remarks.push(format!("nothing differs from the last commit{place}"));
        }
        if left_out > 0 {
            remarks.push(format!("{} of {total} not shown; limit the call with path", counted(left_out, "change")));
        }
        remarks.push(head.to_owned());
        page.finish(&remarks)
    }
}

/// Whether an untracked entry stands for all of a directory.
fn is_directory(item: &gix::status::index_worktree::Item) -> bool {
    use gix::{dir::entry::Kind, status::index_worktree::Item};
    matches!(item, Item::DirectoryContents { entry, .. } if matches!(entry.disk_kind, Some(Kind::Directory | Kind::Repository)))
}

/// A path of the repository as one of the workspace.
pub(super) fn shown(path: &BStr, prefix: &Path) -> String {
    let path = path_from_bytes(path.as_bytes()).unwrap_or_else(|| PathBuf::from(path.to_string()));
    match path.strip_prefix(prefix) {
        Ok(below) => display_path(below),
        Err(_) => format!("{} (outside the workspace)", display_path(&path)),
    }
}
