//! The order of files, and what an outcome is worth.
//!
//! Pure. The recipe was measured on public sets of questions about real repositories
//! (SWE-bench-Lite's files to be changed, SWE-QA's files named in reference answers), against plain
//! BM25 and against its own parts: the mean of a file's best three windows, plus path words, names it
//! defines, and what the question mentions outright.

use std::path::Path;

use super::{query::Query, tokenize::folded};

const PATH_WEIGHT: f32 = 1.5;
const DEFINITION_WEIGHT: f32 = 1.0;
const EXACT_DEFINITION_BONUS: f32 = 3.0;
const PATH_MENTION_BONUS: f32 = 15.0;
const MODULE_MENTION_BONUS: f32 = 6.0;
const STEM_MENTION_BONUS: f32 = 4.0;

/// Tests speak the words of what they test, and are seldom what is asked for.
const TEST_FACTOR: f32 = 0.5;
/// Locks, minified code, generated listings: many words, little to read.
const NOISE_FACTOR: f32 = 0.3;

/// How many documents there are, and how many have each term of the query in each field.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Statistics {
    /// All files.
    pub(super) documents: usize,
    /// Files with the term in their text.
    pub(super) in_text: Vec<usize>,
    /// Files with the term in their path.
    pub(super) in_path: Vec<usize>,
    /// Files with the term in a name they define.
    pub(super) in_definitions: Vec<usize>,
}

impl Statistics {
    /// None of anything, for so many terms.
    pub(super) fn none(terms: usize) -> Self {
        Self { documents: 0, in_text: vec![0; terms], in_path: vec![0; terms], in_definitions: vec![0; terms] }
    }

    /// Counts the other's files too.
    pub(super) fn add(&mut self, other: &Self) {
        self.documents += other.documents;
        for (mine, theirs) in [
            (&mut self.in_text, &other.in_text),
            (&mut self.in_path, &other.in_path),
            (&mut self.in_definitions, &other.in_definitions),
        ] {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
    }

    /// How much a term tells that so many documents have (BM25's idf, never negative).
    pub(super) fn idf(&self, documents_with: usize) -> f32 {
        let (all, with) = (self.documents.max(documents_with) as f32, documents_with as f32);
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    }

    /// Whether a term is nowhere, neither in a text nor in a path.
    pub(super) fn is_absent(&self, position: usize) -> bool {
        self.in_text[position] == 0 && self.in_path[position] == 0
    }
}

/// What each term of a query weighs, by field.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Weights {
    /// In text.
    pub(super) text: Vec<f32>,
    /// In paths.
    pub(super) path: Vec<f32>,
    /// In defined names.
    pub(super) definition: Vec<f32>,
}

impl Weights {
    /// From what the workspace has.
    pub(super) fn new(query: &Query, statistics: &Statistics) -> Self {
        let of = |counts: &[usize]| {
            query.terms.iter().zip(counts).map(|(term, count)| term.weight * statistics.idf(*count)).collect()
        };
        Self {
            text: of(&statistics.in_text),
            path: of(&statistics.in_path),
            definition: of(&statistics.in_definitions),
        }
    }
}

/// What is known of a file when it is ranked.
#[derive(Clone, Copy)]
pub(super) struct FileFeatures<'a> {
    /// Relative to the root.
    pub(super) path: &'a Path,
    /// Mean of the best windows, or a stand-in of the same scale.
    pub(super) text_score: f32,
    /// For each term, whether a defined name has it.
    pub(super) in_definitions: &'a dyn Fn(usize) -> bool,
    /// For each exact identifier, whether it is defined here.
    pub(super) defines: &'a dyn Fn(usize) -> bool,
    /// For each term, whether the path has it.
    pub(super) in_path: &'a dyn Fn(usize) -> bool,
}

/// The score of a file.
pub(super) fn score(query: &Query, weights: &Weights, file: &FileFeatures<'_>) -> f32 {
    let mut score = file.text_score;
    for (position, term) in query.terms.iter().enumerate() {
        // A word said thrice in a question is not thrice as much in a path.
        if (file.in_path)(position) {
            score += PATH_WEIGHT * weights.path[position] / term.weight;
        }
        if (file.in_definitions)(position) {
            score += DEFINITION_WEIGHT * weights.definition[position] / term.weight;
        }
        if term.exact && (file.defines)(position) {
            score += EXACT_DEFINITION_BONUS;
        }
    }
    let kind = Kind::of(file.path);
    if kind == Kind::Test && !asks_about_tests(query) {
        score *= TEST_FACTOR;
    }
    if kind == Kind::Noise {
        score *= NOISE_FACTOR;
    }
    score + mention_bonus(query, file.path)
}

