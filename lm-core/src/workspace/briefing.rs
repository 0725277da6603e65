//! What a question is told besides its words, found out just before it is asked: which files are not
//! what the log says of them, what the coding agent did since the last question, and the text that the
//! question's words lead to. Blocks on the file system. Not allowed here: asking the model.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use tokio_util::sync::CancellationToken;

use super::{
    companion::Companion,
    freshness::{self, Finding, KnownFile},
    registry::Workspace,
};
use crate::{
    agent::{
        briefing::{Briefing, News, Waiting, Watch},
        citations, prompts,
    },
    files::{Excluded, FileStamp, WorkspaceFiles, nanoseconds},
    memory::{
        delta::{self, Change, DeltaLimits, Shown, What},
        ledger::{
            Fact,
            block::{self, Noted},
        },
        log::{Exchange, Fork, Source},
        manifest::{Deed, Gap, Look},
        quote::{data_block, one_line},
        told::{LastSaid, Said, Standing, Told},
    },
    retrieval::{SearchLimits, SearchOutcome, Verdict},
    tools::READ_CAP,
};

/// How long looking for what changed may take.
const CHECK_TIME: Duration = Duration::from_secs(2);
/// How long the search for excerpts may take.
const SEARCH_TIME: Duration = Duration::from_millis(700);
/// How many excerpts are shown, and how many bytes of them in all.
const EXCERPTS_MAX: usize = 5;
const EXCERPT_BYTES_MAX: usize = 6_000;
/// The share of the window that may tell what changed.
const DELTA_SHARE: f64 = 0.08;
/// As much is told of one file, in bytes.
const DELTA_FILE_BYTES: usize = 8_000;
/// The longest list of what the agent did, in bytes.
const GAP_BYTES_MAX: usize = 1_500;
/// How many earlier questions are named whose answers rest on a changed file.
const ANSWERS_NAMED_MAX: usize = 8;

/// How many void notes are named.
const VOID_NOTES_MAX: usize = 60;
/// The longest list of what people noted, in bytes.
const NOTES_BYTES_MAX: usize = 3_000;

/// Up to where things are told once a question is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Until {
    /// Observations of the coding agent's deeds.
    pub(super) observations: u64,
    /// The number of the last of people's notes.
    pub(super) notes: u64,
}

/// Briefs the questions of one fork.
#[derive(Clone)]
pub(super) struct Briefer {
    pub(super) workspace: Arc<Workspace>,
    pub(super) companion: Arc<Companion>,
    pub(super) files: Arc<WorkspaceFiles>,
    pub(super) excluded: Excluded,
    /// As many bytes may tell what changed.
    pub(super) delta_bytes: usize,
    /// Changed files that the question was not told of, since there were too many.
    pub(super) untold: Arc<Mutex<BTreeSet<Arc<str>>>>,
    pub(super) due: Instant,
    pub(super) cancel: CancellationToken,
}

/// The most bytes that may tell what changed, where `window_bytes` fit into the window.
pub(super) fn delta_bytes(window_bytes: usize) -> usize {
    (window_bytes as f64 * DELTA_SHARE) as usize
}

/// A file of which something was said, ready to be looked at.
struct Known {
    path: Arc<str>,
    said: LastSaid,
    sha256: Arc<str>,
    look: Option<Look<FileStamp>>,
}

/// What became of it.
struct Changed {
    path: Arc<str>,
    standing: Standing,
    what: Became,
    /// Earlier questions whose answers rest on what it held.
    answers: Vec<Arc<str>>,
}

impl Changed {
    /// What telling it says of files: of a renamed one also what its new name holds.
    fn said(&self) -> impl Iterator<Item = Said> {
        let there = match &self.what {
            Became::Renamed { to, sha256 } => Some(Said::notice(to.as_str(), Standing::Text(Arc::clone(sha256)))),
            _ => None,
        };
        [Said::notice(Arc::clone(&self.path), self.standing.clone())].into_iter().chain(there)
    }
}

enum Became {
    Edited { before: Option<Arc<str>>, after: String },
    Gone,
    Renamed { to: String, sha256: Arc<str> },
    Back,
    Unreadable(String),
    Stale,
}

