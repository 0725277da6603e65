//! Walking a repository's commits from the newest on, and looking into their trees.

use std::{cmp::Reverse, collections::BinaryHeap, rc::Rc};

use gix::{
    ObjectId, Repository,
    bstr::BString,
    diff::tree::{Recorder, State, recorder},
    hashtable::{HashMap, HashSet},
    objs::{CommitRefIter, Kind, TreeRefIter, tree::EntryMode},
    prelude::Find as _,
};

use super::{ToolError, failed};

/// What is kept of a commit.
#[derive(Clone, Debug)]
pub(super) struct Commit {
    pub(super) id: ObjectId,
    pub(super) tree: ObjectId,
    /// Those whose objects are there: a shallow history ends where they are not.
    pub(super) parents: Rc<[ObjectId]>,
    /// By the committer's clock, in seconds since 1970.
    pub(super) time: i64,
}

/// A file or directory in a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) mode: EntryMode,
    pub(super) id: ObjectId,
}

/// A file that differs between a commit and its first parent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FileChange {
    pub(super) path: BString,
    pub(super) before: Option<Entry>,
    pub(super) after: Option<Entry>,
}

/// The commits that lead to HEAD, newest first.
pub(super) struct History<'a> {
    repository: &'a Repository,
    /// Components of the path that commits have to have changed; empty for all commits.
    path: Vec<BString>,
    heap: BinaryHeap<(i64, Reverse<usize>, ObjectId)>,
    seen: HashSet<ObjectId>,
    commits: HashMap<ObjectId, Option<Commit>>,
    /// What a tree has under the component of each depth.
    entries: Vec<HashMap<ObjectId, Option<Entry>>>,
    buffer: Vec<u8>,
    pushed: usize,
    /// Commits looked at.
    pub(super) looked_at: usize,
    /// When the last of them was made.
    pub(super) oldest: Option<i64>,
    /// Whether parents are not there.
    pub(super) is_cut: bool,
    /// Trees that are not there, as in a partial clone.
    pub(super) missing: usize,
}

impl<'a> History<'a> {
    /// From HEAD on; none where there is no commit yet.
    pub(super) fn new(repository: &'a Repository, path: Vec<BString>) -> Result<Option<Self>, ToolError> {
        let head = repository.head().map_err(|error| failed("read HEAD", error))?;
        if head.is_unborn() {
            return Ok(None);
        }
        let Some(head) = head.id().map(gix::Id::detach) else {
            return Err(ToolError("HEAD of the git repository leads to no commit".into()));
        };
        let mut history = Self {
            repository,
            entries: vec![HashMap::default(); path.len()],
            path,
            heap: BinaryHeap::new(),
            seen: HashSet::default(),
            commits: HashMap::default(),
            buffer: Vec::new(),
            pushed: 0,
            looked_at: 0,
            oldest: None,
            is_cut: false,
            missing: 0,
        };
        if history.commit(head)?.is_none() {
            return Err(ToolError("the commit of HEAD is missing from the git repository, or damaged".into()));
        }
        history.push(head)?;
        Ok(Some(history))
    }

    /// The next commit, and whether it changed the path: true where there is none. One that is equal
    /// to any of its parents did not, and of such a merge only that parent is followed.
    pub(super) fn next(&mut self) -> Result<Option<(Commit, bool)>, ToolError> {
        let Some((_, _, id)) = self.heap.pop() else { return Ok(None) };
        let Some(commit) = self.commit(id)? else { return Ok(None) };
        self.looked_at += 1;
        self.oldest = Some(commit.time);
        // Parents that are not there end the history here.
        let mut parents = Vec::with_capacity(commit.parents.len());
        for parent in commit.parents.iter() {
            match self.commit(*parent)? {
                Some(parent) => parents.push(parent),
                None => self.is_cut = true,
            }
        }
        let mut changed = true;
        if !self.path.is_empty() {
            let own = self.entry(commit.tree)?;
            changed = parents.is_empty() && own.is_some();
            let mut equal = None;
            for parent in &parents {
                if self.entry(parent.tree)? == own {
                    equal = Some(parent.id);
                    break;
                }
                changed = true;
            }
            if let Some(parent) = equal {
                self.push(parent)?;
                return Ok(Some((commit, false)));
            }
        }
        for parent in parents {
            self.push(parent.id)?;
        }
        Ok(Some((commit, changed)))
    }

