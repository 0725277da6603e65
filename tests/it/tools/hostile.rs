//! Repositories that try to run programs, or to show what is not theirs.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use lm_core::tools::{GitUser, specifications};
use serde_json::json;

use super::{Place, git::Repository, git::git_in, run, tools, write};

/// Where a test that runs itself again finds the repository to use the tools on.
const INSIDE_VARIABLE: &str = "LM_TEST_HOSTILE_REPOSITORY";

/// A repository that names a program wherever git knows a place for one. The program leaves a mark.
fn hostile() -> Option<(Repository, PathBuf)> {
    let repository = Repository::new()?;
    let place = &repository.place;
    let mark = place.beside("mark");
    let script = place.beside("script");
    fs::write(&script, format!("#!/bin/sh\necho \"$0 $*\" >> '{}'\ncat\n", mark.display())).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    }
    place.write("src/c.rs", "fn c() {}\n");
    place.write(".gitattributes", "* filter=evil diff=evil merge=evil\n");
    // Before the configuration, which would run here and now.
    repository.commit("Add attributes");
    let script = script.display();
    let configuration = format!(
        "[core]\n\tfsmonitor = {script}\n\thooksPath = {hooks}\n\tpager = {script}\n\teditor = {script}\n\tsshCommand = {script}\n\taskPass = {script}\n\tgitProxy = {script}\n\talternateRefsCommand = {script}\n\
         [filter \"evil\"]\n\tclean = {script}\n\tsmudge = {script}\n\tprocess = {script}\n\trequired = true\n\
         [diff]\n\texternal = {script}\n[diff \"evil\"]\n\tcommand = {script}\n\ttextconv = {script}\n\
         [merge \"evil\"]\n\tdriver = {script}\n[credential]\n\thelper = !{script}\n[gpg]\n\tprogram = {script}\n\
         [pager]\n\tlog = {script}\n[sequence]\n\teditor = {script}\n[uploadpack]\n\tpackObjectsHook = {script}\n\
         [remote \"origin\"]\n\turl = ext::{script}\n\tpromisor = true\n\tpartialclonefilter = blob:none\n\
         [extensions]\n\tpartialClone = origin\n[log]\n\tshowSignature = true\n[status]\n\tsubmoduleSummary = true\n",
        hooks = place.root().join(".git/hooks").display(),
    );
    let path = place.root().join(".git/config");
    let own = fs::read_to_string(&path).unwrap().replace("repositoryformatversion = 0", "repositoryformatversion = 1");
    fs::write(&path, own + &configuration).unwrap();
    for hook in ["post-index-change", "fsmonitor-watchman", "pre-commit", "post-checkout", "reference-transaction"] {
        let hook = place.root().join(".git/hooks").join(hook);
        write(&hook, "");
        fs::copy(place.beside("script"), &hook).unwrap();
    }
    // Different length, same length, another time only: whatever makes git look at the content.
    place.write("a.txt", "one\nTWO\nthree\n").write("src/b.rs", "fn b() { changed(); }\n").write("new.txt", "n");
    let unchanged = fs::File::options().write(true).open(place.root().join("src/c.rs")).unwrap();
    unchanged.set_modified(std::time::SystemTime::now() - Duration::from_secs(9_000)).unwrap();
    Some((repository, mark))
}

/// Calls every tool in every way that reads much.
fn use_all_tools(root: &Path) -> String {
    let tools = tools(root, GitUser::default());
    let mut text = String::new();
    for (tool, input) in [
        ("Read", json!({"file_path": "a.txt"})),
        ("Grep", json!({"pattern": "fn", "output_mode": "content", "-C": 2})),
        ("Glob", json!({"pattern": "**/*"})),
        ("find_paths", json!({})),
        ("get_changed_files", json!({})),
        ("get_changed_files", json!({"path": "src"})),
        ("git_search", json!({"query": "attributes"})),
        ("git_search", json!({"query": "fn b", "show_diff": true})),
        ("git_search", json!({"path": "src/b.rs", "show_diff": true})),
        ("git_search", json!({"query": "--output=written", "path": "./--no-index"})),
    ] {
        text.push_str(&run(&tools, tool, &input.to_string()).text);
    }
    text
}

#[test]
fn a_hostile_configuration_runs_nothing() {
    let Some((repository, mark)) = hostile() else { return };
    let root = repository.place.root();
    let text = use_all_tools(&root);
    assert!(!mark.exists(), "ran: {}", fs::read_to_string(&mark).unwrap());
    assert!(text.contains("M a.txt") && text.contains("M src/b.rs") && text.contains("new.txt"), "{text}");
    assert!(!text.contains("M src/c.rs"), "{text}");
    assert!(text.contains("Add attributes") && text.contains("+fn b() {}"), "{text}");
    assert!(!root.join("written").exists());
    // The repository is hostile indeed: git runs what it names.
    git_in(&repository.place, &root, &["status"]);
    assert!(!cfg!(unix) || mark.exists(), "the trap does not work");
}

