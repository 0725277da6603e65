//! From what the model says to the bytes of both wire formats.

use serde_json::{Value, json};

use super::{
    caching::Tokens,
    script::{Fault, ReportedUsage, Say, Turn},
    seen::{Format, SeenRequest},
};

/// What goes over the wire.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// One document.
    Document { status: u16, headers: Vec<(&'static str, String)>, kind: &'static str, body: String },
    /// Events, and how it ends.
    Stream { events: Vec<String>, end: End },
    /// The connection is reset.
    Reset,
    /// Nothing.
    Hang,
}

/// How a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Proper,
    BrokenOff,
    Silence,
}

/// The tokens of what is said: a quarter of its bytes.
pub(super) fn output_tokens(turn: &Turn) -> u64 {
    let bytes = turn.say.iter().map(|say| match say {
        Say::Text(text) => text.len(),
        Say::Thinking(text, signature) => text.len() + signature.len(),
        Say::Call { name, arguments } => name.len() + arguments.len(),
    });
    (bytes.sum::<usize>() as u64).div_ceil(4)
}

pub(super) fn reply(request: &SeenRequest, turn: &Turn, tokens: &Tokens) -> Reply {
    let streamed = request.json()["stream"] == true && !turn.whole;
    let document =
        |status, body: String| Reply::Document { status, headers: Vec::new(), kind: "application/json", body };
    match &turn.fault {
        Some(Fault::Status { status, headers, body }) => {
            return Reply::Document {
                status: *status,
                headers: headers.clone(),
                kind: "application/json",
                body: body.clone(),
            };
        }
        Some(Fault::Reset) => return Reply::Reset,
        Some(Fault::Hang) => return Reply::Hang,
        Some(Fault::Page(kind, body)) => {
            return Reply::Document { status: 200, headers: Vec::new(), kind, body: body.clone() };
        }
        Some(Fault::ErrorWithin(_, error)) if !streamed => return document(200, error.clone()),
        Some(Fault::Malformed(_)) if !streamed => return document(200, "{\"id\": \"msg".to_owned()),
        _ => {}
    }
    let usage = turn.usage.unwrap_or(ReportedUsage {
        input: tokens.input,
        read: tokens.read,
        write_5m: tokens.write_5m,
        write_1h: tokens.write_1h,
        output: output_tokens(turn),
    });
    let usage = (!turn.without_usage).then_some(usage);
    if !streamed {
        return document(
            200,
            match request.format {
                Format::Messages => message(request, turn, usage),
                Format::ChatCompletions => completion(request, turn, usage),
            }
            .to_string(),
        );
    }
    let mut events = match request.format {
        Format::Messages => message_events(request, turn, usage),
        Format::ChatCompletions => completion_events(request, turn, usage),
    };
    let mut end = End::Proper;
    match &turn.fault {
        Some(Fault::HalfStream(after)) => {
            events.truncate(*after);
            end = End::BrokenOff;
        }
        Some(Fault::Silence(after)) => {
            events.truncate(*after);
            end = End::Silence;
        }
        Some(Fault::Malformed(after)) => {
            events.truncate(*after);
            events.push("data: {\"type\": \"content_blo\n\n".to_owned());
        }
        Some(Fault::ErrorWithin(after, error)) => {
            events.truncate(*after);
            events.push(match request.format {
                Format::Messages => format!("event: error\ndata: {error}\n\n"),
                Format::ChatCompletions => format!("data: {error}\n\n"),
            });
        }
        _ => {}
    }
    Reply::Stream { events, end }
}

fn calls(turn: &Turn) -> bool {
    turn.say.iter().any(|say| matches!(say, Say::Call { .. }))
}

fn call_id(request: &SeenRequest, number: usize) -> String {
    format!("call_{}_{number}", request.number)
}

/// A text in two pieces, so that streams are streams.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let middle = (text.len() / 2..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    [&text[..middle], &text[middle..]].into_iter().filter(|piece| !piece.is_empty())
}

fn message_usage(usage: Option<ReportedUsage>) -> Value {
    usage.map_or(Value::Null, |usage| {
        json!({
            "input_tokens": usage.input,
            "cache_creation_input_tokens": usage.write_5m + usage.write_1h,
            "cache_read_input_tokens": usage.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": usage.write_5m,
                "ephemeral_1h_input_tokens": usage.write_1h,
            },
            "output_tokens": usage.output,
        })
    })
}

fn message_stop(turn: &Turn) -> String {
    turn.stop.clone().unwrap_or_else(|| if calls(turn) { "tool_use" } else { "end_turn" }.to_owned())
}

fn message(request: &SeenRequest, turn: &Turn, usage: Option<ReportedUsage>) -> Value {
    let content: Vec<Value> = turn
        .say
        .iter()
        .enumerate()
        .map(|(number, say)| match say {
            Say::Text(text) => json!({ "type": "text", "text": text }),
            Say::Thinking(text, signature) => json!({ "type": "thinking", "thinking": text, "signature": signature }),
            Say::Call { name, arguments } => {
                let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments.as_str()));
                json!({ "type": "tool_use", "id": call_id(request, number), "name": name, "input": input })
            }
        })
        .collect();
    json!({
        "id": format!("msg_{}", request.number),
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": message_stop(turn),
        "stop_sequence": null,
        "usage": message_usage(usage),
    })
}