    fn push(&mut self, id: ObjectId) -> Result<(), ToolError> {
        if self.seen.insert(id)
            && let Some(commit) = self.commit(id)?
        {
            self.heap.push((commit.time, Reverse(self.pushed), id));
            self.pushed += 1;
        }
        Ok(())
    }

    fn commit(&mut self, id: ObjectId) -> Result<Option<Commit>, ToolError> {
        if let Some(commit) = self.commits.get(&id) {
            return Ok(commit.clone());
        }
        let commit = read_commit(self.repository, id, &mut self.buffer)?;
        self.commits.insert(id, commit.clone());
        Ok(commit)
    }

    /// What the path leads to in a tree.
    fn entry(&mut self, tree: ObjectId) -> Result<Option<Entry>, ToolError> {
        let mut tree = tree;
        let mut found = None;
        for depth in 0..self.path.len() {
            found = match self.entries[depth].get(&tree) {
                Some(entry) => *entry,
                None => {
                    let entry = self.look_up(tree, depth)?;
                    self.entries[depth].insert(tree, entry);
                    entry
                }
            };
            match found {
                Some(entry) if entry.mode.is_tree() => tree = entry.id,
                Some(_) if depth + 1 == self.path.len() => {}
                _ => return Ok(None),
            }
        }
        Ok(found)
    }

    fn look_up(&mut self, tree: ObjectId, depth: usize) -> Result<Option<Entry>, ToolError> {
        let found = self.repository.objects.try_find(&tree, &mut self.buffer);
        match found.map_err(|error| failed("read a tree of the git repository", error))? {
            Some(data) if data.kind == Kind::Tree => {
                for entry in TreeRefIter::from_bytes(data.data, tree.kind()) {
                    let entry = entry.map_err(|error| failed("understand a tree of the git repository", error))?;
                    if *entry.filename == *self.path[depth] {
                        return Ok(Some(Entry { mode: entry.mode, id: entry.oid.to_owned() }));
                    }
                }
                Ok(None)
            }
            _ => {
                self.missing += 1;
                Ok(None)
            }
        }
    }
}

fn read_commit(repository: &Repository, id: ObjectId, buffer: &mut Vec<u8>) -> Result<Option<Commit>, ToolError> {
    let Some(data) = repository.objects.try_find(&id, buffer).map_err(|error| failed("read a commit", error))? else {
        return Ok(None);
    };
    if data.kind != Kind::Commit {
        return Ok(None);
    }
    let understand = |error| failed("understand a commit", error);
    let iter = || CommitRefIter::from_bytes(data.data, id.kind());
    let tree = iter().tree_id().map_err(understand)?;
    let parents = iter().parent_ids().collect();
    // A damaged date is no reason to stop.
    let time = iter().committer().map_or(0, |committer| committer.seconds());
    Ok(Some(Commit { id, tree, parents, time }))
}

