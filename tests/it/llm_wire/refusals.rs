//! What a server refuses, and when it is asked again.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use lm_core::llm::{ModelError, Provider, Timeouts};
use lm_tests::{
    ModelServer,
    model_server::{Fault, Script, Turn},
};

use super::{BOTH, ask, client, client_at, fails, kind, succeeds_after, transport};

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
