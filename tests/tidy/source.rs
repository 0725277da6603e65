//! The project's files, and Rust code without its comments, texts and tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The top of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// A text file of the project.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// From the top of the project, with `/` on every system.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is a part of the product rather than of its tests.
    pub(crate) fn is_product_code(&self) -> bool {
        self.is_rust()
            && self.path.contains("/src/")
            && !self.path.ends_with("tests.rs")
            && !self.path.contains("/tests/")
    }

    /// The lines of code that go into the product, numbered from 1.
    pub(crate) fn code(&self) -> Vec<(usize, String)> {
        code(&self.text)
    }
}

/// Every file under version control or about to be; build products and what git ignores left out.
pub(crate) fn project_files() -> Vec<File> {
    let root = root();
    let walk = ignore::WalkBuilder::new(&root)
        .hidden(false)
        .require_git(false)
        .git_global(false)
        .git_exclude(false)
        .parents(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build();
    let mut files: Vec<File> = walk
        .map(Result::unwrap)
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
        .filter_map(|entry| {
            let text = String::from_utf8(fs::read(entry.path()).unwrap()).ok()?;
            let path = entry.path().strip_prefix(&root).unwrap();
            let path = path.components().map(|part| part.as_os_str().to_str().unwrap()).collect::<Vec<_>>().join("/");
            Some(File { path, text })
        })
        .collect();
    files.sort_by(|left, right| left.path.cmp(&right.path));
    assert!(files.len() > 30, "the project's files were not found in {}", root.display());
    files
}

/// Blanks comments and the insides of text literals, and stops at the tests at the end of a file.
fn code(text: &str) -> Vec<(usize, String)> {
    let blanked = blank_comments_and_texts(text);
    let mut lines = Vec::new();
    let mut previous_is_test_attribute = false;
    for (index, line) in blanked.lines().enumerate() {
        let trimmed = line.trim();
        if previous_is_test_attribute && trimmed.starts_with("mod ") {
            if trimmed.ends_with('{') {
                break;
            }
            previous_is_test_attribute = false;
            continue;
        }
        previous_is_test_attribute =
            trimmed == "#[cfg(test)]" || (previous_is_test_attribute && trimmed.starts_with("#["));
        lines.push((index + 1, line.to_owned()));
    }
    lines
}

fn blank_comments_and_texts(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut result = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        match rest {
            ['/', '/', ..] => {
                at += copy_blank(rest, rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()), &mut result)
            }
            ['/', '*', ..] => {
                let end = rest.windows(2).position(|pair| pair == ['*', '/']).map_or(rest.len(), |end| end + 2);
                at += copy_blank(rest, end, &mut result);
            }
            ['r', '"', ..] | ['r', '#', '"' | '#', ..] if !ends_in_word(&result) => {
                let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
                let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                let body = &rest[(hashes + 2).min(rest.len())..];
                let length = body.windows(close.len()).position(|window| window == close).unwrap_or(body.len());
                at += copy_blank(rest, (hashes + 2 + length + close.len()).min(rest.len()), &mut result);
            }
            ['"', ..] => {
                let mut end = 1;
                while end < rest.len() && rest[end] != '"' {
                    end += if rest[end] == '\\' { 2 } else { 1 };
                }
                at += copy_blank(rest, (end + 1).min(rest.len()), &mut result);
            }
            // A character; a lifetime has no closing quote there.
            ['\'', '\\', _, ..] => {
                let end = rest[3..].iter().position(|&c| c == '\'').map_or(rest.len(), |end| end + 4);
                at += copy_blank(rest, end, &mut result);
            }
            ['\'', _, '\'', ..] => at += copy_blank(rest, 3, &mut result),
            [first, ..] => {
                result.push(*first);
                at += 1;
            }
            [] => break,
        }
    }
    result
}

fn ends_in_word(text: &str) -> bool {
    text.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

fn copy_blank(from: &[char], length: usize, to: &mut String) -> usize {
    to.extend(from[..length].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
    length
}

/// Whether `word` stands in `line` as a whole word, or as a path if it contains `::`.
pub(crate) fn names(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !before.is_some_and(part_of_word)
            && (!word.chars().next_back().is_some_and(part_of_word) || !after.is_some_and(part_of_word))
    })
}

#[test]
fn comments_texts_and_tests_are_not_code() {
    let text = r##"//! tokio::process
use a; // unsafe
let s = "println!(\" // "; let r = r#"fs::read"#; let c = '"'; let l: &'static str = x; /* Command
::new */ real();
#[cfg(test)]
mod helper_tests;
fn after() {}
#[cfg(test)]
mod tests {
    fs::write();
}
"##;
    let lines = code(text);
    let joined = lines.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>().join("\n");
    for hidden in ["tokio", "unsafe", "println", "fs::", "Command"] {
        assert!(!joined.contains(hidden), "{hidden} in {joined}");
    }
    for kept in ["use a;", "let l: &'static str = x;", "real();", "fn after()"] {
        assert!(joined.contains(kept), "no {kept} in {joined}");
    }
    assert!(lines.contains(&(7, "fn after() {}".to_owned())));
}

#[test]
fn words_are_whole() {
    assert!(names("use std::fs;", "std::fs"));
    assert!(names("unsafe {", "unsafe"));
    assert!(!names("#![deny(unsafe_code)]", "unsafe"));
    assert!(!names("let refs::read = 1", "fs::"));
    assert!(names("fs::read()", "fs::"));
}
