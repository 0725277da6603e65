//! The model clients against the fake server: both wire formats, streamed and whole, every fault.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use lm_core::{
    conversation::{Block, Message, Role},
    llm::{
        ApiKey, Breakpoint, CallControl, Completion, Lifetime, ModelClient, ModelError, ModelEvent, ModelRequest,
        ModelSettings, Position, Provider, Purpose, Stop, Timeouts, ToolSpec, Transport, connect,
    },
};
use lm_tests::{
    ModelServer,
    model_server::{Fault, Gate, Mark, ReadingModel, ReportedUsage, Say, Script, SeenRequest, ServerOptions, Turn},
    wait_until,
};
use tokio_util::sync::CancellationToken;

/// Must never be seen in any text.
const CANARY: &str = "sk-canary-0123456789abcdef";
const BOTH: [Provider; 2] = [Provider::Anthropic, Provider::OpenAi];
const LONG: Duration = Duration::from_secs(30);

fn transport(timeouts: Timeouts) -> Arc<Transport> {
    Arc::new(Transport::new(timeouts).unwrap())
}

fn client_at(url: &str, provider: Provider, transport: &Arc<Transport>) -> Arc<dyn ModelClient> {
    let settings = ModelSettings {
        provider,
        base_url: Some(url.to_owned()),
        api_key: ApiKey::new(CANARY).ok(),
        model: provider.default_model(None).map(str::to_owned),
    };
    connect(&settings, transport).unwrap_or_else(|error| panic!("{error}"))
}

fn client(server: &ModelServer, provider: Provider) -> Arc<dyn ModelClient> {
    client_at(&server.url(), provider, &transport(Timeouts::default()))
}

fn tools() -> Vec<ToolSpec> {
    let schema = r#"{"type":"object","properties":{"file_path":{"type":"string"}},"required":["file_path"]}"#;
    vec![ToolSpec::new("Read", "Reads a file.", schema).unwrap()]
}

/// What was heard during a call.
#[derive(Debug, Default)]
struct Heard {
    text: String,
    calls: Vec<(String, String)>,
    started: usize,
    retries: Vec<(Duration, String)>,
}

async fn send(
    client: &dyn ModelClient,
    messages: &[Message],
    breakpoints: &[Breakpoint],
    control: &CallControl,
) -> (Result<Completion, ModelError>, Heard) {
    let mut heard = Heard::default();
    let tools = tools();
    let result = {
        let mut events = |event: ModelEvent<'_>| match event {
            ModelEvent::Started => heard.started += 1,
            ModelEvent::Text(text) => heard.text.push_str(text),
            ModelEvent::ToolCall { name, input, .. } => heard.calls.push((name.to_owned(), input.to_owned())),
            ModelEvent::Retry { after, reason } => heard.retries.push((after, reason.to_owned())),
        };
        let request = ModelRequest {
            system: &["You know a repository.", "What is known so far."],
            tools: &tools,
            messages: &[messages],
            max_tokens: 1000,
            breakpoints,
            purpose: Purpose::Question,
            conversation: None,
        };
        client.complete(request, control, &mut events).await
    };
    let texts =
        heard.retries.iter().map(|(_, reason)| reason.clone()).chain(result.as_ref().err().map(ToString::to_string));
    for text in texts {
        assert!(!text.contains("canary") && !text.is_empty(), "{text}");
    }
    assert!(!format!("{result:?} {client:?}").contains("canary"));
    (result, heard)
}

async fn ask(client: &dyn ModelClient) -> (Result<Completion, ModelError>, Heard) {
    send(client, &[Message::user("Where?")], &[], &CallControl::within(LONG)).await
}

/// The answers to each turn, streamed and whole, in both formats.
async fn each_way(turn: impl Fn() -> Turn, check: impl Fn(&str, Completion, Heard)) {
    for provider in BOTH {
        for whole in [false, true] {
            let turn = if whole { turn().whole() } else { turn() };
            let server = ModelServer::start(Script::new([turn]));
            let (result, heard) = ask(&*client(&server, provider)).await;
            check(&format!("{provider:?}, whole: {whole}"), result.unwrap_or_else(|error| panic!("{error}")), heard);
        }
    }
}

