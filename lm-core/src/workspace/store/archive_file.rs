//! The archive's file: records that are appended, and all of it written anew where that is shorter than
//! what it has grown to.

use std::{fs::OpenOptions, io, sync::Arc};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    SetAside, Store, StoreError, disk,
    journal::{Identity, other_version},
    record::{self, Piece},
};

const ARCHIVE: &str = "archive.jsonl";
/// The version of the format.
const VERSION: u32 = 1;
/// The largest file that is read, in bytes; it is written anew long before.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record<T> {
    Header { version: u32, root: Arc<str>, key: Arc<str> },
    Entry(T),
}

/// What was found.
struct Found<T> {
    entries: Vec<T>,
    is_damaged: bool,
    /// Whether it ends as an append does that was broken off.
    is_torn: bool,
}

impl Store {
    /// What was archived, oldest first, as far as it can be read; what cannot is set aside and reported.
    pub fn load_archive<T: DeserializeOwned>(&mut self) -> Vec<T> {
        let path = self.directory.join(ARCHIVE);
        let read = disk::read(&path, FILE_BYTES_MAX);
        let found = match read.and_then(|bytes| bytes.map(|bytes| decode(&bytes, &self.identity)).transpose()) {
            Ok(None) => return Vec::new(),
            Ok(Some(found)) => found,
            Err(reason) => {
                self.take_aside(&path, reason, "the archive begins without what it held");
                return Vec::new();
            }
        };
        self.archive_is_ragged = found.is_damaged || found.is_torn;
        if found.is_damaged {
            let copied = self.quarantine.copy(&path);
            let reason = "is damaged in part".to_owned();
            let instead = "the rest of it is used".to_owned();
            self.set_aside.push(SetAside { file: path, reason, kept_as: copied.ok(), instead });
        }
        found.entries
    }

    /// Appends to the archive. `all` is everything that it is to hold with these, for where it has to be
    /// written anew: where it is not there, was damaged, or has grown past twice its room.
    ///
    /// # Errors
    /// It could not be written.
    pub fn archive<'a, T: Serialize + 'a>(
        &mut self,
        new: impl IntoIterator<Item = &'a T>,
        all: impl IntoIterator<Item = &'a T>,
        bytes_max: u64,
    ) -> Result<(), StoreError> {
        let path = self.directory.join(ARCHIVE);
        let mut bytes = Vec::new();
        for entry in new {
            record::push(&mut bytes, &Record::Entry(entry))
                .map_err(|source| StoreError::Content { path: path.clone(), source })?;
        }
        let guard = self.ready()?;
        let failed = |source| StoreError::Io { path: path.clone(), source };
        let appended = !self.archive_is_ragged
            && match disk::open(OpenOptions::new().write(true), &path) {
                Ok(mut file) => {
                    let length = file.metadata().map_err(failed)?.len();
                    if length + bytes.len() as u64 <= bytes_max * 2 {
                        disk::write_behind(&mut file, length, &bytes).map_err(failed)?;
                        true
                    } else {
                        false
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(failed(error)),
            };
        drop(guard);
        if appended { Ok(()) } else { self.rewrite_archive(all) }
    }

    /// Writes the archive anew; nothing of what it held otherwise is left.
    ///
    /// # Errors
    /// It could not be written; the one before is still in place.
    pub fn rewrite_archive<'a, T: Serialize + 'a>(
        &mut self,
        all: impl IntoIterator<Item = &'a T>,
    ) -> Result<(), StoreError> {
        let path = self.directory.join(ARCHIVE);
        let header: Record<&T> = Record::Header {
            version: VERSION,
            root: self.identity.root.as_str().into(),
            key: self.identity.key.as_str().into(),
        };
        let mut bytes = Vec::new();
        let pushed = record::push(&mut bytes, &header)
            .and_then(|()| all.into_iter().try_for_each(|entry| record::push(&mut bytes, &Record::Entry(entry))));
        pushed.map_err(|source| StoreError::Content { path: path.clone(), source })?;
        let _guard = self.ready()?;
        let failed = |source| StoreError::Io { path: path.clone(), source };
        let fresh = disk::write_fresh(&self.directory, &bytes, true).map_err(failed)?;
        if disk::is_obstacle(&path) {
            self.quarantine.take(&path).map_err(failed)?;
        }
        disk::put(fresh, &path).map_err(failed)?;
        self.archive_is_ragged = false;
        disk::sync_directory(&self.directory).map_err(failed)
    }
}

fn decode<T: DeserializeOwned>(bytes: &[u8], identity: &Identity) -> Result<Found<T>, String> {
    let mut found = Found { entries: Vec::new(), is_damaged: false, is_torn: false };
    let mut has_header = false;
    for piece in record::pieces(bytes) {
        let text = match piece {
            Piece::Record { text, is_ended } => {
                found.is_torn |= !is_ended;
                &bytes[text]
            }
            // The end of an append that was broken off was never acknowledged.
            Piece::Damage { is_torn } => {
                found.is_torn |= is_torn;
                found.is_damaged |= !is_torn;
                continue;
            }
        };
        match serde_json::from_slice::<Record<T>>(text) {
            Ok(Record::Header { version, .. }) if version != VERSION => {
                return Err(other_version(version.into(), VERSION));
            }
            Ok(Record::Header { root, key, .. }) => {
                if (&*root, &*key) != (identity.root.as_str(), identity.key.as_str()) {
                    return Err("belongs to another workspace".to_owned());
                }
                has_header = true;
            }
            Ok(Record::Entry(entry)) => found.entries.push(entry),
            Err(_) => found.is_damaged = true,
        }
    }
    if has_header { Ok(found) } else { Err("has no beginning that can be read".to_owned()) }
}
