//! What a question is asked with besides its words, and the watch over what was shown.

use std::{future::Future, pin::Pin};

use crate::memory::{
    log::{Fork, Source},
    told::Said,
};

/// What is told along with a question.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Briefing {
    /// What happened to files since the last question, as one block; empty for nothing.
    pub deltas: String,
    /// Text of the workspace that the question's words lead to, as one block; empty for none.
    pub excerpts: String,
    /// What both say of files.
    pub said: Vec<Said>,
    /// The files of the excerpts.
    pub sources: Vec<Source>,
}

/// What happened to files that a conversation speaks of.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct News {
    /// As one block.
    pub text: String,
    /// The same, file by file.
    pub said: Vec<Said>,
    /// The files, for people.
    pub paths: Vec<String>,
}

/// An answer that is being waited for.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Looks at the disk when an answer is there: it must not leave with what was true when it was begun.
pub trait Watch: Send + Sync {
    /// Of the files that the conversation speaks of: what is not any more as the fork's turns say; none
    /// where everything is.
    fn news<'a>(&'a self, fork: &'a Fork, answer: &'a str) -> Waiting<'a, Option<News>>;
}