impl Briefer {
    /// What the next question of a fork is told. Blocks.
    pub(super) fn brief(&self, fork: &Fork, question: &str) -> (Briefing, Until) {
        let news = self.news_of(&fork.told(), fork).unwrap_or_default();
        let gap = self.companion.gap(fork.observations_told());
        let mut briefing = Briefing { said: news.said, ..Briefing::default() };
        let (notes, last_note) = self.companion.notes_since(fork.notes_told());
        let texts = [deeds(&gap), noted_by_people(&notes), news.text];
        briefing.deltas = texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
        self.add_excerpts(&mut briefing, fork, question);
        (briefing, Until { observations: gap.until, notes: last_note })
    }

    /// What of `told` is not so any more. Blocks.
    fn news_of(&self, told: &Told, fork: &Fork) -> Option<News> {
        let answered = fork.answered();
        let known = self.known(told);
        let changed = self.changed(&known, answered);
        if changed.is_empty() {
            return None;
        }
        let titles: Vec<Vec<&str>> =
            changed.iter().map(|change| change.answers.iter().map(|title| &**title).collect()).collect();
        let changes: Vec<Change<'_>> = changed
            .iter()
            .zip(&titles)
            .map(|(change, titles)| Change { path: &change.path, what: change.what.borrowed(), answers: titles })
            .collect();
        let limits = DeltaLimits { bytes: self.delta_bytes, bytes_per_file: DELTA_FILE_BYTES };
        let rendered = delta::render(&changes, limits);
        let text = rendered.text + &void_notes(fork.noted(), &changed);
        let of_kind = |is_counted: bool| {
            let shown = changed.iter().zip(&rendered.shown);
            shown.filter(move |(_, shown)| (**shown == Shown::Counted) == is_counted)
        };
        let named = || of_kind(false);
        self.untold().extend(of_kind(true).map(|(change, _)| Arc::clone(&change.path)));
        Some(News {
            text,
            // One that was only counted is told of the next time.
            said: named().flat_map(|(change, _)| change.said()).collect(),
            paths: named().map(|(change, _)| change.path.to_string()).collect(),
        })
    }

    fn untold(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, told: &Told) -> Vec<Known> {
        let looks = self.companion.looks(told.iter().map(|(path, _)| &**path));
        let known = told.iter().zip(looks).map(|((path, said), look)| {
            let sha256 = said.standing_text().or(said.last_text()).cloned().unwrap_or_default();
            // A stamp proves something only if it is that of the text in question.
            let look = look.filter(|look| look.standing.sha256() == Some(&sha256));
            Known { path: Arc::clone(path), said: said.clone(), sha256, look }
        });
        known.collect()
    }

    fn changed(&self, known: &[Known], answered: &[Arc<Exchange>]) -> Vec<Changed> {
        let files: Vec<KnownFile<'_>> = known
            .iter()
            .map(|known| KnownFile {
                path: &known.path,
                sha256: &known.sha256,
                stamp: known.look.as_ref().and_then(|look| look.stamp),
                looked_at_ns: known.look.as_ref().map_or(0, |look| look.at_ns),
                whole: known.look.as_ref().is_none_or(|look| look.whole),
            })
            .collect();
        let now = SystemTime::now();
        let deadline = (Instant::now() + CHECK_TIME).min(self.due);
        let findings = freshness::check(&self.files, &files, nanoseconds(now), deadline, &self.cancel);
        let mut findings = findings.into_iter().peekable();
        let mut changed = Vec::new();
        for (index, known) in known.iter().enumerate() {
            let finding = findings.next_if(|(found, _)| *found == index).map(|(_, finding)| finding);
            if let Some(change) = self.settle(known, finding, now, answered) {
                changed.push(change);
            }
        }
        changed
    }

