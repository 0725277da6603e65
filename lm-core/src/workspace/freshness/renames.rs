//! Where files went that are no longer where they were.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::KnownFile;
use crate::{
    files::{FoundFile, MetRules, WalkLimits, WorkspaceFiles},
    tools::READ_CAP,
};

/// How long may be looked for them.
const TIME_MAX: Duration = Duration::from_millis(150);
/// As many files are hashed for it.
const HASHED_MAX: usize = 50;
/// As many files of a fitting size are considered.
const CANDIDATES_MAX: usize = 10_000;
const FILES_MAX: usize = 1_000_000;
const THREADS: usize = 2;

/// A file that may be one of those that are gone.
struct Candidate {
    path: PathBuf,
    size: u64,
    changed: i64,
    /// Whether a file that is gone had its name.
    same_name: bool,
}

/// For each known file that is gone, by its index, a file of the workspace that nobody knows yet and
/// that holds its bytes, as far as one is found in time.
pub(super) fn find(
    files: &WorkspaceFiles,
    known: &[KnownFile<'_>],
    gone: &[usize],
    deadline: Instant,
    cancel: &CancellationToken,
) -> HashMap<usize, String> {
    // Empty files are all the same.
    let size = |index: &usize| known[*index].stamp.map(|stamp| stamp.size).filter(|size| *size > 0);
    let mut wanted: HashMap<&str, Vec<usize>> = HashMap::new();
    for index in gone.iter().filter(|index| size(index).is_some()) {
        wanted.entry(known[*index].sha256).or_default().push(*index);
    }
    let sizes: HashSet<u64> = gone.iter().filter_map(size).collect();
    let names: HashSet<&std::ffi::OsStr> =
        gone.iter().filter_map(|index| Path::new(known[*index].path).file_name()).collect();
    if wanted.is_empty() {
        return HashMap::new();
    }
    let deadline = deadline.min(Instant::now() + TIME_MAX);
    let candidates = candidates(files, known, &sizes, &names, deadline, cancel);

    let mut found = HashMap::new();
    let met = MetRules::default();
    for candidate in candidates.into_iter().take(HASHED_MAX) {
        if wanted.is_empty() || Instant::now() >= deadline || cancel.is_cancelled() {
            break;
        }
        let Ok(text) = files.read_in_batch(&candidate.path, READ_CAP, &met) else { continue };
        let Some(indices) = wanted.get_mut(text.sha256.as_str()) else { continue };
        // Of several that held the same, the one with the same name.
        let name = candidate.path.file_name();
        let which = indices.iter().position(|index| Path::new(known[*index].path).file_name() == name).unwrap_or(0);
        if known[indices[which]].stamp.is_none_or(|stamp| stamp.size != text.size) {
            continue;
        }
        found.insert(indices.remove(which), with_slashes(&candidate.path));
        if indices.is_empty() {
            wanted.remove(text.sha256.as_str());
        }
    }
    found
}

/// Files of a fitting size that nobody knows, the likeliest first.
fn candidates(
    files: &WorkspaceFiles,
    known: &[KnownFile<'_>],
    sizes: &HashSet<u64>,
    names: &HashSet<&std::ffi::OsStr>,
    deadline: Instant,
    cancel: &CancellationToken,
) -> Vec<Candidate> {
    let limits = WalkLimits { max_files: FILES_MAX, deadline, threads: THREADS, stamps: true };
    let visit = |fitting: &mut Vec<FoundFile>, file: FoundFile| {
        if sizes.contains(&file.size) && fitting.len() < CANDIDATES_MAX && file.path.to_str().is_some() {
            fitting.push(file);
        }
        true
    };
    let Ok((fitting, _)) = files.walk(&limits, cancel, Vec::new, visit) else { return Vec::new() };
    let known: HashSet<&str> = known.iter().map(|file| file.path).collect();
    let mut candidates: Vec<Candidate> = fitting
        .into_iter()
        .flatten()
        .filter(|file| !known.contains(with_slashes(&file.path).as_str()))
        .map(|FoundFile { path, size, changed }| {
            let same_name = path.file_name().is_some_and(|name| names.contains(name));
            Candidate { path, size, changed, same_name }
        })
        .collect();
    // Moving a file is a change of it to most file systems.
    candidates.sort_unstable_by(|left, right| {
        let rank = |candidate: &Candidate| (candidate.same_name, candidate.changed, candidate.size);
        rank(right).cmp(&rank(left)).then_with(|| left.path.cmp(&right.path))
    });
    candidates
}

fn with_slashes(path: &Path) -> String {
    let text = path.to_string_lossy();
    if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() }
}
