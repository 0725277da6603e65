//! What people do with a memory by hand: note something, forget something, pin facts, look at what is
//! known, take it along. Blocks on the file system.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Instant, SystemTime},
};

use tokio_util::sync::CancellationToken;

use super::{Companion, Current, State, past_answer};
use crate::{
    agent::prefix_gate::PrefixGate,
    files::{WorkspaceFiles, holds_secret},
    memory::{
        archive::{Entry, PastAnswer},
        ledger::{Draft, FACT_BYTES_MAX, Fact, Origin, fact_line, pattern::Pattern},
        log::{Fork, Opening, Provenance},
    },
};

/// As many things that were forgotten are still looked for in answers that were under way.
const RECENT_MAX: usize = 100;

/// What came of a note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remembered {
    /// The fact's number.
    pub number: u64,
    /// As it is kept.
    pub text: String,
    /// Whether it was known before.
    pub was_known: bool,
}

/// What is, or would be, forgotten.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartlyForgotten {
    /// What was meant, in a few words.
    pub meaning: String,
    /// Facts, as they are noted.
    pub facts: Vec<String>,
    /// Facts and answers in the archive.
    pub archived: usize,
    /// Answers in the conversation, by their questions.
    pub answers: Vec<String>,
    /// Files that are known, or were loaded.
    pub files: Vec<String>,
    /// Whether it is done.
    pub is_done: bool,
}

impl PartlyForgotten {
    /// Whether there is nothing to forget.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.facts.is_empty() && self.archived == 0 && self.answers.is_empty() && self.files.is_empty()
    }
}

/// A fact, and what of it is out of date.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownFact {
    /// The fact.
    pub fact: Fact,
    /// The files that have changed since.
    pub stale: Vec<String>,
}

impl Companion {
    /// Notes something that a person said.
    pub(in crate::workspace) fn remember_note(&self, text: &str, at: u64) -> Result<Remembered, String> {
        let text = fact_line(text);
        if text.is_empty() {
            return Err("there is nothing to remember; give a text".to_owned());
        }
        if text.len() > FACT_BYTES_MAX {
            return Err(format!(
                "a note has at most {FACT_BYTES_MAX} bytes, this one has {}; shorten it or make several of it",
                text.len()
            ));
        }
        if holds_secret(&text) {
            return Err("this looks like a secret, and secrets are never kept; note where it lies instead".to_owned());
        }
        let remembered = {
            let mut state = self.state();
            let draft = Draft { text: text.as_str().into(), sources: vec![], origin: Origin::User, at, pinned: false };
            let merged = state.ledger.merge([draft]);
            state.is_unsaved = true;
            let number = state.ledger.number_of(&text).unwrap_or_else(|| state.ledger.last_number());
            Remembered { number, text, was_known: merged.added == 0 }
        };
        self.save_if_changed();
        Ok(remembered)
    }

    /// Pins facts, or lets them go again; says how many there are.
    pub(in crate::workspace) fn pin(&self, pattern: &str, pinned: bool) -> Result<(String, usize), String> {
        let outcome = {
            let mut state = self.state();
            let pattern = Pattern::read(pattern, &state.all_files())?;
            let count = state.ledger.pin(pinned, |fact| pattern.is_fact(fact));
            state.is_unsaved |= count > 0;
            (pattern.meaning(), count)
        };
        self.save_if_changed();
        Ok(outcome)
    }

    /// Forgets what a pattern means, or says what that would be. What was forgotten stays so until it is seen
    /// anew.
    pub(in crate::workspace) fn forget_part(&self, given: &str, confirmed: bool) -> Result<PartlyForgotten, String> {
        let mut store = self.store();
        let outcome = {
            let mut state = self.state();
            let pattern = Pattern::read(given, &state.all_files())?;
            let mut outcome = state.meant(&pattern);
            if !confirmed || outcome.is_nothing() {
                return Ok(outcome);
            }
            outcome.is_done = true;
            let name = state.current.as_ref().map(|current| self.name(current.log.epoch()));
            state.forget(pattern, name);
            outcome
        };
        self.texts.clear();
        let archive = self.state().archive.clone();
        let written = store.rewrite_archive(archive.entries()).and_then(|()| self.write_all(&mut store));
        drop(store);
        self.save_if_changed();
        // Only now, since saving keeps the snapshot before.
        let removed = self.store().drop_all_generations();
        let written = written.and(removed);
        if let Err(error) = &written {
            self.state().archive_is_behind = true;
            tracing::error!(%error, "not all could be forgotten");
        }
        let unwritten = written.as_ref().err().map(ToString::to_string);
        self.note_written(written);
        match unwritten {
            Some(reason) => Err(format!("not all of it is gone from the disk: {reason}; try again")),
            None => Ok(outcome),
        }
    }

