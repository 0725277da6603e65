use super::*;
use crate::retrieval::LeftOut;
use proptest::prelude::*;
use serde_json::Value;

fn place(path: &str, first_line: usize, excerpt: &str) -> Place {
    Place {
        path: path.into(),
        first_line,
        last_line: first_line + excerpt.lines().count().max(1) - 1,
        excerpt: excerpt.into(),
        sha256: "ab".repeat(32),
        score: 1.0,
        why: String::new(),
    }
}

fn found(places: Vec<Place>) -> SearchOutcome {
    SearchOutcome {
        places,
        verdict: Verdict::Found,
        absent_terms: vec![],
        suggestions: vec![],
        empty_files: vec![],
        coverage: 1.0,
        how: How::Indexed { complete: true },
        files_searched: 5012,
        left_out: LeftOut::default(),
    }
}

fn answer(outcome: &SearchOutcome, tokens: u32, why: &Why, notes: &[String]) -> Answer {
    let timing = Timing {
        total: Duration::from_millis(12),
        queued: Duration::from_millis(1),
        search: Duration::from_millis(10),
    };
    let index = match outcome.how {
        How::Indexed { .. } => IndexState::Ready,
        How::Live { .. } => IndexState::Building,
    };
    render(&Input {
        workspace: Path::new("/home/me/project"),
        outcome,
        index: &index,
        fewer_places: false,
        max_answer_tokens: tokens,
        why,
        notes,
        timing,
    })
}

fn json(answer: &Answer) -> Value {
    serde_json::from_str(&answer.json).unwrap()
}

#[test]
fn places_are_shown_best_first_with_numbered_lines() {
    let outcome = found(vec![
        place("src/retry.rs", 98, "/// Tries again.\nfn retry() {\n\n    again();\n}"),
        place("docs/retries.md", 1, "# Retries\n\n```rust\nretry();\n```"),
    ]);
    let answer = answer(&outcome, 4096, &Why::NoneChosen, &[]);
    insta::assert_snapshot!(answer.text);
    insta::assert_snapshot!(answer.trailer, @"offline · 12 ms · 5,012 files searched · index");
    insta::assert_snapshot!(serde_json::to_string_pretty(&json(&answer)["sources"]).unwrap());
    let json = json(&answer);
    for field in ["answer", "workspace", "usage", "timing", "provider", "truncated", "notes", "search"] {
        assert!(!json[field].is_null(), "{field}");
    }
    assert!(json["model"].is_null());
    assert_eq!(json["answer"], answer.text);
    assert_eq!(json["truncated"], false);
}

#[test]
fn what_is_not_there_is_said_and_what_was_not_searched() {
    let mut outcome = found(vec![]);
    outcome.verdict = Verdict::Nothing;
    outcome.absent_terms = vec!["frobnicate".into(), "Zaphod".into()];
    outcome.suggestions = vec!["fabricate".into()];
    outcome.left_out = LeftOut { secret: 2, binary: 1234, not_regular: 1, unreadable: 1, cut: 3 };
    insta::assert_snapshot!(answer(&outcome, 4096, &Why::NoneChosen, &[]).text);
}

#[test]
fn an_incomplete_search_never_claims_absence() {
    let mut outcome = found(vec![]);
    outcome.verdict = Verdict::Nothing;
    outcome.how = How::Live { complete: false };
    let reason = "authentication failed: https://api.anthropic.com answered 401; set a valid key with `lm-shim setup`";
    let why = Why::NotAnswered { provider: "anthropic", reason: reason.into(), tally: Tally::default() };
    let answer = answer(&outcome, 4096, &why, &["config.json: `x` is no setting".into()]);
    insta::assert_snapshot!(answer.text);
    insta::assert_snapshot!(answer.trailer, @"offline instead of anthropic · 12 ms · 5,012 files searched · live, incomplete");
    assert_eq!(json(&answer)["search"]["complete"], false);
}

#[test]
fn weak_places_are_not_sold_as_an_answer() {
    let mut outcome = found(vec![place("a.rs", 1, "fn a() {}")]);
    outcome.verdict = Verdict::Weak;
    outcome.absent_terms = vec!["frobnicate".into()];
    outcome.how = How::Live { complete: true };
    insta::assert_snapshot!(answer(&outcome, 4096, &Why::NoneChosen, &[]).text);
}

#[test]
fn an_answer_that_is_too_long_is_cut_at_a_line_and_says_so() {
    let long = (1..=60).map(|line| format!("let line_{line} = \"{}\";", "x".repeat(40))).collect::<Vec<_>>().join("\n");
    let outcome = found(vec![place("a.rs", 41, &long), place("b.rs", 1, &long), place("c.rs", 1, &long)]);
    let answer = answer(&outcome, 1000, &Why::NoneChosen, &[]);
    assert!(answer.text.len() <= 1000 * BYTES_A_TOKEN, "{}", answer.text.len());
    let json = json(&answer);
    assert_eq!(json["truncated"], true);
    assert!(answer.text.contains("Cut to 1000 tokens."), "{}", answer.text);
    let sources = json["sources"].as_array().unwrap();
    let last = sources.last().unwrap();
    let heading = format!("### {}:{}-{}", last["path"].as_str().unwrap(), last["first_line"], last["last_line"]);
    assert!(answer.text.contains(&heading), "{heading}");
}

