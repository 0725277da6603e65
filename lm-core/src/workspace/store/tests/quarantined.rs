//! Files that cannot be used, and what is used instead.

use super::*;

/// What may lie in a file's place.
const ODD: [(&str, &[u8]); 9] = [
    ("empty", b""),
    ("list", b"[]"),
    ("null", b"null"),
    ("object", b"{}"),
    ("text", b"hello\n"),
    ("not UTF-8", b"{\"version\": \"\xff\xfe\"}\n"),
    ("zeroes", &[0; 5000]),
    ("line breaks", b"\n\n\n\n"),
    ("deep", &[b'['; 100_000]),
];

/// A memory with two generations of both files.
fn two_generations() -> Place {
    let place = Place::new();
    let mut store = filled(&place, 0, 3);
    store.save(&json!("before")).unwrap();
    store.begin(&header(1), &opening(), &shared(0..2)).unwrap();
    store.save(&json!("now")).unwrap();
    place
}

/// Opens a memory whose newest files were spoilt: the ones before are used, and nothing is lost.
fn falls_back(place: &Place, what: &str) -> Vec<String> {
    let before = place.names();
    let opened = place.open();
    assert_eq!(opened.epoch.as_ref().unwrap().exchanges, exchanges(0..3), "{what}: the epoch before");
    assert_eq!(opened.snapshot, Some(json!("before")), "{what}: the snapshot before");
    let said: Vec<String> = opened.set_aside.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{what}: {said:?}");
    for (said, (spoilt, used)) in
        said.iter().zip([("journal-1.jsonl", "journal-0.jsonl"), ("memory.json", "memory.previous.json")])
    {
        assert!(before.contains(spoilt) && said.contains(spoilt) && said.contains(used), "{what}: {said}");
    }
    assert_eq!(place.quarantined().len(), 2, "{what}");
    for kept in opened.set_aside.iter().map(|set_aside| set_aside.kept_as.as_ref().unwrap()) {
        assert!(fs::symlink_metadata(kept).is_ok(), "{what}: {}", kept.display());
    }

    let mut store = opened.store;
    store.append(&exchange(3)).unwrap();
    store.save(&json!("later")).unwrap();
    let again = place.open_whole();
    assert_eq!(again.epoch.unwrap().exchanges, exchanges(0..4), "{what}");
    assert_eq!(again.snapshot, Some(json!("later")), "{what}");
    said
}

fn spoil(place: &Place, spoil: impl Fn(&Path)) {
    for name in ["journal-1.jsonl", SNAPSHOT] {
        fs::remove_file(place.path(name)).unwrap();
        spoil(&place.path(name));
    }
}

#[test]
fn what_cannot_be_read_is_set_aside_and_the_generation_before_used() {
    for (what, bytes) in ODD {
        let place = two_generations();
        spoil(&place, |path| fs::write(path, bytes).unwrap());
        falls_back(&place, what);
    }
}

#[test]
fn what_is_no_file_is_set_aside() {
    let place = two_generations();
    spoil(&place, |path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("kept"), "mine").unwrap();
    });
    let said = falls_back(&place, "directory");
    assert!(said[0].contains("is a directory"), "{said:?}");
    for name in place.quarantined() {
        assert_eq!(fs::read_to_string(place.path(QUARANTINE).join(name).join("kept")).unwrap(), "mine");
    }
}

#[cfg(unix)]
#[test]
fn links_are_not_followed_and_pipes_not_waited_for() {
    let place = two_generations();
    let target = place.directory.with_file_name("theirs");
    spoil(&place, |path| {
        fs::write(&target, "theirs").unwrap();
        std::os::unix::fs::symlink(&target, path).unwrap();
    });
    let said = falls_back(&place, "link");
    assert!(said[0].contains("is a link"), "{said:?}");
    assert_eq!(fs::read_to_string(target).unwrap(), "theirs");

    let place = two_generations();
    spoil(&place, |path| {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
    });
    falls_back(&place, "pipe");

    // A link to itself, in the place of everything.
    let place = Place::new();
    create_private(&place.directory).unwrap();
    let all = [FENCE, "journal-0.jsonl", SNAPSHOT, PREVIOUS_SNAPSHOT];
    for name in all {
        std::os::unix::fs::symlink(name, place.path(name)).unwrap();
    }
    let mut opened = place.open();
    assert_eq!(opened.set_aside.len(), all.len(), "{:?}", opened.set_aside);
    opened.store.begin(&header(0), &Opening::default(), &shared(0..1)).unwrap();
    opened.store.save(&json!(1)).unwrap();
    assert!(place.open_whole().epoch.is_some());
}

