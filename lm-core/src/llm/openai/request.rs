//! A request of chat completions, in bytes.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::Thought;
use crate::{
    conversation::{Block, Message, Role},
    llm::{Breakpoint, Extras, Lifetime, ModelError, ModelRequest, Position},
};

/// What a failed tool's result begins with, since the format has no field for it.
const ERROR_PREFIX: &str = "ERROR: ";

/// What differs between servers.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::llm) struct Dialect {
    /// `max_completion_tokens` instead of `max_tokens`.
    pub(in crate::llm) completion_tokens_field: bool,
    /// Neither of them.
    pub(in crate::llm) no_length: bool,
    pub(in crate::llm) no_stream_options: bool,
    /// Name the conversation, so that its requests meet the same cache.
    pub(in crate::llm) cache_key: bool,
    /// Say that no thinking is wanted, where it is on by default and charged as output.
    pub(in crate::llm) thinking_off: bool,
    /// Give a call back with what was thought before it, even if that was nothing.
    pub(in crate::llm) thoughts_required: bool,
    /// Ask what the request costs.
    pub(in crate::llm) ask_cost: bool,
    /// Mark what is to be cached.
    pub(in crate::llm) cache_marks: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<AskedUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(flatten)]
    extra: BTreeMap<&'a String, &'a Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Turn<'a>>,
}

#[derive(Serialize)]
struct AskedUsage {
    include: bool,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Thinking {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Turn<'a> {
    Said {
        role: &'static str,
        content: Content,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall<'a>>,
    },
    Result {
        role: &'static str,
        tool_call_id: &'a str,
        content: Content,
    },
}

/// A text; in parts only where a mark must stand on it, since some servers take nothing but a string.
#[derive(Serialize)]
#[serde(untagged)]
enum Content {
    Plain(String),
    Marked([MarkedText; 1]),
}

#[derive(Serialize)]
struct MarkedText {
    #[serde(rename = "type")]
    kind: &'static str,
    text: String,
    cache_control: CacheControl,
}

#[derive(Serialize)]
struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl Turn<'_> {
    /// Marks the end of what is to be cached; false where there is no text to mark.
    fn mark(&mut self, lifetime: Lifetime) -> bool {
        let (Self::Said { content, .. } | Self::Result { content, .. }) = self;
        let Content::Plain(text) = content else { return true };
        if text.is_empty() {
            return false;
        }
        let cache_control = CacheControl { kind: "ephemeral", ttl: (lifetime == Lifetime::OneHour).then_some("1h") };
        *content = Content::Marked([MarkedText { kind: "text", text: std::mem::take(text), cache_control }]);
        true
    }
}

#[derive(Serialize)]
struct ToolCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CalledFunction<'a>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

/// The request's bytes.
pub(in crate::llm) fn body(
    request: &ModelRequest<'_>,
    model: &str,
    dialect: Dialect,
    extras: &Extras,
) -> Result<Vec<u8>, ModelError> {
    let mut messages = Vec::new();
    let system: Vec<&str> = request.system.iter().copied().filter(|text| !text.is_empty()).collect();
    if !system.is_empty() {
        // One message: some servers drop or refuse a second one.
        messages.push(said("system", system.join("\n\n")));
    }
    // How many turns there are up to and including each message.
    let mut ends = Vec::new();
    for message in request.all_messages() {
        turns(message, model, dialect.thoughts_required, &mut messages)?;
        ends.push(messages.len());
    }
    if dialect.cache_marks {
        mark(&mut messages, &ends, !system.is_empty(), request.breakpoints);
    }
    let length = Some(request.max_tokens)
        .filter(|_| !dialect.no_length && !extras.decides("max_tokens") && !extras.decides("max_completion_tokens"));
    let ours = |field: &str, wanted: bool| wanted && !extras.decides(field);
    let body = Body {
        model,
        max_tokens: length.filter(|_| !dialect.completion_tokens_field),
        max_completion_tokens: length.filter(|_| dialect.completion_tokens_field),
        stream: true,
        stream_options: ours("stream_options", !dialect.no_stream_options)
            .then_some(StreamOptions { include_usage: true }),
        usage: ours("usage", dialect.ask_cost).then_some(AskedUsage { include: true }),
        thinking: ours("thinking", dialect.thinking_off).then_some(Thinking { kind: "disabled" }),
        prompt_cache_key: request.conversation.filter(|_| ours("prompt_cache_key", dialect.cache_key)),
        extra: extras.body().collect(),
        tools: request
            .tools
            .iter()
            .map(|tool| Tool {
                kind: "function",
                function: Function { name: &tool.name, description: &tool.description, parameters: &tool.input_schema },
            })
            .collect(),
        messages,
    };
    serde_json::to_vec(&body).map_err(|error| ModelError::Invalid(format!("the request cannot be written: {error}")))
}

/// Puts marks where the breakpoints stand; tools cannot bear one here, and are covered by the next.
fn mark(turns: &mut [Turn<'_>], ends: &[usize], has_system: bool, breakpoints: &[Breakpoint]) {
    for breakpoint in breakpoints {
        let end = match breakpoint.at {
            Position::Tools => continue,
            Position::System { .. } => usize::from(has_system),
            Position::Message { message, .. } => ends.get(message).copied().unwrap_or(turns.len()),
        };
        let covered = turns.get_mut(..end).unwrap_or_default();
        covered.iter_mut().rev().any(|turn| turn.mark(breakpoint.lifetime));
    }
}

fn said<'a>(role: &'static str, content: String) -> Turn<'a> {
    Turn::Said { role, content: Content::Plain(content), reasoning_content: None, tool_calls: Vec::new() }
}

/// The turns that a message becomes: each tool result is one of its own, before what else is said.
fn turns<'a>(
    message: &'a Message,
    model: &str,
    thoughts_required: bool,
    turns: &mut Vec<Turn<'a>>,
) -> Result<(), ModelError> {
    let mut texts = Vec::new();
    let mut calls = Vec::new();
    let mut thought = None;
    for block in &message.blocks {
        match block {
            Block::Text { text } if text.is_empty() => {}
            Block::Text { text } => texts.push(&**text),
            Block::ToolUse { id, name, input } => {
                calls.push(ToolCall { id, kind: "function", function: CalledFunction { name, arguments: input } });
            }
            Block::ToolResult { id, text, is_error } => {
                let content = if *is_error { format!("{ERROR_PREFIX}{text}") } else { text.to_string() };
                turns.push(Turn::Result { role: "tool", tool_call_id: id, content: Content::Plain(content) });
            }
            Block::Reasoning { model: of, raw } if **of == *model => {
                let kept: Thought = serde_json::from_str(raw).map_err(|error| {
                    ModelError::Invalid(format!(
                        "a thought in the conversation is not JSON ({error}); empty the memory"
                    ))
                })?;
                // The other spelling is never asked for.
                thought = kept.reasoning_content.or(thought);
            }
            Block::Reasoning { .. } => {}
        }
    }
    if thoughts_required && !calls.is_empty() {
        // Nothing at all is refused by some, a blank by none.
        thought = thought.or_else(|| Some(" ".to_owned()));
    }
    match message.role {
        Role::User if !texts.is_empty() => turns.push(said("user", texts.join("\n\n"))),
        Role::Assistant if !texts.is_empty() || !calls.is_empty() => turns.push(Turn::Said {
            role: "assistant",
            content: Content::Plain(texts.concat()),
            reasoning_content: thought,
            tool_calls: calls,
        }),
        _ => {}
    }
    Ok(())
}
