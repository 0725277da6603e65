//! Files that are no ordinary text: none of them hangs, harms, leads out, or hides the others.

use std::{
    ffi::OsStr,
    fs,
    io::{Read, Write},
    os::unix::{ffi::OsStrExt, fs::symlink, net::UnixListener},
    path::Path,
    sync::mpsc,
    time::Duration,
};

use lm_tests::make_pipe;
use serde_json::json;

use super::{Tree, assert_absent, paths};

const CODE: (&str, &str) = ("src/code.rs", "fn ordinary_code() {}\n");

#[test]
fn a_pipe_with_a_waiting_writer_keeps_its_bytes_and_one_without_holds_nobody_up() {
    let tree = Tree::with(&[CODE]);
    make_pipe(&tree.root.join("nobody.rs"));
    make_pipe(&tree.root.join(".gitignore"));
    // What a person wants left alone here nobody knows.
    tree.write("shut/other.rs", b"fn ordinary_code() {}\n");
    make_pipe(&tree.root.join("shut/.livememoryignore"));
    let pipe = tree.root.join("written.rs");
    make_pipe(&pipe);
    let (sender, opened) = mpsc::channel();
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || {
            // Waits here for a reader.
            let mut pipe = fs::File::options().write(true).open(pipe).unwrap();
            sender.send(()).unwrap();
            pipe.write_all(b"fn meant_for_another() {}\n").unwrap();
        }
    });
    for answer in tree.ask_both_ways("where is ordinary_code and meant_for_another?") {
        assert_eq!(paths(&answer), ["src/code.rs"]);
        assert_eq!(answer["search"]["left_out"]["not_regular"], 3, "{answer}");
        assert_eq!(answer["search"]["left_out"]["unreadable"], 1, "{answer}");
    }
    assert!(opened.recv_timeout(Duration::ZERO).is_err(), "somebody opened the pipe");
    let mut read = String::new();
    fs::File::open(pipe).unwrap().read_to_string(&mut read).unwrap();
    assert_eq!(read, "fn meant_for_another() {}\n");
    writer.join().unwrap();
}

#[test]
fn sockets_devices_and_links_lead_nowhere() {
    let tree = Tree::with(&[CODE]);
    let outside = tree.sandbox.workspace("outside");
    fs::write(outside.join("other.rs"), "fn canary_outside() {}\n").unwrap();
    fs::write(outside.join("rules"), "src/\n").unwrap();
    let _socket = UnixListener::bind(tree.root.join("socket.rs")).unwrap();
    for (target, link) in [
        (Path::new("/dev/zero"), "zero.rs"),
        (Path::new("/dev/random"), "random.rs"),
        (&outside.join("other.rs"), "link.rs"),
        (&outside, "directory"),
        (&outside.join("rules"), ".gitignore"),
        (Path::new("../outside/other.rs"), "relative.rs"),
        (Path::new("loop_b.rs"), "loop_a.rs"),
        (Path::new("loop_a.rs"), "loop_b.rs"),
        (Path::new("."), "self"),
        (Path::new(".."), "src/parent"),
        (Path::new("nowhere"), "dangling.rs"),
    ] {
        symlink(target, tree.root.join(link)).unwrap();
    }
    for answer in tree.ask_both_ways("where is ordinary_code?") {
        assert_eq!(paths(&answer), ["src/code.rs"]);
        assert_eq!(answer["search"]["files"], 1);
        assert_eq!(answer["search"]["left_out"]["not_regular"], 12, "{answer}");
    }
    assert_absent(&tree.ask("where is canary_outside?"), "canary_outside");
}

#[test]
fn a_file_put_in_place_of_a_link_or_a_link_in_place_of_a_file_is_seen_as_what_it_is() {
    let tree = Tree::with(&[CODE, ("src/was_file.rs", "fn swapped_thing() {}\n")]).indexed();
    let outside = tree.sandbox.workspace("outside").join("other.rs");
    fs::write(&outside, "fn canary_outside() {}\n").unwrap();
    fs::remove_file(tree.root.join("src/was_file.rs")).unwrap();
    symlink(&outside, tree.root.join("src/was_file.rs")).unwrap();
    assert_absent(&tree.ask("where is swapped_thing?"), "swapped_thing");
    assert_absent(&tree.ask("where is canary_outside?"), "canary_outside");
}

#[test]
fn huge_files_and_endless_lines_are_bounded() {
    let tree = Tree::with(&[CODE]);
    fs::File::create(tree.root.join("sparse.rs")).unwrap().set_len(200_000_000).unwrap();
    let mut large = "fn at_the_beginning() {}\n".to_owned();
    large.push_str(&"// filler of a large file\n".repeat(2_000));
    let path = tree.write("large.rs", large.as_bytes());
    fs::File::options().write(true).open(path).unwrap().set_len(200_000_000).unwrap();
    let line = format!("{} fn in_the_middle() {} ", "abc ".repeat(600_000), "def ".repeat(650_000));
    tree.write("one_line.js", line.as_bytes());
    for (name, path) in [("ordinary_code", "src/code.rs"), ("at_the_beginning", "large.rs")] {
        let answer = tree.ask(&format!("where is {name}?"));
        assert_eq!(paths(&answer), [path], "{answer}");
        assert_eq!(answer["search"]["left_out"]["binary"], 1, "{answer}");
    }
    for answer in
        [tree.ask("where is ordinary_code and at_the_beginning?"), tree.ask("what is in_the_middle of one_line.js?")]
    {
        assert!(answer["answer"].as_str().unwrap().len() < 40_000);
    }
    tree.wait_for_index();
    assert_eq!(paths(&tree.ask("where is ordinary_code?")), ["src/code.rs"]);
}

