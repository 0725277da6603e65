//! Promises that hold for both wire formats.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::conversation::{Block, Message, Role};

const MODEL: &str = "m";

type Write = fn(&ModelRequest<'_>) -> Result<Vec<u8>, ModelError>;

const FORMATS: [(&str, Write); 2] = [
    ("anthropic", |request| anthropic::body(request, MODEL, None, true)),
    ("openai", |request| openai::body(request, MODEL, openai::Dialect::default(), &Extras::default())),
];

fn request<'a>(messages: &'a [&'a [Message]], breakpoints: &'a [Breakpoint]) -> ModelRequest<'a> {
    ModelRequest {
        system: &["rules", "knowledge"],
        tools: &[],
        messages,
        max_tokens: 100,
        breakpoints,
        purpose: Purpose::Question,
        conversation: None,
    }
}

/// A round: the model thinks, speaks and calls, the results come back with the next question.
fn round(text: &str, number: usize) -> [Message; 2] {
    let id: Arc<str> = format!("call{number}").into();
    let raw = format!(r#"{{"type":"thinking", "signature":"{number}","reasoning_content":"hm"}}"#);
    let call = vec![
        Block::Reasoning { model: MODEL.into(), raw: raw.into() },
        Block::Text { text: text.into() },
        Block::ToolUse {
            id: Arc::clone(&id),
            name: "Read".into(),
            input: format!("{{ \"z\": 1.50, \"a\": {number}}}").into(),
        },
    ];
    let result = vec![
        Block::ToolResult { id, text: text.into(), is_error: number.is_multiple_of(2) },
        Block::Text { text: text.into() },
    ];
    [Message { role: Role::Assistant, blocks: call }, Message { role: Role::User, blocks: result }]
}

/// The bytes of the messages, without what ends them and the request.
fn message_bytes(body: &[u8]) -> String {
    let body = std::str::from_utf8(body).unwrap();
    let start = body.find("\"messages\":[").unwrap();
    body[start..].strip_suffix("]}").unwrap().to_owned()
}

proptest! {
    #[test]
    fn a_longer_log_begins_with_the_bytes_of_the_shorter_one(
        texts in prop::collection::vec("\\PC{0,20}", 1..6),
        cut in 0usize..5,
        marked in 0usize..5,
    ) {
        let mut log = vec![Message::user("the question")];
        for (number, text) in texts.iter().enumerate() {
            log.extend(round(text, number));
        }
        let cut = 1 + 2 * cut.min(texts.len());
        let marked = Breakpoint {
            at: Position::Message { message: (2 * marked).min(log.len() - 1), block: 0 },
            lifetime: Lifetime::OneHour,
        };
        for (name, write) in FORMATS {
            let short = write(&request(&[&log[..cut]], &[])).unwrap();
            let (first, rest) = log.split_at(cut / 2);
            let long = write(&request(&[first, rest], std::slice::from_ref(&marked))).unwrap();
            let long = String::from_utf8(long).unwrap().replace(r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#, "");
            prop_assert!(message_bytes(long.as_bytes()).starts_with(&message_bytes(&short)), "{}", name);
        }
    }
}

#[test]
fn what_a_model_wrote_goes_back_verbatim() {
    let log: Vec<Message> = std::iter::once(Message::user("q")).chain(round("t", 1)).collect();
    let body = String::from_utf8(anthropic::body(&request(&[&log], &[]), MODEL, None, true).unwrap()).unwrap();
    assert!(body.contains(r#""input":{ "z": 1.50, "a": 1}"#), "{body}");
    assert!(body.contains(r#"{"type":"thinking", "signature":"1","reasoning_content":"hm"}"#), "{body}");
    let (_, write) = FORMATS[1];
    let body = String::from_utf8(write(&request(&[&log], &[])).unwrap()).unwrap();
    assert!(body.contains(r#""arguments":"{ \"z\": 1.50, \"a\": 1}""#), "{body}");
    assert!(body.contains(r#""reasoning_content":"hm""#), "{body}");
}

#[test]
fn another_models_thoughts_stay_out_and_marks_find_another_place() {
    let thought = Block::Reasoning { model: "other".into(), raw: "{}".into() };
    let own = Block::Reasoning { model: MODEL.into(), raw: r#"{"type":"thinking"}"#.into() };
    let say = |text: &str| Block::Text { text: text.into() };
    let log = [
        Message::user("q"),
        Message { role: Role::Assistant, blocks: vec![say("a"), thought.clone(), own, say("")] },
        Message { role: Role::Assistant, blocks: vec![thought] },
        Message::user("r"),
    ];
    let marks = [Breakpoint { at: Position::Message { message: 1, block: 3 }, lifetime: Lifetime::FiveMinutes }];
    let body = String::from_utf8(anthropic::body(&request(&[&log], &marks), MODEL, None, true).unwrap()).unwrap();
    let expected = concat!(
        r#""messages":[{"role":"user","content":[{"type":"text","text":"q"}]},"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"thinking"}]},"#,
        r#"{"role":"user","content":[{"type":"text","text":"r"}]}]}"#
    );
    assert!(body.ends_with(expected), "{body}");
}

#[test]
fn marks_that_no_provider_takes_are_refused() {
    let log = [Message::user("q")];
    let at = |at, lifetime| Breakpoint { at, lifetime };
    let system = |block| Position::System { block };
    let five = [Lifetime::FiveMinutes; 5].map(|lifetime| at(system(0), lifetime));
    let cases: [&[Breakpoint]; 3] = [
        &five,
        &[at(system(0), Lifetime::FiveMinutes), at(system(1), Lifetime::OneHour)],
        &[at(system(1), Lifetime::FiveMinutes), at(system(0), Lifetime::FiveMinutes)],
    ];
    for marks in cases {
        assert!(matches!(request(&[&log], marks).validate(), Err(ModelError::Invalid(_))));
    }
    assert!(matches!(request(&[], &[]).validate(), Err(ModelError::Invalid(_))));
    let outside = [at(Position::Message { message: 1, block: 0 }, Lifetime::FiveMinutes)];
    let error = anthropic::body(&request(&[&log], &outside), MODEL, None, true).unwrap_err();
    assert!(error.to_string().contains("not in the request"), "{error}");
}
