//! The conversation of one epoch, which only grows, and the forks in which questions are answered.
//!
//! A question forks the log, talks with the model in its fork, and commits. Forks run side by side:
//! the first to finish commits its bytes as they were sent; one that finds the log grown meanwhile is
//! *rebased*, that is appended after what the others committed. Every request of a fork is the log as
//! of its fork plus what the fork itself added, byte for byte; that is what a provider's prompt cache
//! and its signed reasoning rest on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    ledger::block::Noted,
    told::{Said, Told},
};
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
    /// What stands in the turns about files, in the order in which it was said.
    pub said: Vec<Said>,
    /// The question as it was asked.
    pub question: Arc<str>,
    /// Observations of the coding agent's deeds that were told by then.
    pub observations: u64,
    /// The number of the last of people's notes that was told by then.
    #[serde(default)]
    pub notes: u64,
    /// When the answer was given, in seconds since 1970; 0 where that is not known.
    #[serde(default)]
    pub at: u64,
}

impl Exchange {
    /// The answer's text.
    #[must_use]
    pub fn answer(&self) -> String {
        let text = |block: &Block| if let Block::Text { text } = block { Some(text.to_string()) } else { None };
        self.messages.last().into_iter().flat_map(|answer| &answer.blocks).filter_map(text).collect()
    }

    /// Whether a text, given in lower case, occurs in what was said, in any letter case.
    #[must_use]
    pub fn mentions(&self, lower_case: &str) -> bool {
        mentions(&self.messages, lower_case) || self.question.to_lowercase().contains(lower_case)
    }

    /// As it was said but for the model's reasoning, which is void after other turns than its own.
    fn rebased(&self) -> Self {
        let messages: Vec<Message> = self.messages.iter().cloned().map(without_reasoning).collect();
        let dropped_blocks = self.dropped_blocks + blocks(&self.messages) - blocks(&messages);
        Self { messages, form: Form::Rebased, dropped_blocks, ..self.clone() }
    }

    /// Question and answer alone.
    fn reduced(&self) -> Self {
        let messages = self.alone();
        let dropped_blocks = (self.dropped_blocks + blocks(&self.messages)).saturating_sub(blocks(&messages));
        Self { messages, form: Form::Reduced, dropped_blocks, said: Vec::new(), ..self.clone() }
    }

    /// The question in the asker's words and the answer, without what was told along with them.
    fn alone(&self) -> Vec<Message> {
        let question = Message::user(format!("Question:\n{}", self.question.trim()));
        let answer = self.messages.last().cloned().map(without_reasoning);
        std::iter::once(question).chain(answer).collect()
    }
}

/// What a committed answer is kept with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Provenance {
    /// The question as it was asked.
    pub question: Arc<str>,
    /// What the answer rests on.
    pub sources: Vec<Source>,
    /// Observations of the coding agent's deeds that were told by then.
    pub observations: u64,
    /// The number of the last of people's notes that was told by then.
    pub notes: u64,
    /// When the answer was given, in seconds since 1970.
    pub at: u64,
}

/// A place between two blocks of a request: after block `block` of message `message`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    /// Counted from the first message of the request, the opening included.
    pub message: usize,
    /// Within the message.
    pub block: usize,
}

/// What an epoch knows from its start.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Opening {
    /// Complete turns; none where nothing is known.
    pub messages: Vec<Message>,
    /// What they say of files.
    pub said: Vec<Said>,
    /// Observations of the coding agent's deeds that were told before.
    pub observations: u64,
    /// The facts that stand in them, and what these rest on.
    #[serde(default)]
    pub facts: Vec<Noted>,
    /// The number of the last of people's notes that is in them or was told before.
    #[serde(default)]
    pub notes: u64,
}

/// An epoch that takes the place of another, and what it does not take over.
#[derive(Clone, Debug)]
pub struct NextEpoch {
    /// The new one.
    pub log: Log,
    /// Answers that are not in it, oldest first.
    pub left: Vec<Arc<Exchange>>,
}

/// The committed conversation of one epoch.
#[derive(Clone, Debug, Default)]
pub struct Log {
    epoch: Epoch,
    opening: Arc<Opening>,
    exchanges: Vec<Arc<Exchange>>,
    /// The end of the longest request that stands in the log as it was sent: there the provider's
    /// cache has an entry.
    written: Option<Position>,
}

