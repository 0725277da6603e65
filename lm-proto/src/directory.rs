//! The data directory, where shims, hooks, terminals and desktop apps of one user meet.
//!
//! It is `LIVE_MEMORY_DATA_DIR`, else `~/.claude/plugins/data/live-memory`; where no home directory
//! can be written, a private directory under the system's shared temporary directory. It is never
//! taken from variables that differ between a user's programs (`CLAUDE_PLUGIN_DATA`, `TMPDIR`,
//! `XDG_RUNTIME_DIR`). This file names everything inside the directory.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::Build;

/// The variable that moves the data directory.
pub const DATA_DIR_VARIABLE: &str = "LIVE_MEMORY_DATA_DIR";

/// A path with a leading `~/` lies in the home directory, as in every setting.
fn in_home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), dirs::home_dir()) {
        (Ok(rest), Some(home)) if home.is_absolute() => home.join(rest),
        _ => path,
    }
}

/// Where it is in a home directory.
fn in_usual_place(home: &Path) -> PathBuf {
    home.join(".claude").join("plugins").join("data").join("live-memory")
}

/// Why there is no data directory.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// A relative path would mean another directory in every process.
    #[error("{DATA_DIR_VARIABLE} is `{}`; give an absolute path or unset it", .0.display())]
    Relative(PathBuf),
    /// It cannot be created or is not fit for private files.
    #[error("cannot use `{}` as the data directory: {source}; set {DATA_DIR_VARIABLE} to a directory of yours that can be written", path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
}

/// The data directory, existing and private to the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataDirectory {
    root: PathBuf,
    temporary: bool,
}

impl DataDirectory {
    /// Finds the data directory from the environment and creates it where it is missing.
    pub fn open() -> Result<Self, DirectoryError> {
        if let Some(chosen) = env::var_os(DATA_DIR_VARIABLE).filter(|value| !value.is_empty()) {
            return Self::open_at(in_home(PathBuf::from(chosen)));
        }
        let home = dirs::home_dir().filter(|home| home.is_absolute());
        if let Some(home) = home
            && let Ok(directory) = Self::open_at(in_usual_place(&home))
        {
            return Ok(directory);
        }
        Self::open_temporary()
    }

    /// The data directory where it exists, without creating or changing anything: for whoever has
    /// nothing to do where no daemon ever was.
    #[must_use]
    pub fn find() -> Option<Self> {
        let exists = |root: PathBuf, temporary| root.is_dir().then_some(Self { root, temporary });
        if let Some(chosen) = env::var_os(DATA_DIR_VARIABLE).filter(|value| !value.is_empty()) {
            return exists(in_home(PathBuf::from(chosen)), false).filter(|found| found.root.is_absolute());
        }
        let home = dirs::home_dir().filter(|home| home.is_absolute());
        let usual = home.and_then(|home| exists(in_usual_place(&home), false));
        let shared = || {
            let candidates = shared_private_directories().into_iter();
            candidates.filter(|candidate| is_own(candidate)).find_map(|candidate| exists(candidate.join("data"), true))
        };
        usual.or_else(shared)
    }

    /// Opens a directory that was chosen explicitly, creating it where it is missing.
    pub fn open_at(root: PathBuf) -> Result<Self, DirectoryError> {
        if !root.is_absolute() {
            return Err(DirectoryError::Relative(root));
        }
        let unusable = |source| DirectoryError::Unusable { path: root.clone(), source };
        if let Some(parent) = root.parent() {
            fs::create_dir_all(parent).map_err(unusable)?;
        }
        create_private(&root).map_err(unusable)?;
        let directory = Self { root, temporary: false };
        directory.create_rooms()?;
        Ok(directory)
    }

    /// Where nothing else can be written: memory then lasts until the system clears that place.
    fn open_temporary() -> Result<Self, DirectoryError> {
        let mut refused = None;
        for candidate in shared_private_directories() {
            let root = candidate.join("data");
            match create_private(&candidate).and_then(|()| create_private(&root)) {
                Ok(()) => {
                    let directory = Self { root, temporary: true };
                    directory.create_rooms()?;
                    return Ok(directory);
                }
                Err(source) => refused = Some((root, source)),
            }
        }
        let (path, source) = refused.unwrap_or_else(|| (env::temp_dir(), io::ErrorKind::NotFound.into()));
        Err(DirectoryError::Unusable { path, source })
    }

    fn create_rooms(&self) -> Result<(), DirectoryError> {
        for room in [self.run(), self.logs()] {
            create_private(&room).map_err(|source| DirectoryError::Unusable { path: room.clone(), source })?;
        }
        self.keep_out_searches();
        Ok(())
    }

    /// Where the directory lies inside a workspace, nothing in it is of that workspace, and the
    /// settings in it hold a key. Without a place to write, there is nothing to keep out either.
    fn keep_out_searches(&self) {
        let rules = self.root.join(".livememoryignore");
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        if let Ok(mut file) = options.open(rules) {
            let _ = io::Write::write_all(&mut file, b"# The data of Live Memory is never searched.\n*\n");
        }
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether it stands in for a home directory that could not be used.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.temporary
    }

