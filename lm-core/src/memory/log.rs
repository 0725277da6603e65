//! The conversation of one epoch, which only grows, and the forks in which questions are answered.
//!
//! A question forks the log, talks with the model in its fork, and commits. Forks run side by side:
//! the first to finish commits its bytes as they were sent; one that finds the log grown meanwhile is
//! *rebased*, that is appended after what the others committed. Every request of a fork is the log as
//! of its fork plus what the fork itself added, byte for byte; that is what a provider's prompt cache
//! and its signed reasoning rest on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::conversation::{Block, Message, Role};

/// Names an epoch of a workspace: the time from one compaction to the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// Where a committed answer rests: a file and what it held.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Source {
    /// Relative to the workspace, with `/`.
    pub path: Arc<str>,
    /// The SHA-256 of the file's bytes, in hexadecimal.
    pub sha256: Arc<str>,
}

/// How an exchange stands in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// As it was sent.
    Whole,
    /// As it was sent but for the model's reasoning, which is void after other turns than its own.
    Rebased,
    /// Tool rounds left out; the question and the answer as they were.
    Reduced,
}

/// Which tool rounds a commit keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retain {
    /// Every round, as sent.
    #[default]
    All,
    /// The question and the answer alone.
    None,
}

/// One answered question in the log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Exchange {
    /// The turns, from the question to the answer.
    pub messages: Vec<Message>,
    /// How they stand here.
    pub form: Form,
    /// Blocks that were sent and are not here.
    pub dropped_blocks: usize,
    /// What the answer rests on.
    pub sources: Vec<Source>,
}

/// A place between two blocks of a request: after block `block` of message `message`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    /// Counted from the first message of the request, the opening included.
    pub message: usize,
    /// Within the message.
    pub block: usize,
}

/// The committed conversation of one epoch.
#[derive(Clone, Debug, Default)]
pub struct Log {
    epoch: Epoch,
    opening: Arc<[Message]>,
    exchanges: Vec<Arc<Exchange>>,
    /// The end of the longest request that stands in the log as it was sent: there the provider's
    /// cache has an entry.
    written: Option<Position>,
}

/// A question's own view of the log.
#[derive(Clone, Debug)]
pub struct Fork {
    epoch: Epoch,
    opening: Arc<[Message]>,
    base: Vec<Arc<Exchange>>,
    own: Vec<Message>,
    written: Option<Position>,
}

/// What became of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// How the exchange stands in the log.
    pub form: Form,
    /// Blocks that were sent and not committed.
    pub dropped_blocks: usize,
}

impl Log {
    /// An epoch that starts with `opening`: what it knows from the start, as complete turns.
    #[must_use]
    pub fn new(epoch: Epoch, opening: Vec<Message>) -> Self {
        Self { epoch, opening: opening.into(), exchanges: Vec::new(), written: None }
    }

    /// An epoch as it was kept.
    #[must_use]
    pub fn restore(epoch: Epoch, opening: Vec<Message>, exchanges: Vec<Exchange>) -> Self {
        let exchanges = exchanges.into_iter().map(Arc::new).collect();
        Self { exchanges, ..Self::new(epoch, opening) }
    }

    /// The next epoch where no model distils this one: of its newest exchanges as many as fit into
    /// `bytes`, question and answer alone.
    #[must_use]
    pub fn next_epoch(&self, bytes: usize) -> Self {
        let mut left = bytes;
        let mut kept = Vec::new();
        for exchange in self.exchanges.iter().rev() {
            let messages = question_and_answer(exchange.messages.clone());
            let Some(rest) = left.checked_sub(self::bytes(&messages)) else { break };
            left = rest;
            let dropped_blocks = exchange.dropped_blocks + blocks(&exchange.messages) - blocks(&messages);
            kept.push(Exchange { messages, form: Form::Reduced, dropped_blocks, sources: exchange.sources.clone() });
        }
        kept.reverse();
        Self::restore(Epoch(self.epoch.0 + 1), Vec::new(), kept)
    }

    /// Which epoch this is.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What was committed, oldest first.
    #[must_use]
    pub fn exchanges(&self) -> &[Arc<Exchange>] {
        &self.exchanges
    }

    /// Bytes of text in the opening and in everything committed.
    #[must_use]
    pub fn bytes(&self) -> usize {
        bytes(&self.opening) + self.exchanges.iter().map(|exchange| bytes(&exchange.messages)).sum::<usize>()
    }

    /// A view of the log as it is now, for one question.
    #[must_use]
    pub fn fork(&self) -> Fork {
        Fork {
            epoch: self.epoch,
            opening: Arc::clone(&self.opening),
            base: self.exchanges.clone(),
            own: Vec::new(),
            written: self.written,
        }
    }

