//! Finds the places in a workspace that a question is about, without a model.
//!
//! Knows files and nothing else: no tools, no memory, no model. `search` is blocking work, to be
//! called from a thread that may block.

mod definitions;
mod excerpts;
mod index;
mod live;
mod overview;
mod query;
mod rank;
mod retriever;
mod search;
mod tokenize;
mod window;

use std::time::{Duration, Instant};

use thiserror::Error;

pub use retriever::{Retriever, lower_priority};

/// What a search may take and give.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits {
    /// When the outcome is due; what was found until then is given.
    pub deadline: Instant,
    /// The most places wanted.
    pub max_places: usize,
    /// The most characters of all excerpts together.
    pub max_excerpt_chars: usize,
}

/// What a search found.
#[derive(Clone, PartialEq, Debug)]
pub struct SearchOutcome {
    /// Best first.
    pub places: Vec<Place>,
    /// What the places are worth.
    pub verdict: Verdict,
    /// Words and names of the question that occur nowhere in the workspace, as the question spells
    /// them. Empty where the search was not complete: then nothing is known to be absent.
    pub absent_terms: Vec<String>,
    /// Existing names that resemble absent ones.
    pub suggestions: Vec<String>,
    /// Files that the question names and that have no text in them, safe to display on one line.
    pub empty_files: Vec<String>,
    /// How much of the question's weight the best place covers, 0 to 1.
    pub coverage: f32,
    /// How the search was made.
    pub how: How,
    /// Files whose text was searched, by index or live.
    pub files_searched: usize,
    /// What was not searched, and why.
    pub left_out: LeftOut,
}

/// What the places of an outcome are worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// They answer to the question's words.
    Found,
    /// The question is about the workspace as a whole, and they introduce it. Nothing was searched for.
    Overview,
    /// They share some words with the question, but not the ones that matter.
    Weak,
    /// There are none. Only with [`How::is_complete`] does that mean that there is nothing.
    Nothing,
}

/// How a search was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// By the index, and live for what changed since.
    Indexed {
        /// Whether every file is covered; not so where time ran out over changed files.
        complete: bool,
    },
    /// By reading the files.
    Live {
        /// Whether every file was read; not so where time ran out.
        complete: bool,
    },
}

impl How {
    /// Whether every file that is searched at all was covered.
    #[must_use]
    pub fn is_complete(self) -> bool {
        matches!(self, Self::Indexed { complete: true } | Self::Live { complete: true })
    }
}

/// Counts of what a search did not cover, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Files that bear secrets, or are named like such.
    pub secret: usize,
    /// Files that are not text.
    pub binary: usize,
    /// Links, pipes, sockets, devices.
    pub not_regular: usize,
    /// Files and directories that could not be read.
    pub unreadable: usize,
    /// Files searched only in their beginning, being too large.
    pub cut: usize,
}

/// A place that answers.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// Relative to the workspace, `/` between parts, safe to display on one line.
    pub path: String,
    /// The first line of the excerpt, from 1.
    pub first_line: usize,
    /// The last line of the excerpt.
    pub last_line: usize,
    /// The text of these lines; overlong lines are cut around what matched, visibly.
    pub excerpt: String,
    /// Of the file's bytes as they were read for this excerpt, lower-case hexadecimal.
    pub sha256: String,
    /// Comparable within one outcome.
    pub score: f32,
    /// What speaks for it, for people: matched words, definitions, path.
    pub why: String,
}

/// Why a search has no outcome.
#[derive(Debug, Error)]
pub enum SearchError {
    /// Nothing but stop words and punctuation.
    #[error("the question holds no word to search for; name what it is about: a function, a file, an error text")]
    NothingToSearch,
    /// The asker went away.
    #[error("the search was cancelled")]
    Cancelled,
    /// The workspace itself cannot be listed.
    #[error("cannot list the workspace `{root}`: {source}; check that it still exists and can be read")]
    Workspace {
        /// The workspace.
        root: String,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Where the index stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IndexStatus {
    /// What it is doing.
    pub state: IndexState,
    /// Files in it.
    pub files: usize,
    /// Bytes of text in it.
    pub bytes: u64,
    /// How long the last full build took, where this process made it.
    pub built_in: Option<Duration>,
    /// What is not in it.
    pub left_out: LeftOut,
}

/// What an index is doing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum IndexState {
    /// Nothing was asked yet.
    #[default]
    Unopened,
    /// Being built; searches are live.
    Building,
    /// In use.
    Ready,
    /// In use while changed files are added.
    Updating,
    /// The workspace is past the bounds of an index; searches are live.
    TooLarge,
    /// It cannot be kept, for the reason given; searches are live.
    Failed(String),
}

#[cfg(test)]
mod tests;
