//! Keeping results within their size, visibly.

use std::{borrow::Cow, ops::Range};

/// The most characters of a result.
pub const OUTPUT_CAP: usize = 20_000;

/// Kept free for what is said about a page after its lines.
const FOOTER: usize = 1_000;

/// Lines of a result, as many as fit.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
    characters: usize,
}

impl Page {
    /// Adds a line; false, and nothing added, where the page is full.
    pub(super) fn push(&mut self, line: &str) -> bool {
        let characters = line.chars().count() + 1;
        if self.characters + characters > OUTPUT_CAP - FOOTER {
            return false;
        }
        self.text.push_str(line);
        self.text.push('\n');
        self.characters += characters;
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The characters that still fit.
    pub(super) fn room(&self) -> usize {
        (OUTPUT_CAP - FOOTER).saturating_sub(self.characters)
    }

    /// The lines, with remarks below them.
    pub(super) fn finish(mut self, remarks: &[String]) -> String {
        for remark in remarks {
            self.text.push('(');
            self.text.push_str(remark);
            self.text.push_str(")\n");
        }
        self.text
    }
}

/// The text, within the cap. Tools page their results themselves; this holds whatever they miss.
pub(super) fn cap(mut text: String) -> String {
    const MARK: &str = "\n(cut here: the result is too long)";
    if text.len() > OUTPUT_CAP
        && let Some((end, _)) = text.char_indices().nth(OUTPUT_CAP)
    {
        let keep = text[..end].char_indices().rev().nth(MARK.len()).map_or(0, |(position, _)| position);
        text.truncate(keep);
        text.push_str(MARK);
    }
    text
}

/// At most `width` characters of a line, from its beginning, with what is missing said.
pub(super) fn cut(line: &str, width: usize) -> Cow<'_, str> {
    cut_around(line, 0..0, width)
}

/// At most `width` characters of a line, and a mark on either side where something is missing, so
/// that what matched, given in bytes, is in the middle.
pub(super) fn cut_around(line: &str, found: Range<usize>, width: usize) -> Cow<'_, str> {
    if line.len() <= width {
        return Cow::Borrowed(line);
    }
    let total = line.chars().count();
    if total <= width {
        return Cow::Borrowed(line);
    }
    let start = floor(line, found.start);
    let before = line[..start].chars().count();
    let length = line[start..floor(line, found.end.max(start))].chars().count().min(width);
    let lead = ((width - length) / 2).min(before);
    // A match near the end leaves room on the left.
    let first = (before - lead).min(total - width);
    let kept: String = line.chars().skip(first).take(width).collect();
    let after = total - first - width;
    let mark = |count: usize| if count == 0 { String::new() } else { format!("[… {count} characters …]") };
    Cow::Owned(format!("{}{kept}{}", mark(first), mark(after)))
}

fn floor(line: &str, position: usize) -> usize {
    let mut position = position.min(line.len());
    while !line.is_char_boundary(position) {
        position -= 1;
    }
    position
}

/// A number with its noun, in the plural where that is due.
pub(super) fn counted(count: usize, noun: &str) -> String {
    match (count, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "match") => format!("{count} matches"),
        (_, "directory") => format!("{count} directories"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_lines_stay_whole() {
        assert_eq!(cut_around("abc", 1..2, 3), "abc");
        assert_eq!(cut("größe", 5), "größe");
    }

    #[test]
    fn long_lines_are_cut_around_the_match() {
        let line = format!("{}needle{}", "a".repeat(1000), "b".repeat(1000));
        let shown = cut_around(&line, 1000..1006, 20);
        assert_eq!(shown, "[… 993 characters …]aaaaaaaneedlebbbbbbb[… 993 characters …]");
    }

    #[test]
    fn a_match_at_the_end_keeps_the_width() {
        let line = format!("{}needle", "a".repeat(100));
        assert_eq!(cut_around(&line, 100..106, 10), "[… 96 characters …]aaaaneedle");
    }

    #[test]
    fn the_cap_holds_and_is_said() {
        let text = cap("ü".repeat(OUTPUT_CAP + 5));
        assert!(text.chars().count() <= OUTPUT_CAP);
        assert!(text.ends_with("too long)"));
        assert_eq!(cap("ü".repeat(OUTPUT_CAP)).chars().count(), OUTPUT_CAP);
    }

    proptest! {
        #[test]
        fn cutting_never_breaks_and_keeps_the_width(line in ".{0,80}", from in 0_usize..100, length in 0_usize..100, width in 1_usize..40) {
            let shown = cut_around(&line, from..from + length, width);
            prop_assert!(shown.chars().count() <= width + 2 * "[… 1000 characters …]".chars().count());
        }
    }
}
