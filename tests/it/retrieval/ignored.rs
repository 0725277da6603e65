//! Files that their owner has told tools to leave alone.

use std::fs;

use super::{Tree, assert_absent, paths};

/// Asks for every name by live search and by index; those that are not `visible` must be absent.
fn check(tree: &Tree, visible: &[(&str, &str)], hidden: &[&str]) {
    for _ in 0..2 {
        for (name, path) in visible {
            assert_eq!(paths(&tree.ask(&format!("where is {name}?")))[0], *path, "{name}");
        }
        for name in hidden {
            assert_absent(&tree.ask(&format!("where is {name}?")), name);
        }
        tree.wait_for_index();
    }
}

fn with_rules(tree: &Tree) {
    for (path, text) in [
        (".gitignore", "/build/\n*.cfg\n!kept.cfg\n"),
        ("build/out.rs", "fn zebra_seven() {}\n"),
        ("debug.cfg", "zebra_one\n"),
        ("kept.cfg", "zebra_two\n"),
        ("nested/.gitignore", "generated_*\n!generated_by_hand.rs\n"),
        ("nested/generated_a.rs", "fn zebra_three() {}\n"),
        ("nested/generated_by_hand.rs", "fn zebra_four() {}\n"),
        ("other/generated_b.rs", "fn zebra_five() {}\n"),
        (".livememoryignore", "private/\n"),
        ("private/notes.md", "zebra_six\n"),
    ] {
        tree.write(path, text.as_bytes());
    }
}

const VISIBLE: &[(&str, &str)] =
    &[("zebra_two", "kept.cfg"), ("zebra_four", "nested/generated_by_hand.rs"), ("zebra_five", "other/generated_b.rs")];
const HIDDEN: &[&str] = &["zebra_seven", "zebra_one", "zebra_three", "zebra_six"];

#[test]
fn rules_hold_outside_of_git_and_those_above_the_root_do_not() {
    let tree = Tree::new();
    // As people have it who keep their dot files in git.
    fs::write(tree.sandbox.root().join(".gitignore"), "*\n").unwrap();
    fs::write(tree.sandbox.root().join(".livememoryignore"), "*\n").unwrap();
    with_rules(&tree);
    check(&tree, VISIBLE, HIDDEN);
}

#[test]
fn rules_hold_in_a_repository_with_its_own_excludes() {
    let tree = Tree::new();
    // What makes a repository, as far as the daemon looks.
    for (path, text) in [
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/config", "[core]\n\tbare = false\n"),
        (".git/info/exclude", "scratch.rs\n"),
        (".git/notes.rs", "fn zebra_eight() {}\n"),
        ("scratch.rs", "fn zebra_nine() {}\n"),
    ] {
        tree.write(path, text.as_bytes());
    }
    for directory in ["objects", "refs"] {
        fs::create_dir_all(tree.root.join(".git").join(directory)).unwrap();
    }
    with_rules(&tree);
    let hidden: Vec<_> = HIDDEN.iter().copied().chain(["zebra_nine", "zebra_eight"]).collect();
    check(&tree, VISIBLE, &hidden);
}

#[test]
fn rules_that_change_hold_from_the_next_question() {
    let tree = Tree::with(&[("a/one.rs", "fn thing_one() {}\n"), ("b/two.rs", "fn thing_two() {}\n")]).indexed();
    assert_eq!(paths(&tree.ask("where is thing_one?")), ["a/one.rs"]);
    tree.write(".livememoryignore", b"a/\n");
    assert_absent(&tree.ask("where is thing_one?"), "thing_one");
    assert_eq!(paths(&tree.ask("where is thing_two?")), ["b/two.rs"]);
    fs::remove_file(tree.root.join(".livememoryignore")).unwrap();
    assert_eq!(paths(&tree.ask("where is thing_one?")), ["a/one.rs"]);
}

