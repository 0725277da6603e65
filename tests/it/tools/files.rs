//! Read, Grep, Glob and `find_paths`.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use lm_core::{
    files::WorkspaceFiles,
    tools::{OUTPUT_CAP, directory_tree, specifications},
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Place, run, write};

const CANARY: &str = "canary_outside_of_the_workspace";

#[test]
fn a_file_is_read_with_line_numbers_and_its_hash() {
    let place = Place::new();
    place.write("src/a.rs", "fn a() {}\n\nfn b() {}\n");
    let output = place.run("Read", json!({"file_path": "src/a.rs"}));
    assert_eq!(output.text, "     1\tfn a() {}\n     2\t\n     3\tfn b() {}\n");
    assert_eq!(output.files.len(), 1);
    assert_eq!(output.files[0].path, std::path::Path::new("src/a.rs"));
    assert_eq!(output.files[0].sha256, sha256(b"fn a() {}\n\nfn b() {}\n"));
    let absolute = place.root().join("src/a.rs");
    assert_eq!(place.text("Read", json!({"file_path": absolute})), output.text);
    assert_eq!(
        place.text("Read", json!({"file_path": "src/a.rs", "offset": "3", "limit": 1})),
        "     3\tfn b() {}\n(lines 3-3 of 3, the end of the file)\n"
    );
    assert!(place.error("Read", json!({"file_path": "src/a.rs", "offset": 9})).contains("has 3 lines"));
    assert!(place.error("Read", json!({"file_path": "src"})).contains("is a directory"));
    assert!(place.error("Read", json!({"file_path": "src/none.rs"})).contains("src/none.rs"));
    place.write("empty.txt", "");
    assert!(place.text("Read", json!({"file_path": "empty.txt"})).contains("is empty"));
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn a_long_file_is_read_to_its_end_in_pages() {
    let place = Place::new();
    let content: String = (1..=3_000).map(|number| format!("line {number} {}\n", "x".repeat(number % 90))).collect();
    place.write("long.txt", &content);
    let mut seen = String::new();
    let mut offset = 1;
    loop {
        let text = place.text("Read", json!({"file_path": "long.txt", "offset": offset}));
        for line in text.lines().filter(|line| !line.starts_with('(')) {
            seen.push_str(line.split_once('\t').unwrap().1);
            seen.push('\n');
        }
        let Some((_, next)) = text.split_once("go on with offset=") else { break };
        offset = next.trim_end().trim_end_matches(')').parse().unwrap();
    }
    assert_eq!(seen, content);
}

#[test]
fn nothing_outside_is_reached_by_name_or_link() {
    let place = Place::new();
    write(&place.beside("outside/secret.txt"), CANARY);
    write(&place.beside("wsx/secret.txt"), CANARY);
    place.write("sub/a.txt", "inside");
    let absolute = place.beside("outside/secret.txt").to_string_lossy().into_owned();
    let mut paths = vec![
        "../outside/secret.txt".to_owned(),
        "sub/../../outside/secret.txt".into(),
        absolute,
        place.beside("wsx/secret.txt").to_string_lossy().into_owned(),
        "/etc/passwd".into(),
        "..".into(),
    ];
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink(place.beside("outside"), place.root().join("link")).unwrap();
        symlink(place.beside("outside/secret.txt"), place.root().join("file-link")).unwrap();
        symlink("../outside", place.root().join("relative-link")).unwrap();
        symlink(".", place.root().join("loop")).unwrap();
        for path in ["link/secret.txt", "file-link", "relative-link/secret.txt", "loop/loop/link/secret.txt"] {
            paths.push(path.to_owned());
        }
    }
    for path in &paths {
        let text = place.error("Read", json!({"file_path": path}));
        assert!(!text.contains(CANARY), "{path}: {text}");
        let text = place.error("Grep", json!({"pattern": "canary", "path": path, "output_mode": "content"}));
        assert!(!text.contains(CANARY), "{path}: {text}");
    }
    for directory in ["..", "../outside", "/etc", "sub/../.."] {
        place.error("Glob", json!({"pattern": "**", "path": directory}));
        place.error("find_paths", json!({"path": directory}));
    }
    place.error("Glob", json!({"pattern": "../**/*.txt"}));
    place.error("Glob", json!({"pattern": "/etc/*"}));
    for (tool, input) in [
        ("Grep", json!({"pattern": "canary", "output_mode": "content"})),
        ("Glob", json!({"pattern": "**/*.txt"})),
        ("find_paths", json!({})),
    ] {
        let text = place.text(tool, input);
        assert!(!text.contains(CANARY) && !text.contains("secret.txt"), "{tool}: {text}");
    }
}

