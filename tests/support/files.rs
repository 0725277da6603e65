//! What lies in a directory.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// All regular files in a directory and below it; links are not followed.
#[must_use]
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