#[cfg(target_os = "linux")]
#[test]
fn no_tool_starts_a_process_or_writes() {
    if let Some(root) = env::var_os(INSIDE_VARIABLE) {
        use_all_tools(Path::new(&root));
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: strace is not installed");
        return;
    }
    let Some((repository, mark)) = hostile() else { return };
    let root = repository.place.root();
    let trace = repository.place.beside("trace");
    let output = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=execve,execveat,fork,vfork,open,openat,openat2,creat,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat"])
        .arg("-o")
        .arg(&trace)
        .arg(env::current_exe().unwrap())
        .args(["--exact", "tools::hostile::no_tool_starts_a_process_or_writes", "--nocapture"])
        .env(INSIDE_VARIABLE, &root)
        .output()
        .unwrap();
    if !output.status.success() && fs::metadata(&trace).map_or(0, |trace| trace.len()) == 0 {
        eprintln!("skipped: strace cannot trace here: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let trace = fs::read_to_string(trace).unwrap();
    let started: Vec<&str> = trace.lines().filter(|line| line.contains("execve") || line.contains("vfork(")).collect();
    assert_eq!(started.len(), 1, "only the test itself is started: {started:#?}");
    // Handles of directories are opened relative to each other, so every path that is not the system's counts.
    let written: Vec<&str> = trace
        .lines()
        .filter(|line| {
            ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "creat(", "unlink", "rename", "mkdir"]
                .iter()
                .any(|what| line.contains(what))
        })
        .filter(|line| !line.contains("\"/dev/") && !line.contains("\"/proc/"))
        // How `cap-std` finds out what the kernel can do; it can never succeed.
        .filter(|line| !line.contains("\"../.\""))
        .collect();
    assert!(written.is_empty(), "{written:#?}");
    // The repository was opened, so the trace saw the work.
    assert!(trace.contains(".git/HEAD") && trace.contains("a.txt"), "{}", &trace[trace.len().saturating_sub(2_000)..]);
    assert!(!mark.exists());
}

#[test]
fn pointers_to_other_repositories_are_not_followed() {
    let Some(private) = Repository::new() else { return };
    private.place.write("private.txt", "x");
    private.commit("Private plans");
    let git_dir = private.place.root().join(".git");
    let attempt = |prepare: &dyn Fn(&Path)| {
        let place = Place::new();
        prepare(&place.root());
        for (tool, input) in [("git_search", r#"{"show_diff":true}"#), ("get_changed_files", "{}")] {
            let output = run(&tools(&place.root(), GitUser::default()), tool, input);
            assert!(output.is_error, "{}", output.text);
            assert!(!output.text.contains("Private plans") && !output.text.contains("private.txt"), "{}", output.text);
        }
    };
    let init = |root: &Path| {
        fs::create_dir_all(root.join(".git/objects")).unwrap();
        fs::create_dir_all(root.join(".git/refs")).unwrap();
        write(&root.join(".git/HEAD"), "ref: refs/heads/main\n");
    };
    attempt(&|root| write(&root.join(".git"), format!("gitdir: {}\n", git_dir.display())));
    attempt(&|root| {
        init(root);
        write(&root.join(".git/commondir"), format!("{}\n", git_dir.display()));
    });
    attempt(&|root| {
        // Claims to be a linked worktree that the repository does not know.
        init(root);
        write(&root.join("fake/worktrees/x/commondir"), format!("{}\n", git_dir.display()));
        write(&root.join("fake/worktrees/x/HEAD"), "ref: refs/heads/main\n");
        fs::remove_dir_all(root.join(".git")).unwrap();
        write(&root.join(".git"), "gitdir: fake/worktrees/x\n");
    });
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        attempt(&|root| symlink(&git_dir, root.join(".git")).unwrap());
        attempt(&|root| {
            init(root);
            for part in ["objects", "refs"] {
                fs::remove_dir_all(root.join(".git").join(part)).unwrap();
                symlink(git_dir.join(part), root.join(".git").join(part)).unwrap();
            }
        });
        attempt(&|root| {
            init(root);
            fs::create_dir_all(root.join(".git/refs/heads")).unwrap();
            write(&root.join(".git/objects/info/alternates"), git_dir.join("objects").to_str().unwrap());
            symlink(git_dir.join("refs/heads/main"), root.join(".git/refs/heads/main")).unwrap();
        });
    }
}

#[cfg(target_os = "linux")]
#[test]
fn pipes_in_a_repository_end_in_an_error() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    let pipe = |path: &str| {
        let path = place.root().join(path);
        let _ = fs::remove_file(&path);
        lm_tests::make_pipe(&path);
        path
    };
    let start = Instant::now();
    for name in [".git/index", ".git/packed-refs", ".git/config", ".git/HEAD"] {
        let path = pipe(name);
        place.error("get_changed_files", json!({}));
        place.error("git_search", json!({}));
        fs::remove_file(path).unwrap();
    }
    // One that git itself would wait on: the call ends at its deadline, and is not repeated for ever.
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    let path = place.root().join("src/.gitignore");
    lm_tests::make_pipe(&path);
    place.write("src/untracked.txt", "x");
    let tools = place.tools();
    for _ in 0..4 {
        let deadline = Instant::now() + Duration::from_millis(700);
        let output = tools.run("get_changed_files", "{}", deadline, &tokio_util::sync::CancellationToken::new());
        assert!(!output.text.is_empty());
    }
    assert!(start.elapsed() < Duration::from_secs(20));
    // Lets whatever still waits go.
    let _ = fs::OpenOptions::new().read(true).write(true).open(&path);
}

#[test]
fn every_tool_refuses_what_it_does_not_know() {
    let place = Place::new();
    for tool in specifications() {
        let text = place.error(tool.name, json!({"--output": "x"}));
        assert!(text.contains("has no parameter `--output`"), "{text}");
    }
}