/// A question's own view of the log.
#[derive(Clone, Debug)]
pub struct Fork {
    epoch: Epoch,
    opening: Arc<Opening>,
    base: Vec<Arc<Exchange>>,
    own: Vec<Message>,
    /// What the fork's turns say of files, and in which of them.
    said: Vec<(usize, Said)>,
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
    /// An epoch that starts with `opening`.
    #[must_use]
    pub fn new(epoch: Epoch, opening: Opening) -> Self {
        Self { epoch, opening: Arc::new(opening), exchanges: Vec::new(), written: None }
    }

    /// An epoch as it was kept.
    #[must_use]
    pub fn restore(epoch: Epoch, opening: Opening, exchanges: Vec<Exchange>) -> Self {
        let exchanges = exchanges.into_iter().map(Arc::new).collect();
        Self { exchanges, ..Self::new(epoch, opening) }
    }

    /// The next epoch, which starts with `opening`. Of this one's first `summarised` exchanges it has as many
    /// of the newest as fit into `bytes`, question and answer alone; later ones it has as they are.
    #[must_use]
    pub fn next_epoch(&self, opening: Opening, bytes: usize, summarised: usize) -> NextEpoch {
        let (before, after) = self.exchanges.split_at(summarised.min(self.exchanges.len()));
        let mut kept: Vec<Exchange> = after.iter().map(|exchange| exchange.rebased()).collect();
        let whole: usize = kept.iter().map(|exchange| self::bytes(&exchange.messages)).sum();
        let mut left = bytes.saturating_sub(whole);
        kept.reverse();
        let mut fitting = 0;
        for exchange in before.iter().rev() {
            let reduced = exchange.reduced();
            let Some(rest) = left.checked_sub(self::bytes(&reduced.messages)) else { break };
            left = rest;
            fitting += 1;
            kept.push(reduced);
        }
        kept.reverse();
        let observations = self.fork().observations_told();
        let notes = self.fork().notes_told().max(opening.notes);
        let log = Self::restore(Epoch(self.epoch.0 + 1), Opening { observations, notes, ..opening }, kept);
        NextEpoch { log, left: before[..before.len() - fitting].to_vec() }
    }

    /// The next epoch without some of the answers, and with everything else as it is.
    #[must_use]
    pub fn without(&self, opening: Opening, mut is_dropped: impl FnMut(&Exchange) -> bool) -> Self {
        let kept = self.exchanges.iter().filter(|exchange| !is_dropped(exchange));
        let kept = kept.map(|exchange| exchange.rebased()).collect();
        let (observations, notes) = (self.fork().observations_told(), self.fork().notes_told());
        Self::restore(Epoch(self.epoch.0 + 1), Opening { observations, notes, ..opening }, kept)
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

    /// What was committed before anything else.
    #[must_use]
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// Bytes of text in the opening and in everything committed.
    #[must_use]
    pub fn bytes(&self) -> usize {
        bytes(&self.opening.messages) + self.exchanges.iter().map(|exchange| bytes(&exchange.messages)).sum::<usize>()
    }

    /// Bytes of text in the opening.
    #[must_use]
    pub fn opening_bytes(&self) -> usize {
        bytes(&self.opening.messages)
    }

    /// Bytes of text that its questions and answers would have alone.
    #[must_use]
    pub fn answer_bytes(&self) -> usize {
        self.exchanges.iter().map(|exchange| bytes(&exchange.alone())).sum()
    }

    /// A view of the log as it is now, for one question.
    #[must_use]
    pub fn fork(&self) -> Fork {
        Fork {
            epoch: self.epoch,
            opening: Arc::clone(&self.opening),
            base: self.exchanges.clone(),
            own: Vec::new(),
            said: Vec::new(),
            written: self.written,
        }
    }

    /// Appends what a fork said, its answer being its last message.
    ///
    /// A fork without a question and an answer, or with a tool call left open, is not committed: half
    /// a conversation would break every later request.
    pub fn commit(&mut self, fork: Fork, retain: Retain, provenance: Provenance) -> Option<Commit> {
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
        // What was said in turns that are left out was not said.
        let stands = |turn: usize| form != Form::Reduced || turn == 0;
        let said = fork.said.into_iter().filter(|(turn, _)| stands(*turn)).map(|(_, said)| said).collect();
        let commit = Commit { form, dropped_blocks: sent - blocks(&messages) };
        let Provenance { question, sources, observations, notes, at } = provenance;
        self.exchanges.push(Arc::new(Exchange {
            messages,
            form,
            dropped_blocks: commit.dropped_blocks,
            sources,
            said,
            question,
            observations,
            notes,
            at,
        }));
        Some(commit)
    }
}

impl Fork {
    /// Adds a turn: the question, what the model said, or the results of its tools.
    pub fn push(&mut self, message: Message) {
        self.own.push(message);
    }

