//! Text to terms: identifiers whole and in parts, without case, without light suffixes.
//!
//! Pure. The same function makes the terms of files, of paths and of questions, or they would not
//! meet.

use std::collections::VecDeque;

/// Longer runs are encoded data, not words.
const LONGEST_TERM: usize = 64;
/// The longest run whose terms are worth looking at, in bytes; past it nothing is emitted.
const LONGEST_RUN: usize = 256;

/// The terms of a text, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Terms<'a> {
    text: &'a str,
    /// Where to go on looking for a run.
    next: usize,
    /// The run whose parts are being emitted.
    run: (usize, usize),
    /// Where the next part of the run begins; past the run's end when all are emitted.
    part: usize,
    /// Terms of runs that are not plain ASCII, ready made.
    ready: VecDeque<String>,
    buffer: String,
}

impl<'a> Terms<'a> {
    /// Of this text.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, next: 0, run: (0, 0), part: usize::MAX, ready: VecDeque::new(), buffer: String::new() }
    }

    /// The next term. The terms of one identifier come together, the whole before its parts.
    pub(super) fn advance(&mut self) -> Option<&str> {
        loop {
            if let Some(term) = self.ready.pop_front() {
                self.buffer = term;
                return Some(&self.buffer);
            }
            if self.part < self.run.1 {
                if self.emit_part() {
                    return Some(&self.buffer);
                }
                continue;
            }
            if !self.find_run()? {
                continue;
            }
            if self.emit_whole() {
                return Some(&self.buffer);
            }
        }
    }

    /// Where in the text the identifier of the last term lies, in bytes.
    pub(super) fn span(&self) -> (usize, usize) {
        self.run
    }

    /// Finds the next run of letters, digits and underscores. Some(false): found one that was dealt
    /// with; none: the text is at its end.
    fn find_run(&mut self) -> Option<bool> {
        let bytes = self.text.as_bytes();
        let mut start = self.next;
        while start < bytes.len() && !is_word_byte(bytes[start]) {
            start += 1;
        }
        if start == bytes.len() {
            self.next = start;
            return None;
        }
        let mut end = start;
        let mut ascii = true;
        while end < bytes.len() && is_word_byte(bytes[end]) {
            ascii &= bytes[end] < 0x80;
            end += 1;
        }
        self.next = end;
        self.run = (start, end);
        self.part = usize::MAX;
        if end - start > LONGEST_RUN {
            return Some(false);
        }
        if !ascii {
            self.prepare(start, end);
            return Some(false);
        }
        Some(true)
    }

    /// The whole run as a term, if it is one; sets off its parts if it has any.
    fn emit_whole(&mut self) -> bool {
        let (start, end) = self.run;
        let run = self.text[start..end].trim_matches('_');
        if run.len() < 2 {
            return false;
        }
        let composite = part_end(run.as_bytes(), 0) < run.len();
        if composite {
            self.part = start + self.text[start..end].bytes().take_while(|byte| *byte == b'_').count();
        }
        if run.len() > LONGEST_TERM {
            return false;
        }
        self.buffer.clear();
        self.buffer.extend(run.bytes().map(|byte| char::from(byte.to_ascii_lowercase())));
        if !composite {
            stem(&mut self.buffer);
        }
        true
    }

    fn emit_part(&mut self) -> bool {
        let bytes = &self.text.as_bytes()[..self.run.1];
        let start = self.part;
        let end = part_end(bytes, start);
        self.part = end;
        while self.part < bytes.len() && bytes[self.part] == b'_' {
            self.part += 1;
        }
        // Hexadecimal and base64 fall into such crumbs.
        if end - start < 2 || end - start > LONGEST_TERM {
            return false;
        }
        self.buffer.clear();
        self.buffer.extend(bytes[start..end].iter().map(|byte| char::from(byte.to_ascii_lowercase())));
        stem(&mut self.buffer);
        true
    }

    /// A run with other letters than ASCII: words without case; pairs of characters where a script
    /// writes without spaces.
    fn prepare(&mut self, start: usize, end: usize) {
        let mut word = String::new();
        let mut previous = None;
        let run = &self.text[start..end];
        for character in run.chars() {
            if is_unspaced(character) {
                self.flush(&mut word);
                if let Some(previous) = previous {
                    self.ready.push_back([previous, character].iter().collect());
                }
                previous = Some(character);
            } else {
                previous = None;
                if character.is_alphanumeric() || character == '_' {
                    word.extend(fold(character));
                } else {
                    self.flush(&mut word);
                }
            }
        }
        self.flush(&mut word);
    }

    fn flush(&mut self, word: &mut String) {
        if word.chars().nth(1).is_some() && word.len() <= LONGEST_TERM {
            stem(word);
            self.ready.push_back(std::mem::take(word));
        } else {
            word.clear();
        }
    }
}

/// A letter without its case: full case folding, as near as lower, upper and lower case come to it.
/// `ß` and `ẞ` become `ss`, `ς` becomes `σ`.
pub(super) fn fold(character: char) -> impl Iterator<Item = char> {
    // Nearly all letters are ASCII, and their case needs no table.
    let ascii = character.is_ascii().then(|| character.to_ascii_lowercase());
    let other = (!character.is_ascii())
        .then(|| character.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase));
    ascii.into_iter().chain(other.into_iter().flatten())
}

/// A text without case.
pub(super) fn folded(text: &str) -> String {
    if text.is_ascii() { text.to_ascii_lowercase() } else { text.chars().flat_map(fold).collect() }
}

