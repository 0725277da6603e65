//! What the daemon says about itself: text for a terminal, the same as JSON. Pure but for the data
//! directory, which is measured.

use std::{
    fmt::Write as _,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use lm_proto::{DataDirectory, message::Report};
use serde_json::{Value as Json, json};

use super::{memory_report, provider_report, spending_report, status::Status};
use crate::{
    agent::{offline::counted, provider::ChosenModel},
    budget::Spent,
    retrieval::{IndexState, IndexStatus},
    settings::{Origin, Resolved, show, table::ROWS},
    workspace::{ObservationStatus, WorkspaceStatus},
};

/// Entries of the data directory that are counted; beyond it its size is a lower bound.
const MEASURED_MAX: usize = 100_000;

/// What a report about the daemon is made of.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "it holds a key")]
pub struct Subject<'a> {
    /// The daemon.
    pub status: &'a Status,
    /// Its data directory.
    pub data: &'a DataDirectory,
    /// What holds for the session that asks.
    pub resolved: &'a Resolved,
    /// The file they come from.
    pub config_file: &'a Path,
    /// The workspaces that are open, that of the session first.
    pub workspaces: &'a [WorkspaceStatus],
    /// The root of the session's directory, or why it has none; `None` where it gave no directory.
    pub root: Option<&'a Result<String, String>>,
    /// Who would answer the session's questions, or why the choice cannot be followed.
    pub model: &'a Result<Option<ChosenModel>, String>,
    /// What models have cost.
    pub spent: &'a Spent,
    /// What became of what sessions have read and edited.
    pub observations: ObservationStatus,
    /// Names of provider keys in the session's environment.
    pub inherited_keys: &'a [&'static str],
    /// The time.
    pub now: SystemTime,
}

/// What the daemon knows and has done.
#[must_use]
pub fn stats(subject: &Subject<'_>) -> Report {
    let status = subject.status;
    let uptime = subject.now.duration_since(status.started_at).unwrap_or_default();
    let size = directory_size(subject.data.root());
    let questions = Questions::of(subject);
    let shadowed = shadowed(subject.resolved);

    let mut text = String::new();
    let mut row = |label: &str, value: &str| text.push_str(&labelled(label, value));
    let clients = counted(status.clients(), "client");
    row("daemon", &format!("{}, up {}, process {}, {clients}", status.build, lasting(uptime), status.pid));
    row("questions", &questions.text());
    row("provider", &provider_report::text(subject));
    for (index, paragraph) in spending_report::text(subject).iter().enumerate() {
        row(if index == 0 { "spent" } else { "" }, paragraph);
    }
    let temporary = if subject.data.is_temporary() { ", temporary: no home directory can be written" } else { "" };
    row("data", &format!("{} ({}{temporary})", subject.data.root().display(), size.text()));
    row("endpoint", &status.endpoint.display().to_string());
    row(
        "log",
        &status.log.as_ref().map_or_else(|| "none: no file can be written".into(), |log| log.display().to_string()),
    );
    row("settings", &settings_text(subject, &shadowed));
    let last_error = status.last_error();
    if let Some(error) = &last_error {
        let ago = lasting(subject.now.duration_since(error.at).unwrap_or_default());
        row("last error", &format!("{ago} ago: {}", error.message));
    }
    if let Some(Err(reason)) = subject.root {
        row("here", reason);
    }
    row("observed", &memory_report::observations_text(&subject.observations));
    row("workspaces", &workspaces_text(subject.workspaces));
    for workspace in subject.workspaces {
        let _ = writeln!(text, "  {}", workspace.root.display());
        text.push_str(&show::wrapped(&workspace_text(workspace), "    ", show::COLUMNS));
    }
    text.push_str(&show::problems_text(&subject.resolved.problems));

    let json = json!({
        "daemon": {
            "pid": status.pid,
            "build": status.build.to_string(),
            "started_at": seconds(status.started_at),
            "uptime_s": uptime.as_secs(),
            "clients": status.clients(),
            "endpoint": status.endpoint.display().to_string(),
            "log_file": status.log.as_ref().map(|log| log.display().to_string()),
            "data_directory": subject.data.root().display().to_string(),
            "data_is_temporary": subject.data.is_temporary(),
            "data_bytes": size.bytes,
        },
        "questions": questions.json(),
        "last_error": last_error.map(|error| json!({ "at": seconds(error.at), "message": error.message })),
        "provider": provider_report::json(subject),
        "spending": spending_report::json(subject),
        "workspace": subject.root.map(|root| match root {
            Ok(root) => json!({ "root": root, "error": null }),
            Err(error) => json!({ "root": null, "error": error }),
        }),
        "observations": memory_report::observations_json(&subject.observations),
        "workspaces": subject.workspaces.iter().map(workspace_json).collect::<Json>(),
        "settings": {
            "file": subject.config_file.display().to_string(),
            "problems": show::problems_json(&subject.resolved.problems),
            "shadowed": shadowed.iter().map(|(key, origin)| {
                json!({ "name": key, "by": origin.to_string() })
            }).collect::<Json>(),
        },
    });
    Report { text, json: json.to_string(), healthy: true }
}

