//! From a line of bytes to messages that the protocol library can take, or to the errors owed.
//!
//! The library drops what it cannot parse, answers some wrong shapes without an id, and leaves when
//! a notification comes before `initialize`. So it is given only what it serves well; everything
//! else that carries an id is answered from here.

use std::{
    borrow::Cow,
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, Implementation,
    InitializeRequest, InitializeRequestParams, JsonRpcMessage, ProtocolVersion, RequestId,
};
use serde_json::{Map, Value, json};

use super::{
    lines::{LINE_BYTES_MAX, Line},
    scan::{Found, scan},
};

/// Requests that may run at the same time.
const RUNNING_MAX: usize = 1024;

/// What a line comes to.
#[derive(Debug)]
pub(super) enum Inbound {
    /// A message for the protocol library.
    Message(Box<ClientJsonRpcMessage>),
    /// An error to send at once.
    Refusal(Refusal),
}

/// An error that answers a line.
#[derive(Debug)]
pub(super) struct Refusal {
    id: Value,
    code: ErrorCode,
    message: String,
}

impl Refusal {
    fn new(id: Value, code: ErrorCode, message: impl Into<String>) -> Self {
        Self { id, code, message: message.into() }
    }

    /// The line to send, without a newline.
    pub(super) fn to_line(&self) -> String {
        json!({
            "jsonrpc": "2.0",
            "id": self.id,
            "error": { "code": self.code.0, "message": self.message },
        })
        .to_string()
    }
}

/// The ids of requests that wait for their reply.
#[derive(Clone, Default)]
pub(super) struct Running(Arc<Mutex<HashSet<RequestId>>>);

