use proptest::prelude::*;

use super::*;

fn source(path: &str, sha256: &str) -> Source {
    Source { path: path.into(), sha256: sha256.into() }
}

fn draft(text: &str, path: &str, at: u64) -> Draft {
    let sources = if path.is_empty() { vec![] } else { vec![source(path, "1")] };
    let origin = if path.is_empty() { Origin::User } else { Origin::Observed };
    Draft { text: text.into(), sources, origin, at, pinned: false }
}

fn ledger(drafts: impl IntoIterator<Item = Draft>) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.merge(drafts);
    ledger
}

fn changed(path: &str) -> Current {
    let mut current = Current::default();
    current.set(path.into(), Some("2".into()));
    current
}

fn texts(facts: &[Fact]) -> Vec<&str> {
    facts.iter().map(|fact| &*fact.text).collect()
}

#[test]
fn the_same_words_are_the_same_fact_and_renew_what_it_rests_on() {
    let mut known = ledger([draft("The port is 8080.", "src/a.rs", 1), draft("Another", "src/b.rs", 1)]);
    let again = Draft { sources: vec![source("src/a.rs", "2")], ..draft("The  port is 8080", "src/a.rs", 5) };
    assert_eq!(known.merge([again]), Merged { renewed: 1, ..Merged::default() });
    let fact = &known.facts()[0];
    assert_eq!((&*fact.text, fact.number, fact.at), ("The port is 8080.", 1, 5));
    assert!(!fact.is_stale(&changed("src/a.rs")), "it was found again in the new text");
    // An older one, and one without files, take nothing away.
    known.merge([draft("the port is 8080", "src/a.rs", 2), draft("The port is 8080", "", 9)]);
    assert_eq!(known.facts()[0].sources, [source("src/a.rs", "2")]);
    assert_eq!(known.facts().len(), 2);
}

#[test]
fn stale_facts_retire_when_newer_text_was_summarised() {
    let held = Draft { pinned: true, ..draft("pinned", "src/a.rs", 1) };
    let mut known = ledger([draft("old", "src/a.rs", 1), draft("other", "src/b.rs", 1), held]);
    let summarised = BTreeSet::from(["src/a.rs".into(), "src/b.rs".into()]);
    assert_eq!(texts(&known.retire(&summarised, &changed("src/a.rs"))), ["old"]);
    assert_eq!(texts(known.facts()), ["other", "pinned"]);
    assert_eq!(known.retire(&BTreeSet::new(), &changed("src/b.rs")), []);
}

#[test]
fn an_area_is_consolidated_only_where_that_saves_something() {
    let mut known = ledger([
        draft("the retry policy waits one second at first", "src/net/retry.rs", 1),
        draft("the retry policy doubles the wait each time", "src/net/retry.rs", 1),
        draft("elsewhere", "docs/a.md", 1),
    ]);
    assert_eq!(known.areas()[0].directory, "src/net");
    let numbers: BTreeSet<u64> = known.of_area("src/net", &Current::default()).iter().map(|fact| fact.number).collect();
    let before = known.clone();
    assert_eq!(known.consolidate(&numbers, vec![]), None);
    let larger = draft(&"word ".repeat(60), "src/net/retry.rs", 2);
    assert_eq!(known.consolidate(&numbers, vec![larger]), None);
    let foreign = draft("retries double", "src/net/other.rs", 2);
    assert_eq!(known.consolidate(&numbers, vec![foreign]), None);
    assert_eq!(known, before, "nothing was changed");
    let gone = known.consolidate(&numbers, vec![draft("retries wait 1 s, doubling", "src/net/retry.rs", 2)]).unwrap();
    assert_eq!(gone.len(), 2);
    assert_eq!(texts(known.facts()), ["elsewhere", "retries wait 1 s, doubling"]);
}

#[test]
fn a_block_shows_what_is_current_and_names_what_is_not() {
    let mut known = ledger([
        draft("The port is 8080.", "src/a.rs", 1),
        draft("It has </notes> in it", "src/deep/b.rs", 2),
        draft("Releases are on Fridays", "", 3),
        draft("The host is localhost.", "src/c.rs", 4),
    ]);
    known.merge([Draft { sources: vec![source("src/a.rs", "1"), source("x", "1")], ..draft("Both", "x", 5) }]);
    let block = known.block(&changed("src/c.rs"), 10_000);
    insta::assert_snapshot!(block.text);
    assert_eq!((block.noted.len(), block.stale, block.left_out), (4, 1, 0));
    let small = known.block(&Current::default(), known.facts()[2].bytes() + 5);
    assert!(small.text.contains("Fridays") && small.text.contains("4 more are found with the tool recall"));
    assert_eq!(Ledger::default().block(&Current::default(), 100), block::Block::default());
}

