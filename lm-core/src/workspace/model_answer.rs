//! A question answered by the chosen model: what it needs is brought together, what comes back is
//! checked against the disk, kept, and turned into an answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use lm_proto::message::Answer;
use tokio_util::sync::CancellationToken;

use super::{Progress, Question, companion::Opened, registry::Workspace};
use crate::{
    agent::{
        answer::{self, Checked, CitedPlace, Cut, WindowFill},
        citations,
        inquiry::{Answered, Book, Bounds, Failed, Inquiry, InquiryError, Tally},
        offline::Timing,
        provider::ChosenModel,
    },
    files::{Excluded, ReadError, WorkspaceFiles},
    llm::{self, Lifetime, ModelError, ToolSpec, Transport},
    memory::log::{Retain, Source},
    retrieval::SearchLimits,
    tools::{self, Tools},
};

/// The tools as the model is told of them.
static TOOL_SPECS: LazyLock<Vec<ToolSpec>> = LazyLock::new(|| {
    let spec = |tool: tools::ToolSpecification| ToolSpec::new(tool.name, tool.description, tool.schema);
    // The schemas are constants that a test parses.
    tools::specifications().filter_map(|tool| spec(tool).ok()).collect()
});

/// How long the search for places to begin with may take.
const SEED_TIME: Duration = Duration::from_millis(700);
/// How many it proposes.
const SEED_PLACES: usize = 8;
/// How much of their text is looked at to find where they begin and end.
const SEED_CHARACTERS: usize = 16_000;
/// How much of a cited file is read to count its lines.
const CITED_CAP: u64 = 4 << 20;
/// How many files are read to check an answer's citations.
const CITED_FILES_MAX: usize = 100;

/// A question for a model.
pub(super) struct ModelQuestion<'a> {
    pub(super) workspace: &'a Arc<Workspace>,
    pub(super) excluded: &'a Excluded,
    pub(super) question: &'a Question,
    pub(super) chosen: &'a ChosenModel,
    pub(super) transport: &'a Arc<Transport>,
    pub(super) book: &'a Book<'a>,
    /// What is to be said where the budget cannot hold.
    pub(super) price_note: Option<String>,
    pub(super) due: Instant,
    pub(super) started: Instant,
    pub(super) queued: Duration,
    pub(super) progress: &'a Progress,
    pub(super) cancel: &'a CancellationToken,
}

/// Why there is no answer of the model's, and what it took all the same.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) reason: String,
    pub(super) tally: Tally,
}

impl From<String> for Unanswered {
    fn from(reason: String) -> Self {
        Self { reason, tally: Tally::default() }
    }
}