impl Running {
    fn start(&self, id: &RequestId) -> Result<(), String> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.contains(id) {
            return Err(format!("a request with the id {id} is still running; give every request its own id"));
        }
        if running.len() >= RUNNING_MAX {
            return Err(format!("{RUNNING_MAX} requests are running; wait for their replies"));
        }
        running.insert(id.clone());
        Ok(())
    }

    /// Its reply was sent, or is no longer wanted.
    pub(super) fn end(&self, id: &RequestId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

/// Decides what may pass, knowing what came before.
pub(super) struct Gate {
    initialized: bool,
    running: Running,
}

impl Gate {
    /// A gate before `initialize`.
    pub(super) fn new(running: Running) -> Self {
        Self { initialized: false, running }
    }

    /// Reads one line.
    pub(super) fn read(&mut self, line: Line<'_>) -> Vec<Inbound> {
        match line {
            Line::Whole(bytes) => self.read_whole(bytes),
            Line::TooLong(found) => refuse_all(
                found,
                ErrorCode::INVALID_REQUEST,
                &format!("the message is longer than {} MiB and was not read", LINE_BYTES_MAX >> 20),
            ),
        }
    }

    fn read_whole(&mut self, bytes: &[u8]) -> Vec<Inbound> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = String::from_utf8_lossy(bytes);
        if text.trim().is_empty() {
            return Vec::new();
        }
        match parse(&text) {
            // Batches were part of one version of the protocol; each element is answered as if it
            // had come alone.
            Ok(Value::Array(elements)) => elements.into_iter().filter_map(|element| self.read_value(element)).collect(),
            Ok(value) => self.read_value(value).into_iter().collect(),
            Err(error) => refuse_all(
                scan(bytes),
                ErrorCode::PARSE_ERROR,
                &format!("the line is not JSON that can be read: {error}"),
            ),
        }
    }

    fn read_value(&mut self, value: Value) -> Option<Inbound> {
        let Value::Object(object) = value else { return None };
        let has_outcome = object.contains_key("result") || object.contains_key("error");
        let has_method = object.contains_key("method");
        if has_outcome && !has_method {
            return self.read_response(object);
        }
        let Some(id) = object.get("id").cloned() else { return self.read_notification(object) };
        Some(self.read_request(id, object).map_or_else(Inbound::Refusal, |message| Inbound::Message(Box::new(message))))
    }

    /// A response to a request of ours is owed nothing; one that cannot be read is no one's.
    fn read_response(&self, object: Map<String, Value>) -> Option<Inbound> {
        let message = serde_json::from_value(Value::Object(object)).ok()?;
        self.initialized.then(|| Inbound::Message(Box::new(message)))
    }

    fn read_notification(&self, object: Map<String, Value>) -> Option<Inbound> {
        let message: ClientJsonRpcMessage = serde_json::from_value(Value::Object(object)).ok()?;
        let JsonRpcMessage::Notification(notification) = &message else { return None };
        if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
            && let Some(id) = &cancelled.params.request_id
        {
            self.running.end(id);
        }
        self.initialized.then(|| Inbound::Message(Box::new(message)))
    }

    fn read_request(&mut self, id: Value, object: Map<String, Value>) -> Result<ClientJsonRpcMessage, Refusal> {
        let refuse = |code, message: Cow<'static, str>| Refusal::new(id_to_echo(&id), code, message);
        let invalid = |message: &'static str| refuse(ErrorCode::INVALID_REQUEST, message.into());
        let request_id: RequestId = serde_json::from_value(id.clone())
            .map_err(|_| invalid("`id` must be a string or an integer of at most 63 bits"))?;
        if object.get("jsonrpc") != Some(&Value::from("2.0")) {
            return Err(invalid("`jsonrpc` must be \"2.0\""));
        }
        let Some(method) = object.get("method").and_then(Value::as_str).map(str::to_owned) else {
            return Err(invalid("`method` must be a string"));
        };
        if object.contains_key("result") || object.contains_key("error") {
            return Err(invalid("a message is a request or a response, not both"));
        }
        // Others, such as `server/discover`, the library would take for more than is served here.
        let Some(wanted) = parameters_of(&method) else {
            return Err(refuse(ErrorCode::METHOD_NOT_FOUND, format!("there is no method `{method}` here").into()));
        };
        match method.as_str() {
            "initialize" if self.initialized => return Err(invalid("the session is initialized already")),
            "initialize" | "ping" => {}
            _ if !self.initialized => return Err(invalid("send `initialize` first")),
            _ => {}
        }
        let parameters = object.get("params").cloned().unwrap_or_default();
        let wrong_parameters =
            || refuse(ErrorCode::INVALID_PARAMS, format!("`params` of `{method}` must be {wanted}").into());
        let message: ClientJsonRpcMessage =
            serde_json::from_value(Value::Object(object)).map_err(|_| wrong_parameters())?;
        let JsonRpcMessage::Request(mut request) = message else { return Err(wrong_parameters()) };
        // What the library knows with other parameters it takes for an extension.
        if matches!(request.request, ClientRequest::CustomRequest(_)) {
            let repaired = (method == "initialize").then(|| lenient_initialize(&parameters)).flatten();
            request.request = repaired.ok_or_else(wrong_parameters)?;
        }
        self.running.start(&request_id).map_err(|message| refuse(ErrorCode::INVALID_REQUEST, message.into()))?;
        if method == "initialize" {
            self.initialized = true;
        }
        Ok(JsonRpcMessage::Request(request))
    }
}

/// The parameters of the methods that are served.
fn parameters_of(method: &str) -> Option<&'static str> {
    match method {
        "initialize" => Some("an object with `protocolVersion` (a string), `capabilities` and `clientInfo`"),
        "ping" => Some("an object or absent"),
        "tools/list" => Some("an object, with `cursor` a string if present, or absent"),
        "tools/call" => Some("an object with `name` (a string) and `arguments` (an object)"),
        _ => None,
    }
}

