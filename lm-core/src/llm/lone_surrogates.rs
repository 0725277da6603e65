//! JSON whose texts hold half of a surrogate pair, as servers send that cut text between UTF-16 units. Pure.
//!
//! Such an escape stands for no character, and a strict parser refuses the whole document over it.

use std::borrow::Cow;

/// The document with U+FFFD in place of every escape that is half of a pair; the same where there is none.
pub(super) fn replaced(json: &str) -> Cow<'_, str> {
    let mut clean: Option<String> = None;
    let (mut copied, mut at) = (0, 0);
    let bytes = json.as_bytes();
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == b'\\')) {
        at += found;
        // Any other escape is two bytes long as far as finding the next one is concerned.
        let Some(unit) = code_unit(bytes, at) else {
            at += 2;
            continue;
        };
        match unit {
            0xD800..=0xDBFF if matches!(code_unit(bytes, at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
            0xD800..=0xDFFF => {
                let clean = clean.get_or_insert_default();
                clean.push_str(&json[copied..at]);
                clean.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            _ => at += 6,
        }
    }
    match clean {
        None => Cow::Borrowed(json),
        Some(mut clean) => {
            clean.push_str(&json[copied..]);
            Cow::Owned(clean)
        }
    }
}

/// The number in an escape, `\u` and four hexadecimal digits, that begins at a place.
fn code_unit(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |number, &digit| Some(number * 16 + char::from(digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn halves_are_replaced_and_whole_pairs_kept() {
        for (json, expected) in [
            (r#""\ud83d\ude00""#, "😀"),
            (r#""a\ud83d""#, "a\u{fffd}"),
            (r#""\uDE00b""#, "\u{fffd}b"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\\ud83d""#, "\\ud83d"),
            (r#""\\\ud83d\n""#, "\\\u{fffd}\n"),
        ] {
            assert_eq!(serde_json::from_str::<String>(&replaced(json)).unwrap(), expected, "{json}");
        }
    }

    proptest! {
        #[test]
        fn what_is_whole_stays_as_it_is(text in "\\PC{0,40}", tail in "[\\\\ud8e0\"]{0,12}") {
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(&*replaced(&json), &json);
            // Nonsense is not made sense of, and does no harm.
            replaced(&tail);
        }
    }
}
