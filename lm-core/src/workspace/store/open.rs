//! Opening a store: what lies there is read, set aside or repaired, and none of it keeps the store from
//! opening.

use std::{io, path::Path};

use lm_proto::directory::create_private;
use serde::de::DeserializeOwned;

use super::{
    EpochHeader, FENCE, JOURNAL_BYTES_MAX, KeptEpoch, Opened, PREVIOUS_SNAPSHOT, QUARANTINE, SNAPSHOT,
    SNAPSHOT_BYTES_MAX, SetAside, Store, disk,
    fence::Fence,
    journal::{self, Flaw, Found, Identity},
    journal_file::{JournalFile, Unwritten, journal_epoch, journal_name},
    quarantine::Quarantine,
    snapshot,
};
use crate::{agent::offline::counted, memory::log::Epoch};

impl Store {
    /// Opens the memory of the workspace `root`, whose full digest is `key`, in a directory whose parent
    /// exists. Older stores on the same directory write nothing from now on.
    ///
    /// Never fails: what cannot be used is set aside and reported, and a directory that cannot be used
    /// is said with each write.
    #[must_use]
    pub fn open<T: DeserializeOwned>(directory: &Path, root: &Path, key: &str) -> Opened<T> {
        let fence_path = directory.join(FENCE);
        let mut store = Self {
            directory: directory.to_path_buf(),
            identity: Identity::new(root, key),
            fence: Fence::new(fence_path.clone()),
            quarantine: Quarantine::new(directory.join(QUARANTINE)),
            is_known: false,
            journal: None,
            has_snapshot: false,
            archive_is_ragged: false,
            set_aside: Vec::new(),
        };
        // Nothing is looked for behind a link.
        if let Err(error) = create_private(directory) {
            tracing::error!(directory = %directory.display(), %error, "what is known of this workspace cannot be kept");
            return Opened { store, epoch: None, snapshot: None, set_aside: Vec::new() };
        }
        if disk::is_obstacle(&fence_path) {
            let reason = "is not a regular file".to_owned();
            store.take_aside(&fence_path, reason, "a new one takes its place");
        }
        let guard = store.fence.raise();
        if let Err(error) = &guard {
            tracing::error!(directory = %directory.display(), %error, "what is known of this workspace cannot be kept");
        }
        let epoch = store.load_journal();
        let snapshot = store.load_snapshot();
        if guard.is_ok() {
            store.remove_leftovers();
            if let Err(error) = store.write_journal() {
                tracing::warn!(%error, "a journal cannot be repaired now");
            }
        }
        drop(guard);
        let set_aside = store.take_set_aside();
        set_aside.iter().for_each(|set_aside| tracing::warn!("{set_aside}"));
        Opened { store, epoch, snapshot, set_aside }
    }

    /// Sets aside what could not even be looked at when the store was opened, so that it is not written
    /// over.
    pub(super) fn sweep(&mut self) -> io::Result<()> {
        for name in disk::names(&self.directory)? {
            if journal_epoch(&name).is_some() || name == SNAPSHOT || name == PREVIOUS_SNAPSHOT {
                let path = self.directory.join(name);
                let kept_as = Some(self.quarantine.take(&path)?);
                let reason = "could not be read when this workspace was opened".to_owned();
                let instead = "what was learned since takes its place".to_owned();
                self.set_aside.push(SetAside { file: path, reason, kept_as, instead });
            }
        }
        self.is_known = true;
        Ok(())
    }

