//! A conversation with a model, in terms of no particular provider.
//!
//! These types are shared by the memory, which keeps conversations, the model clients, which send
//! them, and the agent between the two. They hold what was said, byte for byte: nothing here is
//! normalised, trimmed or reordered, since a provider's prompt cache and its signatures depend on
//! every byte. Not allowed here: anything that decides, sends or stores.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Who speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The asking side, which also brings tool results.
    User,
    /// The model.
    Assistant,
}

/// One turn of one speaker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub blocks: Vec<Block>,
}

/// A part of a turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Plain text.
    Text {
        /// The text.
        text: Arc<str>,
    },
    /// The model wants a tool run.
    ToolUse {
        /// Names the call; its result carries the same id.
        id: Arc<str>,
        /// The tool.
        name: Arc<str>,
        /// The arguments: the text of a JSON object exactly as the model gave it.
        input: Arc<str>,
    },
    /// What a tool gave.
    ToolResult {
        /// The call's id.
        id: Arc<str>,
        /// The result, or what went wrong.
        text: Arc<str>,
        /// Whether it went wrong.
        is_error: bool,
    },
    /// What the model thought, opaque and possibly signed: only the same model may get it back, and
    /// only unchanged.
    Reasoning {
        /// The model it belongs to.
        model: Arc<str>,
        /// The provider's own JSON for it, verbatim.
        raw: Arc<str>,
    },
}

impl Message {
    /// A turn of the asking side with one text.
    #[must_use]
    pub fn user(text: impl Into<Arc<str>>) -> Self {
        Self { role: Role::User, blocks: vec![Block::Text { text: text.into() }] }
    }

    /// A turn of the model with one text.
    #[must_use]
    pub fn assistant(text: impl Into<Arc<str>>) -> Self {
        Self { role: Role::Assistant, blocks: vec![Block::Text { text: text.into() }] }
    }
}
