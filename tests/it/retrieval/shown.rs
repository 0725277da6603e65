//! How an answer is shown.

use lm_tests::run;
use serde_json::json;

use super::{Tree, paths};

#[test]
fn a_whole_answer() {
    let tree = Tree::with(&[
        (
            "src/upload.rs",
            "//! Uploads.\n\n/// Limits how fast uploads go.\npub struct UploadLimiter {\n    budget: u64,\n}\n\n\
             impl UploadLimiter {\n    /// Takes from the budget, or says how long to wait.\n    \
             pub fn take_budget(&mut self) -> bool {\n        self.budget > 0\n    }\n}\n",
        ),
        ("src/main.rs", "mod upload;\n\nfn main() {\n    run(upload::UploadLimiter::default());\n}\n"),
        ("docs/uploads.md", "# Uploads\n\nThe limiter:\n\n````rust\nlimiter.take_budget();\n````\n"),
        (".env", "UPLOAD_TOKEN=1\n"),
    ]);
    let question = "how does UploadLimiter take_budget limit uploads?";
    let [_, mut answer] = tree.ask_both_ways(question);
    assert_eq!(answer["answer"], tree.ask_text(question));
    insta::assert_snapshot!("a_whole_answer", answer["answer"].as_str().unwrap());
    let text = answer["answer"].take();
    assert!(text.as_str().unwrap().contains("\n`````\n"), "the fence is longer than the longest in the text");
    for name in ["total_ms", "queued_ms", "search_ms"] {
        assert!(answer["timing"][name].is_u64());
        answer["timing"][name] = json!("[ms]");
    }
    assert_eq!(answer["workspace"], tree.root.canonicalize().unwrap().to_str().unwrap());
    answer["workspace"] = json!("[root]");
    insta::assert_snapshot!("a_whole_answer_as_json", serde_json::to_string_pretty(&answer).unwrap());
}

#[test]
fn an_answer_keeps_to_its_length_and_says_what_is_missing() {
    let tree = Tree::new();
    for number in 0..12 {
        let body = format!("fn collect_{number}() {{ shared_counter(); }}\n").repeat(50);
        tree.write(format!("file_{number}.rs"), body.as_bytes());
    }
    let whole = tree.ask("who calls shared_counter?");
    let short = tree.ask_with(&["--max-answer-tokens", "256"], "who calls shared_counter?");
    assert_eq!(short["truncated"], true, "{short}");
    let text = short["answer"].as_str().unwrap();
    assert!(text.contains("Cut to 256 tokens.") && text.contains("max_answer_tokens"), "{text}");
    assert!(text.len() <= 256 * 4, "{} bytes: {text}", text.len());
    assert!(!paths(&short).is_empty() && paths(&short).len() < paths(&whole).len());
    let small = Tree::with(&[("a.rs", "fn only_one() {}\n")]);
    assert_eq!(small.ask("where is only_one?")["truncated"], false);
}

#[test]
fn text_and_json_say_the_same_and_nothing_else_is_printed() {
    let tree = Tree::with(&[("a.rs", "fn only_one() {}\n")]).indexed();
    let output = tree.sandbox.shim(&["ask", "where is only_one?"]).current_dir(&tree.root).output().unwrap();
    assert_eq!(run::succeeded(&output), tree.ask("where is only_one?")["answer"].as_str().unwrap());
    assert_eq!(run::stderr(&output), "");
}

#[test]
fn what_a_terminal_would_obey_is_shown_instead() {
    let hostile = "// clear_screen \x1b[2J\x1b]0;title\x07 \u{9b}31m \u{202e}turned\nfn clear_screen() {}\n";
    let tree = Tree::with(&[("a.rs", hostile)]);
    for arguments in [&["ask", "where is clear_screen?"][..], &["ask", "--json", "where is clear_screen?"]] {
        let output = tree.sandbox.shim(arguments).current_dir(&tree.root).output().unwrap();
        let answer = run::succeeded(&output);
        assert!(answer.contains("\u{241b}[2J") && answer.contains("turned"), "{answer}");
        let obeyed = |character: char| (character.is_control() && character != '\n') || character == '\u{202e}';
        assert!(!answer.contains(obeyed), "{answer:?}");
    }
}
