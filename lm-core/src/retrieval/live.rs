//! Searching without an index: reads files until all are read or time is out.

use std::{
    io,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkMatch};
use tokio_util::sync::CancellationToken;

use super::{
    LeftOut,
    index::{Candidate, FILE_CAP, Kind},
    query::{Query, path_terms},
    rank::{self, Statistics, Weights},
    tokenize::{Terms, spellings},
};
use crate::files::{FoundFile, ReadError, WorkspaceFiles};

/// Files that a thread takes at a time.
const BATCH: usize = 32;
/// The most matching files kept; past it those with the fewest different terms go.
const MOST_MATCHES: usize = 20_000;

/// What a live search found, before ranking.
#[derive(Debug, Default)]
pub(super) struct Scan {
    matches: Vec<Match>,
    /// Files whose text was looked at.
    pub(super) searched: usize,
    /// What could not be.
    pub(super) left_out: LeftOut,
    /// Whether all files were.
    pub(super) complete: bool,
    /// How many files have each term, as far as was seen.
    pub(super) statistics: Statistics,
}

/// A file with at least one term, in its text or its path.
#[derive(Debug)]
struct Match {
    path: PathBuf,
    /// How often each term occurs in the text.
    counts: Box<[u16]>,
    /// Whether each term occurs in the path.
    in_path: Box<[bool]>,
}

impl Scan {
    fn merge(&mut self, other: Self) {
        self.matches.extend(other.matches);
        self.searched += other.searched;
        self.left_out.add(other.left_out);
        self.statistics.add(&other.statistics);
    }

    /// Drops the poorest matches where there are too many to keep.
    fn prune(&mut self) {
        if self.matches.len() > MOST_MATCHES {
            let breadth = |found: &Match| {
                found.counts.iter().zip(&found.in_path).filter(|(count, in_path)| **count > 0 || **in_path).count()
            };
            self.matches.sort_by_key(|found| std::cmp::Reverse(breadth(found)));
            self.matches.truncate(MOST_MATCHES / 2);
        }
    }

    /// The best files, at most so many, by terms and mentions.
    pub(super) fn candidates(&self, query: &Query, weights: &Weights, most: usize) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = self
            .matches
            .iter()
            .map(|found| {
                let mut score = rank::mention_bonus(query, &found.path);
                for (position, term) in query.terms.iter().enumerate() {
                    let count = f32::from(found.counts[position]);
                    score += weights.text[position] * count * 2.2 / (count + 1.2);
                    if found.in_path[position] {
                        score += 1.5 * weights.path[position] / term.weight;
                    }
                }
                Candidate { path: found.path.clone(), score }
            })
            .collect();
        candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.path.cmp(&b.path)));
        candidates.truncate(most);
        candidates
    }
}

/// Searches files in the order given, on several threads, until the deadline.
pub(super) fn scan(
    files: &WorkspaceFiles,
    found: &[FoundFile],
    query: &Query,
    threads: usize,
    deadline: Instant,
    cancel: &CancellationToken,
) -> Scan {
    let Some(matcher) = matcher(query) else { return Scan::default() };
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Scan { statistics: Statistics::none(query.terms.len()), complete: true, ..Scan::default() });
    let run = || {
        let mut worker = Worker::new(files, query, &matcher);
        let mut complete = true;
        'batches: loop {
            let start = next.fetch_add(BATCH, Relaxed);
            if start >= found.len() {
                break;
            }
            for file in &found[start..found.len().min(start + BATCH)] {
                if cancel.is_cancelled() || Instant::now() >= deadline {
                    complete = false;
                    break 'batches;
                }
                worker.search(file);
            }
            worker.scan.prune();
        }
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.complete &= complete;
        total.merge(worker.scan);
        total.prune();
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(found.len().div_ceil(BATCH)).max(1) {
            scope.spawn(run);
        }
        run();
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Matches whatever may hold a term; the lines it finds are then cut into terms like everything else.
fn matcher(query: &Query) -> Option<RegexMatcher> {
    let needles: Vec<String> = query
        .terms
        .iter()
        // `query` is also the term of `queries`.
        .flat_map(|term| spellings(term.term.strip_suffix('y').filter(|stem| stem.len() > 2).unwrap_or(&term.term)))
        .collect();
    // Escaped words in a bounded number always make a pattern; without terms there is nothing to find.
    RegexMatcherBuilder::new()
        .case_insensitive(true)
        .line_terminator(Some(b'\n'))
        .build_literals(&needles)
        .ok()
        .filter(|_| !needles.is_empty())
}

struct Worker<'a> {
    files: &'a WorkspaceFiles,
    query: &'a Query,
    matcher: &'a RegexMatcher,
    searcher: Searcher,
    counter: Counter<'a>,
    scan: Scan,
}

impl<'a> Worker<'a> {
    fn new(files: &'a WorkspaceFiles, query: &'a Query, matcher: &'a RegexMatcher) -> Self {
        let searcher = SearcherBuilder::new()
            .memory_map(MmapChoice::never())
            .binary_detection(BinaryDetection::none())
            .line_number(false)
            .build();
        let counter = Counter { positions: query.positions(), counts: vec![0; query.terms.len()] };
        let scan = Scan { statistics: Statistics::none(query.terms.len()), ..Scan::default() };
        Self { files, query, matcher, searcher, counter, scan }
    }

