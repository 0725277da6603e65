//! What a model says, streamed and whole.

use lm_core::{
    conversation::Block,
    llm::{Provider, Stop},
};
use lm_tests::{
    ModelServer,
    model_server::{Fault, ReportedUsage, Say, Script, Turn},
};

use super::{BOTH, ask, client, each_way};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_and_its_usage() {
    let usage = ReportedUsage { input: 10, read: 200, output: 7, ..ReportedUsage::default() };
    each_way(
        || Turn { usage: Some(usage), ..Turn::text("In src/größe.rs:7.") },
        |way, completion, heard| {
            assert_eq!(completion.text(), "In src/größe.rs:7.", "{way}");
            assert_eq!((heard.text.as_str(), heard.started), ("In src/größe.rs:7.", 1), "{way}");
            assert_eq!(completion.stop, Stop::EndTurn, "{way}");
            let usage = completion.usage;
            assert_eq!((usage.input, usage.cache_read, usage.output), (Some(10), Some(200), Some(7)), "{way}");
            assert_eq!(usage.prompt(), Some(210), "{way}");
            assert!(completion.request_id.is_some(), "{way}");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_to_the_cache_are_told_apart_by_lifetime() {
    let usage = ReportedUsage { input: 1, read: 2, write_5m: 30, write_1h: 400, output: 5 };
    for whole in [false, true] {
        let turn = Turn { usage: Some(usage), whole, ..Turn::text("x") };
        let server = ModelServer::start(Script::new([turn]));
        let usage = ask(&*client(&server, Provider::Anthropic)).await.0.unwrap().usage;
        assert_eq!((usage.cache_write_5m, usage.cache_write_1h, usage.prompt()), (Some(30), Some(400), Some(433)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_that_is_not_reported_is_unknown() {
    each_way(
        || Turn { without_usage: true, ..Turn::text("x") },
        |way, completion, _| assert_eq!((completion.usage.prompt(), completion.usage.output), (None, None), "{way}"),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_calls() {
    let calls = || {
        let mut turn = Turn::calls([
            ("Read", serde_json::json!({ "file_path": "a \"quoted\" name.rs" })),
            ("Read", serde_json::json!({ "file_path": "b.rs", "limit": 5 })),
            ("Read", serde_json::json!({})),
        ]);
        turn.say.insert(0, Say::Text("I look.".to_owned()));
        turn
    };
    each_way(calls, |way, completion, _| {
        assert_eq!(completion.stop, Stop::ToolUse, "{way}");
        let [Block::Text { text }, calls @ ..] = &*completion.blocks else { panic!("{way}: {completion:?}") };
        assert_eq!(&**text, "I look.");
        let inputs: Vec<(&str, &str)> = calls
            .iter()
            .map(|block| match block {
                Block::ToolUse { id, input, .. } => (&**id, &**input),
                other => panic!("{way}: {other:?}"),
            })
            .collect();
        let expected = [
            ("call_0_1", r#"{"file_path":"a \"quoted\" name.rs"}"#),
            ("call_0_2", r#"{"file_path":"b.rs","limit":5}"#),
            ("call_0_3", "{}"),
        ];
        assert_eq!(inputs, expected, "{way}");
        assert!(completion.invalid_calls.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_that_are_no_object_are_told_not_run() {
    let turn = || Turn {
        say: vec![Say::Call { name: "Read".to_owned(), arguments: "{\"file_path\": ".to_owned() }],
        ..Turn::default()
    };
    each_way(turn, |way, completion, heard| {
        assert_eq!(completion.invalid_calls.len(), 1, "{way}");
        assert_eq!(completion.stop, Stop::ToolUse, "{way}");
        assert!(matches!(&*completion.blocks, [Block::ToolUse { input, .. }] if &**input == "{}"), "{way}");
        assert!(heard.calls.is_empty(), "{way}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reasons_to_stop() {
    let cases = [
        (["max_tokens", "length"], Stop::MaxTokens),
        (["refusal", "content_filter"], Stop::Refusal),
        (["eos", "eos"], Stop::Other("eos".to_owned())),
    ];
    for (names, expected) in cases {
        for (provider, name) in BOTH.into_iter().zip(names) {
            for whole in [false, true] {
                let server = ModelServer::start(Script::new([Turn { whole, ..Turn::text("x").stopping(name) }]));
                let (result, _) = ask(&*client(&server, provider)).await;
                assert_eq!(result.unwrap().stop, expected, "{provider:?}, whole: {whole}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_cut_off_is_no_call() {
    for (provider, reason) in BOTH.into_iter().zip(["max_tokens", "length"]) {
        let mut turn = Turn::text("I look.").stopping(reason);
        turn.say.push(Say::Call { name: "Read".to_owned(), arguments: "{\"file_path\": \"src/ma".to_owned() });
        let server = ModelServer::start(Script::new([turn]));
        let completion = ask(&*client(&server, provider)).await.0.unwrap();
        assert_eq!(completion.stop, Stop::MaxTokens);
        assert!(matches!(&*completion.blocks, [Block::Text { .. }]), "{completion:?}");
        assert!(completion.invalid_calls.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_after_white_space_or_a_byte_order_mark_is_read() {
    let bodies = [
        (Provider::Anthropic, r#"{"content":[{"type":"text","text":"x"}],"stop_reason":"end_turn"}"#),
        (Provider::OpenAi, r#"{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}"#),
    ];
    for (provider, body) in bodies {
        for before in ["\n\n\n", "\u{feff}"] {
            let page = Fault::Page("application/json", format!("{before}{body}\n"));
            let server = ModelServer::start(Script::new([Turn::fault(page)]));
            assert_eq!(ask(&*client(&server, provider)).await.0.unwrap().text(), "x");
        }
    }
}
