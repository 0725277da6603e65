//! What a model gave back.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{ModelEvent, client::EventSink, lone_surrogates};
use crate::conversation::Block;

/// Why the model stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It had nothing more to say.
    EndTurn,
    /// It waits for the results of its tool calls.
    ToolUse,
    /// The longest completion was reached: the text is cut.
    MaxTokens,
    /// It, or a filter, declined to answer.
    Refusal,
    /// The context window was full: the text is cut.
    ContextExceeded,
    /// Something this version has no name for; to be taken as an end.
    Other(String),
}

/// The tokens of one request; `None` where the provider reported nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Prompt tokens that were neither read from nor written to a cache.
    pub input: Option<u64>,
    /// Prompt tokens read from the cache.
    pub cache_read: Option<u64>,
    /// Prompt tokens written to the provider's short-lived cache (five minutes, or thirty where
    /// that is the provider's only lifetime).
    pub cache_write_5m: Option<u64>,
    /// Prompt tokens written to the cache for one hour.
    pub cache_write_1h: Option<u64>,
    /// Completion tokens, thinking included.
    pub output: Option<u64>,
}

impl Usage {
    /// All prompt tokens, cached or not; `None` if the provider reported none of them.
    #[must_use]
    pub fn prompt(&self) -> Option<u64> {
        let parts = [self.input, self.cache_read, self.cache_write_5m, self.cache_write_1h];
        parts
            .iter()
            .any(Option::is_some)
            .then(|| parts.iter().flatten().fold(0u64, |sum, part| sum.saturating_add(*part)))
    }

    /// What can be true of it, where a prompt has at most `prompt` tokens and an answer `output`:
    /// servers misreport, and a budget must not be used up by a slip of theirs.
    #[must_use]
    pub fn bounded(&self, prompt: u64, output: u64) -> Self {
        let part = |tokens: Option<u64>| tokens.map(|tokens| tokens.min(prompt));
        Self {
            input: part(self.input),
            cache_read: part(self.cache_read),
            cache_write_5m: part(self.cache_write_5m),
            cache_write_1h: part(self.cache_write_1h),
            output: self.output.map(|tokens| tokens.min(output)),
        }
    }

    /// Both together, as the sum over a question's requests.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        Self {
            input: sum(self.input, other.input),
            cache_read: sum(self.cache_read, other.cache_read),
            cache_write_5m: sum(self.cache_write_5m, other.cache_write_5m),
            cache_write_1h: sum(self.cache_write_1h, other.cache_write_1h),
            output: sum(self.output, other.output),
        }
    }

    /// Keeps the larger of each figure: reports of one stream are cumulative, and some servers say
    /// zero at first.
    pub(super) fn raise(&mut self, other: &Self) {
        self.input = self.input.max(other.input);
        self.cache_read = self.cache_read.max(other.cache_read);
        self.cache_write_5m = self.cache_write_5m.max(other.cache_write_5m);
        self.cache_write_1h = self.cache_write_1h.max(other.cache_write_1h);
        self.output = self.output.max(other.output);
    }
}

/// A tool call whose arguments are not a JSON object. It stands among the blocks with `{}` as its
/// input, so that the conversation stays well-formed; its result should tell the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidCall {
    /// The call's id.
    pub id: Arc<str>,
    /// The arguments as the model wrote them.
    pub arguments: String,
    /// What is wrong with them.
    pub problem: String,
}

/// A whole answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Completion {
    /// What the model said, thought and called, in order.
    pub blocks: Vec<Block>,
    /// Why it stopped. Tool calls decide by their presence: with one among the blocks this is
    /// [`Stop::ToolUse`] unless the answer was cut.
    pub stop: Stop,
    /// What it cost in tokens.
    pub usage: Usage,
    /// The provider's name for this request, for its support.
    pub request_id: Option<String>,
    /// Dollars that the server says it charges for it, where it does.
    pub charged_usd: Option<f64>,
    /// Calls that must not be run.
    pub invalid_calls: Vec<InvalidCall>,
}

impl Completion {
    /// The text of the answer, without thoughts and calls.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Text { text } => Some(&**text),
            _ => None,
        });
        texts.collect()
    }

    /// Takes calls, as names and arguments, for what the model meant by its text.
    pub fn replace_text_by_calls(&mut self, calls: Vec<(String, String)>) {
        self.blocks.retain(|block| !matches!(block, Block::Text { .. }));
        for (name, arguments) in calls {
            self.call("".into(), name.into(), arguments, &mut |_| {});
        }
        self.stop = Stop::ToolUse;
    }

    /// Nothing yet.
    pub(super) fn empty() -> Self {
        Self {
            blocks: Vec::new(),
            stop: Stop::EndTurn,
            usage: Usage::default(),
            request_id: None,
            charged_usd: None,
            invalid_calls: Vec::new(),
        }
    }

    /// Adds a call as the model wrote it.
    ///
    /// An id that a provider would not take back, or that another call has, gives way to one of ours.
    pub(super) fn call(&mut self, id: Arc<str>, name: Arc<str>, arguments: String, emit: &mut EventSink<'_>) {
        let is_taken =
            self.blocks.iter().any(|block| matches!(block, Block::ToolUse { id: other, .. } if *other == id));
        let id = if is_taken || !is_plain_id(&id) { own_id() } else { id };
        let input = match object_text(&arguments) {
            Ok(input) => {
                emit(ModelEvent::ToolCall { id: &id, name: &name, input: &input });
                input
            }
            Err(problem) => {
                self.invalid_calls.push(InvalidCall { id: Arc::clone(&id), arguments, problem });
                "{}".into()
            }
        };
        self.blocks.push(Block::ToolUse { id, name, input });
    }

    /// Puts stop reason and calls into agreement: servers differ in what they say when they call,
    /// and a call that was cut off in the middle must not look like one.
    pub(super) fn settle(&mut self) {
        let cut = matches!(self.stop, Stop::MaxTokens | Stop::ContextExceeded);
        if cut && let Some(Block::ToolUse { id, input, .. }) = self.blocks.last() {
            let invalid = self.invalid_calls.iter().position(|call| call.id == *id);
            if invalid.is_some() || &**input == "{}" {
                self.blocks.pop();
            }
            if let Some(index) = invalid {
                self.invalid_calls.remove(index);
            }
        }
        let calls = self.blocks.iter().any(|block| matches!(block, Block::ToolUse { .. }));
        match self.stop {
            Stop::EndTurn | Stop::Other(_) if calls => self.stop = Stop::ToolUse,
            Stop::ToolUse if !calls => self.stop = Stop::EndTurn,
            _ => {}
        }
    }
}

