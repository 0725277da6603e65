//! What is not in the window any more and can be searched: facts that made room, and answers as they were
//! given.
//!
//! Bounded: past the cap the oldest go, and are counted. Not allowed here: the disk, which the store
//! keeps it on, and any model.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{ledger::Fact, log::Source};

/// The longest answer that is kept, in bytes; of a longer one its beginning.
const ANSWER_BYTES_MAX: usize = 4_000;
/// The longest question.
const QUESTION_BYTES_MAX: usize = 1_000;

/// An answer that left the conversation, word for word.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PastAnswer {
    /// As it was asked.
    pub question: Arc<str>,
    /// As it was answered; the beginning, where it is long.
    pub text: Arc<str>,
    /// What it rests on.
    pub sources: Vec<Source>,
    /// When it was given, in seconds since 1970; 0 where that is not known.
    pub at: u64,
}

impl PastAnswer {
    /// An answer within the bounds of the archive.
    #[must_use]
    pub fn new(question: &str, text: &str, sources: Vec<Source>, at: u64) -> Self {
        Self {
            question: beginning(question.trim(), QUESTION_BYTES_MAX).into(),
            text: beginning(text.trim(), ANSWER_BYTES_MAX).into(),
            sources,
            at,
        }
    }
}

/// The beginning of a text, with a mark where it is not all of it.
fn beginning(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{} \u{2026}", text[..end].trim_end())
}

/// Something in the archive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A fact.
    Fact(Fact),
    /// An answer.
    Answer(PastAnswer),
}

impl Entry {
    /// The files it rests on.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        match self {
            Self::Fact(fact) => &fact.sources,
            Self::Answer(answer) => &answer.sources,
        }
    }

    /// Whether some text occurs in it, in any letter case.
    #[must_use]
    pub fn mentions(&self, lower_case: &str) -> bool {
        let has = |text: &str| text.to_lowercase().contains(lower_case);
        match self {
            Self::Fact(fact) => has(&fact.text),
            Self::Answer(answer) => has(&answer.question) || has(&answer.text),
        }
    }

    /// Bytes that it takes, about.
    fn bytes(&self) -> usize {
        const AROUND: usize = 120;
        let sources: usize = self.sources().iter().map(|source| source.path.len() + source.sha256.len() + 30).sum();
        let text = match self {
            Self::Fact(fact) => fact.text.len(),
            Self::Answer(answer) => answer.question.len() + answer.text.len(),
        };
        AROUND + text + sources
    }

    fn text(&self) -> String {
        let mut text = match self {
            Self::Fact(fact) => fact.text.to_string(),
            Self::Answer(answer) => format!("{}\n{}", answer.question, answer.text),
        };
        for source in self.sources() {
            text.push('\n');
            text.push_str(&source.path);
        }
        text
    }
}

/// What left the window, oldest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Archive {
    entries: VecDeque<Entry>,
    bytes: usize,
    bytes_max: usize,
    dropped: u64,
}

impl Archive {
    /// An empty one that takes at most `bytes_max` bytes.
    #[must_use]
    pub fn with_room(bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, bytes_max, dropped: 0 }
    }

    /// Adds something; the oldest make room for it.
    pub fn add(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.entries.pop_front()
        {
            self.bytes -= oldest.bytes();
            self.dropped += 1;
        }
    }

    /// All there is, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter()
    }

    /// How many were dropped for want of room since it was opened.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes out what is chosen, and says how many there were.
    pub fn take(&mut self, mut chosen: impl FnMut(&Entry) -> bool) -> usize {
        let before = self.entries.len();
        self.entries.retain(|entry| !chosen(entry));
        self.bytes = self.entries.iter().map(Entry::bytes).sum();
        before - self.entries.len()
    }
}

/// The best of `entries` for some words, at most `most`, the best first; equal ones in the order given,
/// which is best the newest first.
#[must_use]
pub fn search<'a>(entries: impl Iterator<Item = &'a Entry>, words: &str, most: usize) -> Vec<&'a Entry> {
    let wanted: BTreeSet<String> = terms(words).collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<(&Entry, Vec<&String>, usize)> = Vec::new();
    let mut frequency: HashMap<&String, usize> = HashMap::new();
    let mut count = 0_usize;
    for entry in entries {
        count += 1;
        let text = entry.text();
        let held: BTreeSet<String> = terms(&text).collect();
        let matched: Vec<&String> = wanted.iter().filter(|term| held.contains(*term)).collect();
        if !matched.is_empty() {
            matched.iter().for_each(|term| *frequency.entry(term).or_default() += 1);
            found.push((entry, matched, held.len()));
        }
    }
    let weight = |term: &&String| {
        let often = frequency.get(*term).copied().unwrap_or(1) as f64;
        (1.0 + (count as f64 - often + 0.5) / (often + 0.5)).ln()
    };
    let mut scored: Vec<(f64, &Entry)> = found
        .iter()
        .map(|(entry, matched, length)| {
            let sum: f64 = matched.iter().map(weight).sum();
            // A long answer holds many words by chance.
            (sum / (1.0 + (*length as f64 / 400.0)), *entry)
        })
        .collect();
    scored.sort_by(|left, right| right.0.total_cmp(&left.0));
    scored.into_iter().take(most).map(|(_, entry)| entry).collect()
}

