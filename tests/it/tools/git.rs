//! `get_changed_files` and `git_search`, on repositories that the `git` program has made. Without it
//! these tests are skipped.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use lm_core::tools::GitUser;
use serde_json::{Value, json};

use super::{Place, run, tools, write};

/// A place whose workspace is a repository.
pub(super) struct Repository {
    pub(super) place: Place,
}

impl Repository {
    /// With one commit; none where `git` is not installed.
    pub(super) fn new() -> Option<Self> {
        Self::with(&["init", "-q", "-b", "main"])
    }

    fn with(init: &[&str]) -> Option<Self> {
        if Command::new("git").arg("--version").output().is_err() {
            eprintln!("skipped: git is not installed");
            return None;
        }
        let place = Place::new();
        if !git_in(&place, &place.root(), init).status.success() {
            eprintln!("skipped: this git cannot {}", init.join(" "));
            return None;
        }
        let repository = Self { place };
        repository.place.write("a.txt", "one\ntwo\nthree\n").write("src/b.rs", "fn b() {}\n");
        repository.commit("First commit");
        Some(repository)
    }

    pub(super) fn git(&self, arguments: &[&str]) -> String {
        let output = git_in(&self.place, &self.place.root(), arguments);
        assert!(output.status.success(), "git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(super) fn commit(&self, message: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
    }

    fn changes(&self) -> String {
        self.place.text("get_changed_files", json!({}))
    }

    fn search(&self, input: Value) -> String {
        self.place.text("git_search", input)
    }
}

/// Runs `git` so that nothing of the user's own configuration counts.
pub(super) fn git_in(place: &Place, directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("git");
    command
        .args(["-c", "protocol.file.allow=always"])
        .args(arguments)
        .current_dir(directory)
        .env("HOME", place.beside("home"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", place.beside("none"));
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "A Person").env(format!("GIT_{role}_EMAIL"), "a@example.org");
    }
    command.output().unwrap()
}

/// Gives a file another time, so that its content has to be compared.
fn touch(path: &Path) {
    let time = fs::metadata(path).unwrap().modified().unwrap() - Duration::from_secs(5_000);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

fn first_line_of(text: &str) -> &str {
    text.lines().next().unwrap()
}

#[test]
fn changes_are_told_apart() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    place
        .write("moved.txt", "a text that is long enough\nto be known again\nwhen it has moved\n")
        .write("gone.txt", "x")
        .write("staged-gone.txt", "y");
    repository.commit("Second");
    let clean = repository.changes();
    assert!(clean.starts_with("(nothing differs from the last commit)\n(on branch main, at commit "), "{clean}");
    touch(&place.root().join("a.txt"));
    assert_eq!(repository.changes(), clean);

    place.write("a.txt", "one\n2\nthree\n").write("new.txt", "n").write("loose/x.txt", "x").write("loose/y.txt", "y");
    place.write(".gitignore", "ignored.txt\n").write("ignored.txt", "i");
    repository.git(&["mv", "moved.txt", "renamed.txt"]);
    repository.git(&["rm", "-q", "staged-gone.txt"]);
    repository.git(&["add", "new.txt"]);
    fs::remove_file(place.root().join("gone.txt")).unwrap();
    let text = repository.changes();
    let (list, _) = text.split_once("(on branch").unwrap();
    insta::assert_snapshot!(list, @r"
    Staged:
      A new.txt
      D staged-gone.txt
      R moved.txt -> renamed.txt
    Not staged:
      D gone.txt
      M a.txt
    Untracked:
      .gitignore
      loose/
    ");
    let text = place.text("get_changed_files", json!({"path": "loose"}));
    assert!(text.starts_with("Untracked:\n  loose/"), "{text}");
    let text = place.text("get_changed_files", json!({"path": "src"}));
    assert!(text.starts_with("(nothing differs from the last commit at `src`)"), "{text}");

    // A workspace below the top sees its own part.
    let below = run(&tools(&place.root().join("src"), GitUser::default()), "get_changed_files", "{}");
    assert!(below.text.starts_with("(nothing differs"), "{}", below.text);
    place.write("src/b.rs", "fn c() {}\n");
    let below = run(&tools(&place.root().join("src"), GitUser::default()), "get_changed_files", "{}");
    assert!(below.text.starts_with("Not staged:\n  M b.rs\n("), "{}", below.text);
}

#[test]
fn a_conflict_and_a_first_commit_to_come_are_said() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    repository.git(&["checkout", "-q", "-b", "other"]);
    place.write("a.txt", "other\n");
    repository.commit("Other");
    repository.git(&["checkout", "-q", "main"]);
    place.write("a.txt", "main\n");
    repository.commit("Main");
    assert!(!git_in(place, &place.root(), &["merge", "other"]).status.success());
    assert!(repository.changes().starts_with("In conflict:\n  a.txt\n"), "{}", repository.changes());

    let unborn = Place::new();
    git_in(&unborn, &unborn.root(), &["init", "-q", "-b", "main"]);
    unborn.write("a.txt", "x");
    let text = unborn.text("get_changed_files", json!({}));
    assert!(text.starts_with("Untracked:\n  a.txt\n") && text.contains("without a commit yet"), "{text}");
    assert_eq!(unborn.text("git_search", json!({"query": "x"})), "(there is no commit yet)\n");
}

#[test]
fn the_users_own_configuration_decides_about_line_ends_and_ignored_files() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    place.write("crlf.txt", "one\r\ntwo\r\n");
    repository.git(&["-c", "core.autocrlf=true", "add", "crlf.txt"]);
    repository.git(&["-c", "core.autocrlf=true", "commit", "-q", "-m", "Line ends"]);
    touch(&place.root().join("crlf.txt"));
    place.write("notes.own", "x");
    let changes = |user: GitUser| run(&tools(&place.root(), user), "get_changed_files", "{}").text;
    let text = changes(GitUser::default());
    assert!(text.contains("M crlf.txt") && text.contains("notes.own"), "{text}");

