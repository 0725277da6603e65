//! The files that a workspace knows, and what the coding agent did with them since the last question.
//!
//! Bounded whatever arrives: past the cap the file that was looked at longest ago is forgotten, and
//! counted. Not allowed here: looking at a file, knowing what time it is.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::told::Standing;

/// The most files that are known; each takes some 200 bytes.
pub const FILES_MAX: usize = 20_000;

/// What was done with a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// It was read, whole or in part.
    Read,
    /// It was written or changed.
    Edited,
    /// It was removed.
    Removed,
}

/// How a file was when it was last looked at. `S` tells cheaply whether it may have changed since.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Look<S> {
    /// What it held.
    pub standing: Standing,
    /// Whether the hash is that of all of it.
    pub whole: bool,
    /// What to compare with, where it is there.
    pub stamp: Option<S>,
    /// When that was, in nanoseconds since 1970.
    pub at_ns: i64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Known<S> {
    look: Look<S>,
    /// What was last done with it, and when in the order of observations.
    seen: Option<(Deed, u64)>,
}

/// The files that are known.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "S: Deserialize<'de>"))]
pub struct Manifest<S> {
    files: BTreeMap<Arc<str>, Known<S>>,
    /// Observations so far.
    observations: u64,
    /// Files that were forgotten for want of room.
    forgotten: u64,
}

impl<S> Default for Manifest<S> {
    fn default() -> Self {
        Self { files: BTreeMap::new(), observations: 0, forgotten: 0 }
    }
}

/// What was done since some moment, each file once, by its weightiest deed, the latest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gap {
    /// The files and what was done with them.
    pub deeds: Vec<(Arc<str>, Deed)>,
    /// The number of observations until now; the next gap begins here.
    pub until: u64,
}

impl<S: Clone> Manifest<S> {
    /// Takes note of what was done with a file, and how it was found then.
    pub fn observe(&mut self, path: Arc<str>, deed: Deed, look: Look<S>) {
        self.observations += 1;
        let sequence = self.observations;
        // An edit stays one when the file is read afterwards.
        let weightiest = |before: Option<(Deed, u64)>| before.map_or(deed, |(before, _)| before.max(deed));
        match self.files.get_mut(&path) {
            Some(known) => {
                let deed = if deed == Deed::Read { weightiest(known.seen) } else { deed };
                *known = Known { look, seen: Some((deed, sequence)) };
            }
            None => {
                self.files.insert(path, Known { look, seen: Some((deed, sequence)) });
                self.make_room();
            }
        }
    }

    /// Takes note of how a file was found, by whoever looked.
    pub fn looked(&mut self, path: &Arc<str>, look: Look<S>) {
        match self.files.get_mut(path) {
            Some(known) => known.look = look,
            None => {
                self.files.insert(Arc::clone(path), Known { look, seen: None });
                self.make_room();
            }
        }
    }

    /// How a file was when it was last looked at.
    #[must_use]
    pub fn look(&self, path: &str) -> Option<&Look<S>> {
        self.files.get(path).map(|known| &known.look)
    }

    /// What was done after the first `since` observations. Deeds that were told once are not told again
    /// as part of a later one.
    #[must_use]
    pub fn gap(&self, since: u64) -> Gap {
        let mut seen: Vec<(u64, &Arc<str>, Deed)> = self
            .files
            .iter()
            .filter_map(|(path, known)| known.seen.map(|(deed, sequence)| (sequence, path, deed)))
            .filter(|(sequence, ..)| *sequence > since)
            .collect();
        seen.sort_unstable_by_key(|(sequence, ..)| std::cmp::Reverse(*sequence));
        let deeds = seen.into_iter().map(|(_, path, deed)| (Arc::clone(path), deed)).collect();
        Gap { deeds, until: self.observations }
    }

    /// Counts a deed as told, so that reading the file again is no edit any more.
    pub fn told(&mut self, until: u64) {
        for known in self.files.values_mut() {
            if let Some((deed, sequence)) = &mut known.seen
                && *sequence <= until
            {
                *deed = Deed::Read;
            }
        }
    }

