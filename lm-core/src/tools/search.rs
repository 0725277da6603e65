//! Grep: searching file contents.
//!
//! A first pass over all files, on several threads, finds out which ones match. What is shown of them
//! is then read in the order of their paths, so that a result does not depend on which thread was
//! faster, and a limit cuts at the same place each time.

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use grep_matcher::LineTerminator;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use ignore::types::{Types, TypesBuilder};

use super::{
    FileSeen, Limits, ToolError, ToolOutput, Tools,
    arguments::{Arguments, nearest},
    globs::Globs,
    pattern::{self, PatternOptions},
    target,
    text::{Page, counted},
};
use crate::files::{MetRules, PathKind, ReadError, WalkLimits, display_path};

mod lines;

/// The longest part of a file that is searched, in bytes.
const SEARCH_CAP: u64 = super::READ_CAP;
/// The most files that are listed.
const MOST_FILES: usize = 1_000_000;
const DEFAULT_HEAD_LIMIT: usize = 200;
/// Kept of the time for reading again what is shown.
const SHOWING: Duration = Duration::from_millis(300);

/// What a call asks for.
struct Search {
    matcher: RegexMatcher,
    multiline: bool,
    under: PathBuf,
    globs: Option<Globs>,
    types: Option<Types>,
    mode: Mode,
    line_numbers: bool,
    before: usize,
    after: usize,
    head_limit: usize,
    offset: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Paths,
    Content,
    Count,
}

/// A file that matches.
struct Hit {
    path: PathBuf,
    /// Matching lines; 1 where they were not counted.
    count: usize,
}

/// What a thread has found.
struct Found {
    searcher: Searcher,
    matcher: RegexMatcher,
    hits: Vec<Hit>,
    searched: usize,
    secret: usize,
    binary: usize,
    unreadable: usize,
    cut: usize,
}

/// What all threads have found.
#[derive(Default)]
struct Survey {
    hits: Vec<Hit>,
    searched: usize,
    secret: usize,
    binary: usize,
    unreadable: usize,
    cut: usize,
    out_of_time: bool,
    too_many: bool,
}

pub(super) fn run(tools: &Tools, arguments: &Arguments, limits: &Limits<'_>) -> Result<ToolOutput, ToolError> {
    let search = Search::read(tools, arguments)?;
    let kind = tools.files.kind(&search.under)?;
    let survey = match kind {
        PathKind::Directory => search.survey(tools, limits)?,
        PathKind::File => Survey { hits: vec![Hit { path: search.under.clone(), count: 0 }], ..Survey::default() },
        PathKind::Other => return Err(ReadError::NotRegular(display_path(&search.under)).into()),
    };
    if limits.cancel.is_cancelled() {
        return Err(ToolError("the call was cancelled".into()));
    }
    let is_file = kind == PathKind::File;
    match search.mode {
        Mode::Content => search.show_lines(tools, survey, limits, is_file),
        Mode::Paths | Mode::Count if is_file => search.judge_file(tools),
        Mode::Paths | Mode::Count => Ok(search.show_paths(survey)),
    }
}

impl Search {
    fn read(tools: &Tools, arguments: &Arguments) -> Result<Self, ToolError> {
        let multiline = arguments.flag("multiline")?.unwrap_or(false);
        let options = PatternOptions { ignore_case: arguments.flag("-i")?.unwrap_or(false), multiline };
        let around = arguments.number("-C")?;
        Ok(Self {
            matcher: pattern::compile(arguments.required_text("pattern")?, options)?,
            multiline,
            under: target::inside(tools.files.root(), arguments.text("path")?.unwrap_or_default())?,
            globs: arguments.text("glob")?.filter(|glob| !glob.is_empty()).map(Globs::parse).transpose()?,
            types: arguments.text("type")?.filter(|name| !name.is_empty()).map(file_type).transpose()?,
            mode: match arguments.choice("output_mode", &["files_with_matches", "content", "count"])? {
                "content" => Mode::Content,
                "count" => Mode::Count,
                _ => Mode::Paths,
            },
            line_numbers: arguments.flag("-n")?.unwrap_or(true),
            before: arguments.number("-B")?.or(around).unwrap_or(0).min(1_000),
            after: arguments.number("-A")?.or(around).unwrap_or(0).min(1_000),
            head_limit: match arguments.number("head_limit")? {
                None => DEFAULT_HEAD_LIMIT,
                Some(0) => usize::MAX,
                Some(limit) => limit,
            },
            offset: arguments.number("offset")?.unwrap_or(0),
        })
    }

    fn searcher(&self) -> SearcherBuilder {
        let mut builder = SearcherBuilder::new();
        // The door has sorted out what is binary; nothing is ever mapped, which is the default.
        builder.binary_detection(BinaryDetection::none()).multi_line(self.multiline).line_number(false);
        if !self.multiline {
            // As the pattern was compiled; the searcher refuses to work with another idea of a line.
            builder.line_terminator(LineTerminator::crlf());
        }
        builder
    }