    let home = place.beside("home");
    write(&home.join(".gitconfig"), "[include]\n\tpath = more.inc\n[core]\n\texcludesFile = ~/ignored\n");
    write(&home.join("more.inc"), "[core]\n\tautocrlf = true\n");
    write(&home.join("ignored"), "*.own\n");
    let user = GitUser { home: Some(home.clone()), directory: None, files: vec![home.join(".gitconfig")] };
    let text = changes(user);
    assert!(text.starts_with("(nothing differs"), "{text}");

    // Where nothing is configured git looks for a file of this name.
    write(&home.join(".config/git/ignore"), "*.own\n");
    let user = GitUser { home: None, directory: Some(home.join(".config/git")), files: Vec::new() };
    assert!(!changes(user.clone()).contains("notes.own"));

    // What the repository says itself is stronger.
    repository.git(&["config", "core.autocrlf", "true"]);
    assert!(!changes(user).contains("crlf.txt"));
}

#[test]
fn history_is_found_by_message_content_path_and_id() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    place.write("src/b.rs", "fn b() { retry_budget(); }\n");
    repository.commit("Teach b to try again\n\nThe network is unreliable.");
    place.write("a.txt", "one\ntwo\nthree\nfour\n");
    repository.commit("Count to four");
    place.write("src/b.rs", "fn b() {}\n");
    repository.commit("Give up at once");

    let text = repository.search(json!({"query": "UNRELIABLE"}));
    assert!(first_line_of(&text).ends_with("A Person: Teach b to try again [message]"), "{text}");
    assert!(text.contains("  M src/b.rs\n") && text.contains("the whole history was searched, 4 commits"), "{text}");
    let text = repository.search(json!({"query": "again teach"}));
    assert!(first_line_of(&text).contains("[all words in message]"), "{text}");

    let text = repository.search(json!({"query": "retry_budget"}));
    let found: Vec<&str> = text.lines().filter(|line| line.contains("[content]")).collect();
    assert_eq!(found.len(), 2, "{text}");
    assert!(found[0].contains("Give up at once") && found[1].contains("Teach b"), "{text}");
    assert!(text.contains("contents of all 4 commits compared"), "{text}");
    // A capital letter makes case matter.
    assert!(repository.search(json!({"query": "Retry_budget"})).starts_with("(no commit found for `Retry_budget`)"));

    let text = repository.search(json!({"path": "a.txt"}));
    assert!(text.contains("Count to four") && text.contains("First commit") && !text.contains("Teach"), "{text}");
    let text = repository.search(json!({"path": "src", "max_results": "1"}));
    assert!(text.contains("Give up") && !text.contains("Teach") && text.contains("raise max_results"), "{text}");
    assert!(repository.search(json!({"path": "none.txt"})).starts_with("(no commit changed `none.txt`)"));

    let id = repository.git(&["rev-parse", "HEAD~1"]);
    let text = repository.search(json!({"query": &id[..10], "show_diff": true}));
    let (patch, _) = text.split_once("(contents").unwrap();
    let (first, patch) = patch.split_once('\n').unwrap();
    assert!(first.starts_with(&id[..12]) && first.ends_with("Count to four [id]"), "{text}");
    insta::assert_snapshot!(patch, @r"
      M a.txt
      @@ -1 +1 @@
       one
       two
       three
      +four
    ");
    // A workspace below the top knows its own part, by its own paths.
    let below = run(&tools(&place.root().join("src"), GitUser::default()), "git_search", r#"{"path":"b.rs"}"#);
    assert!(below.text.contains("  M b.rs\n") && !below.text.contains("Count to four"), "{}", below.text);
}

#[test]
fn a_merge_that_is_equal_to_a_parent_is_passed_over() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    repository.git(&["checkout", "-q", "-b", "side"]);
    place.write("a.txt", "side\n");
    repository.commit("Side changes a");
    repository.git(&["checkout", "-q", "main"]);
    place.write("src/b.rs", "fn main_side() {}\n");
    repository.commit("Main changes b");
    repository.git(&["merge", "-q", "--no-ff", "-m", "Merge side", "side"]);
    let text = repository.search(json!({"path": "a.txt"}));
    assert!(
        text.contains("Side changes a") && !text.contains("Merge side") && !text.contains("Main changes b"),
        "{text}"
    );
    let expected = repository.git(&["log", "--format=%s", "--", "a.txt"]);
    assert_eq!(expected.trim(), "Side changes a\nFirst commit");
    assert_eq!(text.lines().filter(|line| line.contains("A Person: ")).count(), 2, "{text}");
    assert!(repository.search(json!({})).contains("Merge side"));
}

