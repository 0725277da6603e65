//! What people do with a memory by hand, and what is said about it.

use std::path::Path;

use lm_proto::message::{Failure, FailureKind, Report, Request};
use serde_json::{Value as Json, json};

use crate::{
    agent::offline::counted,
    settings::{SettingsStore, show},
    workspace::{Exported, Imported, KnownFact, Of, PartlyForgotten, PastAnswer, PeopleError, Remembered, Workspaces},
};

/// How many things are named that are, or would be, forgotten.
const NAMED_MAX: usize = 20;
/// How much of an answer is shown in a history, in characters.
const ANSWER_SHOWN: usize = 240;

/// Answers such a request. Blocks.
pub(super) fn by_hand(workspaces: &Workspaces, store: &SettingsStore, request: Request) -> Result<Report, Failure> {
    let report = match request {
        Request::Remember { cwd, text, environment } => {
            let settings = store.for_request(&environment).settings;
            workspaces.remember(Path::new(&cwd), &text, &settings).map(|done| remembered(&done))
        }
        Request::Forget { cwd, pattern, confirmed, environment } => {
            let settings = store.for_request(&environment).settings;
            workspaces.forget_part(Path::new(&cwd), &pattern, confirmed, &settings).map(|done| forgotten(&done))
        }
        Request::Pin { cwd, pattern, pinned, environment } => {
            let settings = store.for_request(&environment).settings;
            workspaces.pin(Path::new(&cwd), &pattern, pinned, &settings).map(|done| self::pinned(&done, pinned))
        }
        Request::Ledger { cwd, environment } => {
            let settings = store.for_request(&environment).settings;
            workspaces.facts(Path::new(&cwd), &settings).map(|facts| ledger(&facts))
        }
        Request::History { cwd, limit, environment } => {
            let settings = store.for_request(&environment).settings;
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            workspaces.history(Path::new(&cwd), &settings).map(|answers| history(&answers, limit))
        }
        Request::Export { cwd, environment } => {
            let settings = store.for_request(&environment).settings;
            workspaces.export(Path::new(&cwd), &settings).map(exported)
        }
        Request::Import { cwd, lines, environment } => {
            let settings = store.for_request(&environment).settings;
            workspaces.import(Path::new(&cwd), &lines, &settings).map(|done| imported(&done))
        }
        _ => return Err(Failure::new(FailureKind::Internal, "this request is answered elsewhere")),
    };
    report.map_err(|error: PeopleError| Failure::new(FailureKind::InvalidRequest, error.to_string()))
}

fn report(text: &str, json: &Json) -> Report {
    Report { text: text.to_owned(), json: json.to_string(), healthy: true }
}

fn paragraph(text: &str) -> String {
    show::wrapped(text, "", show::COLUMNS)
}

fn remembered(done: &Of<Remembered>) -> Report {
    let Remembered { number, text, was_known } = &done.what;
    let how = if *was_known { "Known already" } else { "Noted" };
    let said = format!("{how} as #{number} of `{}`: {text}", done.root.display());
    report(
        &paragraph(&said),
        &json!({ "workspace": root(done), "number": number, "text": text, "was_known": was_known }),
    )
}

fn forgotten(done: &Of<PartlyForgotten>) -> Report {
    let PartlyForgotten { meaning, facts, archived, answers, files, is_done } = &done.what;
    let json = json!({
        "workspace": root(done),
        "meaning": meaning,
        "facts": facts,
        "archived": archived,
        "answers": answers,
        "files": files,
        "is_done": is_done,
    });
    if done.what.is_nothing() {
        return report(&paragraph(&format!("Nothing is known of {meaning} in `{}`.", done.root.display())), &json);
    }
    let amount = format!(
        "{}, {} in the archive, {}, {}",
        counted(facts.len(), "fact"),
        archived,
        counted(answers.len(), "answer"),
        counted(files.len(), "known file")
    );
    let mut text = paragraph(&match is_done {
        true => format!("Forgot what is known of {meaning}: {amount}. It stays forgotten until it is seen anew."),
        false => format!(
            "This would forget what is known of {meaning}: {amount}. Nothing was forgotten yet; give the same command \
             with --yes."
        ),
    });
    named(&mut text, "facts", facts);
    named(&mut text, "answers to", answers);
    named(&mut text, "files", files);
    report(&text, &json)
}

fn named(text: &mut String, what: &str, names: &[String]) {
    if names.is_empty() {
        return;
    }
    text.push_str(&format!("{what}:\n"));
    for name in names.iter().take(NAMED_MAX) {
        text.push_str(&show::wrapped(name, "  ", show::COLUMNS));
    }
    if names.len() > NAMED_MAX {
        text.push_str(&format!("  and {} more\n", names.len() - NAMED_MAX));
    }
}

