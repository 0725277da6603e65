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

use super::{
    Progress, Question, Spending,
    briefing::{self, Briefer, Until},
    companion::Opened,
    registry::Workspace,
    upkeep::{Upkeep, seconds},
};
use crate::{
    agent::{
        answer::{self, Checked, CitedPlace, Cut, WindowFill},
        briefing::Briefing,
        citations,
        inquiry::{Answered, Book, Bounds, Failed, Inquiry, InquiryError, Tally},
        offline::Timing,
        provider::ChosenModel,
    },
    files::{Excluded, ReadError, WorkspaceFiles},
    llm::{self, Lifetime, ModelError, ToolSpec, Transport},
    memory::{
        log::{Fork, Provenance, Retain, Source},
        told::LastSaid,
    },
    tools::{self, Tools},
};

/// The tools as the model is told of them.
pub(super) static TOOL_SPECS: LazyLock<Vec<ToolSpec>> = LazyLock::new(|| {
    let spec = |tool: tools::ToolSpecification| ToolSpec::new(tool.name, tool.description, tool.schema);
    // The schemas are constants that a test parses.
    tools::specifications().filter_map(|tool| spec(tool).ok()).collect()
});

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
    pub(super) spending: &'a Spending,
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
        let upkeep = self.upkeep();
        taken = taken.plus(&upkeep.before_question(self.due, &|step| (self.progress)(step)).await);
        loop {
            let opened = companion.fork(self.chosen, &self.question.settings, &files, self.due, self.cancel).await?;
            let name = Arc::clone(&opened.name);
            let briefed = self.brief(&files, &opened).await?;
            match self.inquire(&*client, &tools, opened, &briefed).await {
                Ok(answered) => {
                    let answer = self.finish(&files, &name, answered, taken, &briefed).await;
                    upkeep.after_answer();
                    return answer;
                }
                // What was kept does not fit: with less of it the question may.
                Err(Failed { error: InquiryError::Model(ModelError::ContextExceeded(_)), tally }) if may_shed => {
                    tracing::warn!("the conversation did not fit into the model's window");
                    may_shed = false;
                    companion.shed(&name, 0);
                    taken = taken.plus(&tally).plus(&upkeep.after_overflow(self.due).await);
                }
                Err(Failed { error: InquiryError::Late { text }, tally }) => {
                    let taken = taken.plus(&tally);
                    let checked = check_citations(&files, &text, &BTreeSet::new()).await?;
                    return Ok(self.render(&text, Some(Cut::Time), &Shown::none(&checked), taken, briefed.took));
                }
                Err(Failed { error: InquiryError::Endless { text }, tally }) => {
                    let (taken, cut) = (taken.plus(&tally), Cut::Length(self.question.max_answer_tokens));
                    let checked = check_citations(&files, &text, &BTreeSet::new()).await?;
                    return Ok(self.render(&text, Some(cut), &Shown::none(&checked), taken, briefed.took));
                }
                Err(failed) => {
                    return Err(Unanswered { reason: failed.error.to_string(), tally: taken.plus(&failed.tally) });
                }
            }
        }
    }

    fn upkeep(&self) -> Upkeep {
        Upkeep {
            workspace: Arc::clone(self.workspace),
            chosen: self.chosen.clone(),
            settings: Arc::clone(&self.question.settings),
            transport: Arc::clone(self.transport),
            spending: self.spending.clone(),
        }
    }

    /// Finds out what is to be told along with the question.
    async fn brief(&self, files: &Arc<WorkspaceFiles>, opened: &Opened) -> Result<Briefed, String> {
        let started = Instant::now();
        let briefer = Briefer {
            workspace: Arc::clone(self.workspace),
            companion: Arc::clone(&self.workspace.companion),
            files: Arc::clone(files),
            excluded: self.excluded.clone(),
            delta_bytes: briefing::delta_bytes(opened.estimate.bytes(self.chosen.window)),
            untold: Arc::default(),
            due: self.due,
            cancel: self.cancel.clone(),
        };
        let (this, fork, question) = (briefer.clone(), opened.fork.clone(), self.question.text.clone());
        let briefing = tokio::task::spawn_blocking(move || this.brief(&fork, &question)).await;
        let (briefing, until) = briefing.map_err(|error| format!("looking at the files broke off: {error}"))?;
        Ok(Briefed { briefing, until, briefer, took: started.elapsed() })
    }

    async fn inquire(
        &self,
        client: &dyn llm::ModelClient,
        tools: &Arc<Tools>,
        opened: Opened,
        briefed: &Briefed,
    ) -> Result<Answered, Failed> {
        let settings = &self.question.settings;
        let inquiry = Inquiry {
            model: client,
            tools,
            tool_specs: &TOOL_SPECS,
            system: &opened.system,
            question: &self.question.text,
            briefing: &briefed.briefing,
            watch: &briefed.briefer,
            gate: &opened.gate,
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
        inquiry.answer(opened.fork, &progress).await
    }

    /// Keeps an answer and renders it.
    async fn finish(
        &self,
        files: &Arc<WorkspaceFiles>,
        name: &str,
        answered: Answered,
        taken: Tally,
        briefed: &Briefed,
    ) -> Result<Answer, Unanswered> {
        let Answered { text, truncated, fork, sources, stale, tally, estimate } = answered;
        let retain = if self.question.settings.retain_exploration { Retain::All } else { Retain::None };
        let checked = check_citations(files, &text, &sources).await?;
        let provenance = Provenance {
            question: self.question.text.as_str().into(),
            sources: rests_on(&fork, &sources, &briefed.briefing.sources, &checked),
            observations: briefed.until.observations,
            notes: briefed.until.notes,
            at: seconds(&self.spending.clock),
        };
        let companion = &self.workspace.companion;
        companion.learned(self.chosen, estimate, self.fill(&tally));
        let kept = {
            let (companion, name) = (Arc::clone(companion), name.to_owned());
            // Of its own: an asker that leaves now leaves a whole answer behind or none.
            tokio::task::spawn_blocking(move || companion.commit(&name, fork, retain, provenance))
        };
        kept.await.map_err(|error| format!("keeping the answer broke off: {error}"))?;
        companion.settle_later(files, sources.iter().cloned().collect());
        let cut = truncated.then_some(Cut::Length(self.question.max_answer_tokens));
        let shown = Shown { checked: &checked, seen: &sources, stale: &stale };
        Ok(self.render(&text, cut, &shown, taken.plus(&tally), briefed.took))
    }

    fn fill(&self, tally: &Tally) -> WindowFill {
        WindowFill { tokens: tally.prompt_tokens, window: self.chosen.window }
    }

    fn render(&self, text: &str, cut: Option<Cut>, shown: &Shown<'_>, tally: Tally, searched: Duration) -> Answer {
        let notes: Vec<String> = self.question.notes.iter().chain(&self.price_note).cloned().collect();
        let timing = Timing { total: self.started.elapsed(), queued: self.queued, search: searched };
        answer::render(&answer::Input {
            workspace: &self.workspace.root.path,
            text,
            cut,
            checked: shown.checked,
            seen: shown.seen,
            tally: &tally,
            provider: self.chosen.settings.provider.name(),
            model: &self.chosen.model,
            fill: self.fill(&tally),
            stale: shown.stale,
            notes: &notes,
            timing,
        })
    }
}

