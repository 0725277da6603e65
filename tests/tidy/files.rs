//! Sizes and places of files, and words that do not belong in any.

use std::{collections::BTreeSet, fs};

use crate::source::{File, project_files, root};

/// A longer file is more than one idea.
const LINES_MAX: usize = 800;
/// From here on a file is named, so that it is split before it has to be.
const LINES_NEAR: usize = 400;

#[test]
fn no_file_is_longer_than_one_idea() {
    let mut long: Vec<(usize, String)> = project_files()
        .into_iter()
        .filter(|file| ["rs", "py", "sh"].iter().any(|extension| file.path.ends_with(&format!(".{extension}"))))
        .map(|file| (file.text.lines().count(), file.path))
        .filter(|(lines, _)| *lines > LINES_NEAR)
        .collect();
    long.sort();
    long.iter().for_each(|(lines, path)| println!("near the limit: {path} has {lines} lines"));
    long.retain(|(lines, _)| *lines > LINES_MAX);
    assert!(long.is_empty(), "more than {LINES_MAX} lines: {long:?}");
}

#[test]
fn every_rust_file_says_what_it_is_for() {
    let silent: Vec<_> = project_files()
        .into_iter()
        .filter(|file| file.is_product_code() || (file.is_rust() && file.path.starts_with("tests/")))
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| file.path)
        .collect();
    assert!(silent.is_empty(), "no `//!` at the top of: {silent:?}");
}

#[test]
fn the_top_level_is_complete_and_small() {
    let entries: BTreeSet<String> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.') && name != "target")
        .collect();
    let wanted = [
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "SECURITY.md",
        "clippy.toml",
        "docs",
        "lm-core",
        "lm-proto",
        "lm-shim",
        "plugin",
        "rustfmt.toml",
        "tests",
    ];
    assert_eq!(entries, wanted.map(str::to_owned).into_iter().collect());
}

/// The plugin is copied to users as it lies here, so nothing else may lie there.
#[test]
fn the_plugin_folder_holds_what_users_need_and_nothing_else() {
    let strangers: Vec<_> = project_files()
        .into_iter()
        .filter_map(|file| file.path.strip_prefix("plugin/").map(str::to_owned))
        .filter(|path| {
            let known = [
                ".claude-plugin/plugin.json",
                ".mcp.json",
                "bin/lm-shim",
                "hooks/hooks.json",
                "hooks/command-hooks.json",
                "skills/live-memory/SKILL.md",
            ];
            let is_command = path.starts_with("commands/live-memory-") && path.ends_with(".md");
            !(is_command || known.contains(&path.as_str()))
        })
        .collect();
    assert!(strangers.is_empty(), "not a user's file: {strangers:?}");
}

#[test]
fn the_plugin_speaks_of_this_version() {
    let manifest: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(root().join("plugin/.claude-plugin/plugin.json")).unwrap()).unwrap();
    assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(manifest["name"], "live-memory");
    let servers: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(root().join("plugin/.mcp.json")).unwrap()).unwrap();
    let server = &servers["mcpServers"]["live-memory"];
    assert_eq!(server["command"], "${CLAUDE_PLUGIN_ROOT}/bin/lm-shim");
    // Without it the tool is missing from the first prompt where tool search is on.
    assert_eq!(server["alwaysLoad"], true);
}

/// The run bit travels with the file; without it the client's start fails.
#[cfg(unix)]
#[test]
fn programs_can_be_run() {
    use std::os::unix::fs::PermissionsExt;

    for program in ["plugin/bin/lm-shim", ".ci/run"] {
        let mode = fs::metadata(root().join(program)).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{program} cannot be run");
    }
}

#[test]
fn every_crate_has_the_workspace_lints() {
    for file in project_files().iter().filter(|file| file.path.ends_with("/Cargo.toml")) {
        assert!(file.text.contains("[lints]\nworkspace = true"), "{} leaves the lints out", file.path);
    }
}

/// Words that mean unfinished work or a particular machine. Put together here, so that this file has none.
fn unwanted_words() -> Vec<String> {
    let pairs = [("TO", "DO"), ("FIX", "ME"), ("/wo", "rk/"), ("/ro", "ot/"), ("/home", "/user/")];
    pairs.iter().map(|(start, end)| format!("{start}{end}")).collect()
}

fn unwanted(file: &File) -> Vec<String> {
    let words = unwanted_words();
    let lines = file.text.lines().enumerate();
    lines
        .flat_map(|(index, line)| words.iter().filter(|word| line.contains(*word)).map(move |word| (index + 1, word)))
        .map(|(number, word)| format!("{}:{number}: {word}", file.path))
        .collect()
}

#[test]
fn nothing_is_left_for_later_or_bound_to_a_machine() {
    let found: Vec<_> =
        project_files().iter().filter(|file| !file.path.ends_with(".lock")).flat_map(unwanted).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn unwanted_words_are_found() {
    for word in unwanted_words() {
        let file = File { path: "a.rs".into(), text: format!("fine\n// {word}x") };
        assert_eq!(unwanted(&file).len(), 1, "{word}");
    }
}
