//! One search: which files may answer, by index or live; then their present text.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::{
    How, LeftOut, SearchError, SearchLimits, SearchOutcome, Verdict,
    excerpts::{self, Looked},
    index::{Candidate, Changes, FILE_CAP, IndexError, Kind, Lookup, Stamp, WorkspaceIndex},
    live, overview,
    query::{Query, path_terms},
    rank::{self, FileFeatures, Statistics, Weights},
    window::Seen,
};
use crate::files::{FileText, FoundFile, MetRules, WalkLimits, WalkReport, WorkspaceFiles, display_path};

/// How long a search without index reads files. Past it the answer says that it is not complete.
const LIVE_BUDGET: Duration = Duration::from_millis(2800);
/// How long listing may take of it; then the files listed so far are read.
const LISTING_BUDGET: Duration = Duration::from_millis(1500);
/// Kept of the deadline for ranking and excerpts.
const RESERVE: Duration = Duration::from_millis(200);
/// The most files listed for a live search.
const MOST_LISTED: usize = 2_000_000;
/// Files whose text is looked at in the second stage.
const CANDIDATES: usize = 64;
/// Text looked at in the second stage, in bytes.
const CANDIDATE_BYTES: usize = 12 << 20;
/// Threads that list and read.
const MOST_THREADS: usize = 8;
/// Below this coverage the places found do not answer.
const WEAK_COVERAGE: f32 = 0.4;
/// Below this they have nothing to do with the question.
const NO_COVERAGE: f32 = 0.15;

/// A search under way.
pub(super) struct Search<'a> {
    files: &'a WorkspaceFiles,
    query: Query,
    limits: SearchLimits,
    progress: &'a dyn Fn(&str),
    cancel: &'a CancellationToken,
    started: Instant,
}

/// What the first stage gives to the second.
struct FirstStage {
    statistics: Statistics,
    weights: Weights,
    how: How,
    files_searched: usize,
    left_out: LeftOut,
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

impl<'a> Search<'a> {
    /// Understands the question.
    pub(super) fn new(
        files: &'a WorkspaceFiles,
        question: &str,
        limits: SearchLimits,
        progress: &'a dyn Fn(&str),
        cancel: &'a CancellationToken,
    ) -> Result<Self, SearchError> {
        let query = Query::parse(question);
        if query.is_empty() && !query.general {
            return Err(SearchError::NothingToSearch);
        }
        Ok(Self { files, query, limits, progress, cancel, started: Instant::now() })
    }

    /// Whether it asks about the workspace as a whole; then [`Search::overview`] answers it.
    pub(super) fn is_general(&self) -> bool {
        self.query.general
    }

    /// What introduces the workspace. Also gives how many files were listed.
    pub(super) fn overview(&self) -> Result<(SearchOutcome, usize), SearchError> {
        let (found, report) = self.list(false, LISTING_BUDGET)?;
        let files_searched = found.len();
        let places = overview::places(self.files, found, self.limits.max_places, self.limits.max_excerpt_chars);
        self.check_cancelled()?;
        let outcome = SearchOutcome {
            verdict: if places.is_empty() { Verdict::Nothing } else { Verdict::Overview },
            places,
            absent_terms: Vec::new(),
            suggestions: Vec::new(),
            empty_files: Vec::new(),
            coverage: 0.0,
            how: How::Live { complete: report.is_complete() },
            files_searched,
            left_out: not_listed(&report),
        };
        Ok((outcome, files_searched))
    }

    fn threads() -> usize {
        thread::available_parallelism().map_or(2, usize::from).clamp(2, MOST_THREADS)
    }

    fn deadline(&self) -> Instant {
        self.limits.deadline.checked_sub(RESERVE).unwrap_or(self.limits.deadline)
    }

    fn check_cancelled(&self) -> Result<(), SearchError> {
        if self.cancel.is_cancelled() { Err(SearchError::Cancelled) } else { Ok(()) }
    }

    fn list(&self, stamps: bool, budget: Duration) -> Result<(Vec<FoundFile>, WalkReport), SearchError> {
        let limits = WalkLimits {
            max_files: MOST_LISTED,
            deadline: self.deadline().min(self.started + budget),
            threads: Self::threads(),
            stamps,
        };
        let listed = self.files.walk(&limits, self.cancel, Vec::new, |found: &mut Vec<FoundFile>, file| {
            found.push(file);
            true
        });
        self.check_cancelled()?;
        let (parts, report) = listed
            .map_err(|source| SearchError::Workspace { root: self.files.root().display().to_string(), source })?;
        Ok((parts.into_iter().flatten().collect(), report))
    }

