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
