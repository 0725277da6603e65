//! Reading a call's arguments, which a model wrote.

use serde_json::{Map, Value};

use super::ToolError;

/// The longest text of arguments that is looked at, in bytes.
const LONGEST: usize = 64 << 10;

/// The arguments of one call.
#[derive(Debug)]
pub(super) struct Arguments {
    tool: &'static str,
    values: Map<String, Value>,
}

impl Arguments {
    /// Reads the JSON text of a call to `tool`, which knows the parameters `known`.
    pub(super) fn parse(tool: &'static str, known: &[&str], input: &str) -> Result<Self, ToolError> {
        if input.len() > LONGEST {
            return Err(ToolError(format!(
                "the arguments of {tool} are {} bytes long, {LONGEST} are allowed; shorten them",
                input.len()
            )));
        }
        let values = match input.trim() {
            // Some models send these where there is nothing to say.
            "" | "null" | "\"\"" => Map::new(),
            text => match serde_json::from_str::<Value>(text) {
                Ok(Value::Object(values)) => values,
                Ok(other) => {
                    return Err(ToolError(format!(
                        "the arguments of {tool} must be a JSON object, not {}",
                        kind(&other)
                    )));
                }
                Err(error) => {
                    return Err(ToolError(format!(
                        "the arguments of {tool} are not valid JSON: {error}; send the call again"
                    )));
                }
            },
        };
        if let Some(unknown) = values.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(ToolError(format!(
                "{tool} has no parameter `{}`{}; it takes {}",
                super::text::cut(unknown, 100),
                nearest(unknown, known).map_or_else(String::new, |name| format!(" (did you mean `{name}`?)")),
                if known.is_empty() { "none".to_owned() } else { known.join(", ") },
            )));
        }
        Ok(Self { tool, values })
    }

    /// A text that must be there.
    pub(super) fn required_text(&self, name: &str) -> Result<&str, ToolError> {
        match self.text(name)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(ToolError(format!("{} needs the parameter `{name}`, a text that is not empty", self.tool))),
        }
    }

    /// A text, or none where it is missing or null.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, ToolError> {
        match self.values.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a text", other)),
        }
    }

    /// A whole number that is not negative; a text that holds one will do.
    pub(super) fn number(&self, name: &str) -> Result<Option<usize>, ToolError> {
        let value = match self.values.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        let number = match value {
            Value::Number(number) => number.as_u64().or_else(|| whole(number.as_f64()?)),
            Value::String(text) if text.trim().is_empty() => return Ok(None),
            Value::String(text) => text.trim().parse().ok().or_else(|| whole(text.trim().parse().ok()?)),
            _ => None,
        };
        match number {
            // What is past every limit is the limit.
            Some(number) => Ok(Some(usize::try_from(number).unwrap_or(usize::MAX))),
            None => Err(self.wrong(name, "a whole number from 0", value)),
        }
    }

    /// Yes or no; a text that says so will do.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, ToolError> {
        match self.values.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => match other.as_str().map(str::trim).map(str::to_lowercase).as_deref() {
                Some("true") => Ok(Some(true)),
                Some("false") => Ok(Some(false)),
                _ => Err(self.wrong(name, "true or false", other)),
            },
        }
    }

    /// One of a few words, the first where it is missing.
    pub(super) fn choice<'a>(&self, name: &str, choices: &[&'a str]) -> Result<&'a str, ToolError> {
        match self.text(name)? {
            None | Some("") => Ok(choices[0]),
            Some(text) => choices.iter().find(|choice| **choice == text).copied().ok_or_else(|| {
                ToolError(format!(
                    "`{name}` of {} cannot be `{}`; it is one of {}",
                    self.tool,
                    super::text::cut(text, 100),
                    choices.join(", ")
                ))
            }),
        }
    }

    fn wrong(&self, name: &str, wanted: &str, value: &Value) -> ToolError {
        let shown = value.to_string();
        ToolError(format!(
            "`{name}` of {} must be {wanted}, not {} ({})",
            self.tool,
            kind(value),
            super::text::cut(&shown, 100)
        ))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "only whole numbers in range get there")]
fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=9e15).contains(&number)).then_some(number as u64)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The most similar name, if one is similar at all.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.len() > 100 {
        return None;
    }
    let name = name.to_lowercase();
    let score = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        // `path` for `file_path`: one within the other says more than likeness.
        let within = name.len() > 2 && (candidate.contains(&name) || name.contains(&candidate));
        strsim::jaro_winkler(&name, &candidate).max(if within { 0.85 } else { 0.0 })
    };
    known
        .iter()
        .map(|candidate| (score(candidate), *candidate))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(input: &str) -> Result<Arguments, ToolError> {
        Arguments::parse("Read", &["file_path", "offset", "whole"], input)
    }

    fn message<T: std::fmt::Debug>(result: Result<T, ToolError>) -> String {
        result.unwrap_err().0
    }

    #[test]
    fn nothing_is_an_empty_object() {
        for nothing in ["", "null", "{}", " \n", "\"\""] {
            assert!(parse(nothing).is_ok(), "{nothing:?}");
        }
    }

    #[test]
    fn numbers_and_flags_may_be_texts() {
        let arguments = parse(r#"{"offset": "12", "whole": "True"}"#).unwrap();
        assert_eq!(arguments.number("offset"), Ok(Some(12)));
        assert_eq!(arguments.flag("whole"), Ok(Some(true)));
        assert_eq!(parse(r#"{"offset": 7.0}"#).unwrap().number("offset"), Ok(Some(7)));
        assert_eq!(parse(r#"{"offset": null}"#).unwrap().number("offset"), Ok(None));
        assert_eq!(parse(r#"{"offset": 1e300}"#).unwrap().number("offset").map_err(|_| ()), Err(()));
    }

    #[test]
    fn errors_say_what_to_do() {
        insta::assert_snapshot!(message(parse("[1]")), @"the arguments of Read must be a JSON object, not a list");
        insta::assert_snapshot!(message(parse(r#"{"filepath":"a"}"#)), @"Read has no parameter `filepath` (did you mean `file_path`?); it takes file_path, offset, whole");
        insta::assert_snapshot!(message(parse("{}").unwrap().required_text("file_path")), @"Read needs the parameter `file_path`, a text that is not empty");
        insta::assert_snapshot!(message(parse(r#"{"offset":-3}"#).unwrap().number("offset")), @"`offset` of Read must be a whole number from 0, not a number (-3)");
        insta::assert_snapshot!(message(parse(r#"{"file_path":{"a":1}}"#).unwrap().text("file_path")), @r#"`file_path` of Read must be a text, not an object ({"a":1})"#);
        assert!(message(parse(&format!("{{\"file_path\": \"{}\"}}", "x".repeat(1 << 20)))).contains("shorten"));
        assert!(message(parse("{\"file_path\": ")).contains("not valid JSON"));
    }
}
