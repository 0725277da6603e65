//! From a file's bytes to text.

use super::Encoding;

/// How far into a file a NUL byte makes it binary; git looks as far.
pub(super) const SNIFFED_BYTES: usize = 8000;

/// A file's bytes, understood.
pub(super) enum Content {
    /// Text, and how it was encoded.
    Text(String, Encoding),
    /// Not text.
    Binary,
}

/// Whether the beginning of a file shows that it is not text.
pub(super) fn looks_binary(beginning: &[u8]) -> bool {
    utf16_order(beginning).is_none() && memchr::memchr(0, &beginning[..beginning.len().min(SNIFFED_BYTES)]).is_some()
}

/// Turns bytes into text. `truncated` tells that the file goes on, so that its last character may be
/// cut in two.
pub(super) fn decode(mut bytes: Vec<u8>, truncated: bool) -> Content {
    if looks_binary(&bytes) {
        return Content::Binary;
    }
    if let Some(big_endian) = utf16_order(&bytes) {
        return decode_utf16(&bytes[2..], big_endian);
    }
    if bytes.starts_with(&[0xef, 0xbb, 0xbf]) {
        bytes.drain(..3);
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let cut_in_two = truncated && error.utf8_error().error_len().is_none();
            let mut bytes = error.into_bytes();
            if cut_in_two {
                bytes.truncate(valid);
            }
            match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => {
                    let text = String::from_utf8_lossy(error.as_bytes()).replace('\0', "\u{fffd}");
                    return Content::Text(text, Encoding::Repaired);
                }
            }
        }
    };
    // Past what was sniffed; replacing keeps such a file searchable and its lines in place.
    if memchr::memchr(0, text.as_bytes()).is_some() {
        return Content::Text(text.replace('\0', "\u{fffd}"), Encoding::Repaired);
    }
    Content::Text(text, Encoding::Utf8)
}

/// Some(true) for big endian. UTF-32 begins alike, and its NULs give it away.
fn utf16_order(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [0xff, 0xfe, 0, 0, ..] => None,
        [0xff, 0xfe, ..] => Some(false),
        [0xfe, 0xff, ..] => Some(true),
        _ => None,
    }
}

fn decode_utf16(bytes: &[u8], big_endian: bool) -> Content {
    let units = bytes.chunks_exact(2).map(|pair| {
        if big_endian { u16::from_be_bytes([pair[0], pair[1]]) } else { u16::from_le_bytes([pair[0], pair[1]]) }
    });
    let mut text = String::with_capacity(bytes.len() / 2);
    let mut broken = 0_usize;
    for character in char::decode_utf16(units) {
        match character {
            Ok('\0') | Err(_) => {
                broken += 1;
                text.push(char::REPLACEMENT_CHARACTER);
            }
            Ok(character) => text.push(character),
        }
    }
    // A mark by chance before bytes that are no text.
    if broken > text.len() / 20 + 2 {
        return Content::Binary;
    }
    Content::Text(text, Encoding::Utf16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> (String, Encoding) {
        match decode(bytes.to_vec(), false) {
            Content::Text(text, encoding) => (text, encoding),
            Content::Binary => panic!("taken for binary: {bytes:?}"),
        }
    }

    #[test]
    fn marks_are_dropped_and_utf16_is_converted() {
        assert_eq!(text(b"\xef\xbb\xbfhi\n"), ("hi\n".into(), Encoding::Utf8));
        assert_eq!(text(b"\xff\xfeh\0i\0\n\0"), ("hi\n".into(), Encoding::Utf16));
        assert_eq!(text(b"\xfe\xff\0h\0i\0\n"), ("hi\n".into(), Encoding::Utf16));
    }

    #[test]
    fn broken_text_is_repaired_and_said_to_be() {
        assert_eq!(text(b"caf\xe9 au lait"), ("caf\u{fffd} au lait".into(), Encoding::Repaired));
    }

    #[test]
    fn nul_bytes_make_a_file_binary() {
        assert!(matches!(decode(b"\x89PNG\0\0".to_vec(), false), Content::Binary));
        assert!(matches!(decode(b"\xff\xfe\0\0h\0\0\0".to_vec(), false), Content::Binary));
    }

    #[test]
    fn a_character_cut_by_the_cap_is_no_damage() {
        let Content::Text(text, encoding) = decode("größe".as_bytes()[..3].to_vec(), true) else { panic!() };
        assert_eq!((text.as_str(), encoding), ("gr", Encoding::Utf8));
    }
}
