//! What people do with the memory of a workspace by hand, from a directory in it. All of it blocks.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use thiserror::Error;

use super::{
    Workspaces,
    companion::{Exported, Imported, KnownFact, PartlyForgotten, Remembered},
    registry::Workspace,
    root::{self, RootError},
    upkeep::seconds,
};
pub use crate::memory::archive::PastAnswer;
use crate::{files::WorkspaceFiles, settings::Settings};

/// How long looking at the files that facts rest on may take.
const CHECK_TIME: Duration = Duration::from_secs(10);

/// Why something by hand could not be done.
#[derive(Debug, Error)]
pub enum PeopleError {
    /// There is no such workspace.
    #[error(transparent)]
    Root(#[from] RootError),
    /// What was given cannot be followed; the text says why and what to do.
    #[error("{0}")]
    Refused(String),
}

/// Something about a workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Of<T> {
    /// Its root.
    pub root: PathBuf,
    /// What.
    pub what: T,
}

impl Workspaces {
    fn opened(&self, directory: &Path, settings: &Settings) -> Result<Arc<Workspace>, PeopleError> {
        let root = self.find_root(directory, settings)?;
        let path = root.path.clone();
        Ok(self.registry.get(root).map_err(|source| RootError::Unreadable { path, source })?)
    }

    fn of<T>(
        &self,
        directory: &Path,
        settings: &Settings,
        what: impl FnOnce(&Workspace) -> Result<T, String>,
    ) -> Result<Of<T>, PeopleError> {
        let workspace = self.opened(directory, settings)?;
        let what = what(&workspace).map_err(PeopleError::Refused)?;
        Ok(Of { root: workspace.root.path.clone(), what })
    }

    fn files(workspace: &Workspace, settings: &Settings) -> Result<WorkspaceFiles, String> {
        let files = WorkspaceFiles::open(&workspace.root.path).map_err(|error| error.to_string())?;
        Ok(files.leaving_out(&root::excluded(&settings.exclude)))
    }

    /// Notes something that a person said.
    ///
    /// # Errors
    /// There is no such workspace, or the text cannot be kept.
    pub fn remember(&self, directory: &Path, text: &str, settings: &Settings) -> Result<Of<Remembered>, PeopleError> {
        let at = seconds(&self.clock);
        self.of(directory, settings, |workspace| workspace.companion.remember_note(text, at))
    }

    /// Forgets what a pattern means, or says what that would be where it is not `confirmed`.
    ///
    /// # Errors
    /// There is no such workspace, the pattern means nothing, or not all of it could be removed.
    pub fn forget_part(
        &self,
        directory: &Path,
        pattern: &str,
        confirmed: bool,
        settings: &Settings,
    ) -> Result<Of<PartlyForgotten>, PeopleError> {
        self.of(directory, settings, |workspace| workspace.companion.forget_part(pattern, confirmed))
    }

    /// Pins facts, or lets them go again; gives what was meant and how many there are.
    ///
    /// # Errors
    /// There is no such workspace, or the pattern means nothing.
    pub fn pin(
        &self,
        directory: &Path,
        pattern: &str,
        pinned: bool,
        settings: &Settings,
    ) -> Result<Of<(String, usize)>, PeopleError> {
        self.of(directory, settings, |workspace| workspace.companion.pin(pattern, pinned))
    }

    /// The facts that are known, checked against the disk.
    ///
    /// # Errors
    /// There is no such workspace.
    pub fn facts(&self, directory: &Path, settings: &Settings) -> Result<Of<Vec<KnownFact>>, PeopleError> {
        self.of(directory, settings, |workspace| {
            let files = Self::files(workspace, settings)?;
            Ok(workspace.companion.facts(&files, Instant::now() + CHECK_TIME))
        })
    }

    /// The answers that were given, oldest first.
    ///
    /// # Errors
    /// There is no such workspace.
    pub fn history(&self, directory: &Path, settings: &Settings) -> Result<Of<Vec<PastAnswer>>, PeopleError> {
        self.of(directory, settings, |workspace| Ok(workspace.companion.history()))
    }

    /// All that is known, as lines to be taken along.
    ///
    /// # Errors
    /// There is no such workspace.
    pub fn export(&self, directory: &Path, settings: &Settings) -> Result<Of<Exported>, PeopleError> {
        self.of(directory, settings, |workspace| Ok(workspace.companion.export()))
    }

    /// Takes such lines in.
    ///
    /// # Errors
    /// There is no such workspace, they are none, or they are about another repository.
    pub fn import(&self, directory: &Path, lines: &str, settings: &Settings) -> Result<Of<Imported>, PeopleError> {
        self.of(directory, settings, |workspace| {
            let files = Self::files(workspace, settings)?;
            workspace.companion.import(lines, &files, Instant::now() + CHECK_TIME)
        })
    }
}
