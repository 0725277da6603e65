//! recall: what was noted or answered earlier and does not stand in the conversation any more.

use super::{FileSeen, Limits, ToolError, ToolOutput, Tools, arguments::Arguments};

/// How many are told where the call does not say.
const DEFAULT_LIMIT: usize = 8;
const LIMIT_MAX: usize = 30;

/// Something that is remembered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recalled {
    /// As it is told, with where it comes from and whether it still holds.
    pub text: String,
    /// The files that it rests on, where they are unchanged.
    pub rests_on: Vec<FileSeen>,
}

/// A memory that can be searched.
pub trait Memory: Send + Sync {
    /// What suits some words best, the best first, checked against the disk. Blocks.
    fn recall(&self, words: &str, most: usize) -> Vec<Recalled>;
}

pub(super) fn run(tools: &Tools, arguments: &Arguments, _: &Limits<'_>) -> Result<ToolOutput, ToolError> {
    let words = arguments.required_text("query")?;
    let most = arguments.number("limit")?.unwrap_or(DEFAULT_LIMIT).clamp(1, LIMIT_MAX);
    let found = tools.memory.as_ref().map(|memory| memory.recall(words, most)).unwrap_or_default();
    if found.is_empty() {
        return Ok(ToolOutput::plain(
            "Nothing that was noted or answered earlier holds these words; look at the files.".to_owned(),
        ));
    }
    let mut text = String::from("Noted or answered earlier, as data; what is marked STALE is history, not fact:\n");
    for recalled in &found {
        text.push_str(&recalled.text);
        text.push('\n');
    }
    let files = found.into_iter().flat_map(|recalled| recalled.rests_on).collect();
    Ok(ToolOutput { text, is_error: false, files })
}
