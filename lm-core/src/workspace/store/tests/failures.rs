//! Every step that changes the disk fails once, or from then on: what was acknowledged is kept, and
//! nothing is unreadable.

use super::*;
use crate::workspace::store::disk::faults::{self, Faults};

/// What a session was promised.
#[derive(Default, Debug)]
struct Acknowledged {
    /// The exchanges that the newest epoch has to have, in order: all that were given to it up to the
    /// last one that was acknowledged.
    exchanges: usize,
    epoch: Option<Epoch>,
    snapshots: Vec<u64>,
}

/// A session with every kind of write. Number of exchanges and epochs are the same each time; what
/// fails is not given up but tried with the next.
fn session(place: &Place, acknowledged: &mut Acknowledged) -> Store {
    let mut store = place.open().store;
    for epoch in 0..3 {
        let first = epoch as usize * 4;
        if store.begin(&header(epoch), &opening(), &shared(0..first)).is_ok() {
            (acknowledged.epoch, acknowledged.exchanges) = (Some(Epoch(epoch)), first);
        }
        for number in first..first + 4 {
            match store.append(&exchange(number)) {
                Ok(()) => (acknowledged.epoch, acknowledged.exchanges) = (Some(Epoch(epoch)), number + 1),
                // The file was never made; all that is known is given again.
                Err(StoreError::NoJournal(_)) => {
                    if store.begin(&header(epoch), &opening(), &shared(0..number + 1)).is_ok() {
                        (acknowledged.epoch, acknowledged.exchanges) = (Some(Epoch(epoch)), number + 1);
                    }
                }
                Err(StoreError::Io { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        if store.save(&json!(epoch)).is_ok() {
            acknowledged.snapshots.push(epoch);
        }
    }
    store
}

/// Whether a later start finds what was acknowledged.
fn check(place: &Place, acknowledged: &Acknowledged, what: &str) {
    let opened = place.open();
    // A write that failed may have left an end that is torn, but never more than that.
    for set_aside in &opened.set_aside {
        assert!(set_aside.kept_as.is_none(), "{what}: {set_aside}");
        assert!(set_aside.reason.contains("cut off"), "{what}: {set_aside}");
    }
    let kept = opened.epoch;
    if let Some(epoch) = acknowledged.epoch {
        let kept = kept.unwrap_or_else(|| panic!("{what}: no epoch, {acknowledged:?}"));
        assert!(kept.epoch >= epoch, "{what}: {:?}, {acknowledged:?}", kept.epoch);
        assert_eq!(kept.lost, 0, "{what}");
        assert!(kept.exchanges.len() >= acknowledged.exchanges, "{what}: {}, {acknowledged:?}", kept.exchanges.len());
        assert_eq!(kept.exchanges, exchanges(0..kept.exchanges.len()), "{what}: without a gap");
    }
    if let Some(last) = acknowledged.snapshots.last() {
        let found = opened.snapshot.unwrap_or_else(|| panic!("{what}: no snapshot"));
        assert!(found.as_u64().unwrap() >= *last, "{what}: {found}");
    }
}

/// How many steps a session takes where none fails.
fn steps() -> usize {
    let place = Place::new();
    faults::set(Faults::Never);
    let mut acknowledged = Acknowledged::default();
    session(&place, &mut acknowledged);
    assert_eq!((acknowledged.exchanges, acknowledged.snapshots), (12, vec![0, 1, 2]));
    faults::passed()
}

#[test]
fn a_step_that_fails_once_is_made_good_by_the_next_write() {
    let steps = steps();
    assert!(steps > 50, "{steps}");
    for step in 0..steps {
        let what = format!("step {step} of {steps}");
        let place = Place::new();
        let mut acknowledged = Acknowledged::default();
        faults::set(Faults::Once(step));
        let mut store = session(&place, &mut acknowledged);
        faults::set(Faults::Never);
        store.flush().unwrap();
        acknowledged.exchanges = 12;
        check(&place, &acknowledged, &what);
    }
}

#[test]
fn a_disk_that_is_full_from_any_step_on_loses_nothing_that_was_acknowledged() {
    let steps = steps();
    for step in 0..steps {
        let what = format!("full from step {step} of {steps}");
        let place = Place::new();
        let mut acknowledged = Acknowledged::default();
        faults::set(Faults::From(step));
        let mut store = session(&place, &mut acknowledged);
        if step % 2 == 0 {
            // There is room again.
            faults::set(Faults::Never);
            store.flush().unwrap();
            acknowledged.exchanges = 12;
        }
        drop(store);
        faults::set(Faults::Never);
        check(&place, &acknowledged, &what);
    }
}

/// Opening with damage everywhere, where setting aside and repairing fail.
#[test]
fn what_cannot_be_set_aside_or_repaired_is_not_lost_either() {
    for step in 0..40 {
        for faults in [Faults::Once(step), Faults::From(step)] {
            let place = Place::new();
            let mut store = filled(&place, 0, 3);
            store.save(&json!("before")).unwrap();
            store.begin(&header(1), &opening(), &shared(0..2)).unwrap();
            store.append(&exchange(2)).unwrap();
            store.save(&json!("now")).unwrap();
            drop(store);
            let mut bytes = fs::read(place.path("journal-1.jsonl")).unwrap();
            let at = bytes.len() - 60;
            bytes[at] ^= 1;
            fs::write(place.path("journal-1.jsonl"), &bytes).unwrap();
            fs::write(place.path("journal-2.jsonl"), "precious").unwrap();
            fs::write(place.path(SNAPSHOT), "precious").unwrap();

            faults::set(faults);
            let Opened { mut store, epoch, snapshot, .. } = place.open();
            assert_eq!(epoch.unwrap().exchanges, exchanges(0..2), "{faults:?}");
            assert_eq!(snapshot, Some(json!("before")), "{faults:?}");
            let _ = store.append(&exchange(2));
            let saved = store.save(&json!("later")).is_ok();
            let _ = store.begin(&header(2), &opening(), &shared(0..4));
            faults::set(Faults::Never);
            store.flush().unwrap();

            let mut found = place.open();
            assert_eq!(found.epoch.unwrap().exchanges, exchanges(0..4), "{faults:?}");
            // What failed at the very end is in place all the same.
            let is_before = !saved && found.snapshot == Some(json!("before"));
            assert!(is_before || found.snapshot == Some(json!("later")), "{faults:?}: {:?}", found.snapshot);
            found.store.save(&json!("last")).unwrap();
            let quarantine = place.path(QUARANTINE);
            let kept: Vec<Vec<u8>> =
                place.quarantined().iter().map(|name| fs::read(quarantine.join(name)).unwrap()).collect();
            assert_eq!(kept.iter().filter(|kept| *kept == b"precious").count(), 2, "{faults:?}");
            assert!(kept.contains(&bytes) || fs::read(place.path("journal-1.jsonl")).unwrap() == bytes, "{faults:?}");
        }
    }
}

/// The system's own limit on the size of files, which a part of a write still fits under.
#[cfg(unix)]
#[test]
fn a_limit_on_file_sizes_is_said_and_leaves_the_memory_readable() {
    const PLACE: &str = "LIVE_MEMORY_TEST_LIMITED_STORE";
    if let Some(directory) = std::env::var_os(PLACE) {
        let directory = PathBuf::from(directory);
        let mut store = Store::open::<Value>(&directory, Path::new("/project"), &key()).store;
        let refused = (3..).find_map(|number| store.append(&exchange(number)).err().map(|error| (number, error)));
        let (number, error) = refused.unwrap();
        println!("refused {number} {error}");
        return;
    }
    let place = Place::new();
    drop(filled(&place, 0, 3));
    let test = "workspace::store::tests::failures::a_limit_on_file_sizes_is_said_and_leaves_the_memory_readable";
    // In blocks of 512 bytes; the signal that comes with the error is ignored, as it would end the process.
    let script = "trap '' XFSZ; ulimit -f 40; exec \"$0\" \"$@\"";
    let child = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(PLACE, &place.directory)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let line = said.split("refused ").nth(1).unwrap_or_else(|| panic!("{child:?}"));
    assert!(line.contains("ulimit -f"), "{line}");
    let refused: usize = line.split(' ').next().unwrap().parse().unwrap();
    let kept = place.open().epoch.unwrap();
    assert_eq!((kept.exchanges, kept.lost), (exchanges(0..refused), 0));
}
