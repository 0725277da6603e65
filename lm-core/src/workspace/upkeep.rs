//! Summing up a workspace's conversation: when, by whom, and what becomes of it.
//!
//! It is done in the background after an answer, when the window is nearly full and the provider still has
//! the conversation in its cache, so that nobody waits and it costs a tenth. A question waits for it only
//! where there is no room left, or where the cache has expired and all of it would be paid for again; and
//! then within bounds. One at a time per workspace.

use std::{
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use super::{Clock, Spending, companion::Material, model_answer::TOOL_SPECS, registry::Workspace};
use crate::{
    agent::{
        inquiry::Tally,
        provider::ChosenModel,
        summary::{Summariser, Summary},
    },
    llm::{self, Transport, Usage},
    memory::compaction::Step,
    settings::Settings,
};

/// How long summing up may take in all.
const TIME_MAX: Duration = Duration::from_secs(180);
/// How long a question waits for it at most, and which part of its time.
const PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE_SHARE: u32 = 3;
/// How many directories are consolidated at once.
const CONSOLIDATIONS_MAX: usize = 2;

/// What it takes to sum a conversation up.
#[derive(Clone)]
pub(super) struct Upkeep {
    pub(super) workspace: Arc<Workspace>,
    pub(super) chosen: ChosenModel,
    pub(super) settings: Arc<Settings>,
    pub(super) transport: Arc<Transport>,
    pub(super) spending: Spending,
}

impl Upkeep {
    /// Before a question: sums up where that is due, and waits for it, but not for ever. Says what it took, as
    /// far as it was waited for.
    pub(super) async fn before_question(&self, due: Instant, progress: &(dyn Fn(String) + Send + Sync)) -> Tally {
        let companion = &self.workspace.companion;
        let begun = match companion.step(&self.chosen, &self.settings, self.now()) {
            Step::Summarise => self.start(),
            Step::Continue | Step::Shed | Step::Stuck => None,
        };
        if begun.is_none() && !companion.is_summarising() {
            return Tally::default();
        }
        progress("noting what leaves the conversation".to_owned());
        let left = due.saturating_duration_since(Instant::now());
        let until = Instant::now() + (left / PATIENCE_SHARE).min(PATIENCE);
        let ended = async {
            match begun {
                Some(running) => running.await.unwrap_or_default(),
                None => {
                    companion.summary_ended().await;
                    Tally::default()
                }
            }
        };
        tokio::time::timeout_at(until.into(), ended).await.unwrap_or_default()
    }

    /// After an answer: sums up in the background where the window is nearly full.
    pub(super) fn after_answer(&self) {
        if self.workspace.companion.step(&self.chosen, &self.settings, self.now()) == Step::Summarise {
            let _in_background = self.start();
        }
    }

    /// Where the model found a prompt too long: sums up what was in it, unless that was just tried.
    pub(super) async fn after_overflow(&self, due: Instant) -> Tally {
        let companion = &self.workspace.companion;
        let left = due.saturating_duration_since(Instant::now());
        let until = Instant::now() + (left / PATIENCE_SHARE).min(PATIENCE);
        if !companion.is_worth_a_summary(&self.chosen, &self.settings, self.now()) {
            return Tally::default();
        }
        let Some(running) = self.start() else { return Tally::default() };
        let ended = tokio::time::timeout_at(until.into(), running).await;
        if companion.is_summarising() {
            tracing::info!("a conversation is left before it is summed up");
        }
        ended.ok().and_then(Result::ok).unwrap_or_default()
    }

    fn now(&self) -> u64 {
        seconds(&self.spending.clock)
    }

    /// Begins, unless one is at work already.
    fn start(&self) -> Option<tokio::task::JoinHandle<Tally>> {
        let guard = self.workspace.companion.begin_summary()?;
        let this = self.clone();
        Some(tokio::spawn(async move {
            let tally = this.run().await;
            drop(guard);
            tally
        }))
    }

    async fn run(&self) -> Tally {
        let companion = &self.workspace.companion;
        let now = self.now();
        let Some(material) = companion.material(&self.chosen, &self.settings, now) else { return Tally::default() };
        let ready = self
            .spending
            .check()
            .and_then(|()| llm::connect(&self.chosen.settings, &self.transport).map_err(|error| error.to_string()));
        let client = match ready {
            Ok(client) => client,
            Err(reason) => {
                companion.summary_failed(reason, now);
                return Tally::default();
            }
        };
        let book = |usage: &Usage, cost: Option<f64>| self.spending.book(usage, cost);
        let cancel = self.workspace.forgotten.child_token();
        let summariser = Summariser {
            model: &*client,
            tool_specs: &TOOL_SPECS,
            system: &material.system,
            conversation: &material.name,
            estimate: material.estimate.clone(),
            window: self.chosen.window,
            completion_max: self.chosen.completion_max,
            prices: self.chosen.prices.as_ref(),
            book: &book,
            deadline: (Instant::now() + TIME_MAX).into(),
            cancel: &cancel,
            at: now,
        };
        let summary = summariser.sum_up(&material.log, material.is_warm).await;
        companion.take_summary(&material, &summary, self.now());
        let mut tally = summary.tally;
        for _ in 0..CONSOLIDATIONS_MAX {
            let Some(facts) = companion.to_consolidate(material.room).filter(|_| self.spending.check().is_ok()) else {
                break;
            };
            let (drafts, taken) = summariser.consolidate(&facts.iter().collect::<Vec<_>>()).await;
            tally = tally.plus(&taken);
            if !drafts.is_some_and(|drafts| companion.consolidated(&facts, drafts)) {
                break;
            }
        }
        self.finish(material, &summary).await;
        tally
    }

    async fn finish(&self, material: Material, summary: &Summary) {
        let is_done = summary.failures.is_empty();
        let companion = Arc::clone(&self.workspace.companion);
        let finished = tokio::task::spawn_blocking(move || companion.finish_summary(&material, is_done)).await;
        if let Err(error) = finished {
            tracing::error!(%error, "keeping what was noted broke off");
        }
    }
}

/// Seconds since 1970.
pub(super) fn seconds(clock: &Clock) -> u64 {
    clock().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
