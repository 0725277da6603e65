//! Conversations of several rounds.

use std::sync::Arc;

use lm_core::{
    conversation::{Block, Message, Role},
    llm::{Breakpoint, CallControl, Completion, Lifetime, Position, Provider, Stop},
};
use lm_tests::{
    ModelServer,
    model_server::{Mark, ReadingModel, Say, Script, SeenRequest, Turn},
};

use super::{BOTH, LONG, client, send};

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
