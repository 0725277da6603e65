//! The documents name commands, files and tests that exist.

use std::collections::BTreeSet;

use lm_tests::{Sandbox, binaries};

use crate::source::{File, project_files, root};

fn documents() -> Vec<File> {
    project_files().into_iter().filter(|file| file.path.ends_with(".md")).collect()
}

fn document(path: &str) -> File {
    documents().into_iter().find(|file| file.path == path).unwrap_or_else(|| panic!("no {path}"))
}

/// The lines of fenced blocks of one language.
fn code_lines<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let mut lines = Vec::new();
    let mut inside = None;
    for line in text.lines() {
        match (line.trim().strip_prefix("```"), inside) {
            (Some(opened), None) => inside = Some(opened == language),
            (Some(_), Some(_)) => inside = None,
            (None, Some(true)) => lines.push(line),
            (None, _) => {}
        }
    }
    lines
}

/// What stands in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// The targets of Markdown links.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target)).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for file in documents() {
        let text: String = outside_code(&file.text);
        for link in links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let target = link.split('#').next().unwrap();
            let from = root().join(&file.path);
            if !from.parent().unwrap().join(target).exists() {
                broken.push(format!("{}: {link}", file.path));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

fn outside_code(text: &str) -> String {
    let mut inside = false;
    text.lines()
        .filter(|line| {
            let fence = line.trim().starts_with("```");
            inside ^= fence;
            !inside && !fence
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// The two commands of the README are run by `.ci/run` as they stand there.
#[test]
fn the_readme_has_the_two_commands_and_ci_runs_them() {
    let readme = document("README.md");
    let commands = code_lines(&readme.text, "sh");
    let asking: Vec<_> =
        commands.iter().filter(|line| line.contains("cargo build") && line.contains(" ask ")).collect();
    assert_eq!(asking.len(), 1, "one line builds and asks: {commands:?}");
    assert!(commands.contains(&"cargo test --workspace"), "{commands:?}");
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(ci.contains("cargo test --workspace"), ".ci/run must run the tests as the README says");
    assert!(ci.contains("README.md"), ".ci/run must take the command that builds and asks from the README");
}

/// `lm-shim WORD` in any document is a command that the binary knows.
#[test]
fn documented_commands_exist() {
    let mut words = BTreeSet::new();
    for file in documents() {
        let places = quoted(&file.text).into_iter().chain(code_lines(&file.text, "sh"));
        for place in places {
            for (start, marker) in place.match_indices("lm-shim ") {
                let word: String =
                    place[start + marker.len()..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
                if !word.is_empty() && !word.starts_with('-') {
                    words.insert(word);
                }
            }
        }
    }
    assert!(words.contains("ask"), "no document says how to ask: {words:?}");
    let _ = binaries::shim();
    let sandbox = Sandbox::new();
    let unknown: Vec<_> =
        words.iter().filter(|word| !sandbox.run(&[word.as_str(), "--help"]).status.success()).collect();
    assert!(unknown.is_empty(), "{} knows no {unknown:?}", binaries::shim().display());
    assert!(!sandbox.run(&["no-such-command", "--help"]).status.success());
}

/// The names of all tests: functions, Python scenarios and the launcher's trials.
fn test_names(files: &[File]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files {
        for line in file.text.lines().map(str::trim_start) {
            let line = line.strip_prefix("async ").unwrap_or(line);
            for keyword in ["fn ", "def "] {
                if let Some(rest) = line.strip_prefix(keyword) {
                    names.insert(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
                }
            }
        }
    }
    names
}

/// The tests that a document names: words in backticks with at least three underscores.
fn named_tests(text: &str) -> Vec<&str> {
    quoted(text)
        .into_iter()
        .map(|word| word.rsplit("::").next().unwrap_or(word))
        .filter(|word| {
            word.matches('_').count() >= 3
                && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
        .collect()
}

#[test]
fn tests_named_by_documents_exist() {
    let files = project_files();
    let known = test_names(&files);
    let mut missing = Vec::new();
    // These two are made of names of settings and fields.
    let references = ["docs/settings.md", "docs/protocol.md"];
    for file in documents().into_iter().filter(|file| !references.contains(&file.path.as_str())) {
        missing.extend(
            named_tests(&file.text)
                .into_iter()
                .filter(|name| !known.contains(*name))
                .map(|name| format!("{}: {name}", file.path)),
        );
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(!named_tests(&document("docs/architecture.md").text).is_empty(), "the invariants name no tests");
}

/// Paths in backticks that begin with a folder of the project exist.
#[test]
fn files_named_by_documents_exist() {
    let mut missing = Vec::new();
    for file in documents().into_iter().filter(|file| file.path != "CHANGELOG.md") {
        for word in quoted(&file.text) {
            let first = word.split('/').next().unwrap();
            let ours = ["lm-proto", "lm-shim", "lm-core", "plugin", "tests", "docs", ".ci", ".github"].contains(&first);
            if ours && word.contains('/') && !word.contains([' ', '*', '<', '…', '{']) && !root().join(word).exists()
            {
                missing.push(format!("{}: {word}", file.path));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// A document cannot promise what a tracker's number stands for.
#[test]
fn invariants_are_all_listed() {
    let architecture = document("docs/architecture.md");
    let rows: Vec<_> = architecture
        .text
        .lines()
        .filter(|line| line.strip_prefix("| ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
        .collect();
    assert_eq!(rows.len(), 10, "ten invariants, one row each: {rows:#?}");
    for row in rows {
        assert!(!named_tests(row).is_empty() || row.contains("comes with"), "no test holds: {row}");
    }
}

#[test]
fn the_readers_of_documents_can_see() {
    let text = "See [a](b/c.md) and `x::a_test_of_ours`.\n```sh\nrun me\n```\n```text\nnot me\n```\n";
    assert_eq!(links(text), ["b/c.md"]);
    assert_eq!(code_lines(text, "sh"), ["run me"]);
    assert_eq!(named_tests(text), ["a_test_of_ours"]);
    assert_eq!(outside_code("a\n```\nb\n```\nc"), "a\nc");
}
