//! Dependencies between the rooms of `lm-core` run one way.

use std::collections::BTreeMap;

use crate::source::{File, project_files};

/// Each room and the rooms it may name: the whole table, so a new room is entered here first.
const ROOMS: [(&str, &[&str]); 11] = [
    // The daemon hands questions to workspaces alone; the states of the others it only reports. It holds
    // the connections to models that all workspaces share.
    ("daemon", &["workspace", "agent", "budget", "llm", "retrieval", "settings"]),
    ("workspace", &["agent", "budget", "llm", "memory", "retrieval", "tools", "conversation", "files", "settings"]),
    ("agent", &["llm", "memory", "retrieval", "tools", "conversation", "files", "settings"]),
    ("budget", &["llm"]),
    ("llm", &["conversation"]),
    ("memory", &["conversation"]),
    ("retrieval", &["files"]),
    ("tools", &["files"]),
    ("conversation", &[]),
    ("files", &[]),
    ("settings", &[]),
];

/// The rooms a file of a room names besides its own.
fn named_rooms(file: &File) -> BTreeMap<String, usize> {
    let mut named = BTreeMap::new();
    for (number, line) in statements(file) {
        for (start, marker) in line.match_indices("crate::") {
            let rest = &line[start + marker.len()..];
            let rooms: Vec<&str> = match rest.strip_prefix('{') {
                Some(list) => top_level_names(list),
                None => vec![first_word(rest)],
            };
            for room in rooms.into_iter().filter(|room| !room.is_empty()) {
                named.entry(room.to_owned()).or_insert(number);
            }
        }
    }
    named
}

/// Lines of code, with a `use` that spans several lines put on one.
fn statements(file: &File) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    let mut open_use = false;
    for (number, line) in file.code() {
        let trimmed = line.trim();
        if open_use {
            statements.last_mut().unwrap().1.push_str(trimmed);
        } else {
            open_use = trimmed.starts_with("use ") || trimmed.contains(" use ");
            statements.push((number, trimmed.to_owned()));
        }
        open_use &= !trimmed.contains(';');
    }
    statements
}

fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// `a::{b, c}, d}` has the names a and d.
fn top_level_names(list: &str) -> Vec<&str> {
    let mut names = vec![first_word(list.trim_start())];
    let mut depth = 0;
    for (at, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(first_word(list[at + 1..].trim_start())),
            _ => {}
        }
    }
    names
}

fn room_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("lm-core/src/")?;
    let (room, _) = inside.split_once('/')?;
    Some(room)
}

fn violations(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_product_code()) {
        let Some(room) = room_of(&file.path) else { continue };
        let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            violations.push(format!("{}: the room `{room}` has no place in the layers yet", file.path));
            continue;
        };
        for (named, line) in named_rooms(file) {
            if named != room && !allowed.contains(&named.as_str()) {
                violations.push(format!("{}:{line}: `{room}` may not know `{named}`", file.path));
            }
        }
    }
    violations
}

#[test]
fn the_rooms_of_the_daemon_depend_one_way() {
    let violations = violations(&project_files());
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn the_layers_have_no_cycle() {
    let allowed = BTreeMap::from(ROOMS);
    let mut placed: Vec<&str> = Vec::new();
    while placed.len() < ROOMS.len() {
        let next =
            ROOMS.iter().find(|(name, below)| !placed.contains(name) && below.iter().all(|room| placed.contains(room)));
        let Some((name, _)) = next else { panic!("a cycle among {allowed:?} without {placed:?}") };
        placed.push(name);
    }
}

#[test]
fn a_violation_is_seen() {
    let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
    let seen = |path: &str, text: &str| violations(&[file(path, text)]).len();
    assert_eq!(seen("lm-core/src/files/door.rs", "use crate::settings::Settings;"), 1);
    assert_eq!(seen("lm-core/src/retrieval/mod.rs", "use crate::{\n    files::{Door, Entry},\n    agent,\n};"), 1);
    assert_eq!(seen("lm-core/src/retrieval/mod.rs", "fn f() { crate::daemon::stop() }"), 1);
    assert_eq!(seen("lm-core/src/gossip/mod.rs", ""), 1);
    assert_eq!(seen("lm-core/src/agent/mod.rs", "use crate::{agent::x, files};\n// crate::daemon"), 0);
}
