//! What the tool recall finds: facts and past answers, each checked against the disk before it is told.
//! Blocks on the file system. Not allowed here: asking the model.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::companion::Companion;
use crate::{
    files::WorkspaceFiles,
    memory::{
        archive::{self, Entry},
        ledger::{Current, Origin},
        log::Source,
        quote::{first_words, one_line},
    },
    tools::{FileSeen, Memory, Recalled},
};

/// How long looking at the files that results rest on may take.
const CHECK_TIME: Duration = Duration::from_secs(2);
/// As much is told of an answer, in characters.
const ANSWER_CHARACTERS: usize = 1_200;

/// The memory of a workspace, to be searched by its tools.
pub(super) struct Recollection {
    pub(super) companion: Arc<Companion>,
    pub(super) files: Arc<WorkspaceFiles>,
}

impl Memory for Recollection {
    fn recall(&self, words: &str, most: usize) -> Vec<Recalled> {
        let remembered = self.companion.remembered();
        let found = archive::search(remembered.iter(), words, most);
        let sources: BTreeSet<Source> = found.iter().flat_map(|entry| entry.sources().iter().cloned()).collect();
        let sources: Vec<Source> = sources.into_iter().collect();
        let deadline = Instant::now() + CHECK_TIME;
        let known = self.companion.look_at(&self.files, &sources, deadline, &CancellationToken::new());
        found.into_iter().map(|entry| recalled(entry, &known)).collect()
    }
}

fn recalled(entry: &Entry, known: &Current) -> Recalled {
    let stale: Vec<String> = entry
        .sources()
        .iter()
        .filter(|source| !known.is(source))
        .map(|source| format!("`{}`", one_line(&source.path)))
        .collect();
    let paths: Vec<String> = entry.sources().iter().map(|source| one_line(&source.path)).collect();
    let mut text = match entry {
        Entry::Fact(fact) if fact.origin == Origin::User => format!("- {} (a person noted this)", one_line(&fact.text)),
        Entry::Fact(fact) => format!("- {}", one_line(&fact.text)),
        Entry::Answer(answer) => format!(
            "- Asked \u{201c}{}\u{201d}, answered: {}",
            first_words(&answer.question, 200),
            first_words(&answer.text, ANSWER_CHARACTERS)
        ),
    };
    if !paths.is_empty() {
        text.push_str(&format!(" ({})", paths.join(", ")));
    }
    if !stale.is_empty() {
        text.push_str(&format!(" STALE, changed since: {}; read before you speak of it", stale.join(", ")));
    }
    let rests_on = entry.sources().iter().filter(|_| stale.is_empty()).map(|source| FileSeen {
        path: source.path.as_ref().into(),
        sha256: source.sha256.to_string(),
        truncated: false,
        is_shown: false,
    });
    Recalled { text, rests_on: rests_on.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{archive::PastAnswer, ledger::Fact};

    #[test]
    fn what_is_told_says_whether_it_still_holds() {
        let source = |path: &str, sha256: &str| Source { path: path.into(), sha256: sha256.into() };
        let fact = Entry::Fact(Fact {
            number: 3,
            text: "The port is 8080.".into(),
            sources: vec![source("src/a.rs", "1"), source("src/b.rs", "1")],
            origin: Origin::Observed,
            at: 1,
            pinned: false,
        });
        let answer = Entry::Answer(PastAnswer::new("Where?", "In a.\nThere.", vec![source("src/a.rs", "1")], 5));
        let mut known = Current::default();
        known.set("src/b.rs".into(), Some("2".into()));
        let told = recalled(&fact, &known);
        assert_eq!(
            told.text,
            "- The port is 8080. (src/a.rs, src/b.rs) STALE, changed since: `src/b.rs`; read before you speak of it"
        );
        assert_eq!(told.rests_on, []);
        let told = recalled(&answer, &known);
        assert_eq!(told.text, "- Asked \u{201c}Where?\u{201d}, answered: In a. There. (src/a.rs)");
        assert!(told.rests_on[0].path.ends_with("src/a.rs") && !told.rests_on[0].is_shown);
    }
}
