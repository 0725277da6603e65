//! What is learned of a server by its refusals.

use lm_core::llm::{Extras, ModelError, ModelSettings, Provider, Timeouts, connect};
use lm_tests::{
    ModelServer,
    model_server::{Script, SeenRequest, Turn},
};

use super::{ask, client, client_at, transport};

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
async fn d18_a_server_that_refuses_both_names_is_asked_without() {
    let server = ModelServer::start(|request: &SeenRequest| {
        let body = request.json();
        match ["max_tokens", "max_completion_tokens"].into_iter().find(|name| body.get(name).is_some()) {
            Some(name) => Turn::status(400, "invalid_request_error", &format!("{name} is unknown here")),
            None => Turn::text("x"),
        }
    });
    let client = client(&server, Provider::OpenAi);
    for expected in [3, 4] {
        assert!(ask(&*client).await.0.is_ok());
        assert_eq!(server.requests().len(), expected, "learned once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d18_a_limit_that_is_too_high_is_left_out() {
    let server = ModelServer::start(|request: &SeenRequest| match request.json().get("max_tokens") {
        Some(_) => Turn::status(400, "invalid_request_error", "max_tokens is too large: 1000; at most 512"),
        None => Turn::text("x"),
    });
    assert!(ask(&*client(&server, Provider::OpenAi)).await.0.is_ok());
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_learned_from_is_told_after_one_request() {
    let server = ModelServer::start(Script::new([Turn::status(400, "invalid_request_error", "no")]));
    assert!(matches!(ask(&*client(&server, Provider::OpenAi)).await.0, Err(ModelError::BadRequest(_))));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retired_model_is_named_with_its_successor() {
    let server = ModelServer::start(Script::new([Turn::status(404, "not_found_error", "no such model")]));
    let settings = ModelSettings {
        provider: Provider::OpenAi,
        base_url: Some(server.url()),
        api_key: None,
        model: Some("deepseek-chat".to_owned()),
        extras: Extras::default(),
    };
    let client = connect(&settings, &transport(Timeouts::default())).unwrap();
    let error = ask(&*client).await.0.unwrap_err().to_string();
    assert!(error.contains("deepseek-chat") && error.contains("deepseek-flash"), "{error}");
}

#[test]
fn a_provider_that_wants_a_key_is_not_asked_without() {
    let keyless = ModelSettings {
        provider: Provider::Anthropic,
        base_url: None,
        api_key: None,
        model: None,
        extras: Extras::default(),
    };
    let error = connect(&keyless, &transport(Timeouts::default())).unwrap_err().to_string();
    assert!(error.contains("API key") && error.contains("lm-shim setup"), "{error}");
}

#[test]
fn a_server_of_ones_own_needs_the_name_of_a_model() {
    let base_url = Some("http://localhost:11434/v1".to_owned());
    let settings =
        ModelSettings { provider: Provider::OpenAi, base_url, api_key: None, model: None, extras: Extras::default() };
    let error = connect(&settings, &transport(Timeouts::default())).unwrap_err().to_string();
    assert!(error.contains("LIVE_MEMORY_MODEL"), "{error}");
    assert_eq!(Provider::OpenAi.default_model(Some("https://api.deepseek.com")), Some("deepseek-flash"));
}
