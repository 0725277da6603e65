//! The answer that a model gave, as the asker gets it: text, trailer and JSON. Pure.

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use lm_proto::{
    message::Answer,
    question::{CUT_TO, LONGER_ANSWER},
};
use serde_json::{Value as Json, json};

use super::{
    citations::{self, Citation},
    inquiry::Tally,
    offline::{Timing, counted, grouped, milliseconds, note_line},
    printable::printable,
};
use crate::{llm::pricing::dollars, memory::log::Source};

/// A place of the answer that holds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CitedPlace {
    /// The file, relative to the workspace.
    pub path: String,
    /// The first line, from 1.
    pub first_line: u32,
    /// The last line.
    pub last_line: u32,
    /// What the file holds now: SHA-256 in hexadecimal, of its beginning where it is large.
    pub sha256: String,
}

/// What became of an answer's citations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Those that hold, each once, in the order of the text.
    pub right: Vec<CitedPlace>,
    /// Those that do not, as they stand in the text.
    pub wrong: Vec<Citation>,
}

/// How full the context window is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WindowFill {
    /// Tokens of the last prompt.
    pub tokens: u64,
    /// Tokens that fit.
    pub window: u64,
}

impl WindowFill {
    /// In whole per cent.
    #[must_use]
    pub fn percent(self) -> u64 {
        (self.tokens * 100).checked_div(self.window).unwrap_or(0)
    }
}

/// What an answer is made of.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The root.
    pub workspace: &'a Path,
    /// The model's text.
    pub text: &'a str,
    /// Why it ends before its end, if it does.
    pub cut: Option<Cut>,
    /// Its citations.
    pub checked: &'a Checked,
    /// The files whose text the model was shown for this question.
    pub seen: &'a BTreeSet<Source>,
    /// What it took.
    pub tally: &'a Tally,
    /// Who answered.
    pub provider: &'a str,
    /// Which model.
    pub model: &'a str,
    /// How full the window was.
    pub fill: WindowFill,
    /// Files that changed while it was answering.
    pub stale: &'a [String],
    /// What the asker should know besides.
    pub notes: &'a [String],
    /// How long it took.
    pub timing: Timing,
}

/// Why an answer is not whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// At the longest answer, in tokens.
    Length(u32),
    /// Time was up.
    Time,
}

/// The answer to a question as text, trailer and JSON.
#[must_use]
pub fn render(input: &Input<'_>) -> Answer {
    let mut text = printable(&citations::mark(input.text.trim_end(), &input.checked.wrong)).into_owned();
    for line in closing(input) {
        text.push_str("\n\n");
        text.push_str(&line);
    }
    text.push('\n');
    let json = json!({
        "answer": text,
        "workspace": input.workspace.to_string_lossy(),
        "sources": sources(&input.checked.right),
        "files_seen": files_seen(input.seen),
        "usage": usage(input.tally),
        "timing": {
            "total_ms": milliseconds(input.timing.total),
            "queued_ms": milliseconds(input.timing.queued),
            "search_ms": milliseconds(input.timing.search),
        },
        "provider": input.provider,
        "model": input.model,
        "truncated": input.cut.is_some(),
        "citations": { "right": input.checked.right.len(), "wrong": input.checked.wrong.len() },
        "window": { "tokens": input.fill.tokens, "limit": input.fill.window },
        "stale": input.stale,
        "notes": input.notes,
    });
    Answer { text, trailer: trailer(input), json: json.to_string() }
}

fn closing(input: &Input<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    match input.cut {
        None => {}
        Some(Cut::Length(tokens)) => {
            lines.push(format!("{CUT_TO}{tokens} tokens. {LONGER_ANSWER}"));
        }
        Some(Cut::Time) => {
            lines
                .push("Time ran out while this was written: the end is missing. Ask again, or allow more time.".into());
        }
    }
    if !input.stale.is_empty() {
        lines.push(note_line(&format!(
            "{} changed while this was being answered; what it says of {} may be out of date",
            input.stale.join(", "),
            if input.stale.len() == 1 { "that file" } else { "these files" }
        )));
    }
    lines.extend(input.notes.iter().map(|note| note_line(note)));
    lines
}

fn sources(right: &[CitedPlace]) -> Vec<Json> {
    let source = |place: &CitedPlace| {
        json!({
            "path": place.path,
            "first_line": place.first_line,
            "last_line": place.last_line,
            "sha256": place.sha256,
        })
    };
    right.iter().map(source).collect()
}

fn files_seen(seen: &BTreeSet<Source>) -> Vec<Json> {
    seen.iter().map(|source| json!({ "path": source.path, "sha256": source.sha256 })).collect()
}

/// What a question took, as JSON.
#[must_use]
pub fn usage(tally: &Tally) -> Json {
    json!({
        "input_tokens": tally.usage.prompt().unwrap_or(0),
        "cached_tokens": tally.usage.cache_read.unwrap_or(0),
        "output_tokens": tally.usage.output.unwrap_or(0),
        "cost_usd": (!tally.unpriced).then_some(tally.cost_usd),
        "requests": tally.requests,
        "tool_calls": tally.tool_calls,
    })
}

