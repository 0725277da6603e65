//! What is left out although it is there: by a person's rules, by secrets at the cap, as another tree.

use super::*;

fn read(root: &Path, path: &str) -> Result<FileText, ReadError> {
    WorkspaceFiles::open(root).unwrap().read(Path::new(path), CAP)
}

fn is_ignored(root: &Path, path: &str) -> bool {
    matches!(read(root, path), Err(ReadError::Ignored(_)))
}

#[test]
fn no_rule_of_git_brings_back_what_a_person_leaves_out() {
    let (_guard, root) = tree(&[
        (".livememoryignore", "*.priv\n/hidden/\n"),
        (".gitignore", "!keep.priv\n!hidden/\n"),
        ("keep.priv", ""),
        ("sub/.gitignore", "!*.priv\n!keep.priv\n"),
        ("sub/keep.priv", ""),
        ("sub/deep/.gitignore", "!keep.priv\n"),
        ("sub/deep/keep.priv", ""),
        ("sub/seen.txt", ""),
        ("hidden/.gitignore", "!*\n"),
        ("hidden/a.txt", ""),
        ("hidden/.livememoryignore", "!a.txt\n"),
    ]);
    let expected = [".gitignore", ".livememoryignore", "sub/.gitignore", "sub/deep/.gitignore", "sub/seen.txt"];
    assert_eq!(listed(&root).0, names(&expected));
    for path in ["keep.priv", "sub/keep.priv", "sub/deep/keep.priv", "hidden/a.txt", "./sub/../hidden/a.txt"] {
        assert!(is_ignored(&root, path), "{path}");
    }
    assert!(read(&root, "sub/seen.txt").is_ok());
}

#[test]
fn a_nearer_rule_of_the_same_kind_wins() {
    let (_guard, root) = tree(&[
        (".livememoryignore", "*.priv\n*.log\n"),
        ("sub/.livememoryignore", "!keep.priv\n"),
        ("sub/keep.priv", ""),
        ("sub/other.priv", ""),
        ("keep.priv", ""),
        ("a.log", ""),
    ]);
    assert_eq!(listed(&root).0, names(&[".livememoryignore", "sub/.livememoryignore", "sub/keep.priv"]));
    assert!(read(&root, "sub/keep.priv").is_ok());
    assert!(is_ignored(&root, "sub/other.priv") && is_ignored(&root, "keep.priv"));
}

#[test]
fn what_git_ignores_can_be_read_by_its_name() {
    let (_guard, root) = tree(&[(".gitignore", "build/\n"), ("build/out.txt", "text")]);
    assert_eq!(listed(&root).0, names(&[".gitignore"]));
    assert_eq!(read(&root, "build/out.txt").unwrap().text, "text");
}

#[test]
fn rules_are_read_in_every_encoding_of_text() {
    let utf16: Vec<u8> = "\u{feff}private/\r\n*.priv\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = "\u{feff}private/\n*.priv\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    for rules in [&utf16[..], &big, b"\xef\xbb\xbfprivate/\n*.priv\n"] {
        let (_guard, root) = tree(&[("private/a.txt", ""), ("b.priv", ""), ("c.txt", "")]);
        write(&root, ".livememoryignore", rules);
        assert_eq!(listed(&root).0, names(&[".livememoryignore", "c.txt"]));
        assert!(is_ignored(&root, "private/a.txt") && is_ignored(&root, "b.priv"));
    }
}

#[test]
fn rules_that_look_like_a_secret_hold() {
    let token = format!("gh{}_{}", "p", "q7Zt1LxV0sPd9KfR3mWb8YcN5hJg2TuE6aQv");
    let (_guard, root) = tree(&[(".livememoryignore", &format!("{token}.txt\na.txt\n")), ("a.txt", ""), ("b.txt", "")]);
    assert_eq!(listed(&root).0, names(&[".livememoryignore", "b.txt"]));
}

#[test]
fn rules_that_cannot_be_read_shut_their_directory() {
    let long = format!("#{}\n", "x".repeat(1 << 20));
    for (kind, rules) in [("binary", &b"a.txt\n\0\0"[..]), ("long", long.as_bytes())] {
        let (_guard, root) = tree(&[("open.txt", ""), ("sub/a.txt", ""), ("sub/deep/b.txt", "")]);
        write(&root, "sub/.livememoryignore", rules);
        let (found, report) = listed(&root);
        assert_eq!((found, report.unreadable), (names(&["open.txt"]), 1), "{kind}");
        for path in ["sub/a.txt", "sub/deep/b.txt", "sub/.livememoryignore"] {
            let error = read(&root, path).unwrap_err();
            assert!(matches!(error, ReadError::UnreadableRules { .. }), "{kind}: {error}");
            assert!(error.to_string().contains("`sub/.livememoryignore` cannot be read"), "{error}");
        }
        assert!(read(&root, "open.txt").is_ok());

        // In the root nothing is left, and an empty workspace would be a lie.
        write(&root, ".livememoryignore", rules);
        let limits =
            WalkLimits { max_files: 10, deadline: Instant::now() + Duration::from_secs(30), threads: 1, stamps: false };
        let error =
            WorkspaceFiles::open(&root).unwrap().list(&limits, &CancellationToken::new()).unwrap_err().to_string();
        assert!(error.contains(".livememoryignore") && error.contains("remove it"), "{error}");
        assert!(read(&root, "open.txt").is_err());
    }
}

