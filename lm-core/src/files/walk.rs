//! Lists the files of a workspace that may be searched.
//!
//! Directories are listed through the door, on a few threads; links are never followed, so neither
//! loops nor other file systems matter. A file's type is the one its directory tells.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Instant, SystemTime},
};

use tokio_util::sync::CancellationToken;

use super::{
    WorkspaceFiles,
    ignore_rules::{IgnoreRules, RulesPresent},
    secrets,
    worktrees::{self, RootTree},
};

/// Deeper directories are left out; every level costs a longer path to open.
const DEEPEST: usize = 128;

/// What a walk may take.
#[derive(Clone, Debug)]
pub struct WalkLimits {
    /// The most files to find.
    pub max_files: usize,
    /// When to stop.
    pub deadline: Instant,
    /// How many threads list at the same time.
    pub threads: usize,
    /// Whether size and time of each file are wanted.
    pub stamps: bool,
}

/// A regular file that may be searched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundFile {
    /// Relative to the root.
    pub path: PathBuf,
    /// In bytes; 0 where stamps were not wanted.
    pub size: u64,
    /// When it last changed, in nanoseconds since 1970; 0 where unknown or not wanted. On Unix this is
    /// the time the system keeps for itself, which no program can set back.
    pub changed: i64,
}

/// How a walk went.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WalkReport {
    /// Files found.
    pub files: usize,
    /// Files whose name says that they hold secrets.
    pub secret: usize,
    /// Links, pipes, sockets and devices.
    pub not_regular: usize,
    /// Directories and entries that could not be read, and such as lie too deep.
    pub unreadable: usize,
    /// More files than wanted.
    pub too_many: bool,
    /// The deadline passed.
    pub out_of_time: bool,
    /// Cancelled, or stopped by the visitor.
    pub stopped: bool,
}

impl WalkReport {
    /// Whether everything was listed that can be.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.too_many && !self.out_of_time && !self.stopped
    }
}

struct Job {
    directory: PathBuf,
    rules: IgnoreRules,
    depth: usize,
}

/// Directories yet to be listed, and how many are being listed.
#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    busy: usize,
}

struct Walk<'a> {
    files: &'a WorkspaceFiles,
    under: &'a Path,
    limits: &'a WalkLimits,
    cancel: &'a CancellationToken,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Known as soon as the root is listed.
    root_tree: OnceLock<RootTree>,
    found: AtomicUsize,
    secret: AtomicUsize,
    not_regular: AtomicUsize,
    unreadable: AtomicUsize,
    too_many: AtomicBool,
    out_of_time: AtomicBool,
    stopped: AtomicBool,
}

impl WorkspaceFiles {
    /// Calls `visit` for every file that may be searched, from several threads and in no order, until
    /// it returns false. Each thread has one value of `visit`'s state, made by `state`; they are
    /// returned with the report. Fails only where the root itself cannot be listed, or has a
    /// `.livememoryignore` that cannot be read. Linked git worktrees in the tree are left out.
    pub fn walk<S: Send>(
        &self,
        limits: &WalkLimits,
        cancel: &CancellationToken,
        state: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, FoundFile) -> bool + Sync,
    ) -> io::Result<(Vec<S>, WalkReport)> {
        self.walk_under(Path::new(""), limits, cancel, state, visit)
    }

    /// As [`Self::walk`], but only for what lies below a directory, given relative to the root, even
    /// if that lies in a linked worktree. The rules of the directories above it hold as well.
    pub fn walk_under<S: Send>(
        &self,
        under: &Path,
        limits: &WalkLimits,
        cancel: &CancellationToken,
        state: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, FoundFile) -> bool + Sync,
    ) -> io::Result<(Vec<S>, WalkReport)> {
        self.handle.entries()?;
        if !self.root_rules_are_readable() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "its `.livememoryignore` cannot be read as text and so shuts all of it (make that a text file of at most 1 MiB, or remove it)",
            ));
        }
        let first = Job { directory: PathBuf::new(), rules: IgnoreRules::default(), depth: 0 };
        let walk = Walk {
            files: self,
            under,
            limits,
            cancel,
            queue: Mutex::new(Queue { jobs: vec![first], busy: 0 }),
            changed: Condvar::new(),
            root_tree: OnceLock::new(),
            found: AtomicUsize::new(0),
            secret: AtomicUsize::new(0),
            not_regular: AtomicUsize::new(0),
            unreadable: AtomicUsize::new(0),
            too_many: AtomicBool::new(false),
            out_of_time: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        };
        let states = thread::scope(|scope| {
            let run = || {
                let mut own = state();
                walk.work(&mut own, &visit);
                own
            };
            let others: Vec<_> = (1..limits.threads.max(1)).map(|_| scope.spawn(run)).collect();
            let mut states = vec![run()];
            for other in others {
                match other.join() {
                    Ok(state) => states.push(state),
                    // What that thread was at is missing, so the walk is not complete.
                    Err(_) => walk.stopped.store(true, Relaxed),
                }
            }
            states
        });
        let report = WalkReport {
            files: walk.found.load(Relaxed),
            secret: walk.secret.load(Relaxed),
            not_regular: walk.not_regular.load(Relaxed),
            unreadable: walk.unreadable.load(Relaxed),
            too_many: walk.too_many.load(Relaxed),
            out_of_time: walk.out_of_time.load(Relaxed),
            stopped: walk.stopped.load(Relaxed),
        };
        Ok((states, report))
    }

    /// All files that may be searched, by path.
    pub fn list(
        &self,
        limits: &WalkLimits,
        cancel: &CancellationToken,
    ) -> io::Result<(HashMap<PathBuf, FoundFile>, WalkReport)> {
        let (parts, report) = self.walk(limits, cancel, Vec::new, |found, file| {
            found.push(file);
            true
        })?;
        Ok((parts.into_iter().flatten().map(|file| (file.path.clone(), file)).collect(), report))
    }
}