    fn wants(&self, path: &Path) -> bool {
        if let Some(types) = &self.types
            && !types.matched(path, false).is_whitelist()
        {
            return false;
        }
        // Relative to the workspace as ripgrep has it, or to the directory asked for.
        self.globs.as_ref().is_none_or(|globs| {
            globs.matches(path) || path.strip_prefix(&self.under).is_ok_and(|below| globs.matches(below))
        })
    }

    /// Finds out which files match.
    fn survey(&self, tools: &Tools, limits: &Limits<'_>) -> Result<Survey, ToolError> {
        let walk = WalkLimits {
            max_files: MOST_FILES,
            deadline: limits.deadline.checked_sub(SHOWING).unwrap_or(limits.deadline),
            threads: thread::available_parallelism().map_or(1, usize::from),
            stamps: false,
        };
        let state = || Found {
            searcher: self.searcher().build(),
            matcher: self.matcher.clone(),
            hits: Vec::new(),
            searched: 0,
            secret: 0,
            binary: 0,
            unreadable: 0,
            cut: 0,
        };
        let (states, report) = tools
            .files
            .walk_under(&self.under, &walk, limits.cancel, state, |found, file| {
                if self.wants(&file.path) {
                    self.try_file(tools, found, file.path);
                }
                true
            })
            .map_err(|error| ToolError(format!("cannot list the workspace: {error}")))?;
        let mut survey = Survey {
            secret: report.secret,
            unreadable: report.unreadable,
            out_of_time: report.out_of_time || report.stopped,
            too_many: report.too_many,
            ..Survey::default()
        };
        for found in states {
            survey.hits.extend(found.hits);
            survey.searched += found.searched;
            survey.secret += found.secret;
            survey.binary += found.binary;
            survey.unreadable += found.unreadable;
            survey.cut += found.cut;
        }
        survey.hits.sort_unstable_by(|left, right| left.path.cmp(&right.path));
        Ok(survey)
    }

    fn try_file(&self, tools: &Tools, found: &mut Found, path: PathBuf) {
        found.searched += 1;
        let Found { searcher, matcher, .. } = found;
        // What cannot be searched is tried again below, where the failure counts.
        let wanted = |bytes: &[u8]| {
            is_utf16(bytes) || count(searcher, matcher, without_mark(bytes), 1).is_none_or(|count| count > 0)
        };
        match tools.files.read_found_if(&path, SEARCH_CAP, wanted) {
            Ok((None, truncated)) => found.cut += usize::from(truncated),
            Ok((Some(text), truncated)) => {
                found.cut += usize::from(truncated);
                let most = if self.mode == Mode::Count { usize::MAX } else { 1 };
                let Some(count) = count(&mut found.searcher, &found.matcher, text.as_bytes(), most) else {
                    found.unreadable += 1;
                    return;
                };
                if count > 0 {
                    found.hits.push(Hit { path, count });
                }
            }
            Err(ReadError::Secret(_)) => found.secret += 1,
            Err(ReadError::Binary(_)) => found.binary += 1,
            Err(_) => found.unreadable += 1,
        }
    }

    /// Paths, or counts per file, of a directory.
    fn show_paths(&self, survey: Survey) -> ToolOutput {
        let total = survey.hits.len();
        let matching: usize = survey.hits.iter().map(|hit| hit.count).sum();
        let mut page = Page::default();
        let mut shown = 0;
        for hit in survey.hits.iter().skip(self.offset).take(self.head_limit) {
            let path = display_path(&hit.path);
            let line = if self.mode == Mode::Count { format!("{path}:{}", hit.count) } else { path };
            if !page.push(&line) {
                break;
            }
            shown += 1;
        }
        let mut remarks = Vec::new();
        let end = self.offset.saturating_add(shown);
        if total == 0 {
            remarks.push(self.nothing(&survey));
        } else if shown == 0 {
            remarks.push(format!("{} match, none past offset={}", counted(total, "file"), self.offset));
        } else if end < total {
            remarks.push(format!("{shown} of {} that match; go on with offset={end}", counted(total, "file")));
        }
        if self.mode == Mode::Count && total > 0 {
            remarks.push(format!("{} in {}", counted(matching, "matching line"), counted(total, "file")));
        }
        self.note_limits(&survey, &mut remarks);
        ToolOutput::plain(page.finish(&remarks))
    }

    /// Paths or counts of a file that was named.
    fn judge_file(&self, tools: &Tools) -> Result<ToolOutput, ToolError> {
        let file = tools.files.read(&self.under, SEARCH_CAP)?;
        let count = count(&mut self.searcher().build(), &self.matcher, file.text.as_bytes(), usize::MAX)
            .ok_or_else(|| ToolError(format!("the search of `{}` failed", display_path(&self.under))))?;
        let hits = if count == 0 { Vec::new() } else { vec![Hit { path: self.under.clone(), count }] };
        let survey = Survey { hits, searched: 1, cut: usize::from(file.truncated), ..Survey::default() };
        Ok(self.show_paths(survey))
    }

