//! Which of the files a model was told of are no longer what it was told.
//!
//! Asked before each question, so that no answer depends on anyone having reported a change. A file
//! is looked at without being opened; only where that does not prove that it is unchanged is it read
//! and hashed. What cannot be found out is never taken for a deletion. Blocking: for a thread that may
//! wait for the disk. Not allowed here: deciding what a model is told of it.

mod renames;

use std::{
    collections::HashSet,
    io,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use tokio_util::sync::CancellationToken;

use crate::{
    files::{FileStamp, FileText, MetRules, ReadError, WorkspaceFiles},
    tools::READ_CAP,
};

/// How long before the first look both times of a file must lie, in nanoseconds: the clock of a file
/// system ticks in steps of up to two seconds (FAT), and what changes within a tick does not show.
const SETTLED_NS: i64 = 2_000_000_000;
/// Files are read by as many threads.
const READERS: usize = 2;
/// So many files are looked at by two threads; for fewer a thread costs more than it saves.
const SPLIT_FROM: usize = 256;
/// As many bytes of changed files are given back as text; what changed beyond is to be read again.
const TEXT_MAX: u64 = 64 << 20;

/// A file as the model knows it.
#[derive(Clone, Copy, Debug)]
pub struct KnownFile<'a> {
    /// Relative to the workspace, with `/`.
    pub path: &'a str,
    /// Of the bytes it was told of, lower-case hexadecimal.
    pub sha256: &'a str,
    /// As the file was when it was read, where that is known.
    pub stamp: Option<FileStamp>,
    /// When it was read or proved unchanged, in nanoseconds since 1970 by the wall clock; taken before.
    pub looked_at_ns: i64,
    /// Whether the hash is that of the whole file, not of its first [`READ_CAP`] bytes.
    pub whole: bool,
}

/// What became of a file whose stamp does not prove that nothing did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// It was read and holds what it held. With this stamp, looked at as of the time given to the
    /// check, it need not be read the next time.
    Same {
        /// Of the bytes that were read.
        stamp: FileStamp,
    },
    /// It holds something else.
    Changed {
        /// What it holds now.
        text: FileText,
    },
    /// It is not there any more.
    Gone {
        /// Another file of the workspace that now holds these bytes, where one was found.
        now_at: Option<String>,
    },
    /// What it holds now cannot be told, so nothing told of it is certain.
    Unreadable {
        /// Why, for a person and for the model.
        why: String,
        /// Whether it must not be shown any more: a secret, or a place that a person has shut.
        withheld: bool,
    },
}

/// Looks at every known file. Those not among the findings are proved unchanged by their stamps. At the
/// deadline, or where cancelled, the rest is reported as unreadable. `now_ns` is the wall clock.
pub fn check(
    files: &WorkspaceFiles,
    known: &[KnownFile<'_>],
    now_ns: i64,
    deadline: Instant,
    cancel: &CancellationToken,
) -> Vec<(usize, Finding)> {
    Check::new(files, known, now_ns, deadline, cancel).run()
}

struct Check<'a> {
    files: &'a WorkspaceFiles,
    known: &'a [KnownFile<'a>],
    now_ns: i64,
    deadline: Instant,
    cancel: &'a CancellationToken,
    met: MetRules,
    /// Bytes of text that are given back, and how many may be.
    text: AtomicU64,
    text_max: u64,
}