struct Questions {
    answered: u64,
    failed: u64,
    refused: u64,
    cancelled: u64,
    running: u64,
}

impl Questions {
    fn of(subject: &Subject<'_>) -> Self {
        let status = subject.status;
        Self {
            answered: status.answered(),
            failed: status.failed(),
            refused: status.refused(),
            cancelled: status.cancelled(),
            running: u64::try_from(status.questions()).unwrap_or(u64::MAX),
        }
    }

    fn text(&self) -> String {
        let Self { answered, failed, refused, cancelled, running } = self;
        format!("{answered} answered, {failed} failed, {refused} refused, {cancelled} cancelled, {running} running")
    }

    fn json(&self) -> Json {
        let Self { answered, failed, refused, cancelled, running } = self;
        json!({ "answered": answered, "failed": failed, "refused": refused, "cancelled": cancelled, "running": running })
    }
}

/// Settings with a value in `config.json` that something stronger keeps from holding.
fn shadowed(resolved: &Resolved) -> Vec<(&'static str, Origin)> {
    ROWS.iter()
        .filter(|row| resolved.shadowed(row.key).contains(&Origin::Config))
        .map(|row| (row.key, resolved.origin(row.key)))
        .collect()
}

fn settings_text(subject: &Subject<'_>, shadowed: &[(&str, Origin)]) -> String {
    let set = ROWS.iter().filter(|row| subject.resolved.origin(row.key) != Origin::Default).count();
    let mut text = format!("{set} of {} set", ROWS.len());
    for (key, origin) in shadowed {
        let _ = write!(text, "; {key} in config.json is shadowed by the {origin}");
    }
    let problems = subject.resolved.problems.len();
    if problems > 0 {
        let _ = write!(text, "; {} below", counted(problems, "problem"));
    }
    text
}

/// A workspace that no search has reached yet is known, but not open.
fn workspaces_text(workspaces: &[WorkspaceStatus]) -> String {
    let unopened = workspaces.iter().filter(|workspace| workspace.index.state == IndexState::Unopened).count();
    let open = format!("{} open", workspaces.len() - unopened);
    if unopened == 0 { open } else { format!("{open}, {unopened} not opened yet") }
}

fn workspace_text(workspace: &WorkspaceStatus) -> String {
    let gone = if workspace.vanished { "its directory is gone; " } else { "" };
    let mut text = format!(
        "{gone}index {}; {} answered, {} running, {} waiting",
        index_text(&workspace.index),
        workspace.answered,
        workspace.running,
        workspace.waiting
    );
    let memory = &workspace.memory;
    if memory.answers > 0 {
        let _ =
            write!(text, "; remembers {}, window {} % full", counted(memory.answers, "answer"), memory.fill.percent());
    }
    if memory.known_files > 0 {
        let _ = write!(text, "; knows {}", counted(memory.known_files, "file"));
    }
    text.push_str(&memory_report::facts_text(memory));
    if workspace.paused {
        text.push_str("; learning is paused");
        if workspace.missed > 0 {
            let _ = write!(text, ", {} passed over", counted(workspace.missed as usize, "observation"));
        }
    }
    for trouble in &memory.troubles {
        let _ = write!(text, "; {trouble}");
    }
    if !memory.skipped.is_empty() {
        let _ = write!(text, "; not preloaded: {}", memory.skipped.join(", "));
    }
    let left_out = workspace.index.left_out;
    if left_out.secret > 0 {
        let _ = write!(text, "; {} with secrets left out", counted(left_out.secret, "file"));
    }
    text
}

