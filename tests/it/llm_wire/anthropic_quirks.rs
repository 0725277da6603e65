//! What servers of the Messages API send besides what is usual, byte for byte, one test for each kind.

use lm_core::{
    conversation::Block,
    llm::{Completion, ModelError, Provider, Stop},
};
use lm_tests::{
    ModelServer,
    model_server::{Fault, Script, Turn},
};
use serde_json::{Value, json};

use super::{ask, client};

const EVENTS: &str = "text/event-stream";

async fn answer(kind: &'static str, body: &str) -> Result<Completion, ModelError> {
    let server = ModelServer::start(Script::new([Turn::fault(Fault::Page(kind, body.to_owned()))]));
    ask(&*client(&server, Provider::Anthropic)).await.0
}

async fn streamed(events: &[Value]) -> Completion {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    let body: String = events.iter().map(event).collect();
    answer(EVENTS, &body).await.unwrap_or_else(|error| panic!("{error}\n{body}"))
}

fn start(usage: Value) -> Value {
    json!({ "type": "message_start", "message": { "content": null, "stop_reason": null, "usage": usage } })
}

fn block(index: u64, block: Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn delta(index: u64, delta: Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn close(index: u64) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

fn text(index: u64, text: &str) -> [Value; 3] {
    let begin = block(index, json!({ "type": "text", "text": "" }));
    [begin, delta(index, json!({ "type": "text_delta", "text": text })), close(index)]
}

fn stop(reason: &str, usage: Value) -> [Value; 2] {
    let delta = json!({ "stop_reason": reason, "stop_details": { "type": "refusal", "category": null } });
    [json!({ "type": "message_delta", "delta": delta, "usage": usage }), json!({ "type": "message_stop" })]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_are_told_by_their_type_wherever_they_stand() {
    let mut events = vec![start(Value::Null), block(0, json!({ "type": "thinking", "thinking": "", "signature": "" }))];
    events.push(delta(0, json!({ "type": "signature_delta", "signature": "c2ln" })));
    events.extend([close(0), block(1, json!({ "type": "redacted_thinking", "data": "eA==" })), close(1)]);
    events.extend([block(2, json!({ "type": "of_the_future", "x": 1 })), close(2)]);
    events.push(json!({ "type": "of_the_future" }));
    events.push(delta(2, json!({ "type": "of_the_future" })));
    events.extend(text(3, "Yes."));
    events.extend(stop("end_turn", Value::Null));
    let completion = streamed(&events).await;
    assert_eq!(completion.text(), "Yes.");
    let thoughts: Vec<&str> = completion
        .blocks
        .iter()
        .filter_map(|block| if let Block::Reasoning { raw, .. } = block { Some(&**raw) } else { None })
        .collect();
    let redacted: Value = serde_json::from_str(thoughts[1]).unwrap();
    assert_eq!(thoughts[0], r#"{"type":"thinking","thinking":"","signature":"c2ln"}"#);
    assert_eq!(redacted, json!({ "type": "redacted_thinking", "data": "eA==" }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_reasons_also_unknown_ones() {
    for (reason, expected) in [
        ("end_turn", Stop::EndTurn),
        ("stop_sequence", Stop::EndTurn),
        ("max_tokens", Stop::MaxTokens),
        ("refusal", Stop::Refusal),
        ("model_context_window_exceeded", Stop::ContextExceeded),
        ("pause_turn", Stop::Other("pause_turn".into())),
        ("compaction", Stop::Other("compaction".into())),
    ] {
        let mut events = vec![start(Value::Null)];
        events.extend(text(0, "x"));
        events.extend(stop(reason, Value::Null));
        assert_eq!(streamed(&events).await.stop, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_of_which_the_larger_figure_counts() {
    // A gateway's first report is nothing; the split by lifetime may be missing, any figure may be null.
    let zero = json!({ "input_tokens": 0, "output_tokens": 0 });
    for (last, expected) in [
        (
            json!({ "input_tokens": 100, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 50,
                    "cache_creation": null, "output_tokens": 7, "service_tier": "standard" }),
            (Some(100), Some(900), Some(50), None, Some(7)),
        ),
        (
            json!({ "input_tokens": 1, "cache_creation_input_tokens": 30, "output_tokens": null,
                    "cache_creation": { "ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20 } }),
            (Some(1), None, Some(10), Some(20), Some(0)),
        ),
    ] {
        let mut events = vec![start(zero.clone())];
        events.extend(text(0, "x"));
        events.extend(stop("end_turn", last));
        let usage = streamed(&events).await.usage;
        let seen = (usage.input, usage.cache_read, usage.cache_write_5m, usage.cache_write_1h, usage.output);
        assert_eq!(seen, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_in_pieces_and_none_at_all() {
    let call = |index, id: &str| block(index, json!({ "type": "tool_use", "id": id, "name": "Read", "input": {} }));
    let piece = |index, json: &str| delta(index, json!({ "type": "input_json_delta", "partial_json": json }));
    let mut events = vec![start(Value::Null), call(0, "a"), call(1, "b")];
    events.extend([
        piece(0, ""),
        piece(0, "{\"file_path\":"),
        piece(1, ""),
        piece(0, "\"\\ud83d\"}"),
        close(0),
        close(1),
    ]);
    events.extend(stop("tool_use", Value::Null));
    let completion = streamed(&events).await;
    let inputs: Vec<&str> = completion
        .blocks
        .iter()
        .filter_map(|block| if let Block::ToolUse { input, .. } = block { Some(&**input) } else { None })
        .collect();
    assert_eq!(inputs, [r#"{"file_path":"\ufffd"}"#, "{}"], "half of a surrogate pair ends nothing");
    assert!(completion.invalid_calls.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_that_other_servers_make() {
    let mut events = vec![start(Value::Null)];
    let [begin, said, _] = text(0, "Yes.");
    events.extend([begin, said, json!({ "type": "ping" })]);
    events.extend(stop("end_turn", Value::Null));
    assert_eq!(streamed(&events).await.text(), "Yes.", "a block that is not closed");
    events.pop();
    events.insert(3, close(0));
    assert_eq!(streamed(&events).await.text(), "Yes.", "no message_stop");
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    assert_eq!(answer("text/plain", &format!("{body}data: [DONE]\n\n")).await.unwrap().text(), "Yes.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_either_shape_after_success() {
    let overflow = r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"x","n_ctx":8}}"#;
    let typed = r#"{"type":"error","error":{"type":"authentication_error","message":"x"}}"#;
    for (body, expected) in [(overflow, "ContextExceeded"), (typed, "Authentication")] {
        for body in [body.to_owned(), format!("event: error\ndata: {body}\n\n"), format!("data: {body}\n\n")] {
            let error = answer(EVENTS, &body).await.unwrap_err();
            assert_eq!(super::kind(&error), expected, "{body}");
        }
    }
}
