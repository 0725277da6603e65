//! Facts: how summaries become facts, what of them a conversation begins with, and what is archived.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Instant, SystemTime},
};

use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::{CACHE_SECONDS, Companion, Current, State, policy, sizes};
use crate::{
    agent::{inquiry::prompt_window, provider::ChosenModel, summary::Summary},
    conversation::{Block, Message},
    files::{FileStamp, WorkspaceFiles, nanoseconds},
    memory::{
        archive::Entry,
        compaction::{self, Moment, Step},
        ledger::{Current as Known, Draft, Fact, Merged, block},
        log::{Log, Opening, Source},
        manifest::Look,
        tokens::TokenEstimate,
        told::Standing,
    },
    settings::Settings,
    workspace::{
        freshness::{self, Finding, KnownFile},
        store::Store,
    },
};

/// How much is archived of one workspace, in bytes.
pub(in crate::workspace) const ARCHIVE_BYTES_MAX: usize = 8 << 20;
/// A directory with fewer facts is not consolidated.
const CONSOLIDATED_FACTS_MIN: usize = 6;

/// What became of summaries.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Summaries {
    /// Conversations that were summed up.
    pub(super) done: u64,
    /// Conversations that began anew without that, since the window was full.
    pub(super) shed: u64,
    /// Notes that were no facts.
    pub(super) dropped_notes: u64,
    /// When one was tried last, in seconds since 1970.
    pub(super) tried_at: Option<u64>,
    /// Why the last one failed.
    pub(super) failure: Option<String>,
}

/// Who sums the conversation up: one at a time.
#[derive(Debug, Default)]
pub(super) struct Summarising {
    one: Arc<tokio::sync::Mutex<()>>,
    is_at_work: Arc<AtomicBool>,
}

/// Held by who does.
#[derive(Debug)]
pub(in crate::workspace) struct AtWork {
    is_at_work: Arc<AtomicBool>,
    _guard: OwnedMutexGuard<()>,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        // Before the lock is free for the next one.
        self.is_at_work.store(false, Ordering::Release);
    }
}

/// A conversation that is to be summed up.
pub(in crate::workspace) struct Material {
    pub(in crate::workspace) log: Log,
    pub(in crate::workspace) system: Arc<str>,
    pub(in crate::workspace) name: Arc<str>,
    pub(in crate::workspace) estimate: TokenEstimate,
    /// Whether the provider has it in its cache.
    pub(in crate::workspace) is_warm: bool,
    /// As many bytes the facts may take.
    pub(in crate::workspace) room: usize,
    /// How often something had been forgotten by then.
    forgettings: u64,
}

impl State {
    /// Puts the knowledge block into an opening, behind its documents.
    pub(super) fn add_notes(&self, opening: &mut Opening, block: block::Block) {
        opening.notes = self.ledger.last_number();
        opening.facts = block.noted;
        if block.text.is_empty() {
            return;
        }
        let notes = Block::Text { text: block.text.into() };
        match opening.messages.first_mut() {
            Some(documents) => documents.blocks.push(notes),
            None => {
                let user = Message { role: crate::conversation::Role::User, blocks: vec![notes] };
                opening.messages = vec![user, Message::assistant(crate::agent::prompts::OPENING_NOTED)];
            }
        }
    }

    /// What is known of the files that facts rest on, without looking.
    pub(super) fn known_files(&self) -> Known {
        let mut known = Known::default();
        for source in self.ledger.facts().iter().flat_map(|fact| &fact.sources) {
            if let Some(look) = self.manifest.look(&source.path) {
                known.set(Arc::clone(&source.path), look.standing.sha256().cloned());
            }
        }
        known
    }

    pub(super) fn stale_facts(&self) -> usize {
        let known = self.known_files();
        self.ledger.facts().iter().filter(|fact| fact.is_stale(&known)).count()
    }
}

impl Companion {
    /// Looks at the files that facts rest on. Blocks on the file system.
    pub(in crate::workspace) fn look_at_facts(
        &self,
        files: &WorkspaceFiles,
        deadline: Instant,
        cancel: &CancellationToken,
    ) -> Known {
        let sources: BTreeSet<Source> = {
            let state = self.state();
            state.ledger.facts().iter().flat_map(|fact| fact.sources.iter().cloned()).collect()
        };
        self.look_at(files, &sources.into_iter().collect::<Vec<_>>(), deadline, cancel)
    }

