//! The one tool: what a model reads about it, how its arguments are checked, how an answer is shown.

use lm_proto::{message::Answer, printable::printable, question};
use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// The tool's name.
pub(crate) const NAME: &str = "ask_live_memory";

/// The longest result in bytes: about 20,000 tokens at three bytes a token, which is what code and
/// most scripts come to. Claude Code refuses results of more than 25,000 tokens.
const RESULT_BYTES_MAX: usize = 60_000;

/// What Claude Code may show of a result before it moves it to a file, in characters; without it
/// that happens at 50,000. Room for [`RESULT_BYTES_MAX`] and for what is put around an answer.
const SHOWN_CHARACTERS_MAX: u32 = 100_000;

const DESCRIPTION: &str = "\
Ask a memory of this code base that persists across sessions. Ask it FIRST for where something is, \
how something works, what calls or uses what, and why something is as it is: it has the repository \
at hand and answers with `path:line` places and excerpts, which costs you far less than searching \
and reading files yourself. One call may hold a whole question in plain words; name symbols, files \
or error texts if you know them. Several questions can be asked in parallel.

Do not use it for the exact bytes of a file you are about to edit (read that file), for one known \
string (grep is exact), or for anything outside the code base. It only reads; it never changes, \
creates or runs anything.";

/// The tool as `tools/list` shows it.
pub(crate) fn definition() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "question": {
                "type": "string",
                "minLength": 1,
                "description": "The question, in plain words.",
            },
            "cwd": {
                "type": "string",
                "description": "Absolute path of a directory in the code base that is asked about. \
                                Leave it out for the code base of this session.",
            },
            "max_answer_tokens": {
                "type": "integer",
                "minimum": 1,
                "description": "The longest answer wanted, in tokens. Leave it out for the default.",
            },
        },
        "required": ["question"],
    });
    let meta = json!({
        "anthropic/maxResultSizeChars": SHOWN_CHARACTERS_MAX,
        "anthropic/alwaysLoad": true,
    });
    Tool::new(NAME, DESCRIPTION, object(schema))
        .with_title("Ask Live Memory")
        .with_annotations(
            ToolAnnotations::with_title("Ask Live Memory")
                .read_only(true)
                .destructive(false)
                .idempotent(true)
                .open_world(false),
        )
        .with_meta(MetaObject(object(meta)))
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

/// Checked arguments of a call.
#[derive(PartialEq, Debug)]
pub(crate) struct Arguments {
    pub(crate) question: String,
    /// As given; whether it is a directory is for the daemon to say.
    pub(crate) cwd: Option<String>,
    pub(crate) max_answer_tokens: Option<u32>,
}

impl Arguments {
    /// Checks what a model sent. Arguments this tool does not know are left alone; an error says
    /// what is expected instead.
    pub(crate) fn read(arguments: Option<&JsonObject>) -> Result<Self, String> {
        let given = |name: &str| arguments.and_then(|arguments| arguments.get(name)).filter(|value| !value.is_null());
        let question = match given("question") {
            Some(Value::String(question)) => question.trim(),
            Some(other) => return Err(wrong_type("question", "a string: the question in plain words", other)),
            None => "",
        };
        question::check(question).map_err(|error| error.to_string())?;
        let cwd = match given("cwd") {
            None => None,
            Some(Value::String(cwd)) => Some(cwd.clone()).filter(|cwd| !cwd.trim().is_empty()),
            Some(other) => return Err(wrong_type("cwd", "a string: the absolute path of a directory", other)),
        };
        let max_answer_tokens = match given("max_answer_tokens") {
            None => None,
            Some(value) => Some(
                positive(value)
                    .ok_or_else(|| wrong_type("max_answer_tokens", "a positive whole number, such as 2000", value))?,
            ),
        };
        Ok(Self { question: question.to_owned(), cwd, max_answer_tokens })
    }
}

fn positive(value: &Value) -> Option<u32> {
    let number = match value.as_u64() {
        Some(number) => number,
        // Some clients send whole numbers in float form.
        None => value.as_f64().filter(|number| *number >= 1.0 && number.fract() == 0.0).map(|number| number as u64)?,
    };
    (number > 0).then(|| u32::try_from(number).unwrap_or(u32::MAX))
}

fn wrong_type(name: &str, expected: &str, got: &Value) -> String {
    let got = match got {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "a boolean".to_owned(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    format!("`{name}` must be {expected}; it is {got}")
}

/// An answer as the text of a result: cut to what a client takes, the trailer last.
pub(crate) fn render(answer: &Answer) -> String {
    let mut text = cut(&answer.text);
    if !answer.trailer.is_empty() {
        text.push_str("\n\n");
        text.push_str(&cut(&answer.trailer));
    }
    text
}

/// At most [`RESULT_BYTES_MAX`] of `text`, fit for the terminal that a client shows it on, cut between
/// characters, with a mark where it was cut.
pub(crate) fn cut(text: &str) -> String {
    let text = &*printable(text);
    if text.len() <= RESULT_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=RESULT_BYTES_MAX).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    format!(
        "{}\n\n[cut here: {end} of {} bytes are shown; ask a narrower question for the rest]",
        &text[..end],
        text.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(arguments: Value) -> Result<Arguments, String> {
        Arguments::read(Some(&object(arguments)))
    }

    #[test]
    fn good_arguments_are_taken_and_unknown_ones_left_alone() {
        let arguments =
            read(json!({"question": " where? ", "cwd": "", "max_answer_tokens": 500.0, "extra": [1]})).unwrap();
        assert_eq!(arguments, Arguments { question: "where?".into(), cwd: None, max_answer_tokens: Some(500) });
        let arguments = read(json!({"question": "q", "cwd": "/w", "max_answer_tokens": 1e9})).unwrap();
        assert_eq!(arguments.max_answer_tokens, Some(1_000_000_000));
        assert_eq!(
            read(json!({"question": "q", "max_answer_tokens": 1e19})).unwrap().max_answer_tokens,
            Some(u32::MAX)
        );
    }

    #[test]
    fn wrong_arguments_say_what_is_expected() {
        for (arguments, expected) in [
            (json!({}), "the question is empty"),
            (json!({"question": " \n"}), "the question is empty"),
            (json!({"question": 7}), "`question` must be a string: the question in plain words; it is the number 7"),
            (
                json!({"question": "q", "cwd": ["/w"]}),
                "`cwd` must be a string: the absolute path of a directory; it is an array",
            ),
            (
                json!({"question": "q", "max_answer_tokens": "many"}),
                "`max_answer_tokens` must be a positive whole number",
            ),
            (json!({"question": "q", "max_answer_tokens": 0}), "it is the number 0"),
            (json!({"question": "q", "max_answer_tokens": -1}), "it is the number -1"),
            (json!({"question": "q", "max_answer_tokens": 1.5}), "it is the number 1.5"),
            (
                json!({"question": "q".repeat(question::QUESTION_BYTES_MAX + 1)}),
                "the question is longer than 65536 bytes",
            ),
        ] {
            let error = read(arguments).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(Arguments::read(None).is_err());
    }

    proptest! {
        #[test]
        fn long_texts_are_cut_between_characters(padding in 0_usize..4, character: char) {
            let text = "x".repeat(padding) + &character.to_string().repeat(RESULT_BYTES_MAX);
            let shown = cut(&text);
            prop_assert!(shown.len() < RESULT_BYTES_MAX + 200);
            prop_assert_eq!(shown.contains("[cut here: "), printable(&text).len() > RESULT_BYTES_MAX);
        }
    }
}
