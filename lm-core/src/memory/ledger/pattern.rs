//! What a person means by a pattern: a fact's number, files, or words.

use std::{collections::BTreeSet, sync::Arc};

use globset::{GlobBuilder, GlobMatcher};

use super::Fact;
use crate::{
    conversation::Message,
    memory::{
        archive::Entry,
        log::{self, Exchange, Source},
        told::Said,
    },
};

/// Fewer characters than this are no words to look for.
const TEXT_CHARACTERS_MIN: usize = 3;

/// What a person chose.
#[derive(Clone, Debug)]
pub struct Pattern {
    chosen: Chosen,
}

#[derive(Clone, Debug)]
enum Chosen {
    Number(u64),
    /// These files.
    Files(BTreeSet<Arc<str>>),
    /// In lower case.
    Text(String),
}

impl Pattern {
    /// Reads a pattern: `#12` is a fact, a path (or a directory) and a glob are the known files that it
    /// leads to, everything else is words.
    ///
    /// # Errors
    /// What is wrong with it, and what to give instead.
    pub fn read(given: &str, known: &BTreeSet<Arc<str>>) -> Result<Self, String> {
        let given = given.trim();
        if let Some(number) = given.strip_prefix('#').and_then(|number| number.parse().ok()) {
            return Ok(Self { chosen: Chosen::Number(number) });
        }
        let path = given.strip_prefix("./").unwrap_or(given).trim_end_matches('/');
        let below = format!("{path}/");
        let mut files: BTreeSet<Arc<str>> =
            known.iter().filter(|file| ***file == *path || file.starts_with(&below)).cloned().collect();
        if files.is_empty() && given.contains(['*', '?', '[', '{']) {
            let glob = GlobBuilder::new(path).literal_separator(true).build();
            let matcher = glob.map(|glob| glob.compile_matcher()).ok();
            files.extend(known.iter().filter(|file| is_match(matcher.as_ref(), file)).cloned());
        }
        if !files.is_empty() {
            return Ok(Self { chosen: Chosen::Files(files) });
        }
        if given.chars().count() < TEXT_CHARACTERS_MIN {
            return Err(format!(
                "`{given}` is no known file and too short to look for; give a path, a glob, `#` and the number of a \
                 fact, or at least {TEXT_CHARACTERS_MIN} characters of text"
            ));
        }
        Ok(Self { chosen: Chosen::Text(given.to_lowercase()) })
    }

    /// In a few words, for people.
    #[must_use]
    pub fn meaning(&self) -> String {
        match &self.chosen {
            Chosen::Number(number) => format!("fact {number}"),
            Chosen::Files(files) if files.len() == 1 => {
                format!("the file `{}`", files.iter().next().map_or("", |file| file))
            }
            Chosen::Files(files) => format!("{} files", files.len()),
            Chosen::Text(text) => format!("the text \u{201c}{text}\u{201d}"),
        }
    }

    /// The files that are meant; none where it is words or a number.
    #[must_use]
    pub fn files(&self) -> Option<&BTreeSet<Arc<str>>> {
        match &self.chosen {
            Chosen::Files(files) => Some(files),
            Chosen::Number(_) | Chosen::Text(_) => None,
        }
    }

    /// Whether a fact is meant.
    #[must_use]
    pub fn is_fact(&self, fact: &Fact) -> bool {
        match &self.chosen {
            Chosen::Number(number) => fact.number == *number,
            Chosen::Files(files) => rests_on(files, &fact.sources),
            Chosen::Text(text) => fact.text.to_lowercase().contains(text) || names(text, &fact.sources),
        }
    }

    /// Whether something in the archive is meant.
    #[must_use]
    pub fn is_entry(&self, entry: &Entry) -> bool {
        match (&self.chosen, entry) {
            (_, Entry::Fact(fact)) => self.is_fact(fact),
            (Chosen::Number(_), Entry::Answer(_)) => false,
            (Chosen::Files(files), Entry::Answer(_)) => {
                rests_on(files, entry.sources()) || files.iter().any(|file| entry.mentions(&file.to_lowercase()))
            }
            (Chosen::Text(text), Entry::Answer(_)) => entry.mentions(text) || names(text, entry.sources()),
        }
    }