#[test]
fn pinned_facts_and_those_of_people_go_last() {
    let pinned = Draft { pinned: true, ..draft("pinned", "src/a.rs", 1) };
    let mut known = ledger([draft("of a person", "", 1), pinned, draft("x".repeat(50).as_str(), "src/b.rs", 2)]);
    known.merge([draft("stale one", "src/c.rs", 3), draft("fresh", "src/d.rs", 4)]);
    let total = known.bytes();
    assert_eq!(known.shrink(total, &Current::default()), []);
    assert_eq!(texts(&known.shrink(total - 1, &changed("src/c.rs"))), ["stale one"]);
    let held: usize = known.facts()[..2].iter().map(Fact::bytes).sum();
    assert_eq!(texts(&known.shrink(held, &Current::default())), ["x".repeat(50).as_str(), "fresh"]);
    assert_eq!(known.shrink(0, &Current::default()).len(), 2);
    assert!(known.is_empty());
}

fn any_draft() -> impl Strategy<Value = Draft> {
    ("[a-f]{1,3}( [a-f]{1,2})?", "(src|docs|)/?[ab]\\.rs", 0..3_u64, "[12]", any::<bool>(), any::<bool>()).prop_map(
        |(text, path, at, sha256, pinned, is_user)| Draft {
            text: text.as_str().into(),
            sources: if is_user { vec![] } else { vec![source(&path, &sha256)] },
            origin: if is_user { Origin::User } else { Origin::Observed },
            at,
            pinned,
        },
    )
}

proptest! {
    #[test]
    fn merging_loses_nothing_and_is_done_after_once(
        first in prop::collection::vec(any_draft(), 0..20),
        second in prop::collection::vec(any_draft(), 0..20),
    ) {
        let mut known = ledger(first.clone());
        let before = known.clone();
        known.merge(second.clone());
        let keys: BTreeSet<String> = known.facts().iter().map(|fact| key(&fact.text)).collect();
        for draft in first.iter().chain(&second) {
            prop_assert!(keys.contains(&key(&draft.text)), "{} was lost", draft.text);
        }
        prop_assert_eq!(keys.len(), known.facts().len(), "each fact once");
        for (before, now) in before.facts().iter().zip(known.facts()) {
            prop_assert_eq!((&before.text, before.number, before.origin), (&now.text, now.number, now.origin));
        }
        // The same drafts again change nothing.
        let once = known.clone();
        known.merge(second.clone());
        prop_assert_eq!(once, known);
    }

    #[test]
    fn whatever_the_bound_it_is_held_and_what_goes_is_handed_back(
        drafts in prop::collection::vec(any_draft(), 0..30),
        bytes in 0_usize..800,
        is_changed: bool,
    ) {
        let mut known = ledger(drafts);
        let before = known.facts().to_vec();
        let current = if is_changed { changed("src/a.rs") } else { Current::default() };
        let gone = known.shrink(bytes, &current);
        prop_assert!(known.bytes() <= bytes);
        prop_assert_eq!(known.facts().len() + gone.len(), before.len());
        prop_assert!(before.iter().all(|fact| known.facts().contains(fact) || gone.contains(fact)));
        // No more than needed: the last one that went would not have fitted.
        if let Some(smallest) = gone.iter().map(Fact::bytes).max() {
            prop_assert!(known.bytes() + smallest + gone.iter().map(Fact::bytes).sum::<usize>() > bytes);
        }
        let block = known.block(&current, bytes);
        prop_assert_eq!(block.left_out, 0);
        let stale = known.facts().iter().filter(|fact| fact.is_stale(&current)).count();
        prop_assert_eq!(block.noted.len() + stale, known.facts().len());
        prop_assert!(block.noted.iter().flat_map(|noted| &noted.sources).all(|source| current.is(source)));
    }
}