fn message_events(request: &SeenRequest, turn: &Turn, usage: Option<ReportedUsage>) -> Vec<String> {
    let mut events = Vec::new();
    let mut send = |data: Value| events.push(format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap()));
    let first = usage.map(|usage| ReportedUsage { output: 1, ..usage });
    let start = json!({
        "id": format!("msg_{}", request.number), "type": "message", "role": "assistant", "model": request.model,
        "content": [], "stop_reason": null, "usage": message_usage(first),
    });
    send(json!({ "type": "message_start", "message": start }));
    send(json!({ "type": "ping" }));
    for (index, say) in turn.say.iter().enumerate() {
        let begin = match say {
            Say::Text(_) => json!({ "type": "text", "text": "" }),
            Say::Thinking(..) => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            Say::Call { name, .. } => {
                json!({ "type": "tool_use", "id": call_id(request, index), "name": name, "input": {} })
            }
        };
        send(json!({ "type": "content_block_start", "index": index, "content_block": begin }));
        let deltas: Vec<Value> = match say {
            Say::Text(text) => pieces(text).map(|text| json!({ "type": "text_delta", "text": text })).collect(),
            Say::Thinking(text, signature) => pieces(text)
                .map(|text| json!({ "type": "thinking_delta", "thinking": text }))
                .chain([json!({ "type": "signature_delta", "signature": signature })])
                .collect(),
            Say::Call { arguments, .. } => {
                pieces(arguments).map(|json| json!({ "type": "input_json_delta", "partial_json": json })).collect()
            }
        };
        for delta in deltas {
            send(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        send(json!({ "type": "content_block_stop", "index": index }));
    }
    let delta = json!({ "stop_reason": message_stop(turn), "stop_sequence": null });
    send(json!({ "type": "message_delta", "delta": delta, "usage": message_usage(usage) }));
    send(json!({ "type": "message_stop" }));
    events
}

fn completion_usage(usage: ReportedUsage) -> Value {
    let prompt = usage.input + usage.read + usage.write_5m + usage.write_1h;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": { "cached_tokens": usage.read },
    })
}

fn finish_reason(turn: &Turn) -> String {
    turn.stop.clone().unwrap_or_else(|| if calls(turn) { "tool_calls" } else { "stop" }.to_owned())
}

fn said(turn: &Turn) -> (String, String) {
    let mut said = (String::new(), String::new());
    for say in &turn.say {
        match say {
            Say::Text(text) => said.0.push_str(text),
            Say::Thinking(text, _) => said.1.push_str(text),
            Say::Call { .. } => {}
        }
    }
    said
}

fn tool_calls(request: &SeenRequest, turn: &Turn) -> Vec<Value> {
    let calls = turn.say.iter().enumerate().filter_map(|(number, say)| match say {
        Say::Call { name, arguments } => Some((number, name, arguments)),
        _ => None,
    });
    let call = |(index, (number, name, arguments)): (usize, (usize, &String, &String))| {
        let function = json!({ "name": name, "arguments": arguments });
        json!({ "index": index, "id": call_id(request, number), "type": "function", "function": function })
    };
    calls.enumerate().map(call).collect()
}

fn completion(request: &SeenRequest, turn: &Turn, usage: Option<ReportedUsage>) -> Value {
    let (text, thought) = said(turn);
    let mut message = json!({ "role": "assistant", "content": text });
    if !thought.is_empty() {
        message["reasoning_content"] = thought.into();
    }
    if calls(turn) {
        message["tool_calls"] = tool_calls(request, turn).into();
    }
    let mut body = json!({
        "id": format!("chatcmpl-{}", request.number),
        "object": "chat.completion",
        "model": request.model,
        "choices": [{ "index": 0, "message": message, "finish_reason": finish_reason(turn) }],
    });
    if let Some(usage) = usage {
        body["usage"] = completion_usage(usage);
    }
    body
}

fn completion_events(request: &SeenRequest, turn: &Turn, usage: Option<ReportedUsage>) -> Vec<String> {
    let chunk = |choices: Value| {
        json!({
            "id": format!("chatcmpl-{}", request.number), "object": "chat.completion.chunk", "model": request.model,
            "choices": choices,
        })
    };
    let delta = |delta: Value| chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }]));
    let (text, thought) = said(turn);
    let mut chunks = vec![delta(json!({ "role": "assistant", "content": "" }))];
    chunks.extend(pieces(&thought).map(|text| delta(json!({ "reasoning_content": text }))));
    chunks.extend(pieces(&text).map(|text| delta(json!({ "content": text }))));
    for mut call in tool_calls(request, turn) {
        let arguments = call["function"]["arguments"].take();
        let (index, arguments) = (call["index"].clone(), arguments.as_str().unwrap_or_default().to_owned());
        call["function"]["arguments"] = "".into();
        chunks.push(delta(json!({ "tool_calls": [call] })));
        for piece in pieces(&arguments) {
            chunks.push(delta(json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] })));
        }
    }
    chunks.push(chunk(json!([{ "index": 0, "delta": {}, "finish_reason": finish_reason(turn) }])));
    if let Some(usage) = usage.filter(|_| request.json()["stream_options"]["include_usage"] == true) {
        let mut last = chunk(json!([]));
        last["usage"] = completion_usage(usage);
        chunks.push(last);
    }
    let mut events: Vec<String> = chunks.into_iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    events.push("data: [DONE]\n\n".to_owned());
    events
}
