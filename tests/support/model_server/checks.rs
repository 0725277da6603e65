//! What every request must keep to, whatever the test is about.
//!
//! Well-formedness: what a provider would refuse. Append-only: within one log, a request is an
//! earlier request's conversation with additions at its end, byte for byte, and what stands above the
//! log (model, tools, system) does not change at all. Requests of one log are recognised by the
//! header `x-live-memory-conversation`, or without it by what stands above: then a new log begins
//! whenever that changes. A new question may fork from an earlier point, as one that was asked in
//! parallel does, but not from further back than [`MAX_STALE`] questions. A request whose purpose is a
//! summary is a log of its own; one that names a conversation continues it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::seen::{Format, Mark, SeenMessage, SeenRequest};

/// How many questions a fork may be behind: as many as are answered in parallel.
const MAX_STALE: usize = 4;

/// The logs seen so far.
#[derive(Debug, Default)]
pub(super) struct Logs(BTreeMap<String, Log>);

#[derive(Debug, Default)]
struct Log {
    above: Vec<String>,
    requests: Vec<Vec<String>>,
    /// What stood before each question.
    bases: BTreeSet<Vec<String>>,
}

impl Logs {
    /// How many logs there were.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Takes a request and says what is wrong with it.
    pub(super) fn check(&mut self, request: &SeenRequest) -> Vec<String> {
        let above: Vec<String> = std::iter::once(request.model.clone())
            .chain(request.tools.iter().chain(&request.system).map(|piece| piece.raw.clone()))
            .collect();
        let name = match request.header("x-live-memory-purpose") {
            // What it adds to a conversation is not kept there, and it may stand by itself.
            Some("summary") => return self.check_summary(request, above),
            _ => request.header("x-live-memory-conversation").map_or_else(|| above.join("\n"), str::to_owned),
        };
        let said = said(request);
        let log = self.0.entry(name).or_default();
        let mut wrong = Vec::new();
        if log.requests.is_empty() {
            log.above = above;
        } else {
            if log.above != above {
                wrong.push(format!("model, tools or system changed within a log: {}", difference(&log.above, &above)));
            }
            wrong.extend(log.not_appended(request, &said));
        }
        if !brings_results(request.messages.last()) {
            log.bases.insert(before_last(request, &said).to_vec());
        }
        log.requests.push(said);
        wrong
    }
}

impl Logs {
    /// A summary is a log of its own; where it names a conversation it continues it.
    fn check_summary(&self, request: &SeenRequest, above: Vec<String>) -> Vec<String> {
        let Some(name) = request.header("x-live-memory-conversation") else { return Vec::new() };
        let Some(log) = self.0.get(name) else {
            return vec!["a summary of a conversation that was never sent".to_owned()];
        };
        let mut wrong = Vec::new();
        if log.above != above {
            wrong.push(format!("a summary changes what stands above its log: {}", difference(&log.above, &above)));
        }
        let said = said(request);
        if !log.requests.iter().any(|earlier| said.starts_with(earlier)) {
            let closest = log.requests.iter().max_by_key(|earlier| common(earlier, &said));
            let difference = closest.map(|closest| difference(closest, &said)).unwrap_or_default();
            wrong.push(format!("a summary does not continue its conversation: {difference}"));
        }
        wrong
    }
}

/// What the turns of a request say, block by block.
fn said(request: &SeenRequest) -> Vec<String> {
    request
        .messages
        .iter()
        .flat_map(|message| message.pieces.iter().map(|piece| format!("{}: {}", message.role, piece.raw)))
        .collect()
}

impl Log {
    fn not_appended(&self, request: &SeenRequest, said: &[String]) -> Option<String> {
        if self.requests.iter().any(|earlier| said.starts_with(earlier)) {
            return None;
        }
        let base = before_last(request, said);
        let forks =
            !brings_results(request.messages.last()) && self.requests.iter().any(|earlier| earlier.starts_with(base));
        if !forks {
            let closest = self.requests.iter().max_by_key(|earlier| common(earlier, said))?;
            return Some(format!("the log was not only appended to: {}", difference(closest, said)));
        }
        let later = self.bases.iter().filter(|other| other.len() > base.len() && other.starts_with(base)).count();
        (later > MAX_STALE).then(|| format!("a question forks from a log that is {later} questions old"))
    }
}

fn brings_results(message: Option<&SeenMessage>) -> bool {
    message.is_some_and(|message| {
        message.role == "tool" || message.pieces.iter().any(|piece| piece.json()["type"] == "tool_result")
    })
}

fn before_last<'a>(request: &SeenRequest, said: &'a [String]) -> &'a [String] {
    let last = request.messages.last().map_or(0, |message| message.pieces.len());
    &said[..said.len() - last]
}