    /// Takes note of what the turn that was added last says of a file.
    pub fn say(&mut self, said: Said) {
        self.said.push((self.own.len().saturating_sub(1), said));
    }

    /// Whether questions were answered before this fork's.
    #[must_use]
    pub fn has_answers(&self) -> bool {
        !self.base.is_empty()
    }

    /// What the next request says of files.
    #[must_use]
    pub fn told(&self) -> Told {
        let mut told = Told::default();
        self.opening.said.iter().for_each(|said| told.hear(said));
        // What is noted counts as said of files, as answers do.
        for source in self.opening.facts.iter().flat_map(|noted| &noted.sources) {
            told.hear_answer(&source.path, &source.sha256);
        }
        for exchange in &self.base {
            exchange.said.iter().for_each(|said| told.hear(said));
            for source in &exchange.sources {
                told.hear_answer(&source.path, &source.sha256);
            }
        }
        self.said.iter().for_each(|(_, said)| told.hear(said));
        told
    }

    /// What the fork's own turns say of files, in order.
    pub fn said(&self) -> impl Iterator<Item = &Said> {
        self.said.iter().map(|(_, said)| said)
    }

    /// The answers before this fork's question.
    #[must_use]
    pub fn answered(&self) -> &[Arc<Exchange>] {
        &self.base
    }

    /// Observations of the coding agent's deeds that were told before.
    #[must_use]
    pub fn observations_told(&self) -> u64 {
        self.base.iter().map(|exchange| exchange.observations).fold(self.opening.observations, u64::max)
    }

    /// The facts that stand in the opening.
    #[must_use]
    pub fn noted(&self) -> &[Noted] {
        &self.opening.facts
    }

    /// The number of the last of people's notes that was told before.
    #[must_use]
    pub fn notes_told(&self) -> u64 {
        self.base.iter().map(|exchange| exchange.notes).fold(self.opening.notes, u64::max)
    }

    /// Whether a text stands in the next request as it is.
    #[must_use]
    pub fn holds(&self, text: &str) -> bool {
        let finder = memchr::memmem::Finder::new(text);
        self.segments().into_iter().flatten().flat_map(|message| &message.blocks).any(|block| match block {
            Block::Text { text } | Block::ToolResult { text, .. } => finder.find(text.as_bytes()).is_some(),
            Block::ToolUse { .. } | Block::Reasoning { .. } => false,
        })
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
        segments.push(&self.opening.messages);
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
        end(&self.opening.messages, 0)
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
        self.opening.messages.len() + self.base.iter().map(|exchange| exchange.messages.len()).sum::<usize>()
    }
}

fn end(messages: &[Message], before: usize) -> Option<Position> {
    let last = messages.iter().rposition(|message| !message.blocks.is_empty())?;
    Some(Position { message: before + last, block: messages[last].blocks.len() - 1 })
}

fn blocks(messages: &[Message]) -> usize {
    messages.iter().map(|message| message.blocks.len()).sum()
}

/// Whether a text, given in lower case, occurs in turns, in any letter case.
#[must_use]
pub fn mentions(messages: &[Message], lower_case: &str) -> bool {
    messages.iter().flat_map(|message| &message.blocks).any(|block| match block {
        Block::Text { text } | Block::ToolResult { text, .. } | Block::ToolUse { input: text, .. } => {
            text.to_lowercase().contains(lower_case)
        }
        Block::Reasoning { raw, .. } => raw.to_lowercase().contains(lower_case),
    })
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