/// Spellings of a folded term that matching without case, letter by letter, does not bring together with
/// it: `ss` may be written `ß`.
pub(super) fn spellings(term: &str) -> Vec<String> {
    let mut spellings = vec![term.to_owned()];
    let places: Vec<usize> = term.match_indices("ss").map(|(at, _)| at).collect();
    spellings.extend(places.iter().map(|&at| format!("{}ß{}", &term[..at], &term[at + 2..])));
    if places.len() > 1 {
        spellings.push(term.replace("ss", "ß"));
    }
    spellings
}

/// All terms of a text.
pub(super) fn terms(text: &str) -> Vec<String> {
    let mut terms = Terms::new(text);
    let mut all = Vec::new();
    while let Some(term) = terms.advance() {
        all.push(term.to_owned());
    }
    all
}

/// Bytes of other scripts belong to words until looked at closer.
fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Han, kana, hangul and Thai.
fn is_unspaced(character: char) -> bool {
    matches!(character, '\u{0e00}'..='\u{0e7f}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

/// Where the part that begins at `start` ends: at an underscore, at a hump, between letters and
/// digits, before the last capital of several (`HTTPServer`).
fn part_end(bytes: &[u8], start: usize) -> usize {
    let mut end = start + 1;
    while end < bytes.len() {
        let (before, here) = (bytes[end - 1], bytes[end]);
        let boundary = here == b'_'
            || (here.is_ascii_uppercase() && !before.is_ascii_uppercase())
            || (here.is_ascii_digit() != before.is_ascii_digit())
            || (here.is_ascii_uppercase()
                && before.is_ascii_uppercase()
                && bytes.get(end + 1).is_some_and(u8::is_ascii_lowercase));
        if boundary {
            break;
        }
        end += 1;
    }
    end.min(bytes.len())
}

/// Cuts light suffixes, so that `parse`, `parsed`, `parsing` and `parses` meet. Words of other than
/// ASCII letters stay as they are.
pub(super) fn stem(word: &mut String) {
    if word.len() < 4 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return;
    }
    if word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us") && !word.ends_with("is") {
        if word.ends_with("ies") && word.len() > 4 {
            word.truncate(word.len() - 3);
            word.push('y');
        } else {
            word.pop();
        }
    }
    for (suffix, shortest_stem) in [("ation", 4), ("ing", 3), ("ion", 4), ("ed", 3), ("er", 4), ("or", 4)] {
        if word.ends_with(suffix) && word.len() >= suffix.len() + shortest_stem {
            word.truncate(word.len() - suffix.len());
            let bytes = word.as_bytes();
            let last = bytes[bytes.len() - 1];
            // `stopped`, but `called` and `passed`.
            if bytes.len() > 3 && bytes[bytes.len() - 2] == last && !b"lszaeiou".contains(&last) {
                word.pop();
            }
            break;
        }
    }
    if word.len() > 4 && word.ends_with('e') {
        word.pop();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn identifiers_are_kept_whole_and_split() {
        assert_eq!(terms("parse_HTTPHeader2"), ["parse_httpheader2", "pars", "http", "head"]);
        assert_eq!(terms("getUserName()"), ["getusername", "get", "user", "name"]);
        assert_eq!(terms("sha256 __init__ a"), ["sha256", "sha", "256", "init"]);
    }

    #[test]
    fn forms_of_a_word_meet() {
        for words in [
            "parse parsed parsing parses",
            "stop stopped stopping stops",
            "index indexed indexing indexes",
            "query queries",
            "configure configuration configured",
            "connect connection connections connected",
        ] {
            let mut stems = terms(words);
            stems.dedup();
            assert_eq!(stems.len(), 1, "{words}: {stems:?}");
        }
    }

    #[test]
    fn other_scripts_have_terms() {
        assert_eq!(terms("Größe“ naïve"), ["grösse", "naïve"]);
        assert_eq!(terms("検索語"), ["検索", "索語"]);
    }

    #[test]
    fn case_never_counts() {
        for (one, other) in
            [("GRÖSSE", "größe"), ("STRASSE", "Straße"), ("MAẞSTAB", "maßstab"), ("ΟΔΟΣ", "οδος"), ("ПОИСК", "поиск")]
        {
            assert_eq!(terms(one), terms(other));
            assert_eq!(folded(one), folded(other));
        }
    }

    #[test]
    fn a_term_may_be_written_with_a_sharp_s() {
        assert_eq!(spellings("grösse"), ["grösse", "größe"]);
        assert_eq!(spellings("grossstrasse"), ["grossstrasse", "großstrasse", "grossstraße", "großstraße"]);
        assert_eq!(spellings("name"), ["name"]);
    }

    #[test]
    fn encoded_data_is_no_word() {
        assert!(terms(&"x".repeat(300)).is_empty());
    }

    proptest! {
        #[test]
        fn any_text_gives_terms_inside_itself(text in "\\PC{0,200}") {
            let mut terms = Terms::new(&text);
            while let Some(term) = terms.advance() {
                prop_assert!(!term.is_empty() && term.len() <= LONGEST_TERM * 4);
                let term = term.to_owned();
                let (start, end) = terms.span();
                prop_assert!(text.get(start..end).is_some(), "{term}: {start}..{end}");
            }
        }

        #[test]
        fn any_bytes_repaired_give_terms(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            terms(&String::from_utf8_lossy(&bytes));
        }
    }
}
