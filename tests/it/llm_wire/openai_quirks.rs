//! What servers of chat completions send besides what is documented, one test for each kind. Bodies are
//! given byte for byte, as events and as one document.

use lm_core::{
    conversation::Block,
    llm::{Completion, ModelError, Provider, Stop},
};
use lm_tests::{
    ModelServer,
    model_server::{Fault, Script, SeenRequest, Turn},
};
use serde_json::{Value, json};

use super::{Heard, ask, client};

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

async fn answer(kind: &'static str, body: &str) -> (Result<Completion, ModelError>, Heard) {
    let server = ModelServer::start(Script::new([Turn::fault(Fault::Page(kind, body.to_owned()))]));
    ask(&*client(&server, Provider::OpenAi)).await
}

async fn completion(kind: &'static str, body: &str) -> Completion {
    answer(kind, body).await.0.unwrap_or_else(|error| panic!("{error}\n{body}"))
}

/// Events with these chunks, and the end.
fn stream(chunks: &[Value]) -> String {
    let events = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    events.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

/// One chunk with a delta.
fn delta(delta: Value) -> Value {
    json!({ "id": "c", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn finish(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

/// The same message whole and as the only delta of a stream.
async fn each_way(message: Value, check: impl Fn(&str, Completion)) {
    let whole = json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] });
    check("whole", completion(JSON, &whole.to_string()).await);
    check("stream", completion(EVENTS, &stream(&[delta(message), finish("stop")])).await);
}

fn calls(completion: &Completion) -> Vec<(&str, &str, &str)> {
    fn call(block: &Block) -> Option<(&str, &str, &str)> {
        match block {
            Block::ToolUse { id, name, input } => Some((id, name, input)),
            _ => None,
        }
    }
    completion.blocks.iter().filter_map(call).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d15_arguments_as_object_text_null_or_nothing() {
    for (arguments, expected) in [
        (json!({ "file_path": "a" }), r#"{"file_path":"a"}"#),
        (json!(r#"{"file_path":"a"}"#), r#"{"file_path":"a"}"#),
        (json!(r#""{\"file_path\":\"a\"}""#), r#"{"file_path":"a"}"#),
        (json!({}), "{}"),
        (json!(""), "{}"),
        (json!("null"), "{}"),
        (Value::Null, "{}"),
    ] {
        let call = json!({ "id": "c1", "type": "function", "function": { "name": "Read", "arguments": arguments } });
        each_way(json!({ "content": null, "tool_calls": [call] }), |way, completion| {
            assert_eq!(calls(&completion), [("c1", "Read", expected)], "{way} {arguments}");
            assert_eq!(completion.stop, Stop::ToolUse, "by presence, whatever the reason: {way}");
            assert!(completion.invalid_calls.is_empty(), "{way}");
        })
        .await;
    }
    let bare = json!({ "id": "c1", "type": "function", "function": { "name": "Read" } });
    each_way(json!({ "tool_calls": [bare] }), |way, completion| {
        assert_eq!(calls(&completion), [("c1", "Read", "{}")], "{way}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d13_parallel_calls_that_all_have_one_index() {
    let call = |id: Value, path: &str| {
        let function = json!({ "name": "Read", "arguments": json!({ "file_path": path }).to_string() });
        delta(json!({ "tool_calls": [{ "index": 0, "id": id, "function": function }] }))
    };
    for ids in [[json!("c1"), json!("c2")], [json!(null), json!(null)], [json!(""), json!("")]] {
        let [first, second] = ids;
        let body = stream(&[call(first, "a"), call(second, "b"), finish("tool_calls")]);
        let completion = completion(EVENTS, &body).await;
        let inputs: Vec<&str> = calls(&completion).into_iter().map(|(_, _, input)| input).collect();
        assert_eq!(inputs, [r#"{"file_path":"a"}"#, r#"{"file_path":"b"}"#]);
        let ids: Vec<&str> = calls(&completion).into_iter().map(|(id, ..)| id).collect();
        assert!(ids[0] != ids[1] && ids.iter().all(|id| !id.is_empty()), "{ids:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_without_index_or_id_and_in_fragments() {
    let fragment = |call: Value| delta(json!({ "tool_calls": [call] }));
    let body = stream(&[
        fragment(json!({ "function": { "name": "Read", "arguments": "{\"file_" } })),
        fragment(json!({ "function": { "arguments": "path\":\"a\"}" } })),
        fragment(json!({ "function": { "name": "Read", "arguments": { "file_path": "b" } } })),
        fragment(json!({ "index": "5", "function": { "name": "Read", "arguments": "" } })),
        fragment(json!({ "index": "5", "function": null })),
        finish("stop"),
    ]);
    let completion = completion(EVENTS, &body).await;
    let seen: Vec<_> = calls(&completion).into_iter().map(|(_, name, input)| (name, input)).collect();
    assert_eq!(seen, [("Read", r#"{"file_path":"a"}"#), ("Read", r#"{"file_path":"b"}"#), ("Read", "{}")]);
    for (id, ..) in calls(&completion) {
        assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}: all servers take it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_name_of_a_call() {
    each_way(json!({ "content": null, "function_call": { "name": "Read", "arguments": "{}" } }), |way, completion| {
        assert_eq!(calls(&completion).len(), 1, "{way}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d17_thoughts_are_never_the_answer() {
    for message in [
        json!({ "content": "Yes.", "reasoning_content": "hm" }),
        json!({ "content": "Yes.", "reasoning": "hm", "reasoning_details": [{ "type": "x" }] }),
        json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": "hm" }] },
                            { "type": "text", "text": "Yes." }] }),
        json!({ "content": "<think>\nhm\n</think>\n\nYes." }),
    ] {
        each_way(message.clone(), |way, completion| assert_eq!(completion.text(), "Yes.", "{way} {message}")).await;
    }
    let (_, heard) =
        answer(EVENTS, &stream(&[delta(json!({ "content": "<think>hm</think>Yes." })), finish("stop")])).await;
    assert_eq!(heard.text, "Yes.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d17_a_server_that_wants_thoughts_back_gets_them_from_then_on() {
    let server = ModelServer::start(|request: &SeenRequest| {
        let calls = request.messages.iter().filter(|message| message.pieces[0].json().get("tool_calls").is_some());
        let lacks = calls.into_iter().any(|message| message.pieces[0].json().get("reasoning_content").is_none());
        match (request.messages.len(), lacks) {
            (_, true) => Turn::status(
                400,
                "invalid_request_error",
                "The reasoning_content in the thinking mode must be passed back to the API.",
            ),
            (1, _) => Turn::calls([("Read", json!({ "file_path": "a" }))]),
            _ => Turn::text("done"),
        }
    });
    let client = client(&server, Provider::OpenAi);
    let completion = ask(&*client).await.0.unwrap();
    let log = super::with_results(&completion);
    let control = lm_core::llm::CallControl::within(super::LONG);
    assert_eq!(super::send(&*client, &log, &[], &control).await.0.unwrap().text(), "done");
    assert_eq!(server.requests().len(), 3);
    super::send(&*client, &log, &[], &control).await.0.unwrap();
    assert_eq!(server.requests().len(), 4, "learned once");
    // That a message now has one field more is what the server wants.
    let _ = server.take_violations();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_in_a_last_chunk_without_choices_in_a_choice_or_never() {
    let usage =
        json!({ "prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": { "cached_tokens": 60 } });
    let text = || delta(json!({ "content": "x" }));
    let within = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop", "usage": usage }] });
    for chunks in [
        vec![text(), finish("stop"), json!({ "choices": [], "usage": usage })],
        vec![text(), finish("stop"), json!({ "usage": usage })],
        vec![text(), finish("stop"), json!({ "choices": [{ "index": 0, "delta": {} }], "usage": usage })],
        vec![text(), within],
    ] {
        let usage = completion(EVENTS, &stream(&chunks)).await.usage;
        assert_eq!((usage.input, usage.cache_read, usage.output), (Some(40), Some(60), Some(5)), "{chunks:?}");
    }
    let none = completion(EVENTS, &stream(&[text(), finish("stop")])).await.usage;
    assert_eq!((none.prompt(), none.output), (None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_by_other_names_and_in_other_types() {
    for (usage, expected) in [
        (
            json!({ "prompt_tokens": 10, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6 }),
            (Some(6), Some(4)),
        ),
        (json!({ "prompt_tokens": "10", "prompt_tokens_details": null }), (Some(10), None)),
        (json!({ "prompt_tokens": 10, "prompt_tokens_details": "none" }), (Some(10), None)),
        (json!("none"), (None, None)),
    ] {
        let body = json!({ "choices": [{ "message": { "content": "x" }, "finish_reason": "stop" }], "usage": usage });
        let read = completion(JSON, &body.to_string()).await.usage;
        assert_eq!((read.input, read.cache_read), expected, "{usage}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reseller_says_what_it_charges() {
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 1, "cost": 0.00125 });
    let body = json!({ "choices": [{ "message": { "content": "x" }, "finish_reason": "stop" }], "usage": usage });
    assert_eq!(completion(JSON, &body.to_string()).await.charged_usd, Some(0.00125));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_choices_comments_and_a_missing_end() {
    let body = format!(
        ": OPENROUTER PROCESSING\n\ndata: {}\n\n: keep-alive\ndata: {}\n\ndata: {}\n\n",
        json!({ "choices": [], "prompt_filter_results": [] }),
        delta(json!({ "role": "assistant", "content": "Yes." })),
        finish("stop"),
    );
    assert_eq!(completion(EVENTS, &body).await.text(), "Yes.");
    // An end without a reason is one, too.
    assert_eq!(completion(EVENTS, &stream(&[delta(json!({ "content": "Yes." }))])).await.stop, Stop::EndTurn);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_inside_success() {
    let rate = json!({ "error": { "message": "slow down", "code": 429 } });
    let kinds = [
        (json!({ "error": { "message": "bad key", "code": 401 } }), "Authentication"),
        (
            json!({ "error": { "message": "This model's maximum context length is 8 tokens", "code": null } }),
            "ContextExceeded",
        ),
        (
            json!({ "error": { "message": "no", "code": "invalid_api_key", "type": "authentication_error" } }),
            "Authentication",
        ),
        (json!({ "error": "something is wrong" }), "BadRequest"),
        (json!({ "object": "error", "message": "no such model", "code": 404 }), "NotFound"),
        (
            json!({ "choices": [{ "error": { "message": "no credit", "code": 402 }, "finish_reason": "error" }] }),
            "Billing",
        ),
    ];
    for (error, expected) in kinds {
        let (whole, _) = answer(JSON, &error.to_string()).await;
        assert_eq!(super::kind(&whole.unwrap_err()), expected, "{error}");
        let streamed = stream(&[delta(json!({ "content": "half" })), error.clone()]);
        let (streamed, _) = answer(EVENTS, &streamed).await;
        assert_eq!(super::kind(&streamed.unwrap_err()), expected, "{error}");
    }
    let named = format!("event: error\ndata: {}\n\n", json!({ "message": "bad key", "code": 401 }));
    assert!(matches!(answer(EVENTS, &named).await.0, Err(ModelError::Authentication(_))));
    let (unnamed, _) = answer(EVENTS, &stream(&[finish("error")])).await;
    assert!(matches!(unnamed, Err(ModelError::Protocol { .. })));
    // What is transient is asked again here as well.
    let turns = [Turn::fault(Fault::Page(JSON, rate.to_string())), Turn::text("in the end")];
    let server = ModelServer::start(Script::new(turns));
    assert_eq!(ask(&*client(&server, Provider::OpenAi)).await.0.unwrap().text(), "in the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_documents_under_any_content_type() {
    let events = stream(&[delta(json!({ "content": "Yes." })), finish("stop")]);
    let document = json!({ "choices": [{ "message": { "content": "Yes." }, "finish_reason": "stop" }] }).to_string();
    for kind in [EVENTS, "text/plain", "application/octet-stream", "", JSON] {
        for body in
            [events.clone(), format!("\n\n: comment\n\n{events}"), document.clone(), format!("\u{feff}\n{document}")]
        {
            assert_eq!(completion(kind, &body).await.text(), "Yes.", "{kind:?}: {body}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves_of_surrogate_pairs_do_not_end_the_answer() {
    let chunk = r#"data: {"choices":[{"delta":{"content":"a\ud83d"}}]}"#;
    let rest = r#"data: {"choices":[{"delta":{"content":"\ude00b \ud83d\ude00"},"finish_reason":"stop"}]}"#;
    let text = completion(EVENTS, &format!("{chunk}\n\n{rest}\n\ndata: [DONE]\n\n")).await.text();
    assert_eq!(text, "a\u{fffd}\u{fffd}b 😀");
    let call = r#"{"choices":[{"message":{"content":"\udc00","tool_calls":[{"id":"c","function":{"name":"Read","arguments":"{\"file_path\":\"\\ud800x\"}"}}]}}]}"#;
    let completion = completion(JSON, call).await;
    assert_eq!(calls(&completion), [("c", "Read", r#"{"file_path":"\ufffdx"}"#)]);
    assert!(completion.invalid_calls.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d22_reasons_to_stop_of_any_name() {
    for (reason, expected) in [
        ("length", Stop::MaxTokens),
        ("content_filter", Stop::Refusal),
        ("eos", Stop::Other("eos".to_owned())),
        ("function_call", Stop::EndTurn),
        ("", Stop::EndTurn),
    ] {
        let body = stream(&[delta(json!({ "content": "x" })), finish(reason)]);
        assert_eq!(completion(EVENTS, &body).await.stop, expected, "{reason}");
    }
    let number = json!({ "choices": [{ "message": { "content": "x" }, "finish_reason": 0 }] });
    assert_eq!(completion(JSON, &number.to_string()).await.stop, Stop::EndTurn);
}
