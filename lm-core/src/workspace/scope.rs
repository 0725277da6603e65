//! Which files of a workspace are learned from: the setting `file_globs`. Pure.

use globset::{GlobSet, GlobSetBuilder};

use crate::settings::relative_glob;

/// The files that may be learned from; outside it nothing is observed, changed or deleted in memory.
#[derive(Clone, Debug, Default)]
pub struct Scope(Option<GlobSet>);

impl Scope {
    /// Of patterns relative to the workspace, in which `*` and `?` also match `/`. None at all are
    /// everything.
    ///
    /// # Errors
    /// Names the pattern that is none.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        let mut globs = GlobSetBuilder::new();
        for pattern in patterns {
            let glob = relative_glob(pattern)
                .ok_or_else(|| format!("`{pattern}` is not a pattern of paths relative to the workspace"))?;
            globs.add(glob);
        }
        globs.build().map(|globs| Self(Some(globs))).map_err(|error| format!("file_globs cannot be used: {error}"))
    }

    /// Whether a file, by its path relative to the root and with `/` in it, may be learned from.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.0.as_ref().is_none_or(|globs| globs.is_match(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(patterns: &[&str]) -> Scope {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        Scope::new(&patterns).unwrap()
    }

    #[test]
    fn nothing_set_is_everything() {
        assert!(scope(&[]).contains("any/thing.at all"));
    }

    #[test]
    fn stars_and_question_marks_cross_directories() {
        let sources = scope(&["src/*.rs", "*.md", "doc?/x"]);
        for inside in ["src/a.rs", "src/a/b/c.rs", "README.md", "deep/er/x.md", "docs/x", "doc//x"] {
            assert!(sources.contains(inside), "{inside}");
        }
        for outside in ["a.rs", "other/src/a.rs", "src/a.rs.bak", "docs/y"] {
            assert!(!sources.contains(outside), "{outside}");
        }
        assert!(scope(&["./src/*"]).contains("src/a/b"));
        assert!(scope(&["[ab].c"]).contains("a.c"));
        assert!(scope(&["**/*.py"]).contains("a.py"));
    }

    #[test]
    fn what_is_no_pattern_of_the_workspace_is_refused() {
        for pattern in ["/etc/*", "../*", "a/../../b", "[", "{a", "~/x", "C:\\x"] {
            assert!(Scope::new(&[pattern.to_owned()]).is_err(), "{pattern}");
        }
    }
}
