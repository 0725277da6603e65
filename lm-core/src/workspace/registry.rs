//! The workspaces that are open, one per root, opened when first asked about.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use lm_proto::DataDirectory;
use tokio_util::sync::CancellationToken;

use super::{
    admission::Admission,
    companion::{Companion, MemoryStatus},
    gate::Gate,
    kept::{Kept, KeptSize},
    root::Root,
};
use crate::{
    files::WorkspaceFiles,
    retrieval::{IndexStatus, Retriever},
};

/// As many stay open; the one that was idle longest is closed for another. Each holds an index and
/// some open files.
const OPEN_MAX: usize = 16;

/// How long background work may take to end where its workspace is forgotten.
const ENDING: Duration = Duration::from_secs(5);

/// A workspace that is open.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) root: Root,
    pub(super) retriever: Retriever,
    pub(super) companion: Arc<Companion>,
    pub(super) admission: Arc<Admission>,
    pub(super) answered: AtomicU64,
    /// Observations that were dropped because learning was paused.
    pub(super) missed: AtomicU64,
    /// Cancelled where the workspace was emptied: whoever still has it writes nothing back.
    pub(super) forgotten: CancellationToken,
    kept: Kept,
    paused: AtomicBool,
    identity: Option<Identity>,
    used: Mutex<Instant>,
}

/// What a report says about an open workspace.
#[derive(Clone, Debug)]
pub struct WorkspaceStatus {
    /// Its root.
    pub root: PathBuf,
    /// What is kept of it lies under this name.
    pub key: String,
    /// Questions answered since it was opened.
    pub answered: u64,
    /// Questions being answered.
    pub running: u32,
    /// Questions waiting for others.
    pub waiting: u32,
    /// Whether its directory is gone.
    pub vanished: bool,
    /// Whether learning is paused.
    pub paused: bool,
    /// Observations dropped because learning was paused.
    pub missed: u64,
    /// Where its index stands.
    pub index: IndexStatus,
    /// What is remembered of it.
    pub memory: MemoryStatus,
}

impl Workspace {
    fn open(root: Root, data: &DataDirectory) -> io::Result<Self> {
        let identity = identity(&root.path);
        // Tells at once whether it can be read at all.
        drop(WorkspaceFiles::open(&root.path).map_err(|error| error.source)?);
        let kept = Kept::new(data, &root.key);
        // Without a place for an index the search is live; the retriever says so.
        if let Err(error) = kept.create() {
            tracing::warn!(%error, key = root.key, "cannot create the directory of a workspace");
        }
        Ok(Self {
            retriever: Retriever::new(root.path.clone(), kept.index()),
            companion: Arc::new(Companion::open(&root.path, &root.key, &kept.memory())),
            root,
            admission: Arc::default(),
            answered: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            forgotten: CancellationToken::new(),
            paused: AtomicBool::new(kept.is_paused()),
            kept,
            identity,
            used: Mutex::new(Instant::now()),
        })
    }

    /// Whether the directory that was opened is the one that its path leads to now.
    fn is_current(&self) -> bool {
        identity(&self.root.path).is_some_and(|now| Some(now) == self.identity)
    }

    /// Whether nothing is to be learned from what sessions read and edit.
    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Pauses learning or goes on with it, also for later daemons. Returns whether it was paused.
    pub(super) fn pause(&self, paused: bool) -> io::Result<bool> {
        self.kept.set_paused(paused)?;
        Ok(self.paused.swap(paused, Ordering::AcqRel))
    }

    fn is_idle(&self) -> bool {
        self.admission.busy() == (0, 0) && !self.retriever.is_working()
    }

    fn used(&self) -> MutexGuard<'_, Instant> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> WorkspaceStatus {
        let (running, waiting) = self.admission.busy();
        WorkspaceStatus {
            root: self.root.path.clone(),
            key: self.root.key.clone(),
            answered: self.answered.load(Ordering::Relaxed),
            running,
            waiting,
            vanished: !self.is_current(),
            paused: self.is_paused(),
            missed: self.missed.load(Ordering::Relaxed),
            index: self.retriever.status(),
            memory: self.companion.status(),
        }
    }
}

/// Tells a directory from a later one at the same path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    device_and_inode: (u64, u64),
    created: Option<SystemTime>,
}

fn identity(path: &Path) -> Option<Identity> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_dir)?;
    #[cfg(unix)]
    let device_and_inode = {
        use std::os::unix::fs::MetadataExt;
        (metadata.dev(), metadata.ino())
    };
    #[cfg(not(unix))]
    let device_and_inode = (0, 0);
    Some(Identity { device_and_inode, created: metadata.created().ok() })
}

/// The open workspaces by key.
#[derive(Debug)]
pub(super) struct Registry {
    data: DataDirectory,
    open: Mutex<HashMap<String, Arc<Workspace>>>,
    gate: Gate,
}

/// What was known of a workspace before it was forgotten.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Forgotten {
    /// Its root, where that is known: of what is not open only the key is.
    pub root: Option<PathBuf>,
    /// What was kept of it lay under this name.
    pub key: String,
    /// Answers that its conversation held.
    pub answers: usize,
    /// Files that were observed in it.
    pub observed: usize,
    /// Questions that are being answered still; nothing of them is written back.
    pub running: u32,
    /// Whether learning was paused.
    pub was_paused: bool,
    /// How much lay on the disk.
    pub disk: KeptSize,
    /// Why something still lies there.
    pub left: Option<String>,
}

