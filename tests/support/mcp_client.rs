//! An MCP client that talks to the real shim over its standard input and output.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{wait::DEADLINE, wait_until};

/// The protocol version that Claude Code offers.
pub const VERSION: &str = "2025-11-25";

/// A client of one shim, which is killed when the client is dropped.
#[derive(Debug)]
pub struct McpClient {
    child: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    /// Messages that came and were not asked for yet.
    waiting: Vec<Value>,
    last_id: i64,
}

impl McpClient {
    /// Starts a shim and says nothing. Every line it writes must be a JSON-RPC message.
    #[must_use]
    pub fn start(command: Command) -> Self {
        let mut client = Self::start_unread(command);
        let output = client.child.stdout.take().expect("output is piped");
        let (sender, messages) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let line = line.expect("output is UTF-8");
                let message: Value =
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("not JSON: {error}: {line}"));
                assert_eq!(message["jsonrpc"], "2.0", "not JSON-RPC: {line}");
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        client.messages = messages;
        client
    }

    /// Starts a shim whose output nobody reads.
    #[must_use]
    pub fn start_unread(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the shim starts");
        let input = child.stdin.take();
        Self { child, input, messages: channel().1, waiting: Vec::new(), last_id: 0 }
    }

    /// Starts a shim and goes through the handshake, offering no capability.
    #[must_use]
    pub fn initialized(command: Command) -> Self {
        let mut client = Self::start(command);
        client.initialize(json!({}));
        client
    }

    /// Goes through the handshake, offering `capabilities`; gives the result of `initialize`.
    pub fn initialize(&mut self, capabilities: Value) -> Value {
        let reply = self.call("initialize", initialize_parameters(VERSION, capabilities));
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        reply["result"].clone()
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Value) {
        self.send_bytes(format!("{message}\n").as_bytes());
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("input has not ended");
        input.write_all(bytes).and_then(|()| input.flush()).expect("the shim reads its input");
    }

    /// Sends a request; gives its id.
    pub fn request(&mut self, method: &str, parameters: Value) -> i64 {
        self.last_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": parameters}));
        self.last_id
    }

    /// Sends a call of the tool; gives its id.
    pub fn request_ask(&mut self, arguments: Value) -> i64 {
        self.request("tools/call", json!({"name": "ask_live_memory", "arguments": arguments}))
    }

    /// Waits for the reply to an id.
    pub fn reply(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        self.next(&format!("a reply to {id}"), |message| message["id"] == id && message.get("method").is_none())
    }

    /// Sends a request and waits for its reply.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        let id = self.request(method, parameters);
        self.reply(id)
    }

    /// Calls the tool; gives whether it failed and the text of its result, which must be all of it.
    pub fn ask(&mut self, arguments: Value) -> (bool, String) {
        let id = self.request_ask(arguments);
        self.asked(id)
    }

    /// Waits for the result of a call of the tool.
    pub fn asked(&mut self, id: impl Into<Value>) -> (bool, String) {
        let reply = self.reply(id);
        let result = &reply["result"];
        let content = result["content"].as_array().unwrap_or_else(|| panic!("no content: {reply}"));
        assert!(content.len() == 1 && content[0]["type"] == "text", "not one text: {reply}");
        assert!(result.get("structuredContent").is_none(), "a client would show it in place of the text: {reply}");
        (result["isError"] == true, content[0]["text"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits for a message that `matches`; others stay for later.
    pub fn next(&mut self, what: &str, matches: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            if let Some(index) = self.waiting.iter().position(&matches) {
                return self.waiting.remove(index);
            }
            match self.messages.recv_timeout(DEADLINE.saturating_sub(start.elapsed())) {
                Ok(message) => self.waiting.push(message),
                Err(RecvTimeoutError::Timeout) => panic!("waited in vain for {what}; came: {:?}", self.waiting),
                Err(RecvTimeoutError::Disconnected) => panic!("the shim left before {what}; came: {:?}", self.waiting),
            }
        }
    }

    /// The messages that came and were not asked for, after a ping has shown that nothing is missing
    /// that was owed before it.
    pub fn rest(&mut self) -> Vec<Value> {
        let reply = self.call("ping", json!({}));
        assert_eq!(reply["result"], json!({}), "{reply}");
        std::mem::take(&mut self.waiting)
    }

    /// All messages until the shim leaves.
    #[must_use]
    pub fn until_the_end(mut self) -> Vec<Value> {
        self.end_input();
        let mut all = std::mem::take(&mut self.waiting);
        while let Ok(message) = self.messages.recv_timeout(DEADLINE) {
            all.push(message);
        }
        all
    }

    /// Closes the shim's input.
    pub fn end_input(&mut self) {
        self.input = None;
    }

    /// Closes the reading end of the shim's output, which must not have been read.
    pub fn close_output(&mut self) {
        drop(self.child.stdout.take().expect("nobody reads the output"));
    }

    /// The shim's standard error, where the command has it piped.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// The shim's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the shim to leave, at most for `limit`.
    pub fn exit_within(&mut self, limit: Duration) -> ExitStatus {
        let start = Instant::now();
        let status = wait_until("the shim leaves", || self.child.try_wait().expect("a child"));
        assert!(start.elapsed() <= limit, "it took {:?} to leave", start.elapsed());
        status
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        // It may have left by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The parameters of an `initialize`.
#[must_use]
pub fn initialize_parameters(version: &str, capabilities: Value) -> Value {
    json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}})
}
