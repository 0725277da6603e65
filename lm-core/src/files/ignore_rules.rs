//! `.gitignore`, `.git/info/exclude` and `.livememoryignore`, read through the door.
//!
//! The rules are matched by the `ignore` crate, but the files that hold them are not opened by it: it
//! opens whatever has the name, follows links out of the workspace, and waits for ever on a pipe.
//! Rules above the root, and those of the user's own git configuration, do not count: a `*` in a home
//! directory would hide every workspace below it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

use super::WorkspaceFiles;

/// The longest file of rules that is read.
const RULES_CAP: u64 = 1 << 20;
const OWN_RULES: &str = ".livememoryignore";

/// The rules that hold in a directory: its own before its parent's.
#[derive(Debug, Default)]
pub(super) struct IgnoreRules {
    parent: Option<Arc<IgnoreRules>>,
    /// Strongest first.
    own: Vec<Gitignore>,
}

/// Which files of rules a directory's listing showed.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RulesPresent {
    /// `.livememoryignore`.
    own: bool,
    /// `.gitignore`.
    git: bool,
    /// `.git`, which may hold `info/exclude`.
    repository: bool,
}

impl RulesPresent {
    /// Takes note of a name in the listing.
    pub(super) fn note(&mut self, name: &std::ffi::OsStr) {
        match name.to_str() {
            Some(OWN_RULES) => self.own = true,
            Some(".gitignore") => self.git = true,
            Some(".git") => self.repository = true,
            _ => {}
        }
    }
}

impl IgnoreRules {
    /// The rules for a directory, given those of its parent.
    pub(super) fn descend(
        files: &WorkspaceFiles,
        directory: &Path,
        parent: &Arc<IgnoreRules>,
        present: RulesPresent,
    ) -> Arc<IgnoreRules> {
        let mut own = Vec::new();
        let mut add = |present: bool, path: PathBuf| {
            if present && let Some(rules) = files.read_rules(&path, RULES_CAP).and_then(|text| parse(directory, &text))
            {
                own.push(rules);
            }
        };
        add(present.own, directory.join(OWN_RULES));
        add(present.git, directory.join(".gitignore"));
        add(present.repository, directory.join(".git").join("info").join("exclude"));
        if own.is_empty() { Arc::clone(parent) } else { Arc::new(Self { parent: Some(Arc::clone(parent)), own }) }
    }

    /// Whether a path, relative to the root, is ignored.
    pub(super) fn ignores(&self, path: &Path, is_directory: bool) -> bool {
        let mut rules = Some(self);
        while let Some(level) = rules {
            for matcher in &level.own {
                match matcher.matched(path, is_directory) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
            rules = level.parent.as_deref();
        }
        false
    }
}

/// A line that is no pattern is passed over, as git does.
fn parse(directory: &Path, text: &str) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(directory);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}