#[test]
fn what_a_person_leaves_out_no_rule_of_git_brings_back() {
    let tree = Tree::new();
    for (path, text) in [
        (".livememoryignore", "*.priv\nprivate/\n"),
        (".gitignore", "!keep.priv\n!private/\n"),
        ("keep.priv", "zebra_one\n"),
        ("sub/.gitignore", "!keep.priv\n!private/\n"),
        ("sub/keep.priv", "zebra_two\n"),
        ("sub/private/a.md", "zebra_three\n"),
        ("sub/seen.md", "zebra_four\n"),
        ("allowed/.livememoryignore", "!keep.priv\n"),
        ("allowed/keep.priv", "zebra_five\n"),
    ] {
        tree.write(path, text.as_bytes());
    }
    let visible = [("zebra_four", "sub/seen.md"), ("zebra_five", "allowed/keep.priv")];
    check(&tree, &visible, &["zebra_one", "zebra_two", "zebra_three"]);
    // A question that names the file does not get at it either.
    let answer = tree.ask_text("show me sub/keep.priv and sub/private/a.md");
    assert!(!answer.contains("zebra_two") && !answer.contains("zebra_three"), "{answer}");
}

#[test]
fn rules_hold_in_utf16_and_behind_a_link() {
    let tree = Tree::with(&[("a/one.md", "zebra_one\n"), ("b/two.md", "zebra_two\n"), ("c.md", "zebra_three\n")]);
    let utf16: Vec<u8> = "\u{feff}one.md\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    tree.write("a/.livememoryignore", &utf16);
    tree.write("rules.txt", b"two.md\n");
    let link = tree.root.join("b/.livememoryignore");
    #[cfg(unix)]
    std::os::unix::fs::symlink("../rules.txt", link).unwrap();
    #[cfg(not(unix))]
    fs::copy(tree.root.join("rules.txt"), link).unwrap();
    check(&tree, &[("zebra_three", "c.md")], &["zebra_one", "zebra_two"]);
}

#[test]
fn rules_that_nobody_can_read_shut_their_directory_and_are_told_of() {
    let tree = Tree::with(&[("shut/one.md", "zebra_one\n"), ("open.md", "zebra_two\n")]);
    tree.write("shut/.livememoryignore", b"one.md\n\0\0\0");
    for _ in 0..2 {
        let answer = tree.ask("where is zebra_one?");
        assert_ne!(answer["search"]["verdict"], "found", "{answer}");
        assert_eq!(answer["search"]["left_out"]["unreadable"], 1, "{answer}");
        assert_eq!(paths(&tree.ask("where is zebra_two?")), ["open.md"]);
        tree.wait_for_index();
    }
    let log = tree.log();
    assert!(log.contains("`shut/.livememoryignore`") && log.contains("cannot be read as text"), "{log}");

    tree.write(".livememoryignore", b"one.md\n\0\0\0");
    let output = tree.sandbox.shim(&["ask", "where is zebra_two?"]).current_dir(&tree.root).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(said.contains("`.livememoryignore` cannot be read as text") && said.contains("remove it"), "{said}");
    fs::remove_file(tree.root.join(".livememoryignore")).unwrap();
    fs::remove_file(tree.root.join("shut/.livememoryignore")).unwrap();
    assert_eq!(paths(&tree.ask("where is zebra_one?")), ["shut/one.md"]);
}

#[test]
fn a_linked_worktree_in_the_tree_is_another_workspace() {
    let tree = Tree::new();
    for (path, text) in [
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/config", "[core]\n\tbare = false\n"),
        (".git/worktrees/feature/commondir", "../..\n"),
        ("a.rs", "fn zebra_one() {}\n"),
        (".worktrees/feature/a.rs", "fn zebra_one() {}\nfn zebra_two() {}\n"),
        ("module/.git", "gitdir: ../.git/modules/module\n"),
        ("module/b.rs", "fn zebra_three() {}\n"),
    ] {
        tree.write(path, text.as_bytes());
    }
    for directory in ["objects", "refs", "modules/module"] {
        fs::create_dir_all(tree.root.join(".git").join(directory)).unwrap();
    }
    let git_dir = tree.root.join(".git/worktrees/feature");
    tree.write(".worktrees/feature/.git", format!("gitdir: {}\n", git_dir.display()).as_bytes());
    for _ in 0..2 {
        assert_eq!(paths(&tree.ask("where is zebra_one?")), ["a.rs"]);
        tree.wait_for_index();
    }
    check(&tree, &[("zebra_one", "a.rs"), ("zebra_three", "module/b.rs")], &["zebra_two"]);
    // Asked from inside it is searched like any other tree.
    let mut command = tree.sandbox.shim(&["ask", "--json", "where is zebra_two?"]);
    let output = command.current_dir(tree.root.join(".worktrees/feature")).output().unwrap();
    assert_eq!(paths(&lm_tests::run::json(&output)), ["a.rs"]);
}