/// What the question mentions outright.
pub(super) fn mention_bonus(query: &Query, path: &Path) -> f32 {
    let path = folded(&path.to_string_lossy().replace('\\', "/"));
    if query.paths.iter().any(|mention| ends_with_parts(&path, mention) || starts_with_parts(&path, mention)) {
        return PATH_MENTION_BONUS;
    }
    let without_extension = path.rsplit_once('.').map_or(path.as_str(), |(stem, _)| stem);
    let package = ["/__init__", "/mod", "/index"].iter().find_map(|name| without_extension.strip_suffix(name));
    let module = package.unwrap_or(without_extension);
    if query.modules.iter().any(|mention| ends_with_parts(module, mention)) {
        return MODULE_MENTION_BONUS;
    }
    let stem = module.rsplit('/').next().unwrap_or(module);
    if stem.len() > 2 && query.stems.iter().any(|word| word == stem) {
        return STEM_MENTION_BONUS;
    }
    0.0
}

fn ends_with_parts(path: &str, mention: &str) -> bool {
    path.strip_suffix(mention).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// A directory is mentioned.
fn starts_with_parts(path: &str, mention: &str) -> bool {
    mention.contains('/') && path.strip_prefix(mention).is_some_and(|after| after.starts_with('/'))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ordinary,
    Test,
    Noise,
}

impl Kind {
    fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        if matches!(extension, "lock" | "map" | "svg" | "snap" | "csv" | "tsv" | "po" | "log" | "jsonl" | "ipynb")
            || name.ends_with(".min.js")
            || name.ends_with(".min.css")
            || matches!(name.as_str(), "package-lock.json" | "pnpm-lock.yaml" | "go.sum")
        {
            return Self::Noise;
        }
        let is_test_directory = |part: std::path::Component<'_>| {
            matches!(
                part.as_os_str().to_string_lossy().to_lowercase().as_str(),
                "test" | "tests" | "testing" | "__tests__" | "spec" | "specs" | "testdata" | "fixtures"
            )
        };
        let stem = name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem);
        let is_test_name = stem.starts_with("test_")
            || ["_test", "_tests", ".test", ".spec", "_spec"].iter().any(|ending| stem.ends_with(ending))
            || stem == "tests";
        if is_test_name || path.parent().is_some_and(|parent| parent.components().any(is_test_directory)) {
            return Self::Test;
        }
        Self::Ordinary
    }
}

fn asks_about_tests(query: &Query) -> bool {
    query.terms.iter().any(|term| matches!(term.term.as_str(), "test" | "spec" | "fixtur" | "mock"))
        || query.paths.iter().any(|path| path.contains("test") || path.contains("spec"))
}

/// A file that covers so many of the heaviest words of a long question covers it all: a pasted report
/// says much that no file repeats.
const WORDS_OF_A_LONG_QUESTION: usize = 8;

/// How much of what was asked for a file covers, 0 to 1, by weight. Parts of identifiers count only
/// for themselves where the whole is absent too.
pub(super) fn coverage(query: &Query, weights: &Weights, has: impl Fn(usize) -> bool) -> f32 {
    let mut all = Vec::with_capacity(query.terms.len());
    let mut covered = 0.0;
    for (position, term) in query.terms.iter().enumerate() {
        if term.alternative && !has(position) {
            continue;
        }
        let weight = weights.text[position] / term.weight * if term.part { 0.3 } else { 1.0 };
        all.push(weight);
        if has(position) {
            covered += weight;
        }
    }
    all.sort_by(|a, b| b.total_cmp(a));
    let wanted: f32 = all.iter().take(WORDS_OF_A_LONG_QUESTION).sum();
    if wanted > 0.0 { (covered / wanted).min(1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bonus(question: &str, path: &str) -> f32 {
        mention_bonus(&Query::parse(question), Path::new(path))
    }

    #[test]
    fn mentions_are_rewarded() {
        let equal = |a: f32, b: f32| assert!((a - b).abs() < f32::EPSILON, "{a} {b}");
        equal(bonus("what is in net/tcp.c?", "lib/net/tcp.c"), PATH_MENTION_BONUS);
        equal(bonus("what is in tcp.c?", "lib/net/tcp.c"), PATH_MENTION_BONUS);
        equal(bonus("what is in cp.c?", "lib/net/tcp.c"), 0.0);
        equal(bonus("what does app.views.render do", "src/app/views.py"), MODULE_MENTION_BONUS);
        equal(bonus("what does the scheduler do", "src/scheduler.rs"), STEM_MENTION_BONUS);
    }

    #[test]
    fn rare_terms_tell_more() {
        let statistics = Statistics { documents: 1000, ..Statistics::none(0) };
        assert!(statistics.idf(1) > statistics.idf(100) && statistics.idf(1000) > 0.0);
    }
}