#[test]
fn other_encodings_are_read() {
    let tree = Tree::with(&[CODE]);
    let wide = |text: &str, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        format!("\u{feff}{text}").encode_utf16().flat_map(bytes).collect()
    };
    tree.write("little.cs", &wide("// größe\r\nclass LittleEndian {}\r\n", u16::to_le_bytes));
    tree.write("big.cs", &wide("// größe\nclass BigEndian {}\n", u16::to_be_bytes));
    tree.write("latin.c", b"/* gr\xf6\xdfe */\nint latin_one(void);\n");
    for (name, path, line) in [
        ("LittleEndian", "little.cs", "2  class LittleEndian {}"),
        ("BigEndian", "big.cs", "2  class BigEndian {}"),
        ("latin_one", "latin.c", "2  int latin_one(void);"),
    ] {
        let answer = tree.ask(&format!("where is {name}?"));
        assert_eq!(paths(&answer), [path]);
        assert!(answer["answer"].as_str().unwrap().contains(line), "{answer}");
    }
    tree.wait_for_index();
    assert_eq!(paths(&tree.ask("where is LittleEndian?")), ["little.cs"]);
}

#[test]
fn odd_names_are_shown_on_one_line() {
    let tree = Tree::with(&[CODE]);
    let names: &[(&[u8], &str, &str)] = &[
        (b"new\nline.rs", "thing_newline", "new\\nline.rs"),
        (b"quo\"te'.rs", "thing_quote", "quo\"te'.rs"),
        (b"with space.rs", "thing_space", "with space.rs"),
        ("größe日本.rs".as_bytes(), "thing_unicode", "größe日本.rs"),
        (b"-rf.rs", "thing_dash", "-rf.rs"),
        (b"back`tick.rs", "thing_backtick", "back`tick.rs"),
        (b"not\xffutf8.rs", "thing_bytes", "not\\xffutf8.rs"),
    ];
    for (name, thing, _) in names {
        // Some file systems take no such name.
        let written = fs::write(tree.root.join(OsStr::from_bytes(name)), format!("fn {thing}() {{}}\n"));
        if !cfg!(target_os = "macos") {
            written.unwrap();
        }
    }
    for _ in 0..2 {
        for (name, thing, shown) in names {
            if !tree.root.join(OsStr::from_bytes(name)).exists() {
                continue;
            }
            let answer = tree.ask(&format!("where is {thing}?"));
            assert_eq!(paths(&answer), [*shown]);
            assert!(answer["answer"].as_str().unwrap().contains(&format!("### {shown}:1-1\n")), "{answer}");
        }
        tree.wait_for_index();
    }
}

#[test]
fn a_directory_that_cannot_be_read_is_counted_and_the_rest_is_found() {
    use std::os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    };

    /// Some user who is not root; root reads everything.
    const SOMEBODY: u32 = 54_321;
    let tree = Tree::with(&[CODE, ("closed/hidden.rs", "fn in_closed_directory() {}\n")]);
    let closed = tree.root.join("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let installation = lm_tests::daemon::Installation::built_at(&tree.sandbox, 1_000);
    let data = tree.sandbox.data();
    if is_root {
        let sandbox = &tree.sandbox;
        let own = [sandbox.root(), &sandbox.home(), data.root(), &data.run(), &data.logs(), installation.directory()];
        for path in own {
            chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
        }
    }
    let command = |arguments: &[&str]| {
        let mut command = tree.sandbox.command(&installation.directory().join("lm-shim"));
        command.args(arguments).current_dir(&tree.root);
        if is_root {
            command.uid(SOMEBODY).gid(SOMEBODY);
        }
        command
    };
    let output = command(&["ask", "--json", "where is ordinary_code?"]).output().unwrap();
    lm_tests::run::succeeded(&output);
    let answer = lm_tests::run::json(&output);
    assert_eq!(paths(&answer), ["src/code.rs"]);
    assert_eq!(answer["search"]["left_out"]["unreadable"], 1, "{answer}");
    let text = answer["answer"].as_str().unwrap();
    assert!(text.contains("1 file or directory that could not be read"), "{text}");
    let output = command(&["ask", "--json", "where is in_closed_directory?"]).output().unwrap();
    let answer = lm_tests::run::json(&output);
    assert_eq!(answer["search"]["left_out"]["unreadable"], json!(1), "{answer}");
    assert!(command(&["stop"]).status().unwrap().success());
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
}
