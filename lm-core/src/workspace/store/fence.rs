//! The fence: keeps a store from writing once another one was opened on the same directory.
//!
//! The file holds a counter and a random number. A store raises the counter when it is opened; before
//! each write it looks whether the file still says the same. Both happen under a lock on the file, so
//! that an older store's write has either ended before a younger one reads, or is refused.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _},
    path::PathBuf,
    time::{Duration, Instant},
};

use super::disk;

/// How long a lock is waited for. Whoever holds it writes a file; one that was stopped in the middle
/// must not stop others for ever.
const PATIENCE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(1);
/// A fence is never longer, in bytes.
const LENGTH_MAX: u64 = 64;

/// A store's place in the order of stores.
#[derive(Debug)]
pub(super) struct Fence {
    path: PathBuf,
    place: Place,
    patience: Duration,
}

#[derive(Debug)]
enum Place {
    /// The file says this since this store was opened.
    Raised(Vec<u8>),
    /// It could not be raised; this is what it said then.
    Seen(Vec<u8>),
    /// Another store was opened.
    Lost,
}

/// While it lives no other store writes.
#[derive(Debug)]
pub(super) struct Guard {
    _locked: File,
}

/// Why a store may not write.
#[derive(Debug)]
pub(super) enum Refused {
    /// Another one was opened.
    Superseded,
    /// The fence cannot be read or raised.
    Io(io::Error),
}

impl Fence {
    /// A fence that is not raised.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, place: Place::Seen(Vec::new()), patience: PATIENCE }
    }

    /// Raises the fence; where that cannot be done now, it is tried again before each write.
    pub(super) fn raise(&mut self) -> io::Result<Guard> {
        let raised = self.locked().and_then(|(mut file, found)| {
            self.place = Place::Seen(found);
            self.raise_in(&mut file)?;
            Ok(Guard { _locked: file })
        });
        if raised.is_err()
            && let Ok(Some(found)) = disk::read(&self.path, LENGTH_MAX)
        {
            // What a write that failed has left is not another store's.
            self.place = Place::Seen(found);
        }
        raised
    }

    /// Asks whether this store is still the youngest, and keeps others from writing meanwhile.
    pub(super) fn hold(&mut self) -> Result<Guard, Refused> {
        if matches!(self.place, Place::Lost) {
            return Err(Refused::Superseded);
        }
        let (mut file, found) = self.locked().map_err(Refused::Io)?;
        match &self.place {
            Place::Raised(own) if found == *own => {}
            // The file was removed and made anew just now, by this store's own hand.
            Place::Raised(own) if own.starts_with(&found) => {
                let written = file.rewind().and_then(|()| disk::write(&mut file, own));
                written.map_err(Refused::Io)?;
            }
            Place::Seen(seen) if found == *seen => {
                if let Err(error) = self.raise_in(&mut file) {
                    if let Ok(found) = read(&mut file) {
                        self.place = Place::Seen(found);
                    }
                    return Err(Refused::Io(error));
                }
            }
            Place::Raised(_) | Place::Seen(_) | Place::Lost => {
                self.place = Place::Lost;
                return Err(Refused::Superseded);
            }
        }
        Ok(Guard { _locked: file })
    }

    fn raise_in(&mut self, file: &mut File) -> io::Result<()> {
        let Place::Seen(seen) = &self.place else { return Ok(()) };
        let counter = std::str::from_utf8(seen).ok().and_then(|text| text.split(' ').next()?.parse().ok());
        // The random number tells two apart that could not lock each other out.
        let own = format!("{} {:016x}\n", counter.unwrap_or(0_u64).saturating_add(1), fastrand::u64(..)).into_bytes();
        file.rewind()?;
        disk::write(file, &own)?;
        if seen.len() > own.len() {
            disk::set_length(file, own.len() as u64)?;
        }
        self.place = Place::Raised(own);
        Ok(())
    }

    /// The file, locked where the file system can, and what it says.
    fn locked(&mut self) -> io::Result<(File, Vec<u8>)> {
        let mut file = disk::open(OpenOptions::new().read(true).write(true).create(true).truncate(false), &self.path)?;
        let start = Instant::now();
        // Named in full: std has a method of the same name from Rust 1.89 on.
        while let Err(error) = fs4::FileExt::try_lock(&file) {
            match error {
                fs4::TryLockError::WouldBlock if start.elapsed() < self.patience => std::thread::sleep(RETRY),
                fs4::TryLockError::WouldBlock => {
                    tracing::warn!(file = %self.path.display(), "another process holds the lock; going on without it");
                    self.patience = Duration::ZERO;
                    break;
                }
                fs4::TryLockError::Error(error) => {
                    tracing::debug!(%error, file = %self.path.display(), "going on without a lock");
                    break;
                }
            }
        }
        let found = read(&mut file)?;
        Ok((file, found))
    }
}

fn read(file: &mut File) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    file.rewind()?;
    file.take(LENGTH_MAX).read_to_end(&mut found)?;
    Ok(found)
}
