//! Tool calls that a model wrote into its text, as models do whose server does not know their format.
//! Pure.

use serde_json::Value;

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

fn unfenced(text: &str) -> &str {
    let Some(inner) = text.strip_prefix("```").and_then(|text| text.strip_suffix("```")) else { return text };
    inner.split_once('\n').map_or(inner, |(_language, body)| body).trim()
}

fn names_a_tool(text: &str, tools: &[ToolSpec]) -> bool {
    if !text.starts_with(['{', '[']) {
        return false;
    }
    let calls = match serde_json::from_str(text) {
        Ok(Value::Array(calls)) => calls,
        Ok(call) => vec![call],
        Err(_) => return false,
    };
    let is_call = |call: &Value| {
        let call = call.get("function").filter(|function| function.is_object()).unwrap_or(call);
        let has_arguments = ["arguments", "parameters", "input"].iter().any(|key| call.get(key).is_some());
        let name = ["name", "tool", "tool_name"].iter().find_map(|key| call.get(key)?.as_str());
        has_arguments && name.is_some_and(|name| tools.iter().any(|tool| *tool.name == *name))
    };
    !calls.is_empty() && calls.iter().all(is_call)
}

#[cfg(test)]
mod tests {
    use super::*;

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
