//! Every way a known file can change, on real files.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use tempfile::TempDir;

use super::*;
use crate::files::Excluded;

/// A workspace and what a model knows of it.
struct Known {
    guard: TempDir,
    root: PathBuf,
    files: BTreeMap<String, (String, FileStamp, i64)>,
    excluded: Excluded,
}

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}

impl Known {
    /// Files that were read well after they were written.
    fn of(files: &[(&str, &str)]) -> Self {
        Self::looked_at(files, 10_000_000_000)
    }

    /// Files that were read so long after they were written, in nanoseconds.
    fn looked_at(files: &[(&str, &str)], later: i64) -> Self {
        let guard = TempDir::new().unwrap();
        let root = guard.path().join("root");
        fs::create_dir(&root).unwrap();
        let mut known = Self { guard, root, files: BTreeMap::new(), excluded: Excluded::default() };
        for (path, text) in files {
            known.write(path, text);
            known.look(path, later);
        }
        known
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    fn look(&mut self, path: &str, later: i64) {
        let text = WorkspaceFiles::open(&self.root).unwrap().read(Path::new(path), READ_CAP).unwrap();
        self.files.insert(path.to_owned(), (text.sha256, text.stamp, now() + later));
    }

    fn check_with(
        &self,
        files: &WorkspaceFiles,
        deadline: Instant,
        cancel: &CancellationToken,
    ) -> Vec<(String, Finding)> {
        let known: Vec<KnownFile<'_>> = self
            .files
            .iter()
            .map(|(path, (sha256, stamp, looked_at_ns))| KnownFile {
                path,
                sha256,
                stamp: Some(*stamp),
                looked_at_ns: *looked_at_ns,
                whole: true,
            })
            .collect();
        // Looks lie up to ten seconds ahead of the real clock.
        let found = check(files, &known, now() + 20_000_000_000, deadline, cancel);
        found.into_iter().map(|(index, finding)| (known[index].path.to_owned(), finding)).collect()
    }

    fn check(&self) -> Vec<(String, Finding)> {
        let files = WorkspaceFiles::open(&self.root).unwrap().leaving_out(&self.excluded);
        self.check_with(&files, soon(), &CancellationToken::new())
    }

    /// The findings in short.
    fn found(&self) -> Vec<String> {
        self.check().into_iter().map(|(path, finding)| format!("{path}: {}", shortly(&finding))).collect()
    }
}

fn shortly(finding: &Finding) -> String {
    match finding {
        Finding::Same { .. } => "same".into(),
        Finding::Changed { text } => format!("changed to {:?}", text.text),
        Finding::Gone { now_at: None } => "gone".into(),
        Finding::Gone { now_at: Some(path) } => format!("now at {path}"),
        Finding::Unreadable { why, withheld: false } => format!("unreadable, {why}"),
        Finding::Unreadable { why, withheld: true } => format!("withheld, {why}"),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn set_modified(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn what_did_not_change_is_not_mentioned() {
    let known = Known::of(&[("a.rs", "a\n"), ("sub/b.rs", "b\n"), ("sub/deep/er/c.rs", "")]);
    // Without a time that no program can set, reading is the only proof.
    let expected = if cfg!(unix) { vec![] } else { vec!["a.rs: same", "sub/b.rs: same", "sub/deep/er/c.rs: same"] };
    assert_eq!(known.found(), expected);
}

#[test]
fn an_edit_is_found_with_what_stands_there_now() {
    let known = Known::of(&[("a.rs", "port = 1\n"), ("b.rs", "b")]);
    known.write("a.rs", "port = 2\n");
    let found = known.found();
    assert_eq!(found.iter().find(|line| line.starts_with("a.rs")).unwrap(), "a.rs: changed to \"port = 2\\n\"");
}

#[cfg(unix)]
#[test]
fn an_edit_of_the_same_size_with_its_time_restored_is_found() {
    let known = Known::of(&[("a.rs", "port = 1\n")]);
    let before = fs::metadata(known.path("a.rs")).unwrap().modified().unwrap();
    known.write("a.rs", "port = 2\n");
    set_modified(&known.path("a.rs"), before);
    assert_eq!(known.found(), ["a.rs: changed to \"port = 2\\n\""]);
}

#[test]
fn a_file_put_in_its_place_with_the_same_times_is_found() {
    let known = Known::of(&[("a.rs", "port = 1\n")]);
    let before = fs::metadata(known.path("a.rs")).unwrap().modified().unwrap();
    known.write("new", "port = 2\n");
    set_modified(&known.path("new"), before);
    fs::rename(known.path("new"), known.path("a.rs")).unwrap();
    assert_eq!(known.found(), ["a.rs: changed to \"port = 2\\n\""]);
}

#[cfg(unix)]
#[test]
fn a_touch_is_no_change_and_its_stamp_need_not_be_doubted_again() {
    let mut known = Known::of(&[("a.rs", "a\n")]);
    set_modified(&known.path("a.rs"), SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    let [(_, Finding::Same { stamp })] = &known.check()[..] else { panic!() };
    let entry = known.files.get_mut("a.rs").unwrap();
    assert_ne!(entry.1, *stamp);
    entry.1 = *stamp;
    entry.2 = now() + 10_000_000_000;
    assert_eq!(known.found(), [""; 0]);
}

#[test]
fn an_edit_within_the_tick_of_the_look_is_found_whatever_the_stamp_says() {
    let mut known = Known::looked_at(&[("a.rs", "port = 1\n")], 0);
    known.write("a.rs", "port = 2\n");
    // As on a file system whose clock has not ticked since.
    let files = WorkspaceFiles::open(&known.root).unwrap();
    known.files.get_mut("a.rs").unwrap().1 = files.stamp(Path::new("a.rs")).unwrap();
    assert_eq!(known.found(), ["a.rs: changed to \"port = 2\\n\""]);
}

#[test]
fn edits_milliseconds_after_a_look_are_all_found() {
    let mut known = Known::looked_at(&[("a.rs", "0000")], 0);
    for round in 1..200 {
        known.write("a.rs", &format!("{round:04}"));
        assert_eq!(known.found(), [format!("a.rs: changed to \"{round:04}\"")]);
        known.look("a.rs", 0);
    }
}

#[test]
fn stamps_from_a_clock_ahead_of_the_look_are_not_trusted() {
    let mut known = Known::looked_at(&[("a.rs", "a")], -3_600_000_000_000);
    assert_eq!(known.found(), ["a.rs: same"], "written after it was looked at");
    known.files.get_mut("a.rs").unwrap().2 = now() + 3_600_000_000_000;
    assert_eq!(known.found(), ["a.rs: same"], "looked at in the future");
}

#[test]
fn without_a_stamp_or_a_time_nobody_can_set_the_bytes_decide() {
    let mut known = Known::of(&[("a.rs", "a")]);
    known.files.get_mut("a.rs").unwrap().1.changed_ns = None;
    assert_eq!(known.found(), ["a.rs: same"]);
    let stamp = &mut known.files.get_mut("a.rs").unwrap().1;
    (stamp.modified_ns, stamp.changed_ns) = (0, Some(0));
    assert_eq!(known.found(), ["a.rs: same"]);
}

#[test]
fn what_is_deleted_is_gone_and_what_is_there_again_is_not() {
    let known = Known::of(&[("a.rs", "a"), ("sub/b.rs", "b"), ("c.rs", "c"), ("d.rs", "d")]);
    fs::remove_file(known.path("a.rs")).unwrap();
    fs::remove_dir_all(known.path("sub")).unwrap();
    for (path, text) in [("c.rs", "c"), ("d.rs", "other")] {
        fs::remove_file(known.path(path)).unwrap();
        known.write(path, text);
    }
    assert_eq!(known.found(), ["a.rs: gone", "c.rs: same", "d.rs: changed to \"other\"", "sub/b.rs: gone"]);
}

#[test]
fn a_renamed_file_is_found_where_it_is_now() {
    let known = Known::of(&[("src/a.rs", "fn a() {}\n"), ("src/b.rs", "fn b() {}\n"), ("lib/c.rs", "fn c() {}\n")]);
    fs::rename(known.path("src/a.rs"), known.path("src/z.rs")).unwrap();
    fs::rename(known.path("lib"), known.path("moved")).unwrap();
    let found: Vec<_> = known.found().into_iter().filter(|line| !line.starts_with("src/b.rs")).collect();
    assert_eq!(found, ["lib/c.rs: now at moved/c.rs", "src/a.rs: now at src/z.rs"]);
}

#[test]
fn of_equal_files_each_goes_where_its_name_went_and_known_ones_are_no_new_place() {
    let known = Known::of(&[("a/one.rs", "same\n"), ("a/two.rs", "same\n"), ("kept.rs", "same\n"), ("empty.rs", "")]);
    fs::rename(known.path("a"), known.path("b")).unwrap();
    fs::remove_file(known.path("empty.rs")).unwrap();
    known.write("other_empty.rs", "");
    let found: Vec<_> = known.found().into_iter().filter(|line| !line.starts_with("kept.rs")).collect();
    assert_eq!(found, ["a/one.rs: now at b/one.rs", "a/two.rs: now at b/two.rs", "empty.rs: gone"]);
}

#[test]
fn a_file_moved_and_edited_or_hidden_is_only_gone() {
    let known = Known::of(&[("a.rs", "a = 1\n"), ("b.rs", "b = 1\n")]);
    fs::remove_file(known.path("a.rs")).unwrap();
    known.write("new.rs", "a = 2\n");
    known.write(".gitignore", "hidden/\n");
    fs::create_dir(known.path("hidden")).unwrap();
    fs::rename(known.path("b.rs"), known.path("hidden/b.rs")).unwrap();
    assert_eq!(known.found(), ["a.rs: gone", "b.rs: gone"]);
}

#[cfg(unix)]
#[test]
fn what_took_a_file_s_place_is_told_apart() {
    let known = Known::of(&[
        ("became_directory", "1"),
        ("became_link_in", "2"),
        ("became_link_out", "3"),
        ("became_loop", "4"),
        ("became_nothing", "5"),
        ("became_pipe", "6"),
        ("dir/file", "7"),
        ("linked/file", "8"),
    ]);
    fs::write(known.guard.path().join("outside"), "3").unwrap();
    let replace = |path: &str| {
        fs::remove_file(known.path(path)).unwrap();
        known.path(path)
    };
    fs::create_dir(replace("became_directory")).unwrap();
    let link = |target: &str, path: PathBuf| std::os::unix::fs::symlink(target, path).unwrap();
    known.write("two", "2");
    link("two", replace("became_link_in"));
    link("../outside", replace("became_link_out"));
    link("became_loop", replace("became_loop"));
    link("nowhere", replace("became_nothing"));
    let pipe = replace("became_pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    fs::remove_dir_all(known.path("dir")).unwrap();
    known.write("dir", "a file where a directory was");
    fs::rename(known.path("linked"), known.path("elsewhere")).unwrap();
    link("elsewhere", known.path("linked"));
    let found = known.found();
    let find = |path: &str| found.iter().find_map(|line| line.strip_prefix(&format!("{path}: "))).unwrap_or("proved");
    assert!(find("became_directory").contains("is not a regular file"), "{found:?}");
    assert_eq!(find("became_link_in"), "same");
    assert!(find("became_link_out").contains("is not inside the workspace"), "{found:?}");
    assert!(find("became_loop").starts_with("unreadable, "), "{found:?}");
    assert_eq!(find("became_nothing"), "gone");
    assert!(find("became_pipe").contains("is not a regular file"), "{found:?}");
    assert_eq!(find("dir/file"), "gone");
    assert_eq!(find("linked/file"), "same");
}

#[test]
fn what_a_person_shuts_is_withheld_though_the_file_is_as_it_was() {
    let mut known = Known::of(&[
        ("a.rs", "a"),
        ("deep/in/b.rs", "b"),
        ("excluded/c.rs", "c"),
        ("rules/d.rs", "d"),
        ("open.rs", "o"),
    ]);
    known.write(".livememoryignore", "/a.rs\n/deep/\n");
    fs::write(known.path("rules/.livememoryignore"), b"\0\0").unwrap();
    known.excluded = Excluded::new(&[known.path("excluded").display().to_string()], |path| Some(path.to_path_buf()));
    let found = known.found();
    let withheld = ["a.rs", "deep/in/b.rs", "excluded/c.rs", "rules/d.rs"];
    let lines: Vec<_> = found.iter().filter(|line| !line.starts_with("open.rs")).collect();
    assert_eq!(lines.len(), withheld.len(), "{found:?}");
    for (line, path) in lines.iter().zip(withheld) {
        assert!(line.starts_with(&format!("{path}: withheld, ")), "{line}");
    }
    assert!(!found.iter().any(|line| line == "open.rs: gone"));
}

#[test]
fn a_secret_or_binary_that_came_in_is_not_given_back() {
    let known = Known::of(&[("a.rs", "a"), ("b.rs", "b")]);
    let token = format!("gh{}_{}", "p", "q7Zt1LxV0sPd9KfR3mWb8YcN5hJg2TuE6aQv");
    known.write("a.rs", &format!("let token = \"{token}\";\n"));
    fs::write(known.path("b.rs"), b"\0\x01\x02").unwrap();
    let found = known.found();
    assert!(found[0].starts_with("a.rs: withheld, `a.rs` may hold secrets"), "{found:?}");
    assert!(found[1].starts_with("b.rs: unreadable, `b.rs` is a binary file"), "{found:?}");
    assert!(!found.iter().any(|line| line.contains(&token)));
}

#[cfg(unix)]
#[test]
fn what_may_not_be_read_is_not_gone() {
    use std::os::unix::fs::PermissionsExt as _;

    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: file modes do not bind root");
        return;
    }
    let known = Known::of(&[("a.rs", "a"), ("shut/b.rs", "b")]);
    for path in ["a.rs", "shut"] {
        fs::set_permissions(known.path(path), fs::Permissions::from_mode(0o0)).unwrap();
    }
    let found = known.found();
    fs::set_permissions(known.path("shut"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|line| line.contains("unreadable, cannot read")), "{found:?}");
}

#[test]
fn failures_that_are_no_evidence_are_not_gone() {
    let error = |kind: io::ErrorKind| ReadError::Io { path: "a".into(), source: kind.into() };
    for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::TimedOut, io::ErrorKind::Other] {
        assert!(matches!(refused(&error(kind)), Finding::Unreadable { withheld: false, .. }), "{kind}");
    }
    #[cfg(unix)]
    for code in [libc_eio(), 24, 116] {
        let error = ReadError::Io { path: "a".into(), source: io::Error::from_raw_os_error(code) };
        assert!(matches!(refused(&error), Finding::Unreadable { .. }), "{code}");
    }
    assert_eq!(refused(&error(io::ErrorKind::NotFound)), Finding::Gone { now_at: None });
}

#[cfg(unix)]
fn libc_eio() -> i32 {
    rustix::io::Errno::IO.raw_os_error()
}

#[cfg(unix)]
#[test]
fn a_root_that_vanished_says_nothing_about_its_files() {
    let known = Known::of(&[("a.rs", "a"), ("sub/b.rs", "b")]);
    let files = WorkspaceFiles::open(&known.root).unwrap();
    fs::remove_dir_all(&known.root).unwrap();
    let all_unreadable = |what: &str| {
        let found = known.check_with(&files, soon(), &CancellationToken::new());
        assert_eq!(found.len(), 2);
        for (path, finding) in found {
            assert!(
                matches!(&finding, Finding::Unreadable { why, .. } if why.contains("directory is not there")),
                "{what}, {path}: {finding:?}"
            );
        }
    };
    all_unreadable("removed");
    fs::create_dir(&known.root).unwrap();
    fs::write(known.path("x"), "").unwrap();
    all_unreadable("made again");
    // An empty one is where a disk is not mounted.
    fs::remove_file(known.path("x")).unwrap();
    let found = known.found();
    assert!(found.len() == 2 && found.iter().all(|line| line.contains("not mounted")), "{found:?}");
    known.write("x", "");
    assert_eq!(known.found(), ["a.rs: gone", "sub/b.rs: gone"]);
}

#[test]
fn without_time_or_when_cancelled_nothing_is_certain() {
    let known = Known::of(&[("a.rs", "a"), ("b.rs", "b")]);
    fs::remove_file(known.path("a.rs")).unwrap();
    let files = WorkspaceFiles::open(&known.root).unwrap();
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    for (deadline, cancel) in [(Instant::now(), CancellationToken::new()), (soon(), cancelled)] {
        let found = known.check_with(&files, deadline, &cancel);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|(_, finding)| *finding == out_of_time()), "{found:?}");
    }
}

#[test]
fn a_name_that_is_not_known_exactly_is_not_looked_up() {
    let known = Known::of(&[("caf\u{fffd}.rs", "a")]);
    let found = known.found();
    assert!(found[0].contains("unreadable, its name"), "{found:?}");
}

#[test]
fn paths_of_no_file_are_told_apart_too() {
    let known = Known::of(&[("a.rs", "a")]);
    let files = WorkspaceFiles::open(&known.root).unwrap();
    let find = |path: &str| {
        let file = KnownFile { path, sha256: "", stamp: None, looked_at_ns: 0, whole: true };
        shortly(&check(&files, &[file], now(), soon(), &CancellationToken::new())[0].1)
    };
    assert_eq!(find(""), "gone");
    assert!(find("../a.rs").contains("not inside the workspace"), "{}", find("../a.rs"));
    assert!(find("./a.rs").starts_with("changed"));
    let long = format!("{}x", "d/".repeat(200));
    assert_eq!(find(&long), "gone");
    #[cfg(unix)]
    assert!(find("/etc/hostname").contains("not inside the workspace"));
    assert!(find("nul\0l").starts_with("unreadable"));
}

#[test]
fn of_a_long_file_only_what_was_hashed_is_compared_and_the_rest_by_its_stamp() {
    let beginning = "x".repeat(usize::try_from(READ_CAP).unwrap());
    let known = Known::of(&[("long.txt", &format!("{beginning}tail"))]);
    let (sha256, stamp, looked_at_ns) = &known.files["long.txt"];
    let find = |stamp, whole, looked_at_ns| {
        let file = KnownFile { path: "long.txt", sha256, stamp, looked_at_ns, whole };
        let files = WorkspaceFiles::open(&known.root).unwrap();
        let found = check(&files, &[file], now() + 20_000_000_000, soon(), &CancellationToken::new());
        found.into_iter().next().map_or("proved", |(_, finding)| match finding {
            Finding::Same { .. } => "same",
            Finding::Changed { .. } => "changed",
            _ => "other",
        })
    };
    assert_eq!(find(Some(*stamp), false, *looked_at_ns), if cfg!(unix) { "proved" } else { "same" });
    assert_eq!(find(None, false, 0), "same");
    assert_eq!(find(None, true, 0), "changed", "the whole was shorter");
    known.write("long.txt", &format!("{beginning}liat"));
    assert_eq!(find(Some(*stamp), false, *looked_at_ns), "changed");
}

#[test]
fn what_changed_beyond_all_bounds_is_to_be_read_again() {
    let paths: Vec<String> = (0..10).map(|number| format!("{number}.txt")).collect();
    let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
    let known = Known::of(&files);
    paths.iter().for_each(|path| known.write(path, "0123456789"));
    let files = WorkspaceFiles::open(&known.root).unwrap();
    let files_known: Vec<KnownFile<'_>> =
        paths.iter().map(|path| KnownFile { path, sha256: "", stamp: None, looked_at_ns: 0, whole: true }).collect();
    let cancel = CancellationToken::new();
    let found = Check { text_max: 35, ..Check::new(&files, &files_known, now(), soon(), &cancel) }.run();
    let kept = found.iter().filter(|(_, finding)| matches!(finding, Finding::Changed { .. })).count();
    let named = found.iter().filter(|(_, finding)| shortly(finding).contains("must be read again")).count();
    assert_eq!((kept, named), (3, 7));
}

#[test]
fn a_switch_of_many_files_is_found_one_for_one() {
    let paths: Vec<String> = (0..300).map(|number| format!("dir{}/file{number}.rs", number % 17)).collect();
    let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "main branch\n")).collect();
    let known = Known::of(&files);
    for (number, path) in paths.iter().enumerate() {
        match number % 3 {
            0 => known.write(path, "other branch\n"),
            1 => fs::remove_file(known.path(path)).unwrap(),
            _ => {}
        }
    }
    let found: BTreeMap<String, Finding> = known.check().into_iter().collect();
    for (number, path) in paths.iter().enumerate() {
        let right = match (number % 3, found.get(path)) {
            (0, Some(Finding::Changed { text })) => text.text == "other branch\n",
            (1, Some(Finding::Gone { now_at: None })) => true,
            (2, None | Some(Finding::Same { .. })) => cfg!(unix) != found.contains_key(path),
            _ => false,
        };
        assert!(right, "{path}: {:?}", found.get(path));
    }
}

#[cfg(unix)]
#[test]
fn text_hash_and_stamp_belong_together_while_a_file_is_written() {
    let known = Known::of(&[("a.txt", "")]);
    let path = known.path("a.txt");
    let stop = std::sync::atomic::AtomicBool::new(false);
    // Also when an assertion fails: a scope waits for its threads.
    struct Stop<'a>(&'a std::sync::atomic::AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    thread::scope(|scope| {
        let stopping = Stop(&stop);
        let writer = scope.spawn(|| {
            let mut round = 0_usize;
            while !stop.load(Relaxed) {
                round += 1;
                fs::write(&path, format!("{round}\n").repeat(round % 500)).unwrap();
            }
        });
        let files = WorkspaceFiles::open(&known.root).unwrap();
        for _ in 0..500 {
            let text = files.read(Path::new("a.txt"), READ_CAP).unwrap();
            if text.stamp.changed_ns.is_some() {
                assert_eq!(text.text.len() as u64, text.stamp.size);
            }
        }
        drop(stopping);
        writer.join().unwrap();
    });
}
