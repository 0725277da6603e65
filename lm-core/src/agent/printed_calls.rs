//! Tool calls that a model wrote into its text, as models do whose server does not know their format.
//! Pure.

use serde_json::{Map, Value};

use crate::llm::ToolSpec;

/// What the formats in use write around a call.
const MARKS: [&str; 6] =
    ["<tool_call>", "<function_calls>", "<function=", "<|tool_call", "[TOOL_CALLS]", "<｜tool▁calls▁begin｜>"];

/// Whether a text is nothing but a call: one that begins with a mark, or is one JSON object that names a
/// tool and its arguments, in a fence or bare. An answer that quotes such text in passing is none.
#[must_use]
pub fn is_printed_call(text: &str, tools: &[ToolSpec]) -> bool {
    let text = text.trim();
    MARKS.iter().any(|mark| text.starts_with(mark)) || names_a_tool(unfenced(text), tools)
}

/// The calls, as names and arguments, that a text consists of; none where it is anything besides, names a
/// tool that there is not, or is of a format that is only recognised.
#[must_use]
pub fn parse(text: &str, tools: &[ToolSpec]) -> Vec<(String, String)> {
    let text = text.trim();
    let calls = if let Some(list) = text.strip_prefix("[TOOL_CALLS]") {
        calls_of(list, tools)
    } else if text.starts_with(HERMES_OPEN) {
        hermes(text, tools)
    } else if text.starts_with(FUNCTION_OPEN) {
        function_of(text, tools).map(|call| vec![call])
    } else {
        calls_of(unfenced(text), tools)
    };
    calls.unwrap_or_default()
}

const HERMES_OPEN: &str = "<tool_call>";
const HERMES_CLOSE: &str = "</tool_call>";
const FUNCTION_OPEN: &str = "<function=";

/// `<tool_call>…</tool_call>`, several times; in each an object, or `<function=…>`.
fn hermes(text: &str, tools: &[ToolSpec]) -> Option<Vec<(String, String)>> {
    let mut calls = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (call, after) = rest.strip_prefix(HERMES_OPEN)?.split_once(HERMES_CLOSE)?;
        let call = call.trim();
        match call.starts_with(FUNCTION_OPEN) {
            true => calls.push(function_of(call, tools)?),
            false => calls.extend(calls_of(call, tools)?),
        }
        rest = after.trim_start();
    }
    Some(calls)
}

/// `<function=NAME>`, then `<parameter=KEY>VALUE</parameter>` each or an object, then `</function>`.
fn function_of(text: &str, tools: &[ToolSpec]) -> Option<(String, String)> {
    let (name, body) = text.strip_prefix(FUNCTION_OPEN)?.split_once('>')?;
    let name = known(name.trim().trim_matches('"'), tools)?;
    let mut rest = body.trim_end().strip_suffix("</function>")?.trim();
    if rest.starts_with('{') {
        return serde_json::from_str::<Map<String, Value>>(rest).ok().map(|_| (name, rest.to_owned()));
    }
    let mut arguments = Map::new();
    while !rest.is_empty() {
        let (key, after) = rest.strip_prefix("<parameter=")?.split_once('>')?;
        let (value, after) = after.split_once("</parameter>")?;
        let value = value.trim_matches('\n');
        // Numbers and switches are written as they are in JSON; anything else is a text.
        let value = match serde_json::from_str(value) {
            Ok(parsed @ (Value::Number(_) | Value::Bool(_))) => parsed,
            _ => value.into(),
        };
        arguments.insert(key.trim().to_owned(), value);
        rest = after.trim_start();
    }
    Some((name, Value::from(arguments).to_string()))
}

fn unfenced(text: &str) -> &str {
    let Some(inner) = text.strip_prefix("```").and_then(|text| text.strip_suffix("```")) else { return text };
    inner.split_once('\n').map_or(inner, |(_language, body)| body).trim()
}