/// Words that say nothing about what is looked for.
const COMMON: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "by", "do", "does", "for", "from", "how", "if", "in", "is", "it", "of",
    "on", "or", "that", "the", "there", "this", "to", "was", "what", "when", "where", "which", "who", "why", "with",
];

/// The words of a text in lower case: whole identifiers and their parts, without endings of number.
fn terms(text: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split(move |c: char| !is_part(c)).filter(|word| !word.is_empty()).flat_map(|word| {
        let mut terms: Vec<String> = parts(word).iter().map(|part| stem(&part.to_lowercase())).collect();
        if terms.len() > 1 {
            terms.push(word.to_lowercase());
        }
        terms.retain(|term| !COMMON.contains(&term.as_str()));
        terms
    })
}

/// `maxRetry_count` has three parts.
fn parts(word: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for piece in word.split('_').filter(|piece| !piece.is_empty()) {
        let mut start = 0;
        let mut was_lower = false;
        for (at, character) in piece.char_indices() {
            if character.is_uppercase() && was_lower {
                parts.push(&piece[start..at]);
                start = at;
            }
            was_lower = character.is_lowercase() || character.is_numeric();
        }
        parts.push(&piece[start..]);
    }
    parts
}

fn stem(word: &str) -> String {
    if let Some(one) = word.strip_suffix("ies").filter(|one| one.len() >= 2) {
        return format!("{one}y");
    }
    match word.strip_suffix('s') {
        Some(one) if one.len() >= 3 && !one.ends_with(['s', 'u', 'i']) => one.to_owned(),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::ledger::Origin;

    fn fact(text: &str, path: &str) -> Entry {
        Entry::Fact(Fact {
            number: 1,
            text: text.into(),
            sources: vec![Source { path: path.into(), sha256: "1".into() }],
            origin: Origin::Observed,
            at: 1,
            pinned: false,
        })
    }

    fn archive(entries: impl IntoIterator<Item = Entry>) -> Archive {
        let mut archive = Archive::with_room(1 << 20);
        entries.into_iter().for_each(|entry| archive.add(entry));
        archive
    }

    #[test]
    fn words_find_facts_by_identifier_by_their_parts_and_by_path() {
        let known = archive([
            fact("`maxRetryCount` is five", "src/http.rs"),
            fact("The cache has a capacity of 40 entries", "src/cache.rs"),
            fact("Every entry is hashed", "src/store.rs"),
            Entry::Answer(PastAnswer::new("Where are tokens counted?", "In `count_tokens` (src/tok.rs:1).", vec![], 5)),
        ]);
        let best = |words: &str| match search(known.entries(), words, 1).first() {
            Some(Entry::Fact(fact)) => fact.text.to_string(),
            Some(Entry::Answer(answer)) => answer.question.to_string(),
            None => "nothing".to_owned(),
        };
        assert_eq!(best("maxRetryCount"), "`maxRetryCount` is five");
        assert_eq!(best("How many retries, max_retry?"), "`maxRetryCount` is five");
        assert_eq!(best("what does cache.rs hold?"), "The cache has a capacity of 40 entries");
        assert_eq!(best("token counting count_tokens"), "Where are tokens counted?");
        assert_eq!(best("what is the"), "nothing");
        assert_eq!(best("zebra"), "nothing");
        assert_eq!(search(known.entries(), "entries", 9).len(), 2);
    }

    #[test]
    fn a_long_answer_is_kept_in_part_and_says_so() {
        let answer = PastAnswer::new("q", &"\u{e4}".repeat(5_000), vec![], 0);
        assert!(answer.text.len() < 4_010 && answer.text.ends_with('\u{2026}'));
    }

    #[test]
    fn what_is_taken_out_is_gone() {
        let mut known = archive([fact("the secret word", "a.rs"), fact("another", "b.rs")]);
        assert_eq!(known.take(|entry| entry.mentions("secret")), 1);
        assert_eq!((known.entries().len(), known.dropped()), (1, 0));
        assert!(search(known.entries(), "secret word", 5).is_empty());
    }

    proptest! {
        #[test]
        fn it_never_outgrows_its_room_and_counts_what_goes(
            texts in prop::collection::vec("[a-z ]{0,60}", 0..40),
            room in 0_usize..4_000,
        ) {
            let mut archive = Archive::with_room(room);
            for text in &texts {
                archive.add(fact(text, "a.rs"));
            }
            prop_assert!(archive.bytes <= room);
            prop_assert_eq!(archive.entries().len() as u64 + archive.dropped(), texts.len() as u64);
            prop_assert_eq!(archive.bytes, archive.entries().map(Entry::bytes).sum::<usize>());
        }

        #[test]
        fn any_words_and_texts_can_be_searched(text in ".{0,80}", words in ".{0,40}") {
            let known = archive([fact(&text, "a/b.rs")]);
            let _ = search(known.entries(), &words, 3);
        }
    }
}
