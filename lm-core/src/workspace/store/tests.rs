//! A memory that is kept, found again, replaced and erased.

mod archived;
mod crash;
mod damage;
mod failures;
mod quarantined;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::{
    conversation::{Block, Message, Role},
    memory::{
        log::{Form, Source},
        told::{Said, Standing},
    },
};

/// A directory for one memory.
struct Place {
    _temporary: TempDir,
    directory: PathBuf,
}

impl Place {
    fn new() -> Self {
        let temporary = TempDir::new().unwrap();
        let directory = temporary.path().join("memory");
        Self { _temporary: temporary, directory }
    }

    fn open(&self) -> Opened<Value> {
        Store::open(&self.directory, Path::new("/project"), &key())
    }

    /// Opens what is expected to be in order.
    fn open_whole(&self) -> Opened<Value> {
        let opened = self.open();
        assert_eq!(opened.set_aside, [], "nothing is set aside");
        opened
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn names(&self) -> BTreeSet<String> {
        names(&self.directory)
    }

    fn quarantined(&self) -> BTreeSet<String> {
        names(&self.path(QUARANTINE))
    }
}

fn names(directory: &Path) -> BTreeSet<String> {
    disk::names(directory).unwrap().into_iter().collect()
}

/// What is said of a file, without what differs from test to test.
fn said(place: &Place, set_aside: &SetAside) -> String {
    let said = set_aside.to_string().replace(&*place.directory.to_string_lossy(), "DATA").replace('\\', "/");
    regex::Regex::new(r"\.[0-9]{10}").unwrap().replace_all(&said, ".TIME").into_owned()
}

fn key() -> String {
    "0123456789abcdef".repeat(4)
}

fn header(epoch: u64) -> EpochHeader<'static> {
    EpochHeader { epoch: Epoch(epoch), name: "lm-1", system: "You know\nthis code.", model: "model/key" }
}

fn opening() -> Opening {
    Opening {
        messages: vec![Message::user("What do you know?"), Message::assistant("All that.")],
        said: vec![Said::shown("README.md", "00")],
        observations: 3,
        ..Opening::default()
    }
}

