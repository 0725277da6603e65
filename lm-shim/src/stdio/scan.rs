//! Finds the ids in a line that may be anything at all.
//!
//! A client waits for every id it sent, also where the line around it cannot be parsed: cut short,
//! nested too deep, longer than any message may be. This scanner reads such a line byte by byte in
//! constant memory and without recursion, and tells which top-level objects (or elements of a
//! top-level array) carry an id. On well-formed JSON it is exact; on the rest it does its best.

use serde_json::Value;

/// A longer id is treated as one that cannot be read.
const ID_BYTES_MAX: usize = 4096;
/// As many objects of one unreadable line are answered.
const FOUND_MAX: usize = 1024;

/// An object that carries an id.
#[derive(PartialEq, Debug)]
pub(super) struct Found {
    /// The id; null where it is there and cannot be read or is neither string nor number.
    pub(super) id: Value,
    /// It has a result or an error and no method: the client answers us, and nothing is owed.
    pub(super) is_response: bool,
}

/// Reads one line in pieces of any size.
#[derive(Default)]
pub(super) struct Scanner {
    /// Depth at which the keys that matter stand: 1, or 2 in a batch; none outside of any object.
    base: Option<usize>,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Where the next string at base depth is a key.
    at_key: bool,
    /// The key being read or just read, cut to what tells the known ones apart.
    key: Vec<u8>,
    reading_key: bool,
    /// The bytes of an id's value while it is being read.
    value: Option<Vec<u8>>,
    object: Object,
    found: Vec<Found>,
}

#[derive(Default)]
struct Object {
    id: Option<Vec<u8>>,
    has_method: bool,
    has_outcome: bool,
}

impl Scanner {
    /// Reads on.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.step(byte));
    }

    /// The objects with an id, in their order.
    pub(super) fn finish(mut self) -> Vec<Found> {
        // A line that was cut short still owes what it began.
        self.end_object();
        self.found
    }

    fn step(&mut self, byte: u8) {
        let Some(base) = self.base else {
            match byte {
                b'{' => self.open(1),
                b'[' => self.open(2),
                _ => {}
            }
            return;
        };
        if self.in_string {
            self.keep(byte);
            self.step_in_string(byte);
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.reading_key = self.depth == base && self.at_key;
                if self.reading_key {
                    self.key.clear();
                }
                self.keep(byte);
            }
            b':' if self.depth == base && self.at_key => self.begin_value(),
            b',' if self.depth == base => {
                self.end_value();
                self.at_key = true;
            }
            b'{' | b'[' => {
                self.keep(byte);
                self.depth += 1;
                if self.depth == base {
                    self.at_key = byte == b'{';
                }
            }
            b'}' | b']' => {
                if self.depth == base {
                    self.end_object();
                }
                self.keep(byte);
                self.depth -= 1;
                if self.depth == 0 {
                    self.base = None;
                }
            }
            _ => self.keep(byte),
        }
    }

    fn open(&mut self, base: usize) {
        self.base = Some(base);
        self.depth = 1;
        self.at_key = base == 1;
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
        if self.reading_key && self.key.len() < 16 {
            self.key.push(byte);
        }
    }

    fn begin_value(&mut self) {
        self.at_key = false;
        match self.key.as_slice() {
            b"id" => self.value = Some(Vec::new()),
            b"method" => self.object.has_method = true,
            b"result" | b"error" => self.object.has_outcome = true,
            _ => {}
        }
    }

    fn keep(&mut self, byte: u8) {
        if let Some(value) = self.value.as_mut().filter(|value| value.len() <= ID_BYTES_MAX) {
            value.push(byte);
        }
    }

    fn end_value(&mut self) {
        if let Some(value) = self.value.take() {
            self.object.id = Some(value);
        }
    }

    fn end_object(&mut self) {
        self.end_value();
        let object = std::mem::take(&mut self.object);
        if let Some(raw) = object.id.filter(|_| self.found.len() < FOUND_MAX) {
            self.found.push(Found { id: id_of(&raw), is_response: object.has_outcome && !object.has_method });
        }
    }
}

/// The objects with an id in a whole line.
pub(super) fn scan(line: &[u8]) -> Vec<Found> {
    let mut scanner = Scanner::default();
    scanner.feed(line);
    scanner.finish()
}

fn id_of(raw: &[u8]) -> Value {
    if raw.len() > ID_BYTES_MAX {
        return Value::Null;
    }
    let text = String::from_utf8_lossy(raw);
    match super::message::parse(&text) {
        Ok(id @ (Value::String(_) | Value::Number(_))) => id,
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn ids(line: &str) -> Vec<Value> {
        scan(line.as_bytes()).into_iter().filter(|found| !found.is_response).map(|found| found.id).collect()
    }

    #[test]
    fn finds_ids_in_lines_that_do_not_parse() {
        assert_eq!(ids(r#"{"id":1,"method":"x","params":{"id":2"#), [json!(1)]);
        assert_eq!(ids(r#"{"method":"x","params":{"id":2},"id":"a\"b"#), [Value::Null]);
        assert_eq!(ids(r#"{"method":"x","params":{"id":2},"id":"a\"b"}"#), [json!("a\"b")]);
        assert_eq!(ids(r#"noise {"id" : -7 , oops}"#), [json!(-7)]);
        assert_eq!(ids(r#"[{"id":1},{"id":2},{"no":3},{"id":[4]}"#), [json!(1), json!(2), Value::Null]);
        assert_eq!(ids(r#"{"id":1}{"id":2}"#), [json!(1), json!(2)]);
        assert_eq!(ids(r#"{"id":1,"id":2"#), [json!(2)]);
        assert!(ids(r#"{"params":"\"id\":1","x":{"id":3}"#).is_empty());
        assert!(ids("").is_empty());
    }

    #[test]
    fn an_answer_of_the_client_is_told_apart() {
        assert!(scan(br#"{"id":1,"result":{"#)[0].is_response);
        assert!(!scan(br#"{"id":1,"method":"m","result":{"#)[0].is_response);
    }

    #[test]
    fn depth_costs_nothing() {
        let line = format!(r#"{{"a":{}{},"id":9}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(ids(&line), [json!(9)]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_scanned(bytes: Vec<u8>) {
            scan(&bytes);
        }

        #[test]
        fn on_valid_json_it_agrees_with_the_parser(
            id in prop_oneof![any::<i64>().prop_map(|id| json!(id)), any::<String>().prop_map(|id| json!(id))],
            noise: String,
            last: bool,
        ) {
            let noise = json!({"id": noise, "nested": [{"id": 5}, noise]});
            let line = if last {
                format!(r#"{{"method":"m","params":{noise},"id":{id}}}"#)
            } else {
                format!(r#"{{"id":{id},"method":"m","params":{noise}}}"#)
            };
            prop_assert_eq!(scan(line.as_bytes()), [Found { id, is_response: false }]);
        }
    }
}