    /// The user's settings.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.root.join("config.json")
    }

    /// What models have cost.
    #[must_use]
    pub fn spending_file(&self) -> PathBuf {
        self.root.join("spending.jsonl")
    }

    /// The daemon's working directory: locks, socket and the records around them.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Held by whoever is starting a daemon.
    #[must_use]
    pub fn start_lock(&self) -> PathBuf {
        self.run().join("start.lock")
    }

    /// Held by the daemon until it exits.
    #[must_use]
    pub fn life_lock(&self) -> PathBuf {
        self.run().join("life.lock")
    }

    /// When daemons were started lately, read and written under the start lock.
    #[must_use]
    pub fn start_record(&self) -> PathBuf {
        self.run().join("starts.json")
    }

    /// The endpoint the daemon listens on, written under the life lock.
    #[must_use]
    pub fn endpoint_record(&self) -> PathBuf {
        self.run().join("endpoint")
    }

    /// Notes about the daemon for people; nothing is decided by them.
    #[must_use]
    pub fn daemon_notes(&self) -> PathBuf {
        self.run().join("daemon.json")
    }

    /// The log files.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// The daemon's log, where no setting moves it.
    #[must_use]
    pub fn core_log(&self) -> PathBuf {
        self.logs().join("lm-core.log")
    }

    /// What a starting daemon says before its log is open.
    #[must_use]
    pub fn start_log(&self) -> PathBuf {
        self.logs().join("lm-core.start.log")
    }

    /// The shims' log.
    #[must_use]
    pub fn shim_log(&self) -> PathBuf {
        self.logs().join("lm-shim.log")
    }

    /// The copies of `lm-core` that daemons run from.
    #[must_use]
    pub fn binaries(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// The copy of one build.
    #[must_use]
    pub fn core_binary(&self, build: Build) -> PathBuf {
        self.binaries().join(build.to_string()).join(format!("lm-core{}", env::consts::EXE_SUFFIX))
    }

    /// What is kept of each workspace.
    #[must_use]
    pub fn workspaces(&self) -> PathBuf {
        self.root.join("workspaces")
    }
}

/// Private directories of this user in places that every user can write, most wanted first.
///
/// They are fixed paths, not `TMPDIR`, so that all programs of a user agree. Another user may have
/// taken a name; [`create_private`] refuses it and the next one is tried.
pub(crate) fn shared_private_directories() -> Vec<PathBuf> {
    #[cfg(unix)]
    {
        let user = rustix::process::geteuid().as_raw();
        let mut candidates = Vec::new();
        for name in [format!("live-memory-{user}"), format!("live-memory-{user}-1")] {
            for parent in ["/tmp", "/var/tmp"] {
                candidates.push(Path::new(parent).join(&name));
            }
        }
        candidates
    }
    #[cfg(not(unix))]
    {
        // Windows' temporary directory is already the user's own.
        vec![env::temp_dir().join("live-memory")]
    }
}

/// Creates a directory only the user can enter, in one call; its parent must exist. One that exists
/// is accepted if it is a real directory of the user, and closed to others where it was open.
pub fn create_private(path: &Path) -> io::Result<()> {
    match private_builder().create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => accept_private(path),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn private_builder() -> fs::DirBuilder {
    use std::os::unix::fs::DirBuilderExt;

    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// What a user's own directories hold is the user's own.
#[cfg(not(unix))]
fn private_builder() -> fs::DirBuilder {
    fs::DirBuilder::new()
}

#[cfg(unix)]
fn accept_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "it exists and is not a directory"));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    if metadata.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    if metadata.mode() & 0o700 != 0o700 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "its mode keeps its owner out"));
    }
    Ok(())
}

/// Whether it is a directory that belongs to the user, and no link.
#[cfg(unix)]
fn is_own(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let own = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own)
}

#[cfg(not(unix))]
fn is_own(path: &Path) -> bool {
    path.is_dir()
}

#[cfg(not(unix))]
fn accept_private(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::NotADirectory, "it exists and is not a directory"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_data_directory_is_refused() {
        let error = DataDirectory::open_at("relative/dir".into()).unwrap_err();
        assert!(error.to_string().contains("absolute"), "{error}");
    }

    #[test]
    fn a_file_in_its_place_is_refused_and_kept() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("data");
        fs::write(&path, "mine").unwrap();
        assert!(DataDirectory::open_at(path.clone()).is_err());
        assert_eq!(fs::read_to_string(path).unwrap(), "mine");
    }

    #[cfg(unix)]
    #[test]
    fn it_is_private_from_the_start_and_made_private_again() {
        use std::os::unix::fs::PermissionsExt;

        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a").join("data");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let directory = DataDirectory::open_at(path.clone()).unwrap();
        assert_eq!(mode(directory.root()), 0o700);
        assert_eq!(mode(&directory.run()), 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        DataDirectory::open_at(path.clone()).unwrap();
        assert_eq!(mode(&path), 0o700);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_not_taken_for_a_directory() {
        let temporary = tempfile::tempdir().unwrap();
        let link = temporary.path().join("link");
        std::os::unix::fs::symlink(temporary.path(), &link).unwrap();
        assert!(create_private(&link).is_err());
    }
}