    /// By reading files. Also gives how many files were listed.
    pub(super) fn live(&self) -> Result<(SearchOutcome, usize), SearchError> {
        let (found, report) = self.list(false, LISTING_BUDGET)?;
        let listed = found.len();
        (self.progress)(&format!("searching {listed} file{}", plural(listed)));
        let found = live::order(found, &self.query, Self::threads());
        let deadline = self.deadline().min(self.started + LIVE_BUDGET);
        let scan = live::scan(self.files, &found, &self.query, Self::threads(), deadline, self.cancel);
        drop(found);
        self.check_cancelled()?;
        let mut statistics = scan.statistics.clone();
        let weights = Weights::new(&self.query, &statistics);
        let candidates = scan.candidates(&self.query, &weights, CANDIDATES);
        let mut left_out = scan.left_out;
        left_out.add(not_listed(&report));
        let complete = scan.complete && report.is_complete();
        let looked = self.look(&candidates)?;
        // What defines is only known now, and only of the best files.
        for position in 0..self.query.terms.len() {
            statistics.in_definitions[position] =
                looked.iter().filter(|looked| looked.seen.in_definitions[position] > 0).count();
        }
        let stage = FirstStage {
            weights: Weights::new(&self.query, &statistics),
            statistics,
            how: How::Live { complete },
            files_searched: scan.searched,
            left_out,
        };
        Ok((self.conclude(stage, looked, Vec::new()), listed))
    }