    /// Takes note of a finding, and tells it where the log says otherwise.
    fn settle(
        &self,
        known: &Known,
        finding: Option<Finding>,
        now: SystemTime,
        answered: &[Arc<Exchange>],
    ) -> Option<Changed> {
        let Known { path, said, sha256, look } = known;
        let renew = |standing: &Standing, stamp: Option<FileStamp>, whole: bool| {
            let look = Look { standing: standing.clone(), whole, stamp, at_ns: nanoseconds(now) };
            self.companion.renewed(path, look);
        };
        let (standing, became) = match finding {
            None => (Standing::Text(Arc::clone(sha256)), None),
            Some(Finding::Same { stamp }) => {
                let standing = Standing::Text(Arc::clone(sha256));
                renew(&standing, Some(stamp), look.as_ref().is_none_or(|look| look.whole));
                (standing, None)
            }
            Some(Finding::Changed { text }) => {
                self.companion.looked(path, &text, now);
                let before = self.companion.text(sha256);
                (Standing::Text(text.sha256.into()), Some(Became::Edited { before, after: text.text }))
            }
            Some(Finding::Gone { now_at }) => {
                renew(&Standing::Gone, None, true);
                (
                    Standing::Gone,
                    Some(now_at.map_or(Became::Gone, |to| Became::Renamed { to, sha256: Arc::clone(sha256) })),
                )
            }
            Some(Finding::Unreadable { why, withheld }) => {
                if withheld {
                    self.companion.forget_text(sha256);
                }
                renew(&Standing::Unreadable, None, true);
                (Standing::Unreadable, Some(Became::Unreadable(why)))
            }
        };
        if said.agrees_with(&standing) {
            return None;
        }
        let what = became.unwrap_or(if said.is_text() { Became::Stale } else { Became::Back });
        let rests_on_other = |exchange: &&Arc<Exchange>| {
            let mut sources = exchange.sources.iter();
            sources.any(|source| source.path == *path && Some(&source.sha256) != standing.sha256())
        };
        let answers = answered.iter().rev().filter(rests_on_other).take(ANSWERS_NAMED_MAX);
        let answers = answers.map(|exchange| Arc::clone(&exchange.question)).collect();
        Some(Changed { path: Arc::clone(path), standing, what, answers })
    }

    fn add_excerpts(&self, briefing: &mut Briefing, fork: &Fork, question: &str) {
        let limits = SearchLimits {
            deadline: (Instant::now() + SEARCH_TIME).min(self.due),
            max_places: EXCERPTS_MAX,
            max_excerpt_chars: EXCERPT_BYTES_MAX,
        };
        let search = &self.workspace.retriever;
        let found = search.search_without(&self.excluded, question, limits, &|_: &str| {}, &self.cancel);
        // Where nothing is found the model finds its own way.
        let Ok(SearchOutcome { places, verdict: Verdict::Found | Verdict::Overview | Verdict::Weak, .. }) = found
        else {
            return;
        };
        let now = SystemTime::now();
        let mut shown = Vec::new();
        for place in &places {
            let numbered = prompts::numbered(&place.excerpt, place.first_line);
            if fork.holds(numbered.trim_end()) {
                continue;
            }
            // The search looks at the beginning of a large file; what is told of one is told of all of it.
            let Ok(file) = self.files.read(std::path::Path::new(&place.path), READ_CAP) else { continue };
            if !file.truncated && file.sha256 != place.sha256 && !file.text.contains(place.excerpt.trim_end()) {
                continue;
            }
            let path: Arc<str> = place.path.as_str().into();
            self.companion.looked(&path, &file, now);
            let sha256: Arc<str> = file.sha256.as_str().into();
            briefing.said.push(Said::shown(Arc::clone(&path), Arc::clone(&sha256)));
            briefing.sources.push(Source { path, sha256 });
            shown.push((place.path.as_str(), place.first_line, place.excerpt.as_str()));
        }
        briefing.excerpts = prompts::excerpts(&shown);
    }
}

impl Watch for Briefer {
    fn news<'a>(&'a self, fork: &'a Fork, answer: &'a str) -> Waiting<'a, Option<News>> {
        let cited = citations::find(answer).into_iter().map(|citation| citation.path);
        let concerned: BTreeSet<String> = fork.said().map(|said| said.path.to_string()).chain(cited).collect();
        let mut told = fork.told();
        {
            // An answer may rest on whatever was told before, whether it names it or not. What was too
            // much to be told along with the question is too much now.
            let untold = self.untold();
            told.retain(|path| !untold.contains(path) || concerned.contains(path));
        }
        let (this, fork) = (self.clone(), fork.clone());
        Box::pin(async move {
            let looking = tokio::task::spawn_blocking(move || this.news_of(&told, &fork));
            looking.await.unwrap_or_else(|error| {
                tracing::error!(%error, "looking for changes broke off");
                None
            })
        })
    }
}

