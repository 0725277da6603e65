//! Cuts a stream of bytes into lines, in bounded memory.

use super::scan::{Found, Scanner};

/// The longest line in bytes that is read as a message.
pub(super) const LINE_BYTES_MAX: usize = 16 << 20;
/// What a buffer may keep between lines.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// What came.
pub(super) enum Line<'a> {
    /// A line without its newline.
    Whole(&'a [u8]),
    /// A line longer than [`LINE_BYTES_MAX`], of which only the ids are known.
    TooLong(Vec<Found>),
}

/// Collects bytes until a line is complete.
#[derive(Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    /// Reads what is too long to be kept.
    skipping: Option<Scanner>,
}

impl Lines {
    /// Takes the next bytes and hands out the lines that they complete.
    pub(super) fn feed(&mut self, bytes: &[u8], mut emit: impl FnMut(Line<'_>)) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (piece, after) = (&rest[..end], &rest[end + 1..]);
            rest = after;
            if self.buffer.is_empty() && self.skipping.is_none() && piece.len() <= LINE_BYTES_MAX {
                emit(Line::Whole(piece));
            } else {
                self.extend(piece);
                self.finish(&mut emit);
            }
        }
        self.extend(rest);
    }

    /// Hands out the last line if no newline ended it.
    pub(super) fn finish(&mut self, mut emit: impl FnMut(Line<'_>)) {
        if let Some(scanner) = self.skipping.take() {
            emit(Line::TooLong(scanner.finish()));
        } else if !self.buffer.is_empty() {
            emit(Line::Whole(&self.buffer));
        }
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BYTES_MAX);
    }

    fn extend(&mut self, bytes: &[u8]) {
        if let Some(scanner) = &mut self.skipping {
            scanner.feed(bytes);
        } else if self.buffer.len() + bytes.len() <= LINE_BYTES_MAX {
            self.buffer.extend_from_slice(bytes);
        } else {
            let mut scanner = Scanner::default();
            scanner.feed(&std::mem::take(&mut self.buffer));
            scanner.feed(bytes);
            self.skipping = Some(scanner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<Vec<Found>>) {
        let (mut whole, mut too_long) = (Vec::new(), Vec::new());
        let mut lines = Lines::default();
        let mut emit = |line: Line<'_>| match line {
            Line::Whole(bytes) => whole.push(bytes.to_vec()),
            Line::TooLong(found) => too_long.push(found),
        };
        for piece in pieces {
            lines.feed(piece, &mut emit);
        }
        lines.finish(&mut emit);
        (whole, too_long)
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_its_id_kept() {
        let start = br#"{"method":"tools/call","params":{"question":""#;
        let filler = vec![b'x'; LINE_BYTES_MAX];
        let (whole, too_long) = read(&[b"before\n", start, &filler, br#""},"id":"late"}"#, b"\nafter\n"]);
        assert_eq!(whole, [b"before".to_vec(), b"after".to_vec()]);
        assert_eq!(too_long, [vec![Found { id: json!("late"), is_response: false }]]);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200), cut in 1_usize..20) {
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            let mut expected: Vec<Vec<u8>> = bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
            if expected.last().is_some_and(Vec::is_empty) {
                expected.pop();
            }
            let without_empty = |lines: Vec<Vec<u8>>| lines.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>();
            prop_assert_eq!(without_empty(read(&pieces).0), without_empty(expected));
        }
    }
}