    /// Matching lines with what is around them.
    fn show_lines(
        &self,
        tools: &Tools,
        survey: Survey,
        limits: &Limits<'_>,
        is_file: bool,
    ) -> Result<ToolOutput, ToolError> {
        let total = survey.hits.len();
        let mut listing = lines::Listing::new(self.offset, self.head_limit, self.line_numbers);
        let mut searcher =
            self.searcher().line_number(true).before_context(self.before).after_context(self.after).build();
        let mut files = Vec::new();
        let mut survey = survey;
        let mut visited = 0;
        let met = MetRules::default();
        for hit in &survey.hits {
            if listing.is_full() || limits.is_over() {
                break;
            }
            visited += 1;
            let file = match tools.files.read_in_batch(&hit.path, SEARCH_CAP, &met) {
                Ok(file) => file,
                Err(error) if is_file => return Err(error.into()),
                // Changed since the first pass.
                Err(_) => {
                    survey.unreadable += 1;
                    continue;
                }
            };
            if is_file {
                survey.searched = 1;
                survey.cut = usize::from(file.truncated);
            }
            if listing.add(&mut searcher, &self.matcher, &hit.path, &file.text)? {
                files.push(FileSeen {
                    path: hit.path.clone(),
                    sha256: file.sha256,
                    truncated: file.truncated,
                    is_shown: true,
                });
            }
        }
        let mut remarks = Vec::new();
        let unvisited = total - visited;
        if listing.is_empty() {
            if limits.is_over() && unvisited > 0 {
                return Err(ToolError(
                    "the time was over before a matching file could be shown; narrow the search".into(),
                ));
            }
            if listing.skipped() > 0 {
                remarks.push(format!(
                    "{} in all, none past offset={}",
                    counted(listing.skipped(), "line"),
                    self.offset
                ));
            } else {
                remarks.push(self.nothing(&survey));
            }
        } else if listing.is_full() {
            let further = match unvisited {
                0 => String::new(),
                count => format!(", in this file or {}", counted(count, "further file")),
            };
            remarks.push(format!("more lines follow{further}; go on with offset={}", listing.next_offset()));
        } else if unvisited > 0 {
            remarks.push(format!(
                "the time was over; {} not shown, go on with offset={}",
                counted(unvisited, "further matching file"),
                listing.next_offset()
            ));
        }
        if listing.cut_lines() > 0 {
            remarks.push(format!("{} cut to the part around the match", counted(listing.cut_lines(), "long line")));
        }
        self.note_limits(&survey, &mut remarks);
        Ok(ToolOutput { text: listing.finish(&remarks), is_error: false, files })
    }

    fn nothing(&self, survey: &Survey) -> String {
        if survey.searched == 0 && !survey.out_of_time {
            return if self.globs.is_some() || self.types.is_some() {
                "no file fits the path, glob and type, so nothing was searched".to_owned()
            } else {
                "there is no file to search: the directory is empty, a link, or excluded by ignore rules".to_owned()
            };
        }
        let searched = counted(survey.searched, "file");
        if survey.out_of_time {
            format!("no match in the {searched} searched so far")
        } else {
            format!("no match in {searched}")
        }
    }

    fn note_limits(&self, survey: &Survey, remarks: &mut Vec<String>) {
        if survey.out_of_time {
            remarks.push(format!(
                "incomplete: the time was over after {}; narrow the search with path or glob",
                counted(survey.searched, "file")
            ));
        }
        if survey.too_many {
            remarks.push(format!(
                "incomplete: only the first {MOST_FILES} files were listed; narrow the search with path"
            ));
        }
        if survey.cut > 0 {
            remarks.push(format!(
                "of {} only the first {SEARCH_CAP} bytes were searched",
                counted(survey.cut, "large file")
            ));
        }
        if survey.secret > 0 {
            remarks.push(format!("left out because they may hold secrets: {}", counted(survey.secret, "file")));
        }
        if survey.unreadable > 0 {
            remarks.push(format!("could not be read: {}", counted(survey.unreadable, "file")));
        }
    }
}

fn file_type(name: &str) -> Result<Types, ToolError> {
    let mut builder = TypesBuilder::new();
    builder.add_defaults();
    let known: Vec<String> = builder.definitions().iter().map(|definition| definition.name().to_owned()).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    builder.select(name);
    builder.build().map_err(|_| {
        ToolError(format!(
            "there is no file type `{}`{}; use glob instead, such as *.{name}",
            super::text::cut(name, 100),
            nearest(name, &known).map_or_else(String::new, |near| format!(" (did you mean `{near}`?)")),
            name = super::text::cut(name, 20),
        ))
    })
}

/// Whether a mark says that bytes are UTF-16, which is searched once it is text.
fn is_utf16(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff])
}

/// The bytes after the mark that UTF-8 may begin with.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(bytes)
}

/// How many lines match, counted up to `most`; none where the search failed.
fn count(searcher: &mut Searcher, matcher: &RegexMatcher, bytes: &[u8], most: usize) -> Option<usize> {
    let mut counter = Counter { most, count: 0 };
    searcher.search_slice(matcher, bytes, &mut counter).ok()?;
    Some(counter.count)
}

struct Counter {
    most: usize,
    count: usize,
}

impl Sink for Counter {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        self.count += found.lines().count();
        Ok(self.count < self.most)
    }
}