#[test]
fn what_is_too_large_is_set_aside_unread() {
    let place = two_generations();
    spoil(&place, |path| fs::File::create(path).unwrap().set_len(JOURNAL_BYTES_MAX + 1).unwrap());
    let said = falls_back(&place, "large");
    assert!(said.iter().all(|said| said.contains("is larger than 32 MiB")), "{said:?}");
}

/// Replaces text in a snapshot.
fn edit_snapshot(place: &Place, from: &str, to: &str) {
    let text = fs::read_to_string(place.path(SNAPSHOT)).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(place.path(SNAPSHOT), text.replace(from, to)).unwrap();
}

/// Puts another header before the exchanges of a journal.
fn rewrite_journal(place: &Place, edit: impl Fn(&str) -> String) {
    let bytes = fs::read(place.path("journal-1.jsonl")).unwrap();
    let mut rewritten = Vec::new();
    for piece in record::pieces(&bytes) {
        let record::Piece::Record { text, .. } = piece else { panic!("a damaged journal") };
        let text = edit(std::str::from_utf8(&bytes[text]).unwrap());
        let value: Box<serde_json::value::RawValue> = serde_json::from_str(&text).unwrap();
        record::push(&mut rewritten, &value).unwrap();
    }
    assert_ne!(rewritten, bytes, "the edit changes something");
    fs::write(place.path("journal-1.jsonl"), rewritten).unwrap();
}

