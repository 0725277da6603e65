//! The answer without a model: the best places with their text. Pure.

use std::{fmt::Write as _, path::Path, time::Duration};

use lm_proto::{
    message::Answer,
    question::{CUT_TO, LONGER_ANSWER},
};
use serde_json::{Value as Json, json};

use super::{answer, inquiry::Tally, printable::printable};
use crate::{
    retrieval::{How, IndexState, Place, SearchOutcome, Verdict},
    settings::Provider,
};

/// Bytes that a token stands for where no tokenizer is asked.
pub const BYTES_A_TOKEN: usize = 4;

/// Bytes between two parts of an answer.
const BLANK_LINE: usize = 2;

/// Fewer lines of a place are not worth showing, unless it has no more.
const LINES_MIN: usize = 4;

/// What an answer is made of.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The root.
    pub workspace: &'a Path,
    /// What was found.
    pub outcome: &'a SearchOutcome,
    /// What the index was doing.
    pub index: &'a IndexState,
    /// Whether so short an answer had fewer places looked for than a longer one.
    pub fewer_places: bool,
    /// The longest answer, in tokens.
    pub max_answer_tokens: u32,
    /// Why no model answers.
    pub why: &'a Why,
    /// What the asker should know besides.
    pub notes: &'a [String],
    /// How long it took.
    pub timing: Timing,
}

/// Why an answer comes without a model.
#[derive(Clone, PartialEq, Debug)]
pub enum Why {
    /// None was chosen.
    NoneChosen,
    /// One was chosen and has not answered.
    NotAnswered {
        /// Who was asked.
        provider: &'static str,
        /// What happened, and what to do about it.
        reason: String,
        /// What it took all the same.
        tally: Tally,
    },
}

/// How long an answer took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// From the question's arrival.
    pub total: Duration,
    /// Until it was its turn.
    pub queued: Duration,
    /// The search alone.
    pub search: Duration,
}

/// A place as far as it is shown.
struct Shown<'a> {
    place: &'a Place,
    last_line: usize,
    block: String,
}

/// The answer to a question as text, trailer and JSON.
#[must_use]
pub fn render(input: &Input<'_>) -> Answer {
    let outcome = input.outcome;
    let budget = (input.max_answer_tokens as usize).saturating_mul(BYTES_A_TOKEN);
    let (shown, cut) = choose(&outcome.places, budget.saturating_sub(around(input)));
    let hidden = outcome.places.len() - shown.len();
    let truncated = cut || hidden > 0 || input.fewer_places;

    let mut text = headline(outcome, shown.len());
    for place in &shown {
        text.push_str("\n\n");
        text.push_str(&place.block);
    }
    for line in closing(input, truncated, hidden) {
        text.push_str("\n\n");
        text.push_str(&line);
    }
    text.push('\n');

    let mode = mode(outcome.how);
    let trailer = format!(
        "offline{} · {} ms · {} {} · {}{}",
        instead_of(input.why),
        input.timing.total.as_millis(),
        counted(outcome.files_searched, "file"),
        if outcome.verdict == Verdict::Overview { "listed" } else { "searched" },
        mode,
        if outcome.how.is_complete() { "" } else { ", incomplete" },
    );
    let sources: Vec<_> = shown
        .iter()
        .map(|shown| {
            json!({
                "path": shown.place.path,
                "first_line": shown.place.first_line,
                "last_line": shown.last_line,
                "sha256": shown.place.sha256,
            })
        })
        .collect();
    let tally = match input.why {
        Why::NoneChosen => Tally::default(),
        Why::NotAnswered { tally, .. } => *tally,
    };
    let json = json!({
        "answer": text,
        "workspace": input.workspace.to_string_lossy(),
        "sources": sources,
        "usage": answer::usage(&tally),
        "timing": {
            "total_ms": milliseconds(input.timing.total),
            "queued_ms": milliseconds(input.timing.queued),
            "search_ms": milliseconds(input.timing.search),
        },
        "provider": Provider::Offline.word(),
        "model": null,
        "instead_of": match input.why {
            Why::NoneChosen => Json::Null,
            Why::NotAnswered { provider, reason, .. } => json!({ "provider": provider, "reason": reason }),
        },
        "truncated": truncated,
        "search": {
            "verdict": verdict(outcome.verdict),
            "mode": mode,
            "complete": outcome.how.is_complete(),
            "files": outcome.files_searched,
            "absent_terms": outcome.absent_terms,
            "suggestions": outcome.suggestions,
            "empty_files": outcome.empty_files,
            "left_out": {
                "secret": outcome.left_out.secret,
                "binary": outcome.left_out.binary,
                "not_regular": outcome.left_out.not_regular,
                "unreadable": outcome.left_out.unreadable,
                "cut": outcome.left_out.cut,
            },
        },
        "notes": input.notes,
    });
    Answer { text, trailer, json: json.to_string() }
}