    /// The newest journal that can be used; those that cannot are set aside.
    fn load_journal(&mut self) -> Option<KeptEpoch> {
        let names = match disk::names(&self.directory) {
            Ok(names) => names,
            Err(error) => {
                tracing::error!(directory = %self.directory.display(), %error, "what was kept cannot be listed");
                return None;
            }
        };
        self.is_known = true;
        let mut epochs: Vec<Epoch> = names.iter().filter_map(|name| journal_epoch(name)).collect();
        epochs.sort_unstable_by(|left, right| right.cmp(left));
        let before = self.set_aside.len();
        let mut unfinished = None;
        for epoch in epochs {
            let path = self.directory.join(journal_name(epoch));
            let read = disk::read(&path, JOURNAL_BYTES_MAX);
            let found = read.and_then(|bytes| {
                bytes.map_or(Err("is gone".to_owned()), |bytes| journal::decode(&bytes, &self.identity, epoch))
            });
            match found {
                // What it carried over is in the one before it, with all that was acknowledged.
                Ok(found) if found.is_unfinished && unfinished.is_none() => unfinished = Some((path, found)),
                Ok(found) => {
                    if let Some((path, _)) = unfinished {
                        self.take_aside(&path, "was not written to its end".to_owned(), "");
                    }
                    for set_aside in &mut self.set_aside[before..] {
                        set_aside.instead = format!("the conversation before it is used, `{}`", path.display());
                    }
                    return Some(self.continue_with(&path, found));
                }
                Err(reason) => self.take_aside(&path, reason, "the conversation begins without what it held"),
            }
        }
        let (path, found) = unfinished?;
        Some(self.continue_with(&path, found))
    }

    /// Takes up a journal that was read.
    fn continue_with(&mut self, path: &Path, found: Found) -> KeptEpoch {
        let Found { kept, length, is_ended, flaw, .. } = found;
        let exchanges = kept.exchanges.len();
        let mut journal = JournalFile {
            epoch: kept.epoch,
            exchanges: exchanges as u64,
            length,
            unwritten: Unwritten::Tail(if is_ended { Vec::new() } else { b"\n".to_vec() }),
            is_own: true,
        };
        let (reason, kept_as) = match flaw {
            None => {
                self.journal = Some(journal);
                return kept;
            }
            Some(Flaw::Torn) => ("is cut off at its end, as by a crash".to_owned(), None),
            Some(Flaw::Damaged) => {
                let copied = self.quarantine.copy(path);
                journal.is_own = copied.is_ok();
                let header =
                    EpochHeader { epoch: kept.epoch, name: &kept.name, system: &kept.system, model: &kept.model };
                match journal::encode(&self.identity, &header, &kept.opening, kept.exchanges.iter(), kept.lost) {
                    Ok(bytes) => (journal.length, journal.unwritten) = (0, Unwritten::Whole(bytes)),
                    Err(error) => tracing::error!(%error, "a journal cannot be repaired"),
                }
                let reason = match kept.lost {
                    0 => "is damaged, though no answer in it is lost".to_owned(),
                    lost => format!("is damaged, and {} in it cannot be read", counted(lost as usize, "answer")),
                };
                (reason, copied.ok())
            }
        };
        let instead = format!("{} in it can be used", counted(exchanges, "answer"));
        self.set_aside.push(SetAside { file: path.to_path_buf(), reason, kept_as, instead });
        self.journal = Some(journal);
        kept
    }

    fn load_snapshot<T: DeserializeOwned>(&mut self) -> Option<T> {
        let before = self.set_aside.len();
        for name in [SNAPSHOT, PREVIOUS_SNAPSHOT] {
            let path = self.directory.join(name);
            let content = match disk::read(&path, SNAPSHOT_BYTES_MAX) {
                Ok(None) => continue,
                Ok(Some(bytes)) => snapshot::decode(&bytes, &self.identity),
                Err(reason) => Err(reason),
            };
            match content {
                Ok(content) => {
                    self.has_snapshot = name == SNAPSHOT;
                    for set_aside in &mut self.set_aside[before..] {
                        set_aside.instead = format!("the one before it is used, `{}`", path.display());
                    }
                    return Some(content);
                }
                Err(reason) => self.take_aside(&path, reason, "what it held is learned anew"),
            }
        }
        None
    }

    /// Removes files that a crash kept from their place.
    fn remove_leftovers(&self) {
        for name in disk::names(&self.directory).unwrap_or_default() {
            let path = self.directory.join(&name);
            if disk::is_leftover(&name)
                && let Err(error) = disk::remove(&path)
            {
                tracing::warn!(%error, file = %path.display(), "cannot remove what a crash left");
            }
        }
    }
}
