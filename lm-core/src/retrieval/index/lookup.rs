//! The first stage of a search: which files may answer, by the index alone.

use std::{
    collections::{BTreeSet, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use tantivy::{
    DocSet as _, Searcher, SegmentReader, TERMINATED, Term,
    schema::{Field, IndexRecordOption},
};

use super::{Candidate, IndexError, WorkspaceIndex, postings::SegmentPostings};
use crate::retrieval::{
    query::Query,
    rank::{self, Statistics, Weights},
};

/// How many files get a second look for what the question mentions outright.
const SHORTLIST: usize = 512;
/// Normalisation by length is weaker than usual: the second stage looks at windows, and a long file
/// may hold a short answer.
const K1: f32 = 1.2;
const B: f32 = 0.4;
/// Names that are compared, besides those that begin alike.
const MOST_NAMES: usize = 100_000;
/// How like a suggested name must be to what was asked for, 0 to 1.
const ALIKE: f64 = 0.7;

/// A question's first stage.
pub(in crate::retrieval) struct Lookup<'a> {
    index: &'a WorkspaceIndex,
    searcher: Searcher,
    query: &'a Query,
    /// Files whose entries no longer hold.
    outdated: &'a HashSet<PathBuf>,
}

/// What is said of one file.
#[derive(Clone, Copy, Default)]
struct Scores {
    text: f32,
    path: f32,
    definitions: f32,
}

impl<'a> Lookup<'a> {
    /// Opens the index for a question.
    pub(in crate::retrieval) fn new(
        index: &'a WorkspaceIndex,
        query: &'a Query,
        outdated: &'a HashSet<PathBuf>,
    ) -> Result<Self, IndexError> {
        let searcher = index.searcher()?;
        // Another one was begun in its place: what is not in that is not absent.
        if searcher.segment_readers().len() != index.segments.len() {
            return Err(IndexError::Foreign);
        }
        Ok(Self { searcher, index, query, outdated })
    }

    fn paths(&self, segment: &SegmentReader) -> Result<&[Option<Arc<Path>>], IndexError> {
        self.index.segments.get(&segment.segment_id()).map(Vec::as_slice).ok_or(IndexError::Foreign)
    }

    /// Counts the files that hold, but for those outdated.
    pub(in crate::retrieval) fn statistics(&self) -> Result<Statistics, IndexError> {
        let mut statistics = Statistics::none(self.query.terms.len());
        statistics.documents = self.index.text_files();
        for segment in self.searcher.segment_readers() {
            let paths = self.paths(segment)?;
            let text = SegmentPostings::open(segment)?;
            let holds = |document: u32| {
                paths
                    .get(document as usize)
                    .and_then(Option::as_deref)
                    .is_some_and(|path| self.outdated.is_empty() || !self.outdated.contains(path))
            };
            for (position, term) in self.query.terms.iter().enumerate() {
                // Deleted documents must not be counted, or what is gone is not absent.
                text.for_each(&term.term, |document, _| {
                    statistics.in_text[position] += usize::from(holds(document));
                })?;
                for (field, counts) in [
                    (self.index.fields.path_terms, &mut statistics.in_path),
                    (self.index.fields.definitions, &mut statistics.in_definitions),
                ] {
                    for_each(segment, field, &term.term, |document| {
                        counts[position] += usize::from(holds(document));
                    })?;
                }
            }
        }
        Ok(statistics)
    }

    /// The best files, at most so many.
    pub(in crate::retrieval) fn candidates(
        &self,
        weights: &Weights,
        most: usize,
    ) -> Result<Vec<Candidate>, IndexError> {
        let mut best: Vec<(f32, &Arc<Path>)> = Vec::new();
        for segment in self.searcher.segment_readers() {
            let scores = self.score_segment(segment, weights)?;
            let mut local: Vec<(f32, &Arc<Path>)> = scores
                .iter()
                .zip(self.paths(segment)?)
                .filter_map(|(scores, path)| {
                    let path = path.as_ref()?;
                    let sum = scores.text + scores.path + scores.definitions;
                    (sum > 0.0 && !self.outdated.contains(&**path)).then_some((sum, path))
                })
                .collect();
            keep_best(&mut local, SHORTLIST);
            best.append(&mut local);
        }
        // A file that is mentioned outright counts even where its text says nothing.
        if !self.query.paths.is_empty() || !self.query.modules.is_empty() {
            let known: HashSet<&Path> = best.iter().map(|(_, path)| &***path).collect();
            let mentioned: Vec<(f32, &Arc<Path>)> = self
                .index
                .files
                .keys()
                .map(|key| &key.0)
                .filter(|path| !known.contains(&***path) && !self.outdated.contains(&***path))
                .filter(|path| rank::mention_bonus(self.query, path) >= 6.0)
                .map(|path| (0.0, path))
                .collect();
            best.extend(mentioned);
        }
        for (score, path) in &mut best {
            *score += rank::mention_bonus(self.query, path);
        }
        keep_best(&mut best, most);
        Ok(best.into_iter().map(|(score, path)| Candidate { path: path.to_path_buf(), score }).collect())
    }

    fn score_segment(&self, segment: &SegmentReader, weights: &Weights) -> Result<Vec<Scores>, IndexError> {
        let fields = &self.index.fields;
        let mut scores = vec![Scores::default(); segment.max_doc() as usize];
        let text = SegmentPostings::open(segment)?;
        let average = (text.total() as f32 / segment.max_doc().max(1) as f32).max(1.0);
        for (position, term) in self.query.terms.iter().enumerate() {
            let weight = weights.text[position];
            text.for_each(&term.term, |document, count| {
                let Some(scores) = scores.get_mut(document as usize) else { return };
                let length = text.length(document) as f32 / average;
                let count = count as f32;
                scores.text += weight * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
            })?;
            let weight = 1.5 * weights.path[position] / term.weight;
            for_each(segment, fields.path_terms, &term.term, |document| {
                scores[document as usize].path += weight;
            })?;
            let weight = weights.definition[position] / term.weight + if term.exact { 3.0 } else { 0.0 };
            for_each(segment, fields.definitions, &term.term, |document| {
                scores[document as usize].definitions += weight;
            })?;
        }
        Ok(scores)
    }

    /// Defined names, in the form of the index, that resemble a name; best first.
    pub(in crate::retrieval) fn similar_names(&self, name: &str, most: usize) -> Result<Vec<String>, IndexError> {
        let name = name.to_lowercase();
        let letters = Letters::new(&name);
        let mut similar = BTreeSet::new();
        // A slip at the very beginning is rare, but for one letter too many or two that changed places:
        // those names are looked at first. Looking through all takes a tenth of a second in a large
        // workspace, so that the others are looked at until there were enough.
        let mut beginnings: Vec<u8> = name.bytes().take(2).collect();
        beginnings.dedup();
        let others = (0..u8::MAX).filter(|beginning| !beginnings.contains(beginning));
        let order: Vec<(u8, bool)> =
            beginnings.iter().map(|&beginning| (beginning, true)).chain(others.map(|other| (other, false))).collect();
        let mut indexes = Vec::new();
        for segment in self.searcher.segment_readers() {
            indexes.push(segment.inverted_index(self.index.fields.definitions)?);
        }
        let mut looked_at = 0;
        for (beginning, is_likely) in order {
            for index in &indexes {
                let mut terms =
                    index.terms().range().ge([beginning]).lt([beginning.saturating_add(1)]).into_stream()?;
                while terms.advance() {
                    looked_at += 1;
                    if !is_likely && looked_at > MOST_NAMES {
                        break;
                    }
                    let Ok(term) = std::str::from_utf8(terms.key()) else { continue };
                    if term.len().abs_diff(name.len()) > 4 || term.len() < 3 || !letters.may_be_like(term) {
                        continue;
                    }
                    let likeness = strsim::normalized_damerau_levenshtein(term, &name);
                    if likeness >= ALIKE {
                        similar.insert((((1.0 - likeness) * 1000.0) as u32, term.to_owned()));
                    }
                }
            }
        }
        Ok(similar.into_iter().map(|(_, term)| term).take(most).collect())
    }

    /// Files that define a name given in the form of the index.
    pub(in crate::retrieval) fn files_defining(&self, term: &str, most: usize) -> Result<Vec<PathBuf>, IndexError> {
        let mut files = Vec::new();
        for segment in self.searcher.segment_readers() {
            let paths = self.paths(segment)?;
            for_each(segment, self.index.fields.definitions, term, |document| {
                if files.len() < most
                    && let Some(Some(path)) = paths.get(document as usize)
                {
                    files.push(path.to_path_buf());
                }
            })?;
        }
        Ok(files)
    }
}

/// The letters of a name. Most names that exist can be told by them not to be like it, a hundred times
/// faster than by comparing in order.
struct Letters {
    counts: [u8; 128],
    length: usize,
    ascii: bool,
}

impl Letters {
    fn new(name: &str) -> Self {
        let mut counts = [0_u8; 128];
        for byte in name.bytes().filter(u8::is_ascii) {
            let count = &mut counts[usize::from(byte)];
            *count = count.saturating_add(1);
        }
        Self { counts, length: name.len(), ascii: name.is_ascii() }
    }

    /// False only where too few letters are common: each one that is not costs an edit.
    fn may_be_like(&self, other: &str) -> bool {
        if !self.ascii || !other.is_ascii() {
            return true;
        }
        let mut left = self.counts;
        let mut common = 0_usize;
        for byte in other.bytes() {
            let count = &mut left[usize::from(byte)];
            common += usize::from(*count > 0);
            *count = count.saturating_sub(1);
        }
        common as f64 >= ALIKE * self.length.max(other.len()) as f64 - 1e-6
    }
}

/// Calls `found` with each document that has a term in its path or in a name it defines.
fn for_each(segment: &SegmentReader, field: Field, term: &str, mut found: impl FnMut(u32)) -> Result<(), IndexError> {
    let index = segment.inverted_index(field)?;
    let term = Term::from_field_text(field, term);
    let Some(mut postings) = index.read_postings(&term, IndexRecordOption::Basic)? else { return Ok(()) };
    let mut document = postings.doc();
    while document != TERMINATED {
        found(document);
        document = postings.advance();
    }
    Ok(())
}

/// Sorts by score and drops all but the best.
fn keep_best(files: &mut Vec<(f32, &Arc<Path>)>, most: usize) {
    files.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    files.truncate(most);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn letters_rule_out_nothing_that_is_like(name in "[a-d_]{3,12}", other in "[a-d_]{3,12}|[a-dü]{3,9}") {
            if strsim::normalized_damerau_levenshtein(&name, &other) >= ALIKE {
                prop_assert!(Letters::new(&name).may_be_like(&other));
            }
        }
    }
}
