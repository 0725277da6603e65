//! From ranked files to the places that are shown.
//!
//! Pure.

use std::path::PathBuf;

use super::{
    Place, definitions,
    query::Query,
    rank::Weights,
    tokenize::terms,
    window::{Seen, Span},
};
use crate::files::{FileText, display_path};

/// The most lines of an excerpt.
const MOST_LINES: usize = 40;
/// An excerpt in fewer characters says nothing.
const FEWEST_CHARS: usize = 80;
/// A place scored below this share of the best one is not worth reading.
const WORTH_SHOWING: f32 = 0.3;
/// The first files may show more than one place.
const RICH_FILES: usize = 2;

/// A file that was read and looked at.
#[derive(Debug)]
pub(super) struct Looked {
    /// Relative to the root.
    pub(super) path: PathBuf,
    /// As it was read.
    pub(super) file: FileText,
    /// What the query sees in it.
    pub(super) seen: Seen,
    /// Whether each term is in the path.
    pub(super) in_path: Vec<bool>,
    /// Comparable within one search.
    pub(super) score: f32,
}

impl Looked {
    /// Whether a term is in the text or in the path.
    pub(super) fn has(&self, position: usize) -> bool {
        self.seen.occurrences[position] > 0 || self.in_path[position]
    }

    fn why(&self, query: &Query, weights: &Weights) -> String {
        let mut reasons = Vec::new();
        if !self.seen.defined_names.is_empty() {
            let names: Vec<String> = self.seen.defined_names.iter().take(3).map(|name| format!("`{name}`")).collect();
            reasons.push(format!("defines {}", names.join(", ")));
        }
        let mut words: Vec<(f32, &str)> = Vec::new();
        for (position, term) in query.terms.iter().enumerate() {
            if self.has(position) && !words.iter().any(|(_, shown)| *shown == term.shown) {
                words.push((weights.text[position], &term.shown));
            }
        }
        words.sort_by(|a, b| b.0.total_cmp(&a.0));
        if !words.is_empty() {
            let words: Vec<&str> = words.iter().take(5).map(|(_, word)| *word).collect();
            reasons.push(format!("matches {}", words.join(", ")));
        }
        reasons.join("; ")
    }
}

/// Cuts places out of files, best first, within a number of characters for all excerpts together.
pub(super) fn places(
    looked: &[Looked],
    query: &Query,
    weights: &Weights,
    most_places: usize,
    most_chars: usize,
) -> Vec<Place> {
    let Some(best) = looked.first() else { return Vec::new() };
    let worth = looked.iter().filter(|file| file.score >= best.score * WORTH_SHOWING).take(most_places);
    let mut places = Vec::new();
    let mut chars_left = most_chars;
    let files: Vec<&Looked> = worth.collect();
    for (rank, file) in files.iter().enumerate() {
        let lines: Vec<&str> = file.file.text.lines().collect();
        let spans = if rank < RICH_FILES && files.len() < most_places { 2 } else { 1 };
        let mut taken: Vec<Span> = Vec::new();
        for nth in 0..spans {
            // The better a place, the more of what is left it may take.
            let waiting = files.len() - rank;
            let share = if waiting == 1 { chars_left } else { chars_left * 2 / (waiting + 1) };
            if share < FEWEST_CHARS || places.len() >= most_places {
                break;
            }
            let Some((span, excerpt)) = cut(file, &lines, query, weights, share, &taken, nth == 0) else { break };
            taken.push(span);
            chars_left = chars_left.saturating_sub(excerpt.chars().count());
            places.push(Place {
                path: display_path(&file.path),
                first_line: span.first + 1,
                last_line: span.end,
                excerpt,
                sha256: file.file.sha256.clone(),
                score: if nth == 0 { file.score } else { file.score * 0.5 },
                why: file.why(query, weights),
            });
        }
    }
    places
}

/// The best span of a file not yet taken; its beginning where only its path speaks for it.
fn cut(
    file: &Looked,
    lines: &[&str],
    query: &Query,
    weights: &Weights,
    most_chars: usize,
    taken: &[Span],
    or_beginning: bool,
) -> Option<(Span, String)> {
    let span = match file.seen.best_span(lines, &weights.text, MOST_LINES, taken) {
        Some(span) if taken.iter().all(|other| span.end <= other.first || other.end <= span.first) => span,
        None if or_beginning && !lines.is_empty() => Span { first: 0, end: lines.len().min(MOST_LINES / 2) },
        _ => return None,
    };
    file.seen.excerpt(lines, span, query, &weights.text, most_chars)
}

/// How a name that a text defines is written, given in the form of the index.
pub(super) fn defined_name(text: &str, term: &str) -> Option<String> {
    let mut written = None;
    definitions::in_text(text, |name| {
        if written.is_none() && terms(name).first().is_some_and(|whole| whole == term) {
            written = Some(name.to_owned());
        }
    });
    written
}