    /// Appends what a fork said, its answer being its last message.
    ///
    /// A fork without a question and an answer, or with a tool call left open, is not committed: half
    /// a conversation would break every later request.
    pub fn commit(&mut self, fork: Fork, retain: Retain, sources: Vec<Source>) -> Option<Commit> {
        if !is_complete(&fork.own) {
            return None;
        }
        let untouched = fork.epoch == self.epoch && fork.base.len() == self.exchanges.len();
        let sent = blocks(&fork.own);
        let (first_request, last_request) =
            (fork.end_of_request_before(1), fork.end_of_request_before(fork.own.len() - 1));
        let (form, messages) = match retain {
            Retain::None if fork.own.len() > 2 => (Form::Reduced, question_and_answer(fork.own)),
            _ if untouched => (Form::Whole, fork.own),
            _ => (Form::Rebased, fork.own.into_iter().map(without_reasoning).collect()),
        };
        match form {
            Form::Whole => self.written = last_request,
            // The question stands where it was sent, and the first request ended with it.
            Form::Reduced if untouched => self.written = first_request,
            Form::Reduced | Form::Rebased => {}
        }
        let commit = Commit { form, dropped_blocks: sent - blocks(&messages) };
        self.exchanges.push(Arc::new(Exchange { messages, form, dropped_blocks: commit.dropped_blocks, sources }));
        Some(commit)
    }
}

impl Fork {
    /// Adds a turn: the question, what the model said, or the results of its tools.
    pub fn push(&mut self, message: Message) {
        self.own.push(message);
    }

    /// Whether anything was known before this fork's question.
    #[must_use]
    pub fn knows_something(&self) -> bool {
        !self.opening.is_empty() || !self.base.is_empty()
    }

    /// The turns this fork added.
    #[must_use]
    pub fn own(&self) -> &[Message] {
        &self.own
    }

    /// All turns of the next request, as slices of what is kept anyway.
    #[must_use]
    pub fn segments(&self) -> Vec<&[Message]> {
        let mut segments: Vec<&[Message]> = Vec::with_capacity(self.base.len() + 2);
        segments.push(&self.opening);
        segments.extend(self.base.iter().map(|exchange| exchange.messages.as_slice()));
        segments.push(&self.own);
        segments.retain(|segment| !segment.is_empty());
        segments
    }

    /// Bytes of text in the next request's turns.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.segments().into_iter().map(bytes).sum()
    }

    /// Where the opening ends.
    #[must_use]
    pub fn end_of_opening(&self) -> Option<Position> {
        end(&self.opening, 0)
    }

    /// Where an earlier request is known to have ended: this fork's previous one, else the last that
    /// stands in the log as it was sent.
    #[must_use]
    pub fn end_of_previous_request(&self) -> Option<Position> {
        match self.own.iter().rposition(|message| message.role == Role::Assistant) {
            Some(answer) => end(&self.own[..answer], self.before_own()),
            None => self.written,
        }
    }

    /// Where the next request ends.
    #[must_use]
    pub fn end(&self) -> Option<Position> {
        end(&self.own, self.before_own()).or(self.written)
    }

    /// Where the request ended that was sent with the first `own` turns of this fork.
    fn end_of_request_before(&self, own: usize) -> Option<Position> {
        end(&self.own[..own], self.before_own())
    }

    /// Messages before the fork's own.
    fn before_own(&self) -> usize {
        self.opening.len() + self.base.iter().map(|exchange| exchange.messages.len()).sum::<usize>()
    }
}

fn end(messages: &[Message], before: usize) -> Option<Position> {
    let last = messages.iter().rposition(|message| !message.blocks.is_empty())?;
    Some(Position { message: before + last, block: messages[last].blocks.len() - 1 })
}

fn blocks(messages: &[Message]) -> usize {
    messages.iter().map(|message| message.blocks.len()).sum()
}

fn bytes(messages: &[Message]) -> usize {
    let block = |block: &Block| match block {
        Block::Text { text } | Block::ToolResult { text, .. } => text.len(),
        Block::ToolUse { name, input, .. } => name.len() + input.len(),
        Block::Reasoning { raw, .. } => raw.len(),
    };
    messages.iter().flat_map(|message| &message.blocks).map(block).sum()
}

/// Whether turns alternate from a question to an answer with every tool call answered.
fn is_complete(messages: &[Message]) -> bool {
    let alternate = messages.iter().enumerate().all(|(index, message)| {
        message.role == if index % 2 == 0 { Role::User } else { Role::Assistant } && !message.blocks.is_empty()
    });
    let calls = |message: &Message| -> Vec<Arc<str>> {
        let id = |block: &Block| if let Block::ToolUse { id, .. } = block { Some(Arc::clone(id)) } else { None };
        message.blocks.iter().filter_map(id).collect()
    };
    let results = |message: &Message| -> Vec<Arc<str>> {
        let id = |block: &Block| if let Block::ToolResult { id, .. } = block { Some(Arc::clone(id)) } else { None };
        message.blocks.iter().filter_map(id).collect()
    };
    let answered = messages.windows(2).all(|pair| pair[0].role == Role::User || calls(&pair[0]) == results(&pair[1]));
    let opens_with_a_question = messages.first().is_some_and(|question| results(question).is_empty());
    let ends_with_an_answer = messages.last().is_some_and(|answer| calls(answer).is_empty());
    messages.len() >= 2
        && messages.len().is_multiple_of(2)
        && alternate
        && answered
        && opens_with_a_question
        && ends_with_an_answer
}

fn without_reasoning(mut message: Message) -> Message {
    message.blocks.retain(|block| !matches!(block, Block::Reasoning { .. }));
    message
}

fn question_and_answer(mut messages: Vec<Message>) -> Vec<Message> {
    let answer = messages.pop().map(without_reasoning);
    messages.truncate(1);
    messages.extend(answer);
    messages
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
