//! An answer of chat completions, streamed or whole.

use std::sync::Arc;

use reqwest::header::HeaderMap;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Thought, printed_thoughts::SpokenText};
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

/// A field that may be absent, `null` or of another type than documented, which then counts as absent.
fn lenient<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
    #[serde(default, deserialize_with = "lenient")]
    id: Option<String>,
}

#[derive(Deserialize)]
struct Choice {
    /// In a stream.
    delta: Option<Delta>,
    /// In one piece.
    message: Option<Delta>,
    #[serde(default, deserialize_with = "lenient")]
    finish_reason: Option<String>,
    /// Where some servers report it.
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default, deserialize_with = "lenient")]
    content: Option<Content>,
    #[serde(default, deserialize_with = "lenient")]
    reasoning_content: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    reasoning: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Fragment>>,
    /// What `tool_calls` was called before there could be several.
    #[serde(default, deserialize_with = "lenient")]
    function_call: Option<FunctionFragment>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<TextPart>),
}

/// A part without text, such as a thought, says nothing.
#[derive(Deserialize)]
struct TextPart {
    #[serde(default, deserialize_with = "lenient")]
    text: Option<String>,
}

#[derive(Deserialize)]
struct Fragment {
    #[serde(default, deserialize_with = "lenient")]
    index: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    id: Option<String>,
    function: Option<FunctionFragment>,
}

#[derive(Deserialize, Default)]
struct FunctionFragment {
    #[serde(default, deserialize_with = "lenient")]
    name: Option<String>,
    /// A string by the documentation; some servers send the object itself.
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default, deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    prompt_tokens_details: Option<PromptDetails>,
    /// DeepSeek's own name.
    #[serde(default, deserialize_with = "count")]
    prompt_cache_hit_tokens: Option<u64>,
    /// Dollars, where a reseller says what it charges.
    #[serde(default, deserialize_with = "lenient")]
    cost: Option<f64>,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default, deserialize_with = "count")]
    cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cache_write_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let details = wire.prompt_tokens_details;
        let read = details.as_ref().and_then(|details| details.cached_tokens).or(wire.prompt_cache_hit_tokens);
        let write = details.and_then(|details| details.cache_write_tokens);
        // Here the prompt's count includes what was cached.
        let cached = read.unwrap_or(0).saturating_add(write.unwrap_or(0));
        Self {
            input: wire.prompt_tokens.map(|all| all.saturating_sub(cached)),
            cache_read: read,
            cache_write_5m: write,
            cache_write_1h: None,
            output: wire.completion_tokens,
        }
    }
}

/// A tool call while it arrives.
struct OpenCall {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    arguments: String,
}

impl OpenCall {
    /// Whether its arguments are a document that nothing can be added to.
    fn is_whole(&self) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }
}

pub(super) struct OpenAiDecoder {
    model: Arc<str>,
    text: SpokenText,
    reasoning_content: String,
    reasoning: String,
    calls: Vec<OpenCall>,
    finish_reason: Option<String>,
    done: bool,
    pub(super) completion: Completion,
}

impl OpenAiDecoder {
    pub(super) fn new(model: &str) -> Self {
        Self {
            model: model.into(),
            text: SpokenText::default(),
            reasoning_content: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            finish_reason: None,
            done: false,
            completion: Completion::empty(),
        }
    }

    fn take(&mut self, text: &str, emit: &mut EventSink<'_>) -> Result<(), Fault> {
        let chunk: Chunk = match serde_json::from_str(text) {
            Ok(chunk) if !reports_error(text) => chunk,
            Ok(_) => return Err(Fault::Reported(text.to_owned())),
            Err(_) if reports_error(text) => return Err(Fault::Reported(text.to_owned())),
            Err(error) => {
                return Err(Fault::Malformed(format!(
                    "`{}`, which cannot be read ({error})",
                    crate::llm::error::shorten(text)
                )));
            }
        };
        if self.completion.request_id.is_none() {
            self.completion.request_id = chunk.id;
        }
        // Only one choice is ever asked for; the chunk that reports the usage may have none.
        let choice = chunk.choices.into_iter().flatten().next();
        let (choice, usage) = match choice {
            Some(mut choice) => {
                let usage = choice.usage.take();
                (Some(choice), chunk.usage.or(usage))
            }
            None => (None, chunk.usage),
        };
        if let Some(usage) = usage {
            self.completion.charged_usd = usage.cost.or(self.completion.charged_usd);
            self.completion.usage.raise(&usage.into());
        }
        let Some(choice) = choice else { return Ok(()) };
        if let Some(error) = choice.error.filter(|error| !error.is_null()) {
            return Err(Fault::Reported(serde_json::json!({ "error": error }).to_string()));
        }
        if let Some(delta) = choice.delta.or(choice.message) {
            self.delta(delta, emit);
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            if reason == "error" {
                return Err(Fault::Malformed("the server stopped with an error it does not name".to_owned()));
            }
            self.finish_reason = Some(reason);
        }
        Ok(())
    }

