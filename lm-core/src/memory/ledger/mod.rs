//! What is known of a workspace, one fact a line, each with the files that it rests on and their hashes.
//!
//! Facts are added and never rewritten: the same fact found again only renews what it rests on. Where
//! they outgrow their share of the window, the largest area (a directory) is consolidated, and what goes
//! is handed back, to be archived. [`notes`] reads what a model noted, [`instructions`] tells facts from
//! instructions, [`block`] writes what a conversation begins with. Not allowed here: looking at a file,
//! asking a model, knowing what time it is.

pub mod block;
pub mod instructions;
pub mod notes;
pub mod pattern;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::log::Source;

/// The longest text of a fact, in bytes.
pub const FACT_BYTES_MAX: usize = 1_000;
/// The most files that a fact rests on.
pub const SOURCES_MAX: usize = 16;
/// The most facts, whatever their size.
pub const FACTS_MAX: usize = 20_000;

/// Where a fact comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Text of files that was looked at.
    Observed,
    /// An answer that was given.
    Answered,
    /// A person said so.
    User,
    /// A document that the conversation began with.
    Preload,
}

impl Origin {
    /// In a word, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Answered => "answered",
            Self::User => "user",
            Self::Preload => "preload",
        }
    }
}

/// A fact before it has a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draft {
    /// What is so: one line.
    pub text: Arc<str>,
    /// The files it rests on, each once, by path; a person's may have none.
    pub sources: Vec<Source>,
    /// Where it comes from.
    pub origin: Origin,
    /// When it was found, in seconds since 1970.
    pub at: u64,
    /// Whether it stays when room is needed.
    pub pinned: bool,
}

/// Something that is known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fact {
    /// Names it within its workspace; later ones have larger numbers.
    pub number: u64,
    /// What is so: one line.
    pub text: Arc<str>,
    /// The files it rests on, by path; a person's may have none.
    pub sources: Vec<Source>,
    /// Where it comes from.
    pub origin: Origin,
    /// When it was found, in seconds since 1970.
    pub at: u64,
    /// Whether it stays when room is needed.
    #[serde(default)]
    pub pinned: bool,
}

impl Fact {
    /// The directory that it is about: that of its first file, empty for the root and for no file.
    #[must_use]
    pub fn area(&self) -> &str {
        self.sources.first().and_then(|source| source.path.rsplit_once('/')).map_or("", |(directory, _)| directory)
    }

    /// Bytes of its line in the knowledge block, at most.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const NUMBER_AND_MARKS: usize = 28;
        let sources: usize = self.sources.iter().map(|source| source.path.len() + 2).sum();
        NUMBER_AND_MARKS + self.text.len() + sources
    }

    /// Whether it stays as long as anything else can go.
    fn is_held(&self) -> bool {
        self.pinned || self.origin == Origin::User
    }

    /// The files that no longer are what it rests on, as far as `current` tells.
    pub fn stale_sources<'a>(&'a self, current: &'a Current) -> impl Iterator<Item = &'a Source> {
        self.sources.iter().filter(|source| !current.is(source))
    }

    /// Whether something that it rests on has changed.
    #[must_use]
    pub fn is_stale(&self, current: &Current) -> bool {
        self.stale_sources(current).next().is_some()
    }
}

/// What files are known to hold at a moment: a file that is not in it counts as unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Current(BTreeMap<Arc<str>, Option<Arc<str>>>);

impl Current {
    /// Takes what a file holds; `None` where it is gone or cannot be told.
    pub fn set(&mut self, path: Arc<str>, sha256: Option<Arc<str>>) {
        self.0.insert(path, sha256);
    }

    /// Whether a file is what it was, as far as is known.
    #[must_use]
    pub fn is(&self, source: &Source) -> bool {
        self.0.get(&source.path).is_none_or(|now| now.as_ref() == Some(&source.sha256))
    }
}

