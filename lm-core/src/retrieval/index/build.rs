//! Building an index, and keeping it up with the files.

use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use tantivy::{
    Index, IndexWriter, Term,
    indexer::{AddOperation, LogMergePolicy, NoMergePolicy, SegmentWriter},
};
use tokio_util::sync::CancellationToken;

use super::{
    FILE_CAP, IndexError, MOST_BYTES, MOST_FILES, WorkspaceIndex, create_private, delete,
    schema::{self, Document, Fields, Kind, Stamp},
};
use crate::files::{FoundFile, ReadError, WalkLimits, WorkspaceFiles, nanoseconds, path_to_bytes};

/// Memory of one segment while it is built, in bytes, per thread. Larger segments would build no
/// faster, and peak memory is a promise.
const SEGMENT_BYTES: usize = 28 << 20;
/// Memory of the writer that adds changes; the least the engine takes.
const UPDATE_BYTES: usize = 15_000_000;
/// Past so many segments they are merged: each one is asked for every term.
const MOST_SEGMENTS: usize = 16;
/// Text handed to the engine between commits of an update, in bytes.
const UPDATE_BATCH: u64 = 32 << 20;
/// How long a full listing may take.
const LISTING: Duration = Duration::from_secs(120);

/// An index that has just been built.
pub(in crate::retrieval) struct Built {
    /// The index.
    pub(in crate::retrieval) index: WorkspaceIndex,
    /// How long it took.
    pub(in crate::retrieval) took: Duration,
}

impl WorkspaceIndex {
    /// Builds an index of all files, in place of what is in the directory.
    pub(in crate::retrieval) fn build(
        files: &WorkspaceFiles,
        directory: &Path,
        threads: usize,
        cancel: &CancellationToken,
    ) -> Result<Built, IndexError> {
        let start = Instant::now();
        let limits = WalkLimits { max_files: MOST_FILES, deadline: start + LISTING, threads, stamps: true };
        let (parts, report) = files.walk(&limits, cancel, Vec::new, |found: &mut Vec<FoundFile>, file| {
            found.push(file);
            true
        })?;
        let mut found: Vec<FoundFile> = parts.into_iter().flatten().collect();
        if report.too_many || found.iter().map(|file| file.size.min(FILE_CAP)).sum::<u64>() > MOST_BYTES {
            return Err(IndexError::TooLarge);
        }
        if !report.is_complete() {
            return Err(IndexError::Stopped);
        }
        // Neighbours share words, which makes postings short.
        found.sort_by(|a, b| a.path.cmp(&b.path));

        delete(directory)?;
        create_private(directory)?;
        let fields = Fields::new();
        let index = Index::create_in_dir(directory, fields.schema())?;
        schema::register_tokenizer(&index);
        let mut writer: IndexWriter<Document> = index.writer_with_num_threads(1, UPDATE_BYTES)?;
        writer.set_merge_policy(Box::new(NoMergePolicy));

        let work = Work {
            files,
            fields: &fields,
            index: &index,
            writer: &writer,
            found: &found,
            next: AtomicUsize::new(0),
            cancel,
        };
        let failure = Mutex::new(None);
        thread::scope(|scope| {
            let run = || {
                if let Err(error) = work.run() {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    work.next.store(usize::MAX / 2, Relaxed);
                }
            };
            for _ in 1..threads.max(1) {
                scope.spawn(run);
            }
            run();
        });
        if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        if cancel.is_cancelled() {
            return Err(IndexError::Stopped);
        }
        let mut commit = writer.prepare_commit()?;
        commit.set_payload(&schema::mark(files.root()));
        commit.commit()?;
        writer.wait_merging_threads()?;
        drop(found);
        Ok(Built { index: Self::load(index, fields)?, took: start.elapsed() })
    }

