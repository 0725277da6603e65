//! Text fit for a terminal: what a file, a path or a model says must not move the cursor, hide text, or
//! turn it around. Pure.

use std::borrow::Cow;

/// The text with every character replaced that a terminal would obey instead of showing: control
/// characters but for line feeds and tabs by the pictures Unicode has of them, the others (C1, overrides
/// of the writing direction, invisible line ends) by U+FFFD.
///
/// What is replaced grows: a stand-in takes three bytes.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_obeyed) {
        return Cow::Borrowed(text);
    }
    // Windows line ends are line ends.
    let text = text.replace("\r\n", "\n");
    Cow::Owned(
        text.chars().map(|character| if is_obeyed(character) { stand_in(character) } else { character }).collect(),
    )
}

fn is_obeyed(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{061c}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => character.is_control(),
    }
}

fn stand_in(character: char) -> char {
    match character {
        '\u{7f}' => '\u{2421}',
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(character)).unwrap_or('\u{fffd}'),
        _ => '\u{fffd}',
    }
}

/// The same for text that must stay on one line: line ends and tabs are replaced by blanks.
#[must_use]
pub fn printable_line(text: &str) -> String {
    printable(&text.replace("\r\n", " ").replace(['\n', '\r', '\t', '\u{2028}', '\u{2029}'], " ")).into_owned()
}

/// A JSON text with every such character escaped, line feeds and tabs aside: the same JSON to a program.
#[must_use]
pub fn printable_json(json: &str) -> Cow<'_, str> {
    use std::fmt::Write as _;

    // Raw control characters of ASCII are forbidden in JSON, and all others stand in its strings only.
    if !json.chars().any(|character| character != '\r' && is_obeyed(character)) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if character != '\r' && is_obeyed(character) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(printable("\x1b[2Jgone\x07"), "␛[2Jgone␇");
        assert_eq!(printable("a\tb\r\nc\rd\x7f"), "a\tb\nc␍d␡");
        assert_eq!(printable("\u{9b}31m \u{202e}evil\u{2066}"), "\u{fffd}31m \u{fffd}evil\u{fffd}");
        assert!(matches!(printable("plain ä 漢 \u{200d}"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_means_the_same_when_it_is_escaped() {
        let json = "{\"root\": \"/a\u{9b}31m\u{202e}\u{7f}\"}";
        assert_eq!(printable_json(json), r#"{"root": "/a\u009b31m\u202e\u007f"}"#);
        assert!(matches!(printable_json("{\n}"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_line_stays_one() {
        assert_eq!(printable_line("a\r\nb\tc\u{2028}d\x1b"), "a b c d␛");
    }

    proptest! {
        #[test]
        fn nothing_obeyed_is_left(text in any::<String>()) {
            let shown = printable(&text);
            prop_assert!(!shown.chars().any(is_obeyed));
            prop_assert_eq!(printable(&shown), shown.clone());
        }
    }
}
