//! A request as it was received, in terms that hold for both wire formats.

use std::{fmt, time::SystemTime};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `/v1/messages`.
    Messages,
    /// `/v1/chat/completions`.
    ChatCompletions,
}

/// A cache mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// Five minutes.
    FiveMinutes,
    /// One hour.
    OneHour,
}

/// A tool, a block or, in chat completions, a whole message: byte for byte, without its cache mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The JSON.
    pub raw: String,
    /// The mark.
    pub mark: Option<Mark>,
}

impl Piece {
    /// Its size in tokens: a quarter of its bytes, which is simple and the same everywhere.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        (self.raw.len() as u64).div_ceil(4)
    }

    /// The JSON, parsed.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.raw).unwrap_or_default()
    }
}

/// A turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenMessage {
    /// Who speaks.
    pub role: String,
    /// What.
    pub pieces: Vec<Piece>,
}

/// A request as it was received.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    /// Its number, from 0.
    pub number: usize,
    /// The wire format.
    pub format: Format,
    /// The path.
    pub path: String,
    /// When, by the moved clock.
    pub at: SystemTime,
    /// The headers, names in lower case; secrets are replaced.
    pub headers: Vec<(String, String)>,
    /// The body, byte for byte.
    pub raw: String,
    /// The model that is asked.
    pub model: String,
    /// The tools.
    pub tools: Vec<Piece>,
    /// The system text.
    pub system: Vec<Piece>,
    /// The conversation.
    pub messages: Vec<SeenMessage>,
}

impl SeenRequest {
    /// A header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether it asks for a summary of what leaves the prompt.
    #[must_use]
    pub fn is_summary(&self) -> bool {
        self.header("x-live-memory-purpose") == Some("summary")
    }

    /// The body, parsed.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.raw).unwrap_or_default()
    }

    /// Everything in the order in which a provider reads it.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        let messages = self.messages.iter().flat_map(|message| &message.pieces);
        self.tools.iter().chain(&self.system).chain(messages)
    }

    /// The size of the prompt in tokens.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.pieces().map(Piece::tokens).sum()
    }

    /// Whether a text stands anywhere in the prompt.
    #[must_use]
    pub fn holds(&self, text: &str) -> bool {
        let quoted = Value::from(text).to_string();
        let escaped = &quoted[1..quoted.len() - 1];
        self.pieces().any(|piece| piece.raw.contains(escaped))
    }

    /// The text of the last thing the asking side said.
    #[must_use]
    pub fn question(&self) -> String {
        let last = self.messages.iter().rev().find(|message| message.role == "user");
        let texts = last.into_iter().flat_map(|message| &message.pieces).filter_map(|piece| {
            let json = piece.json();
            json.get("text").or_else(|| json.get("content")).and_then(Value::as_str).map(str::to_owned)
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Reads a body.
    pub(super) fn parse(
        number: usize,
        format: Format,
        path: &str,
        at: SystemTime,
        headers: Vec<(String, String)>,
        raw: &str,
    ) -> Result<Self, String> {
        let body = members(raw)?;
        let field = |name: &str| body.iter().find(|(key, _)| key == name).map(|(_, value)| value.get());
        let list = |name: &str| field(name).map_or(Ok(Vec::new()), elements);
        let mut system = Vec::new();
        let mut messages = Vec::new();
        match field("system") {
            Some(text) if text.starts_with('"') => system.push(text_piece(text)),
            Some(blocks) => system = elements(blocks)?.iter().map(|block| piece(block)).collect::<Result<_, _>>()?,
            None => {}
        }
        for message in list("messages")? {
            let fields = members(&message)?;
            let field = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.get());
            let role: String =
                field("role").and_then(|role| serde_json::from_str(role).ok()).ok_or("a message without role")?;
            let pieces = match (format, field("content")) {
                (Format::ChatCompletions, _) => vec![Piece { raw: message.clone(), mark: None }],
                (Format::Messages, Some(text)) if text.starts_with('"') => vec![text_piece(text)],
                (Format::Messages, Some(blocks)) => {
                    elements(blocks)?.iter().map(|block| piece(block)).collect::<Result<_, _>>()?
                }
                (Format::Messages, None) => return Err("a message without content".to_owned()),
            };
            if format == Format::ChatCompletions && messages.is_empty() && matches!(&*role, "system" | "developer") {
                system.extend(pieces);
            } else {
                messages.push(SeenMessage { role, pieces });
            }
        }
        let tools = list("tools")?.iter().map(|tool| piece(tool)).collect::<Result<_, _>>()?;
        let model = field("model").and_then(|model| serde_json::from_str(model).ok()).unwrap_or_default();
        Ok(Self {
            number,
            format,
            path: path.to_owned(),
            at,
            headers,
            raw: raw.to_owned(),
            model,
            tools,
            system,
            messages,
        })
    }
}

/// A text as the block it stands for.
fn text_piece(quoted: &str) -> Piece {
    Piece { raw: format!(r#"{{"type":"text","text":{quoted}}}"#), mark: None }
}

fn piece(raw: &str) -> Result<Piece, String> {
    let mut fields = members(raw)?;
    let Some(position) = fields.iter().position(|(key, _)| key == "cache_control") else {
        return Ok(Piece { raw: raw.to_owned(), mark: None });
    };
    let (_, control) = fields.remove(position);
    let control: Value = serde_json::from_str(control.get()).map_err(|error| error.to_string())?;
    let mark = match (control["type"].as_str(), control.get("ttl").and_then(Value::as_str)) {
        (Some("ephemeral"), None | Some("5m")) => Mark::FiveMinutes,
        (Some("ephemeral"), Some("1h")) => Mark::OneHour,
        _ => return Err(format!("cache_control that no provider knows: {control}")),
    };
    let rest: Vec<String> =
        fields.iter().map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), value.get())).collect();
    Ok(Piece { raw: format!("{{{}}}", rest.join(",")), mark: Some(mark) })
}

fn elements(raw: &str) -> Result<Vec<String>, String> {
    let values: Vec<Box<RawValue>> = serde_json::from_str(raw).map_err(|error| error.to_string())?;
    Ok(values.into_iter().map(|value| value.get().to_owned()).collect())
}

/// The fields of an object in their order, each byte for byte.
fn members(raw: &str) -> Result<Vec<(String, Box<RawValue>)>, String> {
    struct Members(Vec<(String, Box<RawValue>)>);
    impl<'de> Deserialize<'de> for Members {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct InOrder;
            impl<'de> Visitor<'de> for InOrder {
                type Value = Members;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                    let mut members = Vec::new();
                    while let Some(member) = map.next_entry()? {
                        members.push(member);
                    }
                    Ok(Members(members))
                }
            }
            deserializer.deserialize_map(InOrder)
        }
    }
    serde_json::from_str::<Members>(raw).map(|members| members.0).map_err(|error| error.to_string())
}
