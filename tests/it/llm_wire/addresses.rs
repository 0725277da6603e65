//! Keys and addresses.

use lm_core::{
    conversation::Message,
    llm::{CallControl, ModelError, ModelRequest, Provider, Purpose, Timeouts},
};
use lm_tests::{
    ModelServer,
    model_server::{Fault, Script, ServerOptions, Turn},
};

use super::{BOTH, CANARY, LONG, ask, client, client_at, fails, transport};

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
        assert!(text.contains(&url) && text.contains("base_url"), "{text}");
        assert_eq!(heard.retries.len(), 3);
    }
}