/// What came of merging.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Merged {
    /// Facts that were not known.
    pub added: usize,
    /// Facts that were known and now rest on newer text.
    pub renewed: usize,
    /// Facts that were known as they are.
    pub known: usize,
}

/// Facts of one directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Area {
    /// Relative to the workspace; empty for its root.
    pub directory: String,
    /// Bytes of its lines.
    pub bytes: usize,
    /// How many facts it has.
    pub facts: usize,
}

/// What is known, in the order in which it was found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ledger {
    facts: Vec<Fact>,
    /// The number that was given last.
    last: u64,
}

/// By which a fact is the same as another: its words.
fn key(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.trim_end_matches('.').to_lowercase()
}

/// A text on one line, as a fact is kept.
#[must_use]
pub fn fact_line(text: &str) -> String {
    let visible: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    visible.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Ledger {
    /// All facts, oldest first.
    #[must_use]
    pub fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// The number that was given last; later facts have larger ones.
    #[must_use]
    pub fn last_number(&self) -> u64 {
        self.last
    }

    /// The number of the fact with these words.
    #[must_use]
    pub fn number_of(&self, text: &str) -> Option<u64> {
        let wanted = key(text);
        self.facts.iter().find(|fact| key(&fact.text) == wanted).map(|fact| fact.number)
    }

    /// Bytes of all lines.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.facts.iter().map(Fact::bytes).sum()
    }

    /// Adds what is not known. A fact that is known by its words keeps its number and place, and rests on
    /// the newer text from now on; nothing else of it, and no other fact, is touched.
    pub fn merge(&mut self, drafts: impl IntoIterator<Item = Draft>) -> Merged {
        let mut known: HashMap<String, usize> =
            self.facts.iter().enumerate().map(|(index, fact)| (key(&fact.text), index)).collect();
        let mut merged = Merged::default();
        for draft in drafts {
            match known.get(&key(&draft.text)) {
                Some(index) => {
                    let fact = &mut self.facts[*index];
                    fact.pinned |= draft.pinned;
                    if draft.at >= fact.at && draft.sources != fact.sources && !draft.sources.is_empty() {
                        (fact.sources, fact.at) = (draft.sources, draft.at);
                        merged.renewed += 1;
                    } else {
                        merged.known += 1;
                    }
                }
                None => {
                    known.insert(key(&draft.text), self.facts.len());
                    self.last += 1;
                    let Draft { text, sources, origin, at, pinned } = draft;
                    self.facts.push(Fact { number: self.last, text, sources, origin, at, pinned });
                    merged.added += 1;
                }
            }
        }
        merged
    }

    /// Takes out the stale facts about files of which newer text was just summarised: what still holds of
    /// them was noted again.
    pub fn retire(&mut self, summarised: &BTreeSet<Arc<str>>, current: &Current) -> Vec<Fact> {
        self.take(|fact| !fact.is_held() && fact.stale_sources(current).any(|source| summarised.contains(&source.path)))
    }

    /// The directories with what their facts take, the largest first; what a person said and what is
    /// pinned is in none.
    #[must_use]
    pub fn areas(&self) -> Vec<Area> {
        let mut areas: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for fact in self.facts.iter().filter(|fact| !fact.is_held()) {
            let (bytes, facts) = areas.entry(fact.area()).or_default();
            *bytes += fact.bytes();
            *facts += 1;
        }
        let area =
            |(directory, (bytes, facts)): (&str, (usize, usize))| Area { directory: directory.into(), bytes, facts };
        let mut areas: Vec<Area> = areas.into_iter().map(area).collect();
        // Stable, so that equal ones stay in the order of their names.
        areas.sort_by_key(|area| std::cmp::Reverse(area.bytes));
        areas
    }

    /// The facts of a directory that may be consolidated: neither stale nor held.
    #[must_use]
    pub fn of_area(&self, directory: &str, current: &Current) -> Vec<&Fact> {
        self.facts
            .iter()
            .filter(|fact| !fact.is_held() && fact.area() == directory && !fact.is_stale(current))
            .collect()
    }

    /// Puts fewer facts in the place of some, which are handed back. Refused, with nothing changed, where
    /// that would not save anything or where the new ones rest on something that the old ones do not.
    #[must_use]
    pub fn consolidate(&mut self, numbers: &BTreeSet<u64>, drafts: Vec<Draft>) -> Option<Vec<Fact>> {
        let old = self.facts.iter().filter(|fact| numbers.contains(&fact.number));
        let (mut bytes_before, mut sources) = (0, BTreeSet::new());
        for fact in old {
            bytes_before += fact.bytes();
            sources.extend(fact.sources.iter().cloned());
        }
        let as_fact = |draft: &Draft| Fact {
            number: 0,
            text: Arc::clone(&draft.text),
            sources: draft.sources.clone(),
            origin: draft.origin,
            at: draft.at,
            pinned: draft.pinned,
        };
        let bytes_after: usize = drafts.iter().map(|draft| as_fact(draft).bytes()).sum();
        let rests_on_others = drafts.iter().flat_map(|draft| &draft.sources).any(|source| !sources.contains(source));
        if drafts.is_empty() || bytes_after >= bytes_before || rests_on_others {
            return None;
        }
        let gone = self.take(|fact| numbers.contains(&fact.number));
        self.merge(drafts);
        Some(gone)
    }

    /// Takes facts out until the rest is within `bytes` and [`FACTS_MAX`]: stale ones first, then the oldest
    /// of whichever directory is largest, and what is pinned or a person said only where nothing else is left.
    pub fn shrink(&mut self, bytes: usize, current: &Current) -> Vec<Fact> {
        let mut total = self.bytes();
        let mut count = self.facts.len();
        let mut gone = BTreeSet::new();
        let is_over = |total: usize, count: usize| total > bytes || count > FACTS_MAX;
        for fact in self.facts.iter().filter(|fact| !fact.is_held() && fact.is_stale(current)) {
            if !is_over(total, count) {
                break;
            }
            gone.insert(fact.number);
            (total, count) = (total - fact.bytes(), count - 1);
        }
        let mut areas: BTreeMap<&str, (usize, std::collections::VecDeque<&Fact>)> = BTreeMap::new();
        for fact in self.facts.iter().filter(|fact| !fact.is_held() && !gone.contains(&fact.number)) {
            let (size, facts) = areas.entry(fact.area()).or_default();
            *size += fact.bytes();
            facts.push_back(fact);
        }
        while is_over(total, count)
            && let Some((size, facts)) = areas.values_mut().max_by_key(|(size, _)| *size)
            && let Some(fact) = facts.pop_front()
        {
            gone.insert(fact.number);
            *size -= fact.bytes();
            (total, count) = (total - fact.bytes(), count - 1);
        }
        for fact in self.facts.iter().filter(|fact| fact.is_held()) {
            if !is_over(total, count) {
                break;
            }
            gone.insert(fact.number);
            (total, count) = (total - fact.bytes(), count - 1);
        }
        self.take(|fact| gone.contains(&fact.number))
    }

    /// Takes out what is chosen.
    pub fn take(&mut self, mut chosen: impl FnMut(&Fact) -> bool) -> Vec<Fact> {
        let (gone, kept) = std::mem::take(&mut self.facts).into_iter().partition(|fact| chosen(fact));
        self.facts = kept;
        gone
    }

    /// Pins what is chosen, or lets it go again; says how many there were.
    pub fn pin(&mut self, pinned: bool, mut chosen: impl FnMut(&Fact) -> bool) -> usize {
        let chosen = self.facts.iter_mut().filter(|fact| chosen(fact));
        chosen.map(|fact| fact.pinned = pinned).count()
    }

    /// What a person said, or pinned, after the fact numbered `since`.
    pub fn said_by_people_since(&self, since: u64) -> impl Iterator<Item = &Fact> {
        self.facts.iter().filter(move |fact| fact.number > since && fact.origin == Origin::User)
    }
}
