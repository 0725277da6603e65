//! The journal's file: appended to at its end, or put in place as a whole.

use std::{
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
};

use super::{JOURNAL_BYTES_MAX, SetAside, StoreError, disk, journal, quarantine::Quarantine};
use crate::memory::log::{Epoch, Exchange};

/// The journal that exchanges are appended to.
#[derive(Debug)]
pub(super) struct JournalFile {
    pub(super) epoch: Epoch,
    /// Exchanges in it, those that are still to be written included.
    pub(super) exchanges: u64,
    /// Bytes of it that are whole and durable.
    pub(super) length: u64,
    pub(super) unwritten: Unwritten,
    /// Whether the file in its place may be replaced, since all of it is known.
    pub(super) is_own: bool,
}

/// What an earlier failure left to be written.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// What goes behind that which is there; empty where there is none.
    Tail(Vec<u8>),
    /// All of it.
    Whole(Vec<u8>),
}

impl JournalFile {
    fn path(&self, directory: &Path) -> PathBuf {
        directory.join(journal_name(self.epoch))
    }

    /// Adds an exchange to what is to be written.
    pub(super) fn push(&mut self, exchange: &Exchange, directory: &Path) -> Result<(), StoreError> {
        let path = self.path(directory);
        let (Unwritten::Tail(bytes) | Unwritten::Whole(bytes)) = &mut self.unwritten;
        let before = bytes.len();
        let pushed = journal::push(bytes, self.exchanges, exchange)
            .map_err(|source| StoreError::Content { path: path.clone(), source })
            .and_then(|()| within(self.length as usize + bytes.len(), &path, JOURNAL_BYTES_MAX));
        match pushed {
            Ok(()) => self.exchanges += 1,
            Err(_) => bytes.truncate(before),
        }
        pushed
    }

    /// Writes what is to be written; what lies in its way and is not known is set aside.
    pub(super) fn write(&mut self, directory: &Path, quarantine: &Quarantine) -> Result<Option<SetAside>, StoreError> {
        let path = self.path(directory);
        let failed = |source| StoreError::Io { path: path.clone(), source };
        let mut set_aside = None;
        self.length = match &self.unwritten {
            Unwritten::Tail(bytes) => {
                let mut file = match disk::open(OpenOptions::new().write(true), &path) {
                    Ok(file) => file,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        return Err(StoreError::NoJournal(directory.to_path_buf()));
                    }
                    Err(error) => return Err(failed(error)),
                };
                if file.metadata().map_err(failed)?.len() < self.length {
                    return Err(StoreError::NoJournal(directory.to_path_buf()));
                }
                disk::write_behind(&mut file, self.length, bytes).map_err(failed)?;
                self.length + bytes.len() as u64
            }
            Unwritten::Whole(bytes) => {
                // One wait for the disk instead of two. After a power failure the file may have its name
                // and lack some of its bytes; then it is unfinished, and the generation before it is used.
                let syncs_once = disk::SYNCING_KEEPS_THE_NAME && !disk::exists(&path);
                let fresh = disk::write_fresh(directory, bytes, !syncs_once).map_err(failed)?;
                if !self.is_own && disk::exists(&path) {
                    let kept_as = Some(quarantine.take(&path).map_err(failed)?);
                    let reason = "lies where a new journal goes".to_owned();
                    let instead = "it is not used".to_owned();
                    set_aside = Some(SetAside { file: path.clone(), reason, kept_as, instead });
                }
                disk::put(fresh, &path).map_err(failed)?;
                self.is_own = true;
                let synced = if syncs_once { disk::sync_with_name(&path) } else { disk::sync_directory(directory) };
                synced.map_err(failed)?;
                bytes.len() as u64
            }
        };
        self.unwritten = Unwritten::Tail(Vec::new());
        Ok(set_aside)
    }
}

pub(super) fn journal_name(epoch: Epoch) -> String {
    format!("journal-{}.jsonl", epoch.0)
}

pub(super) fn journal_epoch(name: &str) -> Option<Epoch> {
    let epoch = Epoch(name.strip_prefix("journal-")?.strip_suffix(".jsonl")?.parse().ok()?);
    (journal_name(epoch) == name).then_some(epoch)
}

pub(super) fn within(bytes: usize, path: &Path, bytes_max: u64) -> Result<(), StoreError> {
    if bytes as u64 > bytes_max {
        return Err(StoreError::TooLarge { path: path.to_path_buf(), bytes_max });
    }
    Ok(())
}