fn pinned(done: &Of<(String, usize)>, is_pinned: bool) -> Report {
    let (meaning, count) = &done.what;
    let facts = counted(*count, "fact");
    let text = match (count, is_pinned) {
        (0, _) => format!("No fact is about {meaning}; `lm-shim ledger` lists them."),
        (_, true) => format!("Pinned {facts} about {meaning}: kept as long as anything else can make room."),
        (_, false) => format!("No longer pinned: {facts} about {meaning}."),
    };
    let json = json!({ "workspace": root(done), "meaning": meaning, "facts": count, "pinned": is_pinned });
    Report { text: paragraph(&text), json: json.to_string(), healthy: *count > 0 }
}

fn ledger(facts: &Of<Vec<KnownFact>>) -> Report {
    let stale = facts.what.iter().filter(|known| !known.stale.is_empty()).count();
    let mut text = paragraph(&match facts.what.len() {
        0 => format!(
            "No facts are known of `{}` yet. They are noted when a conversation fills its window, and by `lm-shim \
             remember`.",
            facts.root.display()
        ),
        count => format!("{} of `{}`, {stale} out of date.", counted(count, "fact"), facts.root.display()),
    });
    for KnownFact { fact, stale } in &facts.what {
        let pinned = if fact.pinned { ", pinned" } else { "" };
        text.push_str(&show::wrapped(&format!("#{} {}", fact.number, fact.text), "", show::COLUMNS));
        let sources: Vec<&str> = fact.sources.iter().map(|source| &*source.path).collect();
        let from = if sources.is_empty() { String::new() } else { format!(" from {}", sources.join(", ")) };
        let stale =
            if stale.is_empty() { String::new() } else { format!("; OUT OF DATE: {} changed", stale.join(", ")) };
        text.push_str(&show::wrapped(&format!("{}{pinned}{from}{stale}", fact.origin.name()), "    ", show::COLUMNS));
    }
    let json = json!({
        "workspace": root(facts),
        "facts": facts.what.iter().map(|KnownFact { fact, stale }| json!({
            "number": fact.number,
            "text": &*fact.text,
            "origin": fact.origin.name(),
            "at": fact.at,
            "pinned": fact.pinned,
            "sources": fact.sources.iter().map(|source| json!({
                "path": &*source.path,
                "sha256": &*source.sha256,
            })).collect::<Json>(),
            "stale": stale,
        })).collect::<Json>(),
    });
    report(&text, &json)
}

fn history(answers: &Of<Vec<PastAnswer>>, limit: usize) -> Report {
    let all = &answers.what;
    let shown = &all[all.len().saturating_sub(limit)..];
    let mut text = paragraph(&match all.len() {
        0 => format!("Nothing was answered by a model about `{}` yet.", answers.root.display()),
        count => format!("{} about `{}`, the newest last.", counted(count, "answer"), answers.root.display()),
    });
    for answer in shown {
        text.push_str(&show::wrapped(&format!("> {}", answer.question), "", show::COLUMNS));
        let words: String = answer.text.chars().take(ANSWER_SHOWN).collect();
        let more = if words.len() < answer.text.len() { " \u{2026}" } else { "" };
        text.push_str(&show::wrapped(&format!("{words}{more}"), "    ", show::COLUMNS));
    }
    let json = json!({
        "workspace": root(answers),
        "answers": shown.iter().map(|answer| json!({
            "question": &*answer.question,
            "answer": &*answer.text,
            "at": (answer.at > 0).then_some(answer.at),
            "files": answer.sources.iter().map(|source| &*source.path).collect::<Vec<_>>(),
        })).collect::<Json>(),
        "in_all": all.len(),
    });
    report(&text, &json)
}

fn exported(done: Of<Exported>) -> Report {
    let json = json!({ "workspace": root(&done), "count": done.what.count, "left_out": done.what.left_out });
    Report { text: done.what.lines, json: json.to_string(), healthy: true }
}

fn imported(done: &Of<Imported>) -> Report {
    let Imported { facts, stale, answers, known, dropped } = done.what;
    let mut text = format!(
        "Took in {} ({stale} out of date here) and {} into the memory of `{}`; {known} were known.",
        counted(facts, "fact"),
        counted(answers, "answer"),
        done.root.display()
    );
    if dropped > 0 {
        text.push_str(&format!(" Passed over {}: unreadable, no facts, or secret.", counted(dropped, "line")));
    }
    let json = json!({
        "workspace": root(done), "facts": facts, "stale": stale, "answers": answers, "known": known, "dropped": dropped,
    });
    report(&paragraph(&text), &json)
}

fn root<T>(of: &Of<T>) -> String {
    of.root.display().to_string()
}