/// The most bytes that what stands around the places takes.
fn around(input: &Input<'_>) -> usize {
    let places = input.outcome.places.len();
    let lines = closing(input, true, places);
    headline(input.outcome, places).len() + lines.iter().map(|line| line.len() + 2).sum::<usize>() + 1
}

/// As many places, best first, as fit; the last one may be shown in part. Whether one was.
fn choose(places: &[Place], budget: usize) -> (Vec<Shown<'_>>, bool) {
    let mut shown = Vec::new();
    let mut left = budget;
    for place in places {
        let whole: Vec<&str> = place.excerpt.lines().collect();
        let mut lines = whole.len();
        let mut block = render_place(place, &whole);
        // The first is shown however little fits; a line alone is bounded by the search.
        let least = if shown.is_empty() { 1 } else { LINES_MIN.min(whole.len()) };
        while block.len() + BLANK_LINE > left && lines > least {
            // Halving the surplus gets there in few steps and never below what would fit by much.
            let surplus = (block.len() + BLANK_LINE - left).saturating_mul(lines) / block.len();
            lines = lines.saturating_sub(surplus.max(1)).max(least);
            block = render_place(place, &whole[..lines]);
        }
        if block.len() + BLANK_LINE > left && !shown.is_empty() {
            break;
        }
        left = left.saturating_sub(block.len() + BLANK_LINE);
        let cut = lines < whole.len();
        let last_line = if cut { place.first_line + lines.max(1) - 1 } else { place.last_line };
        shown.push(Shown { place, last_line, block });
        if cut {
            return (shown, true);
        }
    }
    (shown, false)
}

/// Heading and numbered lines, fenced by more backticks than the text has in a row.
fn render_place(place: &Place, lines: &[&str]) -> String {
    let last = if lines.len() < place.excerpt.lines().count() {
        place.first_line + lines.len().max(1) - 1
    } else {
        place.last_line
    };
    let longest_run = lines.iter().flat_map(|line| line.split(|letter| letter != '`')).map(str::len).max();
    let fence = "`".repeat(longest_run.unwrap_or(0).max(2) + 1);
    let width = last.to_string().len();
    let mut block = format!("### {}:{}-{last}\n\n{fence}\n", place.path, place.first_line);
    for (number, line) in (place.first_line..).zip(lines) {
        let _ = writeln!(block, "{}", format!("{number:>width$}  {}", printable(line)).trim_end());
    }
    block.push_str(&fence);
    block
}

fn headline(outcome: &SearchOutcome, shown: usize) -> String {
    let empty = quoted(&outcome.empty_files);
    let verb = if outcome.empty_files.len() == 1 { "is" } else { "are" };
    match outcome.verdict {
        _ if outcome.empty_files.is_empty() => verdict_line(outcome, shown),
        // What else was not found is no news about a file that has nothing.
        Verdict::Nothing => format!("{empty} {verb} there, but empty: no text to show."),
        _ => format!("{} {empty} {verb} empty.", verdict_line(outcome, shown)),
    }
}

/// What the places are worth.
fn verdict_line(outcome: &SearchOutcome, shown: usize) -> String {
    let files = counted(outcome.files_searched, "file");
    match outcome.verdict {
        Verdict::Found if shown == 1 => format!("One place answers best, of {files} searched."),
        Verdict::Found => format!("{shown} places answer best, of {files} searched, best first."),
        Verdict::Overview if shown == 1 => {
            format!("A question about the whole: of {files}, this one introduces it.")
        }
        Verdict::Overview => format!("A question about the whole: of {files}, these introduce it, best first."),
        Verdict::Weak => {
            let mut line = format!(
                "No place in {files} answers well; {} only some words with the question.",
                if shown == 1 { "this one shares" } else { "these share" }
            );
            line.push_str(&absent(outcome));
            line
        }
        Verdict::Nothing if !outcome.how.is_complete() => format!(
            "Nothing found yet: time ran out after {files}, so the rest of the workspace is unknown. Ask again, \
             or name a file, function or error text."
        ),
        Verdict::Nothing if outcome.files_searched == 0 => {
            "Nothing found: the workspace has no text files that may be searched.".into()
        }
        Verdict::Nothing if outcome.absent_terms.is_empty() => {
            format!("Nothing found: no place in {files} searched answers to the question's words.")
        }
        Verdict::Nothing if outcome.coverage > 0.0 => format!(
            "Nothing found in {files} searched.{} Other words of the question occur, too few to tell a place.",
            absent(outcome)
        ),
        Verdict::Nothing => format!("Nothing found in {files} searched.{}", absent(outcome)),
    }
}