/// An id that every provider takes: one of them wants exactly nine letters and digits.
fn own_id() -> Arc<str> {
    (0..9).map(|_| fastrand::alphanumeric()).collect::<String>().into()
}

/// The longest id of a call that is sent back as it came.
const ID_MAX: usize = 128;

fn is_plain_id(id: &str) -> bool {
    (1..=ID_MAX).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':'))
}

/// A count of tokens as servers write it: a number, a number with a fraction, a text. Anything else is
/// none, since an answer must not be lost over how it was counted.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) => text.trim().parse::<f64>().ok().and_then(whole),
        _ => None,
    })
}

/// A count without its fraction; none for what is no count.
fn whole(number: f64) -> Option<u64> {
    (number.is_finite() && number >= 0.0).then_some(number as u64)
}

/// The arguments of a call as the text of a JSON object, or why they are none. Nothing at all and
/// `null` mean no arguments; a JSON string that holds an object is unwrapped.
pub(super) fn object_text(arguments: &str) -> Result<Arc<str>, String> {
    let arguments = lone_surrogates::replaced(arguments);
    let trimmed = arguments.trim();
    if trimmed.is_empty() || trimmed == "null" || trimmed == "\"\"" {
        return Ok("{}".into());
    }
    if trimmed.starts_with('"') {
        let inner: String = serde_json::from_str(trimmed).map_err(|error| error.to_string())?;
        return if inner.trim_start().starts_with('"') { Err(not_an_object(trimmed)) } else { object_text(&inner) };
    }
    match serde_json::from_str::<&serde_json::value::RawValue>(trimmed) {
        Err(error) => Err(format!("the arguments are not valid JSON: {error}")),
        Ok(_) if !trimmed.starts_with('{') => Err(not_an_object(trimmed)),
        Ok(_) => Ok(trimmed.into()),
    }
}

fn not_an_object(text: &str) -> String {
    let start: String = text.chars().take(40).collect();
    format!("the arguments must be a JSON object, not `{start}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_every_kind_become_an_object_or_a_reason() {
        for nothing in ["", "  ", "null", "{}", "\"\"", "\"{}\"", "\"null\""] {
            assert_eq!(object_text(nothing).as_deref(), Ok("{}"), "{nothing:?}");
        }
        assert_eq!(object_text("{\"b\":1, \"a\":2}").as_deref(), Ok("{\"b\":1, \"a\":2}"), "bytes are kept");
        assert_eq!(object_text(r#""{\"path\":\"a\"}""#).as_deref(), Ok(r#"{"path":"a"}"#));
        for bad in ["{\"a\":", "[1]", "7", "\"\\\"x\\\"\"", "{}{}", "not json"] {
            assert!(object_text(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn counts_of_every_form_are_read_or_unknown() {
        let read = |json: &str| count(&mut serde_json::Deserializer::from_str(json)).unwrap();
        for (json, expected) in [("12", Some(12)), ("12.5", Some(12)), ("\"12\"", Some(12)), ("1e30", Some(u64::MAX))] {
            assert_eq!(read(json), expected, "{json}");
        }
        for json in ["-5", "null", "[]", "\"many\"", "{}"] {
            assert_eq!(read(json), None, "{json}");
        }
    }

    #[test]
    fn ids_that_nobody_would_take_back_are_replaced() {
        let mut completion = Completion::empty();
        for id in ["toolu_01", "toolu_01", "", "a b/ü", &"x".repeat(5_000)] {
            completion.call(id.into(), "Read".into(), "{}".into(), &mut |_| {});
        }
        let ids: Vec<&str> = completion
            .blocks
            .iter()
            .filter_map(|block| if let Block::ToolUse { id, .. } = block { Some(&**id) } else { None })
            .collect();
        assert_eq!(ids[0], "toolu_01");
        assert!(ids[1..].iter().all(|id| id.len() == 9 && is_plain_id(id)), "{ids:?}");
        assert!((1..5).all(|index| !ids[..index].contains(&ids[index])), "{ids:?}");
    }

    #[test]
    fn the_prompt_is_unknown_only_if_nothing_was_reported() {
        assert_eq!(Usage::default().prompt(), None);
        let usage = Usage { input: Some(100), cache_read: Some(900), output: Some(5), ..Usage::default() };
        assert_eq!(usage.prompt(), Some(1000));
        assert_eq!(usage.plus(&usage).prompt(), Some(2000));
        let most = Usage { input: Some(u64::MAX), cache_read: Some(u64::MAX), output: Some(u64::MAX), ..usage };
        assert_eq!(most.prompt(), Some(u64::MAX));
        assert_eq!(most.bounded(100, 10), Usage { input: Some(100), cache_read: Some(100), output: Some(10), ..usage });
    }
}
