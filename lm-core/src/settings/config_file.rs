//! `config.json` on the disk: read tolerantly, written atomically and privately.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde_json::{Map, Value as Json};
use thiserror::Error;

/// A larger file is not ours.
const SIZE_MAX: u64 = 1 << 20;

/// What to do about a file that is no JSON object.
const REPAIR: &str = "; repair or remove it";

/// Why `config.json` cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// It is there and cannot be read.
    #[error("cannot read `{}`: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// It is no JSON object.
    #[error("`{}` is not valid, {}: {reason}{REPAIR}", path.display(), place(*line, *column))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1; 0 where the line ended before its first letter.
        column: usize,
        /// What the parser said.
        reason: String,
    },
    /// It cannot be written.
    #[error("cannot write `{}`: {reason}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
}

impl ConfigError {
    /// What is wrong, without what to do about it.
    #[must_use]
    pub fn finding(&self) -> String {
        let text = self.to_string();
        text.strip_suffix(REPAIR).map_or(text.clone(), str::to_owned)
    }
}

fn place(line: usize, column: usize) -> String {
    if column == 0 { format!("line {line}") } else { format!("line {line}, column {column}") }
}

/// What tells one version of a file from another without reading it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
    #[cfg(unix)]
    inode: u64,
}

/// The file's stamp; `None` where there is no file.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some(Stamp {
        length: metadata.len(),
        modified: metadata.modified().ok(),
        #[cfg(unix)]
        inode: std::os::unix::fs::MetadataExt::ino(&metadata),
    })
}

/// Reads the file; one that is missing or empty sets nothing.
pub(super) fn read(path: &Path) -> Result<Map<String, Json>, ConfigError> {
    let unreadable = |reason: String| ConfigError::Unreadable { path: path.to_owned(), reason };
    // Looked at before it is opened: opening a pipe would wait for its writer.
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Err(unreadable("it is not a regular file".into())),
        Ok(metadata) if metadata.len() > SIZE_MAX => {
            return Err(unreadable(format!("it is larger than {SIZE_MAX} bytes")));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Map::new()),
        Err(error) => return Err(unreadable(error.to_string())),
    }
    let bytes = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    parse(&bytes).map_err(|(line, column, reason)| ConfigError::Invalid { path: path.to_owned(), line, column, reason })
}

/// Line, column and what is wrong.
type Flaw = (usize, usize, String);

fn parse(bytes: &[u8]) -> Result<Map<String, Json>, Flaw> {
    // Editors on Windows put a byte order mark in front, and some write UTF-16.
    let text = match bytes {
        [0xEF, 0xBB, 0xBF, rest @ ..] => std::str::from_utf8(rest),
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => {
            return Err((1, 1, "it is UTF-16; save it as UTF-8".into()));
        }
        _ => std::str::from_utf8(bytes),
    };
    let text = text.map_err(|error| {
        let before = &bytes[..error.valid_up_to().min(bytes.len())];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        (line, 1, "it is not UTF-8".to_owned())
    })?;
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Json::Object(object)) => Ok(object),
        Ok(_) => Err((1, 1, "it must be one JSON object, `{ … }`".into())),
        Err(error) => {
            // The parser repeats the place at the end of its message.
            let message = error.to_string();
            let reason = message.split(" at line ").next().unwrap_or(&message);
            let reason = reason.replace("EOF while parsing", "it ends inside");
            Err((error.line(), error.column(), reason))
        }
    }
}

/// Replaces the file as a whole, readable by the user alone. Where it is a link, what it points to is
/// replaced and the link stays.
pub(super) fn write(path: &Path, document: &Map<String, Json>) -> Result<(), ConfigError> {
    let unwritable =
        |error: &dyn std::fmt::Display| ConfigError::Unwritable { path: path.to_owned(), reason: error.to_string() };
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = target.parent().ok_or_else(|| unwritable(&"it has no parent directory"))?;
    let mut text = serde_json::to_string_pretty(document).map_err(|error| unwritable(&error))?;
    text.push('\n');
    // The crate creates files with mode 0600.
    let mut file = tempfile::Builder::new()
        .prefix(".config-")
        .suffix(".new")
        .tempfile_in(directory)
        .map_err(|error| unwritable(&error))?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(|error| unwritable(&error))?;
    replace(file.into_temp_path(), &target).map_err(|error| unwritable(&error))
}

#[cfg(not(windows))]
fn replace(file: tempfile::TempPath, target: &Path) -> io::Result<()> {
    file.persist(target).map_err(|error| error.error)?;
    // Makes the rename itself durable; a file system that cannot is no reason to fail.
    if let Some(Ok(directory)) = target.parent().map(fs::File::open) {
        let _ = directory.sync_all();
    }
    Ok(())
}

/// Scanners hold fresh files open for a moment (astral-sh/uv#1491), so that a rename is retried.
#[cfg(windows)]
fn replace(mut file: tempfile::TempPath, target: &Path) -> io::Result<()> {
    const ATTEMPTS: u32 = 10;
    let mut attempt = 1;
    loop {
        match file.persist(target) {
            Ok(()) => return Ok(()),
            Err(refused) if refused.error.kind() == io::ErrorKind::PermissionDenied && attempt < ATTEMPTS => {
                file = refused.path;
                std::thread::sleep(std::time::Duration::from_millis(10 << attempt.min(5)));
                attempt += 1;
            }
            Err(refused) => return Err(refused.error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_and_carriage_returns_are_no_error() {
        let document = parse(b"\xEF\xBB\xBF{\r\n  \"log_level\": \"debug\"\r\n}\r\n").unwrap();
        assert_eq!(document["log_level"], "debug");
        assert!(parse(b"").unwrap().is_empty());
        assert!(parse(b"\xEF\xBB\xBF\r\n").unwrap().is_empty());
    }

    #[test]
    fn a_flaw_is_named_with_its_place() {
        assert_eq!(parse(b"{\n  \"a\": 1,\n}").unwrap_err(), (3, 1, "trailing comma".into()));
        assert_eq!(parse(b"[1]").unwrap_err().2, "it must be one JSON object, `{ … }`");
        assert_eq!(parse(b"{}\n\xFF").unwrap_err(), (2, 1, "it is not UTF-8".into()));
        assert!(parse(b"\xFF\xFE{\0}\0").unwrap_err().2.contains("UTF-16"));
    }

    #[test]
    fn a_flaw_at_the_end_of_a_line_has_no_column() {
        let said = |bytes: &[u8]| {
            let (line, column, reason) = parse(bytes).unwrap_err();
            ConfigError::Invalid { path: "c".into(), line, column, reason }.to_string()
        };
        assert_eq!(said(b"{\n"), "`c` is not valid, line 2: it ends inside an object; repair or remove it");
        assert_eq!(
            said(b"[]"),
            "`c` is not valid, line 1, column 1: it must be one JSON object, `{ … }`; repair or remove it"
        );
    }

    #[test]
    fn what_is_written_is_private_whole_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        let document: Map<String, Json> = serde_json::from_str(r#"{"provider": "offline", "theirs": [1, 2]}"#).unwrap();
        write(&path, &document).unwrap();
        assert_eq!(read(&path).unwrap(), document);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left behind");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_linked_file_stays_linked() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("dotfiles.json");
        let path = directory.path().join("config.json");
        fs::write(&target, "{}").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        write(&path, &serde_json::from_str(r#"{"log_level": "warn"}"#).unwrap()).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        assert!(fs::read_to_string(&target).unwrap().contains("warn"));
    }

    #[test]
    fn a_directory_in_its_place_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let error = read(directory.path()).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}