fn known(name: &str, tools: &[ToolSpec]) -> Option<String> {
    tools.iter().any(|tool| *tool.name == *name).then(|| name.to_owned())
}

/// One JSON object that names a tool and its arguments, or an array of them.
fn calls_of(text: &str, tools: &[ToolSpec]) -> Option<Vec<(String, String)>> {
    let calls = match serde_json::from_str(text.trim()).ok()? {
        Value::Array(calls) => calls,
        call @ Value::Object(_) => vec![call],
        _ => return None,
    };
    let call = |call: &Value| {
        let call = call.get("function").filter(|function| function.is_object()).unwrap_or(call);
        let arguments = ["arguments", "parameters", "input"].iter().find_map(|key| call.get(key))?;
        let name = ["name", "tool", "tool_name"].iter().find_map(|key| call.get(key)?.as_str())?;
        Some((known(name, tools)?, arguments.to_string()))
    };
    calls.iter().map(call).collect()
}

fn names_a_tool(text: &str, tools: &[ToolSpec]) -> bool {
    calls_of(text, tools).is_some_and(|calls| !calls.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d20_calls_that_can_be_understood_are_taken_for_calls() {
        let tools = [ToolSpec::new("Grep", "", "{}").unwrap(), ToolSpec::new("Read", "", "{}").unwrap()];
        let grep = |arguments: &str| ("Grep".to_owned(), arguments.to_owned());
        for (text, expected) in [
            (
                "<tool_call>\n{\"name\": \"Grep\", \"arguments\": {\"pattern\":\"x\"}}\n</tool_call>",
                vec![grep("{\"pattern\":\"x\"}")],
            ),
            (
                "<tool_call>{\"name\":\"Grep\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"Read\",\"arguments\":{}}</tool_call>",
                vec![grep("{}"), ("Read".to_owned(), "{}".to_owned())],
            ),
            ("[TOOL_CALLS][{\"name\":\"Grep\",\"arguments\":{}}]", vec![grep("{}")]),
            ("```json\n{\"tool\": \"Grep\", \"input\": {}}\n```", vec![grep("{}")]),
            (
                "<tool_call><function=Grep>\n<parameter=pattern>\na b\n</parameter>\n<parameter=-A>3</parameter></function></tool_call>",
                vec![grep("{\"-A\":3,\"pattern\":\"a b\"}")],
            ),
            ("<tool_call>{\"name\":\"Write\",\"arguments\":{}}</tool_call>", vec![]),
            ("<tool_call>{\"name\":\"Grep\",\"arguments\":{}}</tool_call> and that was all", vec![]),
            ("<tool_call>{\"name\":\"Gr", vec![]),
            ("An answer.", vec![]),
        ] {
            assert_eq!(parse(text, &tools), expected, "{text}");
        }
    }

    #[test]
    fn calls_of_every_format_are_known_and_answers_are_not() {
        let tools = [ToolSpec::new("Grep", "", "{}").unwrap()];
        for call in [
            "<tool_call>\n{\"name\": \"Grep\", \"arguments\": {}}\n</tool_call>",
            "[TOOL_CALLS][{\"name\":\"Grep\"}]",
            "  {\"name\": \"Grep\", \"parameters\": {\"pattern\": \"x\"}}",
            "```json\n{\"tool\": \"Grep\", \"input\": {}}\n```",
            "[{\"type\":\"function\",\"function\":{\"name\":\"Grep\",\"arguments\":\"{}\"}}]",
            "<function=Grep><parameter=pattern>x</parameter></function>",
        ] {
            assert!(is_printed_call(call, &tools), "{call}");
        }
        for answer in [
            "The parser looks for `<tool_call>` in src/parse.rs:10.",
            "{\"name\": \"Other\", \"arguments\": {}}",
            "{\"name\": \"Grep\"}",
            "{not json",
            "[]",
            "```json\n{\"port\": 80}\n```",
            "```",
        ] {
            assert!(!is_printed_call(answer, &tools), "{answer}");
        }
    }
}