/// What a single fault leads to in both formats: the error, what was heard, how many requests.
async fn fails(turns: impl Fn() -> Vec<Turn>) -> Vec<(ModelError, Heard, usize)> {
    let mut failures = Vec::new();
    for provider in BOTH {
        let server = ModelServer::start(Script::new(turns()));
        let (result, heard) = ask(&*client(&server, provider)).await;
        failures.push((result.unwrap_err(), heard, server.requests().len()));
    }
    failures
}

/// How many requests it takes to get an answer in both formats.
async fn succeeds_after(turns: impl Fn() -> Vec<Turn>, requests: usize) {
    for provider in BOTH {
        let server = ModelServer::start(Script::new(turns()));
        let (result, heard) = ask(&*client(&server, provider)).await;
        assert_eq!(result.unwrap_or_else(|error| panic!("{error}")).text(), "in the end");
        assert_eq!((server.requests().len(), heard.retries.len(), heard.started), (requests, requests - 1, 1));
    }
}

fn kind(error: &ModelError) -> String {
    format!("{error:?}").split(['(', ' ']).next().unwrap().to_owned()
}

// ---- answers -----------------------------------------------------------------------------------

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

// ---- a conversation ----------------------------------------------------------------------------

/// Answers every call of a completion with a long text that names the file.
fn results(completion: &Completion) -> Message {
    let result = |block: &Block| match block {
        Block::ToolUse { id, input, .. } => Some(Block::ToolResult {
            id: Arc::clone(id),
            text: format!("text of {input} ").repeat(200).into(),
            is_error: false,
        }),
        _ => None,
    };
    Message { role: Role::User, blocks: completion.blocks.iter().filter_map(result).collect() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_of_several_rounds_is_appended_to_and_cached() {
    for provider in BOTH {
        let needs = ["a.rs", "b.rs", "c.rs"].map(|path| (path.to_owned(), format!("{path}\"}} text of")));
        let server =
            ModelServer::start(ReadingModel { needs: needs.to_vec(), answer: "done".to_owned(), parallel: false });
        let client = client(&server, provider);
        let control = CallControl::within(LONG);
        let mut log = vec![Message::user("Where?")];
        let mut answers = 0;
        while answers < 2 {
            let at = Position::Message { message: log.len() - 1, block: log.last().unwrap().blocks.len() - 1 };
            let marks = [
                Breakpoint { at: Position::System { block: 1 }, lifetime: Lifetime::OneHour },
                Breakpoint { at, lifetime: Lifetime::FiveMinutes },
            ];
            let completion = send(&*client, &log, &marks, &control).await.0.unwrap();
            log.push(Message { role: Role::Assistant, blocks: completion.blocks.clone() });
            if completion.stop == Stop::ToolUse {
                log.push(results(&completion));
            } else {
                answers += 1;
                log.push(Message::user("And now?"));
            }
        }
        let requests = server.requests();
        // Three reads and an answer; the second question finds all in the prompt.
        assert_eq!(requests.len(), 5, "{provider:?}");
        assert_eq!(server.logs(), 1);
        let marks = |request: &SeenRequest| request.pieces().filter_map(|piece| piece.mark).collect::<Vec<_>>();
        if provider == Provider::Anthropic {
            assert_eq!(marks(&requests[4]), [Mark::OneHour, Mark::FiveMinutes]);
        }
        let bill = server.bill();
        assert!(bill.dollars > 0.0 && bill.loss() < 0.01, "{bill:?}");
        let (_, last, _) = server.usages()[4];
        assert!(last.read > 3 * last.prompt() / 4, "{last:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thoughts_go_back_as_they_came_and_failed_tools_are_told() {
    for provider in BOTH {
        let mut first = Turn::calls([("Read", serde_json::json!({ "file_path": "a" }))]);
        first.say.insert(0, Say::Thinking("let me <see>…".to_owned(), "c2lnbmVk".to_owned()));
        let server = ModelServer::start(Script::new([first, Turn::text("done")]));
        let client = client(&server, provider);
        let mut log = vec![Message::user("Where?")];
        let completion = send(&*client, &log, &[], &CallControl::within(LONG)).await.0.unwrap();
        let mut result = results(&completion);
        let [Block::ToolResult { is_error, text, .. }] = &mut *result.blocks else { panic!() };
        (*is_error, *text) = (true, "no such file".into());
        log.extend([Message { role: Role::Assistant, blocks: completion.blocks }, result]);
        send(&*client, &log, &[], &CallControl::within(LONG)).await.0.unwrap();
        let sent = &server.requests()[1];
        let expected: &[&str] = match provider {
            Provider::Anthropic => {
                &[r#"{"type":"thinking","thinking":"let me <see>…","signature":"c2lnbmVk"}"#, r#""is_error":true"#]
            }
            Provider::OpenAi => &[r#""reasoning_content":"let me <see>…""#, r#""content":"ERROR: no such file""#],
        };
        for text in expected {
            assert!(sent.raw.contains(text), "{text} is not in {}", sent.raw);
        }
    }
}

// ---- keys and addresses ------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_sent_once_and_tried_without_charge() {
    for provider in BOTH {
        let options = ServerOptions { key: Some(CANARY.to_owned()), ..ServerOptions::default() };
        let server = ModelServer::with(options, Script::new([Turn::text("x")]));
        let client = client(&server, provider);
        let models = client.models(&CallControl::within(LONG)).await.unwrap();
        assert!(models.contains(&provider.default_model(None).unwrap().to_owned()));
        assert!(server.requests().is_empty(), "nothing was charged");
        assert!(ask(&*client).await.0.is_ok());
        let request = &server.requests()[0];
        assert_eq!(request.header("x-live-memory-purpose"), Some("question"));
        assert!(request.header("user-agent").unwrap().starts_with("live-memory/"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_key_is_told_after_one_request() {
    for provider in BOTH {
        let options = ServerOptions { key: Some("another".to_owned()), ..ServerOptions::default() };
        let server = ModelServer::with(options, Script::default());
        let client = client(&server, provider);
        for error in [ask(&*client).await.0.unwrap_err(), client.models(&CallControl::within(LONG)).await.unwrap_err()]
        {
            assert!(matches!(error, ModelError::Authentication(_)), "{error:?}");
            let text = error.to_string();
            assert!(
                text.contains("401") && text.contains(&server.url()) && text.contains("LIVE_MEMORY_API_KEY"),
                "{text}"
            );
        }
        assert_eq!(server.other_requests().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_a_server_repeats_is_not_passed_on() {
    for status in [400, 401, 403, 404, 429, 500] {
        let message = format!("Incorrect API key provided: {CANARY}");
        // `send` looks for it in every text.
        let failures = fails(|| vec![Turn::status(status, "x", &message); 4]).await;
        assert!(failures.iter().all(|(error, ..)| error.to_string().contains("[key]")), "{failures:?}");
    }
    for page in ["text/html", "application/json"] {
        fails(|| vec![Turn::fault(Fault::Page(page, format!("<p>{CANARY}</p>")))]).await;
    }
    let error = format!(r#"{{"error":{{"message":"{CANARY}","type":"authentication_error"}}}}"#);
    fails(|| vec![Turn::text("x").failing(Fault::ErrorWithin(1, error.clone()))]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_counted_where_the_server_can() {
    let server = ModelServer::start(Script::default());
    let messages = [Message::user("x".repeat(4000))];
    let messages: &[&[Message]] = &[&messages];
    let request = ModelRequest {
        system: &[],
        tools: &[],
        messages,
        max_tokens: 1,
        breakpoints: &[],
        purpose: Purpose::Setup,
        conversation: None,
    };
    let control = CallControl::within(LONG);
    let count = client(&server, Provider::Anthropic).count_tokens(request, &control).await.unwrap();
    assert!(count.is_some_and(|count| (1000..1020).contains(&count)), "{count:?}");
    assert_eq!(client(&server, Provider::OpenAi).count_tokens(request, &control).await, Ok(None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_write_the_address_makes_one_request() {
    let tails = [
        (Provider::OpenAi, "/chat/completions", &["", "/", "/v1", "/v1/", "/v1/chat/completions", "/gw/openai/v1"][..]),
        (Provider::Anthropic, "/messages", &["", "/", "/v1", "/v1/", "/v1/messages", "/gw/anthropic"][..]),
    ];
    for (provider, call, tails) in tails {
        for tail in tails {
            let server = ModelServer::start(Script::new([Turn::text("x")]));
            let client = client_at(&format!("{}{tail}", server.url()), provider, &transport(Timeouts::default()));
            assert!(ask(&*client).await.0.is_ok(), "{tail}");
            let path = &server.requests()[0].path;
            assert!(path.ends_with(&format!("/v1{call}")) && path.matches("v1").count() == 1, "{tail}: {path}");
            assert!(server.other_requests().is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_at_the_address() {
    // Bound and dropped: nobody listens there now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    for provider in BOTH {
        let (result, heard) = ask(&*client_at(&url, provider, &transport(Timeouts::default()))).await;
        let error = result.unwrap_err();
        assert!(matches!(error, ModelError::Network { attempts: 4, .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&url) && text.contains("LIVE_MEMORY_BASE_URL"), "{text}");
        assert_eq!(heard.retries.len(), 3);
    }
}

// ---- what a server refuses ---------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanent_refusal_takes_one_request() {
    let cases = [
        (400, "invalid_request_error", "BadRequest"),
        (401, "authentication_error", "Authentication"),
        (402, "billing_error", "Billing"),
        (403, "permission_error", "Refused"),
        (404, "not_found_error", "NotFound"),
        (413, "request_too_large", "ContextExceeded"),
        (429, "insufficient_quota", "Billing"),
        (301, "moved", "BadRequest"),
    ];
    for (status, name, expected) in cases {
        for (error, _, requests) in fails(|| vec![Turn::status(status, name, "the server's words")]).await {
            assert_eq!((kind(&error).as_str(), requests), (expected, 1), "{status}");
            let text = error.to_string();
            let told = [&status.to_string(), "the server's words", "http://127.0.0.1", "/v1/"];
            assert!(told.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_window_is_told_apart() {
    for (error, _, requests) in fails(|| vec![Turn::context_too_long()]).await {
        assert!(matches!(error, ModelError::ContextExceeded(_)), "{error:?}");
        assert_eq!(requests, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_server_is_asked_again() {
    succeeds_after(|| vec![Turn::overloaded(), Turn::overloaded(), Turn::text("in the end")], 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_transient_is_asked_again() {
    let statuses = [408u16, 409, 429, 500, 502, 503, 504];
    let attempts = statuses.map(|status| {
        let turns = move || vec![Turn::status(status, "x", "y"), Turn::text("in the end")];
        tokio::spawn(succeeds_after(turns, 2))
    });
    for attempt in attempts {
        attempt.await.unwrap();
    }
    succeeds_after(|| vec![Turn::fault(Fault::Reset), Turn::text("in the end")], 2).await;
    succeeds_after(|| vec![Turn::text("x").failing(Fault::HalfStream(1)), Turn::text("in the end")], 2).await;
    let overloaded = r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#.to_owned();
    succeeds_after(
        || vec![Turn::text("x").failing(Fault::ErrorWithin(1, overloaded.clone())), Turn::text("in the end")],
        2,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stays_overloaded_is_given_up() {
    for (error, heard, requests) in fails(|| vec![Turn::overloaded(); 4]).await {
        assert!(matches!(error, ModelError::Overloaded { attempts: 4, .. }), "{error:?}");
        assert_eq!((requests, heard.retries.len()), (4, 3));
        let pauses: Vec<bool> = heard.retries.windows(2).map(|pair| pair[0].0 < pair[1].0).collect();
        assert_eq!(pauses, [true, true]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_says_when_to_come_back() {
    for (provider, wish) in BOTH.into_iter().zip(["2", "2.0"]) {
        let server = ModelServer::start(Script::new([Turn::rate_limited(wish), Turn::text("in the end")]));
        let (result, _) = ask(&*client(&server, provider)).await;
        assert_eq!(result.unwrap().text(), "in the end");
        let requests = server.requests();
        let waited = requests[1].at.duration_since(requests[0].at).unwrap();
        assert!(waited >= Duration::from_millis(1990), "{waited:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_to_rest_too_long_is_told_at_once() {
    for provider in BOTH {
        let server = ModelServer::start(Script::new([Turn::rate_limited("3600")]));
        let transport = transport(Timeouts::default());
        let client = client_at(&server.url(), provider, &transport);
        let begun = Instant::now();
        let error = ask(&*client).await.0.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(error.to_string().starts_with("rate limited until "), "{error}");
        let ModelError::RateLimited { until: Some(until), .. } = error else { panic!("{error:?}") };
        let left = until.duration_since(SystemTime::now()).unwrap();
        assert!((3500..=3600).contains(&left.as_secs()), "{left:?}");
        // Everyone who shares the key knows; who has time enough would wait, who has not is told.
        let again = ask(&*client_at(&server.url(), provider, &transport)).await.0.unwrap_err();
        assert!(again.to_string().starts_with("rate limited until "), "{again}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_rest_is_shared_by_all_questions() {
    let server = ModelServer::start(Script::new([Turn::rate_limited("1"), Turn::text("a"), Turn::text("b")]));
    let client = client(&server, Provider::Anthropic);
    let first = tokio::spawn({
        let client = Arc::clone(&client);
        async move { ask(&*client).await.0 }
    });
    let _ = tokio::task::block_in_place(|| server.wait_for_requests(1));
    // The refusal is on its way; the next question must not be sent before the rest is over.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(ask(&*client).await.0.is_ok() && first.await.unwrap().is_ok());
    let requests = server.requests();
    for later in &requests[1..] {
        assert!(later.at.duration_since(requests[0].at).unwrap() >= Duration::from_millis(990));
    }
}

// ---- answers that are none ---------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_an_answer_is_an_error() {
    // The events up to and including the first piece of text.
    for (provider, events) in BOTH.into_iter().zip([4, 2]) {
        for fault in [Fault::HalfStream(events), Fault::Malformed(events)] {
            let server = ModelServer::start(Script::new([Turn::text("one two").failing(fault.clone())]));
            let (result, heard) = ask(&*client(&server, provider)).await;
            let error = result.unwrap_err();
            assert!(matches!(error, ModelError::Network { .. } | ModelError::Protocol { .. }), "{error:?}");
            assert!(!heard.text.is_empty() && heard.text != "one two", "{}", heard.text);
            assert_eq!(server.requests().len(), 1, "what was passed on is not asked for twice");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_after_success_is_an_error() {
    for (provider, events) in BOTH.into_iter().zip([4, 2]) {
        let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        let turn = Turn::text("one two").failing(Fault::ErrorWithin(events, error.to_owned()));
        let server = ModelServer::start(Script::new([turn]));
        let (result, _) = ask(&*client(&server, provider)).await;
        assert!(matches!(result, Err(ModelError::Overloaded { attempts: 1, .. })), "{result:?}");
    }
    let error = r#"{"error":{"message":"prompt is too long: 2 tokens > 1 maximum","code":null}}"#.to_owned();
    for (failure, ..) in fails(|| vec![Turn::text("x").failing(Fault::ErrorWithin(0, error.clone())).whole()]).await {
        assert!(matches!(failure, ModelError::ContextExceeded(_)), "{failure:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_instead_of_an_answer_is_shown() {
    let login = "<html><title>Corporate login</title>".to_owned();
    let pages = [
        ("text/html", login, ["text/html", "Corporate login"]),
        ("application/json", String::new(), ["application/json", "an empty body"]),
        ("application/json", "{\"status\":\"ok\"}".to_owned(), ["status", "ok"]),
        ("application/json", "{\"id\": \"msg".to_owned(), ["{\"id\": \"msg", "http://127.0.0.1"]),
    ];
    for (kind, body, told) in pages {
        for (error, _, requests) in fails(|| vec![Turn::fault(Fault::Page(kind, body.clone()))]).await {
            assert!(matches!(error, ModelError::Protocol { .. }), "{error:?}");
            let text = error.to_string();
            assert!(told.iter().all(|part| text.contains(part)), "{text}");
            assert_eq!(requests, 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_noticed() {
    let timeouts = Timeouts { silence: Duration::from_millis(300), ..Timeouts::default() };
    for (provider, events) in BOTH.into_iter().zip([4, 2]) {
        let server = ModelServer::start(Script::new([Turn::text("one two").failing(Fault::Silence(events))]));
        let (result, _) = ask(&*client_at(&server.url(), provider, &transport(timeouts))).await;
        let error = result.unwrap_err().to_string();
        assert!(error.contains("silence for 0.3 s"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_answers_ends_with_the_callers_time() {
    for provider in BOTH {
        let server = ModelServer::start(Script::new([Turn::fault(Fault::Hang)]));
        let client = client(&server, provider);
        let control = CallControl::within(Duration::from_millis(500));
        let (result, _) = send(&*client, &[Message::user("Where?")], &[], &control).await;
        let error = result.unwrap_err();
        assert!(matches!(error, ModelError::Deadline { .. }) && error.to_string().contains(&server.url()), "{error}");
        wait_until("the request to be dropped", || (server.clients_left() == 1).then_some(()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_question_is_dropped_within_a_second() {
    for provider in BOTH {
        for let_through in [None, Some(0), Some(4)] {
            let gate = Gate::default();
            gate.let_through(let_through.unwrap_or(0));
            let turn = match let_through {
                None => Turn::fault(Fault::Hang),
                Some(_) => Turn::text("one two").gated(&gate),
            };
            let server = ModelServer::start(Script::new([turn]));
            let client = client(&server, provider);
            let cancelled = CancellationToken::new();
            let control = CallControl { cancelled: cancelled.clone(), ..CallControl::within(LONG) };
            let asking = tokio::spawn(async move { send(&*client, &[Message::user("Where?")], &[], &control).await.0 });
            tokio::task::block_in_place(|| {
                let _ = server.wait_for_requests(1);
                if let_through.is_some() {
                    wait_until("the answer to wait at the gate", || (gate.waiting() == 1).then_some(()));
                }
            });
            let begun = Instant::now();
            cancelled.cancel();
            assert_eq!(asking.await.unwrap().unwrap_err(), ModelError::Cancelled);
            tokio::task::block_in_place(|| {
                wait_until("the request to be dropped", || (server.clients_left() == 1).then_some(()));
            });
            assert!(begun.elapsed() < Duration::from_secs(1), "{provider:?} {let_through:?}");
            assert_eq!(server.requests().len(), 1);
        }
    }
}

// ---- dialects ----------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_name_of_the_length_limit_is_learned_once() {
    let server = ModelServer::start(|request: &SeenRequest| {
        if request.json().get("max_tokens").is_some() {
            return Turn::status(
                400,
                "invalid_request_error",
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            );
        }
        Turn::text("x")
    });
    let transport = transport(Timeouts::default());
    for expected in [2, 3] {
        let client = client_at(&server.url(), Provider::OpenAi, &transport);
        assert!(ask(&*client).await.0.is_ok());
        assert_eq!(server.requests().len(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_stream_options_is_learned_once() {
    let server = ModelServer::start(|request: &SeenRequest| {
        if request.json().get("stream_options").is_some() {
            return Turn::status(400, "invalid_request_error", "Unknown field: stream_options");
        }
        Turn::text("x")
    });
    let client = client(&server, Provider::OpenAi);
    for expected in [2, 3] {
        assert_eq!(ask(&*client).await.0.unwrap().usage.prompt(), None);
        assert_eq!(server.requests().len(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_both_names_is_asked_twice() {
    let server = ModelServer::start(|_: &SeenRequest| {
        Turn::status(400, "invalid_request_error", "max_tokens and max_completion_tokens are both unknown here")
    });
    assert!(matches!(ask(&*client(&server, Provider::OpenAi)).await.0, Err(ModelError::BadRequest(_))));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retired_model_is_named_with_its_successor() {
    let server = ModelServer::start(Script::new([Turn::status(404, "not_found_error", "no such model")]));
    let settings = ModelSettings {
        provider: Provider::OpenAi,
        base_url: Some(server.url()),
        api_key: None,
        model: Some("deepseek-chat".to_owned()),
    };
    let client = connect(&settings, &transport(Timeouts::default())).unwrap();
    let error = ask(&*client).await.0.unwrap_err().to_string();
    assert!(error.contains("deepseek-chat") && error.contains("deepseek-flash"), "{error}");
}

#[test]
fn a_provider_that_wants_a_key_is_not_asked_without() {
    let keyless = ModelSettings { provider: Provider::Anthropic, base_url: None, api_key: None, model: None };
    let error = connect(&keyless, &transport(Timeouts::default())).unwrap_err().to_string();
    assert!(error.contains("API key") && error.contains("lm-shim setup"), "{error}");
}

#[test]
fn a_server_of_ones_own_needs_the_name_of_a_model() {
    let base_url = Some("http://localhost:11434/v1".to_owned());
    let settings = ModelSettings { provider: Provider::OpenAi, base_url, api_key: None, model: None };
    let error = connect(&settings, &transport(Timeouts::default())).unwrap_err().to_string();
    assert!(error.contains("LIVE_MEMORY_MODEL"), "{error}");
    assert_eq!(Provider::OpenAi.default_model(Some("https://api.deepseek.com")), Some("deepseek-flash"));
}

// ---- the server itself -------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "requests broke rules")]
async fn a_conversation_that_no_provider_takes_fails_the_test() {
    let server = ModelServer::start(Script::new([Turn::text("x")]));
    let log = [Message::user("one"), Message::user("two")];
    send(&*client(&server, Provider::Anthropic), &log, &[], &CallControl::within(LONG)).await.0.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rewritten_log_is_noticed() {
    for provider in BOTH {
        let server = ModelServer::start(Script::new(vec![Turn::text("x"); 3]));
        let client = client(&server, provider);
        let log = |first: &str, answer: &str| {
            [
                Message::user(first),
                Message::assistant(answer),
                Message::user("second"),
                Message::assistant("x"),
                Message::user("third"),
            ]
        };
        for (log, length) in [(log("first", "x"), 1), (log("first", "x"), 3), (log("first, tidied", "x"), 5)] {
            send(&*client, &log[..length], &[], &CallControl::within(LONG)).await.0.unwrap();
        }
        let violations = server.take_violations();
        assert!(violations.len() == 1 && violations[0].contains("first, tidied"), "{violations:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_entry_ends_with_its_lifetime() {
    let server = ModelServer::start(Script::new(vec![Turn::text("x"); 4]));
    let client = client(&server, Provider::Anthropic);
    let log = [Message::user("what is known ".repeat(400))];
    let mark = [Breakpoint { at: Position::Message { message: 0, block: 0 }, lifetime: Lifetime::FiveMinutes }];
    let mut read = Vec::new();
    for pause in [0, 290, 290, 301] {
        server.clock().advance(Duration::from_secs(pause));
        let usage = send(&*client, &log, &mark, &CallControl::within(LONG)).await.0.unwrap().usage;
        read.push(usage.cache_read.unwrap() > 1000);
    }
    assert_eq!(read, [false, true, true, false]);
    let offset = std::fs::read_to_string(server.clock().file()).unwrap();
    assert_eq!(offset, "881");
}
