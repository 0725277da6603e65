//! An answer of the Messages API, streamed or whole.

use std::sync::Arc;

use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    conversation::Block,
    llm::{
        Completion, ModelEvent, Stop, Usage,
        client::EventSink,
        completion::count,
        http::{Decoder, Fault},
        sse::ServerSentEvent,
    },
};

/// A block while it arrives.
enum Open {
    Text(String),
    ToolUse {
        id: String,
        name: String,
        json: String,
    },
    /// The block as it began, with what was added to it since.
    Thinking {
        start: Box<RawValue>,
        text: String,
        signature: String,
    },
    /// Nothing is added to these.
    Opaque(Box<RawValue>),
    Unknown,
}

pub(super) struct AnthropicDecoder {
    model: Arc<str>,
    open: Vec<(u64, Open)>,
    completion: Completion,
    stopped: bool,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default, deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    cache_creation: Option<CacheCreation>,
    #[serde(default, deserialize_with = "count")]
    output_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CacheCreation {
    #[serde(default, deserialize_with = "count")]
    ephemeral_5m_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    ephemeral_1h_input_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let split = wire.cache_creation.map(|split| (split.ephemeral_5m_input_tokens, split.ephemeral_1h_input_tokens));
        let (short, long) = match split {
            Some((None, None)) | None => (wire.cache_creation_input_tokens, None),
            Some(split) => split,
        };
        Self {
            input: wire.input_tokens,
            cache_read: wire.cache_read_input_tokens,
            cache_write_5m: short,
            cache_write_1h: long,
            output: wire.output_tokens,
        }
    }
}

#[derive(Deserialize)]
struct WireMessage<'a> {
    #[serde(borrow, default)]
    content: Option<Vec<&'a RawValue>>,
    stop_reason: Option<String>,
    usage: Option<WireUsage>,
}

