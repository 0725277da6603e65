//! Bad files and bad paths against the door.

mod left_out;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;

const CAP: u64 = 1 << 20;

fn tree(files: &[(&str, &str)]) -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    for (path, text) in files {
        write(&root, path, text.as_bytes());
    }
    (directory, root)
}

fn write(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn listed(root: &Path) -> (BTreeSet<String>, WalkReport) {
    let limits =
        WalkLimits { max_files: 10_000, deadline: Instant::now() + Duration::from_secs(30), threads: 3, stamps: true };
    let (found, report) = WorkspaceFiles::open(root).unwrap().list(&limits, &CancellationToken::new()).unwrap();
    (found.keys().map(|path| display_path(path)).collect(), report)
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn text_is_read_with_its_hash() {
    let (_guard, root) = tree(&[("a/b.txt", "hello\n")]);
    let file = WorkspaceFiles::open(&root).unwrap().read(Path::new("a/b.txt"), CAP).unwrap();
    assert_eq!((file.text.as_str(), file.size, file.truncated), ("hello\n", 6, false));
    assert_eq!(file.sha256, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
    assert!(file.stamp.modified_ns > 0 && file.stamp.size == 6);
}

#[test]
fn encodings_are_understood_and_the_hash_is_of_the_raw_bytes() {
    let (_guard, root) = tree(&[]);
    write(&root, "u16.txt", b"\xff\xfeh\0i\0\n\0");
    write(&root, "latin.txt", b"caf\xe9\n");
    write(&root, "image.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    let files = WorkspaceFiles::open(&root).unwrap();
    let utf16 = files.read(Path::new("u16.txt"), CAP).unwrap();
    assert_eq!((utf16.text.as_str(), utf16.encoding), ("hi\n", Encoding::Utf16));
    assert_eq!(utf16.size, 8);
    assert_eq!(files.read(Path::new("latin.txt"), CAP).unwrap().encoding, Encoding::Repaired);
    assert!(matches!(files.read(Path::new("image.png"), CAP), Err(ReadError::Binary(_))));
}

#[test]
fn a_long_file_is_read_to_the_cap_and_says_so() {
    let (_guard, root) = tree(&[("long.txt", &"ü".repeat(3_000_000))]);
    let file = WorkspaceFiles::open(&root).unwrap().read(Path::new("long.txt"), CAP + 1).unwrap();
    assert!(file.truncated);
    assert_eq!(file.encoding, Encoding::Utf8);
    assert_eq!(file.text.len(), 1 << 20);
}

#[test]
fn paths_outside_are_refused() {
    let (guard, root) = tree(&[("sub/inside.txt", "inside")]);
    fs::write(guard.path().join("canary.txt"), "outside").unwrap();
    let files = WorkspaceFiles::open(&root).unwrap();
    let absolute = guard.path().join("canary.txt");
    for path in [Path::new("../canary.txt"), Path::new("sub/../../canary.txt"), &absolute, Path::new("/etc/passwd")] {
        assert!(matches!(files.read(path, CAP), Err(ReadError::Outside(_))), "{}", path.display());
    }
    assert_eq!(files.read(Path::new("sub/../sub/inside.txt"), CAP).unwrap().text, "inside");
    assert!(matches!(files.read(Path::new("missing.txt"), CAP), Err(ReadError::Io { .. })));
    assert!(matches!(files.read(Path::new("sub"), CAP), Err(ReadError::NotRegular(_))));
}

#[test]
fn secrets_are_refused_by_name_and_by_content() {
    let canary = "canary";
    let token = format!("gh{}_{}", "p", "q7Zt1LxV0sPd9KfR3mWb8YcN5hJg2TuE6aQv");
    let (_guard, root) = tree(&[
        (".env", canary),
        (".env.example", "KEY="),
        ("deploy/server.pem", canary),
        (".npmrc", canary),
        ("src/client.py", &format!("TOKEN = '{token}'")),
        ("src/scanner.py", "PATTERN = r'ghp_[0-9a-zA-Z]{36}'"),
    ]);
    let (found, report) = listed(&root);
    assert_eq!(found, names(&[".env.example", "src/client.py", "src/scanner.py"]));
    assert_eq!(report.secret, 3);
    let files = WorkspaceFiles::open(&root).unwrap();
    for secret in [".env", "deploy/server.pem", ".npmrc", "src/client.py"] {
        let error = files.read(Path::new(secret), CAP).unwrap_err();
        assert!(matches!(error, ReadError::Secret(_)), "{secret}");
        assert!(!error.to_string().contains(canary) && !error.to_string().contains(&token));
    }
    assert!(files.read(Path::new("src/scanner.py"), CAP).is_ok());
}

#[test]
fn ignored_files_stay_out_in_and_outside_of_git() {
    let (_guard, root) = tree(&[
        (".gitignore", "secret.txt\n/build/\n*.log\n!keep.log\n"),
        ("secret.txt", ""),
        ("build/out.txt", ""),
        ("sub/build/in.txt", ""),
        ("a.log", ""),
        ("keep.log", ""),
        ("sub/.gitignore", "!a.log\nlocal.txt\n"),
        ("sub/a.log", ""),
        ("sub/local.txt", ""),
        (".hidden", ""),
        (".livememoryignore", "private\n"),
        ("private/notes.txt", ""),
    ]);
    let expected = names(&[
        ".gitignore",
        ".hidden",
        ".livememoryignore",
        "keep.log",
        "sub/.gitignore",
        "sub/a.log",
        "sub/build/in.txt",
    ]);
    assert_eq!(listed(&root).0, expected);
    write(&root, ".git/HEAD", b"ref: refs/heads/main\n");
    write(&root, ".git/info/exclude", b".hidden\n");
    let mut expected = expected;
    expected.remove(".hidden");
    assert_eq!(listed(&root).0, expected);
}

#[test]
fn rules_above_the_root_do_not_count() {
    let (guard, root) = tree(&[("visible.txt", "")]);
    fs::write(guard.path().join(".gitignore"), "*\n").unwrap();
    fs::write(guard.path().join(".livememoryignore"), "*\n").unwrap();
    assert_eq!(listed(&root).0, names(&["visible.txt"]));
}

#[test]
fn a_git_file_is_not_entered_either() {
    let (_guard, root) =
        tree(&[(".git", "gitdir: ../elsewhere"), ("a.txt", ""), ("module/.git/config", ""), ("module/b.txt", "")]);
    assert_eq!(listed(&root).0, names(&["a.txt", "module/b.txt"]));
}

#[test]
fn walks_end_when_told_to() {
    let (_guard, root) = tree(&[("a.txt", ""), ("b.txt", ""), ("c.txt", "")]);
    let files = WorkspaceFiles::open(&root).unwrap();
    let limits =
        WalkLimits { max_files: 2, deadline: Instant::now() + Duration::from_secs(30), threads: 1, stamps: false };
    let (found, report) = files.list(&limits, &CancellationToken::new()).unwrap();
    assert_eq!((found.len(), report.too_many, report.is_complete()), (2, true, false));
    let late = WalkLimits { deadline: Instant::now(), max_files: 100, ..limits.clone() };
    let (_, report) = files.list(&late, &CancellationToken::new()).unwrap();
    assert!(report.out_of_time && !report.is_complete());
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let (_, report) = files.list(&limits, &cancelled).unwrap();
    assert!(report.stopped && !report.is_complete());
}

#[test]
fn a_deleted_root_is_an_error_and_not_an_empty_workspace() {
    let (_guard, root) = tree(&[]);
    assert!(WorkspaceFiles::open(&root.join("missing")).is_err());
    fs::write(root.join("file"), "").unwrap();
    let error = WorkspaceFiles::open(&root.join("file")).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

#[cfg(unix)]
mod unix {
    #[cfg(target_os = "linux")]
    use std::{io::Read as _, os::unix::net::UnixListener};
    use std::{
        io::{Seek as _, Write as _},
        os::unix::{
            ffi::OsStrExt as _,
            fs::{OpenOptionsExt as _, PermissionsExt as _, symlink},
        },
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        thread,
    };

    use super::*;

    #[test]
    fn links_lead_nowhere_outside() {
        let (guard, root) = tree(&[("real.txt", "inside")]);
        fs::write(guard.path().join("canary.txt"), "outside").unwrap();
        fs::create_dir(guard.path().join("other")).unwrap();
        fs::write(guard.path().join("other/deep.txt"), "outside").unwrap();
        symlink(guard.path().join("canary.txt"), root.join("absolute")).unwrap();
        symlink("../canary.txt", root.join("relative")).unwrap();
        symlink("../other", root.join("directory")).unwrap();
        symlink("real.txt", root.join("inner")).unwrap();
        symlink(".", root.join("loop")).unwrap();
        symlink("twin_b", root.join("twin_a")).unwrap();
        symlink("twin_a", root.join("twin_b")).unwrap();
        symlink("/dev/zero", root.join("zero")).unwrap();
        let files = WorkspaceFiles::open(&root).unwrap();
        for path in ["absolute", "relative", "directory/deep.txt", "zero"] {
            assert!(matches!(files.read(Path::new(path), CAP), Err(ReadError::Outside(_))), "{path}");
        }
        assert!(files.read(Path::new("twin_a"), CAP).is_err());
        assert_eq!(files.read(Path::new("inner"), CAP).unwrap().text, "inside");
        let (found, report) = listed(&root);
        assert_eq!(found, names(&["real.txt"]));
        assert_eq!(report.not_regular, 8);
    }

    #[test]
    fn a_link_does_not_give_a_secret_another_name() {
        let (_guard, root) = tree(&[(".env", "PASSWORD=canary")]);
        symlink(".env", root.join("notes.txt")).unwrap();
        let files = WorkspaceFiles::open(&root).unwrap();
        assert!(matches!(files.read(Path::new("notes.txt"), CAP), Err(ReadError::Secret(_))));
    }

    #[test]
    fn a_link_that_is_swapped_while_reading_leads_nowhere() {
        let (guard, root) = tree(&[("real/file.txt", "inside")]);
        fs::create_dir(guard.path().join("other")).unwrap();
        fs::write(guard.path().join("other/file.txt"), "canary").unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..2000 {
                    let target = if turn % 2 == 0 { Path::new("real") } else { Path::new("../other") };
                    let _ = symlink(target, root.join("next"));
                    fs::rename(root.join("next"), root.join("link")).unwrap();
                }
                done.store(true, Relaxed);
            });
            let files = WorkspaceFiles::open(&root).unwrap();
            while !done.load(Relaxed) {
                if let Ok(file) = files.read(Path::new("link/file.txt"), CAP) {
                    assert_eq!(file.text, "inside");
                }
                if let Ok(file) = files.read_found(Path::new("link/file.txt"), CAP) {
                    assert_eq!(file.text, "inside");
                }
            }
        });
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pipes_and_sockets_are_left_alone() {
        let (_guard, root) = tree(&[("plain.txt", "")]);
        let pipe = root.join("pipe");
        make_pipe(&pipe);
        // Both ends, as a program has that waits for its peer.
        let mut held = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        held.write_all(b"for another program").unwrap();
        let _socket = UnixListener::bind(root.join("socket")).unwrap();
        let files = WorkspaceFiles::open(&root).unwrap();
        for path in ["pipe", "socket"] {
            assert!(matches!(files.read(Path::new(path), CAP), Err(ReadError::NotRegular(_))), "{path}");
            // As if it had been a file when it was listed.
            assert!(files.read_found(Path::new(path), CAP).is_err());
        }
        assert_eq!(listed(&root).0, names(&["plain.txt"]));
        let mut kept = [0; 19];
        held.read_exact(&mut kept).unwrap();
        assert_eq!(&kept, b"for another program");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn rules_are_not_read_from_pipes_or_through_links() {
        let (guard, root) = tree(&[("sub/a.txt", ""), ("sub/b.txt", "")]);
        make_pipe(&root.join(".gitignore"));
        fs::write(guard.path().join("rules"), "b.txt\n").unwrap();
        symlink("../../rules", root.join("sub/.gitignore")).unwrap();
        assert_eq!(listed(&root).0, names(&["sub/a.txt", "sub/b.txt"]));
    }

    #[cfg(target_os = "linux")]
    pub(super) fn make_pipe(path: &Path) {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    #[test]
    fn a_huge_sparse_file_costs_nothing() {
        let (_guard, root) = tree(&[]);
        fs::File::create(root.join("sparse")).unwrap().set_len(200 << 20).unwrap();
        let files = WorkspaceFiles::open(&root).unwrap();
        assert!(matches!(files.read(Path::new("sparse"), 1 << 30), Err(ReadError::Binary(_))));
    }

    #[test]
    fn odd_names_are_carried_and_shown_on_one_line() {
        let (_guard, root) = tree(&[]);
        for name in
            [&b"new\nline.txt"[..], b"quo\"te'.txt", b"sp ace.txt", "\u{fc}n\u{ef}.txt".as_bytes(), b"not\xffutf8.txt"]
        {
            // Some file systems take only valid UTF-8.
            let _ = fs::write(root.join(std::ffi::OsStr::from_bytes(name)), "text");
        }
        let limits = WalkLimits {
            max_files: 100,
            deadline: Instant::now() + Duration::from_secs(30),
            threads: 1,
            stamps: false,
        };
        let files = WorkspaceFiles::open(&root).unwrap();
        let (found, _) = files.list(&limits, &CancellationToken::new()).unwrap();
        assert!(found.len() >= 4);
        for path in found.keys() {
            assert_eq!(files.read(path, CAP).unwrap().text, "text");
            assert!(!display_path(path).contains('\n'));
            assert_eq!(path_from_bytes(&path_to_bytes(path)).as_ref(), Some(path));
        }
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_read_harms_nobody() {
        let (_guard, root) = tree(&[]);
        let text = "let value = 1;\n".repeat(200_000);
        write(&root, "busy.rs", text.as_bytes());
        let files = WorkspaceFiles::open(&root).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut file = fs::OpenOptions::new().write(true).open(root.join("busy.rs")).unwrap();
                while !done.load(Relaxed) {
                    file.set_len(0).unwrap();
                    file.rewind().unwrap();
                    file.write_all(text.as_bytes()).unwrap();
                }
            });
            for _ in 0..100 {
                let _ = files.read(Path::new("busy.rs"), 1 << 30);
            }
            done.store(true, Relaxed);
        });
    }

    /// Root reads everything, so where tests run as root the walk is made by another user, in a
    /// process of its own.
    #[test]
    fn an_unreadable_directory_is_counted() {
        const TREE: &str = "LM_TEST_UNREADABLE_TREE";
        if let Some(root) = std::env::var_os(TREE) {
            let (found, report) = listed(Path::new(&root));
            assert_eq!(found, names(&["open/a.txt", "shut.txt"]));
            assert_eq!(report.unreadable, 1);
            let files = WorkspaceFiles::open(Path::new(&root)).unwrap();
            assert!(matches!(files.read(Path::new("shut.txt"), CAP), Err(ReadError::Io { .. })));
            return;
        }
        let (guard, root) = tree(&[("open/a.txt", ""), ("shut/b.txt", ""), ("shut.txt", "")]);
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(guard.path(), 0o755);
        mode(&root.join("shut"), 0);
        mode(&root.join("shut.txt"), 0);
        // A copy, for the other user may not reach the build directory.
        let program = guard.path().join("tests");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        mode(&program, 0o755);
        let mut again = std::process::Command::new(&program);
        again.args(["--exact", "files::tests::unix::an_unreadable_directory_is_counted"]).env(TREE, &root);
        again.current_dir(guard.path());
        if rustix::process::geteuid().is_root() {
            std::os::unix::process::CommandExt::uid(&mut again, 65_534);
        }
        let output = again.output().unwrap();
        mode(&root.join("shut"), 0o755);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn opening_for_reading_needs_no_write_permission() {
        let (_guard, root) = tree(&[]);
        let options = fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(root.join("a.txt"));
        options.unwrap().write_all(b"text").unwrap();
        assert_eq!(WorkspaceFiles::open(&root).unwrap().read(Path::new("a.txt"), CAP).unwrap().text, "text");
    }
}
