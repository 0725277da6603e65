//! Files whose text is not shown, in no version of them.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use gix::bstr::{BStr, BString, ByteSlice};

use crate::files::{MetRules, WorkspaceFiles, is_secret_name, path_from_bytes};

/// Paths that are remembered in one call; histories have more.
const MOST_REMEMBERED: usize = 50_000;

/// Why a file's text is not shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// Its name says that it holds secrets.
    Secret,
    /// A `.livememoryignore` leaves it out, as these files are now.
    LeftOut,
    /// It is no file of the workspace.
    Outside,
}

/// Judges the files of a repository during one call, each once.
#[derive(Debug)]
pub(super) struct Withheld {
    files: Arc<WorkspaceFiles>,
    /// Between the top of the working tree and the workspace.
    prefix: PathBuf,
    known: Mutex<HashMap<BString, Option<Reason>>>,
    met: MetRules,
}

impl Withheld {
    pub(super) fn new(files: Arc<WorkspaceFiles>, prefix: PathBuf) -> Self {
        Self { files, prefix, known: Mutex::default(), met: MetRules::default() }
    }

    /// Why the text of a file, given by its path in the repository, is not shown.
    pub(super) fn reason(&self, path: &BStr) -> Option<Reason> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = known().get(path) {
            return *reason;
        }
        let reason = self.judge(path);
        let mut known = known();
        if known.len() >= MOST_REMEMBERED {
            known.clear();
        }
        known.insert(path.to_owned(), reason);
        reason
    }

    fn judge(&self, path: &BStr) -> Option<Reason> {
        let path = path_from_bytes(path.as_bytes()).unwrap_or_else(|| PathBuf::from(path.to_string()));
        if is_secret_name(&path) {
            return Some(Reason::Secret);
        }
        match path.strip_prefix(&self.prefix) {
            Ok(below) => self.files.check_own_rules(below, &self.met).is_err().then_some(Reason::LeftOut),
            Err(_) => Some(Reason::Outside),
        }
    }
}

impl Reason {
    /// What is shown in place of the text.
    pub(super) fn note(self) -> &'static str {
        match self {
            Self::Secret => "(may hold secrets, not shown)",
            Self::LeftOut => "(left out by a `.livememoryignore`, not shown)",
            Self::Outside => "(outside the workspace, not shown)",
        }
    }
}
