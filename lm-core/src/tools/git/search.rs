//! Searching the history: by path, by message, by what was added or removed.

use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use gix::{
    ObjectId, Repository,
    bstr::{BString, ByteSlice},
    date::{Time, time::format},
    hashtable::HashMap,
};
use regex::{Regex, RegexBuilder};

use super::{
    Deadline, ToolError, failed,
    history::{Commit, Comparison, FileChange, History},
    open::Opened,
    patch::{self, Version},
    withheld::Withheld,
};
use crate::{
    files::holds_secret,
    tools::{
        arguments::Arguments,
        text::{Page, counted, cut},
    },
};

const DEFAULT_RESULTS: usize = 10;
const MOST_RESULTS: usize = 200;
/// The longest text that is looked for, in bytes.
const LONGEST_QUERY: usize = 500;
/// The most time for walking the history.
const WALK_TIME: Duration = Duration::from_secs(6);
/// The most time for comparing contents, which is slow in a long history.
const CONTENT_TIME: Duration = Duration::from_secs(5);
/// The most commits whose contents are compared.
const MOST_COMPARED: usize = 200_000;
/// The most threads that compare.
const MOST_THREADS: usize = 4;
/// Files named for a commit.
const FILES_NAMED: usize = 8;
/// Lines of a file's patch, where several files are shown.
const PATCH_LINES: usize = 120;

/// What a call asks for.
pub(super) struct Request {
    query: Option<String>,
    path: PathBuf,
    show_diff: bool,
    max_results: usize,
}

/// A commit that is a result.
struct Hit {
    /// Its place in the walk.
    place: usize,
    commit: Found,
    why: &'static str,
}

/// A commit, fit for other threads.
#[derive(Clone, Copy)]
struct Found {
    id: ObjectId,
    tree: ObjectId,
    parent: Option<ObjectId>,
    /// Merges bring in what others changed; that is not compared again.
    is_merge: bool,
    time: i64,
}

/// How far comparing contents got.
struct Compared {
    hits: Vec<Hit>,
    commits: usize,
    oldest: Option<i64>,
    missing: usize,
    complete: bool,
}

impl Request {
    pub(super) fn read(arguments: &Arguments, path: PathBuf) -> Result<Self, ToolError> {
        let query = arguments.text("query")?.map(str::trim).filter(|query| !query.is_empty());
        if let Some(query) = query {
            if query.len() > LONGEST_QUERY {
                return Err(ToolError(format!("the query is {} bytes long, {LONGEST_QUERY} are allowed", query.len())));
            }
            if query.chars().any(char::is_control) {
                return Err(ToolError(
                    "the query holds a line end or another control character; look for one line".into(),
                ));
            }
        }
        let max_results = match arguments.number("max_results")? {
            Some(0) => return Err(ToolError("`max_results` of git_search must be at least 1".into())),
            number => number.unwrap_or(DEFAULT_RESULTS).min(MOST_RESULTS),
        };
        let show_diff = arguments.flag("show_diff")?.unwrap_or(false);
        Ok(Self { query: query.map(str::to_owned), path, show_diff, max_results })
    }
}

