//! What is kept of one workspace on the disk: a directory under its key, with everything in it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use lm_proto::{DataDirectory, directory::create_private};

/// What begins the name of a directory that is being removed. No key begins like this.
const REMOVED: &str = "forgotten-";

/// The place of one workspace.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    all: PathBuf,
    key: String,
}

/// How much is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeptSize {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Kept {
    pub(super) fn new(data: &DataDirectory, key: &str) -> Self {
        Self { all: data.workspaces(), key: key.to_owned() }
    }

    fn directory(&self) -> PathBuf {
        self.all.join(&self.key)
    }

    /// Where the search index lies.
    pub(super) fn index(&self) -> PathBuf {
        self.directory().join("index")
    }

    /// Where the memory lies.
    pub(super) fn memory(&self) -> PathBuf {
        self.directory().join("memory")
    }

    pub(super) fn exists(&self) -> bool {
        fs::symlink_metadata(self.directory()).is_ok()
    }

    /// Makes the place, private to the user.
    pub(super) fn create(&self) -> io::Result<()> {
        create_private(&self.all)?;
        create_private(&self.directory())
    }

    fn pause_mark(&self) -> PathBuf {
        self.directory().join("paused")
    }

    /// Whether learning is paused.
    pub(super) fn is_paused(&self) -> bool {
        fs::symlink_metadata(self.pause_mark()).is_ok()
    }

    /// Pauses learning until it is taken back, also by later daemons.
    pub(super) fn set_paused(&self, paused: bool) -> io::Result<()> {
        if paused {
            self.create()?;
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            return options.open(self.pause_mark()).and_then(|file| file.sync_all());
        }
        match fs::remove_file(self.pause_mark()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// How much is there; links are not followed.
    pub(super) fn size(&self) -> KeptSize {
        let mut size = KeptSize::default();
        let mut rest = vec![self.directory()];
        while let Some(directory) = rest.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => rest.push(entry.path()),
                    Ok(metadata) => {
                        size.files += 1;
                        size.bytes += metadata.len();
                    }
                    Err(_) => {}
                }
            }
        }
        size
    }

    /// Removes all of it. Under another name first, so that what a crash leaves of it is never opened
    /// as if it were whole.
    pub(super) fn remove(&self) -> io::Result<()> {
        let aside = self.all.join(format!("{REMOVED}{}", self.key));
        remove(&aside)?;
        match fs::rename(self.directory(), &aside) {
            Ok(()) => remove(&aside),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // On Windows a directory in which a file is open keeps its name.
            Err(_) => remove(&self.directory()),
        }
    }

    /// The keys of all that anything is kept of.
    pub(super) fn keys(data: &DataDirectory) -> Vec<String> {
        names(&data.workspaces()).filter(|name| !name.starts_with(REMOVED)).collect()
    }

    /// Removes what an earlier process has not come to remove.
    pub(super) fn sweep(data: &DataDirectory) -> io::Result<()> {
        let all = data.workspaces();
        names(&all).filter(|name| name.starts_with(REMOVED)).try_for_each(|name| remove(&all.join(name)))
    }
}

fn names(all: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(all).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Something else in its place.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(path),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_is_removed_and_nothing_of_others() {
        let temporary = tempfile::tempdir().unwrap();
        let data = DataDirectory::open_at(temporary.path().join("data")).unwrap();
        let (one, other) = (Kept::new(&data, "aa"), Kept::new(&data, "bb"));
        assert_eq!((one.exists(), one.size(), Kept::keys(&data)), (false, KeptSize::default(), vec![]));
        one.remove().unwrap();
        for kept in [&one, &other] {
            kept.set_paused(true).unwrap();
            fs::create_dir(kept.index()).unwrap();
            fs::write(kept.index().join("words"), "canary").unwrap();
            assert!(kept.is_paused() && kept.exists());
        }
        assert_eq!(one.size(), KeptSize { files: 2, bytes: 6 });
        // Left by a process that was killed meanwhile.
        fs::create_dir_all(data.workspaces().join("forgotten-aa/index")).unwrap();
        fs::create_dir_all(data.workspaces().join("forgotten-cc/index")).unwrap();
        one.remove().unwrap();
        assert!(!one.exists() && other.exists());
        Kept::sweep(&data).unwrap();
        assert_eq!(names(&data.workspaces()).collect::<Vec<_>>(), ["bb"]);
        other.set_paused(false).unwrap();
        other.set_paused(false).unwrap();
        assert!(!other.is_paused());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_its_place_is_removed_and_not_followed() {
        let temporary = tempfile::tempdir().unwrap();
        let data = DataDirectory::open_at(temporary.path().join("data")).unwrap();
        let precious = temporary.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "mine").unwrap();
        create_private(&data.workspaces()).unwrap();
        std::os::unix::fs::symlink(&precious, data.workspaces().join("aa")).unwrap();
        Kept::new(&data, "aa").remove().unwrap();
        assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "mine");
        assert!(Kept::keys(&data).is_empty());
    }
}
