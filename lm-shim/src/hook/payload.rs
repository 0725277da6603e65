//! What a command hook's payload says: which tool a session has used on which file.
//!
//! A payload holds whole files and comes in pieces, so it is read byte by byte in constant memory and
//! without recursion; only a few short fields are kept. On well-formed JSON it is exact; of anything
//! else it takes what is complete.

use memchr::memchr2;
use serde::de::DeserializeOwned;

use super::tool_use::{ToolUse, kind_of};

/// A longer value is none of those that are looked for; paths are shorter everywhere.
const VALUE_BYTES_MAX: usize = 32 << 10;

/// The values that count, each by where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Session,
    Agent,
    Directory,
    Event,
    Tool,
    Path,
    Notebook,
    Success,
    IsError,
    Error,
}

const FIELDS: usize = Field::Error as usize + 1;

/// The objects at the top of a payload that are looked into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Section {
    Input,
    Response,
}

/// Reads a payload in pieces of any size.
#[derive(Default)]
pub(super) struct Scanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether the next string, if it stands at depth 1 or 2, is a key.
    at_key: bool,
    /// The key being read or just read, cut to what tells the known ones apart.
    key: Vec<u8>,
    reading_key: bool,
    section: Option<Section>,
    /// The value being read.
    value: Option<(Field, Vec<u8>)>,
    values: [Option<Vec<u8>>; FIELDS],
    ended: bool,
}