/// The union of all events; each fills its own fields.
#[derive(Deserialize)]
struct WireEvent<'a> {
    #[serde(rename = "type")]
    kind: String,
    index: Option<u64>,
    #[serde(borrow)]
    message: Option<WireMessage<'a>>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct WireBlock<'a> {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireDelta {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    partial_json: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    stop_reason: Option<String>,
}

fn malformed(what: &str, error: &serde_json::Error) -> Fault {
    Fault::Malformed(format!("{what} that cannot be read ({error})"))
}

impl AnthropicDecoder {
    pub(super) fn new(model: &str) -> Self {
        Self { model: model.into(), open: Vec::new(), completion: Completion::empty(), stopped: false }
    }

    pub(super) fn into_completion(self) -> Completion {
        self.completion
    }

    fn usage(&mut self, usage: Option<WireUsage>) {
        if let Some(usage) = usage {
            self.completion.usage.raise(&usage.into());
        }
    }

    fn stop(&mut self, reason: &str) {
        self.stopped = true;
        self.completion.stop = match reason {
            "end_turn" | "stop_sequence" => Stop::EndTurn,
            "tool_use" => Stop::ToolUse,
            "max_tokens" => Stop::MaxTokens,
            "refusal" => Stop::Refusal,
            "model_context_window_exceeded" => Stop::ContextExceeded,
            other => Stop::Other(other.to_owned()),
        };
    }

    fn start(&mut self, raw: &RawValue) -> Result<Open, Fault> {
        let block: WireBlock<'_> =
            serde_json::from_str(raw.get()).map_err(|error| malformed("a content block", &error))?;
        Ok(match block.kind.as_str() {
            "text" => Open::Text(block.text.unwrap_or_default()),
            "tool_use" => {
                let (Some(id), Some(name)) = (block.id, block.name) else {
                    return Err(Fault::Malformed("a tool call without id or name".to_owned()));
                };
                let json = block.input.map(RawValue::get).filter(|input| *input != "{}").unwrap_or_default().to_owned();
                Open::ToolUse { id, name, json }
            }
            "thinking" => Open::Thinking { start: raw.to_owned(), text: String::new(), signature: String::new() },
            "redacted_thinking" => Open::Opaque(raw.to_owned()),
            other => {
                tracing::debug!(kind = other, "content block of an unknown type");
                Open::Unknown
            }
        })
    }

    fn close(&mut self, open: Open, emit: &mut EventSink<'_>) -> Result<(), Fault> {
        match open {
            Open::Text(text) if text.is_empty() => {}
            Open::Text(text) => self.completion.blocks.push(Block::Text { text: text.into() }),
            Open::ToolUse { id, name, json } => {
                self.completion.call(id.into(), name.into(), json, emit);
            }
            Open::Thinking { start, text, signature } => {
                let raw = if text.is_empty() && signature.is_empty() {
                    start.get().into()
                } else {
                    thought(&start, &text, &signature).map_err(|error| malformed("a thinking block", &error))?
                };
                self.completion.blocks.push(Block::Reasoning { model: Arc::clone(&self.model), raw });
            }
            Open::Opaque(raw) => {
                self.completion.blocks.push(Block::Reasoning { model: Arc::clone(&self.model), raw: raw.get().into() });
            }
            Open::Unknown => {}
        }
        Ok(())
    }
}

/// A thinking block put together from its stream, in the order of fields in which it is documented.
fn thought(start: &RawValue, text: &str, signature: &str) -> Result<Arc<str>, serde_json::Error> {
    #[derive(Serialize)]
    struct Thinking {
        #[serde(rename = "type")]
        kind: &'static str,
        thinking: String,
        signature: String,
    }
    let start: Value = serde_json::from_str(start.get())?;
    let begun = |field: &str| start.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let block =
        Thinking { kind: "thinking", thinking: begun("thinking") + text, signature: begun("signature") + signature };
    Ok(serde_json::to_string(&block)?.into())
}

impl Decoder for AnthropicDecoder {
    fn headers(&mut self, headers: &HeaderMap) {
        self.completion.request_id = crate::llm::http::request_id(headers, "request-id");
    }

    fn event(&mut self, event: &ServerSentEvent, emit: &mut EventSink<'_>) -> Result<bool, Fault> {
        // Gateways end this format like the other one, and send empty events to keep a connection.
        match event.data.trim() {
            "[DONE]" => return Ok(true),
            "" => return Ok(false),
            _ => {}
        }
        if event.name == "error" || event.data.trim_start().starts_with("{\"error\"") {
            return Err(Fault::Reported(event.data.clone()));
        }
        let wire: WireEvent<'_> = serde_json::from_str(&event.data).map_err(|error| malformed("an event", &error))?;
        let index = wire.index.unwrap_or(0);
        match wire.kind.as_str() {
            "error" => return Err(Fault::Reported(event.data.clone())),
            "message_start" => self.usage(wire.message.and_then(|message| message.usage)),
            "content_block_start" => {
                if let Some(raw) = wire.content_block {
                    let open = self.start(raw)?;
                    if let Open::Text(text) = &open
                        && !text.is_empty()
                    {
                        emit(ModelEvent::Text(text));
                    }
                    self.open.push((index, open));
                }
            }
            "content_block_delta" => {
                let Some(delta) = wire.delta else { return Ok(false) };
                let delta: WireDelta =
                    serde_json::from_str(delta.get()).map_err(|error| malformed("a delta", &error))?;
                let Some((_, open)) = self.open.iter_mut().rev().find(|(open, _)| *open == index) else {
                    return Ok(false);
                };
                match (delta.kind.as_deref(), open) {
                    (Some("text_delta"), Open::Text(text)) => {
                        let more = delta.text.unwrap_or_default();
                        emit(ModelEvent::Text(&more));
                        text.push_str(&more);
                    }
                    (Some("input_json_delta"), Open::ToolUse { json, .. }) => {
                        json.push_str(&delta.partial_json.unwrap_or_default());
                    }
                    (Some("thinking_delta"), Open::Thinking { text, .. }) => {
                        text.push_str(&delta.thinking.unwrap_or_default());
                    }
                    (Some("signature_delta"), Open::Thinking { signature, .. }) => {
                        signature.push_str(&delta.signature.unwrap_or_default());
                    }
                    _ => {}
                }
            }
            "content_block_stop" => {
                if let Some(position) = self.open.iter().position(|(open, _)| *open == index) {
                    let (_, open) = self.open.remove(position);
                    self.close(open, emit)?;
                }
            }
            "message_delta" => {
                self.usage(wire.usage);
                if let Some(delta) = wire.delta {
                    let delta: WireDelta =
                        serde_json::from_str(delta.get()).map_err(|error| malformed("a delta", &error))?;
                    if let Some(reason) = delta.stop_reason {
                        self.stop(&reason);
                    }
                }
            }
            "message_stop" => {
                // What a server has not closed is whole all the same.
                for (_, open) in std::mem::take(&mut self.open) {
                    self.close(open, emit)?;
                }
                return Ok(true);
            }
            // Pings, and what later versions add.
            _ => {}
        }
        Ok(false)
    }

    fn whole(&mut self, body: &str, emit: &mut EventSink<'_>) -> Result<(), Fault> {
        let unreadable = |why: &str| Fault::Malformed(format!("`{}`, {why}", crate::llm::error::shorten(body)));
        let value: Value =
            serde_json::from_str(body).map_err(|error| unreadable(&format!("which is not JSON ({error})")))?;
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Fault::Reported(body.to_owned()));
        }
        if value.get("content").is_none_or(|content| !content.is_array()) {
            return Err(unreadable("which is no message"));
        }
        let message: WireMessage<'_> =
            serde_json::from_str(body).map_err(|error| unreadable(&format!("which is no message ({error})")))?;
        for raw in message.content.into_iter().flatten() {
            let open = self.start(raw)?;
            if let Open::Text(text) = &open {
                emit(ModelEvent::Text(text));
            }
            self.close(open, emit)?;
        }
        self.usage(message.usage);
        self.stop(message.stop_reason.as_deref().unwrap_or("end_turn"));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if !self.stopped || (!self.open.is_empty() && self.completion.stop != Stop::MaxTokens) {
            return Err(Fault::BrokenOff);
        }
        self.completion.settle();
        Ok(())
    }
}