    /// The files that are known.
    pub fn paths(&self) -> impl Iterator<Item = &Arc<str>> {
        self.files.keys()
    }

    /// Forgets a file, until something is said of it again.
    pub fn forget(&mut self, path: &str) {
        self.files.remove(path);
    }

    /// How many files are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// With how many of them something was done.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.files.values().filter(|known| known.seen.is_some()).count()
    }

    /// Observations so far.
    #[must_use]
    pub fn observations(&self) -> u64 {
        self.observations
    }

    /// Files that were forgotten for want of room.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Forgets those looked at longest ago, a tenth at a time so that it seldom happens.
    fn make_room(&mut self) {
        if self.files.len() <= FILES_MAX {
            return;
        }
        let mut by_age: Vec<(i64, Arc<str>)> =
            self.files.iter().map(|(path, known)| (known.look.at_ns, Arc::clone(path))).collect();
        by_age.sort_unstable();
        by_age.truncate(FILES_MAX / 10);
        self.forgotten += by_age.len() as u64;
        for (_, path) in by_age {
            self.files.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn look(at_ns: i64) -> Look<u64> {
        Look { standing: Standing::Text("1".into()), whole: true, stamp: Some(1), at_ns }
    }

    #[test]
    fn a_gap_names_each_file_once_by_its_weightiest_deed() {
        let mut manifest = Manifest::default();
        manifest.observe("a".into(), Deed::Read, look(1));
        manifest.observe("b".into(), Deed::Edited, look(2));
        manifest.observe("b".into(), Deed::Read, look(3));
        manifest.observe("c".into(), Deed::Removed, look(4));
        manifest.observe("c".into(), Deed::Edited, look(5));
        let gap = manifest.gap(0);
        let deeds: Vec<(&str, Deed)> = gap.deeds.iter().map(|(path, deed)| (&**path, *deed)).collect();
        assert_eq!(deeds, [("c", Deed::Edited), ("b", Deed::Edited), ("a", Deed::Read)]);
        assert_eq!(gap.until, 5);
        manifest.told(gap.until);
        assert_eq!(manifest.gap(gap.until).deeds, []);
        manifest.observe("b".into(), Deed::Read, look(6));
        assert_eq!(manifest.gap(gap.until).deeds, [("b".into(), Deed::Read)], "the edit was told already");
    }

    #[test]
    fn looking_is_no_deed() {
        let mut manifest = Manifest::default();
        manifest.looked(&"a".into(), look(1));
        assert_eq!((manifest.len(), manifest.gap(0).deeds.len()), (1, 0));
    }

    #[test]
    fn whatever_arrives_it_stays_bounded() {
        let mut manifest = Manifest::default();
        let arrived = FILES_MAX as i64 + 5_000;
        for number in 0..arrived {
            manifest.observe(format!("file_{number}").into(), Deed::Read, look(number));
        }
        assert!(manifest.len() <= FILES_MAX);
        assert_eq!(manifest.len() as u64 + manifest.forgotten(), arrived as u64);
        assert!(manifest.look(&format!("file_{}", arrived - 1)).is_some(), "the newest is kept");
        assert!(manifest.look("file_0").is_none());
    }

    proptest! {
        /// What arrives while a question runs belongs to the next gap; nothing is told twice or never.
        #[test]
        fn every_deed_is_told_once(deeds in prop::collection::vec((0..6u8, 0..3u8, any::<bool>()), 0..60)) {
            let mut manifest = Manifest::default();
            let (mut since, mut due) = (0, std::collections::BTreeSet::new());
            for (file, deed, ask) in deeds {
                let path: Arc<str> = format!("f{file}").into();
                let deed = [Deed::Read, Deed::Edited, Deed::Removed][deed as usize];
                manifest.observe(Arc::clone(&path), deed, look(0));
                due.insert(path);
                if ask {
                    let gap = manifest.gap(since);
                    let told: std::collections::BTreeSet<_> = gap.deeds.iter().map(|(path, _)| Arc::clone(path)).collect();
                    prop_assert_eq!(&told, &due);
                    since = gap.until;
                    manifest.told(since);
                    due.clear();
                }
            }
        }
    }
}