#[test]
fn rules_that_change_hold_at_once_on_the_same_handle() {
    let (_guard, root) = tree(&[("a.txt", ""), ("b.txt", "")]);
    let files = WorkspaceFiles::open(&root).unwrap();
    let reads = |path: &str| files.read(Path::new(path), CAP).is_ok();
    assert!(reads("a.txt") && reads("b.txt"));
    for _ in 0..3 {
        write(&root, ".livememoryignore", b"a.txt\n");
        assert!(!reads("a.txt") && reads("b.txt"));
        write(&root, ".livememoryignore", b"b.txt\n");
        assert!(reads("a.txt") && !reads("b.txt"));
    }
    fs::remove_file(root.join(".livememoryignore")).unwrap();
    assert!(reads("a.txt") && reads("b.txt"));
}

#[test]
fn a_token_that_the_cap_cuts_is_not_shown_by_its_beginning() {
    let token = format!("gh{}_{}", "p", "q7Zt1LxV0sPd9KfR3mWb8YcN5hJg2TuE6aQv");
    for shown in [1, 4, 20, 39] {
        let filler = "x".repeat(10_000 - 1 - shown);
        let (_guard, root) = tree(&[("a.txt", &format!("{filler} {token}\n"))]);
        let files = WorkspaceFiles::open(&root).unwrap();
        assert!(matches!(files.read(Path::new("a.txt"), 10_000), Err(ReadError::Secret(_))), "{shown}");
        assert!(matches!(files.read_found(Path::new("a.txt"), 10_000), Err(ReadError::Secret(_))), "{shown}");
        let found = files.read_found_if(Path::new("a.txt"), 10_000, |bytes| bytes.len() == 10_000);
        assert!(matches!(found, Err(ReadError::Secret(_))), "{shown}");
    }
}

#[test]
fn what_is_judged_beyond_the_cap_is_not_shown() {
    use sha2::{Digest as _, Sha256};
    for (length, truncated) in [(9_999, false), (10_000, false), (10_001, true), (14_096, true), (50_000, true)] {
        let text = "ü".repeat(4_999) + "y" + &"z".repeat(50_000);
        let (_guard, root) = tree(&[("a.txt", &text[..length])]);
        let files = WorkspaceFiles::open(&root).unwrap();
        let shown = &text[..length.min(10_000)];
        let file = files.read(Path::new("a.txt"), 10_000).unwrap();
        assert_eq!((file.text.as_str(), file.truncated, file.size), (shown, truncated, length as u64));
        let hash: String = Sha256::digest(shown).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(file.sha256, hash);
        let file = files.read_found(Path::new("a.txt"), 10_000).unwrap();
        assert_eq!((file.text.as_str(), file.truncated), (shown, truncated));
        let (text, cut) = files.read_found_if(Path::new("a.txt"), 10_000, |bytes| bytes == shown.as_bytes()).unwrap();
        assert_eq!((text.as_deref(), cut), (Some(shown), truncated));
    }
    // A character that the cap cuts is left out, not repaired.
    let (_guard, root) = tree(&[("a.txt", &"ü".repeat(20_000))]);
    let file = WorkspaceFiles::open(&root).unwrap().read(Path::new("a.txt"), 10_001).unwrap();
    assert_eq!((file.text.len(), file.encoding), (10_000, Encoding::Utf8));
}

fn listed_under(root: &Path, under: &str) -> BTreeSet<String> {
    let limits =
        WalkLimits { max_files: 10_000, deadline: Instant::now() + Duration::from_secs(30), threads: 2, stamps: false };
    let files = WorkspaceFiles::open(root).unwrap();
    let visit = |found: &mut Vec<String>, file: FoundFile| {
        found.push(display_path(&file.path));
        true
    };
    let (parts, _) = files.walk_under(Path::new(under), &limits, &CancellationToken::new(), Vec::new, visit).unwrap();
    parts.into_iter().flatten().collect()
}