fn trailer(input: &Input<'_>) -> String {
    let tally = input.tally;
    let number = |tokens: Option<u64>| grouped(usize::try_from(tokens.unwrap_or(0)).unwrap_or(usize::MAX));
    let mut line = format!(
        "{} {} · {:.1} s · {} tokens in ({} cached), {} out · {}",
        input.provider,
        input.model,
        input.timing.total.as_secs_f64(),
        number(tally.usage.prompt()),
        number(tally.usage.cache_read),
        number(tally.usage.output),
        price(tally),
    );
    let _ = write!(
        line,
        " · {}, {} read · window {} %",
        counted(tally.tool_calls as usize, "tool call"),
        counted(input.seen.len(), "file"),
        input.fill.percent()
    );
    let (right, wrong) = (input.checked.right.len(), input.checked.wrong.len());
    match (right + wrong, wrong) {
        (0, _) => line.push_str(" · no citations"),
        (all, 0) => {
            let _ = write!(line, " · {} checked", counted(all, "citation"));
        }
        (all, wrong) => {
            let _ = write!(line, " · {} checked, {wrong} wrong", counted(all, "citation"));
        }
    }
    if !input.stale.is_empty() {
        let _ = write!(line, " · {} changed meanwhile", counted(input.stale.len(), "file"));
    }
    match input.cut {
        None => {}
        Some(Cut::Length(_)) => line.push_str(" · cut at the answer's limit"),
        Some(Cut::Time) => line.push_str(" · cut, out of time"),
    }
    line
}

/// What a question cost, for people.
#[must_use]
pub fn price(tally: &Tally) -> String {
    if tally.requests == 0 {
        "$0".to_owned()
    } else if tally.unpriced {
        "price unknown".to_owned()
    } else {
        dollars(tally.cost_usd)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::llm::Usage;

    fn tally() -> Tally {
        let usage = Usage {
            input: Some(1_500),
            cache_read: Some(90_000),
            cache_write_5m: Some(2_000),
            output: Some(640),
            ..Usage::default()
        };
        Tally { usage, cost_usd: 0.001_35, requests: 3, tool_calls: 4, prompt_tokens: 31_000, ..Tally::default() }
    }

    fn source(path: &str) -> Source {
        Source { path: path.into(), sha256: "ab12".into() }
    }

    #[test]
    fn an_answer_says_what_it_took_and_which_places_are_wrong() {
        let text = "Retries are done in src/http.rs:10-20, never in `src/gone.rs:7`.\n";
        let wrong = citations::find(text).split_off(1);
        let place = CitedPlace { path: "src/http.rs".into(), first_line: 10, last_line: 20, sha256: "ab12".into() };
        let answer = render(&Input {
            workspace: Path::new("/home/me/project"),
            text,
            cut: None,
            checked: &Checked { right: vec![place], wrong },
            seen: &[source("src/http.rs"), source("src/main.rs")].into(),
            tally: &tally(),
            provider: "anthropic",
            model: "claude-haiku-5-5",
            fill: WindowFill { tokens: 31_000, window: 100_000 },
            stale: &["src/http.rs".into()],
            notes: &[],
            timing: Timing { total: Duration::from_millis(3_240), ..Timing::default() },
        });
        insta::assert_snapshot!(answer.text, @r"
        Retries are done in src/http.rs:10-20, never in `src/gone.rs:7` (no such place).

        Note: src/http.rs changed while this was being answered; what it says of that file may be out of date
        ");
        insta::assert_snapshot!(answer.trailer, @"anthropic claude-haiku-5-5 · 3.2 s · 93,500 tokens in (90,000 cached), 640 out · $0.0014 · 4 tool calls, 2 files read · window 31 % · 2 citations checked, 1 wrong · 1 file changed meanwhile");
        let json: Json = serde_json::from_str(&answer.json).unwrap();
        assert_eq!(json["sources"][0]["first_line"], 10);
        assert_eq!(json["files_seen"][1]["path"], "src/main.rs");
        assert_eq!((&json["usage"]["cached_tokens"], &json["truncated"]), (&json!(90_000), &json!(false)));
    }

    #[test]
    fn a_cut_answer_says_so_and_an_unknown_price_is_said_to_be_unknown() {
        let answer = render(&Input {
            workspace: Path::new("/p"),
            text: "The beginning",
            cut: Some(Cut::Length(256)),
            checked: &Checked::default(),
            seen: &BTreeSet::new(),
            tally: &Tally { unpriced: true, requests: 1, ..Tally::default() },
            provider: "openai",
            model: "qwen3",
            fill: WindowFill::default(),
            stale: &[],
            notes: &["config.json: no_such is no setting".into()],
            timing: Timing::default(),
        });
        insta::assert_snapshot!(answer.text, @r"
        The beginning

        Cut to 256 tokens. Ask with a larger max_answer_tokens for the rest.

        Note: config.json: no_such is no setting
        ");
        insta::assert_snapshot!(answer.trailer, @"openai qwen3 · 0.0 s · 0 tokens in (0 cached), 0 out · price unknown · 0 tool calls, 0 files read · window 0 % · no citations · cut at the answer's limit");
        let json: Json = serde_json::from_str(&answer.json).unwrap();
        assert_eq!(json["usage"]["cost_usd"], Json::Null);
    }
}