fn exchange(number: usize) -> Exchange {
    let call = Block::ToolUse { id: "c1".into(), name: "Read".into(), input: r#"{ "file_path":"a" }"#.into() };
    let result = Block::ToolResult { id: "c1".into(), text: "line\r\n\u{0}\u{2028}é".into(), is_error: false };
    let reasoning = Block::Reasoning { model: "m".into(), raw: r#"{"signature" : "=="}"#.into() };
    let messages = vec![
        Message::user(format!("question {number}")),
        Message { role: Role::Assistant, blocks: vec![reasoning, call] },
        Message { role: Role::User, blocks: vec![result] },
        Message::assistant(format!("answer {number}")),
    ];
    let sources = vec![Source { path: "src/a.rs".into(), sha256: "00".repeat(32).into() }];
    Exchange {
        messages,
        form: Form::Whole,
        dropped_blocks: 0,
        sources,
        said: vec![Said::notice("src/a.rs", Standing::Gone), Said::shown("src/b.rs", "11")],
        question: format!("question {number}").into(),
        observations: number as u64,
        notes: 0,
        at: 0,
    }
}

fn exchanges(numbers: std::ops::Range<usize>) -> Vec<Exchange> {
    numbers.map(exchange).collect()
}

fn shared(numbers: std::ops::Range<usize>) -> Vec<Arc<Exchange>> {
    numbers.map(|number| Arc::new(exchange(number))).collect()
}

/// A memory of one epoch with so many exchanges, the first of which was carried over.
fn filled(place: &Place, epoch: u64, count: usize) -> Store {
    let mut store = place.open_whole().store;
    store.begin(&header(epoch), &opening(), &shared(0..1)).unwrap();
    for number in 1..count {
        store.append(&exchange(number)).unwrap();
    }
    store
}

#[test]
fn a_memory_comes_back_as_it_was() {
    let place = Place::new();
    let opened = place.open_whole();
    assert!(opened.epoch.is_none() && opened.snapshot.is_none(), "a new one is empty");
    let mut store = opened.store;
    store.begin(&header(3), &opening(), &shared(0..2)).unwrap();
    store.append(&exchange(2)).unwrap();
    store.save(&json!({ "files": ["a.rs"], "none": null })).unwrap();
    drop(store);

    let opened = place.open_whole();
    let kept = opened.epoch.unwrap();
    assert_eq!((kept.epoch, &*kept.name, &*kept.model, kept.lost), (Epoch(3), "lm-1", "model/key", 0));
    assert_eq!(&*kept.system, "You know\nthis code.");
    assert_eq!(kept.opening, opening());
    assert_eq!(kept.exchanges, exchanges(0..3));
    assert_eq!(opened.snapshot, Some(json!({ "files": ["a.rs"], "none": null })));

    let mut store = opened.store;
    store.append(&exchange(3)).unwrap();
    assert_eq!(place.open_whole().epoch.unwrap().exchanges, exchanges(0..4), "it goes on where it was");
}

#[test]
fn the_generation_before_is_kept_until_the_next_begins() {
    let place = Place::new();
    let mut store = filled(&place, 0, 2);
    let journals = || place.names().into_iter().filter(|name| name.starts_with("journal")).collect::<Vec<_>>();
    assert_eq!(journals(), ["journal-0.jsonl"]);
    store.begin(&header(1), &Opening::default(), &shared(0..1)).unwrap();
    assert_eq!(journals(), ["journal-0.jsonl", "journal-1.jsonl"]);
    // Numbers may be left out: what counts is which was the last.
    store.begin(&header(5), &Opening::default(), &[]).unwrap();
    assert_eq!(journals(), ["journal-1.jsonl", "journal-5.jsonl"]);
    store.begin(&header(5), &Opening::default(), &shared(0..3)).unwrap();
    assert_eq!(journals(), ["journal-1.jsonl", "journal-5.jsonl"], "an epoch may begin anew");
    assert_eq!(place.open_whole().epoch.unwrap().exchanges, exchanges(0..3));
}

#[test]
fn the_snapshot_before_is_kept() {
    let place = Place::new();
    let mut store = place.open_whole().store;
    for number in 0..3 {
        store.save(&json!(number)).unwrap();
    }
    assert_eq!(place.open_whole().snapshot, Some(json!(2)));
    fs::remove_file(place.path(SNAPSHOT)).unwrap();
    let mut opened = place.open_whole();
    assert_eq!(opened.snapshot, Some(json!(1)), "as where a crash came between the two renames");
    opened.store.save(&json!(3)).unwrap();
    assert_eq!(place.open_whole().snapshot, Some(json!(3)));
    fs::write(place.path(SNAPSHOT), "").unwrap();
    assert_eq!(place.open().snapshot, Some(json!(1)), "the one before is not given up for a missing one");
}

#[test]
fn an_older_store_writes_nothing_any_more() {
    let place = Place::new();
    let mut old = filled(&place, 0, 2);
    let mut young = place.open_whole().store;
    let refused = old.append(&exchange(90)).unwrap_err();
    assert!(matches!(refused, StoreError::Superseded(_)), "{refused}");
    insta::assert_snapshot!(
        refused.to_string().replace(&*place.directory.to_string_lossy(), "DATA"),
        @"another daemon keeps the memory in `DATA` by now, and this one writes nothing there any more; ask again"
    );
    young.append(&exchange(2)).unwrap();
    for refused in [
        old.append(&exchange(91)),
        old.begin(&header(1), &Opening::default(), &[]),
        old.append(&exchange(92)),
        old.save(&json!("old")),
        old.erase(),
    ] {
        assert!(matches!(refused, Err(StoreError::Superseded(_))), "{refused:?}");
    }
    assert!(!old.is_behind(), "nothing is kept for later");
    young.append(&exchange(3)).unwrap();
    let opened = place.open_whole();
    assert_eq!(opened.epoch.unwrap().exchanges, exchanges(0..4));
    assert_eq!(opened.snapshot, None);
}

/// Two stores in threads, the younger opened at any moment: either the older one's exchange was there
/// when the younger read, or it was refused.
#[test]
fn what_an_older_store_acknowledges_its_successor_has_read() {
    for _ in 0..50 {
        let place = Place::new();
        let mut old = filled(&place, 0, 1);
        let writer = std::thread::spawn(move || (1..).find(|number| old.append(&exchange(*number)).is_err()).unwrap());
        let mut young = place.open_whole();
        let read = young.epoch.unwrap().exchanges;
        let refused = writer.join().unwrap();
        assert_eq!(read, exchanges(0..refused));
        young.store.append(&exchange(refused)).unwrap();
        assert_eq!(place.open_whole().epoch.unwrap().exchanges, exchanges(0..refused + 1));
    }
}

#[test]
fn nothing_of_an_erased_memory_is_left() {
    let place = Place::new();
    let mut store = filled(&place, 0, 3);
    store.begin(&header(1), &opening(), &shared(0..3)).unwrap();
    store.save(&json!("a canary")).unwrap();
    store.save(&json!("another canary")).unwrap();
    drop(store);
    fs::write(place.path(SNAPSHOT), "[]").unwrap();
    fs::write(place.path(".fresh-canary.new"), "left by a crash").unwrap();
    fs::create_dir(place.path("later")).unwrap();
    fs::write(place.path("later/file"), "of another version").unwrap();
    let mut opened = place.open();
    assert_eq!(opened.set_aside.len(), 1);
    opened.store.erase().unwrap();
    assert_eq!(place.names(), BTreeSet::from([FENCE.to_owned()]));
    assert!(fs::read(place.path(FENCE)).unwrap().len() < 40, "the fence is a number");
    assert!(matches!(opened.store.append(&exchange(0)), Err(StoreError::NoJournal(_))), "no journal is left");
    opened.store.begin(&header(0), &Opening::default(), &[]).unwrap();
    opened.store.append(&exchange(0)).unwrap();
    assert_eq!(place.open_whole().epoch.unwrap().exchanges, exchanges(0..1), "the store can be used further");
}

#[test]
fn a_memory_is_erased_where_it_is_not_open_too() {
    let place = Place::new();
    Store::erase_at(&place.directory).unwrap();
    assert!(!place.directory.exists(), "nothing is made to be erased");
    let mut open_elsewhere = filled(&place, 0, 3);
    Store::erase_at(&place.directory).unwrap();
    assert_eq!(place.names(), BTreeSet::from([FENCE.to_owned()]));
    assert!(matches!(open_elsewhere.append(&exchange(3)), Err(StoreError::Superseded(_))), "nothing is written back");
    assert!(place.open_whole().epoch.is_none());
}

#[test]
fn a_journal_that_someone_removed_or_cut_is_not_appended_to() {
    let place = Place::new();
    let mut store = filled(&place, 0, 2);
    let journal = place.path("journal-0.jsonl");
    let whole = fs::read(&journal).unwrap();
    fs::write(&journal, &whole[..whole.len() / 2]).unwrap();
    assert!(matches!(store.append(&exchange(2)), Err(StoreError::NoJournal(_))));
    store.begin(&header(0), &opening(), &shared(0..3)).unwrap();
    fs::remove_dir_all(&place.directory).unwrap();
    assert!(matches!(store.append(&exchange(3)), Err(StoreError::NoJournal(_))));
    store.begin(&header(1), &opening(), &shared(0..4)).unwrap();
    store.append(&exchange(4)).unwrap();
    store.save(&json!(1)).unwrap();
    let opened = place.open_whole();
    assert_eq!(opened.epoch.unwrap().exchanges, exchanges(0..5), "everything was given to it again");
    assert_eq!(opened.snapshot, Some(json!(1)));
}

#[cfg(unix)]
#[test]
fn everything_is_readable_by_the_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = Place::new();
    let mut store = filled(&place, 0, 2);
    store.begin(&header(1), &Opening::default(), &[]).unwrap();
    store.save(&json!(1)).unwrap();
    store.save(&json!(2)).unwrap();
    fs::write(place.path(SNAPSHOT), "[]").unwrap();
    fs::set_permissions(place.path(SNAPSHOT), fs::Permissions::from_mode(0o600)).unwrap();
    drop(place.open());
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.directory), 0o700);
    assert_eq!(mode(&place.path(QUARANTINE)), 0o700);
    let mut files = 0;
    for directory in [place.directory.clone(), place.path(QUARANTINE)] {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
                files += 1;
            }
        }
    }
    assert_eq!(files, 5, "two journals, the fence, the snapshot before, and the damaged one");
}

