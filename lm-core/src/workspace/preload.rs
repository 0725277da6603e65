//! The documents that an epoch starts with, read whole. May block on the file system.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Instant,
};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::prompts,
    conversation::Message,
    files::{FileText, PathKind, WalkLimits, WorkspaceFiles, display_path},
    memory::{log::Opening, told::Said},
    settings::Settings,
};

/// What is loaded where a person has not said which: of each row the first that is there.
const DEFAULT_DOCUMENTS: [&[&str]; 3] =
    [&["CLAUDE.md"], &["AGENTS.md"], &["README.md", "README", "README.rst", "README.txt", "readme.md"]];
/// The most bytes of these.
const DEFAULT_TOTAL_BYTES: usize = 24_000;
/// How many files may be looked at to find the documents.
const LISTED_MAX: usize = 200_000;
/// How many skipped documents are named.
const SKIPPED_NAMED: usize = 20;

/// What was loaded and what was not.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Preloaded {
    /// The documents as the start of a conversation.
    pub(super) opening: Opening,
    /// The documents with what they held.
    pub(super) documents: Vec<(String, FileText)>,
    /// What was skipped, and why.
    pub(super) skipped: Vec<String>,
}

/// Loads what the settings name, at most `most_bytes` in all, without what a person had `forgotten`.
pub(super) fn load(
    files: &WorkspaceFiles,
    settings: &Settings,
    most_bytes: usize,
    forgotten: &BTreeSet<Arc<str>>,
    deadline: Instant,
    cancel: &CancellationToken,
) -> Preloaded {
    let mut preloaded = Preloaded::default();
    let is_default = settings.preload_globs.is_empty();
    let paths = if is_default {
        default_documents(files)
    } else {
        let Some(wanted) = matcher(&settings.preload_globs, &mut preloaded.skipped) else { return preloaded };
        matching(files, &wanted, deadline, cancel)
    };
    let total = usize::try_from(settings.preload_max_total_bytes).unwrap_or(usize::MAX).min(most_bytes);
    let mut left = if is_default { total.min(DEFAULT_TOTAL_BYTES) } else { total };
    for path in paths {
        let shown = display_path(&path);
        let mut skip = |why: String| preloaded.skipped.push(format!("{shown}: {why}"));
        if forgotten.contains(&*shown) {
            skip("forgotten, until a session reads or edits it".to_owned());
            continue;
        }
        match files.read(&path, settings.passive_max_file_bytes) {
            Ok(file) if file.truncated => skip(format!(
                "{} bytes are more than passive_max_file_bytes allows ({})",
                file.size, settings.passive_max_file_bytes
            )),
            Ok(file) if file.text.len() > left => skip(format!("{} bytes, room is left for {left}", file.text.len())),
            Ok(file) => {
                left -= file.text.len();
                preloaded.documents.push((shown, file));
            }
            Err(error) => skip(error.to_string()),
        }
    }
    let more = preloaded.skipped.len().saturating_sub(SKIPPED_NAMED);
    if more > 0 {
        preloaded.skipped.truncate(SKIPPED_NAMED);
        preloaded.skipped.push(format!("and {more} more"));
    }
    preloaded.opening = opening(&preloaded.documents);
    preloaded
}

fn opening(documents: &[(String, FileText)]) -> Opening {
    if documents.is_empty() {
        return Opening::default();
    }
    let texts: Vec<(&str, &str)> = documents.iter().map(|(path, file)| (path.as_str(), file.text.as_str())).collect();
    Opening {
        messages: vec![Message::user(prompts::documents(&texts)), Message::assistant(prompts::OPENING_NOTED)],
        said: documents.iter().map(|(path, file)| Said::shown(path.as_str(), file.sha256.as_str())).collect(),
        ..Opening::default()
    }
}

fn default_documents(files: &WorkspaceFiles) -> Vec<PathBuf> {
    let is_file = |path: &&&str| files.kind(Path::new(path)).is_ok_and(|kind| kind == PathKind::File);
    DEFAULT_DOCUMENTS.iter().filter_map(|names| names.iter().find(is_file)).map(PathBuf::from).collect()
}

/// Matches path globs in which `*` does not cross directories and `**` does; none where there are none.
fn matcher(globs: &[String], skipped: &mut Vec<String>) -> Option<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let glob = glob.trim();
        if is_outside(glob) {
            skipped.push(format!("{glob}: patterns are relative to the workspace and stay in it"));
            continue;
        }
        match GlobBuilder::new(glob.strip_prefix("./").unwrap_or(glob)).literal_separator(true).build() {
            Ok(built) => {
                set.add(built);
            }
            Err(error) => skipped.push(format!("{glob}: {}", error.kind())),
        }
    }
    set.build().ok().filter(|set| !set.is_empty())
}

fn is_outside(glob: &str) -> bool {
    let is_drive = glob.get(1..2) == Some(":") && glob.starts_with(|first: char| first.is_ascii_alphabetic());
    glob.starts_with(['/', '\\', '~']) || is_drive || glob.split(['/', '\\']).any(|part| part == "..")
}

fn matching(files: &WorkspaceFiles, wanted: &GlobSet, deadline: Instant, cancel: &CancellationToken) -> Vec<PathBuf> {
    let limits = WalkLimits { max_files: LISTED_MAX, deadline, threads: 2, stamps: false };
    let found = Mutex::new(Vec::new());
    let walked = files.walk(
        &limits,
        cancel,
        || (),
        |(), file| {
            if wanted.is_match(&file.path)
                && let Ok(mut found) = found.lock()
            {
                found.push(file.path);
            }
            true
        },
    );
    if let Err(error) = walked {
        tracing::debug!(%error, "no documents to preload");
    }
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_unstable_by_key(|path| (path.components().count(), path.clone()));
    found
}