impl Walk<'_> {
    fn work<S>(&self, state: &mut S, visit: &(impl Fn(&mut S, FoundFile) -> bool + Sync)) {
        while let Some(job) = self.next() {
            // Counts the directory as done even if visiting panics, or the other threads wait for ever.
            let _done = Done(self);
            if !self.must_stop() {
                self.list_directory(&job, state, visit);
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = queue.jobs.pop() {
                queue.busy += 1;
                return Some(job);
            }
            if queue.busy == 0 {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn must_stop(&self) -> bool {
        if self.cancel.is_cancelled() {
            self.stopped.store(true, Relaxed);
        }
        if Instant::now() >= self.limits.deadline {
            self.out_of_time.store(true, Relaxed);
        }
        self.stopped.load(Relaxed) || self.out_of_time.load(Relaxed) || self.too_many.load(Relaxed)
    }

    fn list_directory<S>(&self, job: &Job, state: &mut S, visit: &(impl Fn(&mut S, FoundFile) -> bool + Sync)) {
        let handle = &self.files.handle;
        let listing = if job.depth == 0 { handle.entries() } else { self.open_listing(&job.directory) };
        let Ok(listing) = listing else {
            self.unreadable.fetch_add(1, Relaxed);
            return;
        };
        let mut present = RulesPresent::default();
        let mut dot_git = None;
        let mut entries = Vec::new();
        for entry in listing {
            let Ok(entry) = entry else {
                self.unreadable.fetch_add(1, Relaxed);
                continue;
            };
            let name = entry.file_name();
            present.note(&name);
            if name == ".git" {
                dot_git = entry.file_type().ok();
            }
            entries.push((name, entry));
        }
        if job.depth == 0 {
            self.root_tree.get_or_init(|| RootTree::new(self.files, dot_git));
        } else if dot_git.is_some_and(|kind| kind.is_file())
            && !self.under.starts_with(&job.directory)
            && self.root_tree.get().is_some_and(|root| worktrees::is_foreign(self.files, root, &job.directory))
        {
            return;
        }
        let Ok(rules) = job.rules.descend(self.files, &job.directory, present) else {
            self.unreadable.fetch_add(1, Relaxed);
            return;
        };
        let private = secrets::is_private_directory(&job.directory);
        let within = job.directory.starts_with(self.under);
        let mut deeper = Vec::new();
        for (position, (name, entry)) in entries.into_iter().enumerate() {
            if name == ".git" {
                continue;
            }
            if position % 64 == 63 && self.must_stop() {
                return;
            }
            let Ok(kind) = entry.file_type() else {
                self.unreadable.fetch_add(1, Relaxed);
                continue;
            };
            let path = job.directory.join(&name);
            let on_the_way = kind.is_dir() && self.under.starts_with(&path);
            if !within && !on_the_way {
                continue;
            }
            if rules.ignores(&path, kind.is_dir()) || self.files.is_excluded(&path) {
                continue;
            }
            if kind.is_dir() {
                deeper.push(Job { directory: path, rules: rules.clone(), depth: job.depth + 1 });
            } else if !kind.is_file() {
                self.not_regular.fetch_add(1, Relaxed);
            } else if private || secrets::is_secret_name_in(&job.directory, &name) {
                self.secret.fetch_add(1, Relaxed);
            } else if self.found.fetch_add(1, Relaxed) >= self.limits.max_files {
                self.found.fetch_sub(1, Relaxed);
                self.too_many.store(true, Relaxed);
                return;
            } else {
                let (size, changed) = if self.limits.stamps {
                    match entry.metadata() {
                        Ok(metadata) => (metadata.len(), changed(&metadata)),
                        Err(_) => (0, 0),
                    }
                } else {
                    (0, 0)
                };
                if !visit(state, FoundFile { path, size, changed }) {
                    self.stopped.store(true, Relaxed);
                    return;
                }
            }
        }
        if job.depth >= DEEPEST {
            self.unreadable.fetch_add(deeper.len(), Relaxed);
        } else if !deeper.is_empty() {
            self.queue.lock().unwrap_or_else(PoisonError::into_inner).jobs.append(&mut deeper);
            self.changed.notify_all();
        }
    }

    /// A link that was put in a directory's place since it was listed is refused.
    fn open_listing(&self, directory: &Path) -> io::Result<cap_std::fs::ReadDir> {
        if !self.files.handle.symlink_metadata(directory)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        self.files.handle.read_dir(directory)
    }
}

struct Done<'a, 'b>(&'a Walk<'b>);

impl Drop for Done<'_, '_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.busy -= 1;
        if queue.busy == 0 {
            self.0.changed.notify_all();
        }
    }
}

/// When a file last changed, in nanoseconds since 1970; 0 where unknown.
#[cfg(unix)]
pub(super) fn changed(metadata: &cap_std::fs::Metadata) -> i64 {
    use cap_std::fs::MetadataExt as _;
    metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec())
}

#[cfg(not(unix))]
pub(super) fn changed(metadata: &cap_std::fs::Metadata) -> i64 {
    metadata.modified().map_or(0, |modified| nanoseconds(modified.into_std()))
}

/// Nanoseconds since 1970, negative before; what lies centuries away is cut.
pub(crate) fn nanoseconds(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanoseconds| -nanoseconds),
    }
}
