//! The index on disk: which file has which terms. What it says is never shown; texts are read anew.
//!
//! `tantivy` keeps the postings. The directory is private to one workspace and wholly derived: what is
//! foreign, damaged or of another format is deleted and built anew. Its own files are mapped into
//! memory while it is asked; they are written by nobody else.

mod build;
mod lookup;
mod schema;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tantivy::{Index, ReloadPolicy, Searcher, TantivyDocument, index::SegmentId, schema::Value as _};
use thiserror::Error;

pub(super) use build::Changes;
pub(super) use lookup::Lookup;
use schema::Fields;
pub(super) use schema::{Kind, Stamp};

use super::LeftOut;
use crate::files::path_from_bytes;

/// The most files of a workspace with an index; past it searches are live.
pub(super) const MOST_FILES: usize = 100_000;
/// The most bytes of text in an index, files counted up to [`FILE_CAP`].
pub(super) const MOST_BYTES: u64 = 1 << 30;
/// How much of a file is searched, in bytes; what lies beyond is counted as cut.
pub(super) const FILE_CAP: u64 = 1 << 20;

/// Why an index cannot be kept.
#[derive(Debug, Error)]
pub(super) enum IndexError {
    /// The engine below.
    #[error("the index: {0}")]
    Engine(#[from] tantivy::TantivyError),
    /// The file system.
    #[error("the index: {0}")]
    Io(#[from] io::Error),
    /// Stopped on the way.
    #[error("building the index was stopped")]
    Stopped,
    /// More than an index may hold.
    #[error("the workspace has more than {MOST_FILES} files or {MOST_BYTES} bytes of text")]
    TooLarge,
    /// A directory that is no index of this workspace.
    #[error("the index is damaged or of another format or workspace")]
    Foreign,
}

/// A complete index.
pub(super) struct WorkspaceIndex {
    index: Index,
    fields: Fields,
    /// All files it knows.
    pub(super) files: HashMap<Arc<Path>, Stamp>,
    /// The files of each segment, by document.
    segments: HashMap<SegmentId, Vec<Option<Arc<Path>>>>,
}

impl WorkspaceIndex {
    /// Opens what an earlier process left. Foreign, damaged and older ones are refused.
    pub(super) fn open(directory: &Path, root: &Path) -> Result<Self, IndexError> {
        let fields = Fields::new();
        let index = Index::open_in_dir(directory)?;
        let marked = index.load_metas()?.payload.is_some_and(|payload| payload == schema::mark(root));
        if !marked || index.schema() != fields.schema() {
            return Err(IndexError::Foreign);
        }
        // Damaged postings are not only wrong, reading them may not end well.
        if !index.validate_checksum()?.is_empty() {
            return Err(IndexError::Foreign);
        }
        schema::register_tokenizer(&index);
        Self::load(index, fields)
    }

    /// Reads which files are in it.
    fn load(index: Index, fields: Fields) -> Result<Self, IndexError> {
        let mut opened = Self { index, fields, files: HashMap::new(), segments: HashMap::new() };
        opened.reload()?;
        Ok(opened)
    }

    fn reload(&mut self) -> Result<(), IndexError> {
        let searcher = self.searcher()?;
        let (mut files, mut segments) = (HashMap::new(), HashMap::new());
        for segment in searcher.segment_readers() {
            let store = segment.get_store_reader(2)?;
            let mut documents = vec![None; segment.max_doc() as usize];
            for document in segment.doc_ids_alive() {
                let stored: TantivyDocument = store.get(document)?;
                let bytes = |field| stored.get_first(field).and_then(|value| value.as_bytes());
                let path = bytes(self.fields.path).and_then(path_from_bytes).ok_or(IndexError::Foreign)?;
                let stamp = bytes(self.fields.stamp).and_then(Stamp::from_bytes).ok_or(IndexError::Foreign)?;
                let path: Arc<Path> = path.into();
                documents[document as usize] = Some(Arc::clone(&path));
                files.insert(path, stamp);
            }
            segments.insert(segment.segment_id(), documents);
        }
        (self.files, self.segments) = (files, segments);
        Ok(())
    }

    /// Opened for one question and dropped after it, so that nothing stays mapped.
    fn searcher(&self) -> Result<Searcher, IndexError> {
        let reader =
            self.index.reader_builder().reload_policy(ReloadPolicy::Manual).doc_store_cache_num_blocks(2).try_into()?;
        Ok(reader.searcher())
    }

    /// Files whose text is in it.
    pub(super) fn text_files(&self) -> usize {
        self.files.values().filter(|stamp| matches!(stamp.kind, Kind::Text | Kind::Cut)).count()
    }

    /// Bytes of text in it.
    pub(super) fn text_bytes(&self) -> u64 {
        self.files
            .values()
            .filter(|stamp| matches!(stamp.kind, Kind::Text | Kind::Cut))
            .map(|stamp| stamp.size.min(FILE_CAP))
            .sum()
    }

    /// What it knows of and does not hold.
    pub(super) fn left_out(&self) -> LeftOut {
        let mut left_out = LeftOut::default();
        self.files.values().for_each(|stamp| left_out.count(stamp.kind));
        left_out
    }
}

impl LeftOut {
    pub(super) fn count(&mut self, kind: Kind) {
        match kind {
            Kind::Text => {}
            Kind::Cut => self.cut += 1,
            Kind::Binary => self.binary += 1,
            Kind::Secret => self.secret += 1,
            Kind::Unreadable => self.unreadable += 1,
        }
    }
}

/// Deletes an index, so that a new one can be built in its place.
pub(super) fn delete(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A file in the directory's place.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(directory),
        other => other,
    }
}

fn create_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(directory)
}

/// A file that may answer, before its text is looked at.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Candidate {
    /// Relative to the root.
    pub(super) path: PathBuf,
    /// Comparable with others of the same question.
    pub(super) score: f32,
}
