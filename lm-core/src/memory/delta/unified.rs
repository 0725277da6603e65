//! A unified diff in which every line has its number, so that a place in it can be cited.

use std::{fmt::Write as _, ops::Range};

use imara_diff::{Algorithm, Diff, Hunk, InternedInput};

/// Lines shown around a change.
const CONTEXT: u32 = 3;

/// The changes from one text to another as a unified diff with three lines of context. After the mark
/// of a line stands its number: its number now, or, of one that is removed, the one it had. None where
/// the texts are the same, or the diff is longer than `bytes_max`.
pub(super) fn diff(before: &str, after: &str, bytes_max: usize) -> Option<String> {
    let input = InternedInput::new(before, after);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let hunks: Vec<Hunk> = diff.hunks().collect();
    let mut printer = Printer { input: &input, text: String::new(), bytes_max };
    for group in hunks.chunk_by(|one, next| next.before.start - one.before.end <= 2 * CONTEXT) {
        printer.group(group)?;
    }
    (!printer.text.is_empty()).then_some(printer.text)
}

struct Printer<'a> {
    input: &'a InternedInput<&'a str>,
    text: String,
    bytes_max: usize,
}

impl Printer<'_> {
    /// Changes that are shown in one, since their context meets. None where there is no more room.
    fn group(&mut self, hunks: &[Hunk]) -> Option<()> {
        let (first, last) = (hunks.first()?, hunks.last()?);
        let (lines_before, lines_after) = (count(&self.input.before), count(&self.input.after));
        let lead = CONTEXT.min(first.before.start);
        let trail = CONTEXT.min(lines_before - last.before.end).min(lines_after - last.after.end);
        let old = first.before.start - lead..last.before.end + trail;
        let new = first.after.start - lead..last.after.end + trail;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "@@ -{} +{} @@", range(&old), range(&new));
        let mut position = new.start;
        for hunk in hunks {
            self.lines(' ', position..hunk.after.start)?;
            self.lines('-', hunk.before.clone())?;
            self.lines('+', hunk.after.clone())?;
            position = hunk.after.end;
        }
        self.lines(' ', position..new.end)
    }

    fn lines(&mut self, mark: char, range: Range<u32>) -> Option<()> {
        let tokens = if mark == '-' { &self.input.before } else { &self.input.after };
        for (index, token) in range.clone().zip(&tokens[range.start as usize..range.end as usize]) {
            let line = self.input.interner[*token];
            let whole = line.strip_suffix('\n');
            let _ = writeln!(self.text, "{mark}{:>6}\t{}", index + 1, whole.unwrap_or(line));
            if whole.is_none() {
                self.text.push_str("\\ No newline at end of file\n");
            }
            if self.text.len() > self.bytes_max {
                return None;
            }
        }
        Some(())
    }
}

fn count<T>(lines: &[T]) -> u32 {
    u32::try_from(lines.len()).unwrap_or(u32::MAX)
}

/// As `diff -u` writes it: an empty range stands behind the line with its number.
fn range(lines: &Range<u32>) -> String {
    let length = lines.end - lines.start;
    format!("{},{length}", if length == 0 { lines.start } else { lines.start + 1 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Applies a diff, and checks every number and every line that it claims to leave.
    fn apply(before: &str, diff: &str) -> String {
        let old: Vec<&str> = before.split_inclusive('\n').collect();
        let mut after: Vec<String> = Vec::new();
        let mut at = 0;
        let mut lines = diff.split_terminator('\n').peekable();
        while let Some(line) = lines.next() {
            if let Some(header) = line.strip_prefix("@@ -") {
                let (start, rest) = header.split_once(',').unwrap();
                let empty = rest.starts_with("0 ");
                let start: usize = start.parse::<usize>().unwrap() - usize::from(!empty);
                after.extend(old[at..start].iter().map(|line| (*line).to_owned()));
                at = start;
                continue;
            }
            let (mark, rest) = line.split_at(1);
            let (number, text) = rest.split_once('\t').unwrap();
            let number: usize = number.trim().parse().unwrap();
            let cut = lines.next_if(|line| line.starts_with('\\')).is_some();
            let text = format!("{text}{}", if cut { "" } else { "\n" });
            if mark != "+" {
                assert_eq!(old[at], text);
                at += 1;
            }
            match mark {
                "-" => assert_eq!(number, at),
                _ => {
                    after.push(text);
                    assert_eq!(number, after.len());
                }
            }
        }
        after.extend(old[at..].iter().map(|line| (*line).to_owned()));
        after.concat()
    }

    fn whole(before: &str, after: &str) -> String {
        diff(before, after, usize::MAX).unwrap_or_default()
    }

    #[test]
    fn changes_near_each_other_are_shown_in_one() {
        let before: String = (1..=40).map(|line| format!("line {line}\n")).collect();
        let after = before.replace("line 5\n", "").replace("line 9\n", "line 9\nline 9a\nline 9b\n");
        let after = after.replace("line 30\n", "line thirty\n") + "the end";
        insta::assert_snapshot!(whole(&before, &after));
    }

    #[test]
    fn the_ends_of_texts_are_right() {
        for (before, after) in
            [("", "a"), ("a", ""), ("a", "a\n"), ("a\n", "a"), ("", "\n"), ("a\r\n", "a\n"), ("a\n\n", "a\n")]
        {
            assert_eq!(apply(before, &whole(before, after)), after, "{before:?} {after:?}");
        }
        assert_eq!(whole("a\nb\n", "b\n"), "@@ -1,2 +1,1 @@\n-     1\ta\n      1\tb\n");
        assert_eq!(whole("a", ""), "@@ -1,1 +0,0 @@\n-     1\ta\n\\ No newline at end of file\n");
        assert_eq!(diff("a\n", "a\n", usize::MAX), None);
    }

    #[test]
    fn a_diff_that_is_too_long_is_none() {
        let length = whole("a\n", "b\n").len();
        assert!(diff("a\n", "b\n", length).is_some());
        assert_eq!(diff("a\n", "b\n", length - 1), None);
    }

    /// Few different lines, so that texts have much in common.
    fn text() -> impl Strategy<Value = String> {
        let line = prop_oneof![4 => "[ab}]{0,2}", 1 => "\\PC{0,8}", 1 => Just("@@ -1,1 +1,1 @@\r".to_owned()), 1 => Just("\\ No newline".to_owned())];
        (prop::collection::vec(line, 0..40), any::<bool>()).prop_map(|(lines, ends)| {
            let text = lines.join("\n");
            if ends { text + "\n" } else { text }
        })
    }

    proptest! {
        #[test]
        fn applying_a_diff_gives_the_new_text(before in text(), after in text()) {
            prop_assert_eq!(apply(&before, &whole(&before, &after)), after);
        }

        #[test]
        fn any_text_at_all(before in any::<String>(), after in any::<String>()) {
            prop_assert_eq!(apply(&before, &whole(&before, &after)), after);
        }
    }
}