/// An `initialize` whose details are of a shape of another age. A client is not turned away for
/// them: what can be read is kept.
fn lenient_initialize(parameters: &Value) -> Option<ClientRequest> {
    let version: ProtocolVersion = serde_json::from_value(parameters.get("protocolVersion")?.clone()).ok()?;
    let mut capabilities = ClientCapabilities::default();
    if let Some(roots) = parameters.pointer("/capabilities/roots").filter(|roots| roots.is_object()) {
        let only_roots = json!({ "roots": { "listChanged": roots.get("listChanged") == Some(&Value::Bool(true)) } });
        capabilities = serde_json::from_value(only_roots).ok()?;
    }
    let text = |name: &str| parameters.pointer(&format!("/clientInfo/{name}")).and_then(Value::as_str);
    let client = Implementation::new(text("name").unwrap_or("unknown"), text("version").unwrap_or("0"));
    let mut parameters = InitializeRequestParams::new(capabilities, client);
    parameters.protocol_version = version;
    Some(ClientRequest::InitializeRequest(InitializeRequest::new(parameters)))
}

fn refuse_all(found: Vec<Found>, code: ErrorCode, message: &str) -> Vec<Inbound> {
    found
        .into_iter()
        .filter(|found| !found.is_response)
        .map(|found| Inbound::Refusal(Refusal::new(found.id, code, message)))
        .collect()
}

/// What a client can match: strings and numbers as they came, null for the rest.
fn id_to_echo(id: &Value) -> Value {
    match id {
        Value::String(_) | Value::Number(_) => id.clone(),
        _ => Value::Null,
    }
}

/// Reads JSON, with half surrogate pairs in its escapes replaced.
pub(super) fn parse(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|error| match without_lone_surrogates(text) {
        Some(repaired) => serde_json::from_str(&repaired),
        None => Err(error),
    })
}

