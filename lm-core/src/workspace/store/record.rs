//! Records, one a line: a checksum, a length and a text.
//!
//! `0f3a9c51 0000002a {…}⏎`: the CRC-32 of all that follows it in the line, the length of the text in
//! bytes, both in eight hexadecimal digits, and JSON, which has no line breaks of its own. Whatever happens to
//! one line, the others are found again. Pure; which records there are is the journal's business.

use std::{io, ops::Range};

use serde::Serialize;

const DIGITS: usize = 8;
/// Before the text: checksum, blank, length, blank.
const PREFIX: usize = 2 * (DIGITS + 1);

/// A stretch of a file of records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// A record that is as it was written.
    Record {
        /// Where its text lies.
        text: Range<usize>,
        /// Whether its line is ended.
        is_ended: bool,
    },
    /// No record, or not any more.
    Damage {
        /// Whether it reaches the end of the file without the end of a line, as a write leaves it that
        /// was broken off.
        is_torn: bool,
    },
}

/// Appends a record to `bytes`.
pub(super) fn push(bytes: &mut Vec<u8>, record: &impl Serialize) -> io::Result<()> {
    let start = bytes.len();
    bytes.extend_from_slice(&[b' '; PREFIX]);
    serde_json::to_writer(&mut *bytes, record)?;
    let too_long = |_| io::Error::other("a record is longer than 4 GiB");
    let length = u32::try_from(bytes.len() - start - PREFIX).map_err(too_long)?;
    bytes[start + DIGITS + 1..start + PREFIX - 1].copy_from_slice(format!("{length:08x}").as_bytes());
    let checksum = crc32fast::hash(&bytes[start + DIGITS + 1..]);
    bytes[start..start + DIGITS].copy_from_slice(format!("{checksum:08x}").as_bytes());
    bytes.push(b'\n');
    Ok(())
}

/// Takes a file apart.
pub(super) fn pieces(bytes: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let Some(text) = text_at(bytes, at) else {
            let line_end = memchr::memchr(b'\n', &bytes[at..]);
            at = line_end.map_or(bytes.len(), |end| at + end + 1);
            pieces.push(Piece::Damage { is_torn: line_end.is_none() });
            continue;
        };
        let end = text.end;
        pieces.push(Piece::Record { text, is_ended: bytes.get(end) == Some(&b'\n') });
        match bytes.get(end) {
            None => at = end,
            Some(b'\n') => at = end + 1,
            // Where only the line's end is damaged, the next record begins behind it.
            Some(_) if end + 1 == bytes.len() || text_at(bytes, end + 1).is_some() => {
                pieces.push(Piece::Damage { is_torn: end + 1 == bytes.len() });
                at = end + 1;
            }
            Some(_) => at = end,
        }
    }
    pieces
}

/// Where the text of the record that begins at `at` lies, if one does.
fn text_at(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let prefix = bytes.get(at..at + PREFIX)?;
    let checksum = number(&prefix[..DIGITS])?;
    let length = usize::try_from(number(&prefix[DIGITS + 1..PREFIX - 1])?).ok()?;
    let text = at + PREFIX..at.checked_add(PREFIX)?.checked_add(length)?;
    let is_blank = |at: usize| prefix[at] == b' ';
    let checked = bytes.get(at + DIGITS + 1..text.end)?;
    (is_blank(DIGITS) && is_blank(PREFIX - 1) && crc32fast::hash(checked) == checksum).then_some(text)
}

fn number(digits: &[u8]) -> Option<u32> {
    let is_digit = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.as_bytes().iter().all(is_digit))?;
    u32::from_str_radix(digits, 16).ok()
}