#[cfg(unix)]
#[test]
fn roots_of_any_bytes_are_told_apart() {
    use std::os::unix::ffi::OsStrExt as _;

    let root = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let place = Place::new();
    let odd = root(b"/caf\xe9\n\"\\%e9");
    let mut store = Store::open::<Value>(&place.directory, &odd, &key()).store;
    store.begin(&header(0), &Opening::default(), &shared(0..1)).unwrap();
    store.save(&json!(1)).unwrap();
    let opened = Store::open::<Value>(&place.directory, &odd, &key());
    assert!(opened.epoch.is_some() && opened.snapshot.is_some(), "{:?}", opened.set_aside);
    let opened = Store::open::<Value>(&place.directory, &root(b"/caf%e9\n\"\\%e9"), &key());
    assert!(opened.epoch.is_none() && opened.snapshot.is_none());
    assert_eq!(opened.set_aside.len(), 2);
}

#[test]
fn a_memory_that_outgrows_its_bounds_is_refused() {
    let place = Place::new();
    let mut store = filled(&place, 0, 2);
    let long: Arc<str> = "x".repeat(JOURNAL_BYTES_MAX as usize).into();
    let too_long = Exchange { messages: vec![Message::user(Arc::clone(&long))], ..exchange(0) };
    let refused = store.append(&too_long).unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { .. }), "{refused}");
    assert!(matches!(store.save(&long), Err(StoreError::TooLarge { .. })));
    store.append(&exchange(2)).unwrap();
    assert_eq!(place.open_whole().epoch.unwrap().exchanges, exchanges(0..3), "the others are kept");
    let refused = store.begin(&header(1), &Opening { messages: vec![Message::user(long)], ..opening() }, &[]);
    assert!(matches!(refused, Err(StoreError::Superseded(_) | StoreError::TooLarge { .. })), "{refused:?}");
}

