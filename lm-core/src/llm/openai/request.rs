//! A request of chat completions, in bytes.

use serde::Serialize;
use serde_json::value::RawValue;

use super::Thought;
use crate::{
    conversation::{Block, Message, Role},
    llm::{ModelError, ModelRequest},
};

/// What a failed tool's result begins with, since the format has no field for it.
const ERROR_PREFIX: &str = "ERROR: ";

/// What differs between servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::llm) struct Dialect {
    /// `max_completion_tokens` instead of `max_tokens`.
    pub(in crate::llm) completion_tokens_field: bool,
    pub(in crate::llm) stream_options: bool,
    /// Name the conversation, so that its requests meet the same cache.
    pub(in crate::llm) cache_key: bool,
    /// Say that no thinking is wanted, where it is on by default and charged as output.
    pub(in crate::llm) thinking_off: bool,
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
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Turn<'a>>,
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
        content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall<'a>>,
    },
    Result {
        role: &'static str,
        tool_call_id: &'a str,
        content: String,
    },
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
pub(in crate::llm) fn body(request: &ModelRequest<'_>, model: &str, dialect: Dialect) -> Result<Vec<u8>, ModelError> {
    let mut messages = Vec::new();
    let system: Vec<&str> = request.system.iter().copied().filter(|text| !text.is_empty()).collect();
    if !system.is_empty() {
        // One message: some servers drop or refuse a second one.
        messages.push(said("system", system.join("\n\n")));
    }
    for message in request.all_messages() {
        turns(message, model, &mut messages)?;
    }
    let length = Some(request.max_tokens);
    let body = Body {
        model,
        max_tokens: length.filter(|_| !dialect.completion_tokens_field),
        max_completion_tokens: length.filter(|_| dialect.completion_tokens_field),
        stream: true,
        stream_options: dialect.stream_options.then_some(StreamOptions { include_usage: true }),
        thinking: dialect.thinking_off.then_some(Thinking { kind: "disabled" }),
        prompt_cache_key: request.conversation.filter(|_| dialect.cache_key),
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

fn said<'a>(role: &'static str, content: String) -> Turn<'a> {
    Turn::Said { role, content, reasoning_content: None, tool_calls: Vec::new() }
}

/// The turns that a message becomes: each tool result is one of its own, before what else is said.
fn turns<'a>(message: &'a Message, model: &str, turns: &mut Vec<Turn<'a>>) -> Result<(), ModelError> {
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
                turns.push(Turn::Result { role: "tool", tool_call_id: id, content });
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
    match message.role {
        Role::User if !texts.is_empty() => turns.push(said("user", texts.join("\n\n"))),
        Role::Assistant if !texts.is_empty() || !calls.is_empty() => turns.push(Turn::Said {
            role: "assistant",
            content: texts.concat(),
            reasoning_content: thought,
            tool_calls: calls,
        }),
        _ => {}
    }
    Ok(())
}