/// Compares the trees of commits.
pub(super) struct Comparison<'a> {
    repository: &'a Repository,
    state: State,
    buffer: Vec<u8>,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(repository: &'a Repository) -> Self {
        Self { repository, state: State::default(), buffer: Vec::new() }
    }

    /// The tree of a commit; none where the commit is missing.
    pub(super) fn tree(&mut self, commit: ObjectId) -> Result<Option<ObjectId>, ToolError> {
        Ok(read_commit(self.repository, commit, &mut self.buffer)?.map(|commit| commit.tree))
    }

    /// The files below `path` that differ between two trees, by path. None where a tree is missing.
    pub(super) fn changes(
        &mut self,
        before: Option<ObjectId>,
        after: ObjectId,
        path: &[BString],
    ) -> Result<Option<Vec<FileChange>>, ToolError> {
        let before = match before {
            Some(tree) => self.below(tree, path)?,
            None => None,
        };
        let after = self.below(after, path)?;
        let base = gix::bstr::join("/", path);
        if before == after {
            return Ok(Some(Vec::new()));
        }
        let (old_tree, new_tree) = (before.filter(|e| e.mode.is_tree()), after.filter(|e| e.mode.is_tree()));
        let mut changes = Vec::new();
        // What is not a tree on its side stands for itself.
        let own = |entry: Option<Entry>| entry.filter(|entry| is_file(entry.mode));
        if own(before).is_some() || own(after).is_some() {
            changes.push(FileChange { path: base.clone().into(), before: own(before), after: own(after) });
        }
        if old_tree.is_some() || new_tree.is_some() {
            let Some(recorded) = self.compare(old_tree, new_tree)? else { return Ok(None) };
            let full = |path: BString| {
                if base.is_empty() {
                    return path;
                }
                let mut full = BString::from(base.clone());
                full.push(b'/');
                full.extend_from_slice(&path);
                full
            };
            changes.extend(recorded.into_iter().filter_map(|change| file_change(change, &full)));
        }
        changes.sort_by(|left, right| left.path.cmp(&right.path));
        Ok(Some(changes))
    }

    fn compare(&mut self, old: Option<Entry>, new: Option<Entry>) -> Result<Option<Vec<recorder::Change>>, ToolError> {
        let read = |entry: Option<Entry>, buffer: &mut Vec<u8>| -> Result<Option<Vec<u8>>, ToolError> {
            let Some(entry) = entry else { return Ok(Some(Vec::new())) };
            let found = self.repository.objects.try_find(&entry.id, buffer);
            let found = found.map_err(|error| failed("read a tree of the git repository", error))?;
            Ok(found.filter(|data| data.kind == Kind::Tree).map(|data| data.data.to_vec()))
        };
        let (Some(left), Some(right)) = (read(old, &mut self.buffer)?, read(new, &mut self.buffer)?) else {
            return Ok(None);
        };
        let hash = self.repository.object_hash();
        let mut recorder = Recorder::default();
        let compared = gix::diff::tree(
            TreeRefIter::from_bytes(&left, hash),
            TreeRefIter::from_bytes(&right, hash),
            &mut self.state,
            &self.repository.objects,
            &mut recorder,
        );
        // A tree below is missing or damaged.
        Ok(compared.is_ok().then_some(recorder.records))
    }

    fn below(&mut self, tree: ObjectId, path: &[BString]) -> Result<Option<Entry>, ToolError> {
        let mut entry = Entry { mode: gix::objs::tree::EntryKind::Tree.into(), id: tree };
        for part in path {
            if !entry.mode.is_tree() {
                return Ok(None);
            }
            let found = self.repository.objects.try_find(&entry.id, &mut self.buffer);
            let Some(data) = found.map_err(|error| failed("read a tree of the git repository", error))? else {
                return Ok(None);
            };
            let next = TreeRefIter::from_bytes(data.data, tree.kind())
                .filter_map(Result::ok)
                .find(|entry| *entry.filename == **part)
                .map(|entry| Entry { mode: entry.mode, id: entry.oid.to_owned() });
            match next {
                Some(next) => entry = next,
                None => return Ok(None),
            }
        }
        Ok(Some(entry))
    }
}

fn file_change(change: recorder::Change, full: &impl Fn(BString) -> BString) -> Option<FileChange> {
    let entry = |mode: EntryMode, id| is_file(mode).then_some(Entry { mode, id });
    let (path, before, after) = match change {
        recorder::Change::Addition { entry_mode, oid, path, .. } => (path, None, entry(entry_mode, oid)),
        recorder::Change::Deletion { entry_mode, oid, path, .. } => (path, entry(entry_mode, oid), None),
        recorder::Change::Modification { previous_entry_mode, previous_oid, entry_mode, oid, path } => {
            (path, entry(previous_entry_mode, previous_oid), entry(entry_mode, oid))
        }
    };
    (before.is_some() || after.is_some()).then(|| FileChange { path: full(path), before, after })
}

/// A file, link or submodule: whatever is no directory.
fn is_file(mode: EntryMode) -> bool {
    !mode.is_tree()
}
