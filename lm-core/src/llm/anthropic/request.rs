//! A request of the Messages API, in bytes.

use serde::{Serialize, Serializer, ser::SerializeSeq};
use serde_json::value::RawValue;

use crate::{
    conversation::{Block, Message, Role},
    llm::{Lifetime, ModelError, ModelRequest, Position, ToolSpec},
};

/// The whole body. What varies between requests of one conversation stands before what grows.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Part<'a>>,
    messages: Messages<'a>,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    effort: &'a str,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl From<Lifetime> for CacheControl {
    fn from(lifetime: Lifetime) -> Self {
        Self { kind: "ephemeral", ttl: (lifetime == Lifetime::OneHour).then_some("1h") }
    }
}

/// A content block. The cache mark is its last field, so that marks are all that moves.
#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Text {
        #[serde(rename = "type")]
        kind: &'static str,
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        #[serde(rename = "type")]
        kind: &'static str,
        id: &'a str,
        name: &'a str,
        input: &'a RawValue,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolResult {
        #[serde(rename = "type")]
        kind: &'static str,
        tool_use_id: &'a str,
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Reasoning(&'a RawValue),
}

impl<'a> Part<'a> {
    fn text(text: &'a str) -> Self {
        Self::Text { kind: "text", text, cache_control: None }
    }

    /// A block of the conversation; `None` for what this model must not or cannot get: thoughts of
    /// another model, empty text.
    fn of(block: &'a Block, model: &str) -> Result<Option<Self>, ModelError> {
        let cache_control = None;
        Ok(match block {
            Block::Text { text } if text.is_empty() => None,
            Block::Text { text } => Some(Self::text(text)),
            Block::ToolUse { id, name, input } => Some(Self::ToolUse {
                kind: "tool_use",
                id,
                name,
                input: raw(input, "a tool call's input")?,
                cache_control,
            }),
            Block::ToolResult { id, text, is_error } => Some(Self::ToolResult {
                kind: "tool_result",
                tool_use_id: id,
                content: text,
                is_error: *is_error,
                cache_control,
            }),
            Block::Reasoning { model: of, raw: thought } if **of == *model => {
                Some(Self::Reasoning(raw(thought, "a thought")?))
            }
            Block::Reasoning { .. } => None,
        })
    }

    /// Marks the block; false if it cannot carry a mark.
    fn mark(&mut self, lifetime: Lifetime) -> bool {
        match self {
            Self::Text { cache_control, .. }
            | Self::ToolUse { cache_control, .. }
            | Self::ToolResult { cache_control, .. } => {
                *cache_control = Some(lifetime.into());
                true
            }
            Self::Reasoning(_) => false,
        }
    }
}

fn raw<'a>(text: &'a str, what: &str) -> Result<&'a RawValue, ModelError> {
    serde_json::from_str(text).map_err(|error| {
        ModelError::Invalid(format!("{what} in the conversation is not JSON ({error}); empty the memory"))
    })
}

#[derive(Serialize)]
struct Turn<'a> {
    role: Role,
    content: Vec<Part<'a>>,
}

/// Turns with content; a turn that only held what is left out is left out with it.
struct Messages<'a>(Vec<Turn<'a>>);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(None)?;
        for turn in self.0.iter().filter(|turn| !turn.content.is_empty()) {
            sequence.serialize_element(turn)?;
        }
        sequence.end()
    }
}

/// The request's bytes.
pub(in crate::llm) fn body(
    request: &ModelRequest<'_>,
    model: &str,
    effort: Option<&str>,
    completion: bool,
) -> Result<Vec<u8>, ModelError> {
    let mut tools: Vec<Tool<'_>> = request
        .tools
        .iter()
        .map(|ToolSpec { name, description, input_schema }| Tool {
            name,
            description,
            input_schema,
            cache_control: None,
        })
        .collect();
    let mut system: Vec<Part<'_>> = request.system.iter().map(|text| Part::text(text)).collect();
    // Where each block of the conversation went: positions count blocks as they are kept, some of
    // which are not sent.
    let mut turns = Vec::new();
    let mut places = Vec::new();
    for message in request.all_messages() {
        let (turn, place) = turn(message, model)?;
        turns.push(turn);
        places.push(place);
    }
    for breakpoint in request.breakpoints {
        let outside = || {
            ModelError::Invalid(format!(
                "a cache breakpoint stands at {:?}, which is not in the request",
                breakpoint.at
            ))
        };
        match breakpoint.at {
            Position::Tools => tools.last_mut().ok_or_else(outside)?.cache_control = Some(breakpoint.lifetime.into()),
            Position::System { block } => {
                system.get_mut(block).ok_or_else(outside)?.mark(breakpoint.lifetime);
            }
            Position::Message { message, block } => {
                let end = *places.get(message).and_then(|place| place.get(block)).ok_or_else(outside)?;
                // A block that cannot carry the mark hands it to the one before.
                turns[..=message]
                    .iter_mut()
                    .enumerate()
                    .flat_map(|(index, turn)| {
                        let end = if index == message { end } else { turn.content.len() };
                        turn.content[..end].iter_mut()
                    })
                    .rev()
                    .any(|part| part.mark(breakpoint.lifetime));
            }
        }
    }
    // An empty block of system text is refused, and marks on the others must keep their places.
    system.retain(|part| !matches!(part, Part::Text { text, .. } if text.is_empty()));
    let body = Body {
        model,
        max_tokens: completion.then_some(request.max_tokens),
        stream: completion,
        output_config: effort.map(|effort| OutputConfig { effort }),
        tools,
        system,
        messages: Messages(turns),
    };
    serde_json::to_vec(&body).map_err(|error| ModelError::Invalid(format!("the request cannot be written: {error}")))
}

/// A message, and for each of its blocks how many parts there are up to and including it.
fn turn<'a>(message: &'a Message, model: &str) -> Result<(Turn<'a>, Vec<usize>), ModelError> {
    let mut content = Vec::with_capacity(message.blocks.len());
    let mut place = Vec::with_capacity(message.blocks.len());
    for block in &message.blocks {
        content.extend(Part::of(block, model)?);
        place.push(content.len());
    }
    Ok((Turn { role: message.role, content }, place))
}
