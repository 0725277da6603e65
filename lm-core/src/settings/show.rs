//! Settings as a person and a program read them: `config show`, and what a change has come to.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::{
    resolve::{Origin, Problem, Resolved},
    store::Changed,
    table::{Effect, ROWS, Row, Scope},
};

/// Terminals have at least this many columns.
pub const COLUMNS: usize = 80;

/// The value of a row for people; a credential is only said to be set.
fn value_text(row: &Row, resolved: &Resolved) -> String {
    row.shown(&resolved.settings).map_or_else(|| "-".into(), |value| value.text())
}

/// All settings for a terminal: name, value, and where that comes from where it is not the default.
#[must_use]
pub fn text(resolved: &Resolved, config_file: &str) -> String {
    let width = ROWS.iter().map(|row| row.key.len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in ROWS {
        let mut notes = Vec::new();
        let origin = resolved.origin(row.key);
        if origin != Origin::Default {
            notes.push(origin.to_string());
        }
        notes.extend(resolved.shadowed(row.key).iter().map(|other| format!("shadows {other}")));
        if row.effect == Effect::Planned && origin != Origin::Default {
            notes.push("no effect yet".into());
        }
        let note = if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) };
        let mark = if row.effect == Effect::Planned { '*' } else { ' ' };
        let room = COLUMNS.saturating_sub(width + 2 + note.chars().count());
        let value = shortened(&value_text(row, resolved), room.max(16));
        let _ = writeln!(text, "{}", format!("{:width$}{mark} {value}{note}", row.key).trim_end());
    }
    text.push_str("\n* known and checked, but without effect in this version\n");
    let _ = writeln!(text, "file: {config_file}");
    text.push_str(&problems_text(&resolved.problems));
    text
}

/// What should be repaired, wrapped; empty where nothing should.
#[must_use]
pub fn problems_text(problems: &[Problem]) -> String {
    let mut text = String::new();
    if !problems.is_empty() {
        text.push_str("problems:\n");
    }
    for problem in problems {
        text.push_str(&wrapped(&problem.to_string(), "  ", COLUMNS));
    }
    text
}

/// All settings for programs.
#[must_use]
pub fn json(resolved: &Resolved, config_file: &str) -> Json {
    let settings: serde_json::Map<String, Json> = ROWS
        .iter()
        .map(|row| {
            let shadowed: Vec<_> = resolved.shadowed(row.key).iter().map(|other| origin_word(*other)).collect();
            let about = json!({
                "value": row.shown(&resolved.settings).map(|value| value.json()),
                "origin": origin_word(resolved.origin(row.key)),
                "shadows": shadowed,
                "effect": effect_word(row.effect),
                "scope": scope_word(row.scope),
                "secret": row.kind.is_secret(),
            });
            (row.key.to_owned(), about)
        })
        .collect();
    json!({ "settings": settings, "file": config_file, "problems": problems_json(&resolved.problems) })
}

/// What should be repaired, for programs.
#[must_use]
pub fn problems_json(problems: &[Problem]) -> Json {
    problems
        .iter()
        .map(|problem| {
            json!({
                "origin": origin_word(problem.origin),
                "name": problem.name,
                "message": problem.message,
            })
        })
        .collect()
}

/// What a change has come to, for people: each setting's value, and what keeps it from holding.
#[must_use]
pub fn changed_text(changed: &Changed, daemon_restart: &[&str]) -> String {
    let mut text = String::new();
    for row in &changed.rows {
        let resolved = &changed.resolved;
        let origin = resolved.origin(row.key);
        let _ = writeln!(
            text,
            "{} = {} ({origin})",
            row.key,
            shortened(&value_text(row, resolved), COLUMNS.saturating_sub(row.key.len() + 20))
        );
        if let Some(note) = shadow_note(row, resolved) {
            text.push_str(&wrapped(&note, "  ", COLUMNS));
        }
        if row.effect == Effect::Planned && origin != Origin::Default {
            text.push_str("  It is kept, but has no effect in this version.\n");
        }
        if daemon_restart.contains(&row.key) {
            text.push_str("  It holds from the next start of the daemon on (`lm-shim stop`, then ask).\n");
        }
    }
    for stray in &changed.strays {
        let _ = writeln!(text, "{stray} removed");
    }
    text.push_str(&problems_text(&changed.resolved.problems));
    text
}

/// The same for programs.
#[must_use]
pub fn changed_json(changed: &Changed, config_file: &str) -> Json {
    let settings: serde_json::Map<String, Json> = changed
        .rows
        .iter()
        .map(|row| {
            let about = json!({
                "value": row.shown(&changed.resolved.settings).map(|value| value.json()),
                "origin": origin_word(changed.resolved.origin(row.key)),
                "shadowed": shadow_note(row, &changed.resolved),
                "effect": effect_word(row.effect),
            });
            (row.key.to_owned(), about)
        })
        .collect();
    json!({
        "changed": settings,
        "removed": changed.strays,
        "file": config_file,
        "problems": problems_json(&changed.resolved.problems),
    })
}

/// What keeps the value in `config.json` from holding.
fn shadow_note(row: &Row, resolved: &Resolved) -> Option<String> {
    let origin = resolved.origin(row.key);
    if origin == Origin::Config || !resolved.shadowed(row.key).contains(&Origin::Config) {
        return None;
    }
    let variable = row.variable();
    Some(match origin {
        Origin::Session => format!("{variable} in this session's environment shadows what config.json says."),
        Origin::DaemonEnvironment => {
            format!("{variable} in the environment the daemon was started with shadows what config.json says.")
        }
        _ => format!("The {origin} shadows what config.json says."),
    })
}

fn origin_word(origin: Origin) -> &'static str {
    match origin {
        Origin::Request => "request",
        Origin::Session => "environment",
        Origin::DaemonEnvironment => "daemon_environment",
        Origin::Config => "config",
        Origin::Plugin => "plugin",
        Origin::Default => "default",
    }
}

pub(super) fn effect_word(effect: Effect) -> &'static str {
    match effect {
        Effect::Now => "now",
        Effect::Planned => "planned",
    }
}

fn scope_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Request => "request",
        Scope::Daemon => "daemon",
        Scope::EnvironmentOnly => "environment",
    }
}

/// On one line of at most `room` letters.
#[must_use]
pub fn shortened(text: &str, room: usize) -> String {
    let text: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if text.chars().count() <= room {
        return text;
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// Broken between words into lines of at most `columns` letters, all indented; ends with a new line.
/// A word that is longer stays whole, since it may be a path.
#[must_use]
pub fn wrapped(text: &str, indent: &str, columns: usize) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let length = indent.chars().count() + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && length > columns {
            let _ = writeln!(lines, "{indent}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(lines, "{indent}{line}");
    }
    lines
}