#[test]
fn other_versions_and_other_workspaces_are_set_aside() {
    let place = two_generations();
    edit_snapshot(&place, r#""version":1"#, r#""version":7,"more":[]"#);
    rewrite_journal(&place, |text| text.replace(r#""version":1"#, r#""version":7"#));
    let said = falls_back(&place, "version");
    assert!(said.iter().all(|said| said.contains("is of version 7")), "{said:?}");

    // A version that has nothing else in common.
    let place = two_generations();
    fs::write(place.path(SNAPSHOT), r#"{"version":2}"#).unwrap();
    rewrite_journal(&place, |text| match text.starts_with(r#"{"header"#) {
        true => r#"{"header":{"version":2}}"#.to_owned(),
        false => text.to_owned(),
    });
    let said = falls_back(&place, "another form");
    assert!(said.iter().all(|said| said.contains("is of version 2")), "{said:?}");

    for (from, to) in [(r#""/project""#, r#""/project2""#), (&key()[..], "another key")] {
        let place = two_generations();
        edit_snapshot(&place, from, to);
        rewrite_journal(&place, |text| text.replace(from, to));
        let said = falls_back(&place, "workspace");
        assert!(said.iter().all(|said| said.contains("belongs to another workspace")), "{said:?}");
    }

    let place = two_generations();
    fs::copy(place.path("journal-1.jsonl"), place.path("journal-9.jsonl")).unwrap();
    let opened = place.open();
    assert_eq!(opened.epoch.unwrap().epoch, Epoch(1));
    assert!(opened.set_aside[0].to_string().contains("holds epoch 1"), "{:?}", opened.set_aside);
}

#[test]
fn a_snapshot_that_is_cut_or_changed_is_set_aside() {
    let place = two_generations();
    let whole = fs::read(place.path(SNAPSHOT)).unwrap();
    for length in 0..whole.len() {
        fs::write(place.path(SNAPSHOT), &whole[..length]).unwrap();
        let opened = place.open();
        assert_eq!(opened.snapshot, Some(json!("before")), "{length}");
        assert_eq!(opened.set_aside.len(), 1);
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(place.path(SNAPSHOT), &changed).unwrap();
        let opened = place.open();
        // The time of writing is for people.
        let is_time = opened.snapshot == Some(json!("now"));
        assert!(is_time || opened.snapshot == Some(json!("before")), "{at}: {:?}", opened.snapshot);
        assert_eq!(opened.set_aside.len(), usize::from(!is_time), "{at}");
    }
    assert_eq!(place.quarantined().len(), 8, "bounded however many there were");
}

#[test]
fn a_content_of_another_form_is_set_aside_and_not_repeated() {
    #[derive(Debug, serde::Deserialize)]
    struct Content {
        #[expect(dead_code, reason = "it is only read")]
        files: u32,
    }
    let place = Place::new();
    let mut store = place.open_whole().store;
    store.save(&json!({ "files": "sk-canary" })).unwrap();
    let opened = Store::open::<Content>(&place.directory, Path::new("/project"), &key());
    assert!(opened.snapshot.is_none());
    let said = opened.set_aside[0].to_string();
    assert!(said.contains("does not have the form of a memory") && !said.contains("canary"), "{said}");
}

#[test]
fn where_no_generation_can_be_used_the_memory_is_empty_and_nothing_is_lost() {
    let place = two_generations();
    let all = ["journal-0.jsonl", "journal-1.jsonl", SNAPSHOT, PREVIOUS_SNAPSHOT];
    for name in all {
        fs::write(place.path(name), "precious").unwrap();
    }
    let mut opened = place.open();
    assert!(opened.epoch.is_none() && opened.snapshot.is_none());
    assert_eq!(opened.set_aside.len(), all.len());
    opened.store.begin(&header(0), &Opening::default(), &[]).unwrap();
    opened.store.save(&json!(1)).unwrap();
    for name in place.quarantined() {
        assert_eq!(fs::read_to_string(place.path(QUARANTINE).join(name)).unwrap(), "precious");
    }
    assert_eq!(place.quarantined().len(), all.len());
}

#[test]
fn the_quarantine_is_bounded_in_number_and_bytes_and_keeps_the_newest() {
    let place = Place::new();
    drop(place.open());
    for number in 0..30 {
        fs::write(place.path(SNAPSHOT), format!("bad {number}")).unwrap();
        assert_eq!(place.open().set_aside.len(), 1);
    }
    let texts = |place: &Place| -> BTreeSet<String> {
        let names = place.quarantined().into_iter();
        names.map(|name| fs::read_to_string(place.path(QUARANTINE).join(name)).unwrap()).collect()
    };
    assert_eq!(texts(&place), (22..30).map(|number| format!("bad {number}")).collect());

    // Sparse, so that it costs nothing.
    fs::File::create(place.path(SNAPSHOT)).unwrap().set_len(200 << 20).unwrap();
    let opened = place.open();
    assert_eq!(place.quarantined().len(), 1, "it takes all the room there is");
    assert!(opened.set_aside[0].kept_as.as_ref().unwrap().exists(), "the newest one stays");
    fs::write(place.path(SNAPSHOT), "bad").unwrap();
    drop(place.open());
    assert_eq!(texts(&place), BTreeSet::from(["bad".to_owned()]), "until there is a newer one");
}

#[test]
fn something_in_the_place_of_the_quarantine_goes_into_it() {
    let place = two_generations();
    fs::write(place.path(QUARANTINE), "in the way").unwrap();
    spoil(&place, |path| fs::write(path, "bad").unwrap());
    let opened = place.open();
    assert_eq!(opened.epoch.unwrap().exchanges, exchanges(0..3));
    assert_eq!(place.quarantined().len(), 3);
}

#[test]
fn a_directory_that_cannot_be_used_is_said_at_each_write_and_no_obstacle_later() {
    let place = Place::new();
    fs::write(&place.directory, "in the way").unwrap();
    let Opened { mut store, epoch, snapshot, set_aside } = place.open();
    assert!(epoch.is_none() && snapshot.is_none() && set_aside.is_empty());
    for refused in [
        store.begin(&header(0), &opening(), &shared(0..1)),
        store.append(&exchange(1)),
        store.append(&exchange(2)),
        store.save(&json!(1)),
    ] {
        let said = refused.unwrap_err().to_string();
        assert!(said.contains(&*place.directory.to_string_lossy()), "{said}");
        assert!(said.contains("remove what lies there"), "{said}");
    }
    assert!(store.is_behind());
    assert_eq!(fs::read_to_string(&place.directory).unwrap(), "in the way");
    fs::remove_file(&place.directory).unwrap();
    store.flush().unwrap();
    assert_eq!(place.open_whole().epoch.unwrap().exchanges, exchanges(0..3), "all of it was kept in memory");
}

#[cfg(unix)]
#[test]
fn a_memory_that_could_not_be_looked_at_is_not_written_over() {
    let place = two_generations();
    let aside = place.directory.with_file_name("aside");
    fs::rename(&place.directory, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &place.directory).unwrap();
    let mut opened = place.open();
    assert!(opened.epoch.is_none(), "nothing is read behind a link");
    assert!(opened.store.begin(&header(1), &Opening::default(), &shared(7..8)).is_err());
    fs::remove_file(&place.directory).unwrap();
    fs::rename(&aside, &place.directory).unwrap();
    // Another one had opened it before, so that its fence is not the one this store has seen.
    assert!(matches!(opened.store.flush(), Err(StoreError::Superseded(_))));
    fs::remove_file(place.path(FENCE)).unwrap();

    fs::rename(&place.directory, &aside).unwrap();
    fs::write(&place.directory, "in the way").unwrap();
    let mut opened = place.open();
    fs::remove_file(&place.directory).unwrap();
    fs::rename(&aside, &place.directory).unwrap();
    opened.store.begin(&header(1), &Opening::default(), &shared(7..8)).unwrap();
    assert_eq!(opened.store.take_set_aside().len(), 4, "what was found later is set aside");
    assert_eq!(place.quarantined().len(), 4);
    assert_eq!(place.open_whole().epoch.unwrap().exchanges, exchanges(7..8));
}
