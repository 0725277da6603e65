//! `.livememoryignore`, `.gitignore` and `.git/info/exclude`, read through the door.
//!
//! The rules are matched by the `ignore` crate, but the files that hold them are not opened by it: it
//! opens whatever has the name, follows links out of the workspace, and waits for ever on a pipe.
//! Rules above the root, and those of the user's own git configuration, do not count: a `*` in a home
//! directory would hide every workspace below it.
//!
//! The two kinds are kept apart. `.livememoryignore` is a person's word on what is never to be read:
//! what these files say is settled first, and no rule of git brings back what they leave out. Where
//! one of them cannot be understood, nothing below its directory is read.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use cap_std::fs::Metadata;
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

use super::{ReadError, WorkspaceFiles, display_path, text, text::Content, walk};

/// The longest file of rules that is read, in bytes.
const RULES_CAP: u64 = 1 << 20;
/// The name of the files that hold a person's rules.
pub(super) const OWN_RULES: &str = ".livememoryignore";
/// Directories whose own rules are remembered; there are seldom more than a few.
const MOST_REMEMBERED: usize = 1024;
/// Directories whose rules are kept for a batch of files.
const MOST_MET: usize = 16 << 10;
/// How old a file of rules must be for its time to tell whether it was written again, in nanoseconds.
const SETTLED: i64 = 2_000_000_000;
/// Where `A` and `a` name the same file, a rule for one is a rule for the other.
const NAMES_FOLD: bool = cfg!(any(windows, target_os = "macos"));

/// What a `.livememoryignore` says; none where it cannot be read as text.
type Stated = Option<Arc<Gitignore>>;

/// The rules that hold in a directory.
#[derive(Clone, Debug, Default)]
pub(super) struct IgnoreRules {
    /// Of `.livememoryignore`.
    own: OwnRules,
    /// Of git, strongest first, a directory's before its parent's.
    git: Option<Arc<GitLevel>>,
}

#[derive(Debug)]
struct GitLevel {
    parent: Option<Arc<GitLevel>>,
    rules: Vec<Gitignore>,
}

/// The rules of a directory's `.livememoryignore` and of those above it.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnRules(Option<Arc<OwnLevel>>);

#[derive(Debug)]
struct OwnLevel {
    parent: OwnRules,
    rules: Stated,
}

/// A `.livememoryignore` that cannot be read as text.
#[derive(Debug)]
pub(super) struct UnreadableRules;

/// What the files of own rules said when they were last read, by directory.
#[derive(Debug, Default)]
pub(super) struct Remembered(Mutex<HashMap<PathBuf, (Stamp, Stated)>>);

/// The own rules of directories as they were when a batch of files first asked for them; like a walk,
/// a batch goes by the rules that it met.
#[derive(Debug, Default)]
pub(crate) struct MetRules(Mutex<HashMap<PathBuf, OwnRules>>);

impl MetRules {
    fn meet(&self, directory: &Path, read: impl FnOnce() -> OwnRules) -> OwnRules {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rules) = known().get(directory) {
            return rules.clone();
        }
        let rules = read();
        let mut known = known();
        if known.len() >= MOST_MET {
            known.clear();
        }
        known.insert(directory.to_path_buf(), rules.clone());
        rules
    }
}

/// Tells whether a file is still the one that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stamp {
    file: PathBuf,
    size: u64,
    changed: i64,
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
    /// The rules for a directory, given those of its parent. Fails where the directory has a
    /// `.livememoryignore` that says nobody knows what.
    pub(super) fn descend(
        &self,
        files: &WorkspaceFiles,
        directory: &Path,
        present: RulesPresent,
    ) -> Result<Self, UnreadableRules> {
        let mut rules = self.clone();
        if present.own {
            rules.own = rules.own.descend(files, directory);
            if rules.own.is_unreadable() {
                return Err(UnreadableRules);
            }
        }
        let mut git = Vec::new();
        let mut add = |present: bool, path: PathBuf| {
            let text = present.then(|| files.read_rules(&path, RULES_CAP)).flatten();
            git.extend(text.and_then(|text| parse(directory, &text, false)));
        };
        add(present.git, directory.join(".gitignore"));
        add(present.repository, directory.join(".git").join("info").join("exclude"));
        if !git.is_empty() {
            rules.git = Some(Arc::new(GitLevel { parent: rules.git, rules: git }));
        }
        Ok(rules)
    }

    /// Whether a path, relative to the root, is ignored.
    pub(super) fn ignores(&self, path: &Path, is_directory: bool) -> bool {
        match self.own.matched(path, is_directory) {
            Some(ignored) => ignored,
            None => self.git_ignores(path, is_directory),
        }
    }

    fn git_ignores(&self, path: &Path, is_directory: bool) -> bool {
        let mut level = self.git.as_deref();
        while let Some(GitLevel { parent, rules }) = level {
            for rules in rules {
                if let Some(ignored) = verdict(&rules.matched(path, is_directory)) {
                    return ignored;
                }
            }
            level = parent.as_deref();
        }
        false
    }
}

impl OwnRules {
    /// With those of a directory, whether or not it has any.
    pub(super) fn descend(&self, files: &WorkspaceFiles, directory: &Path) -> Self {
        match files.own_rules(directory) {
            None => self.clone(),
            Some(rules) => Self(Some(Arc::new(OwnLevel { parent: self.clone(), rules }))),
        }
    }

    /// Whether nobody knows what the nearest of them say.
    pub(super) fn is_unreadable(&self) -> bool {
        self.0.as_ref().is_some_and(|level| level.rules.is_none())
    }

