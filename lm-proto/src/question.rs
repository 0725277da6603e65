//! What shim and daemon both say about a question: its limit, and the words that depend on who asks.
//!
//! One text for one thing, wherever it is found out.

use thiserror::Error;

/// The longest question in bytes. Far more than anyone asks, far less than what stalls a search.
pub const QUESTION_BYTES_MAX: usize = 64 << 10;

/// Why a text is no question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum QuestionError {
    /// Nothing but blanks.
    #[error("the question is empty; ask something about the code in plain words")]
    Empty,
    /// More than [`QUESTION_BYTES_MAX`].
    #[error(
        "the question is longer than {QUESTION_BYTES_MAX} bytes; name the file that holds a long text instead of \
         quoting it"
    )]
    TooLong,
}

/// Refuses what is no question.
///
/// # Errors
/// Where it is empty or too long.
pub fn check(question: &str) -> Result<(), QuestionError> {
    if question.trim().is_empty() {
        Err(QuestionError::Empty)
    } else if question.len() > QUESTION_BYTES_MAX {
        Err(QuestionError::TooLong)
    } else {
        Ok(())
    }
}

/// What ends the line about an answer that was cut. The line begins with [`CUT_TO`].
pub const LONGER_ANSWER: &str = "Ask with a larger max_answer_tokens for the rest.";

/// What begins the line about an answer that was cut.
pub const CUT_TO: &str = "Cut to ";

/// An answer's text as the command line says it: `--max-answer-tokens` instead of the tool's argument,
/// in the one line that is not quoted from a file.
#[must_use]
pub fn answer_for_command_line(text: &str) -> String {
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    for line in lines.iter_mut().filter(|line| line.starts_with(CUT_TO) && line.ends_with(LONGER_ANSWER)) {
        *line = line.replace("max_answer_tokens", "--max-answer-tokens");
    }
    lines.join("\n")
}

/// Why a question failed, with the options of the command line instead of the tool's arguments.
#[must_use]
pub fn failure_for_command_line(message: &str) -> String {
    message
        .replace(" as `cwd`", " with `--cwd`")
        .replace("`cwd`", "`--cwd`")
        .replace("`max_answer_tokens`", "`--max-answer-tokens`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_line_about_the_cut_is_reworded() {
        let quoted = "12  Ask with a larger max_answer_tokens for the rest.";
        let text = format!("{quoted}\n\n{CUT_TO}512 tokens. {LONGER_ANSWER}\n");
        let shown = answer_for_command_line(&text);
        assert_eq!(
            shown,
            format!("{quoted}\n\nCut to 512 tokens. Ask with a larger --max-answer-tokens for the rest.\n")
        );
    }

    #[test]
    fn a_failure_names_options() {
        assert_eq!(
            failure_for_command_line("`/` is too much; give a project directory as `cwd`"),
            "`/` is too much; give a project directory with `--cwd`"
        );
    }

    #[test]
    fn the_limit_is_one_for_all() {
        assert_eq!(check(" \n"), Err(QuestionError::Empty));
        assert_eq!(check(&"q".repeat(QUESTION_BYTES_MAX)), Ok(()));
        assert_eq!(check(&"q".repeat(QUESTION_BYTES_MAX + 1)), Err(QuestionError::TooLong));
    }
}
