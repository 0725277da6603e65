//! What the log says of files: which text it shows, what was noticed since, what answers rest on.
//!
//! A file's text may stand in the log several times, as it was at different moments, and answers rest on
//! the one or the other. What a model takes for current is what was said last; a notice is due wherever
//! that is not what the disk holds. Not allowed here: finding out what the disk holds.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

/// How a file stands, on the disk or by the log's word.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It holds text with this SHA-256, in hexadecimal.
    Text(Arc<str>),
    /// It is not there.
    Gone,
    /// It is there, and what it holds is not known.
    Unreadable,
}

impl Standing {
    /// The hash of its text.
    #[must_use]
    pub fn sha256(&self) -> Option<&Arc<str>> {
        match self {
            Self::Text(sha256) => Some(sha256),
            Self::Gone | Self::Unreadable => None,
        }
    }
}

/// Something that was said of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Said {
    /// Relative to the workspace, with `/`.
    pub path: Arc<str>,
    /// How it stood then.
    pub standing: Standing,
    /// Whether it was a notice, which replaces everything said before, or just text that was shown.
    pub is_notice: bool,
}

impl Said {
    /// Text of a file was shown.
    #[must_use]
    pub fn shown(path: impl Into<Arc<str>>, sha256: impl Into<Arc<str>>) -> Self {
        Self { path: path.into(), standing: Standing::Text(sha256.into()), is_notice: false }
    }

    /// It was said how a file stands now.
    #[must_use]
    pub fn notice(path: impl Into<Arc<str>>, standing: Standing) -> Self {
        Self { path: path.into(), standing, is_notice: true }
    }
}

/// What a log last said of one file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LastSaid {
    /// By the text shown, or by a notice.
    shown: Option<Standing>,
    /// By answers that rest on it, or by a notice.
    answered: Option<Standing>,
    /// The last text it was said to hold.
    text: Option<Arc<str>>,
}

impl LastSaid {
    /// Whether nothing in the log speaks against `now`.
    #[must_use]
    pub fn agrees_with(&self, now: &Standing) -> bool {
        [&self.shown, &self.answered].into_iter().flatten().all(|said| said == now)
    }

    /// The last text that the file was said to hold, perhaps long ago.
    #[must_use]
    pub fn last_text(&self) -> Option<&Arc<str>> {
        self.text.as_ref()
    }

    /// The text by which the log stands: the one to compare the disk with.
    #[must_use]
    pub fn standing_text(&self) -> Option<&Arc<str>> {
        let said = [&self.shown, &self.answered];
        said.into_iter().flatten().find_map(Standing::sha256)
    }

    /// Whether it was last said to be there with its text.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!((&self.shown, &self.answered), (Some(Standing::Text(_)), _) | (None, Some(Standing::Text(_))))
    }
}

/// What a log last said of each file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Told(BTreeMap<Arc<str>, LastSaid>);

impl Told {
    /// Takes what was said next.
    pub fn hear(&mut self, said: &Said) {
        let last = self.0.entry(Arc::clone(&said.path)).or_default();
        last.shown = Some(said.standing.clone());
        if said.is_notice {
            last.answered = last.answered.is_some().then(|| said.standing.clone());
        }
        if let Standing::Text(sha256) = &said.standing {
            last.text = Some(Arc::clone(sha256));
        }
    }

    /// Takes what an answer, given next, rests on.
    pub fn hear_answer(&mut self, path: &Arc<str>, sha256: &Arc<str>) {
        let last = self.0.entry(Arc::clone(path)).or_default();
        last.answered = Some(Standing::Text(Arc::clone(sha256)));
        last.text.get_or_insert_with(|| Arc::clone(sha256));
    }

    /// What was said of a file.
    #[must_use]
    pub fn of(&self, path: &str) -> Option<&LastSaid> {
        self.0.get(path)
    }

    /// All files of which something was said, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &LastSaid)> {
        self.0.iter()
    }

    /// Forgets the others.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|path, _| keep(path));
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was said of any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(sha256: &str) -> Standing {
        Standing::Text(sha256.into())
    }

    #[test]
    fn what_is_shown_last_counts() {
        let mut told = Told::default();
        told.hear(&Said::shown("a", "1"));
        assert!(told.of("a").unwrap().agrees_with(&text("1")));
        told.hear(&Said::shown("a", "2"));
        assert!(told.of("a").unwrap().agrees_with(&text("2")));
        assert!(!told.of("a").unwrap().agrees_with(&text("1")));
        assert!(told.of("b").is_none());
    }

    /// The answer was given in a fork that had read the old text, and was kept after a notice of the new.
    #[test]
    fn an_answer_that_comes_after_a_notice_brings_its_own_text() {
        let mut told = Told::default();
        told.hear(&Said::shown("a", "1"));
        told.hear(&Said::notice("a", text("2")));
        assert!(told.of("a").unwrap().agrees_with(&text("2")));
        told.hear_answer(&"a".into(), &"1".into());
        assert!(!told.of("a").unwrap().agrees_with(&text("2")), "the answer may be taken for current");
        assert!(!told.of("a").unwrap().agrees_with(&text("1")), "so may the notice");
        told.hear(&Said::notice("a", text("2")));
        assert!(told.of("a").unwrap().agrees_with(&text("2")));
    }

    #[test]
    fn what_is_gone_keeps_its_last_text() {
        let mut told = Told::default();
        told.hear(&Said::shown("a", "1"));
        told.hear(&Said::notice("a", Standing::Gone));
        let last = told.of("a").unwrap();
        assert!(last.agrees_with(&Standing::Gone) && !last.is_text());
        assert_eq!(last.last_text().map(|sha256| &**sha256), Some("1"));
        assert_eq!(last.standing_text(), None);
    }
}
