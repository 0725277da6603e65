//! What is answered is what is there now, whether by live search or by index.

use std::{
    fs,
    path::{Path, PathBuf},
};

use lm_tests::{McpClient, daemon, files_below, run, wait_until};
use serde_json::json;

use super::{Tree, assert_absent, paths};

#[test]
fn the_index_is_made_with_the_first_question_and_used_when_it_is_there() {
    let tree = Tree::with(&[("src/retry.rs", "/// Doubles the pause.\nfn exponential_backoff() {}\n")]);
    assert_eq!(run::json(&tree.sandbox.run(&["stats", "--json"]))["running"], false, "a daemon ran before");
    for answer in tree.ask_both_ways("where is exponential_backoff?") {
        assert_eq!(paths(&answer), ["src/retry.rs"]);
        assert_eq!((&answer["search"]["verdict"], &answer["search"]["files"]), (&json!("found"), &json!(1)));
    }
    let index = tree.index();
    assert_eq!((&index["files"], &index["bytes"], &index["error"]), (&json!(1), &json!(51), &json!(null)), "{index}");

    let mut server = tree.sandbox.shim(&[]);
    server.env("CLAUDE_PROJECT_DIR", &tree.root);
    let (failed, text) = McpClient::initialized(server).ask(json!({"question": "where is exponential_backoff?"}));
    let shown = tree.ask_text("where is exponential_backoff?");
    assert!(!failed && text.starts_with(shown.trim_end()) && text.ends_with("· index"), "{text}\n{shown}");
}

#[test]
fn what_changes_between_questions_is_answered_as_it_is_now() {
    let tree = Tree::with(&[("src/a.rs", "fn first_thing() {}\n"), ("src/b.rs", "fn second_thing() {}\n")]).indexed();

    tree.write("src/a.rs", b"// moved down\n\nfn first_thing() { changed(); }\n");
    let answer = tree.ask("where is first_thing?");
    assert_eq!(paths(&answer), ["src/a.rs"]);
    assert!(answer["answer"].as_str().unwrap().contains("3  fn first_thing() { changed(); }"), "{answer}");
    assert_eq!(answer["search"]["mode"], "index");

    tree.write("src/c.rs", b"fn third_thing() {}\n");
    assert_eq!(paths(&tree.ask("where is third_thing?")), ["src/c.rs"]);

    fs::remove_file(tree.root.join("src/b.rs")).unwrap();
    assert_absent(&tree.ask("where is second_thing?"), "second_thing");

    fs::rename(tree.root.join("src/c.rs"), tree.root.join("elsewhere.rs")).unwrap();
    assert_eq!(paths(&tree.ask("where is third_thing?")), ["elsewhere.rs"]);

    fs::rename(tree.root.join("src"), tree.root.join("source")).unwrap();
    assert_eq!(paths(&tree.ask("where is first_thing?")), ["source/a.rs"]);

    // The same again from the index that has caught up with all of it.
    tree.wait_for_index();
    for (name, path) in [("third_thing", "elsewhere.rs"), ("first_thing", "source/a.rs")] {
        let answer = tree.ask(&format!("where is {name}?"));
        assert_eq!((paths(&answer), &answer["search"]["files"]), (vec![path], &json!(2)), "{answer}");
    }
    assert_absent(&tree.ask("where is second_thing?"), "second_thing");
}

#[test]
fn a_file_of_the_same_size_and_time_is_seen_to_have_changed() {
    let tree = Tree::with(&[("a.rs", "fn name_before() {}\n")]).indexed();
    let path = tree.root.join("a.rs");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "fn other_names() {}\n").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    // Only Unix keeps a time that nobody can set back; elsewhere such a change is not to be seen.
    if cfg!(unix) {
        assert_eq!(paths(&tree.ask("where is other_names?")), ["a.rs"]);
        assert_absent(&tree.ask("where is name_before?"), "name_before");
    }
}