fn common(a: &[String], b: &[String]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Where two lists part, with the text around.
fn difference(before: &[String], now: &[String]) -> String {
    let at = common(before, now);
    let excerpt = |list: &[String]| match list.get(at) {
        None => "nothing".to_owned(),
        Some(text) => {
            let other = if std::ptr::eq(list, now) { before } else { now };
            let other = other.get(at).map_or("", String::as_str);
            let same = text.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
            let around: String = text.chars().skip(same.saturating_sub(40)).take(160).collect();
            format!("`{around}`")
        }
    };
    format!("block {at} was {}, is {}", excerpt(before), excerpt(now))
}

/// What a provider would refuse.
pub(super) fn well_formed(request: &SeenRequest) -> Vec<String> {
    let mut wrong = Vec::new();
    let body = request.json();
    for field in ["temperature", "top_p", "top_k"] {
        if body.get(field).is_some() {
            wrong.push(format!("{field} is set, which current models refuse"));
        }
    }
    if request.model.is_empty() {
        wrong.push("no model".to_owned());
    }
    if request.messages.is_empty() {
        wrong.push("no messages".to_owned());
    }
    let credentials =
        request.headers.iter().filter(|(name, _)| matches!(&**name, "x-api-key" | "authorization")).count();
    if credentials > 1 {
        wrong.push("both x-api-key and authorization are sent".to_owned());
    }
    match request.format {
        Format::Messages => messages(request, &body, &mut wrong),
        Format::ChatCompletions => chat_completions(request, &body, &mut wrong),
    }
    wrong
}

fn messages(request: &SeenRequest, body: &Value, wrong: &mut Vec<String>) {
    if request.header("anthropic-version").is_none() {
        wrong.push("no anthropic-version".to_owned());
    }
    if !request.path.ends_with("count_tokens") && body["max_tokens"].as_u64().is_none_or(|tokens| tokens == 0) {
        wrong.push("no max_tokens".to_owned());
    }
    let marks: Vec<Mark> = request.pieces().filter_map(|piece| piece.mark).collect();
    if marks.len() > 4 {
        wrong.push(format!("{} cache marks, at most 4 are taken", marks.len()));
    }
    if marks.windows(2).any(|pair| pair[0] < pair[1]) {
        wrong.push("a cache mark of an hour stands after one of five minutes".to_owned());
    }
    for tool in &request.tools {
        if tool.json()["input_schema"]["type"] != "object" {
            wrong.push(format!("the schema of a tool is no object: {}", tool.raw));
        }
    }
    let mut pending: Vec<String> = Vec::new();
    let mut used = BTreeSet::new();
    for (number, message) in request.messages.iter().enumerate() {
        let expected = if number % 2 == 0 { "user" } else { "assistant" };
        if message.role != expected {
            wrong.push(format!("message {number} is of {}, not of {expected}", message.role));
        }
        if message.pieces.is_empty() {
            wrong.push(format!("message {number} is empty"));
        }
        let mut answered = Vec::new();
        let mut calls = Vec::new();
        let mut other = false;
        for piece in &message.pieces {
            let block = piece.json();
            match block["type"].as_str() {
                Some("text") => {
                    other = true;
                    if block["text"].as_str().is_none_or(str::is_empty) {
                        wrong.push(format!("message {number} holds an empty text"));
                    }
                }
                Some("tool_result") => {
                    if other {
                        wrong.push(format!("message {number} brings a tool result after other content"));
                    }
                    answered.push(block["tool_use_id"].as_str().unwrap_or_default().to_owned());
                }
                Some("tool_use") => {
                    let id = block["id"].as_str().unwrap_or_default().to_owned();
                    if !block["input"].is_object() {
                        wrong.push(format!("message {number}: the input of call {id} is no object"));
                    }
                    if !used.insert(id.clone()) {
                        wrong.push(format!("message {number}: the id {id} is used twice"));
                    }
                    calls.push(id);
                }
                Some("thinking" | "redacted_thinking") => {
                    if piece.mark.is_some() {
                        wrong.push(format!("message {number}: a thinking block carries a cache mark"));
                    }
                }
                other => wrong.push(format!("message {number} holds a block of type {other:?}")),
            }
        }
        results_match(number, &pending, &answered, wrong);
        pending = calls;
    }
    if request.messages.last().is_some_and(|message| message.role == "assistant") {
        wrong.push("the last message is the model's own".to_owned());
    }
}

fn chat_completions(request: &SeenRequest, body: &Value, wrong: &mut Vec<String>) {
    if ["max_tokens", "max_completion_tokens"].iter().filter(|field| body.get(**field).is_some()).count() != 1 {
        wrong.push("not exactly one of max_tokens and max_completion_tokens".to_owned());
    }
    let mut pending: Vec<String> = Vec::new();
    let mut answered: Vec<String> = Vec::new();
    let mut used = BTreeSet::new();
    let mut previous = "";
    for (number, message) in request.messages.iter().enumerate() {
        let json = message.pieces[0].json();
        let role = message.role.as_str();
        if role == "tool" {
            answered.push(json["tool_call_id"].as_str().unwrap_or_default().to_owned());
        } else {
            results_match(number, &pending, &answered, wrong);
            pending.clear();
            answered.clear();
            if role == previous || !matches!(role, "user" | "assistant") {
                wrong.push(format!("message {number} is of {role} after one of {previous}"));
            }
        }
        if !json["content"].is_string() {
            wrong.push(format!("message {number}: the content is no string"));
        }
        for call in json["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            if !serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()) {
                wrong.push(format!("message {number}: the arguments of call {id} are no object"));
            }
            if !used.insert(id.clone()) {
                wrong.push(format!("message {number}: the id {id} is used twice"));
            }
            pending.push(id);
        }
        previous = if role == "tool" { "tool" } else { role };
    }
    results_match(request.messages.len(), &pending, &answered, wrong);
    if previous == "assistant" {
        wrong.push("the last message is the model's own".to_owned());
    }
}