impl ModelQuestion<'_> {
    /// Asks the model.
    pub(super) async fn answer(&self) -> Result<Answer, Unanswered> {
        let client = llm::connect(&self.chosen.settings, self.transport).map_err(|error| error.to_string())?;
        (self.progress)(format!("asking {}", self.chosen.model));
        let mut taken = Tally::default();
        let mut may_shed = true;
        let companion = &self.workspace.companion;
        let (files, tools) = companion.tools(self.excluded)?;
        loop {
            let opened = companion.fork(self.chosen, &self.question.settings, &files, self.due, self.cancel).await?;
            let name = Arc::clone(&opened.name);
            match self.inquire(&*client, &tools, opened).await {
                Ok((answered, searched)) => return self.finish(&files, &name, answered, taken, searched).await,
                // What was kept does not fit: with less of it the question may.
                Err(Failed { error: InquiryError::Model(ModelError::ContextExceeded(_)), tally }) if may_shed => {
                    tracing::warn!("the conversation did not fit into the model's window");
                    taken = taken.plus(&tally);
                    may_shed = false;
                    companion.shed(&name, 0);
                }
                Err(Failed { error: InquiryError::Late { text }, tally }) => {
                    let taken = taken.plus(&tally);
                    return self.render(&files, &text, Some(Cut::Time), &BTreeSet::new(), taken, Duration::ZERO).await;
                }
                Err(Failed { error: InquiryError::Endless { text }, tally }) => {
                    let (taken, cut) = (taken.plus(&tally), Cut::Length(self.question.max_answer_tokens));
                    return self.render(&files, &text, Some(cut), &BTreeSet::new(), taken, Duration::ZERO).await;
                }
                Err(failed) => {
                    return Err(Unanswered { reason: failed.error.to_string(), tally: taken.plus(&failed.tally) });
                }
            }
        }
    }

    async fn inquire(
        &self,
        client: &dyn llm::ModelClient,
        tools: &Arc<Tools>,
        opened: Opened,
    ) -> Result<(Answered, Duration), Failed> {
        let settings = &self.question.settings;
        let searching = Instant::now();
        let places = if opened.fork.knows_something() { Vec::new() } else { self.places().await };
        let searched = searching.elapsed();
        let inquiry = Inquiry {
            model: client,
            tools,
            tool_specs: &TOOL_SPECS,
            system: &opened.system,
            question: &self.question.text,
            places: &places,
            deltas: "",
            bounds: Bounds {
                answer_tokens: self.question.max_answer_tokens,
                due: self.due,
                rounds: settings.max_iterations,
                window: self.chosen.window,
                completion_max: self.chosen.completion_max,
                look_first: settings.force_explore_when_cold,
                lifetime: Lifetime::FiveMinutes,
            },
            conversation: Some(&opened.name),
            estimate: opened.estimate,
            prices: self.chosen.prices.as_ref(),
            book: self.book,
            cancel: self.cancel,
        };
        let progress = |message: String| (self.progress)(message);
        inquiry.answer(opened.fork, &progress).await.map(|answered| (answered, searched))
    }

    /// Where a word search would begin.
    async fn places(&self) -> Vec<String> {
        let (workspace, question) = (Arc::clone(self.workspace), self.question.text.clone());
        let excluded = self.excluded.clone();
        let (cancel, deadline) = (self.cancel.clone(), (Instant::now() + SEED_TIME).min(self.due));
        let search = move || {
            let limits = SearchLimits { deadline, max_places: SEED_PLACES, max_excerpt_chars: SEED_CHARACTERS };
            workspace.retriever.search_without(&excluded, &question, limits, &|_: &str| {}, &cancel)
        };
        match tokio::task::spawn_blocking(search).await {
            Ok(Ok(outcome)) => outcome
                .places
                .iter()
                .map(|place| format!("{}:{}-{}", place.path, place.first_line, place.last_line))
                .collect(),
            // The model finds its own way.
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }

    /// Keeps an answer and renders it.
    async fn finish(
        &self,
        files: &Arc<WorkspaceFiles>,
        name: &str,
        answered: Answered,
        taken: Tally,
        searched: Duration,
    ) -> Result<Answer, Unanswered> {
        let Answered { text, truncated, fork, sources, tally, estimate } = answered;
        let retain = if self.question.settings.retain_exploration { Retain::All } else { Retain::None };
        let companion = &self.workspace.companion;
        companion.commit(name, fork, retain, sources.clone());
        companion.learned(self.chosen, estimate, self.fill(&tally));
        let cut = truncated.then_some(Cut::Length(self.question.max_answer_tokens));
        self.render(files, &text, cut, &sources, taken.plus(&tally), searched).await
    }

    fn fill(&self, tally: &Tally) -> WindowFill {
        WindowFill { tokens: tally.prompt_tokens, window: self.chosen.window }
    }

    async fn render(
        &self,
        files: &Arc<WorkspaceFiles>,
        text: &str,
        cut: Option<Cut>,
        seen: &BTreeSet<Source>,
        tally: Tally,
        searched: Duration,
    ) -> Result<Answer, Unanswered> {
        let checked = {
            let (files, text, seen) = (Arc::clone(files), text.to_owned(), seen.clone());
            let check = tokio::task::spawn_blocking(move || check(&files, &text, &seen));
            check.await.map_err(|error| format!("checking the citations broke off: {error}"))?
        };
        let notes: Vec<String> = self.question.notes.iter().chain(&self.price_note).cloned().collect();
        let timing = Timing { total: self.started.elapsed(), queued: self.queued, search: searched };
        Ok(answer::render(&answer::Input {
            workspace: &self.workspace.root.path,
            text,
            cut,
            checked: &checked,
            seen,
            tally: &tally,
            provider: self.chosen.settings.provider.name(),
            model: &self.chosen.model,
            fill: self.fill(&tally),
            notes: &notes,
            timing,
        }))
    }
}

/// Looks each citation of a text up on the disk.
fn check(files: &WorkspaceFiles, text: &str, seen: &BTreeSet<Source>) -> Checked {
    let mut lines_of = BTreeMap::new();
    let mut checked = Checked::default();
    let mut known = BTreeSet::new();
    for citation in citations::find(text) {
        let path = located(files, &citation.path, seen);
        if !lines_of.contains_key(&path) && lines_of.len() >= CITED_FILES_MAX {
            break;
        }
        match lines_of.entry(path.clone()).or_insert_with(|| cited_file(files, &path)) {
            Cited::Lines { count, sha256 } if citation.last_line as usize <= *count => {
                let place = CitedPlace {
                    path,
                    first_line: citation.first_line,
                    last_line: citation.last_line,
                    sha256: sha256.clone(),
                };
                if known.insert(place.clone()) {
                    checked.right.push(place);
                }
            }
            Cited::Lines { .. } | Cited::Missing => checked.wrong.push(citation),
            Cited::Unknown => {}
        }
    }
    checked
}

/// What a citation's path leads to.
enum Cited {
    Lines {
        count: usize,
        sha256: String,
    },
    Missing,
    /// It is there and not to be read: nothing is known about its lines.
    Unknown,
}

fn cited_file(files: &WorkspaceFiles, path: &str) -> Cited {
    match files.read(Path::new(path), CITED_CAP) {
        Ok(file) => {
            let count = if file.truncated { usize::MAX } else { file.text.lines().count() };
            Cited::Lines { count, sha256: file.sha256 }
        }
        Err(ReadError::Secret(_) | ReadError::Binary(_)) => Cited::Unknown,
        Err(_) => Cited::Missing,
    }
}

/// The workspace's path for a path as a model wrote it: absolute, or without its first directories,
/// where only one of the files it saw ends so.
fn located(files: &WorkspaceFiles, cited: &str, seen: &BTreeSet<Source>) -> String {
    let cited = cited.replace('\\', "/");
    let root = files.root().to_string_lossy().replace('\\', "/");
    let cited = cited.strip_prefix(&*root).map_or(cited.as_str(), |rest| rest.trim_start_matches('/'));
    let cited = cited.strip_prefix("./").unwrap_or(cited);
    let is_it = |source: &&Source| {
        source.path.strip_suffix(cited).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    let mut candidates = seen.iter().filter(is_it).map(|source| &source.path);
    match (candidates.next(), candidates.next()) {
        (Some(only), None) => only.to_string(),
        _ => cited.to_owned(),
    }
}