#[test]
fn what_is_absent_is_said_to_be_absent() {
    let tree = Tree::with(&[
        ("src/upload.rs", "struct UploadLimiter;\nimpl UploadLimiter {\n    fn take_budget(&self) {}\n}\n"),
        ("README.md", "# Uploads\n\nThey are limited.\n"),
    ]);
    for answer in tree.ask_both_ways("where is `FrobnicatorFactory` defined?") {
        assert_absent(&answer, "FrobnicatorFactory");
    }
    let misspelt = tree.ask("where is `take_budgt`?");
    assert_absent(&misspelt, "take_budgt");
    assert!(misspelt["search"]["suggestions"].as_array().unwrap().iter().any(|name| name == "take_budget"));
    let output = tree.sandbox.shim(&["ask", "the of and"]).current_dir(&tree.root).output().unwrap();
    assert!(run::failed(&output, 1).contains("name what it is about"));
}

#[test]
fn a_search_that_ran_out_of_time_calls_nothing_absent() {
    let tree = Tree::new();
    // Much more text than is read in the time given, in little room.
    let text = tree.write("0.txt", "the quick brown fox jumps over the lazy dog\n".repeat(23_000).as_bytes());
    for number in 1..4_000 {
        fs::hard_link(&text, tree.root.join(format!("{number}.txt"))).unwrap();
    }
    let answer = tree.ask_with(&["--timeout", "1"], "where is `FrobnicatorFactory` defined?");
    assert_eq!(answer["search"]["complete"], false, "{answer}");
    assert_eq!(answer["search"]["absent_terms"], json!([]), "{answer}");
    let text = answer["answer"].as_str().unwrap();
    assert!(text.contains("time ran out") && !text.contains("nowhere"), "{text}");
}

/// Does something to a file.
type Damage = fn(&Path);

#[test]
fn a_damaged_index_costs_no_answer() {
    let tree = Tree::with(&[("a.rs", "fn kept_safe() {}\n"), ("b.rs", "fn another_one() {}\n")]).indexed();
    let data = tree.sandbox.data();
    let index_files = || -> Vec<PathBuf> { files_below(&data.workspaces()) };
    let damages: [(&str, Damage); 4] = [
        ("emptied", |file| fs::write(file, "").unwrap()),
        ("filled with noise", |file| fs::write(file, vec![0xa5; 4096]).unwrap()),
        ("cut in half", |file| {
            let bytes = fs::read(file).unwrap();
            fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("deleted", |file| fs::remove_file(file).unwrap()),
    ];
    for (how, damage) in damages {
        assert!(tree.sandbox.run(&["stop"]).status.success());
        daemon::wait_until_left(&data);
        let files = index_files();
        assert!(!files.is_empty(), "no index was kept");
        files.iter().for_each(|file| damage(file));
        let answer = tree.ask("where is kept_safe?");
        assert_eq!(paths(&answer), ["a.rs"], "{how}");
        wait_until("an index that works", || {
            let answer = tree.ask("where is kept_safe?");
            let index = tree.index();
            assert_ne!(index["state"], "failed", "{how}: {index}\n{}", tree.log());
            (answer["search"]["mode"] == "index").then_some(())
        });
        assert_absent(&tree.ask("where is never_heard_of?"), "never_heard_of");
    }
}

#[test]
fn the_index_outlives_its_daemon() {
    let tree = Tree::with(&[("a.rs", "fn kept_safe() {}\n")]).indexed();
    assert!(tree.sandbox.run(&["stop"]).status.success());
    tree.write("a.rs", b"\n\nfn kept_safe() {}\n");
    let answer = tree.ask("where is kept_safe?");
    assert_eq!((&answer["search"]["mode"], paths(&answer)), (&json!("index"), vec!["a.rs"]));
}

#[test]
fn an_empty_directory_is_said_to_be_empty() {
    let tree = Tree::new();
    for answer in tree.ask_both_ways("where is main?") {
        assert_eq!((&answer["search"]["verdict"], &answer["search"]["files"]), (&json!("nothing"), &json!(0)));
        assert!(answer["answer"].as_str().unwrap().contains("no text files"), "{answer}");
    }
}