impl Became {
    fn borrowed(&self) -> What<'_> {
        match self {
            Self::Edited { before, after } => What::Edited { before: before.as_deref(), after },
            Self::Gone => What::Gone,
            Self::Renamed { to, .. } => What::Renamed { to },
            Self::Back => What::Back,
            Self::Unreadable(why) => What::Unreadable { why },
            Self::Stale => What::Stale,
        }
    }
}

/// Which of the notes at the beginning rest on what is not so any more, by their numbers.
fn void_notes(noted: &[Noted], changed: &[Changed]) -> String {
    let is_void = |noted: &&Noted| {
        noted.sources.iter().any(|source| {
            let change = changed.iter().find(|change| change.path == source.path);
            change.is_some_and(|change| change.standing.sha256() != Some(&source.sha256))
        })
    };
    let numbers: Vec<String> = noted.iter().filter(is_void).map(|noted| noted.number.to_string()).collect();
    if numbers.is_empty() {
        return String::new();
    }
    let more = numbers.len().saturating_sub(VOID_NOTES_MAX);
    let named = numbers[..numbers.len() - more].join(", ");
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("Void until you have checked them are these of the notes at the beginning: {named}{more}.\n")
}

/// What people noted since the last question, as data.
fn noted_by_people(notes: &[Fact]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let mut lines = String::new();
    let mut told = 0;
    for note in notes {
        let line = block::line(note);
        if lines.len() + line.len() > NOTES_BYTES_MAX {
            break;
        }
        lines.push_str(&line);
        lines.push('\n');
        told += 1;
    }
    let mut text = format!("A person noted, as data:\n{}", data_block("notes", &lines));
    if told < notes.len() {
        let _ = write!(text, "\n{} more are found with the tool recall.", notes.len() - told);
    }
    text
}

/// What the coding agent did, one line for each kind of deed.
fn deeds(gap: &Gap) -> String {
    let mut text = String::new();
    for (deed, word) in [(Deed::Edited, "edited"), (Deed::Removed, "removed"), (Deed::Read, "read")] {
        let paths: Vec<&str> = gap.deeds.iter().filter(|(_, done)| *done == deed).map(|(path, _)| &**path).collect();
        if paths.is_empty() {
            continue;
        }
        let mut line = String::new();
        let mut named = 0;
        for path in &paths {
            if text.len() + line.len() + path.len() > GAP_BYTES_MAX {
                break;
            }
            let _ = write!(line, "{}{}", if named > 0 { ", " } else { "" }, one_line(path));
            named += 1;
        }
        if named < paths.len() {
            let _ = write!(line, "{}{} more", if named > 0 { " and " } else { "" }, paths.len() - named);
        }
        let start = if text.is_empty() { "Since the last question the coding agent has " } else { "\nIt has " };
        let _ = write!(text, "{start}{word}: {line}.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeds_are_told_in_a_line_each_and_counted_where_there_are_many() {
        let gap = |deeds: Vec<(&str, Deed)>| Gap {
            deeds: deeds.into_iter().map(|(path, deed)| (path.into(), deed)).collect(),
            until: 9,
        };
        assert_eq!(deeds(&gap(vec![])), "");
        let some = vec![("src/a.rs", Deed::Read), ("b\n.rs", Deed::Edited), ("c.rs", Deed::Removed), ("d", Deed::Read)];
        insta::assert_snapshot!(deeds(&gap(some)), @r"
        Since the last question the coding agent has edited: b�.rs.
        It has removed: c.rs.
        It has read: src/a.rs, d.
        ");
        let names: Vec<String> = (0..500).map(|number| format!("src/module_{number}.rs")).collect();
        let many = names.iter().map(|name| (name.as_str(), Deed::Read)).collect();
        let text = deeds(&gap(many));
        assert!(text.len() < GAP_BYTES_MAX + 100 && text.contains(" and ") && text.ends_with(" more."), "{text}");
    }
}
