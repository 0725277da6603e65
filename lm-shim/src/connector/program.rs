//! The program that becomes the daemon: where it is, and the copy it runs from.
//!
//! A daemon never runs from where it was installed: an update could not replace its file on Windows,
//! and its directory may be removed while it runs.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use lm_proto::{Build, DataDirectory, directory::create_private};

use super::error::ConnectError;

/// A daemon binary that could be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Program {
    /// Its file.
    pub(super) path: PathBuf,
    /// Its build.
    pub(super) build: Build,
}

impl Program {
    /// Finds the binary beside this executable, or, where an update has taken that away, the newest
    /// copy of an earlier start.
    pub(super) fn find(data: &DataDirectory) -> Result<Self, ConnectError> {
        let directories = own_directories();
        let name = format!("lm-core{}", env::consts::EXE_SUFFIX);
        for directory in &directories {
            let path = directory.join(&name);
            if path.is_file() {
                return Ok(Self { build: Build::of_core_binary(&path), path });
            }
        }
        let own_version = Build::with_stamp(0);
        let newest = builds(data).filter(|build| *build >= own_version).max();
        newest
            .map(|build| Self { path: data.core_binary(build), build })
            .filter(|program| program.path.is_file())
            .ok_or_else(|| ConnectError::CoreMissing(directories.into_iter().next().unwrap_or_default()))
    }

    /// Makes the copy under the data directory, unless it is there, and returns its path.
    pub(super) fn install(&self, data: &DataDirectory) -> Result<PathBuf, ConnectError> {
        let path = data.core_binary(self.build);
        if path == self.path || is_copy(&self.path, &path) {
            return Ok(path);
        }
        copy_privately(&self.path, &path, data)
            .map_err(|source| ConnectError::Install { path: path.clone(), source })?;
        Ok(path)
    }

    /// Removes the copies of earlier builds. Only while this build's daemon runs, so that none of
    /// them does; what cannot be removed yet is left for the next time.
    pub(super) fn remove_older(&self, data: &DataDirectory) {
        for build in builds(data).filter(|build| *build < self.build) {
            if let Some(directory) = data.core_binary(build).parent() {
                let _ = fs::remove_dir_all(directory);
            }
        }
    }
}

/// Where this executable lies, then where it really lies if it is a link.
fn own_directories() -> Vec<PathBuf> {
    let Ok(own) = env::current_exe() else { return Vec::new() };
    let mut directories: Vec<_> = own.parent().map(Path::to_owned).into_iter().collect();
    if let Ok(real) = fs::canonicalize(&own)
        && let Some(directory) = real.parent().filter(|directory| Some(*directory) != own.parent())
    {
        directories.push(directory.to_owned());
    }
    directories
}

/// The builds of which there is a directory.
fn builds(data: &DataDirectory) -> impl Iterator<Item = Build> {
    let entries = fs::read_dir(data.binaries()).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn is_copy(original: &Path, copy: &Path) -> bool {
    let (Ok(original), Ok(copy)) = (fs::metadata(original), fs::metadata(copy)) else { return false };
    original.len() == copy.len() && original.modified().ok() == copy.modified().ok()
}

fn copy_privately(original: &Path, path: &Path, data: &DataDirectory) -> io::Result<()> {
    create_private(&data.binaries())?;
    if let Some(directory) = path.parent() {
        create_private(directory)?;
    }
    let fresh = path.with_extension("new");
    let modified = fs::metadata(original)?.modified()?;
    fs::copy(original, &fresh)?;
    #[cfg(unix)]
    fs::set_permissions(&fresh, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    // Kept, because it is what tells builds of one version apart.
    fs::OpenOptions::new().write(true).open(&fresh)?.set_modified(modified)?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_made_once_and_earlier_ones_go() {
        let temporary = tempfile::tempdir().unwrap();
        let data = DataDirectory::open_at(temporary.path().join("data")).unwrap();
        let original = temporary.path().join("original");
        fs::write(&original, "binary").unwrap();
        let build = Build::of_core_binary(&original);
        let program = Program { path: original.clone(), build };
        let copy = program.install(&data).unwrap();
        assert_eq!(Build::of_core_binary(&copy), build);
        assert!(is_copy(&original, &copy));
        assert_eq!(program.install(&data).unwrap(), copy);

        let older = Build { stamp: build.stamp - 1, ..build };
        let newer = Build { stamp: build.stamp + 1, ..build };
        for other in [older, newer] {
            fs::create_dir(data.core_binary(other).parent().unwrap()).unwrap();
        }
        fs::write(data.binaries().join("notes"), "not ours").unwrap();
        program.remove_older(&data);
        let mut left: Vec<_> = builds(&data).collect();
        left.sort();
        assert_eq!(left, [build, newer]);
        assert!(data.binaries().join("notes").exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_copy_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;

        let temporary = tempfile::tempdir().unwrap();
        let data = DataDirectory::open_at(temporary.path().join("data")).unwrap();
        let original = temporary.path().join("original");
        fs::write(&original, "binary").unwrap();
        fs::set_permissions(&original, fs::Permissions::from_mode(0o444)).unwrap();
        let program = Program { build: Build::of_core_binary(&original), path: original };
        let copy = program.install(&data).unwrap();
        assert_eq!(fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