fn any_exchange() -> impl Strategy<Value = Exchange> {
    // With control characters, quotes, line breaks and every plane.
    let text = || "(?s).{0,40}".prop_map(Arc::<str>::from);
    let block = prop_oneof![
        text().prop_map(|text| Block::Text { text }),
        (text(), text(), text()).prop_map(|(id, name, input)| Block::ToolUse { id, name, input }),
        (text(), text(), any::<bool>()).prop_map(|(id, text, is_error)| Block::ToolResult { id, text, is_error }),
        (text(), text()).prop_map(|(model, raw)| Block::Reasoning { model, raw }),
    ];
    let role = prop_oneof![Just(Role::User), Just(Role::Assistant)];
    let message = (role, prop::collection::vec(block, 0..4)).prop_map(|(role, blocks)| Message { role, blocks });
    let source = (text(), text()).prop_map(|(path, sha256)| Source { path, sha256 });
    let form = prop_oneof![Just(Form::Whole), Just(Form::Rebased), Just(Form::Reduced)];
    (prop::collection::vec(message, 0..5), form, any::<usize>(), prop::collection::vec(source, 0..3)).prop_map(
        |(messages, form, dropped_blocks, sources)| {
            let said = sources.iter().map(|source| Said::shown(Arc::clone(&source.path), Arc::clone(&source.sha256)));
            let said = said.collect();
            let question = messages.iter().map(|message: &Message| format!("{message:?}")).collect::<String>().into();
            Exchange {
                messages,
                form,
                dropped_blocks,
                sources,
                said,
                question,
                observations: dropped_blocks as u64,
                notes: 2,
                at: 3,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_was_said_is_kept_byte_for_byte(
        carried in prop::collection::vec(any_exchange(), 0..3),
        appended in prop::collection::vec(any_exchange(), 0..3),
        texts in prop::array::uniform3("(?s).{0,30}"),
        epoch in any::<u64>(),
    ) {
        let place = Place::new();
        let mut store = place.open_whole().store;
        let header = EpochHeader { epoch: Epoch(epoch), name: &texts[0], system: &texts[1], model: &texts[2] };
        let messages = carried.iter().flat_map(|exchange| exchange.messages.clone()).collect();
        let opening = Opening { messages, ..opening() };
        let carried: Vec<Arc<Exchange>> = carried.into_iter().map(Arc::new).collect();
        store.begin(&header, &opening, &carried).unwrap();
        for exchange in &appended {
            store.append(exchange).unwrap();
        }
        let kept = place.open_whole().epoch.unwrap();
        prop_assert_eq!(EpochHeader { epoch: kept.epoch, name: &kept.name, system: &kept.system, model: &kept.model }, header);
        prop_assert_eq!(kept.opening, opening);
        let all: Vec<Exchange> = carried.iter().map(|exchange| Exchange::clone(exchange)).chain(appended).collect();
        prop_assert_eq!(kept.exchanges, all);
    }
}
