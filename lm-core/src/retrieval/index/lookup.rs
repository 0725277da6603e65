//! The first stage of a search: which files may answer, by the index alone.

use std::{
    collections::{BTreeSet, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use tantivy::{
    DocSet as _, Searcher, SegmentReader, TERMINATED, Term,
    postings::Postings as _,
    schema::{Field, IndexRecordOption},
};

use super::{Candidate, IndexError, WorkspaceIndex};
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
        Ok(Self { searcher: index.searcher()?, index, query, outdated })
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
            let holds = |document: u32| {
                paths
                    .get(document as usize)
                    .and_then(Option::as_deref)
                    .is_some_and(|path| self.outdated.is_empty() || !self.outdated.contains(path))
            };
            for (position, term) in self.query.terms.iter().enumerate() {
                for (field, counts) in [
                    (self.index.fields.text, &mut statistics.in_text),
                    (self.index.fields.path_terms, &mut statistics.in_path),
                    (self.index.fields.definitions, &mut statistics.in_definitions),
                ] {
                    // Deleted documents must not be counted, or what is gone is not absent.
                    for_each(segment, field, &term.term, false, |document, _| {
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
        let norms = segment.get_fieldnorms_reader(fields.text)?;
        let total = segment.inverted_index(fields.text)?.total_num_tokens();
        let average = (total as f32 / segment.max_doc().max(1) as f32).max(1.0);
        for (position, term) in self.query.terms.iter().enumerate() {
            let weight = weights.text[position];
            for_each(segment, fields.text, &term.term, true, |document, count| {
                let length = norms.fieldnorm(document) as f32 / average;
                let count = count as f32;
                scores[document as usize].text += weight * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
            })?;
            let weight = 1.5 * weights.path[position] / term.weight;
            for_each(segment, fields.path_terms, &term.term, false, |document, _| {
                scores[document as usize].path += weight;
            })?;
            let weight = weights.definition[position] / term.weight + if term.exact { 3.0 } else { 0.0 };
            for_each(segment, fields.definitions, &term.term, false, |document, _| {
                scores[document as usize].definitions += weight;
            })?;
        }
        Ok(scores)
    }

    /// Defined names, in the form of the index, that resemble a name; best first.
    pub(in crate::retrieval) fn similar_names(&self, name: &str, most: usize) -> Result<Vec<String>, IndexError> {
        let name = name.to_lowercase();
        let mut similar = BTreeSet::new();
        for segment in self.searcher.segment_readers() {
            let index = segment.inverted_index(self.index.fields.definitions)?;
            let mut terms = index.terms().stream()?;
            while terms.advance() {
                let Ok(term) = std::str::from_utf8(terms.key()) else { continue };
                if term.len().abs_diff(name.len()) > 4 || term.len() < 3 {
                    continue;
                }
                let likeness = strsim::normalized_damerau_levenshtein(term, &name);
                if likeness >= 0.7 {
                    similar.insert((((1.0 - likeness) * 1000.0) as u32, term.to_owned()));
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
            for_each(segment, self.index.fields.definitions, term, false, |document, _| {
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

/// Calls `found` with each document that has a term, and how often it has it.
fn for_each(
    segment: &SegmentReader,
    field: Field,
    term: &str,
    with_counts: bool,
    mut found: impl FnMut(u32, u32),
) -> Result<(), IndexError> {
    let option = if with_counts { IndexRecordOption::WithFreqs } else { IndexRecordOption::Basic };
    let index = segment.inverted_index(field)?;
    let Some(mut postings) = index.read_postings(&Term::from_field_text(field, term), option)? else { return Ok(()) };
    let mut document = postings.doc();
    while document != TERMINATED {
        found(document, if with_counts { postings.term_freq() } else { 1 });
        document = postings.advance();
    }
    Ok(())
}

/// Sorts by score and drops all but the best.
fn keep_best(files: &mut Vec<(f32, &Arc<Path>)>, most: usize) {
    files.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    files.truncate(most);
}
