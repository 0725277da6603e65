//! The life lock: whoever holds it is the daemon of its data directory.
//!
//! The kernel gives the lock back when the process ends, however it ends; so a dead daemon is never
//! taken for a living one, nor the other way round.

use std::{
    fs::{File, OpenOptions},
    io,
    time::{Duration, Instant},
};

use lm_proto::DataDirectory;

/// How often a held lock is tried again.
const RETRY: Duration = Duration::from_millis(5);

/// The life lock, held until this value is dropped or the process ends.
#[derive(Debug)]
pub struct LifeLock {
    _file: File,
}

impl LifeLock {
    /// Takes the lock, trying for `patience`; `None` if another daemon held it all that time.
    ///
    /// # Errors
    /// Where the lock's file cannot be opened or the file system knows no locks.
    pub async fn acquire(data: &DataDirectory, patience: Duration) -> io::Result<Option<Self>> {
        let file = open(data)?;
        let start = Instant::now();
        loop {
            // Named in full: std has a method of the same name from Rust 1.89 on.
            match fs4::FileExt::try_lock(&file) {
                Ok(()) => return Ok(Some(Self { _file: file })),
                Err(fs4::TryLockError::WouldBlock) if start.elapsed() < patience => tokio::time::sleep(RETRY).await,
                Err(fs4::TryLockError::WouldBlock) => return Ok(None),
                Err(fs4::TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

/// Opens the lock's file, which stays empty: on Windows a locked file cannot be read by others.
fn open(data: &DataDirectory) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(data.life_lock())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_holds_it_and_the_next_gets_it_afterwards() {
        let temporary = tempfile::tempdir().unwrap();
        let data = DataDirectory::open_at(temporary.path().join("data")).unwrap();
        let first = LifeLock::acquire(&data, Duration::ZERO).await.unwrap();
        assert!(first.is_some());
        assert!(LifeLock::acquire(&data, Duration::from_millis(20)).await.unwrap().is_none());
        let waiting = tokio::spawn({
            let data = data.clone();
            async move { LifeLock::acquire(&data, Duration::from_secs(30)).await }
        });
        drop(first);
        assert!(waiting.await.unwrap().unwrap().is_some());
    }
}
