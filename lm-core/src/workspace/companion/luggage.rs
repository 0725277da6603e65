//! A memory as lines that can be read, taken along, and taken in where the repository is the same.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::Companion;
use crate::{
    files::{WorkspaceFiles, holds_secret},
    memory::{
        archive::Entry,
        ledger::{Draft, FACT_BYTES_MAX, Fact, Origin, SOURCES_MAX, fact_line, instructions::is_instruction},
        log::Source,
    },
};

/// The version of the format.
const VERSION: u32 = 1;
/// As many bytes are exported at most, so that they fit into one message.
const BYTES_MAX: usize = 6 << 20;
/// So many files that are the same show that it is the same repository; fewer where it names fewer.
const SAME_FILES_MIN: usize = 3;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first one.
    LiveMemory {
        version: u32,
        root: String,
    },
    Fact(Fact),
    Answer(crate::memory::archive::PastAnswer),
}

/// A memory as lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exported {
    /// JSON, one object a line.
    pub lines: String,
    /// Facts and answers in it.
    pub count: usize,
    /// What there was no room for.
    pub left_out: usize,
}

/// What was taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Imported {
    /// Facts that were not known.
    pub facts: usize,
    /// Those of them that are out of date here.
    pub stale: usize,
    /// Answers, which go to the archive.
    pub answers: usize,
    /// Facts and answers that were known.
    pub known: usize,
    /// Lines that were not taken: unreadable, no facts, or secret.
    pub dropped: usize,
}

impl Companion {
    /// Everything that is known, the weightiest first.
    pub(in crate::workspace) fn export(&self) -> Exported {
        let mut exported = Exported { lines: String::new(), count: 0, left_out: 0 };
        let header = Line::LiveMemory { version: VERSION, root: self.root.display().to_string() };
        push(&mut exported.lines, &header);
        let answers = self.history().into_iter().rev().map(Line::Answer);
        let facts = self.remembered().into_iter().filter_map(|entry| match entry {
            Entry::Fact(fact) => Some(Line::Fact(fact)),
            Entry::Answer(_) => None,
        });
        for line in facts.chain(answers) {
            let before = exported.lines.len();
            push(&mut exported.lines, &line);
            if exported.lines.len() > BYTES_MAX {
                exported.lines.truncate(before);
                exported.left_out += 1;
            } else {
                exported.count += 1;
            }
        }
        exported
    }

    /// Takes lines in where they are about this repository.
    pub(in crate::workspace) fn import(
        &self,
        lines: &str,
        files: &WorkspaceFiles,
        deadline: Instant,
    ) -> Result<Imported, String> {
        let mut read = lines.lines().filter(|line| !line.trim().is_empty());
        let root = match read.next().map(serde_json::from_str) {
            Some(Ok(Line::LiveMemory { version: VERSION, root })) => root,
            Some(Ok(Line::LiveMemory { version, .. })) => {
                return Err(format!("this export is of version {version}, and this daemon reads version {VERSION}"));
            }
            _ => return Err("this is no export of a memory; make one with `lm-shim export FILE`".to_owned()),
        };
        let mut imported = Imported::default();
        let (mut drafts, mut answers) = (Vec::new(), Vec::new());
        for line in read {
            match serde_json::from_str(line) {
                Ok(Line::Fact(fact)) => match draft(fact) {
                    Some(draft) => drafts.push(draft),
                    None => imported.dropped += 1,
                },
                Ok(Line::Answer(answer)) if !holds_secret(&answer.text) => answers.push(Entry::Answer(answer)),
                Ok(Line::Answer(_) | Line::LiveMemory { .. }) | Err(_) => imported.dropped += 1,
            }
        }
        let named = drafts.iter().flat_map(|draft| &draft.sources);
        let sources: BTreeSet<Source> =
            named.chain(answers.iter().flat_map(|entry| entry.sources())).cloned().collect();
        let sources: Vec<Source> = sources.into_iter().collect();
        let known = self.look_at(files, &sources, deadline, &CancellationToken::new());
        let same = sources.iter().filter(|source| known.is(source)).count();
        let enough = SAME_FILES_MIN.min(sources.len());
        let is_here = root == self.root.display().to_string();
        if !is_here && (same < enough || sources.is_empty()) {
            return Err(format!(
                "this is the memory of another repository (`{root}`): {same} of the {} files that it rests on are the \
                 same here; import it where it belongs",
                sources.len()
            ));
        }
        let mut store = self.store();
        let new = {
            let mut state = self.state();
            imported.stale = drafts.iter().filter(|draft| draft.sources.iter().any(|source| !known.is(source))).count();
            let merged = state.ledger.merge(drafts);
            (imported.facts, imported.known) = (merged.added, merged.known + merged.renewed);
            let present: Vec<Entry> = state.archive.entries().cloned().collect();
            let before = answers.len();
            answers.retain(|answer| !present.contains(answer));
            imported.known += before - answers.len();
            imported.answers = answers.len();
            state.is_unsaved = true;
            answers
        };
        self.archive(&mut store, new);
        drop(store);
        self.save_if_changed();
        Ok(imported)
    }
}

/// A fact of a file that anybody may have written.
fn draft(fact: Fact) -> Option<Draft> {
    let Fact { text, mut sources, origin, at, pinned, .. } = fact;
    let text = fact_line(&text);
    let is_fact = !text.is_empty()
        && text.len() <= FACT_BYTES_MAX
        && sources.len() <= SOURCES_MAX
        && (origin == Origin::User || (!sources.is_empty() && !is_instruction(&text)))
        && !holds_secret(&text)
        && sources.iter().all(|source| !source.path.is_empty() && !source.path.contains(char::is_control));
    sources.sort();
    sources.dedup();
    is_fact.then(|| Draft { text: Arc::from(text), sources, origin, at, pinned })
}

fn push(lines: &mut String, line: &Line) {
    // A line holds nothing that JSON cannot say.
    if let Ok(text) = serde_json::to_string(line) {
        lines.push_str(&text);
        lines.push('\n');
    }
}
