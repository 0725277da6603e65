//! What a client may write to the server's standard input, down to the bytes.

use lm_tests::{Behaviour, McpClient, Sandbox, ScriptedDaemon};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};

/// The longest line that is read as a message.
const LINE_MAX: usize = 16 << 20;

fn ids_and_codes(messages: &[Value]) -> Vec<(Value, i64)> {
    messages.iter().map(|message| (message["id"].clone(), message["error"]["code"].as_i64().unwrap_or(0))).collect()
}

/// A line, and the ids and error codes (0 for none) of the replies it must get.
type Case<'a> = (&'a [u8], Vec<(Value, i64)>);

#[test]
fn every_line_with_an_id_gets_one_reply_and_no_other_line_does() {
    let sandbox = Sandbox::new();
    let _daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("a"));
    let mut client = McpClient::initialized(sandbox.shim(&[]));
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":18,"method":"tools/call","params":{{"name":"ask_live_memory","arguments":{{"question":"q","x":{}{}}}}}}}"#,
        "[".repeat(300),
        "]".repeat(300)
    );
    let cases: Vec<Case<'_>> = vec![
        (b"\n", vec![]),
        (b" \r\n\t\r\n", vec![]),
        (b"\x00\x01\xff\xfe\n", vec![]),
        (b"hello\n", vec![]),
        (b"{}\n", vec![]),
        (b"[]\n", vec![]),
        (b"[1,[2],null]\n", vec![]),
        (br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}"#, vec![]),
        (br#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#, vec![]),
        (br#"{"jsonrpc":"2.0","id":99,"result":{}}"#, vec![]),
        (br#"{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"m"}}"#, vec![]),
        (br#"{"jsonrpc":"2.0","id":99,"error":7}"#, vec![]),
        (b"{\"jsonrpc\":\"2.0\",\"id\":100,\"method\":\"ping\"}\r\n", vec![(json!(100), 0)]),
        (b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":101,\"method\":\"ping\"}", vec![(json!(101), 0)]),
        (br#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#, vec![(json!("x"), 0)]),
        (br#"{"jsonrpc":"2.0","id":"","method":"ping"}"#, vec![(json!(""), 0)]),
        (br#"{"jsonrpc":"2.0","id":1,"id":102,"method":"ping"}"#, vec![(json!(102), 0)]),
        (br#"{"jsonrpc":"2.0","id":103,"method":"ping","params":{"a":"\ud800"}}"#, vec![(json!(103), 0)]),
        (br#"{"jsonrpc":"2.0","id":104,"method":"ping"} trailing"#, vec![(json!(104), -32700)]),
        (br#"{"jsonrpc":"2.0","id":105,"method":"ping","#, vec![(json!(105), -32700)]),
        (
            br#"{"jsonrpc":"2.0","id":106,"method":"ping"}{"jsonrpc":"2.0","id":107,"method":"ping"}"#,
            vec![(json!(106), -32700), (json!(107), -32700)],
        ),
        (deep.as_bytes(), vec![(json!(18), -32700)]),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, vec![(Value::Null, -32600)]),
        (br#"{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}"#, vec![(Value::Null, -32600)]),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, vec![(json!(1.5), -32600)]),
        (br#"{"id":108,"method":"ping"}"#, vec![(json!(108), -32600)]),
        (br#"{"jsonrpc":"2.0","id":109}"#, vec![(json!(109), -32600)]),
        (br#"{"jsonrpc":"2.0","id":110,"method":["ping"]}"#, vec![(json!(110), -32600)]),
        (br#"{"jsonrpc":"2.0","id":111,"method":"tools/call","params":"ask"}"#, vec![(json!(111), -32602)]),
        (
            br#"{"jsonrpc":"2.0","id":112,"method":"tools/call","params":{"name":"ask_live_memory","arguments":[]}}"#,
            vec![(json!(112), -32602)],
        ),
        (br#"{"jsonrpc":"2.0","id":113,"method":"sampling/createMessage"}"#, vec![(json!(113), -32601)]),
        (
            br#"[{"jsonrpc":"2.0","id":114,"method":"nothing"},{"jsonrpc":"2.0","id":115}]"#,
            vec![(json!(114), -32601), (json!(115), -32600)],
        ),
    ];
    for (line, expected) in cases {
        client.send_bytes(line);
        client.send_bytes(b"\n");
        assert_eq!(ids_and_codes(&client.rest()), expected, "{}", String::from_utf8_lossy(line));
    }
}

#[test]
fn broken_text_in_a_question_is_repaired_and_the_question_asked() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("a"));
    let mut client = McpClient::initialized(sandbox.shim(&[]));
    for (id, bytes) in [(13, &b"caf\xe9?"[..]), (14, br"half \ud83d pair"), (15, br"whole \ud83e\udd80")] {
        client.send_bytes(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"ask_live_memory","arguments":{{"question":""#).as_bytes());
        client.send_bytes(bytes);
        client.send_bytes(b"\"}}}\n");
        assert!(!client.asked(id).0);
    }
    let questions: Vec<String> = daemon.questions().into_iter().map(|ask| ask.question).collect();
    assert_eq!(questions, ["caf\u{fffd}?", "half \u{fffd} pair", "whole 🦀"]);
}

#[test]
fn a_line_that_is_too_long_is_refused_by_its_id_wherever_that_stands() {
    let sandbox = Sandbox::new();
    let mut client = McpClient::initialized(sandbox.shim(&[]));
    let filler = "x".repeat(LINE_MAX);
    let first = format!(r#"{{"jsonrpc":"2.0","id":"first","method":"ping","params":{{"a":"{filler}"}}}}"#);
    let last = format!(r#"{{"method":"ping","params":{{"a":"{filler}","id":3}},"jsonrpc":"2.0","id":"last"}}"#);
    for (line, id) in [(first, json!("first")), (last, json!("last"))] {
        client.send_bytes(line.as_bytes());
        client.send_bytes(b"\n");
        assert_eq!(ids_and_codes(&client.rest()), [(id, -32600)]);
    }
    client.send_bytes(filler.as_bytes());
    client.send_bytes(filler.as_bytes());
    client.send_bytes(b"\n");
    assert!(client.rest().is_empty());
}

#[test]
fn the_last_line_needs_no_newline() {
    let sandbox = Sandbox::new();
    let mut client = McpClient::start(sandbox.shim(&[]));
    client.send_bytes(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    assert_eq!(client.until_the_end(), [json!({"jsonrpc": "2.0", "id": 1, "result": {}})]);
}

#[test]
fn a_message_may_come_in_pieces() {
    let sandbox = Sandbox::new();
    let mut client = McpClient::start(sandbox.shim(&[]));
    for byte in br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"# {
        client.send_bytes(&[*byte]);
    }
    client.send_bytes(b"\n");
    assert_eq!(client.reply(1)["result"], json!({}));
}

#[cfg(unix)]
#[test]
fn pipes_in_non_blocking_mode_lose_nothing() {
    use std::{io::Read, process::Stdio};

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    let sandbox = Sandbox::new();
    let (mut output, shims_output) = std::io::pipe().unwrap();
    let (shims_input, mut input) = std::io::pipe().unwrap();
    // The flag belongs to the pipe's end, which the shim shares.
    for end in [shims_output.try_clone().unwrap().into(), shims_input.try_clone().unwrap().into()] {
        let end: std::os::fd::OwnedFd = end;
        fcntl_setfl(&end, fcntl_getfl(&end).unwrap() | OFlags::NONBLOCK).unwrap();
    }
    let mut command = sandbox.shim(&[]);
    let mut shim = command.stdin(Stdio::from(shims_input)).stdout(Stdio::from(shims_output)).spawn().unwrap();
    drop(command);
    // More replies than a pipe holds, read only after all was asked.
    let count = 3000;
    for id in 0..count {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{id:0>60}\",\"method\":\"ping\"}}\n");
        std::io::Write::write_all(&mut input, line.as_bytes()).unwrap();
    }
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        text
    });
    drop(input);
    let text = reader.join().unwrap();
    assert!(shim.wait().unwrap().success());
    let replies: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(replies.len(), count);
}

/// Lines that are close to messages, and lines that are not.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let message = prop::sample::select(vec![
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"ask_live_memory","arguments":{"question":"q \u00e9 \ud83e\udd80"},"_meta":{"progressToken":1}}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"roots":[{"uri":"file:///"}]}}"#,
        r#"[{"jsonrpc":"2.0","id":5,"method":"ping"},{"jsonrpc":"2.0","id":6,"method":"ping"}]"#,
    ]);
    let mutated = (message, prop::collection::vec((any::<prop::sample::Index>(), 0_usize..12, any::<Vec<u8>>()), 0..4))
        .prop_map(|(message, changes)| {
            let mut line = message.as_bytes().to_vec();
            for (index, removed, inserted) in changes {
                let start = index.index(line.len() + 1);
                let end = (start + removed).min(line.len());
                line.splice(start..end, inserted.into_iter().take(8));
            }
            line
        });
    prop_oneof![3 => mutated, 1 => any::<Vec<u8>>()]
}

#[test]
fn whatever_comes_in_between_every_ping_is_answered() {
    let sandbox = Sandbox::new();
    let _daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("a"));
    for is_initialized in [false, true] {
        let mut client = McpClient::start(sandbox.shim(&[]));
        if is_initialized {
            client.initialize(json!({}));
        }
        let client = std::cell::RefCell::new(client);
        let count = std::cell::Cell::new(0);
        let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
        runner
            .run(&prop::collection::vec(lines(), 1..5), |lines| {
                let mut client = client.borrow_mut();
                for line in lines {
                    client.send_bytes(&line);
                    client.send_bytes(b"\n");
                }
                count.set(count.get() + 1);
                let id = format!("probe {}", count.get());
                client.send(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
                prop_assert_eq!(&client.reply(id)["result"], &json!({}));
                Ok(())
            })
            .unwrap();
    }
}