#[test]
fn a_general_question_is_not_said_to_be_searched_for() {
    let mut outcome = found(vec![place("README.md", 1, "# Example")]);
    outcome.verdict = Verdict::Overview;
    outcome.how = How::Live { complete: true };
    outcome.left_out.secret = 1;
    let answer = answer(&outcome, 4096, &Why::NoneChosen, &[]);
    insta::assert_snapshot!(answer.text, @r"
    A question about the whole: of 5,012 files, this one introduces it.

    ### README.md:1-1

    ```
    1  # Example
    ```

    No model is configured: places, not an explanation. `lm-shim setup` chooses one.
    ");
    insta::assert_snapshot!(answer.trailer, @"offline · 12 ms · 5,012 files listed · live");
    assert_eq!(json(&answer)["search"]["verdict"], "overview");
}

#[test]
fn an_empty_file_is_said_to_be_empty() {
    let mut outcome = found(vec![]);
    outcome.verdict = Verdict::Nothing;
    outcome.empty_files = vec!["src/empty.rs".into()];
    assert!(
        answer(&outcome, 4096, &Why::NoneChosen, &[])
            .text
            .starts_with("`src/empty.rs` is there, but empty: no text to show.\n")
    );
    outcome.places = vec![place("a.rs", 1, "fn a() {}")];
    outcome.verdict = Verdict::Found;
    let text = answer(&outcome, 4096, &Why::NoneChosen, &[]).text;
    assert!(text.starts_with("One place answers best, of 5,012 files searched. `src/empty.rs` is empty.\n"), "{text}");
}

#[test]
fn without_an_index_the_count_of_secrets_is_a_lower_bound() {
    let mut outcome = found(vec![place("a.rs", 1, "fn a() {}")]);
    outcome.left_out.secret = 2;
    let text = |outcome: &SearchOutcome| answer(outcome, 4096, &Why::NoneChosen, &[]).text;
    assert!(text(&outcome).contains("Not searched: 2 files that may hold secrets."));
    outcome.how = How::Live { complete: true };
    assert!(text(&outcome).contains("Not searched: at least 2 files that may hold secrets."));
}

#[test]
fn nothing_that_a_terminal_obeys_is_passed_on() {
    let mut outcome = found(vec![place("a.txt", 1, "red \x1b[31m\u{9b}2J \u{202e}txet\u{2028}end\rover")]);
    outcome.verdict = Verdict::Weak;
    outcome.absent_terms = vec!["\u{202e}drow".into()];
    outcome.suggestions = vec!["n\u{2066}ame".into()];
    let answer = answer(&outcome, 4096, &Why::NoneChosen, &["a note\x1b]0;title\x07".into()]);
    assert_eq!(printable(&answer.text), answer.text);
    assert!(answer.text.contains("1  red ␛[31m\u{fffd}2J \u{fffd}txet\u{fffd}end␍over\n"), "{}", answer.text);
    assert!(answer.text.contains("Note: a note␛]0;title␇"), "{}", answer.text);
}

#[test]
fn one_file_is_one_file() {
    assert_eq!(counted(1, "file"), "1 file");
    assert_eq!(counted(0, "file"), "0 files");
    assert_eq!(counted(1_234_567, "file"), "1,234,567 files");
}

proptest! {
    #[test]
    fn no_excerpt_leaves_its_fence_and_no_budget_is_exceeded(
        excerpts in prop::collection::vec(prop::collection::vec("[`a ~#é]{0,30}", 1..40), 1..6),
        tokens in 512_u32..3000,
    ) {
        let places = excerpts.iter().map(|lines| place("p.md", 7, &lines.join("\n"))).collect();
        let outcome = found(places);
        let answer = answer(&outcome, tokens, &Why::NoneChosen, &[]);
        prop_assert!(answer.text.len() <= tokens as usize * BYTES_A_TOKEN);
        // Read as CommonMark does: a fence ends at a line of at least as many backticks and nothing else.
        let mut open: Option<usize> = None;
        for line in answer.text.lines() {
            let ticks = line.chars().take_while(|&letter| letter == '`').count();
            let bare = ticks >= 3 && line.len() == ticks;
            match open {
                Some(length) if bare && ticks >= length => open = None,
                None if bare => open = Some(ticks),
                Some(_) => prop_assert!(line.trim_start().starts_with(|letter: char| letter.is_ascii_digit()), "{line}"),
                None => {}
            }
        }
        prop_assert!(open.is_none());
    }
}