    /// What some files hold now. Blocks on the file system.
    pub(in crate::workspace) fn look_at(
        &self,
        files: &WorkspaceFiles,
        sources: &[Source],
        deadline: Instant,
        cancel: &CancellationToken,
    ) -> Known {
        let looks = self.looks(sources.iter().map(|source| &*source.path));
        let of_text = |(source, look): (&Source, Option<Look<FileStamp>>)| {
            look.filter(|look| look.standing.sha256() == Some(&source.sha256))
        };
        let looks: Vec<Option<Look<FileStamp>>> = sources.iter().zip(looks).map(of_text).collect();
        let files_known: Vec<KnownFile<'_>> = sources
            .iter()
            .zip(&looks)
            .map(|(source, look)| KnownFile {
                path: &source.path,
                sha256: &source.sha256,
                stamp: look.as_ref().and_then(|look| look.stamp),
                looked_at_ns: look.as_ref().map_or(0, |look| look.at_ns),
                whole: look.as_ref().is_none_or(|look| look.whole),
            })
            .collect();
        let now = SystemTime::now();
        let findings = freshness::check(files, &files_known, nanoseconds(now), deadline, cancel);
        let mut known = Known::default();
        for source in sources {
            known.set(Arc::clone(&source.path), Some(Arc::clone(&source.sha256)));
        }
        for (index, finding) in findings {
            let Source { path, sha256 } = &sources[index];
            let whole = looks[index].as_ref().is_none_or(|look| look.whole);
            let look = |standing, stamp, whole| Look { standing, whole, stamp, at_ns: nanoseconds(now) };
            match finding {
                Finding::Same { stamp } => {
                    self.renewed(path, look(Standing::Text(Arc::clone(sha256)), Some(stamp), whole));
                    known.set(Arc::clone(path), Some(Arc::clone(sha256)));
                }
                Finding::Changed { text } => {
                    known.set(Arc::clone(path), Some(text.sha256.as_str().into()));
                    self.looked(path, &text, now);
                }
                Finding::Gone { .. } => {
                    known.set(Arc::clone(path), None);
                    self.renewed(path, look(Standing::Gone, None, true));
                }
                Finding::Unreadable { .. } => known.set(Arc::clone(path), None),
            }
        }
        known
    }

    /// Whether the conversation with `chosen` is to be summed up now.
    pub(in crate::workspace) fn step(&self, chosen: &ChosenModel, settings: &Settings, now: u64) -> Step {
        let estimate = self.estimate(chosen);
        let state = self.state();
        let is_with = |current: &&Current| current.with == chosen.settings.fingerprint(&current.name);
        let Some(current) = state.current.as_ref().filter(is_with) else { return Step::Continue };
        if current.ended.is_some() || current.summarised.is_some() {
            return Step::Continue;
        }
        let sizes = sizes(current, &estimate, prompt_window(chosen.window, settings.max_answer_tokens));
        let moment = Moment {
            since_summary_s: state.summaries.tried_at.map(|at| now.saturating_sub(at)),
            is_cold: current.answered_at.is_some_and(|at| now.saturating_sub(at) >= CACHE_SECONDS),
        };
        compaction::step(&sizes, &policy(settings), &moment)
    }

    /// Whether the conversation holds enough to be summed up, and none was tried just now.
    pub(in crate::workspace) fn is_worth_a_summary(&self, chosen: &ChosenModel, settings: &Settings, now: u64) -> bool {
        let estimate = self.estimate(chosen);
        let state = self.state();
        let Some(current) = &state.current else { return false };
        let said = estimate.tokens(current.log.bytes() - current.log.opening_bytes());
        let cooldown = u64::from(settings.distill_min_interval_s);
        said >= compaction::WORTH_TOKENS && state.summaries.tried_at.is_none_or(|at| now.saturating_sub(at) >= cooldown)
    }

    /// Lets one sum the conversation up; `None` while another one does.
    pub(in crate::workspace) fn begin_summary(&self) -> Option<AtWork> {
        let guard = Arc::clone(&self.summarising.one).try_lock_owned().ok()?;
        self.summarising.is_at_work.store(true, Ordering::Release);
        Some(AtWork { is_at_work: Arc::clone(&self.summarising.is_at_work), _guard: guard })
    }

    /// Whether one does.
    pub(in crate::workspace) fn is_summarising(&self) -> bool {
        self.summarising.is_at_work.load(Ordering::Acquire)
    }

    /// Waits until none does.
    pub(in crate::workspace) async fn summary_ended(&self) {
        drop(self.summarising.one.lock().await);
    }

    /// The conversation as it is, to be summed up.
    pub(in crate::workspace) fn material(
        &self,
        chosen: &ChosenModel,
        settings: &Settings,
        now: u64,
    ) -> Option<Material> {
        let estimate = self.estimate(chosen);
        let state = self.state();
        let current = state.current.as_ref()?;
        if current.with != chosen.settings.fingerprint(&current.name) || current.log.exchanges().is_empty() {
            return None;
        }
        let window = prompt_window(chosen.window, settings.max_answer_tokens);
        let carried = estimate.bytes(compaction::floor_tokens(window, settings.compaction_floor));
        Some(Material {
            log: current.log.clone(),
            system: Arc::clone(&current.system),
            name: Arc::clone(&current.name),
            is_warm: current.ended.is_none()
                && current.answered_at.is_some_and(|at| now.saturating_sub(at) < CACHE_SECONDS),
            room: compaction::carried(carried).knowledge,
            estimate,
            forgettings: state.forgettings,
        })
    }

