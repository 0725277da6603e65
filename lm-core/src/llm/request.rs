//! What is asked of a model, in terms of no particular provider. Everything is borrowed: a request
//! is a view of a log that may be megabytes long.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::ModelError;
use crate::conversation::Message;

/// How many cache breakpoints a provider takes at most in one request, wherever they stand.
pub const MAX_BREAKPOINTS: usize = 4;

/// A tool that the model may call.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// Its name, `[a-zA-Z0-9_-]{1,64}`.
    pub name: Arc<str>,
    /// What it does, for the model.
    pub description: Arc<str>,
    /// The JSON schema of its arguments, sent as it stands; its type is `object`.
    pub input_schema: Box<RawValue>,
}

impl ToolSpec {
    /// A tool whose arguments are described by the text of a JSON schema.
    ///
    /// # Errors
    /// `schema` is not JSON.
    pub fn new(
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        schema: &str,
    ) -> Result<Self, serde_json::Error> {
        Ok(Self {
            name: name.into(),
            description: description.into(),
            input_schema: RawValue::from_string(schema.to_owned())?,
        })
    }
}

/// Why a request is made; sent along, so that a gateway's log can tell questions from upkeep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A question of the user's agent.
    Question,
    /// A summary of what leaves the prompt.
    Summary,
    /// Keeping the provider's cache alive.
    KeepWarm,
    /// Trying out what was set up.
    Setup,
}

impl Purpose {
    /// The word that is sent.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::Summary => "summary",
            Self::KeepWarm => "keep-warm",
            Self::Setup => "setup",
        }
    }
}

/// How long a cache entry lives after its last use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lifetime {
    /// Five minutes.
    #[default]
    FiveMinutes,
    /// One hour; dearer to write.
    OneHour,
}

/// The end of the part of a request that a breakpoint covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// The last tool.
    Tools,
    /// A block of the system text.
    System {
        /// Its index in [`ModelRequest::system`].
        block: usize,
    },
    /// A block of a message.
    Message {
        /// The message, counted over all slices of [`ModelRequest::messages`].
        message: usize,
        /// Its index in the message.
        block: usize,
    },
}

/// Where the provider is asked to keep what it has read so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Breakpoint {
    /// The last block covered.
    pub at: Position,
    /// For how long; longer lifetimes must stand before shorter ones.
    pub lifetime: Lifetime,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// The system text, in blocks.
    pub system: &'a [&'a str],
    /// The tools on offer.
    pub tools: &'a [ToolSpec],
    /// The conversation: the slices one after the other.
    pub messages: &'a [&'a [Message]],
    /// The longest completion in tokens, thinking included.
    pub max_tokens: u32,
    /// At most [`MAX_BREAKPOINTS`]; a provider that caches by itself ignores them.
    pub breakpoints: &'a [Breakpoint],
    /// Why it is made.
    pub purpose: Purpose,
    /// An opaque name of the append-only log that this request is a view of, the same for all its
    /// requests and for no other log.
    pub conversation: Option<&'a str>,
}

impl ModelRequest<'_> {
    /// The messages of all slices.
    pub fn all_messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter().copied().flatten()
    }

    /// Checks what no provider would take.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] naming the rule that is broken.
    pub(super) fn validate(&self) -> Result<(), ModelError> {
        let invalid = |what: String| Err(ModelError::Invalid(what));
        if self.breakpoints.len() > MAX_BREAKPOINTS {
            return invalid(format!(
                "{} cache breakpoints in one request; at most {MAX_BREAKPOINTS} may be set",
                self.breakpoints.len()
            ));
        }
        let order = |at: Position| match at {
            Position::Tools => (0, 0, 0),
            Position::System { block } => (1, block, 0),
            Position::Message { message, block } => (2, message, block),
        };
        if self.breakpoints.windows(2).any(|pair| order(pair[0].at) >= order(pair[1].at)) {
            return invalid("cache breakpoints must be given in the order of the request, each once".to_owned());
        }
        let lifetimes = self.breakpoints.windows(2);
        if lifetimes
            .into_iter()
            .any(|pair| (pair[0].lifetime, pair[1].lifetime) == (Lifetime::FiveMinutes, Lifetime::OneHour))
        {
            return invalid("a cache breakpoint of one hour must stand before those of five minutes".to_owned());
        }
        if self.all_messages().next().is_none() {
            return invalid("a request needs at least one message".to_owned());
        }
        Ok(())
    }
}