    /// What the nearest rule says about a path.
    pub(super) fn matched(&self, path: &Path, is_directory: bool) -> Option<bool> {
        let mut level = self.0.as_deref();
        while let Some(OwnLevel { parent, rules }) = level {
            // Nothing is known of what such a file wants to be left alone.
            let Some(rules) = rules else { return Some(true) };
            if let Some(ignored) = verdict(&rules.matched(path, is_directory)) {
                return Some(ignored);
            }
            level = parent.0.as_deref();
        }
        None
    }
}

impl WorkspaceFiles {
    /// Refuses a path, relative to the root, that a `.livememoryignore` leaves out, itself or with a
    /// directory it lies in. Rules of git do not count for a file that is asked for by its name.
    pub(crate) fn check_own_rules(&self, path: &Path, met: &MetRules) -> Result<(), ReadError> {
        let mut parts = Vec::new();
        for part in path.components() {
            match part {
                Component::Normal(part) => parts.push(part),
                Component::ParentDir => drop(parts.pop()),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        let mut rules = OwnRules::default();
        let mut reached = PathBuf::new();
        for (position, part) in parts.iter().enumerate() {
            rules = met.meet(&reached, || rules.descend(self, &reached));
            if rules.is_unreadable() {
                let rules = display_path(&reached.join(OWN_RULES));
                return Err(ReadError::UnreadableRules { path: display_path(path), rules });
            }
            reached.push(part);
            if self.is_excluded(&reached) {
                return Err(ReadError::Excluded(display_path(path)));
            }
            if rules.matched(&reached, position + 1 < parts.len()) == Some(true) {
                return Err(ReadError::Ignored(display_path(path)));
            }
        }
        Ok(())
    }

    /// Whether a file, given relative to the root, is left out of what is searched by a rule of a person's
    /// or of git's, as a walk would leave it out. Whether it exists does not matter.
    pub(crate) fn is_left_out(&self, path: &Path) -> bool {
        const ALL: RulesPresent = RulesPresent { own: true, git: true, repository: true };
        let mut rules = IgnoreRules::default();
        let mut reached = PathBuf::new();
        let mut parts = path.components().peekable();
        while let Some(part) = parts.next() {
            let Component::Normal(part) = part else { return true };
            let Ok(deeper) = rules.descend(self, &reached, ALL) else { return true };
            rules = deeper;
            reached.push(part);
            if part == ".git" || rules.ignores(&reached, parts.peek().is_some()) || self.is_excluded(&reached) {
                return true;
            }
        }
        false
    }

    /// Whether the root has no `.livememoryignore`, or one that can be read.
    pub(super) fn root_rules_are_readable(&self) -> bool {
        !matches!(self.own_rules(Path::new("")), Some(None))
    }

    /// The rules in a directory's `.livememoryignore`: none where it has no such file, `Some(None)`
    /// where it is there and is no text that can be read. A link to a file of the workspace counts.
    fn own_rules(&self, directory: &Path) -> Option<Stated> {
        let name = directory.join(OWN_RULES);
        // Whatever has the name; what cannot even be looked at may be there.
        match self.handle.symlink_metadata(&name) {
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                return None;
            }
            _ => {}
        }
        let stamp = self
            .handle
            .canonicalize(&name)
            .and_then(|file| self.handle.symlink_metadata(&file).map(|metadata| (file, metadata)))
            .ok()
            .filter(|(_, metadata)| metadata.is_file())
            .map(|(file, metadata)| Stamp::new(file, &metadata));
        let mut remembered = self.remembered.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(stamp), Some((known, rules))) = (&stamp, remembered.get(directory))
            && known == stamp
        {
            return Some(rules.clone());
        }
        let rules = stamp.as_ref().and_then(|stamp| self.read_own_rules(directory, &stamp.file));
        if rules.is_none() {
            tracing::warn!(
                "`{}` in the workspace `{}` cannot be read as text, so nothing below its directory is read; make it a text file of at most 1 MiB, or remove it",
                display_path(&name),
                self.root().display()
            );
        }
        if let Some(stamp) = stamp.filter(Stamp::is_settled) {
            if remembered.len() >= MOST_REMEMBERED {
                remembered.clear();
            }
            remembered.insert(directory.to_path_buf(), (stamp, rules.clone()));
        }
        Some(rules)
    }

    fn read_own_rules(&self, directory: &Path, file: &Path) -> Stated {
        let raw = self.load(file, RULES_CAP, 1).ok()?;
        if raw.is_truncated() {
            return None;
        }
        match text::decode(raw.bytes, false) {
            Content::Binary => None,
            Content::Text(text, _) => parse_all(directory, &text, NAMES_FOLD).map(Arc::new),
        }
    }
}

impl Stamp {
    fn new(file: PathBuf, metadata: &Metadata) -> Self {
        Self { file, size: metadata.len(), changed: walk::changed(metadata) }
    }

    /// Whether a later change would show.
    fn is_settled(&self) -> bool {
        self.changed != 0 && walk::nanoseconds(SystemTime::now()).saturating_sub(self.changed) > SETTLED
    }
}

fn verdict<T>(matched: &Match<T>) -> Option<bool> {
    match matched {
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
        Match::None => None,
    }
}

/// None where there is no rule in a text.
fn parse(directory: &Path, text: &str, fold: bool) -> Option<Gitignore> {
    parse_all(directory, text, fold).filter(|rules| !rules.is_empty())
}

/// A line that is no pattern is passed over, as git does.
fn parse_all(directory: &Path, text: &str, fold: bool) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(directory);
    // The result only allows for another call.
    let _ = builder.case_insensitive(fold);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok()
}