    /// By the index, and live for what changed since; gives the changes too.
    pub(super) fn by_index(&self, index: &WorkspaceIndex) -> Result<(SearchOutcome, Changes), IndexedError> {
        let (found, report) = self.list(true, Duration::from_secs(3600))?;
        let Compared { changes, outdated, to_scan } = compare(index, found, report.is_complete());
        if !to_scan.is_empty() {
            (self.progress)(&format!("searching {} changed file{}", to_scan.len(), plural(to_scan.len())));
        }
        let to_scan = live::order(to_scan, &self.query, Self::threads());
        let deadline = self.deadline().min(Instant::now() + LIVE_BUDGET);
        let scanned = live::scan(self.files, &to_scan, &self.query, Self::threads(), deadline, self.cancel);
        self.check_cancelled()?;
        let lookup = Lookup::new(index, &self.query, &outdated)?;
        let mut statistics = lookup.statistics()?;
        let outdated_texts =
            outdated.iter().filter(|path| index.files.get(path.as_os_str()).is_some_and(is_text)).count();
        statistics.documents = statistics.documents.saturating_sub(outdated_texts);
        let files_searched = statistics.documents + scanned.searched;
        statistics.add(&scanned.statistics);
        let weights = Weights::new(&self.query, &statistics);
        let mut candidates = lookup.candidates(&weights, CANDIDATES)?;
        candidates.extend(scanned.candidates(&self.query, &weights, CANDIDATES));
        candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.path.cmp(&b.path)));
        candidates.truncate(CANDIDATES);
        let mut left_out = scanned.left_out;
        left_out.add(not_listed(&report));
        for (path, stamp) in &index.files {
            if !outdated.contains(&*path.0) {
                left_out.count(stamp.kind);
            }
        }
        let complete = scanned.complete && report.is_complete();
        let looked = self.look(&candidates)?;
        let suggestions = if complete { self.suggest(&lookup, &statistics) } else { Vec::new() };
        let how = How::Indexed { complete };
        let stage = FirstStage { statistics, weights, how, files_searched, left_out };
        Ok((self.conclude(stage, looked, suggestions), changes))
    }

    /// Reads the candidates now, so that lines, text and hashes are of this moment.
    fn look(&self, candidates: &[Candidate]) -> Result<Vec<Looked>, SearchError> {
        let next = AtomicUsize::new(0);
        let bytes = AtomicUsize::new(0);
        let (files, query, cancel, deadline) = (self.files, &self.query, self.cancel, self.limits.deadline);
        let met = MetRules::default();
        let run = || {
            let mut looked = Vec::new();
            loop {
                let position = next.fetch_add(1, Relaxed);
                let Some(candidate) = candidates.get(position) else { break };
                let out_of_time = position > 0 && Instant::now() >= deadline;
                if cancel.is_cancelled() || out_of_time || bytes.load(Relaxed) > CANDIDATE_BYTES {
                    break;
                }
                // What vanished, or turned out to be secret, is passed over.
                let Ok(file) = files.read_in_batch(&candidate.path, FILE_CAP, &met) else { continue };
                bytes.fetch_add(file.text.len(), Relaxed);
                looked.push((position, look_at(query, candidate.path.clone(), file)));
            }
            looked
        };
        let mut looked = thread::scope(|scope| {
            let others: Vec<_> = (1..Self::threads().min(candidates.len())).map(|_| scope.spawn(run)).collect();
            let mut looked = run();
            // What a thread that fell was at is passed over like a file that vanished.
            looked.extend(others.into_iter().filter_map(|other| other.join().ok()).flatten());
            looked
        });
        self.check_cancelled()?;
        looked.sort_by_key(|(position, _)| *position);
        Ok(looked.into_iter().map(|(_, looked)| looked).collect())
    }

    /// Ranks what was looked at, says what it is worth, and cuts the excerpts.
    fn conclude(&self, stage: FirstStage, mut looked: Vec<Looked>, suggestions: Vec<String>) -> SearchOutcome {
        let FirstStage { statistics, weights, how, files_searched, left_out } = stage;
        for file in &mut looked {
            let features = FileFeatures {
                path: &file.path,
                text_score: file.seen.score(&weights.text),
                in_definitions: &|position| file.seen.in_definitions[position] > 0,
                defines: &|position| file.seen.defines(position),
                in_path: &|position| file.in_path[position],
            };
            file.score = rank::score(&self.query, &weights, &features);
        }
        let named_and_empty =
            |file: &&Looked| file.file.text.trim().is_empty() && rank::mention_bonus(&self.query, &file.path) > 6.0;
        let mut empty_files: Vec<String> =
            looked.iter().filter(named_and_empty).map(|file| display_path(&file.path)).collect();
        empty_files.sort();
        looked.retain(|file| file.score > 0.0);
        looked.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.path.cmp(&b.path)));
        let coverage = looked.iter().take(3).map(|file| self.coverage(&weights, file)).fold(0.0, f32::max);
        let verdict = self.verdict(&statistics, &weights, &looked, coverage, how);
        let absent_terms = if how.is_complete() { self.absent(&statistics) } else { Vec::new() };
        let most_places = match verdict {
            Verdict::Found | Verdict::Overview => self.limits.max_places,
            Verdict::Weak => self.limits.max_places.min(3),
            Verdict::Nothing => 0,
        };
        let places = excerpts::places(&looked, &self.query, &weights, most_places, self.limits.max_excerpt_chars);
        let verdict = if places.is_empty() { Verdict::Nothing } else { verdict };
        SearchOutcome {
            places,
            verdict,
            absent_terms,
            suggestions,
            empty_files,
            coverage,
            how,
            files_searched,
            left_out,
        }
    }

    fn coverage(&self, weights: &Weights, file: &Looked) -> f32 {
        rank::coverage(&self.query, weights, |position| file.has(position))
    }

    fn verdict(
        &self,
        statistics: &Statistics,
        weights: &Weights,
        looked: &[Looked],
        coverage: f32,
        how: How,
    ) -> Verdict {
        let Some(best) = looked.first() else { return Verdict::Nothing };
        // A file that the question names is an answer in itself.
        if rank::mention_bonus(&self.query, &best.path) > 6.0 {
            return Verdict::Found;
        }
        let mut exact = self.query.terms.iter().enumerate().filter(|(_, term)| term.exact).peekable();
        let asks_by_name = exact.peek().is_some();
        let all_absent = exact.all(|(position, _)| statistics.is_absent(position));
        if asks_by_name && all_absent && how.is_complete() {
            let others = |position: usize| !self.query.terms[position].exact && !self.query.terms[position].part;
            let (mut all, mut covered) = (0.0, 0.0);
            for position in (0..self.query.terms.len()).filter(|position| others(*position)) {
                all += weights.text[position];
                if best.has(position) {
                    covered += weights.text[position];
                }
            }
            return if all > 0.0 && covered / all >= 0.6 { Verdict::Weak } else { Verdict::Nothing };
        }
        // A name that every file has weighs nothing and is still what was asked for.
        let names = || self.query.terms.iter().enumerate().filter(|(_, term)| term.exact).map(|(position, _)| position);
        if asks_by_name && names().all(|position| best.has(position)) {
            return Verdict::Found;
        }
        let holds_a_name = looked.iter().take(3).any(|file| names().any(|position| file.has(position)));
        if coverage < NO_COVERAGE && how.is_complete() && !holds_a_name {
            Verdict::Nothing
        } else if coverage < WEAK_COVERAGE {
            Verdict::Weak
        } else {
            Verdict::Found
        }
    }

    fn absent(&self, statistics: &Statistics) -> Vec<String> {
        let mut absent: Vec<String> = Vec::new();
        for (position, term) in self.query.terms.iter().enumerate() {
            if !term.part && statistics.is_absent(position) && !absent.contains(&term.shown) {
                absent.push(term.shown.clone());
            }
        }
        absent
    }

    /// Names that exist and resemble the absent ones that were asked for, as they are written.
    fn suggest(&self, lookup: &Lookup<'_>, statistics: &Statistics) -> Vec<String> {
        let mut suggestions: Vec<String> = Vec::new();
        let absent = self
            .query
            .terms
            .iter()
            .enumerate()
            .filter(|(position, term)| term.exact && statistics.is_absent(*position));
        for (_, term) in absent.take(3) {
            // A suggestion is a courtesy; without it the answer is still right.
            let Ok(similar) = lookup.similar_names(&term.term, 3) else { continue };
            for name in similar {
                if let Some(written) = self.as_written(lookup, &name)
                    && !suggestions.contains(&written)
                {
                    suggestions.push(written);
                }
            }
        }
        suggestions
    }

    fn as_written(&self, lookup: &Lookup<'_>, term: &str) -> Option<String> {
        for path in lookup.files_defining(term, 2).ok()? {
            let Ok(file) = self.files.read(&path, FILE_CAP) else { continue };
            if let Some(name) = excerpts::defined_name(&file.text, term) {
                return Some(name);
            }
        }
        None
    }
}