    /// Brings the index up to what was found changed, added and deleted, and gives it as it is then.
    pub(in crate::retrieval) fn update(
        &self,
        files: &WorkspaceFiles,
        changes: &Changes,
        cancel: &CancellationToken,
    ) -> Result<Self, IndexError> {
        let mut writer: IndexWriter<Document> = self.index.writer_with_num_threads(1, UPDATE_BYTES)?;
        // Merging is asked for below, where it can be waited for.
        writer.set_merge_policy(Box::new(NoMergePolicy));
        let mark = schema::mark(files.root());
        let commit = |writer: &mut IndexWriter<Document>| -> Result<(), IndexError> {
            let mut commit = writer.prepare_commit()?;
            commit.set_payload(&mark);
            commit.commit()?;
            Ok(())
        };
        let term = |path: &Path| Term::from_field_bytes(self.fields.path, &path_to_bytes(path));
        for path in &changes.deleted {
            writer.delete_term(term(path));
        }
        let mut pending = 0;
        for file in &changes.written {
            if cancel.is_cancelled() {
                break;
            }
            writer.delete_term(term(&file.path));
            let document = read(files, &self.fields, file);
            writer.add_document(document)?;
            pending += file.size.min(FILE_CAP);
            if pending > UPDATE_BATCH {
                commit(&mut writer)?;
                pending = 0;
            }
        }
        commit(&mut writer)?;
        if self.index.searchable_segment_ids()?.len() > MOST_SEGMENTS && !cancel.is_cancelled() {
            writer.set_merge_policy(Box::new(LogMergePolicy::default()));
            let small = self.small_segments()?;
            if small.len() > 1 {
                writer.merge(&small).wait()?;
            }
        }
        writer.garbage_collect_files().wait()?;
        writer.wait_merging_threads()?;
        Self::load(self.index.clone(), self.fields.clone())
    }

    /// All segments but the largest few.
    fn small_segments(&self) -> Result<Vec<tantivy::index::SegmentId>, IndexError> {
        let mut metas = self.index.searchable_segment_metas()?;
        metas.sort_by_key(|meta| std::cmp::Reverse(meta.num_docs()));
        Ok(metas.iter().skip(MOST_SEGMENTS / 2).map(|meta| meta.id()).collect())
    }
}

/// What happened to the files since they were indexed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::retrieval) struct Changes {
    /// Changed or new.
    pub(in crate::retrieval) written: Vec<FoundFile>,
    /// Gone, or no longer searched.
    pub(in crate::retrieval) deleted: Vec<PathBuf>,
}

impl Changes {
    /// Whether there are none.
    pub(in crate::retrieval) fn is_empty(&self) -> bool {
        self.written.is_empty() && self.deleted.is_empty()
    }
}

/// Files that threads turn into segments, each thread its own.
struct Work<'a> {
    files: &'a WorkspaceFiles,
    fields: &'a Fields,
    index: &'a Index,
    writer: &'a IndexWriter<Document>,
    found: &'a [FoundFile],
    next: AtomicUsize,
    cancel: &'a CancellationToken,
}

impl Work<'_> {
    fn run(&self) -> Result<(), IndexError> {
        let mut current = None;
        loop {
            let next = self.next.fetch_add(1, Relaxed);
            let Some(file) = self.found.get(next) else { break };
            if self.cancel.is_cancelled() {
                return Err(IndexError::Stopped);
            }
            let document = read(self.files, self.fields, file);
            let (segment, mut writer) = match current.take() {
                Some(current) => current,
                None => {
                    let segment = self.writer.new_segment();
                    let writer = SegmentWriter::for_segment(SEGMENT_BYTES, segment.clone())?;
                    (segment, writer)
                }
            };
            writer.add_document(AddOperation { opstamp: 0, document })?;
            if writer.mem_usage() >= SEGMENT_BYTES {
                self.finish(segment, writer)?;
            } else {
                current = Some((segment, writer));
            }
        }
        match current {
            Some((segment, writer)) => self.finish(segment, writer),
            None => Ok(()),
        }
    }

    fn finish(&self, segment: tantivy::Segment, writer: SegmentWriter) -> Result<(), IndexError> {
        let documents = writer.max_doc();
        writer.finalize()?;
        self.writer.add_segment(self.index.new_segment_meta(segment.id(), documents))?;
        Ok(())
    }
}

fn read(files: &WorkspaceFiles, fields: &Fields, file: &FoundFile) -> Document {
    let read = files.read_found(&file.path, FILE_CAP);
    let (kind, text) = match read {
        Ok(read) if read.truncated => (Kind::Cut, Some(read.text)),
        Ok(read) => (Kind::Text, Some(read.text)),
        Err(ReadError::Secret(_)) => (Kind::Secret, None),
        Err(ReadError::Binary(_)) => (Kind::Binary, None),
        Err(_) => (Kind::Unreadable, None),
    };
    let uncertain = is_uncertain(file.changed, nanoseconds(SystemTime::now()));
    let changed = if uncertain { Stamp::UNCERTAIN } else { file.changed };
    fields.document(&file.path, Stamp { size: file.size, changed, kind }, text)
}

/// Whether a file was written so shortly before it was read that a second write could bear the same
/// time: clocks of file systems tick in milliseconds, some in whole seconds.
fn is_uncertain(changed: i64, now: i64) -> bool {
    const SECOND: i64 = 1_000_000_000;
    let tick = if changed % SECOND == 0 { 2 * SECOND } else { SECOND / 20 };
    changed == 0 || now.saturating_sub(changed) < tick
}
