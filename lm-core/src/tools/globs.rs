//! Globs that a model gives.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::ToolError;

/// The longest glob, in bytes.
const LONGEST: usize = 1_000;
/// The most globs in one list.
const MOST: usize = 50;

/// A list of globs, some of which may exclude.
#[derive(Debug)]
pub(super) struct Globs {
    included: GlobSet,
    excluded: GlobSet,
}

impl Globs {
    /// Reads globs separated by commas outside braces. One without a slash matches names at any depth,
    /// one that starts with `!` excludes.
    pub(super) fn parse(text: &str) -> Result<Self, ToolError> {
        let parts: Vec<&str> = split(text).collect();
        if parts.is_empty() {
            return Err(ToolError("the glob is empty; `**` matches everything".into()));
        }
        if parts.len() > MOST || text.len() > LONGEST {
            return Err(ToolError(format!("the glob is too long; {MOST} patterns and {LONGEST} bytes are allowed")));
        }
        let (mut included, mut excluded) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        let mut excludes_only = true;
        for part in parts {
            let (glob, set) = match part.strip_prefix('!') {
                Some(glob) => (glob, &mut excluded),
                None => {
                    excludes_only = false;
                    (part, &mut included)
                }
            };
            for pattern in spellings(glob) {
                set.add(compile(&pattern, part)?);
            }
        }
        if excludes_only {
            included.add(compile("**", text)?);
        }
        let build = |set: GlobSetBuilder| {
            set.build().map_err(|error| ToolError(format!("the glob `{text}` cannot be used: {error}; simplify it")))
        };
        Ok(Self { included: build(included)?, excluded: build(excluded)? })
    }

    /// Whether a path matches.
    pub(super) fn matches(&self, path: &Path) -> bool {
        self.included.is_match(path) && (self.excluded.is_empty() || !self.excluded.is_match(path))
    }
}

/// A directory means all that is in it, and a name matches at any depth.
fn spellings(glob: &str) -> Vec<String> {
    let glob = glob.strip_prefix("./").unwrap_or(glob);
    let anchored = glob.trim_start_matches('/');
    let whole = anchored.trim_end_matches('/');
    let is_directory = whole.len() < anchored.len();
    let name =
        if whole.contains('/') || anchored.len() < glob.len() { whole.to_owned() } else { format!("**/{whole}") };
    if is_directory { vec![format!("{name}/**")] } else { vec![name] }
}

fn compile(pattern: &str, given: &str) -> Result<globset::Glob, ToolError> {
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .backslash_escape(!cfg!(windows))
        .empty_alternates(true)
        .build()
        .map_err(|error| {
            ToolError(format!(
                "the glob `{given}` is not valid: {}; globs know *, **, ?, [a-z] and {{a,b}}, and [ and {{ must be closed (write [[] or [{{] for the character itself)",
                error.kind()
            ))
        })
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    let (mut braces, mut brackets) = (0_usize, false);
    text.split(move |character| {
        match character {
            '[' => brackets = true,
            ']' => brackets = false,
            '{' => braces += 1,
            '}' => braces = braces.saturating_sub(1),
            _ => {}
        }
        character == ',' && braces == 0 && !brackets
    })
    .map(str::trim)
    .filter(|part| !part.is_empty() && *part != "!")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(glob: &str, path: &str) -> bool {
        Globs::parse(glob).unwrap().matches(Path::new(path))
    }

    #[test]
    fn names_match_anywhere_and_paths_where_they_say() {
        for (glob, path, expected) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/deep/a.rs", true),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/deep/a.rs", false),
            ("src/**/*.rs", "src/a.rs", true),
            ("src/**/*.rs", "src/deep/a.rs", true),
            ("/*.rs", "a.rs", true),
            ("/*.rs", "src/a.rs", false),
            ("./src/a.rs", "src/a.rs", true),
            ("src/", "src/deep/a.rs", true),
            ("src/", "lib/src/a.rs", true),
            ("*.{ts,tsx}", "x/a.tsx", true),
            ("*.ts, *.rs", "x/a.rs", true),
            ("!*.rs", "a.rs", false),
            ("!*.rs", "a.py", true),
            ("*.rs,!**/tests/**", "tests/a.rs", false),
            ("**", "any/thing", true),
            ("[a,b].rs", "b.rs", true),
        ] {
            assert_eq!(matches(glob, path), expected, "{glob} on {path}");
        }
    }

    #[test]
    fn invalid_ones_get_a_hint() {
        for glob in ["[", "{a", "a{b,{c}", "[z-a]"] {
            let ToolError(text) = Globs::parse(glob).unwrap_err();
            assert!(text.contains("not valid") && text.contains("must be closed"), "{text}");
        }
        assert!(Globs::parse("  ,").is_err());
        assert!(Globs::parse(&"a".repeat(2_000)).is_err());
    }
}