    fn search(&mut self, file: &FoundFile) {
        let in_path = self.search_path(file);
        self.counter.counts.fill(0);
        let (searcher, matcher, counter) = (&mut self.searcher, self.matcher, &mut self.counter);
        let text = self.files.read_found_if(&file.path, FILE_CAP, |bytes| {
            // The sink never fails, and bytes in memory can always be read.
            let _ = searcher.search_slice(matcher, bytes, &mut *counter);
            counter.counts.iter().any(|count| *count > 0)
        });
        match text {
            Ok((_, truncated)) => {
                self.scan.searched += 1;
                self.scan.statistics.documents += 1;
                if truncated {
                    self.scan.left_out.count(Kind::Cut);
                }
            }
            Err(error) => {
                // A file that vanished since it was listed is no longer part of the workspace.
                let gone = matches!(&error, ReadError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
                if !gone {
                    self.scan.left_out.count_error(&error);
                }
                return;
            }
        }
        for (position, count) in self.counter.counts.iter().enumerate() {
            self.scan.statistics.in_text[position] += usize::from(*count > 0);
            self.scan.statistics.in_path[position] += usize::from(in_path[position]);
        }
        if self.counter.counts.iter().any(|count| *count > 0) || in_path.contains(&true) {
            let counts = self.counter.counts.clone().into_boxed_slice();
            self.scan.matches.push(Match { path: file.path.clone(), counts, in_path });
        }
    }

    fn search_path(&self, file: &FoundFile) -> Box<[bool]> {
        let mut in_path = vec![false; self.query.terms.len()].into_boxed_slice();
        for term in path_terms(&file.path) {
            if let Some(&position) = self.counter.positions.get(term.as_str()) {
                in_path[position] = true;
            }
        }
        in_path
    }
}

/// Counts the terms of the lines that match.
struct Counter<'a> {
    positions: std::collections::HashMap<&'a str, usize>,
    counts: Vec<u16>,
}

impl Sink for Counter<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let line = String::from_utf8_lossy(found.bytes());
        let mut terms = Terms::new(&line);
        while let Some(term) = terms.advance() {
            if let Some(&position) = self.positions.get(term) {
                self.counts[position] = self.counts[position].saturating_add(1);
            }
        }
        Ok(true)
    }
}

impl LeftOut {
    pub(super) fn add(&mut self, other: Self) {
        self.secret += other.secret;
        self.binary += other.binary;
        self.not_regular += other.not_regular;
        self.unreadable += other.unreadable;
        self.cut += other.cut;
    }

    fn count_error(&mut self, error: &ReadError) {
        match error {
            ReadError::Secret(_) => self.secret += 1,
            ReadError::Binary(_) => self.binary += 1,
            ReadError::NotRegular(_) => self.not_regular += 1,
            ReadError::Outside(_) | ReadError::UnreadableRules { .. } | ReadError::Io { .. } => self.unreadable += 1,
            // Not listed either, so not counted.
            ReadError::Ignored(_) | ReadError::Excluded(_) => {}
        }
    }
}

/// Puts files first that are likely to answer, for when there is no time for all: those whose path
/// has terms of the question or is mentioned, then those nearer to the root.
pub(super) fn order(found: Vec<FoundFile>, query: &Query, threads: usize) -> Vec<FoundFile> {
    // In a huge workspace this would otherwise take the time that is there for reading.
    let share = found.len().div_ceil(threads.max(1)).max(1000);
    let ranks: Vec<u32> = thread::scope(|scope| {
        let parts: Vec<_> = found.chunks(share).map(|part| (part, scope.spawn(move || ranks(part, query)))).collect();
        parts
            .into_iter()
            .flat_map(|(part, ranked)| ranked.join().unwrap_or_else(|_| vec![u32::MAX; part.len()]))
            .collect()
    });
    let mut ranked: Vec<(u32, FoundFile)> = ranks.into_iter().zip(found).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, file)| file).collect()
}

/// Lower is likelier: mentioned before not, then more terms before fewer, then nearer to the root.
fn ranks(found: &[FoundFile], query: &Query) -> Vec<u32> {
    let positions = query.positions();
    let mut in_path = vec![false; query.terms.len()];
    found
        .iter()
        .map(|file| {
            in_path.fill(false);
            let path = file.path.to_string_lossy();
            let mut terms = Terms::new(&path);
            while let Some(term) = terms.advance() {
                if let Some(&position) = positions.get(term) {
                    in_path[position] = true;
                }
            }
            let mentioned = rank::mention_bonus(query, &file.path) > 0.0;
            let terms = in_path.iter().filter(|in_path| **in_path).count().min(0xff) as u32;
            let depth = file.path.iter().count().min(0xffff) as u32;
            u32::from(!mentioned) << 24 | (0xff - terms) << 16 | depth
        })
        .collect()
}
