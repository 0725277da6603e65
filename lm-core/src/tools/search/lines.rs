//! Matching lines, and the lines around them, as text.

use std::path::Path;

use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};

use crate::{
    files::display_path,
    tools::{
        ToolError,
        text::{Page, cut, cut_around},
    },
};

/// The longest part of a line that is shown, in characters, marks included.
const LINE_CAP: usize = 500;
/// Room for the marks that say what was cut.
const MARKS: usize = 60;

/// Lines of all files, from an offset up to a limit.
pub(super) struct Listing {
    page: Page,
    offset: usize,
    limit: usize,
    line_numbers: bool,
    /// Lines passed over or shown.
    seen: usize,
    shown: usize,
    cut_lines: usize,
    full: bool,
    /// Whether a gap is due before the next line.
    gap: bool,
}

impl Listing {
    pub(super) fn new(offset: usize, limit: usize, line_numbers: bool) -> Self {
        let page = Page::default();
        Self { page, offset, limit, line_numbers, seen: 0, shown: 0, cut_lines: 0, full: false, gap: false }
    }

    /// Adds the lines of a file; whether any of them is shown.
    pub(super) fn add(
        &mut self,
        searcher: &mut Searcher,
        matcher: &RegexMatcher,
        path: &Path,
        text: &str,
    ) -> Result<bool, ToolError> {
        let path = display_path(path);
        let before = self.shown;
        self.gap = self.shown > 0 && (searcher.before_context() > 0 || searcher.after_context() > 0);
        let mut sink = Lines { listing: self, matcher, path: &path };
        searcher
            .search_slice(matcher, text.as_bytes(), &mut sink)
            .map_err(|error| ToolError(format!("the search of `{path}` failed: {error}")))?;
        Ok(self.shown > before)
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn is_empty(&self) -> bool {
        self.page.is_empty()
    }

    /// Lines that the offset passed over.
    pub(super) fn skipped(&self) -> usize {
        self.seen - self.shown
    }

    pub(super) fn next_offset(&self) -> usize {
        self.offset.saturating_add(self.shown)
    }

    pub(super) fn cut_lines(&self) -> usize {
        self.cut_lines
    }

    pub(super) fn finish(self, remarks: &[String]) -> String {
        self.page.finish(remarks)
    }

    /// Shows a line; false where there is no room for it.
    fn push(&mut self, line: &str, is_cut: bool) -> bool {
        if self.seen < self.offset {
            self.seen += 1;
            return true;
        }
        if self.shown >= self.limit {
            self.full = true;
            return false;
        }
        if self.gap && self.shown > 0 && !self.page.push("--") || !self.page.push(line) {
            self.full = true;
            return false;
        }
        self.gap = false;
        self.seen += 1;
        self.shown += 1;
        self.cut_lines += usize::from(is_cut);
        true
    }
}

struct Lines<'a> {
    listing: &'a mut Listing,
    matcher: &'a RegexMatcher,
    path: &'a str,
}

impl Lines<'_> {
    fn show(&mut self, number: Option<u64>, line: &[u8], is_match: bool) -> bool {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches(['\n', '\r']);
        let found = if is_match { self.matcher.find(line.as_bytes()).ok().flatten() } else { None };
        let shown = match found {
            Some(found) if line.len() > LINE_CAP => cut_around(line, found.start()..found.end(), LINE_CAP - MARKS),
            _ if line.len() > LINE_CAP => cut(line, LINE_CAP - MARKS),
            _ => std::borrow::Cow::Borrowed(line),
        };
        let is_cut = matches!(shown, std::borrow::Cow::Owned(_));
        let mark = if is_match { ':' } else { '-' };
        let number = match number {
            Some(number) if self.listing.line_numbers => format!("{number}{mark}"),
            _ => String::new(),
        };
        self.listing.push(&format!("{}{mark}{number}{shown}", self.path), is_cut)
    }
}

impl Sink for Lines<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        // A match over several lines is shown line by line.
        for (position, line) in found.lines().enumerate() {
            if !self.show(found.line_number().map(|number| number + position as u64), line, true) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, Self::Error> {
        Ok(self.show(context.line_number(), context.bytes(), false))
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, Self::Error> {
        self.listing.gap = true;
        Ok(true)
    }
}