/// `text` with every `\uD800`–`\uDFFF` that is not half of a pair as `\uFFFD`; none if all is well.
fn without_lone_surrogates(text: &str) -> Option<String> {
    let unit = |at: usize| {
        let escape = text.as_bytes().get(at..at + 6)?;
        if !escape.starts_with(b"\\u") {
            return None;
        }
        u16::from_str_radix(std::str::from_utf8(&escape[2..]).ok()?, 16).ok()
    };
    let mut repaired = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = text[at..].find('\\') {
        at += found;
        let length = match unit(at) {
            Some(0xD800..=0xDBFF) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => 12,
            Some(0xD800..=0xDFFF) => {
                repaired.push_str(&text[copied..at]);
                repaired.push_str("\\uFFFD");
                copied = at + 6;
                6
            }
            Some(_) => 6,
            // The escaped character may be several bytes long where the escape is wrong.
            None => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
        at += length;
    }
    if copied == 0 {
        return None;
    }
    repaired.push_str(&text[copied..]);
    Some(repaired)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

    fn gate(initialized: bool) -> Gate {
        Gate { initialized, running: Running::default() }
    }

    /// What comes of a line in an initialized session: `pass`, or id and code.
    fn outcomes(gate: &mut Gate, line: impl AsRef<[u8]>) -> Vec<String> {
        gate.read(Line::Whole(line.as_ref()))
            .into_iter()
            .map(|inbound| match inbound {
                Inbound::Message(_) => "pass".to_owned(),
                Inbound::Refusal(refusal) => format!("{} {}", refusal.id, refusal.code.0),
            })
            .collect()
    }

    #[test]
    fn every_wrong_shape_with_an_id_is_answered_once() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":18,"method":"ping","params":{{"a":{}{}}}}}"#,
            "[".repeat(300),
            "]".repeat(300)
        );
        let cases: Vec<(&[u8], &[&str])> = vec![
            (deep.as_bytes(), &["18 -32700"]),
            (br#"{"jsonrpc":"2.0","id":1,"method":"ping""#, &["1 -32700"]),
            (br#"{"jsonrpc":"2.0","id":1}"#, &["1 -32600"]),
            (br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, &["1 -32600"]),
            (br#"{"id":"a","method":"ping"}"#, &["\"a\" -32600"]),
            (br#"{"jsonrpc":"2.0","id":1,"method":7}"#, &["1 -32600"]),
            (br#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, &["1 -32600"]),
            (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, &["null -32600"]),
            (br#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, &["null -32600"]),
            (br#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, &["null -32600"]),
            (br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, &["1.5 -32600"]),
            (br#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"ping"}"#, &["18446744073709551615 -32600"]),
            (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#, &["1 -32602"]),
            (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#, &["1 -32602"]),
            (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":"x"}}"#, &["1 -32602"]),
            (br#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#, &["1 -32601"]),
            (br#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#, &["1 -32601"]),
            (
                br#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"id":2},3,{"jsonrpc":"2.0","method":"n"}]"#,
                &["pass", "2 -32600", "pass"],
            ),
            (br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, &["pass"]),
            (b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\",\"params\":{\"q\":\"\xe9\"}}\r", &["pass"]),
            (b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}", &["pass"]),
            (br#"{"jsonrpc":"2.0","id":"\ud800","method":"ping","params":{"q":"\udc00\ud83d\ude00"}}"#, &["pass"]),
            (br#"{"jsonrpc":"2.0","method":7}"#, &[]),
            (br#"{"jsonrpc":"2.0","id":1,"result":7,"#, &[]),
            (br#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#, &["pass"]),
            (b"[]", &[]),
            (b"  \t\r", &[]),
            (b"7", &[]),
            (b"\x00\xff", &[]),
        ];
        for (line, expected) in cases {
            assert_eq!(outcomes(&mut gate(true), line), expected, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn before_initialize_only_ping_and_initialize_pass() {
        let mut gate = gate(false);
        for (line, expected) in [
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, vec![]),
            (r#"{"jsonrpc":"2.0","id":9,"result":{}}"#, vec![]),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, vec!["1 -32600"]),
            (r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#, vec!["1 -32601"]),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, vec!["pass"]),
            (r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}"#, vec!["2 -32602"]),
            (INITIALIZE, vec!["pass"]),
            (r#"{"jsonrpc":"2.0","id":4,"method":"tools/list"}"#, vec!["pass"]),
            (&INITIALIZE.replace("\"id\":0", "\"id\":5"), vec!["5 -32600"]),
        ] {
            assert_eq!(outcomes(&mut gate, line), expected, "{line}");
        }
    }

    #[test]
    fn an_initialize_of_another_age_is_taken() {
        let line = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"1999-01-01","capabilities":{"roots":{},"sampling":7}}}"#;
        let mut gate = gate(false);
        let inbound = gate.read(Line::Whole(line.as_bytes()));
        let [Inbound::Message(message)] = inbound.as_slice() else { panic!("{inbound:?}") };
        let JsonRpcMessage::Request(request) = message.as_ref() else { panic!("{message:?}") };
        let ClientRequest::InitializeRequest(request) = &request.request else { panic!("{request:?}") };
        assert!(request.params.capabilities.roots.is_some());
    }

    #[test]
    fn an_id_is_free_again_after_its_end() {
        let mut gate = gate(true);
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        assert_eq!(outcomes(&mut gate, ping), ["pass"]);
        assert_eq!(outcomes(&mut gate, ping), ["1 -32600"]);
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        assert_eq!(outcomes(&mut gate, cancel), ["pass"]);
        assert_eq!(outcomes(&mut gate, ping), ["pass"]);
    }

    proptest! {
        #[test]
        fn mutated_lines_never_panic_and_are_answered_at_most_once_for_each_id(
            index in 0..INITIALIZE.len(),
            removed in 0_usize..40,
            inserted: Vec<u8>,
            initialized: bool,
        ) {
            let mut line = INITIALIZE.as_bytes().to_vec();
            line.splice(index..(index + removed).min(INITIALIZE.len()), inserted);
            let count = outcomes(&mut gate(initialized), &line).len();
            let objects = line.iter().filter(|&&byte| byte == b'{').count();
            prop_assert!(count <= objects);
        }

        #[test]
        fn repair_only_touches_lone_surrogates(text: String, escapes: Vec<u16>) {
            let escaped: String = escapes.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let line = format!("\"{escaped}\" {text}");
            let repaired = without_lone_surrogates(&line).unwrap_or(line);
            let string: String = serde_json::from_str(repaired.split_inclusive('"').take(2).collect::<String>().as_str()).unwrap();
            prop_assert_eq!(string, String::from_utf16_lossy(&escapes));
        }
    }
}