/// Searches the history that leads to HEAD.
pub(super) fn search(opened: &Opened, request: &Request, deadline: &Deadline) -> Result<String, ToolError> {
    let path = components(&opened.prefix.join(&request.path))?;
    let Some(mut history) = History::new(&opened.repository, path.clone())? else {
        return Ok("(there is no commit yet)\n".into());
    };
    let query = request.query.as_deref().map(Query::new).transpose()?;
    let walk_until = deadline.part(0.6, WALK_TIME);
    let mut found = Vec::new();
    let mut hits = Vec::new();
    let mut complete = true;
    let mut more = false;
    let mut buffer = Vec::new();
    while let Some((commit, changed)) = history.next()? {
        if changed {
            let commit = Found::new(&commit);
            let place = found.len();
            match &query {
                None if hits.len() == request.max_results => {
                    more = true;
                    break;
                }
                None => hits.push(Hit { place, commit, why: "" }),
                Some(query) => {
                    if let Some(why) = query.judge(&opened.repository, &commit, &mut buffer) {
                        hits.push(Hit { place, commit, why });
                    }
                }
            }
            found.push(commit);
        }
        if history.looked_at % 64 == 0 && walk_until.is_over() {
            complete = false;
            break;
        }
    }
    let mut remarks = Vec::new();
    if let Some(query) = &query {
        let by_message = hits.len();
        let taken: Vec<usize> = hits.iter().map(|hit| hit.place).collect();
        let candidates: Vec<(usize, Found)> = found
            .iter()
            .enumerate()
            .filter(|(place, commit)| !commit.is_merge && taken.binary_search(place).is_err())
            .map(|(place, commit)| (place, *commit))
            .take(MOST_COMPARED)
            .collect();
        let compared = compare(opened, query, &path, &candidates, request.max_results, deadline);
        let by_content = compared.hits.len();
        hits = choose(hits, compared.hits, request.max_results);
        if by_message > request.max_results / 2 && by_message + by_content > hits.len() {
            remarks.push(format!(
                "{} by message in all; narrow the query, or raise max_results",
                counted(by_message, "commit")
            ));
        }
        remarks.push(if compared.complete {
            format!("contents of all {} compared", counted(compared.commits, "commit"))
        } else if by_content >= request.max_results {
            format!("contents compared back to {} until there were {by_content} results; older ones may follow", date(compared.oldest))
        } else {
            format!(
                "incomplete: for lack of time contents were compared in the newest {} only, back to {}; give a path to go further",
                counted(compared.commits, "commit"),
                date(compared.oldest)
            )
        });
        if compared.missing > 0 {
            remarks.push(format!(
                "{} could not be compared: parts of them are not in this clone",
                counted(compared.missing, "commit")
            ));
        }
    }
    if more {
        remarks.push(format!("more commits follow before {}; raise max_results", date(history.oldest)));
    } else if complete {
        remarks.push(format!("the whole history was searched, {}", counted(history.looked_at, "commit")));
    } else {
        remarks.push(format!(
            "incomplete: the time was over after {}, back to {}; older ones were not searched",
            counted(history.looked_at, "commit"),
            date(history.oldest)
        ));
    }
    if history.is_cut {
        remarks.push("the history is cut off, as in a shallow clone; older commits are not there".into());
    }
    if history.missing > 0 {
        remarks.push(format!("{} not in this clone, so some commits may be missing", counted(history.missing, "tree")));
    }
    show(opened, request, &path, &hits, remarks, deadline)
}

impl Found {
    fn new(commit: &Commit) -> Self {
        let parent = commit.parents.first().copied();
        Self { id: commit.id, tree: commit.tree, parent, is_merge: commit.parents.len() > 1, time: commit.time }
    }
}

/// What is looked for.
struct Query {
    /// Beginning of a commit's id, in lower case.
    id: Option<String>,
    /// In messages, in any letter case.
    message: Regex,
    words: Vec<String>,
    /// In contents.
    content: Regex,
}

impl Query {
    fn new(text: &str) -> Result<Self, ToolError> {
        let build = |ignore_case| {
            RegexBuilder::new(&regex::escape(text))
                .case_insensitive(ignore_case)
                .build()
                .map_err(|error| failed("search for the query", error))
        };
        let is_id = (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        Ok(Self {
            id: is_id.then(|| text.to_lowercase()),
            message: build(true)?,
            words: text.split_whitespace().map(str::to_lowercase).collect(),
            content: build(!text.chars().any(char::is_uppercase))?,
        })
    }

    /// Why a commit is a result by itself.
    fn judge(&self, repository: &Repository, commit: &Found, buffer: &mut Vec<u8>) -> Option<&'static str> {
        if self.id.as_ref().is_some_and(|id| commit.id.to_string().starts_with(id)) {
            return Some("id");
        }
        let message = message(repository, commit.id, buffer)?;
        if self.message.is_match(&message) {
            return Some("message");
        }
        if self.words.len() < 2 {
            return None;
        }
        let message = message.to_lowercase();
        self.words.iter().all(|word| message.contains(word)).then_some("all words in message")
    }
}

fn message(repository: &Repository, id: ObjectId, buffer: &mut Vec<u8>) -> Option<String> {
    use gix::prelude::Find as _;
    let data = repository.objects.try_find(&id, buffer).ok()??;
    let message = gix::objs::CommitRefIter::from_bytes(data.data, id.kind()).message().ok()?;
    Some(message.to_str_lossy().into_owned())
}

