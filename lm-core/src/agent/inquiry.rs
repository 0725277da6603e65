//! One question, answered by a model that looks things up: the rounds from the question to the
//! answer.
//!
//! The inquiry owns its fork and nothing else: what it is given is the model, the tools and the
//! bounds; what it gives back is the answer and the fork, to be committed by whoever keeps the log.
//! Half a conversation never leaves here: where there is no answer there is no fork either.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::prompts::{self, QuestionBudget};
use crate::{
    conversation::{Block, Message, Role},
    llm::{
        Breakpoint, CallControl, Completion, Lifetime, ModelClient, ModelError, ModelEvent, ModelRequest, Position,
        Purpose, Stop, ToolSpec, Usage,
    },
    memory::{
        log::{Fork, Source},
        prompt::Breakpoints,
        tokens::TokenEstimate,
    },
    tools::{ToolOutput, Tools},
};

/// Room for what a model thinks before it answers; thinking counts into a completion's tokens.
const THINKING_TOKENS: u32 = 4096;
/// What is kept free at the end of the window for estimates that err.
const WINDOW_RESERVE: f64 = 0.02;
/// How far past the soft deadline an answer that is being written may go.
const GRACE: Duration = Duration::from_secs(4);
/// How long one tool may take at most.
const TOOL_LIMIT: Duration = Duration::from_secs(20);
/// Told in place of a result that no longer fits.
const NOT_SHOWN: &str = "[not shown: the context window is full]";

/// What bounds an inquiry.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The longest answer in tokens.
    pub answer_tokens: u32,
    /// When the answer is due.
    pub due: Instant,
    /// The most rounds with tools.
    pub rounds: u32,
    /// The window in tokens, prompt and answer together.
    pub window: u64,
    /// Whether an answer without any grounding is sent back once.
    pub look_first: bool,
    /// How long the provider keeps what the prompt begins with.
    pub lifetime: Lifetime,
}

/// A question and all that is needed to answer it.
#[derive(Debug)]
pub struct Inquiry<'a> {
    /// Who answers.
    pub model: &'a dyn ModelClient,
    /// What it may look with.
    pub tools: &'a Arc<Tools>,
    /// The same, as it is told of them.
    pub tool_specs: &'a [ToolSpec],
    /// The system text.
    pub system: &'a str,
    /// The question, in the asker's words.
    pub question: &'a str,
    /// Places to look first, where nothing is known yet.
    pub places: &'a [String],
    /// Deltas since the last question, as one block; empty for none.
    pub deltas: &'a str,
    /// Its bounds.
    pub bounds: Bounds,
    /// Names the log in requests.
    pub conversation: Option<&'a str>,
    /// How large text is.
    pub estimate: TokenEstimate,
    /// Stops all of it.
    pub cancel: &'a CancellationToken,
}

/// An answer.
#[derive(Debug)]
pub struct Answered {
    /// The model's text.
    pub text: String,
    /// Whether it was cut at a limit.
    pub truncated: bool,
    /// The whole conversation of this question.
    pub fork: Fork,
    /// The files whose text the model was shown.
    pub sources: BTreeSet<Source>,
    /// What was said and done.
    pub tally: Tally,
    /// The estimate with what was learned.
    pub estimate: TokenEstimate,
}

/// What an inquiry took, answered or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Tokens over all requests.
    pub usage: Usage,
    /// Requests that were answered.
    pub requests: u32,
    /// Tools that were run.
    pub tool_calls: u32,
    /// Tokens of the last prompt.
    pub prompt_tokens: u64,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum InquiryError {
    /// The asker went away.
    #[error("cancelled")]
    Cancelled,
    /// The model could not be asked, or gave nothing usable.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Time ran out in the middle of the answer.
    #[error("time ran out while the model was answering")]
    Late {
        /// What it had said by then.
        text: String,
    },
    /// It ended its turn without a word, twice.
    #[error("the model ended its turn without an answer")]
    Empty,
    /// It declined.
    #[error("the model declined to answer")]
    Refused,
}

/// A failure and what it cost all the same.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: InquiryError,
    /// What it took.
    pub tally: Tally,
}