    fn delta(&mut self, delta: Delta, emit: &mut EventSink<'_>) {
        let content = match delta.content {
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => parts.into_iter().filter_map(|part| part.text).collect(),
            None => String::new(),
        };
        for text in [content, delta.refusal.unwrap_or_default()] {
            let said = self.text.push(&text);
            if !said.is_empty() {
                emit(ModelEvent::Text(said));
            }
        }
        self.reasoning_content.push_str(&delta.reasoning_content.unwrap_or_default());
        self.reasoning.push_str(&delta.reasoning.unwrap_or_default());
        for fragment in delta.tool_calls.into_iter().flatten() {
            self.fragment(fragment);
        }
        if let Some(function) = delta.function_call {
            self.fragment(Fragment { index: Some(0), id: None, function: Some(function) });
        }
    }

    /// Adds a fragment to the call it belongs to: by index, unless another id, or a name where the call has
    /// all its arguments, shows that the server gives all its calls the same one; without either, to the last.
    fn fragment(&mut self, fragment: Fragment) {
        let id = fragment.id.filter(|id| !id.is_empty());
        let function = fragment.function.unwrap_or_default();
        let name = function.name.unwrap_or_default();
        let position = match (fragment.index, &id) {
            (Some(index), id) => self.calls.iter().rposition(|call| {
                let is_same = match (id, &call.id) {
                    (Some(id), Some(known)) => id == known,
                    _ => name.is_empty() || !call.is_whole(),
                };
                call.index == Some(index) && is_same
            }),
            (None, Some(id)) => self.calls.iter().position(|call| call.id.as_ref() == Some(id)),
            // A name begins a call.
            (None, None) if name.is_empty() => self.calls.len().checked_sub(1),
            (None, None) => None,
        };
        let arguments = match function.arguments {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
        };
        match position.and_then(|position| self.calls.get_mut(position)) {
            Some(call) => {
                call.id = call.id.take().or(id);
                if call.name.is_empty() {
                    call.name = name;
                }
                call.arguments.push_str(&arguments);
            }
            None => self.calls.push(OpenCall { index: fragment.index, id, name, arguments }),
        }
    }
}

/// Whether a document is or holds an error object.
fn reports_error(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Probe {
        error: Option<Value>,
        #[serde(default, deserialize_with = "lenient")]
        object: Option<String>,
    }
    text.contains("\"error\"")
        && serde_json::from_str::<Probe>(text).is_ok_and(|probe| {
            probe.error.is_some_and(|error| !error.is_null()) || probe.object.as_deref() == Some("error")
        })
}

impl Decoder for OpenAiDecoder {
    fn headers(&mut self, headers: &HeaderMap) {
        self.completion.request_id = crate::llm::http::request_id(headers, "x-request-id");
    }

    fn event(&mut self, event: &ServerSentEvent, emit: &mut EventSink<'_>) -> Result<bool, Fault> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
            return Ok(true);
        }
        if event.name == "error" {
            return Err(Fault::Reported(data.to_owned()));
        }
        if !data.is_empty() {
            self.take(data, emit)?;
        }
        Ok(false)
    }

    fn whole(&mut self, body: &str, emit: &mut EventSink<'_>) -> Result<(), Fault> {
        self.take(body, emit)?;
        if self.finish_reason.is_none() && self.text.is_empty() && self.calls.is_empty() {
            return Err(Fault::Malformed(format!("`{}`, which holds no answer", crate::llm::error::shorten(body))));
        }
        self.done = true;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if self.finish_reason.is_none() && !self.done {
            return Err(Fault::BrokenOff);
        }
        let completion = &mut self.completion;
        let some = |text: &mut String| Some(std::mem::take(text)).filter(|text| !text.is_empty());
        let thought =
            Thought { reasoning_content: some(&mut self.reasoning_content), reasoning: some(&mut self.reasoning) };
        if thought.reasoning_content.is_some() || thought.reasoning.is_some() {
            let raw = serde_json::to_string(&thought).map_err(|error| Fault::Malformed(error.to_string()))?;
            completion.blocks.push(Block::Reasoning { model: Arc::clone(&self.model), raw: raw.into() });
        }
        let text = self.text.finish();
        if !text.is_empty() {
            completion.blocks.push(Block::Text { text: text.into() });
        }
        for call in self.calls.drain(..) {
            // Without an id it gets one of ours. Complete only now: the format does not say earlier when a
            // call ends.
            completion.call(call.id.unwrap_or_default().into(), call.name.into(), call.arguments, &mut |_| {});
        }
        completion.stop = match self.finish_reason.as_deref() {
            Some("stop") | None => Stop::EndTurn,
            Some("length") => Stop::MaxTokens,
            Some("tool_calls" | "function_call") => Stop::ToolUse,
            Some("content_filter") => Stop::Refusal,
            Some(other) => Stop::Other(other.to_owned()),
        };
        completion.settle();
        Ok(())
    }
}
