//! Locations that a person has excluded from everything, wherever they lie.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Excluded locations: paths with everything below them, and globs over absolute paths.
#[derive(Clone, Debug, Default)]
pub struct Excluded(Option<Arc<Locations>>);

#[derive(Debug)]
struct Locations {
    paths: Vec<PathBuf>,
    /// None where they cannot be told: then everything is excluded, since the person meant something.
    globs: Option<GlobSet>,
}

impl Excluded {
    /// Of patterns as the setting has them. What is a path and no glob may be named through a link, so
    /// `resolved` tells where each leads, where it leads anywhere.
    #[must_use]
    pub fn new(patterns: &[String], resolved: impl Fn(&Path) -> Option<PathBuf>) -> Self {
        if patterns.is_empty() {
            return Self::default();
        }
        let mut globs = GlobSetBuilder::new();
        for pattern in patterns {
            let glob = GlobBuilder::new(pattern.trim_end_matches(['/', '\\']))
                .literal_separator(true)
                .case_insensitive(cfg!(any(windows, target_os = "macos")))
                .build();
            // The setting takes none that is not a glob.
            if let Ok(glob) = glob {
                globs.add(glob);
            }
        }
        let paths = patterns.iter().filter_map(|pattern| resolved(Path::new(pattern))).collect();
        Self(Some(Arc::new(Locations { paths, globs: globs.build().ok() })))
    }

    /// Whether an absolute path is such a location; not whether it lies in one.
    #[must_use]
    pub fn names(&self, path: &Path) -> bool {
        let Some(locations) = &self.0 else { return false };
        let is_match = || locations.globs.as_ref().is_none_or(|globs| globs.is_match(path));
        locations.paths.iter().any(|excluded| path == excluded) || is_match()
    }

    /// Whether nothing is excluded.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}