impl<'a> Check<'a> {
    fn new(
        files: &'a WorkspaceFiles,
        known: &'a [KnownFile<'a>],
        now_ns: i64,
        deadline: Instant,
        cancel: &'a CancellationToken,
    ) -> Self {
        let (met, text) = (MetRules::default(), AtomicU64::new(0));
        Self { files, known, now_ns, deadline, cancel, met, text, text_max: TEXT_MAX }
    }

    fn run(&self) -> Vec<(usize, Finding)> {
        let (doubtful, mut findings) = self.doubtful();
        findings.append(&mut self.read_all(&doubtful));
        self.settle_gone(&mut findings);
        findings.sort_unstable_by_key(|(index, _)| *index);
        findings
    }

    /// The files that have to be read, in the order of their directories, and findings about such as
    /// cannot even be looked at.
    fn doubtful(&self) -> (Vec<usize>, Vec<(usize, Finding)>) {
        let mut order: Vec<usize> = (0..self.known.len()).collect();
        order.sort_unstable_by_key(|index| self.known[*index].path);
        let (first, second) = order.split_at(if order.len() < SPLIT_FROM { order.len() } else { order.len() / 2 });
        let (mut doubtful, mut findings) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            let other = (!second.is_empty()).then(|| scope.spawn(|| self.look(second)));
            let looked = self.look(first);
            let others = other.map(|other| {
                // What that thread was at is read.
                other.join().unwrap_or_else(|_| (second.to_vec(), Vec::new()))
            });
            for (part, found) in std::iter::once(looked).chain(others) {
                doubtful.extend(part);
                findings.extend(found);
            }
        });
        (doubtful, findings)
    }

    fn look(&self, order: &[usize]) -> (Vec<usize>, Vec<(usize, Finding)>) {
        let (mut doubtful, mut findings) = (Vec::new(), Vec::new());
        let mut glance = self.files.glance();
        for index in order {
            let known = &self.known[*index];
            if known.path.contains(char::REPLACEMENT_CHARACTER) {
                findings.push((*index, unreadable("its name is known only in part, so it cannot be looked up")));
            } else if self.must_stop() {
                findings.push((*index, out_of_time()));
            } else if !glance.stamp(Path::new(known.path)).is_some_and(|now| self.is_proof(known, now)) {
                doubtful.push(*index);
            }
        }
        (doubtful, findings)
    }

    /// Whether a file's stamp proves that it holds what it held.
    fn is_proof(&self, known: &KnownFile<'_>, now: FileStamp) -> bool {
        // A clock that was set back makes later times look older.
        let settled = |time: i64| time.saturating_add(SETTLED_NS) < known.looked_at_ns;
        known.stamp == Some(now)
            && now.modified_ns != 0
            && settled(now.modified_ns)
            && now.changed_ns.is_some_and(settled)
            && known.looked_at_ns <= self.now_ns
    }

    fn must_stop(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() >= self.deadline
    }

    fn read_all(&self, doubtful: &[usize]) -> Vec<(usize, Finding)> {
        let next = AtomicUsize::new(0);
        let findings = Mutex::new(Vec::with_capacity(doubtful.len()));
        let work = || {
            while let Some(index) = doubtful.get(next.fetch_add(1, Relaxed)) {
                let finding = if self.must_stop() { out_of_time() } else { self.read(&self.known[*index]) };
                findings.lock().unwrap_or_else(PoisonError::into_inner).push((*index, finding));
            }
        };
        thread::scope(|scope| {
            // A thread costs more than a few small files do.
            let others: Vec<_> = (1..READERS.min(doubtful.len() / 4)).map(|_| scope.spawn(work)).collect();
            work();
            others.into_iter().for_each(|other| drop(other.join()));
        });
        let mut findings = findings.into_inner().unwrap_or_else(PoisonError::into_inner);
        if findings.len() < doubtful.len() {
            let seen: HashSet<usize> = findings.iter().map(|(index, _)| *index).collect();
            let lost = doubtful.iter().filter(|index| !seen.contains(index));
            findings.extend(lost.map(|index| (*index, unreadable("reading it broke off"))));
        }
        findings
    }

    fn read(&self, known: &KnownFile<'_>) -> Finding {
        let text = match self.files.read_in_batch(Path::new(known.path), READ_CAP, &self.met) {
            Ok(text) => text,
            Err(error) => return refused(&error),
        };
        if text.sha256 == known.sha256 && may_be_same(known, &text) {
            return Finding::Same { stamp: text.stamp };
        }
        let length = text.text.len() as u64;
        if self.text.fetch_add(length, Relaxed).saturating_add(length) > self.text_max {
            self.text.fetch_sub(length, Relaxed);
            return unreadable("it changed, and so much else did that it must be read again");
        }
        Finding::Changed { text }
    }

    /// What is not there may have been put back meanwhile, be somewhere else, or be out of reach.
    fn settle_gone(&self, findings: &mut [(usize, Finding)]) {
        let mut gone: Vec<&mut (usize, Finding)> =
            findings.iter_mut().filter(|(_, finding)| matches!(finding, Finding::Gone { .. })).collect();
        if gone.is_empty() {
            return;
        }
        if !self.files.root_is_there() {
            gone.iter_mut().for_each(|(_, finding)| *finding = unreadable("the workspace's directory is not there"));
            return;
        }
        if self.files.root_is_empty() {
            let why = "the workspace's directory is empty, as where a disk is not mounted";
            gone.iter_mut().for_each(|(_, finding)| *finding = unreadable(why));
            return;
        }
        let indices: Vec<usize> = gone.iter().map(|(index, _)| *index).collect();
        let found = renames::find(self.files, self.known, &indices, self.deadline, self.cancel);
        for (index, finding) in gone {
            *finding = match found.get(index) {
                Some(path) => Finding::Gone { now_at: Some(path.clone()) },
                // A switch of branches removes files before it writes them.
                None if !self.must_stop() => self.read(&self.known[*index]),
                None => continue,
            };
        }
    }
}

/// Whether the file can hold what it held, given that as much as can be hashed of it does.
fn may_be_same(known: &KnownFile<'_>, now: &FileText) -> bool {
    if known.whole {
        return !now.truncated;
    }
    // Nobody knows what stands behind the part that was hashed.
    let as_it_was = |stamp: FileStamp| {
        (stamp.size, stamp.modified_ns) == (now.stamp.size, now.stamp.modified_ns)
            && (stamp.changed_ns == now.stamp.changed_ns)
    };
    now.truncated && known.stamp.is_none_or(as_it_was)
}

fn refused(error: &ReadError) -> Finding {
    use io::ErrorKind::{NotADirectory, NotFound};
    match error {
        ReadError::Io { source, .. } if matches!(source.kind(), NotFound | NotADirectory) => {
            Finding::Gone { now_at: None }
        }
        _ => Finding::Unreadable {
            why: error.to_string(),
            withheld: matches!(
                error,
                ReadError::Secret(_)
                    | ReadError::Ignored(_)
                    | ReadError::Excluded(_)
                    | ReadError::UnreadableRules { .. }
                    | ReadError::Outside(_)
            ),
        },
    }
}

fn unreadable(why: &str) -> Finding {
    Finding::Unreadable { why: why.to_owned(), withheld: false }
}

fn out_of_time() -> Finding {
    unreadable("there was no time to look at it")
}

#[cfg(test)]
mod tests;