/// A question's briefing, and who watches over it.
struct Briefed {
    briefing: Briefing,
    /// What is told by then.
    until: Until,
    briefer: Briefer,
    took: Duration,
}

/// What an answer's text is judged by.
struct Shown<'a> {
    checked: &'a Checked,
    seen: &'a BTreeSet<Source>,
    stale: &'a [String],
}

impl<'a> Shown<'a> {
    fn none(checked: &'a Checked) -> Self {
        static NOTHING: BTreeSet<Source> = BTreeSet::new();
        Self { checked, seen: &NOTHING, stale: &[] }
    }
}

/// What an answer rests on: what was looked up for it, and of what was shown before what it names;
/// where that is nothing, what was shown along with the question.
fn rests_on(fork: &Fork, seen: &BTreeSet<Source>, told_along: &[Source], checked: &Checked) -> Vec<Source> {
    let told = fork.told();
    let cited: BTreeSet<&str> = checked.right.iter().map(|place| place.path.as_str()).collect();
    let named = cited.iter().filter_map(|path| {
        let sha256 = told.of(path)?.standing_text()?;
        Some(Source { path: (*path).into(), sha256: Arc::clone(sha256) })
    });
    // Where a file changed while the answer was written, it was answered again from what it held then.
    let newest = |source: &Source| {
        let sha256 = told.of(&source.path).and_then(LastSaid::standing_text).unwrap_or(&source.sha256);
        Source { path: Arc::clone(&source.path), sha256: Arc::clone(sha256) }
    };
    let looked_up = seen.iter().filter(|source| !told_along.contains(source)).map(newest);
    let sources: BTreeSet<Source> = named.chain(looked_up).collect();
    let sources = if sources.is_empty() { told_along.iter().map(newest).collect() } else { sources };
    sources.into_iter().collect()
}

async fn check_citations(files: &Arc<WorkspaceFiles>, text: &str, seen: &BTreeSet<Source>) -> Result<Checked, String> {
    let (files, text, seen) = (Arc::clone(files), text.to_owned(), seen.clone());
    let check = tokio::task::spawn_blocking(move || check(&files, &text, &seen));
    check.await.map_err(|error| format!("checking the citations broke off: {error}"))
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
