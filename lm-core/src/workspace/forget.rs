//! Forgetting workspaces, and pausing what they learn.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use thiserror::Error;

use super::{
    MemoryStatus, Workspaces,
    registry::Forgotten,
    root::{self, RootError, RootRules},
};
use crate::{agent::provider::ChosenModel, files::WorkspaceFiles, settings::Settings};

/// How long an observation that is being taken in is waited for.
const ENDING: Duration = Duration::from_secs(2);

/// How long listing the workspace and loading its documents may take.
const BEGINNING: Duration = Duration::from_secs(5);

/// What came of pausing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paused {
    /// The workspace.
    pub root: PathBuf,
    /// Whether it was paused before.
    pub before: bool,
    /// Whether it is now.
    pub now: bool,
}

/// Why learning could not be paused, or gone on with.
#[derive(Debug, Error)]
pub enum PauseError {
    /// There is no such workspace.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The workspace cannot be opened, or it cannot be kept on the disk.
    #[error("cannot note in the data directory whether learning is paused: {0}; `lm-shim doctor` says more")]
    Kept(#[from] io::Error),
}

impl Workspaces {
    /// Forgets the workspace of a directory, which may be gone, with everything that is kept of it.
    /// Nothing is known of it afterwards, neither here nor on the disk. Blocks.
    ///
    /// # Errors
    /// Where the directory belongs to no workspace.
    pub fn empty(&self, directory: &Path, settings: &Settings) -> Result<Forgotten, RootError> {
        // What is excluded now may have been learned from before.
        let rules = RootRules { exclude: &[], ..RootRules::new(settings, self.home.as_deref()) };
        let root = match root::find(directory, rules) {
            Ok(root) => root,
            Err(error @ RootError::Missing(_)) => return self.empty_gone(directory).ok_or(error),
            Err(error) => return Err(error),
        };
        if !self.registry.knows(&root.key) {
            return Ok(Forgotten { root: Some(root.path), key: root.key, ..Forgotten::default() });
        }
        // To say what it knew. Where it cannot be opened it is forgotten all the same.
        drop(self.registry.get(root.clone()));
        Ok(self.forget(root.path, &root.key))
    }

    fn empty_gone(&self, directory: &Path) -> Option<Forgotten> {
        let known = root::keys_when_gone(directory).into_iter().find(|(_, key)| self.registry.knows(key));
        known.map(|(path, key)| self.forget(path, &key))
    }

    fn forget(&self, path: PathBuf, key: &str) -> Forgotten {
        self.observations.forget(Some(key), ENDING);
        let forgotten = self.registry.forget(key);
        Forgotten { root: Some(path), ..forgotten }
    }

    /// Forgets every workspace of which anything is known or kept. Blocks.
    #[must_use]
    pub fn empty_all(&self) -> Vec<Forgotten> {
        self.observations.forget(None, ENDING);
        self.registry.keys().iter().map(|key| self.registry.forget(key)).collect()
    }

    /// Forgets the workspace of a directory, opens it anew and, where a model is chosen, begins the
    /// conversation with it at once, documents loaded. Returns what went and what there is now. Blocks.
    ///
    /// # Errors
    /// Where the directory belongs to no workspace, or that cannot be opened.
    pub fn reset(
        &self,
        directory: &Path,
        settings: &Settings,
        chosen: Option<&ChosenModel>,
    ) -> Result<(Forgotten, MemoryStatus), RootError> {
        let root = self.find_root(directory, settings)?;
        let forgotten = self.empty(&root.path, settings)?;
        let path = root.path.clone();
        let unreadable = |source| RootError::Unreadable { path: path.clone(), source };
        let workspace = self.registry.get(root).map_err(unreadable)?;
        if let Some(chosen) = chosen {
            let files = WorkspaceFiles::open(&workspace.root.path).map_err(|error| unreadable(error.source))?;
            let files = files.leaving_out(&root::excluded(&settings.exclude));
            workspace.companion.begin_now(chosen, settings, &files, Instant::now() + BEGINNING);
        }
        Ok((forgotten, workspace.companion.status()))
    }

    /// Stops learning from what sessions read and edit in the workspace of a directory, or goes on with
    /// it, also in later daemons. Blocks.
    ///
    /// # Errors
    /// Where the directory belongs to no workspace, or it cannot be kept.
    pub fn pause(&self, directory: &Path, paused: bool, settings: &Settings) -> Result<Paused, PauseError> {
        let root = self.find_root(directory, settings)?;
        let path = root.path.clone();
        let before = self.registry.get(root)?.pause(paused)?;
        Ok(Paused { root: path, before, now: paused })
    }
}