impl Registry {
    pub(super) fn new(data: DataDirectory) -> Self {
        if let Err(error) = Kept::sweep(&data) {
            tracing::warn!(%error, "cannot remove what is left of a forgotten workspace");
        }
        Self { data, open: Mutex::default(), gate: Gate::default() }
    }

    /// Whether anything of a workspace is known or kept.
    pub(super) fn knows(&self, key: &str) -> bool {
        self.lock().contains_key(key) || Kept::new(&self.data, key).exists()
    }

    /// The keys of all workspaces of which anything is known or kept, sorted.
    pub(super) fn keys(&self) -> Vec<String> {
        let mut keys = Kept::keys(&self.data);
        keys.extend(self.lock().keys().cloned());
        keys.sort();
        keys.dedup();
        keys
    }

    /// Closes a workspace and removes all that is kept of it. Questions that are being answered go on
    /// without it. Blocks.
    pub(super) fn forget(&self, key: &str) -> Forgotten {
        // Until the end nobody opens it: neither half of the old one nor what is then removed.
        let _alone = self.gate.enter(key);
        let workspace = self.lock().remove(key);
        let kept = Kept::new(&self.data, key);
        let mut forgotten =
            Forgotten { key: key.to_owned(), was_paused: kept.is_paused(), disk: kept.size(), ..Forgotten::default() };
        if let Some(workspace) = workspace {
            workspace.forgotten.cancel();
            forgotten.root = Some(workspace.root.path.clone());
            let memory = workspace.companion.status();
            (forgotten.answers, forgotten.observed) = (memory.answers, memory.observed_files);
            forgotten.running = workspace.admission.busy().0;
            if let Err(error) = workspace.companion.forget() {
                tracing::warn!(%error, key, "cannot erase a memory in its place");
            }
            workspace.retriever.close(ENDING);
        }
        if let Err(error) = kept.remove() {
            tracing::warn!(%error, key, "cannot remove all of a workspace");
            let place = self.data.workspaces();
            forgotten.left = Some(format!("cannot remove all of it from `{}`: {error}", place.display()));
        }
        forgotten
    }

    /// The workspace of a root, opened where it is not. May block on the file system.
    pub(super) fn get(&self, root: Root) -> io::Result<Arc<Workspace>> {
        if let Some(workspace) = self.current(&root.key) {
            return Ok(workspace);
        }
        // Not under the lock: one slow disk must not hold up the others.
        let _alone = self.gate.enter(&root.key);
        if let Some(workspace) = self.current(&root.key) {
            return Ok(workspace);
        }
        let workspace = Arc::new(Workspace::open(root, &self.data)?);
        let closed = {
            let mut open = self.lock();
            open.insert(workspace.root.key.clone(), Arc::clone(&workspace));
            make_room(&mut open, &workspace.root.key)
        };
        // Closing writes, and joins what works in the background: it too happens outside the lock.
        for workspace in closed {
            workspace.companion.save_if_changed();
        }
        Ok(workspace)
    }

    /// The workspace that is open under a key, unless its directory is another one now: a tree that was
    /// removed and made again is another tree, with other answers.
    fn current(&self, key: &str) -> Option<Arc<Workspace>> {
        let workspace = self.lock().get(key).cloned()?;
        if workspace.is_current() {
            *workspace.used() = Instant::now();
            return Some(workspace);
        }
        self.close(&workspace);
        None
    }

    /// Closes a workspace; questions that are being answered keep theirs until they end.
    fn close(&self, workspace: &Arc<Workspace>) {
        let mut open = self.lock();
        let removed = match open.get(&workspace.root.key) {
            Some(current) if Arc::ptr_eq(current, workspace) => open.remove(&workspace.root.key),
            _ => None,
        };
        drop(open);
        if let Some(workspace) = removed {
            workspace.companion.save_if_changed();
        }
    }

    /// Closes workspaces whose directory is gone. May block on the file system.
    pub(super) fn close_vanished(&self) {
        for workspace in self.all() {
            if !workspace.is_current() {
                tracing::info!("the workspace `{}` is gone", workspace.root.path.display());
                self.close(&workspace);
            }
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Workspace>> {
        self.lock().values().cloned().collect()
    }

    /// Writes what the memories have learned and not written. Blocks on the file system.
    pub(super) fn save_all(&self) {
        for workspace in self.all() {
            workspace.companion.save_if_changed();
        }
    }

    /// What is open, sorted by root. May block on the file system.
    pub(super) fn status(&self) -> Vec<WorkspaceStatus> {
        let mut all: Vec<_> = self.all().iter().map(|workspace| workspace.status()).collect();
        all.sort_by(|left, right| left.root.cmp(&right.root));
        all
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Workspace>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes out what was idle longest while there are too many, but never `kept`.
fn make_room(open: &mut HashMap<String, Arc<Workspace>>, kept: &str) -> Vec<Arc<Workspace>> {
    let mut closed = Vec::new();
    while open.len() > OPEN_MAX {
        let idle = open.iter().filter(|(key, workspace)| key.as_str() != kept && workspace.is_idle());
        let Some(key) = idle.min_by_key(|(_, workspace)| *workspace.used()).map(|(key, _)| key.clone()) else { break };
        closed.extend(open.remove(&key));
    }
    closed
}