/// What is known not to be there, and what is there instead.
fn absent(outcome: &SearchOutcome) -> String {
    let mut text = String::new();
    if !outcome.absent_terms.is_empty() {
        let verb = if outcome.absent_terms.len() == 1 { "occurs" } else { "occur" };
        // What was not read, or only in its beginning, may hold anything.
        let whole = outcome.left_out.cut == 0 && outcome.left_out.unreadable == 0;
        let place = if whole { "in it" } else { "in what was searched" };
        let _ = write!(text, " {} {verb} nowhere {place}.", quoted(&outcome.absent_terms));
    }
    if !outcome.suggestions.is_empty() {
        let _ = write!(text, " Similar names that exist: {}.", quoted(&outcome.suggestions));
    }
    text
}

/// The first of some names.
fn quoted(names: &[String]) -> String {
    const NAMES_MAX: usize = 12;
    let quote = |name: &String| format!("`{}`", printable(name).replace('`', "'"));
    names.iter().take(NAMES_MAX).map(quote).collect::<Vec<_>>().join(", ")
}

fn closing(input: &Input<'_>, truncated: bool, hidden: usize) -> Vec<String> {
    let outcome = input.outcome;
    let mut lines = Vec::new();
    if truncated {
        let more = match hidden {
            _ if input.fewer_places => " There may be more places.".to_owned(),
            0 => String::new(),
            hidden => format!(" {} more not shown.", counted(hidden, "place")),
        };
        lines.push(format!("{CUT_TO}{} tokens.{more} {LONGER_ANSWER}", input.max_answer_tokens));
    }
    lines.extend(searched(outcome, input.index));
    lines.extend(left_out(outcome));
    lines.extend(input.notes.iter().map(|note| note_line(note)));
    lines.push(match input.why {
        Why::NoneChosen => "No model is configured: places, not an explanation. `lm-shim setup` chooses one.".into(),
        Why::NotAnswered { provider, reason, .. } => format!(
            "These are places from a word search, not an explanation, because {provider} has not answered: {}.",
            printable(&reason.replace(['\n', '\r'], " "))
        ),
    });
    lines
}

/// A note on a line of its own.
pub(super) fn note_line(note: &str) -> String {
    format!("Note: {}", printable(&note.replace(['\n', '\r'], " ")))
}

/// Who should have answered, and what that cost.
fn instead_of(why: &Why) -> String {
    match why {
        Why::NoneChosen => String::new(),
        Why::NotAnswered { provider, tally, .. } if tally.requests == 0 => format!(" instead of {provider}"),
        Why::NotAnswered { provider, tally, .. } => format!(" instead of {provider} ({})", answer::price(tally)),
    }
}

fn searched(outcome: &SearchOutcome, index: &IndexState) -> Option<String> {
    if outcome.verdict == Verdict::Overview {
        let incomplete = "Not all files could be listed in time; there may be better ones.";
        return (!outcome.how.is_complete()).then(|| incomplete.into());
    }
    let why = match index {
        IndexState::Unopened | IndexState::Building => "the index is being built",
        IndexState::TooLarge => "the workspace is too large for an index",
        IndexState::Failed(_) => "there is no index; `lm-shim doctor` says why",
        IndexState::Ready | IndexState::Updating => "the index is being renewed",
    };
    match outcome.how {
        How::Indexed { complete: true } => None,
        How::Indexed { complete: false } => {
            Some("Not all files that changed could be searched in time; there may be better places.".into())
        }
        How::Live { complete: true } => Some(format!("Searched live: {why}.")),
        How::Live { complete: false } => {
            Some(format!("Searched live, and not all files in time: {why}. There may be better places."))
        }
    }
}

fn left_out(outcome: &SearchOutcome) -> Option<String> {
    let left_out = outcome.left_out;
    if outcome.verdict == Verdict::Overview {
        return None;
    }
    let reasons = [
        (left_out.secret, "file that may hold secrets", "files that may hold secrets"),
        (left_out.binary, "file that is no text", "files that are no text"),
        (
            left_out.not_regular,
            "file that is a link, pipe, socket or device",
            "files that are links, pipes, sockets or devices",
        ),
        // A directory counts as one, whatever is in it.
        (
            left_out.unreadable,
            "file or directory that could not be read",
            "files or directories that could not be read",
        ),
        (left_out.cut, "file beyond its beginning, being large", "files beyond their beginning, being large"),
    ];
    let parts: Vec<String> = reasons
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| format!("{} {}", grouped(count), if count == 1 { one } else { many }))
        .collect();
    // Without an index, what a file holds is looked at closely only where a word of the question is in it.
    let at_least = if left_out.secret > 0 && matches!(outcome.how, How::Live { .. }) { "at least " } else { "" };
    (!parts.is_empty()).then(|| format!("Not searched: {at_least}{}.", parts.join("; ")))
}

fn mode(how: How) -> &'static str {
    match how {
        How::Indexed { .. } => "index",
        How::Live { .. } => "live",
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Found => "found",
        Verdict::Overview => "overview",
        Verdict::Weak => "weak",
        Verdict::Nothing => "nothing",
    }
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `1 file`, `12,345 files`.
#[must_use]
pub fn counted(count: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// `1`, `12,345`.
pub(super) fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
#[path = "offline_tests.rs"]
mod tests;