fn results_match(number: usize, calls: &[String], results: &[String], wrong: &mut Vec<String>) {
    let set = |ids: &[String]| ids.iter().cloned().collect::<BTreeSet<_>>();
    if set(calls) != set(results) || results.len() != set(results).len() {
        wrong.push(format!("before message {number} stand calls {calls:?}, answered are {results:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::json;

    use super::*;

    fn request(body: &Value) -> SeenRequest {
        let headers = vec![("anthropic-version".to_owned(), "1".to_owned())];
        let at = SystemTime::UNIX_EPOCH;
        SeenRequest::parse(0, Format::Messages, "/v1/messages", at, headers, &body.to_string()).unwrap()
    }

    fn body(messages: &Value) -> Value {
        json!({ "model": "m", "max_tokens": 1, "system": "s", "messages": messages })
    }

    fn log(texts: &[&str]) -> SeenRequest {
        let turn = |(number, text): (usize, &&str)| {
            let role = if number % 2 == 0 { "user" } else { "assistant" };
            json!({ "role": role, "content": [{ "type": "text", "text": text }] })
        };
        request(&body(&texts.iter().enumerate().map(turn).collect()))
    }

    fn checked(requests: &[SeenRequest]) -> Vec<String> {
        let mut logs = Logs::default();
        requests.iter().flat_map(|request| logs.check(request)).collect()
    }

    #[test]
    fn a_log_that_grows_and_forks_is_in_order() {
        let fine = [log(&["q1"]), log(&["q2"]), log(&["q1", "a1", "q3"]), log(&["q1", "a1", "q2", "a2", "q4"])];
        assert_eq!(checked(&fine), Vec::<String>::new());
    }

    #[test]
    fn a_changed_or_forgotten_log_is_noticed() {
        let changed = checked(&[log(&["q1"]), log(&["q1", "a1", "q2"]), log(&["q1 ", "a1", "q2", "a2", "q3"])]);
        assert!(changed.len() == 1 && changed[0].contains("block 0 was"), "{changed:?}");
        let mut growing = vec!["q"];
        let mut requests = vec![log(&growing)];
        for _ in 0..6 {
            growing.extend(["a", "q"]);
            requests.push(log(&growing));
        }
        requests.push(log(&["another"]));
        assert!(checked(&requests)[0].contains("6 questions old"));
    }

    #[test]
    fn a_named_log_keeps_what_stands_above_it() {
        let mut first = log(&["q1"]);
        let mut second = log(&["q1", "a1", "q2"]);
        second.system[0].raw = r#"{"type":"text","text":"other"}"#.to_owned();
        assert!(checked(&[first.clone(), second.clone()]).is_empty(), "another log");
        for request in [&mut first, &mut second] {
            request.headers.push(("x-live-memory-conversation".to_owned(), "one".to_owned()));
        }
        assert!(checked(&[first, second])[0].contains("changed within a log"));
    }

    #[test]
    fn what_a_provider_refuses_is_noticed() {
        let call = json!({ "type": "tool_use", "id": "c", "name": "Read", "input": {} });
        let result = json!({ "type": "tool_result", "tool_use_id": "c", "content": "x" });
        let text = json!({ "type": "text", "text": "x" });
        let user = |content: Value| json!({ "role": "user", "content": content });
        let model = |content: Value| json!({ "role": "assistant", "content": content });
        let wrong = |messages: Value| well_formed(&request(&body(&messages))).join("; ");
        assert_eq!(wrong(json!([user(json!([text])), model(json!([call])), user(json!([result, text]))])), "");
        for (messages, expected) in [
            (json!([user(json!([text])), model(json!([call])), user(json!([text]))]), "stand calls"),
            (json!([user(json!([text])), model(json!([call])), user(json!([text, result]))]), "after other content"),
            (json!([user(json!([result]))]), "answered are"),
            (json!([user(json!([text])), user(json!([text]))]), "not of assistant"),
            (json!([user(json!([text])), model(json!([text]))]), "the model's own"),
            (json!([user(json!([{ "type": "text", "text": "" }]))]), "empty text"),
            (json!([]), "no messages"),
        ] {
            let said = wrong(messages);
            assert!(said.contains(expected), "{said} lacks {expected}");
        }
        let mark = json!({ "type": "text", "text": "x", "cache_control": { "type": "ephemeral" } });
        assert!(wrong(json!([user(json!([mark, mark, mark, mark, mark]))])).contains("5 cache marks"));
    }
}