#[test]
fn history_shows_no_secrets() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    let token = format!("ghp_{}", "q7Zt1LxV0sPd9KfR3mWb8YcN5hJg2TuE6aQv");
    place.write(".env", "PASSWORD=hunter2\n").write("conf.py", format!("TOKEN = '{token}'\n"));
    repository.commit("Add configuration");
    fs::remove_file(place.root().join("conf.py")).unwrap();
    repository.commit(&format!("Remove {token}"));
    for input in [
        json!({"show_diff": true}),
        json!({"query": "ghp_", "show_diff": true}),
        json!({"query": "hunter2", "show_diff": true}),
    ] {
        let text = repository.search(input);
        assert!(!text.contains(&token) && !text.contains("hunter2\n"), "{text}");
    }
    assert!(repository.search(json!({"show_diff": true})).contains("(may hold secrets, not shown)"));
    assert!(repository.search(json!({"query": "hunter2"})).starts_with("(no commit found"));
}

#[test]
fn history_shows_nothing_that_a_person_leaves_out() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    place
        .write("private/plan.md", "canary_plan\n")
        .write("sub/notes.priv", "canary_notes\n")
        .write("seen.md", "seen_text\n");
    repository.commit("Write it all down");
    fs::remove_dir_all(place.root().join("private")).unwrap();
    place.write(".livememoryignore", "private/\n").write("sub/.livememoryignore", "*.priv\n");
    repository.commit("Keep some of it to ourselves");
    let text = repository.search(json!({"show_diff": true}));
    assert!(text.contains("seen_text") && !text.contains("canary"), "{text}");
    assert!(text.contains("(left out by a `.livememoryignore`, not shown)"), "{text}");
    for query in ["canary_plan", "canary_notes"] {
        assert!(repository.search(json!({"query": query})).starts_with("(no commit found"));
    }
    assert!(repository.search(json!({"query": "seen_text"})).contains("Write it all down"));
}

#[test]
fn a_large_patch_hides_no_other_result() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    place.write("small.txt", "s");
    repository.commit("Small change");
    let large: String = (0..5_000).map(|line| format!("line {line}\n")).collect();
    for file in 0..30 {
        place.write(&format!("large{file}.txt"), &large);
    }
    repository.commit("Large change");
    let text = repository.search(json!({"show_diff": true}));
    assert!(text.contains("Large change") && text.contains("Small change") && text.contains("First commit"), "{text}");
    assert!(text.contains("more files") || text.contains("more lines"), "{text}");
}

