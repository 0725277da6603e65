//! The model clients against the fake server: both wire formats, streamed and whole, every fault.

mod addresses;
mod answers;
mod broken_answers;
mod conversations;
mod dialects;
mod extras;
mod fake_server;
mod openai_quirks;
mod refusals;

use std::{sync::Arc, time::Duration};

use lm_core::{
    conversation::{Block, Message, Role},
    llm::{
        ApiKey, Breakpoint, CallControl, Completion, Extras, ModelClient, ModelError, ModelEvent, ModelRequest,
        ModelSettings, Provider, Purpose, Timeouts, ToolSpec, Transport, connect,
    },
};
use lm_tests::{
    ModelServer,
    model_server::{Script, Turn},
};

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
        extras: Extras::default(),
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

/// A question, the calls that it was answered with, and what they gave.
fn with_results(completion: &Completion) -> Vec<Message> {
    let result = |block: &Block| match block {
        Block::ToolUse { id, .. } => Some(Block::ToolResult { id: Arc::clone(id), text: "a".into(), is_error: false }),
        _ => None,
    };
    let results = completion.blocks.iter().filter_map(result).collect();
    vec![
        Message::user("Where?"),
        Message { role: Role::Assistant, blocks: completion.blocks.clone() },
        Message { role: Role::User, blocks: results },
    ]
}

fn kind(error: &ModelError) -> String {
    format!("{error:?}").split(['(', ' ']).next().unwrap().to_owned()
}
