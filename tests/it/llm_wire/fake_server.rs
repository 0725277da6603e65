//! The fake server notices what it is there to notice.

use std::time::Duration;

use lm_core::{
    conversation::Message,
    llm::{Breakpoint, CallControl, Lifetime, Position, Provider},
};
use lm_tests::{
    ModelServer,
    model_server::{Script, Turn},
};

use super::{BOTH, LONG, client, send};

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
