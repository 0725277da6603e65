//! The file that the sums are kept in: a snapshot, then one line for each request since.
//!
//! Each request is appended at once, so that a daemon that dies loses nothing it has booked; the disk
//! is not waited for, so that a power failure may lose the last seconds. When the file has grown, a
//! thread of its own writes a fresh snapshot beside it and puts it in its place; what is booked
//! meanwhile goes to both. A file that cannot be read is set aside, never overwritten, and that
//! figures were lost is kept with them from then on.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::{
    day::Day,
    ledger::{Booking, Ledger, Spent},
    sum::Sum,
};

/// Bytes of appended lines after which a fresh snapshot is written.
const SNAPSHOT_AFTER: u64 = 256 << 10;
/// A larger file is not ours.
const SIZE_MAX: u64 = 64 << 20;
/// The version of the format.
const VERSION: u32 = 1;
/// Damaged files that are kept.
const SET_ASIDE_MAX: u32 = 3;

/// How snapshots are called before they are in place.
const FRESH_PREFIX: &str = ".spending-";
const FRESH_SUFFIX: &str = ".new";

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    /// The first.
    Header { version: u32 },
    /// All that was ever spent.
    Total { sum: Sum },
    /// What was spent on a day.
    Day { day: Day, sum: Sum },
    /// What was spent for a workspace; in the order in which they were booked.
    Workspace { name: String, sum: Sum },
    /// Requests to a model whose price was not known.
    Unpriced { model: String, requests: u64 },
    /// Figures were lost on this day.
    Damaged { day: Day },
    /// The snapshot is whole.
    End,
    /// A request since.
    Booked(Booking),
}

/// The sums and their file.
pub(super) struct Store {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ledger: Ledger,
    /// Open for appending; none before the first booking and while it cannot be written.
    file: Option<fs::File>,
    /// Bytes appended since the snapshot.
    appended: u64,
    /// Lines booked while a fresh snapshot is being written.
    meanwhile: Option<Vec<u8>>,
    /// The file lacks something that was booked.
    unsaved: bool,
    problem: Option<String>,
}

impl Store {
    pub(super) fn open(path: PathBuf, today: Day) -> Self {
        remove_leftovers(&path);
        let mut state = State::default();
        match read(&path) {
            Ok(None) => {}
            Ok(Some(found)) => state.take(&path, found, today),
            Err(error) => state.replace_damaged(&path, &format!("cannot be read: {error}"), today),
        }
        Self { path, state: Mutex::new(state) }
    }

    pub(super) fn today(&self, day: Day) -> Sum {
        self.lock().ledger.today(day)
    }

    pub(super) fn spent(&self, today: Day) -> Spent {
        let state = self.lock();
        state.ledger.spent(today, state.problem.clone())
    }

    pub(super) fn book(this: &Arc<Self>, booking: Booking) {
        let mut state = this.lock();
        state.ledger.book(&booking);
        state.append(&this.path, booking);
        let is_due = state.unsaved || state.appended >= SNAPSHOT_AFTER;
        if is_due && state.meanwhile.is_none() {
            this.begin_snapshot(&mut state, Arc::clone(this));
        }
    }