fn look_at(query: &Query, path: PathBuf, file: FileText) -> Looked {
    let words = path_terms(&path);
    let in_path = query.terms.iter().map(|term| words.contains(&term.term)).collect();
    Looked { seen: Seen::new(&file.text, query), in_path, file, path, score: 0.0 }
}

fn is_text(stamp: &Stamp) -> bool {
    matches!(stamp.kind, Kind::Text | Kind::Cut)
}

/// The index compared with the files as they are.
struct Compared {
    /// What the index is to be told.
    changes: Changes,
    /// Files whose entries do not hold.
    outdated: HashSet<PathBuf>,
    /// Files to search live: the changed ones, and such as could not be read when they were indexed.
    to_scan: Vec<FoundFile>,
}

/// Compares the index with what was found. Of an incomplete listing nothing follows about files that
/// are not in it.
fn compare(index: &WorkspaceIndex, found: Vec<FoundFile>, complete: bool) -> Compared {
    let mut compared = Compared { changes: Changes::default(), outdated: HashSet::new(), to_scan: Vec::new() };
    let known: Vec<Option<&Stamp>> = found.iter().map(|file| index.files.get(file.path.as_os_str())).collect();
    // Each file is listed once, so where all that are known were met none is gone.
    if complete && known.iter().flatten().count() < index.files.len() {
        let listed: HashSet<&Path> = found.iter().map(|file| file.path.as_path()).collect();
        let gone = index.files.keys().filter(|path| !listed.contains(&*path.0));
        compared.changes.deleted.extend(gone.map(|path| path.0.to_path_buf()));
        compared.outdated.extend(compared.changes.deleted.iter().cloned());
    }
    for (file, known) in found.into_iter().zip(known) {
        let unchanged = known.is_some_and(|stamp| stamp.size == file.size && stamp.changed == file.changed);
        let unreadable = known.is_some_and(|stamp| stamp.kind == Kind::Unreadable);
        if unchanged && !unreadable {
            continue;
        }
        if known.is_some() {
            compared.outdated.insert(file.path.clone());
        }
        if !unchanged {
            compared.changes.written.push(file.clone());
        }
        compared.to_scan.push(file);
    }
    compared
}

/// Why a search by the index has no outcome.
#[derive(Debug, Error)]
pub(super) enum IndexedError {
    /// The search itself.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The index; searching live is still possible.
    #[error(transparent)]
    Index(#[from] IndexError),
}

fn not_listed(report: &WalkReport) -> LeftOut {
    LeftOut {
        secret: report.secret,
        not_regular: report.not_regular,
        unreadable: report.unreadable,
        ..LeftOut::default()
    }
}
