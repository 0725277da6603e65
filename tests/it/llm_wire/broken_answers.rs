//! Answers that are none: broken off, silent, no answer at all, unwanted by now.

use std::time::{Duration, Instant};

use lm_core::{
    conversation::Message,
    llm::{CallControl, ModelError, Timeouts},
};
use lm_tests::{
    ModelServer,
    model_server::{Fault, Gate, Script, Turn},
    wait_until,
};
use tokio_util::sync::CancellationToken;

use super::{BOTH, LONG, ask, client, client_at, fails, send, transport};

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
