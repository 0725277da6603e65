//! What introduces a workspace: its README, what its tools are told about it, its documentation.
//!
//! For questions about the workspace as a whole, which no word of theirs can find. Which files those are
//! is told by their names alone.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet},
    path::{Path, PathBuf},
};

use super::{Place, index::FILE_CAP, window::shorten};
use crate::files::{FoundFile, WorkspaceFiles, display_path};

/// The most lines that are shown of a README and of a description.
const MOST_LINES: usize = 50;
/// The most lines that are shown of anything else.
const MOST_LINES_OF_OTHERS: usize = 25;
/// An excerpt in fewer characters says nothing.
const FEWEST_CHARS: usize = 80;
/// Files past this rank only stand in where there are no better ones.
const LAST_RESORT: u32 = 90;

/// What the build tools and package managers of languages are told.
const MANIFESTS: &str = "\
    cargo.toml package.json pyproject.toml setup.py setup.cfg go.mod pom.xml build.gradle build.gradle.kts build.sbt \
    cmakelists.txt meson.build makefile composer.json gemfile mix.exs package.swift pubspec.yaml deno.json \
    project.clj rebar.config stack.yaml dune-project build.zig description";
/// Endings of such files that are named after their project.
const MANIFEST_EXTENSIONS: &str = "csproj fsproj vbproj sln cabal gemspec nimble opam";
/// What a document that introduces is called.
const INTRODUCTIONS: &str = "overview introduction intro about architecture design index agents claude";
/// Where programs begin.
const ENTRY_POINTS: &str = "main lib app index program __main__ __init__ mod";

/// The beginnings of the files that introduce a workspace, best first, within a number of characters.
pub(super) fn places(files: &WorkspaceFiles, found: Vec<FoundFile>, most: usize, most_chars: usize) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut introduced: HashSet<(u32, PathBuf)> = HashSet::new();
    let mut chars_left = most_chars;
    let mut ranked: BinaryHeap<Reverse<(u32, usize, PathBuf)>> =
        found.into_iter().map(|file| Reverse((rank(&file.path), file.path.as_os_str().len(), file.path))).collect();
    while let Some(Reverse((rank, _, path))) = ranked.pop() {
        if places.len() >= most || chars_left < FEWEST_CHARS || (rank >= LAST_RESORT && !places.is_empty()) {
            break;
        }
        // Of a README in ten languages the one with the shortest name is enough.
        if is_readme(&path) && !introduced.insert((rank, path.parent().unwrap_or(Path::new("")).to_owned())) {
            continue;
        }
        // What vanished, is no text, or turned out to be secret, is passed over.
        let Ok(file) = files.read(&path, FILE_CAP) else { continue };
        let most_lines = if is_readme(&path) { MOST_LINES } else { MOST_LINES_OF_OTHERS };
        // Half of what is left for each, so that the first may say most and others still fit.
        let share = if places.len() + 1 == most { chars_left } else { (chars_left / 2).max(FEWEST_CHARS) };
        let Some((first_line, excerpt)) = beginning(&file.text, most_lines, share) else { continue };
        chars_left = chars_left.saturating_sub(excerpt.chars().count());
        places.push(Place {
            path: display_path(&path),
            first_line,
            last_line: first_line + excerpt.lines().count().max(1) - 1,
            excerpt,
            sha256: file.sha256,
            score: 1.0 / (1.0 + places.len() as f32),
            why: "introduces the workspace".into(),
        });
    }
    places
}

/// How well a file introduces, by its name and place: lower is better.
fn rank(path: &Path) -> u32 {
    let depth = u32::try_from(path.components().count().saturating_sub(1)).unwrap_or(u32::MAX).min(100);
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
    let in_documents = path.parent().is_some_and(|parent| {
        ["doc", "docs", "documentation"].contains(&parent.to_string_lossy().to_lowercase().as_str())
    });
    let listed = |list: &str, word: &str| list.split_ascii_whitespace().any(|listed| listed == word);
    let is_document = ["md", "rst", "txt", "adoc", "org", ""].contains(&extension);
    match depth {
        0 if is_readme(path) => 0,
        0 if listed(MANIFESTS, &name) || listed(MANIFEST_EXTENSIONS, extension) => 10,
        0 if is_document && listed(INTRODUCTIONS, stem) => 15,
        1 if in_documents && is_document && (is_readme(path) || listed(INTRODUCTIONS, stem)) => 20,
        1 | 2 if is_readme(path) => 20 + depth * 10,
        1 | 2 if listed(MANIFESTS, &name) || listed(MANIFEST_EXTENSIONS, extension) => 25 + depth * 10,
        0..=2 if !is_document && listed(ENTRY_POINTS, stem) => 60 + depth,
        _ => LAST_RESORT + depth,
    }
}

fn is_readme(path: &Path) -> bool {
    path.file_name().unwrap_or_default().to_string_lossy().to_lowercase().starts_with("readme")
}

/// The first lines of a text and the number of the first of them; none where it has none.
fn beginning(text: &str, most_lines: usize, most_chars: usize) -> Option<(usize, String)> {
    let nowhere = HashMap::new();
    let skipped = text.lines().take_while(|line| line.trim().is_empty()).count();
    let mut lines: Vec<String> = Vec::new();
    let mut chars = 0;
    for line in text.lines().skip(skipped).take(most_lines) {
        let line = shorten(line, &nowhere);
        chars += line.chars().count() + 1;
        if chars > most_chars {
            break;
        }
        lines.push(line);
    }
    while lines.last().is_some_and(|line| line.trim().is_empty()) {
        lines.pop();
    }
    (!lines.is_empty()).then(|| (skipped + 1, lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_introduces_comes_first() {
        let mut paths = [
            "src/parser.rs",
            "src/main.rs",
            "docs/architecture.md",
            "crates/a/README.md",
            "Cargo.toml",
            "README.md",
            "notes.txt",
            "App.csproj",
        ];
        paths.sort_by_key(|path| rank(Path::new(path)));
        assert_eq!(
            paths,
            [
                "README.md",
                "Cargo.toml",
                "App.csproj",
                "docs/architecture.md",
                "crates/a/README.md",
                "src/main.rs",
                "notes.txt",
                "src/parser.rs"
            ]
        );
    }

    #[test]
    fn a_beginning_is_bounded_and_has_its_place() {
        assert_eq!(beginning("\n\n# A\n\n\ntext\n", 3, 100), Some((3, "# A".into())));
        assert_eq!(beginning(&"line\n".repeat(90), 50, 12), Some((1, "line\nline".into())));
        assert_eq!(beginning("\n \n", 3, 100), None);
    }
}