impl Scanner {
    /// Reads on.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.ended {
                return;
            }
            // Most of a payload is text that nobody looks for.
            if self.in_string && !self.escaped && self.value.is_none() && !self.reading_key {
                let Some(end) = memchr2(b'"', b'\\', bytes) else { return };
                self.step_in_string(bytes[end]);
                bytes = &bytes[end + 1..];
                continue;
            }
            self.step(byte);
            bytes = rest;
        }
    }

    /// Whether nothing that follows can count.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The use of a tool that the payload tells of, as far as it was read; none of one that does not
    /// concern a file, or that has failed.
    pub(super) fn tool_use(&self) -> Option<ToolUse> {
        let text = |field| self.parsed::<String>(field).filter(|text| !text.is_empty());
        if text(Field::Event)? != super::tool_use::EVENT || self.has_failed() {
            return None;
        }
        let tool = text(Field::Tool)?;
        Some(ToolUse {
            kind: kind_of(&tool)?,
            tool,
            path: text(Field::Path).or_else(|| text(Field::Notebook))?,
            cwd: text(Field::Directory),
            session: text(Field::Session),
            agent: text(Field::Agent),
        })
    }

    /// Whether the tool says so itself; where it says nothing it has not.
    fn has_failed(&self) -> bool {
        let is_empty = |raw: &[u8]| matches!(raw.trim_ascii(), b"" | b"null" | b"false" | b"\"\"");
        self.parsed(Field::Success) == Some(false)
            || self.parsed(Field::IsError) == Some(true)
            || self.values[Field::Error as usize].as_deref().is_some_and(|raw| !is_empty(raw))
    }

    fn parsed<T: DeserializeOwned>(&self, field: Field) -> Option<T> {
        serde_json::from_slice(self.values[field as usize].as_deref()?).ok()
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            self.step_in_string(byte);
            return;
        }
        match byte {
            b'"' if self.depth > 0 => {
                self.in_string = true;
                self.reading_key = self.at_key && self.depth <= 2;
                if self.reading_key {
                    self.key.clear();
                }
                self.keep(byte);
            }
            b':' if self.at_key && self.depth <= 2 => {
                self.at_key = false;
                self.begin_value();
            }
            b',' if self.depth <= 2 && self.depth > 0 => {
                self.end_value();
                // In an array there are no keys, and no `:` that would make one of a string.
                self.at_key = self.depth == 1 || self.section.is_some();
            }
            b'{' | b'[' => self.open(byte),
            b'}' | b']' => self.close(),
            // Whatever stands before an object, or instead of one, is no payload.
            _ if self.depth == 0 => self.ended = !byte.is_ascii_whitespace(),
            _ => self.keep(byte),
        }
    }

    fn step_in_string(&mut self, byte: u8) {
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.in_string = false;
            self.reading_key = false;
            return;
        }
        // No known key is as long as this, so a cut one is never taken for one.
        if self.reading_key && self.key.len() < 24 {
            self.key.push(byte);
        }
    }

    fn open(&mut self, byte: u8) {
        self.keep(byte);
        self.depth += 1;
        match self.depth {
            1 => {
                self.at_key = byte == b'{';
                self.ended = byte != b'{';
            }
            2 => {
                self.at_key = byte == b'{' && self.section.is_some();
                if !self.at_key {
                    self.section = None;
                }
            }
            _ => {}
        }
    }

    fn close(&mut self) {
        if self.depth <= 2 {
            self.end_value();
        }
        self.depth = self.depth.saturating_sub(1);
        match self.depth {
            0 => self.ended = true,
            1 => (self.section, self.at_key) = (None, false),
            _ => {}
        }
    }

    fn begin_value(&mut self) {
        if self.depth == 1 {
            self.section = match self.key.as_slice() {
                b"tool_input" => Some(Section::Input),
                b"tool_response" => Some(Section::Response),
                _ => None,
            };
        }
        let field = match (self.depth, self.section, self.key.as_slice()) {
            (1, _, b"session_id") => Field::Session,
            (1, _, b"agent_id") => Field::Agent,
            (1, _, b"cwd") => Field::Directory,
            (1, _, b"hook_event_name") => Field::Event,
            (1, _, b"tool_name") => Field::Tool,
            (2, Some(Section::Input), b"file_path") => Field::Path,
            (2, Some(Section::Input), b"notebook_path") => Field::Notebook,
            (2, Some(Section::Response), b"success") => Field::Success,
            (2, Some(Section::Response), b"is_error" | b"isError") => Field::IsError,
            (2, Some(Section::Response), b"error") => Field::Error,
            _ => return,
        };
        self.value = Some((field, Vec::new()));
    }

    fn keep(&mut self, byte: u8) {
        if let Some((_, value)) = self.value.as_mut().filter(|(_, value)| value.len() <= VALUE_BYTES_MAX) {
            value.push(byte);
        }
    }

    fn end_value(&mut self) {
        if let Some((field, value)) = self.value.take() {
            self.values[field as usize] = Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lm_proto::message::ObservationKind;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn scan(payload: &[u8]) -> Option<ToolUse> {
        let mut scanner = Scanner::default();
        scanner.feed(payload);
        scanner.tool_use()
    }

    fn payload(tool: &str, input: Value, response: Value) -> Value {
        json!({
            "session_id": "s-1", "transcript_path": "/t.jsonl", "cwd": "/w", "permission_mode": "default",
            "hook_event_name": "PostToolUse", "tool_name": tool, "tool_input": input, "tool_response": response,
            "tool_use_id": "toolu_1", "agent_id": "a-1",
        })
    }

    fn of(tool: &str, input: Value, response: Value) -> Option<ToolUse> {
        scan(payload(tool, input, response).to_string().as_bytes())
    }

    #[test]
    fn each_tool_that_touches_files_is_seen() {
        let content = "{\"file_path\":\"/not/this\"}\\\" \n";
        for (tool, kind) in [
            ("Read", ObservationKind::Read),
            ("Write", ObservationKind::Edited),
            ("Edit", ObservationKind::Edited),
            ("MultiEdit", ObservationKind::Edited),
        ] {
            let input =
                json!({ "edits": [{ "file_path": "/nor/this" }], "content": content, "file_path": "/w/ä \"b\"" });
            let response =
                json!({ "type": "text", "file": { "filePath": "/w/x", "content": content, "success": false } });
            let seen = of(tool, input, response).unwrap();
            assert_eq!((seen.kind, seen.path.as_str()), (kind, "/w/ä \"b\""), "{tool}");
            assert_eq!(seen.tool, tool);
            assert_eq!(seen.cwd.as_deref(), Some("/w"));
            assert_eq!((seen.session.as_deref(), seen.agent.as_deref()), (Some("s-1"), Some("a-1")));
        }
        let notebook = of("NotebookEdit", json!({ "notebook_path": "/w/n.ipynb" }), json!({})).unwrap();
        assert_eq!((notebook.kind, notebook.path.as_str()), (ObservationKind::Edited, "/w/n.ipynb"));
    }

    #[test]
    fn other_tools_events_and_failures_are_passed_over() {
        let input = || json!({ "file_path": "/w/a" });
        assert_eq!(of("Bash", json!({ "command": "cat a" }), json!({})), None);
        assert_eq!(of("Agent", input(), json!({})), None);
        assert_eq!(of("Read", json!({}), json!({})), None);
        assert_eq!(of("Read", json!({ "file_path": 7 }), json!({})), None);
        assert_eq!(of("Read", json!([input()]), json!({})), None);
        for event in ["PreToolUse", "PostToolUseFailure", "PostToolBatch", "Stop"] {
            let mut payload = payload("Read", input(), json!({}));
            payload["hook_event_name"] = event.into();
            assert_eq!(scan(payload.to_string().as_bytes()), None, "{event}");
        }
        for response in [
            json!({ "success": false }),
            json!({ "is_error": true }),
            json!({ "isError": true }),
            json!({ "error": "no match" }),
            json!({ "error": { "code": 1 } }),
        ] {
            assert_eq!(of("Edit", input(), response.clone()), None, "{response}");
        }
        for response in [
            json!({ "success": true, "error": null }),
            json!({ "error": "" }),
            json!({ "nested": { "success": false } }),
            json!(["success", false]),
            json!("Error: as a text it is a tool's own words"),
            Value::Null,
        ] {
            assert!(of("Edit", input(), response.clone()).is_some(), "{response}");
        }
    }

    #[test]
    fn what_is_no_payload_is_nothing() {
        let good = payload("Read", json!({ "file_path": "/w/a" }), json!({})).to_string();
        for garbage in
            ["", " ", "null", "7", "[]", "{}", "}}}}", "\"a", "\u{feff}{}", "{\"tool_name\":\"Read\"", "[[[["]
        {
            assert_eq!(scan(garbage.as_bytes()), None, "{garbage}");
        }
        assert_eq!(scan(format!("[{good}]").as_bytes()), None);
        assert_eq!(scan(format!("oops {good}").as_bytes()), None);
        assert_eq!(scan(&[0xff, 0xfe]), None);
        // A path that is not Unicode cannot be meant.
        let mut broken = good.replace("/w/a", "/w/#").into_bytes();
        broken.iter_mut().filter(|byte| **byte == b'#').for_each(|byte| *byte = 0xff);
        assert_eq!(scan(&broken), None);
        // What follows the payload is not looked at.
        assert!(scan(format!("\n{good}\n{{\"tool_name\":\"Bash\"}}").as_bytes()).is_some());
    }

    #[test]
    fn what_was_cut_counts_as_far_as_it_is_complete() {
        let whole =
            r#"{"hook_event_name":"PostToolUse","tool_name":"Write","tool_input":{"file_path":"/w/a","content":"xxx"#;
        assert_eq!(scan(whole.as_bytes()).unwrap().path, "/w/a");
        assert_eq!(scan(&whole.as_bytes()[..whole.find("/a").unwrap()]), None);
    }

    #[test]
    fn depth_and_length_cost_nothing() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let payload = format!(
            r#"{{"a":{deep},"hook_event_name":"PostToolUse","tool_name":"Read","tool_input":{{"x":{deep},"file_path":"/w/a"}}}}"#
        );
        assert_eq!(scan(payload.as_bytes()).unwrap().path, "/w/a");
        let long = "x".repeat(2 * VALUE_BYTES_MAX);
        assert_eq!(of("Read", json!({ "file_path": long }), json!({})), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_scanned(bytes: Vec<u8>) {
            scan(&bytes);
        }

        #[test]
        fn on_any_payload_it_agrees_with_the_parser_however_it_is_cut(
            path in ".+",
            content: String,
            failed: Option<bool>,
            piece in 1_usize..64,
            spaced: bool,
        ) {
            let value = payload(
                "Write",
                json!({ "content": content, "file_path": path, "z": [{ "file_path": content }] }),
                json!({ "originalFile": content, "success": failed.map(|failed| !failed) }),
            );
            let text = if spaced { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
            let mut scanner = Scanner::default();
            text.as_bytes().chunks(piece).for_each(|piece| scanner.feed(piece));
            prop_assert!(scanner.has_ended());
            let seen = scanner.tool_use().map(|seen| seen.path);
            prop_assert_eq!(seen, (failed != Some(true)).then_some(path));
        }
    }
}
