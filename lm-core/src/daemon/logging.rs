//! The daemon's log: one file, rotated by size, that a full disk never turns against the daemon.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    panic,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use lm_proto::DataDirectory;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt};

/// What is logged, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// The file.
    pub file: PathBuf,
    /// The file is rotated before it grows past this many bytes.
    pub max_bytes: u64,
    /// Rotated files that are kept, as `FILE.1` (the youngest) and so on.
    pub backups: u32,
    /// Log to standard error as well.
    pub to_stderr: bool,
}

/// Whether a log can be written there; an error names what is wrong.
///
/// # Errors
/// What the system says.
pub fn check(file: &Path) -> io::Result<()> {
    open_append(file).map(drop)
}

/// Sends events and panics to the log; without a file where none can be opened.
pub fn start(options: &LogOptions) {
    let filter =
        EnvFilter::try_new(format!("warn,lm_core={}", options.level)).unwrap_or_else(|_| EnvFilter::new("info"));
    let file = RotatingFile::open(&options.file, options.max_bytes, options.backups).ok().map(Mutex::new);
    let writer = LogWriter { file, to_stderr: options.to_stderr };
    let subscriber = tracing_subscriber::registry()
        .with(filter)
        .with(tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer));
    // Only a second call in one process finds one installed.
    let _ = subscriber.try_init();
    let default_hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let payload = panic.payload();
        let message = payload.downcast_ref::<&str>().copied();
        let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        tracing::error!(place, backtrace = %std::backtrace::Backtrace::capture(), "panic: {message}");
        default_hook(panic);
    }));
}

/// Says why a daemon did not start, where its starter looks for it.
///
/// That is standard error, and on Windows, where a daemon inherits none, the start log of `data`,
/// which is given unless a person watches.
pub fn report_failure(data: Option<&DataDirectory>, message: &str) {
    let line = format!("lm-core: {message}\n");
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(data) = data
        && cfg!(windows)
        && let Ok(mut log) = open_append(&data.start_log())
    {
        let _ = log.write_all(line.as_bytes());
    }
}

/// A file that makes room for itself.
#[derive(Debug)]
struct RotatingFile {
    path: PathBuf,
    file: File,
    length: u64,
    max_bytes: u64,
    backups: u32,
}

impl RotatingFile {
    fn open(path: &Path, max_bytes: u64, backups: u32) -> io::Result<Self> {
        let file = open_append(path)?;
        let metadata = file.metadata()?;
        // A device or a pipe is never moved out of the way: it is not ours, and not full either.
        let max_bytes = if metadata.is_file() { max_bytes.max(1) } else { u64::MAX };
        Ok(Self { path: path.to_owned(), file, length: metadata.len(), max_bytes, backups })
    }

    fn backup(&self, number: u32) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        name.into()
    }

    /// Moves `FILE` to `FILE.1` and so on; where that fails the file is emptied, since it must not
    /// grow without end either way.
    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.backups).rev() {
            let _ = fs::rename(self.backup(number), self.backup(number + 1));
        }
        if self.backups == 0 || fs::rename(&self.path, self.backup(1)).is_err() {
            OpenOptions::new().write(true).truncate(true).open(&self.path)?;
        } else {
            self.file = open_append(&self.path)?;
        }
        self.length = 0;
        Ok(())
    }
}

impl Write for RotatingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let adds = bytes.len() as u64;
        if self.length > 0 && self.length + adds > self.max_bytes {
            self.rotate()?;
        }
        let written = self.file.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn open_append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Where events go, one whole event at a time.
struct LogWriter {
    file: Option<Mutex<RotatingFile>>,
    to_stderr: bool,
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A line that cannot be written is lost; the daemon is worth more than its log.
        if let Some(file) = &self.file {
            let _ = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes);
        }
        if self.to_stderr {
            let _ = io::stderr().write_all(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn the_youngest_lines_are_kept_in_bounded_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = RotatingFile::open(&path, 20, 2).unwrap();
        for number in 0..10 {
            log.write_all(format!("line {number:03}\n").as_bytes()).unwrap();
        }
        assert_eq!(text(&path), "line 008\nline 009\n");
        assert_eq!(text(&log.backup(1)), "line 006\nline 007\n");
        assert_eq!(text(&log.backup(2)), "line 004\nline 005\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn an_existing_log_is_continued_and_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "old line\n").unwrap();
        let mut log = RotatingFile::open(&path, 12, 1).unwrap();
        log.write_all(b"new line\n").unwrap();
        assert_eq!((text(&path).as_str(), text(&log.backup(1)).as_str()), ("new line\n", "old line\n"));
    }

    #[test]
    fn without_backups_the_file_starts_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = RotatingFile::open(&path, 12, 0).unwrap();
        log.write_all(b"first one\n").unwrap();
        log.write_all(b"second one\n").unwrap();
        assert_eq!(text(&path), "second one\n");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_not_moved_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let listing = || fs::read_dir(directory.path()).unwrap().count();
        let status = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(status.success());
        // Somebody must read, or opening would wait.
        let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut log = RotatingFile::open(&path, 5, 1).unwrap();
        log.write_all(b"first line\n").unwrap();
        log.write_all(b"second line\n").unwrap();
        assert_eq!(listing(), 1);
        drop(reader);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_loses_lines_and_nothing_else() {
        let file = RotatingFile::open(Path::new("/dev/full"), 100, 1).unwrap();
        let writer = LogWriter { file: Some(Mutex::new(file)), to_stderr: false };
        assert_eq!((&writer).write(b"a line\n").unwrap(), 7);
    }
}
