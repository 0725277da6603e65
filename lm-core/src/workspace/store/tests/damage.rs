//! Journals of which something is missing or wrong.

use super::*;

const COUNT: usize = 5;

/// The first of a journal's exchanges were carried over.
const CARRIED: usize = 2;

/// A journal's bytes, and where each of its lines ends, its line break included.
fn journal(count: usize) -> (Vec<u8>, Vec<usize>) {
    let identity = Identity::new(Path::new("/project"), &key());
    let carried = exchanges(0..CARRIED);
    let mut bytes = journal::encode(&identity, &header(4), &opening(), carried.iter(), 0).unwrap();
    for number in CARRIED..count {
        journal::push(&mut bytes, number as u64, &exchange(number)).unwrap();
    }
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    (bytes, ends)
}

/// Opens a directory that has only these bytes as its journal.
fn open_with(bytes: &[u8]) -> (Place, Opened<Value>) {
    let place = Place::new();
    create_private(&place.directory).unwrap();
    fs::write(place.path("journal-4.jsonl"), bytes).unwrap();
    let opened = place.open();
    (place, opened)
}

/// Appends to what was opened, and opens it again: nothing is wrong any more.
fn goes_on(place: &Place, opened: Opened<Value>, expected: &[Exchange], lost: u64) {
    let Opened { mut store, epoch, .. } = opened;
    let kept = epoch.expect("there are exchanges");
    assert_eq!(kept.exchanges, expected);
    assert_eq!(kept.lost, lost);
    store.append(&exchange(77)).unwrap();
    let again = place.open_whole().epoch.unwrap();
    assert_eq!(again.exchanges[..expected.len()], *expected);
    assert_eq!(again.exchanges[expected.len()..], exchanges(77..78));
    assert_eq!(again.lost, lost, "that some are missing is not forgotten");
}

/// In the order of the lines: two headers, then the exchanges.
fn line_of(ends: &[usize], at: usize) -> usize {
    ends.iter().position(|end| at < *end).unwrap()
}

