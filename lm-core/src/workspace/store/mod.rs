//! What a workspace's memory leaves on disk, and how it comes back.
//!
//! The *journal* of an epoch is the truth: its header, then each exchange, appended and durable before
//! an answer is acknowledged (`journal`, `record`). Beside it lies a *snapshot* of whatever else is
//! known (`snapshot`), and of both the generation before. What left the window is appended to an archive
//! (`archive_file`). What cannot be used is never written over: it goes to the `quarantine` and is
//! reported. The `fence` keeps a daemon that is being replaced from writing over its successor. Opening
//! never fails; a store that cannot write keeps what it was given in memory, says why at each write, and
//! writes all of it when it can.
//!
//! Everything blocks, so that it is called from threads that may. Not allowed here: deciding what is
//! worth keeping, knowing what a snapshot holds, files outside its own directory.

mod archive_file;
mod disk;
mod error;
mod fence;
mod journal;
mod journal_file;
mod open;
mod quarantine;
mod record;
mod snapshot;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use lm_proto::directory::create_private;
use serde::Serialize;

pub use error::StoreError;
pub use journal::{EpochHeader, KeptEpoch};
pub use quarantine::SetAside;

use self::{
    fence::{Fence, Guard, Refused},
    journal::Identity,
    journal_file::{JournalFile, Unwritten, journal_epoch, journal_name, within},
    quarantine::Quarantine,
};
use crate::memory::log::{Epoch, Exchange, Opening};

/// The largest journal, in bytes; a window of a million tokens takes a fifth.
const JOURNAL_BYTES_MAX: u64 = 32 << 20;
/// The largest snapshot, in bytes.
const SNAPSHOT_BYTES_MAX: u64 = 32 << 20;

const FENCE: &str = "fence";
const QUARANTINE: &str = "quarantine";
const SNAPSHOT: &str = "memory.json";
const PREVIOUS_SNAPSHOT: &str = "memory.previous.json";

/// The files of one workspace's memory.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    identity: Identity,
    fence: Fence,
    quarantine: Quarantine,
    /// Whether what lay there was read, or set aside.
    is_known: bool,
    journal: Option<JournalFile>,
    /// Whether the snapshot in place is one that could be read or was written here.
    has_snapshot: bool,
    /// Whether the archive is to be written anew, since something in it cannot be read.
    archive_is_ragged: bool,
    set_aside: Vec<SetAside>,
}

/// A store, and what it had kept.
#[derive(Debug)]
pub struct Opened<T> {
    /// The store.
    pub store: Store,
    /// The newest epoch that can be used.
    pub epoch: Option<KeptEpoch>,
    /// The newest snapshot that can be used.
    pub snapshot: Option<T>,
    /// What could not be used as it was.
    pub set_aside: Vec<SetAside>,
}

impl Store {
    /// Begins an epoch: a new journal takes the place of the one before, which stays until the next one
    /// begins. `exchanges` are those it carries over. May also begin the present epoch anew.
    ///
    /// # Errors
    /// It could not be written; unless another store was opened it is kept here and written with the
    /// next exchange or by [`Self::flush`].
    pub fn begin(
        &mut self,
        header: &EpochHeader<'_>,
        opening: &Opening,
        exchanges: &[Arc<Exchange>],
    ) -> Result<(), StoreError> {
        let path = self.directory.join(journal_name(header.epoch));
        let carried = exchanges.iter().map(Arc::as_ref);
        let bytes = journal::encode(&self.identity, header, opening, carried, 0)
            .map_err(|source| StoreError::Content { path: path.clone(), source })?;
        let is_own = self.journal.as_ref().is_some_and(|journal| journal.epoch == header.epoch && journal.is_own);
        // The last one is complete and must not grow any more, whatever becomes of this one.
        self.journal = None;
        within(bytes.len(), &path, JOURNAL_BYTES_MAX)?;
        self.journal = Some(JournalFile {
            epoch: header.epoch,
            exchanges: exchanges.len() as u64,
            length: 0,
            unwritten: Unwritten::Whole(bytes),
            is_own,
        });
        self.flush()
    }

    /// Appends an exchange. It is durable when this returns.
    ///
    /// # Errors
    /// It could not be written; unless there is no journal or another store was opened, it is kept here
    /// and written before the next one or by [`Self::flush`].
    pub fn append(&mut self, exchange: &Exchange) -> Result<(), StoreError> {
        let Some(journal) = &mut self.journal else {
            // Rather that another store was opened, if that is why.
            self.ready()?;
            return Err(StoreError::NoJournal(self.directory.clone()));
        };
        journal.push(exchange, &self.directory)?;
        self.flush()
    }

