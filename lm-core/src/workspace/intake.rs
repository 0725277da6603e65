//! From an observation to the workspace that its file belongs to.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use super::{
    learning::Learned,
    observe::{Observed, Outcome, Reason},
    registry::Registry,
    root::{self, RootError, RootRules},
    scope::Scope,
};
use crate::files::WorkspaceFiles;

/// Takes observations in.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) registry: Arc<Registry>,
    pub(super) home: Option<PathBuf>,
}

impl Intake {
    /// Tells the workspace of the file, unless that was forgotten since; may block on the file system.
    pub(super) fn take_in(&self, observed: &Observed, is_forgotten: &dyn Fn(&str) -> bool) -> Outcome {
        match self.try_to_take_in(observed, is_forgotten) {
            Ok(()) => Outcome::Taken,
            Err(reason) => Outcome::Dropped(reason),
        }
    }

    fn try_to_take_in(&self, observed: &Observed, is_forgotten: &dyn Fn(&str) -> bool) -> Result<(), Reason> {
        let settings = &observed.settings;
        let rules = RootRules::new(settings, self.home.as_deref());
        let session = Some(observed.cwd.as_path()).filter(|cwd| !cwd.as_os_str().is_empty());
        let place = root::place(Path::new(&observed.path), session, rules).map_err(|error| match error {
            RootError::Excluded { .. } => Reason::Excluded,
            _ => Reason::Outside,
        })?;
        if is_forgotten(&place.root.key) {
            return Err(Reason::Forgotten);
        }
        // The settings take no other patterns, so that there is nothing to say here.
        if !Scope::new(&settings.file_globs).is_ok_and(|scope| scope.contains(&place.path)) {
            return Err(Reason::OutOfScope);
        }
        let workspace = self.registry.get(place.root).map_err(|error| {
            tracing::debug!(%error, "cannot open the workspace of an observed file");
            Reason::Unreadable
        })?;
        if workspace.is_paused() {
            workspace.missed.fetch_add(1, Ordering::Relaxed);
            return Err(Reason::Paused);
        }
        let files = WorkspaceFiles::open(&workspace.root.path).map_err(|_| Reason::Unreadable)?;
        let excluded = root::excluded(&settings.exclude);
        let files = files.leaving_out(&excluded);
        match workspace.companion.observed(&files, &place.path, observed.kind, settings) {
            Learned::Known | Learned::Voided => {}
            Learned::Skipped => return Err(Reason::LeftOut),
        }
        // Who works here will ask here.
        workspace.retriever.prepare(&excluded);
        Ok(())
    }
}