    fn begin_snapshot(&self, state: &mut State, this: Arc<Self>) {
        state.meanwhile = Some(Vec::new());
        let ledger = state.ledger.clone();
        let work = move || {
            let fresh = write_snapshot(&this.path, &ledger).and_then(|file| {
                file.as_file().sync_all()?;
                Ok(file)
            });
            {
                let mut state = this.lock();
                state.end_snapshot(&this.path, fresh);
                // A slow disk: as much was booked meanwhile as the next one begins for.
                if !state.unsaved && state.appended >= SNAPSHOT_AFTER {
                    this.begin_snapshot(&mut state, Arc::clone(&this));
                }
            }
            // Makes the rename itself durable; a file system that cannot is no reason to fail.
            #[cfg(unix)]
            if let Some(Ok(directory)) = this.path.parent().map(fs::File::open) {
                let _ = directory.sync_all();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("spending".into()).spawn(work) {
            state.meanwhile = None;
            state.fail(&self.path, &error);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no snapshot is being written.
    #[cfg(test)]
    pub(super) fn settle(&self) {
        while self.lock().meanwhile.is_some() {
            std::thread::yield_now();
        }
    }
}

impl State {
    /// Goes on with a file that was read.
    fn take(&mut self, path: &Path, found: Found, today: Day) {
        self.ledger = found.ledger;
        self.appended = found.appended;
        match found.flaw {
            Some(Flaw::Damaged(reason)) => return self.replace_damaged(path, &reason, today),
            Some(Flaw::CutOff) => {
                let problem = "the record of one request was cut off by a crash and is not counted";
                tracing::warn!(file = %path.display(), "{problem}");
                self.problem = Some(problem.to_owned());
            }
            None => {}
        }
        let opened = if found.ends_with_line && self.problem.is_none() {
            fs::OpenOptions::new().append(true).open(path)
        } else {
            write_snapshot(path, &self.ledger).and_then(|file| put(file, path))
        };
        match opened {
            Ok(file) => self.file = Some(file),
            Err(error) => self.fail(path, &error),
        }
    }

    /// Sets a damaged file aside and begins a new one with what could still be read.
    fn replace_damaged(&mut self, path: &Path, reason: &str, today: Day) {
        self.ledger.damaged = Some(today);
        let kept = match set_aside(path) {
            Ok(aside) => format!("kept as `{}`", aside.display()),
            Err(error) => return self.fail(path, &format_args!("it {reason}, and cannot be set aside: {error}")),
        };
        tracing::error!(file = %path.display(), kept, "the record of what was spent {reason}");
        self.problem = Some(format!("the record of what was spent {reason}; it is {kept}"));
        match write_snapshot(path, &self.ledger).and_then(|file| put(file, path)) {
            Ok(file) => self.file = Some(file),
            Err(error) => self.fail(path, &error),
        }
    }

    fn append(&mut self, path: &Path, booking: Booking) {
        let Ok(line) = text_of(&Line::Booked(booking)) else { return };
        if let Some(meanwhile) = &mut self.meanwhile {
            meanwhile.extend_from_slice(&line);
        }
        if self.unsaved {
            return;
        }
        let written = match &mut self.file {
            Some(file) => file.write_all(&line),
            None => write_snapshot(path, &self.ledger).and_then(|file| put(file, path)).map(|file| {
                self.file = Some(file);
            }),
        };
        self.appended += line.len() as u64;
        if let Err(error) = written {
            self.fail(path, &error);
        }
    }

    /// Puts a fresh snapshot in place of the file.
    fn end_snapshot(&mut self, path: &Path, fresh: io::Result<NamedTempFile>) {
        let meanwhile = self.meanwhile.take().unwrap_or_default();
        self.appended = meanwhile.len() as u64;
        // Closed first: Windows does not replace a file that is open.
        self.file = None;
        let placed = fresh.and_then(|mut file| {
            file.write_all(&meanwhile)?;
            put(file, path)
        });
        match placed {
            Ok(file) => {
                self.file = Some(file);
                if std::mem::take(&mut self.unsaved) {
                    self.problem = None;
                    tracing::info!("what was spent is kept again");
                }
            }
            // The old file still has everything if nothing failed before.
            Err(error) => match fs::OpenOptions::new().append(true).open(path) {
                Ok(file) if !self.unsaved => {
                    tracing::warn!(%error, "cannot write a fresh record of what was spent");
                    self.file = Some(file);
                }
                _ => self.fail(path, &error),
            },
        }
    }

    fn fail(&mut self, path: &Path, error: &dyn std::fmt::Display) {
        self.file = None;
        self.unsaved = true;
        let problem = format!(
            "what is spent cannot be kept in `{}`: {error}; until that works a restart forgets it",
            path.display()
        );
        if self.problem.as_ref() != Some(&problem) {
            tracing::error!("{problem}");
            self.problem = Some(problem);
        }
    }
}

fn text_of(line: &Line) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

/// Writes a snapshot beside the file, readable by the user alone.
fn write_snapshot(path: &Path, ledger: &Ledger) -> io::Result<NamedTempFile> {
    let directory = path.parent().ok_or_else(|| io::Error::other("it has no parent directory"))?;
    let mut lines = vec![Line::Header { version: VERSION }, Line::Total { sum: ledger.total }];
    lines.extend(ledger.days.iter().rev().map(|(day, sum)| Line::Day { day: *day, sum: *sum }));
    let mut workspaces: Vec<_> = ledger.workspaces.iter().collect();
    workspaces.sort_by_key(|(_, account)| account.turn);
    lines
        .extend(workspaces.into_iter().map(|(name, account)| Line::Workspace { name: name.clone(), sum: account.sum }));
    lines.extend(
        ledger.unpriced.iter().map(|(model, requests)| Line::Unpriced { model: model.clone(), requests: *requests }),
    );
    lines.extend(ledger.damaged.map(|day| Line::Damaged { day }));
    lines.push(Line::End);
    let mut text = Vec::new();
    for line in &lines {
        text.extend_from_slice(&text_of(line)?);
    }
    // The crate creates files with mode 0600.
    let mut file = tempfile::Builder::new().prefix(FRESH_PREFIX).suffix(FRESH_SUFFIX).tempfile_in(directory)?;
    file.write_all(&text)?;
    Ok(file)
}

/// Removes snapshots that a crash kept from their place.
fn remove_leftovers(path: &Path) {
    let Some(Ok(entries)) = path.parent().map(fs::read_dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(FRESH_PREFIX) && name.ends_with(FRESH_SUFFIX));
        if is_ours && let Err(error) = fs::remove_file(entry.path()) {
            tracing::warn!(%error, file = %entry.path().display(), "cannot remove what a crash left");
        }
    }
}

/// Moves a file into place; it stays open for appending, since only this process writes it.
fn put(file: NamedTempFile, path: &Path) -> io::Result<fs::File> {
    file.persist(path).map_err(|error| error.error)
}

fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let name = |number: u32| path.with_file_name(format!("spending-damaged-{number}.jsonl"));
    let free = (1..=SET_ASIDE_MAX).find(|number| !name(*number).exists()).unwrap_or(SET_ASIDE_MAX);
    fs::rename(path, name(free))?;
    Ok(name(free))
}

/// What a file holds.
struct Found {
    ledger: Ledger,
    appended: u64,
    ends_with_line: bool,
    flaw: Option<Flaw>,
}

enum Flaw {
    /// The last line was not written to its end, as a crash leaves it.
    CutOff,
    /// Something is missing or cannot be understood.
    Damaged(String),
}

/// Reads the file; `None` where there is none.
fn read(path: &Path) -> io::Result<Option<Found>> {
    // Looked at before it is opened: opening a pipe would wait for its writer.
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Err(io::Error::other("it is not a regular file")),
        Ok(metadata) if metadata.len() > SIZE_MAX => {
            return Err(io::Error::other(format!("it is larger than {SIZE_MAX} bytes")));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok(Some(parse(&fs::read(path)?)))
}

fn parse(bytes: &[u8]) -> Found {
    let mut ledger = Ledger::default();
    let (mut begun, mut whole, mut appended) = (false, false, 0);
    let mut flaw = None;
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((index, text)) = lines.next() {
        let Ok(line) = serde_json::from_slice(text) else {
            let is_last = lines.peek().is_none() && !text.ends_with(b"\n");
            let damage = || Flaw::Damaged(format!("cannot be understood in line {}", index + 1));
            flaw.get_or_insert_with(|| if is_last && whole { Flaw::CutOff } else { damage() });
            continue;
        };
        match line {
            Line::Header { version: VERSION } if index == 0 => begun = true,
            Line::Header { version } => {
                flaw.get_or_insert(Flaw::Damaged(format!("has a header of version {version} in line {}", index + 1)));
            }
            Line::Total { sum } => ledger.total += sum,
            Line::Day { day, sum } => {
                ledger.days.insert(day, sum);
            }
            Line::Workspace { name, sum } => ledger.load_workspace(&name, sum),
            Line::Unpriced { model, requests } => ledger.add_unpriced(&model, requests),
            Line::Damaged { day } => ledger.damaged = Some(day),
            Line::End => whole = true,
            Line::Booked(booking) => {
                appended += text.len() as u64;
                ledger.book(&booking);
            }
        }
    }
    if !(begun && whole) && flaw.is_none() {
        flaw = Some(Flaw::Damaged("is cut off".to_owned()));
    }
    Found { ledger, appended, ends_with_line: bytes.ends_with(b"\n"), flaw }
}