/// Compares how often the query stands in the files that commits changed, before and after, newest
/// first and on several threads, until there are enough results.
fn compare(
    opened: &Opened,
    query: &Query,
    path: &[BString],
    candidates: &[(usize, Found)],
    enough: usize,
    deadline: &Deadline,
) -> Compared {
    let until = deadline.part(0.8, CONTENT_TIME);
    let next = AtomicUsize::new(0);
    let missing = AtomicUsize::new(0);
    let hits = Mutex::new(Vec::new());
    let shared = opened.repository.clone().into_sync();
    let withheld = &opened.withheld;
    let work = || {
        let repository = shared.to_thread_local();
        let mut counter = Counter::new(&repository, query, withheld);
        loop {
            if until.is_over() || hits.lock().unwrap_or_else(PoisonError::into_inner).len() >= enough {
                return;
            }
            let taken = next.fetch_add(1, Relaxed);
            let Some((place, commit)) = candidates.get(taken) else { return };
            match counter.differs(commit, path) {
                Some(true) => {
                    let hit = Hit { place: *place, commit: *commit, why: "content" };
                    hits.lock().unwrap_or_else(PoisonError::into_inner).push(hit);
                }
                Some(false) => {}
                None => {
                    missing.fetch_add(1, Relaxed);
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let commits = next.into_inner().min(candidates.len());
    let mut hits = hits.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Every commit before the last one taken was compared, so the newest of the hits are the newest of all.
    hits.sort_by_key(|hit| hit.place);
    hits.truncate(enough);
    let oldest = commits.checked_sub(1).map(|last| candidates[last].1.time);
    Compared { hits, commits, oldest, missing: missing.into_inner(), complete: commits == candidates.len() }
}

/// Counts the query in versions of files, each once.
struct Counter<'a> {
    repository: &'a Repository,
    query: &'a Query,
    withheld: &'a Withheld,
    comparison: Comparison<'a>,
    counts: HashMap<ObjectId, Option<usize>>,
    buffer: Vec<u8>,
}

impl<'a> Counter<'a> {
    fn new(repository: &'a Repository, query: &'a Query, withheld: &'a Withheld) -> Self {
        let comparison = Comparison::new(repository);
        Self { repository, query, withheld, comparison, counts: HashMap::default(), buffer: Vec::new() }
    }

    /// Whether a commit changed how often the query occurs; none where that cannot be known.
    fn differs(&mut self, commit: &Found, path: &[BString]) -> Option<bool> {
        let changes = changes(&mut self.comparison, commit, path).ok()??;
        let mut unknown = false;
        for change in changes {
            if self.withheld.reason(change.path.as_bstr()).is_some() {
                continue;
            }
            let mut count = |entry| self.count(entry);
            match (count(change.before), count(change.after)) {
                (Some(before), Some(after)) if before != after => return Some(true),
                (Some(_), Some(_)) => {}
                _ => unknown = true,
            }
        }
        (!unknown).then_some(false)
    }

    fn count(&mut self, entry: Option<super::history::Entry>) -> Option<usize> {
        let Some(known) = entry else { return Some(0) };
        if let Some(count) = self.counts.get(&known.id) {
            return *count;
        }
        let count = match patch::version(self.repository, entry, &mut self.buffer) {
            Version::Text(text) => Some(self.query.content.find_iter(&text).count()),
            Version::Missing => None,
            Version::Binary | Version::TooLarge | Version::Absent | Version::Submodule(_) => Some(0),
        };
        self.counts.insert(known.id, count);
        count
    }
}

/// What a commit changed against its first parent; none where that is not there.
fn changes(
    comparison: &mut Comparison<'_>,
    commit: &Found,
    path: &[BString],
) -> Result<Option<Vec<FileChange>>, ToolError> {
    // A parent that is missing is where a shallow history ends: all of the commit counts as new.
    let parent = match commit.parent {
        Some(parent) => comparison.tree(parent)?,
        None => None,
    };
    comparison.changes(parent, commit.tree, path)
}

/// The newest of both kinds, half of each where both have enough, newest first.
fn choose(mut messages: Vec<Hit>, mut contents: Vec<Hit>, most: usize) -> Vec<Hit> {
    let room = most.saturating_sub(contents.len()).max(most.div_ceil(2));
    messages.truncate(room);
    contents.truncate(most - messages.len());
    messages.append(&mut contents);
    messages.sort_by_key(|hit| hit.place);
    messages
}

fn show(
    opened: &Opened,
    request: &Request,
    path: &[BString],
    hits: &[Hit],
    mut remarks: Vec<String>,
    deadline: &Deadline,
) -> Result<String, ToolError> {
    let mut page = Page::default();
    let mut comparison = Comparison::new(&opened.repository);
    let mut buffer = Vec::new();
    let mut shown = 0;
    for (position, hit) in hits.iter().enumerate() {
        if deadline.is_over() && position > 0 {
            break;
        }
        // What is left is shared out, so that one large commit does not hide the others.
        let room = page.room() / (hits.len() - position);
        let block = block(opened, request, path, hit, &mut comparison, &mut buffer, room)?;
        if !block.iter().all(|line| page.push(line)) {
            break;
        }
        shown += 1;
    }
    if hits.is_empty() {
        let what = match (&request.query, request.path.as_os_str().is_empty()) {
            (Some(query), _) => format!("no commit found for `{}`", cut(query, 200)),
            (None, false) => format!("no commit changed `{}`", crate::files::display_path(&request.path)),
            (None, true) => "no commit found".into(),
        };
        remarks.insert(0, what);
    } else if shown < hits.len() {
        remarks
            .insert(0, format!("{shown} of {} results shown; set max_results lower or show_diff to false", hits.len()));
    }
    Ok(page.finish(&remarks))
}

/// The lines for a commit.
fn block(
    opened: &Opened,
    request: &Request,
    path: &[BString],
    hit: &Hit,
    comparison: &mut Comparison<'_>,
    buffer: &mut Vec<u8>,
    room: usize,
) -> Result<Vec<String>, ToolError> {
    let repository = &opened.repository;
    let commit = repository.find_commit(hit.commit.id).map_err(|error| failed("read a commit", error))?;
    let author =
        commit.author().map_or_else(|_| "unknown".to_owned(), |author| author.name.to_str_lossy().into_owned());
    let message = message(repository, hit.commit.id, buffer).unwrap_or_default();
    let message = if holds_secret(&message) { "(message withheld: it may hold secrets)".to_owned() } else { message };
    let mut text = message.trim().lines();
    let subject = text.next().unwrap_or_default();
    let why = if hit.why.is_empty() { String::new() } else { format!(" [{}]", hit.why) };
    let mut lines = vec![format!(
        "{} {} {}: {}{why}",
        hit.commit.id.to_hex_with_len(12),
        date(Some(hit.commit.time)),
        clean(&author, 60),
        clean(subject, 200)
    )];
    let mut left = room.saturating_sub(lines[0].chars().count());
    if request.show_diff {
        for line in text.by_ref().skip_while(|line| line.trim().is_empty()).take(12) {
            push(&mut lines, &mut left, format!("    {}", clean(line, 200)));
        }
    }
    let Some(changes) = changes(comparison, &hit.commit, path)? else {
        lines.push("  (what it changed is not in this clone)".into());
        return Ok(lines);
    };
    let named = if request.show_diff { changes.len() } else { FILES_NAMED };
    for (position, change) in changes.iter().enumerate() {
        let named_all =
            position >= named || !push(&mut lines, &mut left, format!("  {}", patch::summary(change, &opened.prefix)));
        if named_all {
            lines.push(format!("  … {}", counted(changes.len() - position, "more file")));
            break;
        }
        if request.show_diff {
            let mut missing = 0;
            for line in patch::lines(opened, change, buffer, PATCH_LINES) {
                missing += usize::from(missing > 0 || !push(&mut lines, &mut left, format!("  {line}")));
            }
            if missing > 0 {
                lines.push(format!("  … {}; give path or a lower max_results", counted(missing, "more line")));
            }
        }
    }
    Ok(lines)
}

/// Adds a line where there is room for it.
fn push(lines: &mut Vec<String>, left: &mut usize, line: String) -> bool {
    let needed = line.chars().count() + 1;
    // The first few lines always fit: they are what makes a result one.
    if needed + 80 > *left && lines.len() > 2 {
        return false;
    }
    *left = left.saturating_sub(needed);
    lines.push(line);
    true
}

/// Without control characters, which a message may hold to mislead.
fn clean(text: &str, width: usize) -> String {
    cut(&text.replace(char::is_control, " "), width).into_owned()
}

fn date(seconds: Option<i64>) -> String {
    seconds.map_or_else(|| "its beginning".to_owned(), |seconds| Time::new(seconds, 0).format_or_unix(format::SHORT))
}

fn components(path: &Path) -> Result<Vec<BString>, ToolError> {
    path.iter()
        .map(|part| {
            gix::path::os_str_into_bstr(part)
                .map(ToOwned::to_owned)
                .map_err(|error| failed("use the path in git", error))
        })
        .collect()
}