#[test]
fn any_beginning_of_a_journal_gives_the_exchanges_that_are_whole() {
    let (bytes, ends) = journal(3);
    for length in 0..bytes.len() {
        let (place, opened) = open_with(&bytes[..length]);
        // Without its line break a record is whole all the same.
        let lines = ends.iter().filter(|end| **end - 1 <= length).count();
        if lines == 0 {
            assert!(opened.epoch.is_none(), "{length}");
            assert_eq!(opened.set_aside.len(), 1);
            assert_eq!(place.quarantined().len(), 1);
            continue;
        }
        let is_torn = !ends.iter().any(|end| *end == length || *end == length + 1);
        assert_eq!(opened.set_aside.len(), usize::from(is_torn), "{length}: {:?}", opened.set_aside);
        assert_eq!(place.quarantined().len(), 0, "what was not acknowledged is not worth keeping");
        goes_on(&place, opened, &exchanges(0..lines.saturating_sub(2)), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_damaged_byte_costs_its_own_exchange_at_most(at in any::<prop::sample::Index>(), change in 1..=255_u8) {
        let (mut bytes, ends) = journal(COUNT);
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        let (place, opened) = open_with(&bytes);
        let line = line_of(&ends, at);
        let is_line_break = ends.contains(&(at + 1));
        let mut expected = exchanges(0..COUNT);
        if line >= 2 && !is_line_break {
            expected.remove(line - 2);
        }
        let lost = (COUNT - expected.len()) as u64;
        prop_assert_eq!(opened.set_aside.len(), 1);
        if at + 1 < bytes.len() {
            // The damaged file is kept as it was.
            let quarantined = place.quarantined();
            prop_assert_eq!(quarantined.len(), 1);
            let kept_as = opened.set_aside[0].kept_as.clone().unwrap();
            prop_assert_eq!(fs::read(kept_as).unwrap(), bytes);
        }
        goes_on(&place, opened, &expected, lost);
    }

    #[test]
    fn whatever_happens_to_a_stretch_costs_what_lies_in_it(
        from in any::<prop::sample::Index>(),
        length in 1..3000_usize,
        filling in prop_oneof![
            Just(Vec::new()),
            prop::collection::vec(any::<u8>(), 1..500),
            (1..5000_usize).prop_map(|length| vec![0; length]),
            (1..50_usize).prop_map(|length| vec![b'\n'; length]),
        ],
    ) {
        let (mut bytes, ends) = journal(COUNT);
        let from = from.index(bytes.len() - 1) + 1;
        let to = (from + length).min(bytes.len());
        bytes.splice(from..to, filling.iter().copied());
        let (place, opened) = open_with(&bytes);
        let is_whole = |line: usize| {
            let start = if line == 0 { 0 } else { ends[line - 1] };
            // The text of the line without its break lies outside of the stretch.
            ends[line] - 1 <= from || start >= to
        };
        // Where nothing separates it from what lies before it, a whole one may be missed.
        let begins_a_line = |line: usize| {
            line == 0 || ends[line - 1] <= from || (ends[line - 1] > to || filling.last() == Some(&b'\n'))
        };
        let certain = |line: &usize| is_whole(*line) && begins_a_line(*line);
        if !(0..2).any(|line| certain(&line)) {
            prop_assert!(opened.epoch.is_none() || opened.epoch.as_ref().is_some_and(|kept| kept.opening == opening()));
            return Ok(());
        }
        let kept = opened.epoch.clone().unwrap();
        let certain: Vec<Exchange> = (2..COUNT + 2).filter(certain).map(|line| exchange(line - 2)).collect();
        let possible: Vec<Exchange> = (2..COUNT + 2).filter(|line| is_whole(*line)).map(|line| exchange(line - 2)).collect();
        prop_assert!(certain.iter().all(|exchange| kept.exchanges.contains(exchange)));
        prop_assert!(kept.exchanges.iter().all(|exchange| possible.contains(exchange)), "nothing is made up");
        let (expected, lost) = (kept.exchanges, kept.lost);
        goes_on(&place, opened, &expected, lost);
    }
}

#[test]
fn zeroes_at_the_end_are_a_write_that_a_power_failure_broke_off() {
    let (mut bytes, _) = journal(3);
    bytes.extend([0; 4096]);
    let (place, opened) = open_with(&bytes);
    insta::assert_snapshot!(said(&place, &opened.set_aside[0]), @"`DATA/journal-4.jsonl` is cut off at its end, as by a crash; 3 answers in it can be used");
    goes_on(&place, opened, &exchanges(0..3), 0);
}

#[test]
fn that_exchanges_were_lost_is_remembered_until_an_epoch_begins() {
    let (mut bytes, ends) = journal(COUNT);
    bytes[ends[2] + 40] ^= 1;
    let (place, opened) = open_with(&bytes);
    insta::assert_snapshot!(said(&place, &opened.set_aside[0]), @"`DATA/journal-4.jsonl` is damaged, and 1 answer in it cannot be read; it is kept as `DATA/quarantine/journal-4.jsonl.TIME`; 4 answers in it can be used");

    let carried: Vec<Arc<Exchange>> = opened.epoch.as_ref().unwrap().exchanges.iter().cloned().map(Arc::new).collect();
    let mut opened = place.open_whole();
    assert_eq!(opened.epoch.unwrap().lost, 1);
    opened.store.begin(&header(5), &opening(), &carried).unwrap();
    let kept = place.open_whole().epoch.unwrap();
    assert_eq!((kept.lost, kept.exchanges.len()), (0, COUNT - 1));
}

#[test]
fn exchanges_out_of_order_or_twice_are_taken_once() {
    let (bytes, ends) = journal(3);
    let line = |number: usize| &bytes[ends[number + 1]..ends[number + 2]];
    let head = &bytes[..ends[1]];
    let (place, opened) = open_with(&[head, line(0), line(1), line(1), line(2)].concat());
    goes_on(&place, opened, &exchanges(0..3), 0);
    let (_place, opened) = open_with(&[head, line(2), line(0), line(1)].concat());
    assert_eq!(opened.epoch.unwrap().exchanges, exchanges(2..3));
}

/// As a power failure leaves it, which may keep the name and lose bytes of what was not acknowledged.
#[test]
fn an_epoch_that_was_not_wholly_begun_gives_way_to_the_one_before() {
    let (bytes, ends) = journal(3);
    let begun = ends[CARRIED + 1];
    let zeroed = |from: usize, to: usize| {
        let mut bytes = bytes[..begun].to_vec();
        bytes[from..to].fill(0);
        bytes
    };
    let mut cases: Vec<Vec<u8>> = (0..begun - 1).map(|length| bytes[..length].to_vec()).collect();
    cases.extend([zeroed(0, begun), zeroed(ends[1], begun), zeroed(ends[1], ends[2]), zeroed(ends[2], begun)]);
    for bytes in cases {
        let place = Place::new();
        let mut store = filled(&place, 3, 4);
        store.append(&exchange(4)).unwrap();
        fs::write(place.path("journal-4.jsonl"), &bytes).unwrap();
        let mut opened = place.open();
        let kept = opened.epoch.unwrap();
        assert_eq!((kept.epoch, kept.exchanges), (Epoch(3), exchanges(0..5)), "{}", bytes.len());
        assert_eq!(fs::read(opened.set_aside[0].kept_as.as_ref().unwrap()).unwrap(), bytes);
        opened.store.begin(&header(4), &opening(), &shared(3..5)).unwrap();
        assert_eq!(place.open_whole().epoch.unwrap().exchanges, exchanges(3..5));
    }
    // One that was begun, and had a damaged exchange among those it carried later on, is used.
    let place = Place::new();
    drop(filled(&place, 3, 4));
    let mut bytes = bytes;
    bytes[ends[1] + 30] ^= 1;
    fs::write(place.path("journal-4.jsonl"), &bytes).unwrap();
    assert_eq!(place.open().epoch.unwrap().exchanges, exchanges(1..3));
}