    /// Whether something in an exchange is meant.
    #[must_use]
    pub fn is_exchange(&self, exchange: &Exchange) -> bool {
        self.is_said(&exchange.messages, exchange.said.iter(), &exchange.sources)
            || matches!(&self.chosen, Chosen::Text(text) if exchange.question.to_lowercase().contains(text))
    }

    /// Whether something in turns is meant, in what they say of files or in what they rest on.
    #[must_use]
    pub fn is_said<'a>(
        &self,
        messages: &[Message],
        mut said: impl Iterator<Item = &'a Said>,
        sources: &[Source],
    ) -> bool {
        match &self.chosen {
            Chosen::Number(_) => false,
            Chosen::Files(files) => {
                rests_on(files, sources)
                    || said.any(|said| files.contains(&said.path))
                    || files.iter().any(|file| log::mentions(messages, &file.to_lowercase()))
            }
            Chosen::Text(text) => log::mentions(messages, text) || names(text, sources),
        }
    }
}

fn is_match(matcher: Option<&GlobMatcher>, file: &str) -> bool {
    matcher.is_some_and(|matcher| matcher.is_match(file))
}

fn rests_on(files: &BTreeSet<Arc<str>>, sources: &[Source]) -> bool {
    sources.iter().any(|source| files.contains(&source.path))
}

fn names(lower_case: &str, sources: &[Source]) -> bool {
    sources.iter().any(|source| source.path.to_lowercase().contains(lower_case))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ledger::Origin;

    fn known() -> BTreeSet<Arc<str>> {
        ["src/a.rs", "src/deep/b.rs", "docs/plan.md"].into_iter().map(Arc::from).collect()
    }

    fn fact(number: u64, text: &str, path: &str) -> Fact {
        let sources = vec![Source { path: path.into(), sha256: "1".into() }];
        Fact { number, text: text.into(), sources, origin: Origin::Observed, at: 0, pinned: false }
    }

    #[test]
    fn a_pattern_is_a_number_files_or_words() {
        let facts = [
            fact(1, "The port is 8080.", "src/a.rs"),
            fact(2, "Ports are opened late", "src/deep/b.rs"),
            fact(12, "Fridays", "docs/plan.md"),
        ];
        let chosen = |pattern: &str| -> (String, Vec<u64>) {
            let pattern = Pattern::read(pattern, &known()).unwrap();
            (pattern.meaning(), facts.iter().filter(|fact| pattern.is_fact(fact)).map(|fact| fact.number).collect())
        };
        assert_eq!(chosen("#12"), ("fact 12".into(), vec![12]));
        assert_eq!(chosen("./src/a.rs"), ("the file `src/a.rs`".into(), vec![1]));
        assert_eq!(chosen("src/"), ("2 files".into(), vec![1, 2]));
        assert_eq!(chosen("**/*.rs"), ("2 files".into(), vec![1, 2]));
        assert_eq!(chosen("src/*.rs"), ("the file `src/a.rs`".into(), vec![1]));
        assert_eq!(chosen("PORT"), ("the text \u{201c}port\u{201d}".into(), vec![1, 2]));
        assert_eq!(chosen("plan.md"), ("the text \u{201c}plan.md\u{201d}".into(), vec![12]));
        assert_eq!(chosen("what is *this*").1, Vec::<u64>::new());
        for short in ["", "  ", "a", "#"] {
            assert!(Pattern::read(short, &known()).is_err_and(|why| why.contains("too short")), "{short}");
        }
    }

    #[test]
    fn turns_are_meant_by_what_they_show_rest_on_or_name() {
        let files = Pattern::read("src/a.rs", &known()).unwrap();
        let turns = [Message::user("Since then the agent has read: src/a.rs."), Message::assistant("Ok")];
        assert!(files.is_said(&turns, [].iter(), &[]));
        assert!(files.is_said(&[], [Said::shown("src/a.rs", "1")].iter(), &[]));
        assert!(files.is_said(&[], [].iter(), &fact(1, "", "src/a.rs").sources));
        assert!(!files.is_said(&[Message::user("src/aa.rs")], [Said::shown("x", "1")].iter(), &[]));
        let words = Pattern::read("agent has READ", &known()).unwrap();
        assert!(words.is_said(&turns, [].iter(), &[]) && !words.is_said(&turns[1..], [].iter(), &[]));
    }
}