/// Where an index stands, for people.
#[must_use]
pub fn index_text(index: &IndexStatus) -> String {
    let holds = format!("{}, {}", counted(index.files, "file"), bytes_text(index.bytes));
    match &index.state {
        IndexState::Unopened => "not opened yet".into(),
        IndexState::Building => "being built, searches are live".into(),
        IndexState::Ready => format!("ready, {holds}"),
        IndexState::Updating => format!("being updated, {holds}"),
        IndexState::TooLarge => "not kept: too many files; searches are live".into(),
        IndexState::Failed(reason) => format!("failed: {reason}; searches are live"),
    }
}

fn workspace_json(workspace: &WorkspaceStatus) -> Json {
    let index = &workspace.index;
    let (state, error) = match &index.state {
        IndexState::Unopened => ("unopened", None),
        IndexState::Building => ("building", None),
        IndexState::Ready => ("ready", None),
        IndexState::Updating => ("updating", None),
        IndexState::TooLarge => ("too_large", None),
        IndexState::Failed(reason) => ("failed", Some(reason)),
    };
    json!({
        "root": workspace.root.display().to_string(),
        "key": workspace.key,
        "vanished": workspace.vanished,
        "questions": {
            "answered": workspace.answered,
            "running": workspace.running,
            "waiting": workspace.waiting,
        },
        "paused": workspace.paused,
        "observed": { "files": workspace.memory.observed_files, "missed": workspace.missed },
        "index": {
            "state": state,
            "error": error,
            "files": index.files,
            "bytes": index.bytes,
            "built_ms": index.built_in.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        },
        "memory": {
            "answers": workspace.memory.answers,
            "epoch": workspace.memory.epoch,
            "window_tokens": workspace.memory.fill.tokens,
            "known_files": workspace.memory.known_files,
            "observations": workspace.memory.observations,
            "preloaded": workspace.memory.preloaded,
            "not_preloaded": workspace.memory.skipped,
            "troubles": workspace.memory.troubles,
            "facts": workspace.memory.facts,
            "stale_facts": workspace.memory.stale_facts,
            "archived": workspace.memory.archived,
            "archive_dropped": workspace.memory.archive_dropped,
            "compactions": workspace.memory.compactions,
            "shed": workspace.memory.shed,
            "dropped_notes": workspace.memory.dropped_notes,
            "summary_failure": workspace.memory.summary_failure,
            "summing_up": workspace.memory.summing_up,
        },
    })
}

/// A label, then a value in a column of its own.
pub(super) fn labelled(label: &str, value: &str) -> String {
    const COLUMN: usize = 12;
    let lines = show::wrapped(value, &" ".repeat(COLUMN), show::COLUMNS);
    format!("{label:COLUMN$}{}", lines.get(COLUMN..).unwrap_or("\n"))
}

/// `45 s`, `3 min`, `2 h 5 min`, `3 d 4 h`.
fn lasting(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// `512 B`, `1.5 kB`, `12.3 MB`: powers of a thousand.
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    let (unit, size) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => ("kB", 1e3),
        1_000_000..1_000_000_000 => ("MB", 1e6),
        _ => ("GB", 1e9),
    };
    format!("{:.1} {unit}", bytes as f64 / size)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

struct Size {
    bytes: u64,
    complete: bool,
}

impl Size {
    fn text(&self) -> String {
        format!("{}{}", if self.complete { "" } else { "at least " }, bytes_text(self.bytes))
    }
}

/// The bytes of all files below a directory; links are not followed.
fn directory_size(root: &Path) -> Size {
    let mut size = Size { bytes: 0, complete: true };
    let mut entries = 0;
    let mut rest = vec![root.to_owned()];
    while let Some(directory) = rest.pop() {
        let Ok(listing) = std::fs::read_dir(directory) else { continue };
        for entry in listing.flatten() {
            entries += 1;
            if entries > MEASURED_MAX {
                size.complete = false;
                return size;
            }
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => rest.push(entry.path()),
                Ok(metadata) if metadata.is_file() => size.bytes += metadata.len(),
                _ => {}
            }
        }
    }
    size
}

#[cfg(test)]
#[path = "reports_tests.rs"]
mod tests;