#[cfg(unix)]
#[test]
fn a_link_that_is_swapped_in_while_reading_shows_nothing() {
    use std::os::unix::fs::symlink;
    let place = Place::new();
    write(&place.beside("outside/flip.txt"), CANARY);
    place.write("inside/flip.txt", "harmless").write("dir/flip.txt", "harmless");
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, root, outside) = (Arc::clone(&stop), place.root(), place.beside("outside"));
        thread::spawn(move || {
            let (file, directory) = (root.join("flip.txt"), root.join("flipped"));
            let mut swaps = 0;
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::remove_file(&file);
                let _ = if swaps % 2 == 0 {
                    symlink(outside.join("flip.txt"), &file)
                } else {
                    fs::write(&file, "harmless")
                };
                let _ = fs::remove_file(&directory);
                let _ = symlink(if swaps % 2 == 0 { outside.clone() } else { root.join("dir") }, &directory);
                swaps += 1;
            }
            swaps
        })
    };
    let tools = place.tools();
    for round in 0..2_000 {
        for path in ["flip.txt", "flipped/flip.txt"] {
            let output = run(&tools, "Read", &json!({"file_path": path}).to_string());
            assert!(!output.text.contains(CANARY), "{}", output.text);
        }
        if round % 50 == 0 {
            let output = run(&tools, "Grep", &json!({"pattern": "canary", "output_mode": "content"}).to_string());
            assert!(!output.text.contains(CANARY), "{}", output.text);
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(swapper.join().unwrap() > 10);
}

#[cfg(target_os = "linux")]
#[test]
fn pipes_sockets_and_devices_are_left_alone() {
    use std::{io::Read as _, os::unix::net::UnixListener};
    let place = Place::new();
    let root = place.root();
    place.write("a.txt", "needle");
    lm_tests::make_pipe(&root.join("pipe"));
    let _socket = UnixListener::bind(root.join("socket")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", root.join("zero")).unwrap();
    // A reader and a writer of its own, so that the bytes wait in the pipe.
    let mut pipe = fs::OpenOptions::new().read(true).write(true).open(root.join("pipe")).unwrap();
    std::io::Write::write_all(&mut pipe, b"needle").unwrap();
    let start = Instant::now();
    for path in ["pipe", "socket", "zero"] {
        place.error("Read", json!({"file_path": path}));
        place.error("Grep", json!({"pattern": "needle", "path": path}));
    }
    assert!(place.text("Grep", json!({"pattern": "needle"})).starts_with("a.txt\n"));
    assert!(start.elapsed() < Duration::from_secs(5));
    let mut bytes = [0; 6];
    pipe.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"needle");
}

#[test]
fn one_long_line_does_not_flood_the_result() {
    let place = Place::new();
    place.write("min.js", format!("{}stats{}", "a".repeat(2_500_000), "b".repeat(2_500_000)));
    let text = place.text("Grep", json!({"pattern": "stats", "output_mode": "content"}));
    let line = text.lines().next().unwrap();
    assert!(line.contains("stats") && line.contains("characters …]"), "{line}");
    assert!(line.chars().count() <= 500 + "min.js:1:".len());
    assert!(text.contains("1 long line cut"), "{text}");
    let text = place.text("Read", json!({"file_path": "min.js", "limit": 1}));
    assert!(text.chars().count() < 2_500 && text.contains("1 long line cut"), "{text}");
}

#[test]
fn a_huge_sparse_file_costs_nothing() {
    let place = Place::new();
    fs::File::create(place.root().join("sparse.bin")).unwrap().set_len(200 << 20).unwrap();
    let start = Instant::now();
    assert!(place.error("Read", json!({"file_path": "sparse.bin"})).contains("binary"));
    assert!(place.text("Grep", json!({"pattern": "x"})).contains("no match in 1 file"));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn utf16_and_marks_are_text_everywhere() {
    let place = Place::new();
    place
        .write("le.txt", b"\xff\xfeh\0i\0\n\0")
        .write("be.txt", b"\xfe\xff\0h\0i\0\n")
        .write("mark.txt", b"\xef\xbb\xbfhi\n")
        .write("latin.txt", b"hi caf\xe9\n");
    for (name, said) in [("le.txt", "UTF-16"), ("be.txt", "UTF-16"), ("mark.txt", ""), ("latin.txt", "not valid UTF-8")]
    {
        let text = place.text("Read", json!({"file_path": name}));
        assert!(text.starts_with("     1\thi") && text.contains(said) && !text.contains('\u{feff}'), "{text:?}");
    }
    let bytes = fs::read(place.root().join("le.txt")).unwrap();
    assert_eq!(place.run("Read", json!({"file_path": "le.txt"})).files[0].sha256, sha256(&bytes));
    let text = place.text("Grep", json!({"pattern": "^hi"}));
    assert!(text.starts_with("be.txt\nlatin.txt\nle.txt\nmark.txt\n"), "{text}");
    let text = place.text("Grep", json!({"pattern": "^hi$", "output_mode": "count"}));
    assert!(text.starts_with("be.txt:1\nle.txt:1\nmark.txt:1\n"), "{text}");
}

#[cfg(unix)]
#[test]
fn strange_names_stay_on_their_line() {
    let place = Place::new();
    place.write("a\nb.txt", "needle").write("quo\"te'.txt", "needle").write("größe ü.txt", "needle");
    let text = place.text("Glob", json!({"pattern": "*.txt"}));
    assert_eq!(text, "a\\nb.txt\ngröße ü.txt\nquo\"te'.txt\n");
    assert_eq!(place.text("Grep", json!({"pattern": "needle"})), text);
    let text = place.text("Grep", json!({"pattern": "needle", "output_mode": "content"}));
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(place.text("Read", json!({"file_path": "a\nb.txt"})).contains("needle"));
}

#[test]
fn ignore_files_count_outside_git_too_and_only_from_the_root_down() {
    let place = Place::new();
    write(&place.beside(".gitignore"), "*\n");
    place
        .write(".gitignore", "secret.txt\nbuild/\n!keep.log\n")
        .write("secret.txt", "needle")
        .write("build/out.txt", "needle")
        .write("seen.txt", "needle")
        .write("sub/.gitignore", "/local.txt\n")
        .write("sub/local.txt", "needle")
        .write("sub/deep/local.txt", "needle");
    assert_eq!(place.text("Grep", json!({"pattern": "needle"})), "seen.txt\nsub/deep/local.txt\n");
    assert_eq!(place.text("Grep", json!({"pattern": "needle", "path": "sub"})), "sub/deep/local.txt\n");
    let text = place.text("Grep", json!({"pattern": "needle", "path": "build"}));
    assert!(text.contains("excluded by ignore rules"), "{text}");
    let text = place.text("find_paths", json!({"name": "local"}));
    assert_eq!(text, "sub/deep/local.txt\n");
}

#[test]
fn what_bears_secrets_is_not_shown() {
    let place = Place::new();
    let token = format!("ghp_{}", "q7Zt1LxV0sPd9KfR3mWb8YcN5hJg2TuE6aQv");
    place
        .write(".env", "PASSWORD=hunter2\n")
        .write("id_rsa", "hunter2")
        .write("conf.py", format!("TOKEN = '{token}' # hunter2\n"));
    place.write("plain.py", "hunter2\n");
    for path in [".env", "id_rsa", "conf.py"] {
        let text = place.error("Read", json!({"file_path": path}));
        assert!(text.contains("secrets") && !text.contains("hunter2"), "{text}");
    }
    let text = place.text("Grep", json!({"pattern": "hunter2", "output_mode": "content"}));
    assert!(text.starts_with("plain.py:1:hunter2\n(left out because they may hold secrets: 3 files)"), "{text}");
    let text = place.text("Grep", json!({"pattern": "ghp_", "output_mode": "count"}));
    assert!(!text.contains("conf.py"), "{text}");
    let text = place.error("Grep", json!({"pattern": "hunter2", "path": "conf.py"}));
    assert!(text.contains("secrets"), "{text}");
}

#[test]
fn what_a_person_leaves_out_is_not_shown_by_its_name_either() {
    let place = Place::new();
    place
        .write(".livememoryignore", "*.priv\nprivate/\n")
        .write(".gitignore", "build/\n")
        .write("build/out.txt", "needle")
        .write("private/.gitignore", "!*\n")
        .write("private/a.txt", "needle")
        .write("sub/.gitignore", "!b.priv\n")
        .write("sub/b.priv", "needle")
        .write("shut/.livememoryignore", b"\0\0")
        .write("shut/c.txt", "needle");
    for path in ["private/a.txt", "sub/b.priv", "./sub/../private/a.txt"] {
        for (tool, input) in [
            ("Read", json!({"file_path": path})),
            ("Grep", json!({"pattern": "needle", "path": path})),
            ("Grep", json!({"pattern": "needle", "path": path, "output_mode": "content"})),
        ] {
            let text = place.error(tool, input);
            assert!(text.contains(".livememoryignore") && !text.contains("needle"), "{tool} {path}: {text}");
        }
    }
    let text = place.error("Read", json!({"file_path": "shut/c.txt"}));
    assert!(text.contains("`shut/.livememoryignore` cannot be read as text"), "{text}");
    let text = place.text("Grep", json!({"pattern": "needle"}));
    assert!(text.starts_with("(no match") || !text.contains("needle"), "{text}");
    for path in ["private", "shut"] {
        let text = place.text("Grep", json!({"pattern": "needle", "path": path}));
        assert!(!text.contains("a.txt") && !text.contains("c.txt"), "{text}");
        let text = place.text("Glob", json!({"pattern": "**", "path": path}));
        assert!(!text.contains("a.txt") && !text.contains("c.txt"), "{text}");
    }
    // Git's rules say what is not worth searching, not what is not to be read.
    assert!(place.text("Read", json!({"file_path": "build/out.txt"})).contains("needle"));
}

#[test]
fn limits_count_in_all_and_pages_join_up() {
    let place = Place::new();
    for file in 0..20 {
        let content: String = (0..30).map(|line| format!("needle {file} {line}\nother\n")).collect();
        place.write(&format!("f{file:02}.txt"), content);
    }
    let text = place.text("Grep", json!({"pattern": "needle", "output_mode": "content", "head_limit": 35}));
    assert_eq!(text.lines().filter(|line| line.contains("needle")).count(), 35);
    assert!(text.contains("18 further files") && text.contains("go on with offset=35"), "{text}");
    let mut all = Vec::new();
    let mut offset = 0;
    loop {
        let text = place
            .text("Grep", json!({"pattern": "needle", "output_mode": "content", "head_limit": "0", "offset": offset}));
        all.extend(text.lines().filter(|line| line.contains("needle")).map(str::to_owned));
        let Some((_, next)) = text.split_once("go on with offset=") else { break };
        offset = next.split(')').next().unwrap().parse().unwrap();
    }
    assert_eq!(all.len(), 600);
    let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
    assert_eq!(distinct.len(), 600);
    let text = place.text("Grep", json!({"pattern": "needle", "head_limit": 3}));
    assert!(text.starts_with("f00.txt\nf01.txt\nf02.txt\n(3 of 20 files that match; go on with offset=3)"), "{text}");
    let text = place.text("Grep", json!({"pattern": "needle", "output_mode": "count", "head_limit": 1}));
    assert!(text.starts_with("f00.txt:30\n") && text.contains("600 matching lines in 20 files"), "{text}");
    let text = place.text("Glob", json!({"pattern": "*.txt", "limit": 2}));
    assert_eq!(text, "f00.txt\nf01.txt\n(2 of 20 shown; narrow the search or raise the limit)\n");
}

#[test]
fn lines_around_matches_are_marked() {
    let place = Place::new();
    place.write("a.txt", "1\n2\nHIT\n4\n5\n6\n7\nhit\n9\n");
    let text = place.text("Grep", json!({"pattern": "hit", "-i": true, "-C": 1, "output_mode": "content"}));
    assert_eq!(text, "a.txt-2-2\na.txt:3:HIT\na.txt-4-4\n--\na.txt-7-7\na.txt:8:hit\na.txt-9-9\n");
    let text = place
        .text("Grep", json!({"pattern": "hit", "-A": "1", "-n": false, "output_mode": "content", "path": "a.txt"}));
    assert_eq!(text, "a.txt:hit\na.txt-9\n");
    let text = place.text("Grep", json!({"pattern": "HIT\n4", "multiline": true, "output_mode": "content"}));
    assert_eq!(text, "a.txt:3:HIT\na.txt:4:4\n");
    place.write("crlf.txt", "end\r\nnext\r\n");
    assert_eq!(place.text("Grep", json!({"pattern": "end$"})), "crlf.txt\n");
}

#[test]
fn files_are_chosen_by_glob_and_type() {
    let place = Place::new();
    place
        .write("a.rs", "needle")
        .write("src/b.rs", "needle")
        .write("src/c.py", "needle")
        .write("src/deep/d.ts", "needle");
    assert_eq!(place.text("Grep", json!({"pattern": "needle", "glob": "*.rs"})), "a.rs\nsrc/b.rs\n");
    assert_eq!(
        place.text("Grep", json!({"pattern": "needle", "glob": "*.{py,ts}", "path": "src"})),
        "src/c.py\nsrc/deep/d.ts\n"
    );
    assert_eq!(place.text("Grep", json!({"pattern": "needle", "glob": "deep/*", "path": "src"})), "src/deep/d.ts\n");
    assert_eq!(place.text("Grep", json!({"pattern": "needle", "type": "py"})), "src/c.py\n");
    let text = place.text("Grep", json!({"pattern": "needle", "glob": "*.go"}));
    assert!(text.contains("no file fits"), "{text}");
    assert!(place.error("Grep", json!({"pattern": "needle", "type": "pythn"})).contains("no file type"));
    assert_eq!(place.text("Glob", json!({"pattern": "**/*.rs"})), "a.rs\nsrc/b.rs\n");
    assert_eq!(place.text("Glob", json!({"pattern": "*.py", "path": "src"})), "src/c.py\n");
    let absolute = place.root().join("src/**/*.ts");
    assert_eq!(place.text("Glob", json!({"pattern": absolute})), "src/deep/d.ts\n");
    assert_eq!(place.text("find_paths", json!({"max_depth": 1})), "a.rs\nsrc/\n");
    assert_eq!(place.text("find_paths", json!({"name": "DEEP", "type": "directory"})), "src/deep/\n");
    assert_eq!(place.text("find_paths", json!({"path": "src", "type": "file", "name": "*.ts"})), "src/deep/d.ts\n");
    assert!(place.text("find_paths", json!({"name": "absent"})).contains("nothing found; 4 files looked at"));
}

#[test]
fn what_is_wrong_with_a_call_is_said() {
    let place = Place::new();
    place.write("a.txt", "x");
    for (tool, input, said) in [
        ("Grep", json!({"pattern": "(?<=x)y"}), "look-around"),
        ("Grep", json!({"pattern": r"(a)\1"}), "backreference"),
        ("Grep", json!({"pattern": "("}), "unclosed group"),
        ("Grep", json!({"pattern": "(a{1000}){1000}"}), "too large"),
        ("Grep", json!({"pattern": r"(\w{1,200}){1,200}"}), "too large"),
        ("Grep", json!({"pattern": "x".repeat(3_000)}), "2000 are allowed"),
        ("Grep", json!({"pattern": "x".repeat(1 << 20)}), "shorten"),
        ("Grep", json!({"pattern": ""}), "needs the parameter `pattern`"),
        ("Grep", json!({"pattern": "x", "glob": "[a"}), "must be closed"),
        ("Grep", json!({"pattern": "x", "output_mode": "lines"}), "one of files_with_matches, content, count"),
        ("Grep", json!({"pattern": "x", "path": "none"}), "none"),
        ("Glob", json!({"pattern": "{a"}), "must be closed"),
        ("Glob", json!({"pattern": "*", "path": "a.txt"}), "not a directory"),
        ("Glob", json!({"pattern": "*", "limit": 0}), "at least 1"),
        ("Read", json!({"path": "a.txt"}), "did you mean `file_path`"),
        ("Read", json!({"file_path": 7}), "must be a text"),
        ("Read", json!({"file_path": "a\u{0}b"}), "NUL"),
        ("Reed", json!({}), "did you mean `Read`"),
        ("get_changed_files", json!({"path": "-x"}), "begins with `-`"),
        ("get_changed_files", json!({}), "not in a git repository"),
        ("git_search", json!({"path": "a\nb"}), "control character"),
        ("git_search", json!({"query": "a\nb"}), "control character"),
        ("git_search", json!({"query": "--output=x"}), "not in a git repository"),
    ] {
        let start = Instant::now();
        let text = place.error(tool, input);
        assert!(text.contains(said), "{tool}: {text}");
        assert!(text.chars().count() < 1_500, "{tool}: {text}");
        assert!(start.elapsed() < Duration::from_secs(5), "{tool} took {:?}", start.elapsed());
    }
}

#[test]
fn no_time_left_is_no_empty_result() {
    let place = Place::new();
    for file in 0..300 {
        place.write(&format!("d{}/f{file}.txt", file % 20), "needle");
    }
    let tools = place.tools();
    let none = tools.run("Grep", r#"{"pattern":"needle"}"#, Instant::now(), &CancellationToken::new());
    assert!(none.is_error && none.text.contains("no time"), "{}", none.text);
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let soon = Instant::now() + Duration::from_secs(9);
    for tool in specifications() {
        let output = tools.run(tool.name, r#"{"pattern":"needle"}"#, soon, &cancelled);
        assert!(output.is_error, "{}: {}", tool.name, output.text);
    }
    // Too little for the walk: the result says that it is not whole.
    let output = tools.run(
        "Grep",
        r#"{"pattern":"absent"}"#,
        Instant::now() + Duration::from_millis(250),
        &CancellationToken::new(),
    );
    assert!(output.is_error || output.text.contains("incomplete"), "{}", output.text);
}

#[test]
fn a_tree_depends_on_names_alone() {
    let place = Place::new();
    for file in 0..50 {
        place.write(&format!("pkg{}/mod{}/file{file}.rs", file % 5, file % 3), "x");
    }
    let files = WorkspaceFiles::open(&place.root()).unwrap();
    let tree = |budget| {
        directory_tree(&files, budget, Instant::now() + Duration::from_secs(9), &CancellationToken::new()).unwrap()
    };
    let first = tree(600);
    assert!(first.complete && first.files == 50 && first.text.chars().count() <= 600);
    for _ in 0..5 {
        assert_eq!(tree(600), first);
    }
    assert!(tree(100_000).text.contains("file49.rs"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        "[*?\\[\\]{}(),!/.a-c\\\\|+^$-]{0,30}".prop_map(Value::from),
        Just(Value::from("a.txt")),
        Just(Value::from("..")),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| prop::collection::vec(inner, 0..3).prop_map(Value::from))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_arguments_break_a_tool(
        tool in 0..6_usize,
        values in prop::collection::vec((0..14_usize, any_json()), 0..5),
        raw in prop::option::weighted(0.1, ".{0,60}"),
    ) {
        static PLACE: std::sync::OnceLock<Place> = std::sync::OnceLock::new();
        let place = PLACE.get_or_init(|| {
            let place = Place::new();
            let long: String = (0..4_000).map(|line| format!("a b c {line}\n")).collect();
            place.write("a.txt", long).write("b/c.txt", "abc").write("b/{d}.txt", "x");
            place
        });
        let tool = specifications().nth(tool).unwrap();
        let schema: Value = serde_json::from_str(tool.schema).unwrap();
        let names: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        let input = raw.unwrap_or_else(|| {
            let object: serde_json::Map<String, Value> = values
                .into_iter()
                .map(|(position, value)| {
                    (names.get(position).map_or_else(|| "extra".to_owned(), |name| (*name).clone()), value)
                })
                .collect();
            Value::Object(object).to_string()
        });
        let output = run(&place.tools(), tool.name, &input);
        prop_assert!(output.text.chars().count() <= OUTPUT_CAP);
        prop_assert!(!output.text.contains(CANARY));
    }
}
