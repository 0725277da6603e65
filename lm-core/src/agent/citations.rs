//! The `path:line` citations of an answer: found, and marked where they do not hold.
//!
//! Pure: whether a cited place exists is asked of the caller, who looks at the disk.

use std::ops::Range;

/// A place that an answer names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Citation {
    /// Where it stands in the answer, in bytes.
    pub at: Range<usize>,
    /// The file, as the model wrote it.
    pub path: String,
    /// The first line, from 1.
    pub first_line: u32,
    /// The last line; the first again for a single line.
    pub last_line: u32,
}

/// The citations of a text, in order: a path with an extension or a slash, a colon, and a line or a
/// range of lines. Addresses (`http://host:80`), times and ratios are not citations.
#[must_use]
pub fn find(text: &str) -> Vec<Citation> {
    let mut citations = Vec::new();
    let mut from = 0;
    while let Some(colon) = text[from..].find(':').map(|offset| from + offset) {
        from = colon + 1;
        let Some((first_line, last_line, after)) = lines_at(text, from) else { continue };
        let start = text[..colon]
            .rfind(|other| !is_path_character(other))
            .map_or(0, |before| before + text[before..].chars().next().map_or(1, char::len_utf8));
        let path = &text[start..colon];
        if is_path(path) && !text[..start].ends_with("://") && !path.starts_with("//") {
            citations.push(Citation { at: start..after, path: path.to_owned(), first_line, last_line });
            from = after;
        }
    }
    citations
}

/// The text with a mark behind each citation that does not hold.
#[must_use]
pub fn mark(text: &str, wrong: &[Citation]) -> String {
    let mut marked = String::with_capacity(text.len() + wrong.len() * WRONG.len());
    let mut from = 0;
    for citation in wrong {
        // A mark inside back-ticks would be part of the code; it goes behind them.
        let closing = text[citation.at.end..].bytes().take_while(|&byte| byte == b'`').count();
        let end = citation.at.end + closing;
        marked.push_str(&text[from..end]);
        marked.push_str(WRONG);
        from = end;
    }
    marked.push_str(&text[from..]);
    marked
}

const WRONG: &str = " (no such place)";

/// `12` or `12-34` (also `12–34`, `L12`, `L12-L34`) at `from`, and where it ends.
fn lines_at(text: &str, from: usize) -> Option<(u32, u32, usize)> {
    let (first, after) = line_at(text, from)?;
    for dash in ["-", "–"] {
        if text[after..].starts_with(dash)
            && let Some((last, after)) = line_at(text, after + dash.len())
            && last >= first
        {
            return Some((first, last, after));
        }
    }
    Some((first, first, after))
}

fn line_at(text: &str, from: usize) -> Option<(u32, usize)> {
    let digits_from = from + usize::from(text[from..].starts_with('L'));
    let digits = text[digits_from..].bytes().take_while(u8::is_ascii_digit).count();
    let line: u32 = text[digits_from..digits_from + digits].parse().ok().filter(|&line| line > 0)?;
    Some((line, digits_from + digits))
}

fn is_path_character(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | '/' | '\\' | '@' | '+' | '~' | '[' | ']' | '$')
}

fn is_path(path: &str) -> bool {
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let extension = name.rsplit_once('.').is_some_and(|(stem, extension)| {
        !extension.is_empty()
            && extension.len() <= 12
            && extension.starts_with(|first: char| first.is_alphabetic())
            && (!stem.is_empty() || !extension.is_empty())
    });
    let named = name.contains(|character: char| character.is_alphabetic());
    named && (extension || path.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(text: &str) -> Vec<(String, u32, u32)> {
        find(text).into_iter().map(|citation| (citation.path, citation.first_line, citation.last_line)).collect()
    }

    #[test]
    fn places_are_found_as_models_write_them() {
        let place = |path: &str, first, last| (path.to_owned(), first, last);
        assert_eq!(found("see src/lib.rs:12."), [place("src/lib.rs", 12, 12)]);
        assert_eq!(found("`src/a b.rs:3`"), [place("b.rs", 3, 3)]);
        assert_eq!(
            found("(**lm-core/src/x.rs:10-20**, y.py:L5-L7)"),
            [place("lm-core/src/x.rs", 10, 20), place("y.py", 5, 7)]
        );
        assert_eq!(found("src/ä/ö.ts:4–9"), [place("src/ä/ö.ts", 4, 9)]);
        assert_eq!(found("bin/tool:7 and Makefile.am:2:14"), [place("bin/tool", 7, 7), place("Makefile.am", 2, 2)]);
        assert_eq!(found("app/[id]/page.tsx:20-10"), [place("app/[id]/page.tsx", 20, 20)]);
        assert_eq!(found("C:\\src\\main.rs:8"), [place("\\src\\main.rs", 8, 8)]);
    }

    #[test]
    fn other_colons_are_not_places() {
        for text in [
            "http://localhost:8080/x",
            "at 12:30",
            "ratio 3:1",
            "std::io:2",
            "v1.2.3:4",
            "a.rs:0",
            "note: 5",
            "{port:8080}",
            "a.rs:",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn a_wrong_place_is_marked_behind_its_back_ticks() {
        let text = "Both `a.rs:1` and b.rs:2-3, see c.rs:4.";
        let citations = find(text);
        assert_eq!(
            mark(text, &[citations[0].clone(), citations[1].clone()]),
            "Both `a.rs:1` (no such place) and b.rs:2-3 (no such place), see c.rs:4."
        );
        assert_eq!(mark(text, &[]), text);
    }

    proptest! {
        #[test]
        fn any_text_is_searched_and_marked_without_loss(text in ".{0,80}(a\\.rs:1|:|–|`|/x:9-){0,5}.{0,20}") {
            let citations = find(&text);
            for citation in &citations {
                prop_assert!(text[citation.at.clone()].starts_with(&citation.path));
                prop_assert!(citation.first_line <= citation.last_line);
            }
            prop_assert_eq!(mark(&text, &citations).replace(WRONG, ""), text.replace(WRONG, ""));
        }
    }
}