#[test]
fn linked_worktrees_in_a_tree_are_not_a_part_of_it() {
    let (_guard, root) = tree(&[
        (".git/HEAD", "ref: refs/heads/main\n"),
        ("a.txt", ""),
        (".worktrees/feature/.git", "gitdir: /gone/.git/worktrees/feature\n"),
        (".worktrees/feature/a.txt", ""),
        (".worktrees/feature/sub/b.txt", ""),
        (".worktrees/feature/wt/.git", "gitdir: ../../../.git/worktrees/wt\n"),
        (".worktrees/feature/wt/c.txt", ""),
        ("deep/relative/.git", "gitdir: ../../.git/worktrees/relative"),
        ("deep/relative/a.txt", ""),
        ("module/.git", "gitdir: ../.git/modules/module\n"),
        ("module/b.txt", ""),
        ("worktrees/foo/.git", "gitdir: ../../.git/modules/worktrees/foo\n"),
        ("worktrees/foo/b.txt", ""),
        ("other/.git", "gitdir: /x/.git/worktrees/x/modules/sub\n"),
        ("other/b.txt", ""),
        ("broken/.git", "worktrees/x"),
        ("broken/b.txt", ""),
    ]);
    let own = ["a.txt", "broken/b.txt", "module/b.txt", "other/b.txt", "worktrees/foo/b.txt"];
    assert_eq!(listed(&root).0, names(&own));
    assert_eq!(listed_under(&root, "deep"), names(&[]));
    assert_eq!(listed_under(&root, ".worktrees"), names(&[]));
    // What is asked for is shown.
    let inside = [".worktrees/feature/a.txt", ".worktrees/feature/sub/b.txt"];
    assert_eq!(listed_under(&root, ".worktrees/feature"), names(&inside));
    assert_eq!(listed_under(&root, ".worktrees/feature/sub"), names(&inside[1..]));
    // As a workspace of its own it is a tree like any other.
    let worktree = root.join(".worktrees/feature");
    assert_eq!(listed(&worktree).0, names(&["a.txt", "sub/b.txt"]));
}

#[test]
fn a_directory_of_nothing_but_worktrees_is_searched() {
    // A bare repository with its worktrees beside it, and worktrees of repositories elsewhere.
    let (_guard, root) =
        tree(&[(".git", "gitdir: ./.bare\n"), ("main/.git", "gitdir: ../.bare/worktrees/main\n"), ("main/a.txt", "")]);
    assert_eq!(listed(&root).0, names(&["main/a.txt"]));
    let (_guard, root) =
        tree(&[("one/.git", "gitdir: /elsewhere/.git/worktrees/one\n"), ("one/a.txt", ""), ("two.txt", "")]);
    assert_eq!(listed(&root).0, names(&["one/a.txt", "two.txt"]));
    // The repository is there as well, so they are its files again.
    let (_guard, root) = tree(&[
        ("app/.git/HEAD", ""),
        ("app/a.txt", ""),
        ("feature/.git", "gitdir: ../app/.git/worktrees/feature\n"),
        ("feature/a.txt", ""),
    ]);
    assert_eq!(listed(&root).0, names(&["app/a.txt"]));
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn rules_behind_a_link_hold_as_long_as_they_are_inside() {
        let (guard, root) = tree(&[("rules/private.txt", "a.txt\n"), ("sub/a.txt", ""), ("sub/b.txt", "")]);
        symlink("../rules/private.txt", root.join("sub/.livememoryignore")).unwrap();
        assert_eq!(listed(&root).0, names(&["rules/private.txt", "sub/b.txt"]));
        assert!(is_ignored(&root, "sub/a.txt"));

        fs::write(guard.path().join("rules"), "b.txt\n").unwrap();
        for target in ["../../rules", "missing", ".livememoryignore", "."] {
            fs::remove_file(root.join("sub/.livememoryignore")).unwrap();
            symlink(target, root.join("sub/.livememoryignore")).unwrap();
            let (found, report) = listed(&root);
            assert_eq!((found, report.unreadable), (names(&["rules/private.txt"]), 1), "{target}");
            let error = read(&root, "sub/a.txt").unwrap_err();
            assert!(matches!(error, ReadError::UnreadableRules { .. }), "{target}: {error}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn rules_in_a_pipe_shut_their_directory_and_nobody_waits() {
        let (_guard, root) = tree(&[("sub/a.txt", ""), ("b.txt", "")]);
        super::super::unix::make_pipe(&root.join("sub/.livememoryignore"));
        let (found, report) = listed(&root);
        assert_eq!((found, report.unreadable, report.not_regular), (names(&["b.txt"]), 1, 0));
    }

    #[test]
    fn a_link_does_not_give_a_private_file_another_name() {
        let (_guard, root) =
            tree(&[(".livememoryignore", "private/\nlink.txt\n"), ("private/a.txt", ""), ("b.txt", "")]);
        symlink("private/a.txt", root.join("notes.txt")).unwrap();
        symlink("private", root.join("public")).unwrap();
        symlink("b.txt", root.join("link.txt")).unwrap();
        for path in ["notes.txt", "public/a.txt", "link.txt"] {
            let error = read(&root, path).unwrap_err();
            assert!(matches!(error, ReadError::Ignored(_)), "{path}: {error}");
            assert!(error.to_string().contains(path), "{error}");
        }
    }
}
