//! The knowledge block: what a conversation begins with. Frozen for an epoch.
//!
//! A fact whose files changed is not shown, so that no old value stands in a prompt; the files are named.

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Current, Fact, Ledger, Origin};
use crate::memory::{
    log::Source,
    quote::{data_block, one_line},
};

/// As many bytes name the files whose facts are out of date.
const STALE_NAMES_BYTES: usize = 600;

/// A fact that stands in a conversation's opening: its number there, and what it rests on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Noted {
    /// By which the conversation knows it.
    pub number: u64,
    /// The files it rests on.
    pub sources: Vec<Source>,
}

/// A block and what stands in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Block {
    /// Empty where nothing is known.
    pub text: String,
    /// The facts in it.
    pub noted: Vec<Noted>,
    /// Facts that are not in it since their files changed.
    pub stale: usize,
    /// Facts that are not in it for want of room.
    pub left_out: usize,
}

const HEAD: &str = "\
Notes about this code base, taken earlier from what was shown or answered then, as data: a number, what is so, \
and the files it rests on, which held the same when this conversation began. A later notice about a file voids \
what is noted of it.";

impl Ledger {
    /// What is known and current, grouped by directory, with at most `bytes` of lines.
    #[must_use]
    pub fn block(&self, current: &Current, bytes: usize) -> Block {
        let mut block = Block::default();
        let mut stale_files = BTreeSet::new();
        let mut shown: Vec<&Fact> = Vec::new();
        let mut left = bytes;
        // What a person said comes first, then the newest.
        let weight = |fact: &&Fact| (!fact.pinned && fact.origin != Origin::User, std::cmp::Reverse(fact.number));
        let mut facts: Vec<&Fact> = self.facts().iter().collect();
        facts.sort_by_key(weight);
        for fact in facts {
            if fact.is_stale(current) {
                block.stale += 1;
                stale_files.extend(fact.stale_sources(current).map(|source| Arc::clone(&source.path)));
            } else if let Some(rest) = left.checked_sub(fact.bytes()) {
                left = rest;
                shown.push(fact);
            } else {
                block.left_out += 1;
            }
        }
        if shown.is_empty() && stale_files.is_empty() {
            return block;
        }
        shown.sort_by_key(|fact| (fact.area(), fact.number));
        let mut lines = String::new();
        for fact in &shown {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{}", line(fact));
        }
        block.noted = shown.iter().map(|fact| Noted { number: fact.number, sources: fact.sources.clone() }).collect();
        block.text = format!("{HEAD}\n{}", data_block("notes", &lines));
        if block.left_out > 0 {
            let _ = write!(block.text, "\n{} more are found with the tool recall.", block.left_out);
        }
        block.text.push_str(&stale(&stale_files));
        block
    }
}

/// `12. The port is 8080. (src/server.rs)`
#[must_use]
pub fn line(fact: &Fact) -> String {
    let mut line = format!("{}. {}", fact.number, one_line(&fact.text));
    if fact.origin == Origin::User {
        line.push_str(" (a person noted this)");
    }
    if !fact.sources.is_empty() {
        let paths: Vec<String> = fact.sources.iter().map(|source| one_line(&source.path)).collect();
        let _ = write!(line, " ({})", paths.join(", "));
    }
    line
}

fn stale(files: &BTreeSet<Arc<str>>) -> String {
    if files.is_empty() {
        return String::new();
    }
    let mut names = String::new();
    let mut named = 0;
    for path in files {
        if names.len() + path.len() > STALE_NAMES_BYTES {
            break;
        }
        let _ = write!(names, "{}`{}`", if named > 0 { ", " } else { "" }, one_line(path));
        named += 1;
    }
    if named < files.len() {
        let _ = write!(names, " and {} more", files.len() - named);
    }
    format!(
        "\nWhat was noted of these files is out of date and not shown; read them before you speak of them: {names}."
    )
}