    /// Writes what earlier failures left unwritten, if anything.
    ///
    /// # Errors
    /// It cannot be written now either.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        if !self.is_behind() {
            return Ok(());
        }
        let _guard = self.ready()?;
        self.write_journal()
    }

    /// Writes what is to be written of the journal, and removes what that makes superfluous.
    fn write_journal(&mut self) -> Result<(), StoreError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let begins = matches!(journal.unwritten, Unwritten::Whole(_));
        let epoch = journal.epoch;
        match journal.write(&self.directory, &self.quarantine) {
            Ok(None) => {}
            Ok(Some(set_aside)) => self.set_aside.push(set_aside),
            Err(error) => {
                if matches!(error, StoreError::NoJournal(_)) {
                    self.journal = None;
                }
                return Err(error);
            }
        }
        if begins {
            self.drop_generations(epoch);
        }
        Ok(())
    }

    /// Whether something was given that is not on disk.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| match &journal.unwritten {
            Unwritten::Tail(bytes) => !bytes.is_empty(),
            Unwritten::Whole(_) => true,
        })
    }

    /// Puts a snapshot in place, and keeps the one before.
    ///
    /// # Errors
    /// It could not be written; the one before is still in place.
    pub fn save(&mut self, content: &impl Serialize) -> Result<(), StoreError> {
        let path = self.directory.join(SNAPSHOT);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let bytes = snapshot::encode(&self.identity, content, now)
            .map_err(|error| StoreError::Content { path: path.clone(), source: error.into() })?;
        within(bytes.len(), &path, SNAPSHOT_BYTES_MAX)?;
        let _guard = self.ready()?;
        let failed = |source| StoreError::Io { path: path.clone(), source };
        let fresh = disk::write_fresh(&self.directory, &bytes, true).map_err(failed)?;
        if self.has_snapshot {
            let previous = self.directory.join(PREVIOUS_SNAPSHOT);
            if disk::is_obstacle(&previous) {
                self.take_aside(&previous, "is not a regular file".to_owned(), "a new one takes its place");
            }
            // Missing where someone removed it.
            if disk::exists(&path) {
                disk::rename(&path, &previous).map_err(failed)?;
            }
        } else if disk::exists(&path) {
            self.quarantine.take(&path).map_err(failed)?;
        }
        disk::put(fresh, &path).map_err(failed)?;
        self.has_snapshot = true;
        disk::sync_directory(&self.directory).map_err(failed)
    }

    /// Removes everything of the memory, in all generations, and what was set aside. Of the directory
    /// only the fence stays, which keeps older stores from writing. The store can be used further.
    ///
    /// # Errors
    /// Something could not be removed; the rest is.
    pub fn erase(&mut self) -> Result<(), StoreError> {
        if !disk::exists(&self.directory) {
            self.forget();
            return Ok(());
        }
        let _guard = self.hold()?;
        self.forget();
        disk::clear(&self.directory, FENCE).map_err(|source| StoreError::Io { path: self.directory.clone(), source })
    }

    /// Removes everything of a memory that is not open here; stores that are open elsewhere write
    /// nothing there from now on.
    ///
    /// # Errors
    /// Something could not be removed; the rest is.
    pub fn erase_at(directory: &Path) -> Result<(), StoreError> {
        if !disk::exists(directory) {
            return Ok(());
        }
        let failed = |source| StoreError::Io { path: directory.to_path_buf(), source };
        create_private(directory).map_err(failed)?;
        let fence = directory.join(FENCE);
        if disk::is_obstacle(&fence) {
            disk::remove(&fence).map_err(failed)?;
        }
        let _guard = Fence::new(fence).raise().map_err(failed)?;
        disk::clear(directory, FENCE).map_err(failed)
    }

    /// Removes every generation but the present one, and what was set aside: something in there is to be
    /// forgotten.
    ///
    /// # Errors
    /// Something could not be removed; the rest is.
    pub fn drop_all_generations(&mut self) -> Result<(), StoreError> {
        let _guard = self.ready()?;
        let present = self.journal.as_ref().map(|journal| journal_name(journal.epoch));
        let failed = |source| StoreError::Io { path: self.directory.clone(), source };
        let names = disk::names(&self.directory).map_err(failed)?;
        let is_older = |name: &&String| {
            **name == PREVIOUS_SNAPSHOT
                || **name == QUARANTINE
                || (journal_epoch(name).is_some() && Some(*name) != present.as_ref())
        };
        let mut outcome = Ok(());
        for name in names.iter().filter(is_older) {
            outcome = outcome.and(disk::remove(&self.directory.join(name)));
        }
        outcome.and_then(|()| disk::sync_directory(&self.directory)).map_err(failed)
    }

    /// What could not be used as it was, and was found after the store was opened. Each is told once.
    #[must_use]
    pub fn take_set_aside(&mut self) -> Vec<SetAside> {
        std::mem::take(&mut self.set_aside)
    }

    fn forget(&mut self) {
        self.journal = None;
        self.has_snapshot = false;
        self.is_known = true;
        self.set_aside.clear();
    }

    /// Makes sure that this store may write, and keeps others from it meanwhile.
    fn ready(&mut self) -> Result<Guard, StoreError> {
        create_private(&self.directory).map_err(|source| StoreError::Io { path: self.directory.clone(), source })?;
        let guard = self.hold()?;
        if !self.is_known {
            self.sweep().map_err(|source| StoreError::Io { path: self.directory.clone(), source })?;
        }
        Ok(guard)
    }

    fn hold(&mut self) -> Result<Guard, StoreError> {
        self.fence.hold().map_err(|refused| match refused {
            Refused::Superseded => {
                self.journal = None;
                StoreError::Superseded(self.directory.clone())
            }
            Refused::Io(source) => StoreError::Io { path: self.directory.join(FENCE), source },
        })
    }

    /// Keeps the newest journal before `epoch` and removes the older ones.
    fn drop_generations(&mut self, epoch: Epoch) {
        let names = disk::names(&self.directory).unwrap_or_default();
        let mut epochs: Vec<Epoch> = names.iter().filter_map(|name| journal_epoch(name)).collect();
        epochs.sort_unstable();
        for later in epochs.iter().filter(|other| **other > epoch) {
            let path = self.directory.join(journal_name(*later));
            self.take_aside(&path, "is of a later epoch than the one that begins".to_owned(), "it is not used");
        }
        epochs.retain(|other| *other < epoch);
        epochs.pop();
        for older in epochs {
            let path = self.directory.join(journal_name(older));
            if let Err(error) = disk::remove(&path) {
                tracing::warn!(%error, file = %path.display(), "cannot remove an old journal");
            }
        }
    }

    fn take_aside(&mut self, path: &Path, reason: String, instead: &str) {
        self.set_aside.push(self.quarantine.set_aside(path, reason, instead));
    }
}

#[cfg(test)]
mod tests;
