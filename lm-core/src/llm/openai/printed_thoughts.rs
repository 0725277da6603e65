//! Thoughts that a server leaves in the text, between `<think>` and `</think>`. Pure.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Text that arrives in pieces, of which thoughts at its beginning are held back.
#[derive(Debug, Default)]
pub(super) struct SpokenText {
    all: String,
    /// Where what is said begins, once that is known.
    from: Option<usize>,
}

impl SpokenText {
    /// Takes a piece, and gives what of it is said.
    pub(super) fn push(&mut self, piece: &str) -> &str {
        let before = self.all.len();
        self.all.push_str(piece);
        match self.from {
            Some(_) => &self.all[before..],
            None => {
                self.from = start_of_speech(&self.all);
                self.from.map_or("", |from| &self.all[from..])
            }
        }
    }

    /// Whether anything arrived at all.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What was said in the end. A thought whose beginning the server itself wrote into the prompt only ends.
    pub(super) fn finish(&self) -> &str {
        let trimmed = self.all.trim_start();
        let said = match self.from {
            Some(from) => &self.all[from..],
            // All of it was thought, or it was too short to tell.
            None if trimmed.starts_with(OPEN) => "",
            None => &self.all,
        };
        match said.split_once(CLOSE) {
            Some((thought, rest)) if !thought.contains(OPEN) && is_line_end(thought) && rest.starts_with('\n') => {
                rest.trim_start()
            }
            _ => said,
        }
    }
}

fn is_line_end(text: &str) -> bool {
    text.is_empty() || text.ends_with('\n')
}

/// Where speech begins in a text that may grow; `None` while a thought goes on or may still begin.
fn start_of_speech(text: &str) -> Option<usize> {
    let trimmed = text.trim_start();
    match trimmed.strip_prefix(OPEN) {
        Some(thought) => {
            let (_, said) = thought.split_once(CLOSE)?;
            let said = said.trim_start();
            // White space after a thought is not the answer's.
            (!said.is_empty()).then(|| text.len() - said.len())
        }
        None if OPEN.starts_with(trimmed) => None,
        None => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(pieces: &[&str]) -> (String, String) {
        let mut text = SpokenText::default();
        let heard = pieces.iter().map(|piece| text.push(piece).to_owned()).collect::<Vec<_>>();
        (heard.concat(), text.finish().to_owned())
    }

    #[test]
    fn d17_printed_thoughts_are_not_said() {
        for pieces in [
            &["<think>hm</think>\n\nYes."][..],
            &["<thi", "nk>h", "m</th", "ink>", "\n\n", "Ye", "s."],
            &["\n<think>", "</think>Yes."],
        ] {
            assert_eq!(heard(pieces), ("Yes.".to_owned(), "Yes.".to_owned()), "{pieces:?}");
        }
        assert_eq!(heard(&["<think>without an end"]), (String::new(), String::new()));
        assert_eq!(heard(&["hm\n</think>\n\nYes."]).1, "Yes.", "its beginning stood in the prompt");
    }

    #[test]
    fn text_that_speaks_of_thoughts_is_said() {
        for pieces in [&["The tag `<think>` ends with `</think>`."][..], &["<", "thing>"], &["a</think>b"], &["<th"]] {
            assert_eq!(heard(pieces).1, pieces.concat(), "{pieces:?}");
        }
    }
}
