//! What is said about forgetting, pausing, and what sessions have read and edited. Pure.

use std::path::Path;

use lm_proto::message::Report;
use serde_json::{Value as Json, json};

use super::reports::bytes_text;
use crate::{
    agent::offline::counted,
    settings::show,
    workspace::{Dropped, Forgotten, KeptSize, MemoryStatus, ObservationStatus, Paused},
};

/// One workspace was emptied.
pub(super) fn emptied(forgotten: &Forgotten) -> Report {
    let name = name(forgotten);
    let text = if is_nothing(forgotten) {
        format!("Nothing was remembered of {name}.")
    } else {
        format!("Forgot everything of {name}: {}.", amount(std::slice::from_ref(forgotten)))
    };
    report(text, std::slice::from_ref(forgotten))
}

/// One workspace was emptied and opened anew.
pub(super) fn reset(forgotten: &Forgotten, begun: &MemoryStatus) -> Report {
    let name = name(forgotten);
    let mut text = if is_nothing(forgotten) {
        format!("Nothing was remembered of {name}; its memory begins now.")
    } else {
        format!("Forgot everything of {name}: {}. Its memory begins anew.", amount(std::slice::from_ref(forgotten)))
    };
    if !begun.preloaded.is_empty() {
        text.push_str(&format!(" Loaded: {}.", begun.preloaded.join(", ")));
    }
    if !begun.skipped.is_empty() {
        text.push_str(&format!(" Not loaded: {}.", begun.skipped.join("; ")));
    }
    report(text, std::slice::from_ref(forgotten))
}

/// All workspaces were emptied.
pub(super) fn all_emptied(forgotten: &[Forgotten]) -> Report {
    let text = if forgotten.is_empty() {
        "Nothing was remembered of any workspace.".to_owned()
    } else {
        format!("Forgot everything of {}: {}.", counted(forgotten.len(), "workspace"), amount(forgotten))
    };
    report(text, forgotten)
}

/// Learning was paused, or goes on.
pub(super) fn paused(outcome: &Paused, ingestion: bool) -> Report {
    let root = outcome.root.display();
    let what = format!("learning from what sessions read and edit in `{root}`");
    let mut text = match (outcome.before, outcome.now) {
        (false, true) => {
            format!("Paused {what}. Questions are answered as before; `lm-shim resume` goes on with it.")
        }
        (true, true) => format!("Already paused: {what}. `lm-shim resume` goes on with it."),
        (true, false) => format!("Resumed {what}."),
        (false, false) => format!("Nothing to resume: {what} was not paused."),
    };
    if !outcome.now && !ingestion {
        text.push_str(" The setting passive_ingestion is off, though, so nothing is learned.");
    }
    let json = json!({ "workspace": root.to_string(), "paused": outcome.now, "was_paused": outcome.before });
    Report { text: show::wrapped(&text, "", show::COLUMNS), json: json.to_string(), healthy: true }
}

fn report(mut text: String, forgotten: &[Forgotten]) -> Report {
    let running: u32 = forgotten.iter().map(|one| one.running).sum();
    if running > 0 {
        let running = counted(running as usize, "question");
        text.push_str(&format!(" {running} still being answered will not be remembered."));
    }
    if forgotten.iter().any(|one| one.was_paused) {
        text.push_str(" Learning was paused and is not any more.");
    }
    let mut paragraphs = vec![text];
    paragraphs.extend(
        forgotten
            .iter()
            .filter_map(|one| one.left.as_ref())
            .map(|left| format!("Not all is gone: {left}. Run `lm-shim stop`, then the same command again.")),
    );
    let text: String = paragraphs.iter().map(|paragraph| show::wrapped(paragraph, "", show::COLUMNS)).collect();
    let sum = disk(forgotten);
    let json = json!({
        "workspaces": forgotten.iter().map(|one| json!({
            "root": one.root.as_deref().map(|root: &Path| root.display().to_string()),
            "key": one.key,
            "answers": one.answers,
            "observed_files": one.observed,
            "files": one.disk.files,
            "bytes": one.disk.bytes,
            "running": one.running,
            "was_paused": one.was_paused,
            "error": one.left,
        })).collect::<Json>(),
        "files": sum.files,
        "bytes": sum.bytes,
    });
    Report { text, json: json.to_string(), healthy: forgotten.iter().all(|one| one.left.is_none()) }
}

fn name(forgotten: &Forgotten) -> String {
    match &forgotten.root {
        Some(root) => format!("`{}`", root.display()),
        None => "the workspace".to_owned(),
    }
}

fn is_nothing(forgotten: &Forgotten) -> bool {
    *forgotten == Forgotten { root: forgotten.root.clone(), key: forgotten.key.clone(), ..Forgotten::default() }
}

/// `2 answers, 12 observed files, 4 files on disk (45.2 kB)`.
fn amount(forgotten: &[Forgotten]) -> String {
    let answers: usize = forgotten.iter().map(|one| one.answers).sum();
    let observed: usize = forgotten.iter().map(|one| one.observed).sum();
    let KeptSize { files, bytes } = disk(forgotten);
    let on_disk = counted(usize::try_from(files).unwrap_or(usize::MAX), "file");
    format!(
        "{}, {}, {on_disk} on the disk ({})",
        counted(answers, "answer"),
        counted(observed, "observed file"),
        bytes_text(bytes)
    )
}

