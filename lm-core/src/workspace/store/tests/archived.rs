//! The archive's file.

use super::*;

const ARCHIVE: &str = "archive.jsonl";

fn numbers(range: std::ops::Range<u64>) -> Vec<Value> {
    range.map(|number| json!({ "number": number })).collect()
}

fn loaded(place: &Place) -> (Vec<Value>, Vec<SetAside>) {
    let Opened { mut store, .. } = place.open();
    (store.load_archive(), store.take_set_aside())
}

#[test]
fn what_is_archived_comes_back_in_order() {
    let place = Place::new();
    let mut store = place.open().store;
    assert_eq!(store.load_archive::<Value>(), numbers(0..0));
    store.archive(&numbers(0..2), &numbers(0..2), 10_000).unwrap();
    store.archive(&numbers(2..3), &numbers(0..3), 10_000).unwrap();
    assert_eq!(loaded(&place), (numbers(0..3), vec![]));
    let mut store = place.open().store;
    store.rewrite_archive(&numbers(2..3)).unwrap();
    assert_eq!(loaded(&place), (numbers(2..3), vec![]));
    assert!(!fs::read_to_string(place.path(ARCHIVE)).unwrap().contains("\"number\":1"));
    let mut store = place.open().store;
    store.erase().unwrap();
    assert_eq!(loaded(&place), (vec![], vec![]));
}

#[test]
fn a_file_that_has_outgrown_its_room_is_written_anew() {
    let place = Place::new();
    let mut store = place.open().store;
    for number in 0..100 {
        let kept = number.max(5) - 5;
        store.archive(&numbers(number..number + 1), &numbers(kept..number + 1), 400).unwrap();
        assert!(fs::metadata(place.path(ARCHIVE)).unwrap().len() <= 1_000);
    }
    let (entries, _) = loaded(&place);
    assert_eq!(entries.last(), numbers(99..100).last());
}

#[test]
fn what_cannot_be_read_is_set_aside_and_the_rest_is_used() {
    let place = Place::new();
    place.open().store.archive(&numbers(0..3), &numbers(0..3), 10_000).unwrap();
    let whole = fs::read(place.path(ARCHIVE)).unwrap();
    // As a crash leaves it: never acknowledged, so nothing is said of it.
    fs::write(place.path(ARCHIVE), &whole[..whole.len() - 4]).unwrap();
    assert_eq!(loaded(&place), (numbers(0..2), vec![]));
    let mut store = place.open().store;
    let all = [store.load_archive(), numbers(7..8)].concat();
    store.archive(&numbers(7..8), &all, 10_000).unwrap();
    assert_eq!(loaded(&place).0, [numbers(0..2), numbers(7..8)].concat());
    let damaged = String::from_utf8(whole.clone()).unwrap().replace("\"number\":1", "\"number\":9");
    fs::write(place.path(ARCHIVE), damaged).unwrap();
    let (entries, set_aside) = loaded(&place);
    assert_eq!((entries, set_aside.len()), ([numbers(0..1), numbers(2..3)].concat(), 1));
    fs::write(place.path(ARCHIVE), b"[]").unwrap();
    let (entries, set_aside) = loaded(&place);
    assert_eq!(entries, numbers(0..0));
    assert!(set_aside[0].to_string().contains("has no beginning that can be read"), "{}", set_aside[0]);
    assert!(!place.path(ARCHIVE).exists());
}

#[test]
fn the_archive_of_another_workspace_is_not_used() {
    let place = Place::new();
    place.open().store.archive(&numbers(0..3), &numbers(0..3), 10_000).unwrap();
    let mut store = Store::open::<Value>(&place.directory, Path::new("/other"), &key()).store;
    assert_eq!(store.load_archive::<Value>(), numbers(0..0));
    assert!(store.take_set_aside()[0].to_string().contains("another workspace"));
}
