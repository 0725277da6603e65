//! Paths as bytes for storage and as text for people.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

/// A path as text that stays on one line: control characters, backslashes that are part of a name,
/// and bytes that are not UTF-8 are escaped, separators are `/`.
#[must_use]
pub fn display_path(path: &Path) -> String {
    let mut shown = String::new();
    for (position, part) in path.iter().enumerate() {
        if position > 0 && !shown.ends_with('/') {
            shown.push('/');
        }
        for chunk in part.as_encoded_bytes().utf8_chunks() {
            for character in chunk.valid().chars() {
                if character.is_control() || is_invisible(character) {
                    shown.extend(character.escape_default());
                } else {
                    shown.push(character);
                }
            }
            for byte in chunk.invalid() {
                // Writing to a string cannot fail.
                let _ = write!(shown, "\\x{byte:02x}");
            }
        }
    }
    shown
}

/// Characters that reorder or hide what follows them, and separators of lines.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The bytes that name a relative path in an index.
pub(crate) fn path_to_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}

/// Back from [`path_to_bytes`]; none where the bytes are no path on this system.
#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "on other systems some bytes are no path")]
pub(crate) fn path_from_bytes(bytes: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
}

/// Back from [`path_to_bytes`]; none where the bytes are no path on this system.
#[cfg(not(unix))]
pub(crate) fn path_from_bytes(bytes: &[u8]) -> Option<PathBuf> {
    std::str::from_utf8(bytes).ok().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_shown_as_they_are() {
        assert_eq!(display_path(Path::new("src/größe datei.rs")), "src/größe datei.rs");
    }

    #[test]
    fn names_stay_on_one_line() {
        assert_eq!(display_path(Path::new("a\nb/c\u{202e}d")), "a\\nb/c\\u{202e}d");
    }

    #[cfg(unix)]
    #[test]
    fn bytes_that_are_not_text_are_shown_and_kept() {
        let path = path_from_bytes(b"caf\xe9/x").unwrap();
        assert_eq!(display_path(&path), "caf\\xe9/x");
        assert_eq!(path_to_bytes(&path), b"caf\xe9/x");
    }
}