#[test]
fn worktrees_submodules_and_other_hashes_work() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    let linked = place.beside("linked");
    repository.git(&["worktree", "add", "-q", "-b", "branch", linked.to_str().unwrap()]);
    write(&linked.join("a.txt"), "changed in the worktree\n");
    let both = |root: &Path| {
        let tools = tools(root, GitUser::default());
        (run(&tools, "get_changed_files", "{}"), run(&tools, "git_search", r#"{"query":"First"}"#))
    };
    let (changes, found) = both(&linked);
    assert!(changes.text.starts_with("Not staged:\n  M a.txt\n(on branch branch,"), "{}", changes.text);
    assert!(found.text.contains("First commit"), "{}", found.text);

    let origin = Repository::new().unwrap();
    repository.git(&["submodule", "--quiet", "add", origin.place.root().to_str().unwrap(), "module"]);
    repository.commit("Add a submodule");
    let (changes, found) = both(&place.root().join("module"));
    assert!(changes.text.starts_with("(nothing differs"), "{}", changes.text);
    assert!(found.text.contains("First commit"), "{}", found.text);
    assert!(repository.changes().starts_with("(nothing differs"), "{}", repository.changes());
    assert!(
        git_in(place, &place.root().join("module"), &["commit", "-q", "--allow-empty", "-m", "In the module"])
            .status
            .success()
    );
    assert!(repository.changes().starts_with("Not staged:\n  M module\n"), "{}", repository.changes());
    let text = repository.search(json!({"path": "module", "show_diff": true}));
    assert!(text.contains("(submodule "), "{text}");

    let Some(sha256) = Repository::with(&["init", "-q", "-b", "main", "--object-format=sha256"]) else { return };
    sha256.place.write("a.txt", "other\n");
    assert!(sha256.changes().contains("M a.txt"), "{}", sha256.changes());
    assert!(sha256.search(json!({"path": "a.txt"})).contains("First commit"));
}

#[test]
fn shallow_and_partial_clones_say_what_is_missing() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    place.write("a.txt", "needle_in_history\n");
    repository.commit("Add the needle");
    place.write("a.txt", "nothing\n");
    repository.commit("Remove the needle");
    repository.git(&["config", "uploadpack.allowFilter", "true"]);
    let url = format!("file://{}", place.root().display());
    let clone = |name: &str, option: &str| -> PathBuf {
        let directory = place.beside(name);
        let output = git_in(place, place.directory.path(), &["clone", "-q", option, &url, directory.to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        directory
    };
    let search = |root: &Path, input: &str| run(&tools(root, GitUser::default()), "git_search", input);
    let shallow = search(&clone("shallow", "--depth=1"), r#"{"path":"a.txt"}"#);
    assert!(shallow.text.contains("Remove the needle") && shallow.text.contains("shallow clone"), "{}", shallow.text);
    let partial = clone("partial", "--filter=blob:none");
    let found = search(&partial, r#"{"query":"needle_in_history"}"#);
    assert!(!found.is_error && found.text.contains("not in this clone"), "{}", found.text);
    let found = search(&partial, r#"{"path":"a.txt","show_diff":true}"#);
    assert!(found.text.contains("Add the needle") && found.text.contains("not in this clone"), "{}", found.text);
    let changes = run(&tools(&partial, GitUser::default()), "get_changed_files", "{}");
    assert!(changes.text.starts_with("(nothing differs"), "{}", changes.text);
}

#[test]
fn bare_and_reftable_repositories_are_refused_clearly() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    let bare = place.beside("bare.git");
    repository.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    for tool in ["get_changed_files", "git_search"] {
        let output = run(&tools(&bare, GitUser::default()), tool, "{}");
        assert!(output.is_error && output.text.contains("bare"), "{}", output.text);
    }
    repository.git(&["config", "core.bare", "true"]);
    assert!(place.error("get_changed_files", json!({})).contains("bare"));
    if let Some(reftable) = Repository::with(&["init", "-q", "-b", "main", "--ref-format=reftable"]) {
        for tool in ["get_changed_files", "git_search"] {
            assert!(reftable.place.error(tool, json!({})).contains("reftable"));
        }
    }
}

#[test]
fn damage_is_an_error_and_not_an_empty_history() {
    let Some(repository) = Repository::new() else { return };
    let place = &repository.place;
    let head = repository.git(&["rev-parse", "HEAD"]);
    let object = place.root().join(".git/objects").join(&head[..2]).join(&head.trim()[2..]);
    fs::remove_file(&object).unwrap();
    let start = Instant::now();
    assert!(place.error("git_search", json!({"query": "First"})).contains("damaged"));
    place.write(".git/HEAD", "nonsense\n");
    place.error("git_search", json!({}));
    place.error("get_changed_files", json!({}));
    place.write(".git/index", vec![0_u8; 100]);
    place.error("get_changed_files", json!({}));
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// A model may ask for as much as it likes in one turn: what is at work does not hang.
#[test]
fn many_calls_at_once_are_all_answered() {
    let Some(repository) = Repository::new() else { return };
    let tools = tools(&repository.place.root(), GitUser::default());
    let texts: Vec<_> = std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..12).map(|_| scope.spawn(|| run(&tools, "git_search", r#"{"query":"a","show_diff":true}"#))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    for output in texts {
        assert!(!output.is_error, "{}", output.text);
    }
}