    /// Whether what a fork said was forgotten while it was under way.
    pub(super) fn was_forgotten(state: &State, fork: &Fork, provenance: &Provenance) -> bool {
        state.recently_forgotten.iter().any(|pattern| pattern.is_said(fork.own(), fork.said(), &provenance.sources))
    }

    /// What is known, with what of it is out of date.
    pub(in crate::workspace) fn facts(&self, files: &WorkspaceFiles, deadline: Instant) -> Vec<KnownFact> {
        let known = self.look_at_facts(files, deadline, &CancellationToken::new());
        let state = self.state();
        let fact = |fact: &Fact| KnownFact {
            stale: fact.stale_sources(&known).map(|source| source.path.to_string()).collect(),
            fact: fact.clone(),
        };
        state.ledger.facts().iter().map(fact).collect()
    }

    /// Answers that were given, oldest first.
    pub(in crate::workspace) fn history(&self) -> Vec<PastAnswer> {
        let state = self.state();
        let archived = state.archive.entries().filter_map(|entry| match entry {
            Entry::Answer(answer) => Some(answer.clone()),
            Entry::Fact(_) => None,
        });
        let current = state.current.iter().flat_map(|current| current.log.exchanges());
        let answers = current.filter_map(|exchange| match past_answer(exchange) {
            Entry::Answer(answer) => Some(answer),
            Entry::Fact(_) => None,
        });
        archived.chain(answers).collect()
    }
}

impl State {
    /// Every file of which something is known.
    fn all_files(&self) -> BTreeSet<Arc<str>> {
        let mut files: BTreeSet<Arc<str>> = self.manifest.paths().cloned().collect();
        let facts = self.ledger.facts().iter().flat_map(|fact| &fact.sources);
        let archived = self.archive.entries().flat_map(|entry| entry.sources());
        files.extend(facts.chain(archived).map(|source| Arc::clone(&source.path)));
        if let Some(current) = &self.current {
            files.extend(current.log.fork().told().iter().map(|(path, _)| Arc::clone(path)));
        }
        files
    }

    /// What a pattern means.
    fn meant(&self, pattern: &Pattern) -> PartlyForgotten {
        let facts = self.ledger.facts().iter().filter(|fact| pattern.is_fact(fact));
        let exchanges = self.current.iter().flat_map(|current| current.log.exchanges());
        let answers = exchanges.filter(|exchange| pattern.is_exchange(exchange));
        PartlyForgotten {
            meaning: pattern.meaning(),
            facts: facts.map(crate::memory::ledger::block::line).collect(),
            archived: self.archive.entries().filter(|entry| pattern.is_entry(entry)).count(),
            answers: answers.map(|exchange| exchange.question.to_string()).collect(),
            files: pattern.files().into_iter().flatten().map(ToString::to_string).collect(),
            is_done: false,
        }
    }

    /// Forgets it; a conversation that held it goes on under another name, with the rest.
    fn forget(&mut self, pattern: Pattern, name: Option<Arc<str>>) {
        self.ledger.take(|fact| pattern.is_fact(fact));
        self.archive.take(|entry| pattern.is_entry(entry));
        for path in pattern.files().into_iter().flatten() {
            self.manifest.forget(path);
            self.forgotten_files.insert(Arc::clone(path));
        }
        if let (Some(current), Some(name)) = (&mut self.current, name) {
            // What it began with is put together anew for the next question: it may hold it, too.
            let log = current.log.without(Opening::default(), |exchange| pattern.is_exchange(exchange));
            *current = Current {
                with: String::new(),
                system: "".into(),
                gate: Arc::new(PrefixGate::default()),
                ended: None,
                summarised: None,
                answered_at: None,
                log,
                name,
            };
        }
        self.forgettings += 1;
        self.recently_forgotten.push(pattern);
        if self.recently_forgotten.len() > RECENT_MAX {
            self.recently_forgotten.remove(0);
        }
        self.is_unsaved = true;
        tracing::info!(at = ?SystemTime::now(), "something was forgotten");
    }
}