fn disk(forgotten: &[Forgotten]) -> KeptSize {
    forgotten.iter().fold(KeptSize::default(), |sum, one| KeptSize {
        files: sum.files + one.disk.files,
        bytes: sum.bytes + one.disk.bytes,
    })
}

/// What is known besides the conversation, as further parts of a line.
pub(super) fn facts_text(memory: &MemoryStatus) -> String {
    let many = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let mut text = String::new();
    if memory.facts > 0 {
        text.push_str(&format!("; {}", counted(memory.facts, "fact")));
        if memory.stale_facts > 0 {
            text.push_str(&format!(", {} out of date", memory.stale_facts));
        }
    }
    if memory.archived > 0 {
        text.push_str(&format!("; {} archived", memory.archived));
        if memory.archive_dropped > 0 {
            text.push_str(&format!(", {} dropped for want of room", memory.archive_dropped));
        }
    }
    if memory.compactions + memory.shed > 0 {
        text.push_str(&format!("; {}", counted(many(memory.compactions), "compaction")));
        if memory.shed > 0 {
            text.push_str(&format!(" and {} without a summary", memory.shed));
        }
    }
    if memory.dropped_notes > 0 {
        text.push_str(&format!("; {} that were no facts", counted(many(memory.dropped_notes), "note")));
    }
    if let Some(failure) = &memory.summary_failure {
        text.push_str(&format!("; the last summary failed: {failure}"));
    }
    text
}

/// What became of observations since the daemon started.
pub(super) fn observations_text(observations: &ObservationStatus) -> String {
    let taken = counted(usize::try_from(observations.taken).unwrap_or(usize::MAX), "observation");
    let mut text = format!("{taken} of what sessions read and edit");
    if observations.waiting > 0 {
        text.push_str(&format!(", {} waiting", observations.waiting));
    }
    let Dropped { off, paused, excluded, out_of_scope, left_out, outside, unreadable, overflow, forgotten } =
        observations.dropped;
    let reasons = [
        (outside, "in no workspace"),
        (out_of_scope, "outside file_globs"),
        (left_out, "ignored, binary, secret or not there"),
        (excluded, "excluded"),
        (paused, "while paused"),
        (off, "while passive_ingestion was off"),
        (unreadable, "unreadable"),
        (overflow, "too many at once"),
        (forgotten, "emptied meanwhile"),
    ];
    let named: Vec<String> =
        reasons.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}")).collect();
    if !named.is_empty() {
        text.push_str("; passed over: ");
        text.push_str(&named.join(", "));
    }
    text
}

/// The same for programs.
pub(super) fn observations_json(observations: &ObservationStatus) -> Json {
    let Dropped { off, paused, excluded, out_of_scope, left_out, outside, unreadable, overflow, forgotten } =
        observations.dropped;
    json!({
        "waiting": observations.waiting,
        "taken": observations.taken,
        "dropped": {
            "outside": outside,
            "out_of_scope": out_of_scope,
            "left_out": left_out,
            "excluded": excluded,
            "paused": paused,
            "off": off,
            "unreadable": unreadable,
            "overflow": overflow,
            "forgotten": forgotten,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forgotten(answers: usize) -> Forgotten {
        Forgotten {
            root: Some("/home/me/project".into()),
            key: "ab".repeat(32),
            answers,
            observed: 1_200,
            disk: KeptSize { files: 9, bytes: 45_200 },
            ..Forgotten::default()
        }
    }

    #[test]
    fn what_went_is_said_with_counts() {
        let nothing = Forgotten { root: Some("/w".into()), ..Forgotten::default() };
        let stuck = Forgotten {
            left: Some("cannot remove all of it from `/data/workspaces`: access is denied".into()),
            ..forgotten(0)
        };
        let busy = Forgotten { running: 2, was_paused: true, ..forgotten(1) };
        let begun = MemoryStatus {
            preloaded: vec!["CLAUDE.md".into(), "README.md".into()],
            skipped: vec!["docs/all.md: 300000 bytes are more than passive_max_file_bytes allows (262144)".into()],
            ..MemoryStatus::default()
        };
        let paused_now = |before, now| Paused { root: "/w".into(), before, now };
        let texts = [
            emptied(&forgotten(3)).text,
            emptied(&nothing).text,
            emptied(&busy).text,
            emptied(&stuck).text,
            reset(&forgotten(3), &begun).text,
            reset(&nothing, &MemoryStatus::default()).text,
            all_emptied(&[forgotten(3), busy]).text,
            all_emptied(&[]).text,
            paused(&paused_now(false, true), true).text,
            paused(&paused_now(true, true), true).text,
            paused(&paused_now(true, false), true).text,
            paused(&paused_now(false, false), false).text,
        ];
        let all = texts.join("--\n");
        assert!(all.lines().all(|line| line.chars().count() <= 80), "{all}");
        insta::assert_snapshot!(all);
        assert!(!emptied(&stuck).healthy && emptied(&nothing).healthy);
    }

    #[test]
    fn programs_get_the_same() {
        let json: Json = serde_json::from_str(&all_emptied(&[forgotten(3), forgotten(0)]).json).unwrap();
        assert_eq!((json["files"].as_u64(), json["bytes"].as_u64()), (Some(18), Some(90_400)));
        assert_eq!(json["workspaces"][0]["answers"], 3);
        assert_eq!(json["workspaces"][0]["observed_files"], 1_200);
    }
}