    /// Takes what was noted. Nothing of it where something was forgotten meanwhile: it might be in there.
    pub(in crate::workspace) fn take_summary(&self, material: &Material, summary: &Summary, now: u64) {
        let mut state = self.state();
        if state.is_forgotten {
            return;
        }
        state.summaries.tried_at = Some(now);
        state.summaries.dropped_notes += summary.dropped.total() as u64;
        state.is_unsaved = true;
        if state.forgettings != material.forgettings {
            state.summaries.failure = Some("something was forgotten meanwhile".to_owned());
            return;
        }
        let Merged { added, renewed, known } = state.ledger.merge(summary.drafts.iter().cloned());
        let current = state.known_files();
        let retired = state.ledger.retire(&summary.summarised, &current);
        tracing::info!(
            added,
            renewed,
            known,
            retired = retired.len(),
            dropped = summary.dropped.total(),
            failures = ?summary.failures,
            "a conversation was summed up"
        );
        state.archive_facts(retired);
        state.summaries.failure = summary.failures.first().cloned();
    }

    /// The largest directory's facts, where all of them take more than `room` bytes.
    pub(in crate::workspace) fn to_consolidate(&self, room: usize) -> Option<Vec<Fact>> {
        let state = self.state();
        if state.ledger.bytes() <= room {
            return None;
        }
        let current = state.known_files();
        let largest = state.ledger.areas().into_iter().find(|area| area.facts >= CONSOLIDATED_FACTS_MIN)?;
        let facts: Vec<Fact> = state.ledger.of_area(&largest.directory, &current).into_iter().cloned().collect();
        (facts.len() >= CONSOLIDATED_FACTS_MIN).then_some(facts)
    }

    /// Puts fewer facts in the place of some, which are archived. Says whether that was done.
    pub(in crate::workspace) fn consolidated(&self, facts: &[Fact], drafts: Vec<Draft>) -> bool {
        let mut state = self.state();
        let numbers: BTreeSet<u64> = facts.iter().map(|fact| fact.number).collect();
        // One that was renewed or forgotten meanwhile is not the one that was asked about.
        let is_as_it_was = facts.iter().all(|fact| state.ledger.facts().contains(fact));
        let Some(gone) = is_as_it_was.then(|| state.ledger.consolidate(&numbers, drafts)).flatten() else {
            return false;
        };
        state.archive_facts(gone);
        state.is_unsaved = true;
        true
    }

    /// Brings the facts within `room` bytes and writes all of it, and only then lets the conversation be left
    /// where `is_done`. Blocks on the file system.
    pub(in crate::workspace) fn finish_summary(&self, material: &Material, is_done: bool) {
        {
            let mut state = self.state();
            if state.is_forgotten {
                return;
            }
            let current = state.known_files();
            let gone = state.ledger.shrink(material.room, &current);
            state.archive_facts(gone);
            state.is_unsaved = true;
            let is_done = is_done && state.forgettings == material.forgettings;
            state.summaries.done += u64::from(is_done);
            if let Some(conversation) = state.current.as_mut().filter(|current| current.name == material.name) {
                conversation.summarised = is_done.then_some(material.log.exchanges().len());
            }
        }
        self.save_if_changed();
    }

    /// Notes that a summary could not even be begun.
    pub(in crate::workspace) fn summary_failed(&self, reason: String, now: u64) {
        tracing::warn!(reason, "a conversation could not be summed up");
        let mut state = self.state();
        state.summaries.tried_at = Some(now);
        state.summaries.failure = Some(reason);
        state.is_unsaved = true;
    }

    /// Adds to the archive, on the disk too, with whatever was added before and is not there. Blocks on the
    /// file system.
    pub(super) fn archive(&self, store: &mut Store, new: Vec<Entry>) {
        let (is_behind, archive) = {
            let mut state = self.state();
            if state.is_forgotten || (new.is_empty() && !state.archive_is_behind) {
                return;
            }
            new.iter().for_each(|entry| state.archive.add(entry.clone()));
            (std::mem::take(&mut state.archive_is_behind), state.archive.clone())
        };
        let written = if is_behind {
            store.rewrite_archive(archive.entries())
        } else {
            store.archive(&new, archive.entries(), ARCHIVE_BYTES_MAX as u64)
        };
        if let Err(error) = written {
            tracing::error!(%error, "the archive is not kept");
            let mut state = self.state();
            state.archive_is_behind = true;
            state.unwritten = Some(error.to_string());
        }
    }

    /// Everything that can be recalled, the newest first.
    pub(in crate::workspace) fn remembered(&self) -> Vec<Entry> {
        let state = self.state();
        let facts = state.ledger.facts().iter().rev().map(|fact| Entry::Fact(fact.clone()));
        facts.chain(state.archive.entries().rev().cloned()).collect()
    }

    /// What people noted after the note with this number, and the number of the last one.
    pub(in crate::workspace) fn notes_since(&self, since: u64) -> (Vec<Fact>, u64) {
        let state = self.state();
        (state.ledger.said_by_people_since(since).cloned().collect(), state.ledger.last_number())
    }
}

impl State {
    pub(super) fn archive_facts(&mut self, facts: Vec<Fact>) {
        if facts.is_empty() {
            return;
        }
        facts.into_iter().for_each(|fact| self.archive.add(Entry::Fact(fact)));
        self.archive_is_behind = true;
    }
}
