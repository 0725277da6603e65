//! Which workspace a directory belongs to, with real repositories.

use std::{
    fs,
    path::{Path, PathBuf},
};

use lm_tests::{
    Sandbox, git,
    run::{json, succeeded},
};
use serde_json::Value;

/// A sandbox whose daemon runs.
fn started() -> Sandbox {
    let sandbox = Sandbox::new();
    succeeded(&sandbox.run(&["config", "show"]));
    sandbox
}

/// What the daemon takes for the workspace of a directory.
fn workspace(sandbox: &Sandbox, directory: &Path, session: &[(&str, &str)]) -> Value {
    let output =
        sandbox.shim(&["stats", "--json"]).current_dir(directory).envs(session.iter().copied()).output().unwrap();
    json(&output)["workspace"].clone()
}

fn root(sandbox: &Sandbox, directory: &Path, session: &[(&str, &str)]) -> PathBuf {
    let workspace = workspace(sandbox, directory, session);
    PathBuf::from(workspace["root"].as_str().unwrap_or_else(|| panic!("{}: {workspace}", directory.display())))
}

fn error(sandbox: &Sandbox, directory: &Path, session: &[(&str, &str)]) -> String {
    let workspace = workspace(sandbox, directory, session);
    workspace["error"].as_str().unwrap_or_else(|| panic!("{}: {workspace}", directory.display())).to_owned()
}

/// As the daemon shows paths.
fn canonical(path: &Path) -> PathBuf {
    let path = fs::canonicalize(path).unwrap();
    let text = path.to_str().unwrap();
    PathBuf::from(text.strip_prefix(r"\\?\").unwrap_or(text))
}

const OUTERMOST: [(&str, &str); 1] = [("LIVE_MEMORY_REPO_ROOT_MODE", "outermost")];

#[test]
fn a_worktree_inside_the_main_repository_is_a_workspace_of_its_own() {
    if !git::is_there() {
        return;
    }
    let sandbox = started();
    let main = sandbox.workspace("main");
    git::repository(&sandbox, &main, "a.rs", "fn main_tree() {}\n");
    git::run(&sandbox, &main, &["worktree", "add", "--quiet", ".claude/worktrees/x"]);
    let worktree = main.join(".claude/worktrees/x");
    let inside = worktree.join("sub");
    fs::create_dir(&inside).unwrap();
    for session in [&[][..], &OUTERMOST[..]] {
        assert_eq!(root(&sandbox, &inside, session), canonical(&worktree));
        assert_eq!(root(&sandbox, &main.join(".claude"), session), canonical(&main));
    }
}

#[test]
fn a_submodule_is_its_own_or_its_superprojects() {
    if !git::is_there() {
        return;
    }
    let sandbox = started();
    let library = sandbox.workspace("library");
    let project = sandbox.workspace("project");
    git::repository(&sandbox, &library, "lib.rs", "fn library() {}\n");
    git::repository(&sandbox, &project, "main.rs", "fn project() {}\n");
    let source = library.to_str().unwrap();
    git::run(&sandbox, &project, &["submodule", "--quiet", "add", source, "vendor/library"]);
    let submodule = project.join("vendor/library");
    assert_eq!(root(&sandbox, &submodule, &[]), canonical(&submodule));
    assert_eq!(root(&sandbox, &submodule, &OUTERMOST), canonical(&project));
    assert_eq!(root(&sandbox, &project.join("vendor"), &[]), canonical(&project));
    // A tree of the submodule's own repository, elsewhere, is never folded.
    git::run(&sandbox, &submodule, &["worktree", "add", "--quiet", "../../trees/y"]);
    let tree = project.join("trees/y");
    assert_eq!(root(&sandbox, &tree, &OUTERMOST), canonical(&tree));
}

#[test]
fn a_bare_repository_is_refused_and_its_worktree_is_not() {
    if !git::is_there() {
        return;
    }
    let sandbox = started();
    let source = sandbox.workspace("source");
    git::repository(&sandbox, &source, "a.rs", "fn a() {}\n");
    let bare = sandbox.root().join("bare.git");
    git::run(&sandbox, sandbox.root(), &["clone", "--quiet", "--bare", "source", "bare.git"]);
    for directory in [bare.clone(), bare.join("refs")] {
        let said = error(&sandbox, &directory, &[]);
        assert!(said.contains("bare git repository") && said.contains("working tree"), "{said}");
    }
    git::run(&sandbox, &bare, &["worktree", "add", "--quiet", "../tree"]);
    assert_eq!(root(&sandbox, &sandbox.root().join("tree"), &[]), canonical(&sandbox.root().join("tree")));
}

#[test]
fn a_directory_without_git_is_its_own_workspace_and_exact_ones_are_kept_apart() {
    let sandbox = started();
    let plain = sandbox.workspace("plain");
    let inside = sandbox.workspace("plain/inside");
    assert_eq!(root(&sandbox, &inside, &[]), canonical(&inside));
    fs::create_dir(plain.join(".git")).unwrap();
    fs::write(plain.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    assert_eq!(root(&sandbox, &inside, &[]), canonical(&plain));
    let exact = [("LIVE_MEMORY_CANONICALIZE_WORKSPACE", "false")];
    assert_eq!(root(&sandbox, &inside, &exact), canonical(&inside));
}

#[test]
fn too_much_is_refused_with_what_to_do() {
    let sandbox = started();
    let home = sandbox.home();
    for wide in [home.as_path(), sandbox.root(), Path::new("/")] {
        let said = error(&sandbox, wide, &[]);
        assert!(said.contains("give a project directory"), "{said}");
    }
    // A repository of the whole home directory does not make a workspace of it.
    fs::create_dir(home.join(".git")).unwrap();
    fs::write(home.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let notes = sandbox.workspace("home/notes");
    assert_eq!(root(&sandbox, &notes, &[]), canonical(&notes));
    assert!(error(&sandbox, &home, &[]).contains("your home directory"));
}

#[test]
fn an_excluded_workspace_is_refused_at_the_next_request() {
    let sandbox = started();
    let secret = sandbox.workspace("home/secret/project");
    assert_eq!(root(&sandbox, &secret, &[]), canonical(&secret));
    succeeded(&sandbox.run(&["config", "set", "exclude=~/secret"]));
    assert!(error(&sandbox, &secret, &[]).contains("excluded by the setting exclude"));
    let other = sandbox.workspace("home/open");
    assert_eq!(root(&sandbox, &other, &[]), canonical(&other));
}
