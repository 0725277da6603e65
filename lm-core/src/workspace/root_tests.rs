use super::*;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, relative: &str) -> PathBuf {
        canonical(self.0.path()).unwrap().join(relative)
    }

    fn directory(&self, relative: &str) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn file(&self, relative: &str, text: &str) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// A repository as `git init` leaves it, as far as anyone looks.
    fn repository(&self, relative: &str) -> PathBuf {
        self.file(&format!("{relative}/.git/HEAD"), "ref: refs/heads/main\n");
        self.directory(&format!("{relative}/.git/objects"));
        self.directory(&format!("{relative}/.git/refs"));
        self.path(relative)
    }

    fn worktree(&self, relative: &str, main: &str) -> PathBuf {
        let repository = format!("{main}/.git/worktrees/x");
        self.file(&format!("{repository}/commondir"), "../..\n");
        self.file(&format!("{repository}/HEAD"), "ref: refs/heads/x\n");
        let target = self.path(&repository);
        self.file(&format!("{relative}/.git"), &format!("gitdir: {}\n", target.display()));
        self.path(relative)
    }

    fn submodule(&self, relative: &str, superproject: &str, name: &str) -> PathBuf {
        let depth = relative.matches('/').count();
        let up = "../".repeat(depth - superproject.matches('/').count());
        for file in ["HEAD", "config"] {
            self.file(&format!("{superproject}/.git/modules/{name}/{file}"), "");
        }
        self.directory(&format!("{superproject}/.git/modules/{name}/objects"));
        self.directory(&format!("{superproject}/.git/modules/{name}/refs"));
        self.file(&format!("{relative}/.git"), &format!("gitdir: {up}.git/modules/{name}\r\n"));
        self.path(relative)
    }

    fn home(&self) -> PathBuf {
        self.directory("home")
    }
}

fn rules(home: &Path) -> RootRules<'_> {
    RootRules { canonicalize: true, mode: RepoRootMode::Nearest, exclude: &[], home: Some(home) }
}

fn outermost(home: &Path) -> RootRules<'_> {
    RootRules { mode: RepoRootMode::Outermost, ..rules(home) }
}

fn root(directory: &Path, rules: RootRules<'_>) -> PathBuf {
    find(directory, rules).unwrap().path
}

#[test]
fn the_nearest_repository_is_the_root_and_else_the_directory() {
    let tree = Tree::new();
    let home = tree.home();
    let repository = tree.repository("home/repo");
    let deep = tree.directory("home/repo/a/b");
    let file = tree.file("home/repo/a/b.rs", "");
    assert_eq!(root(&deep, rules(&home)), repository);
    assert_eq!(root(&file, rules(&home)), repository, "a file stands for its directory");
    let plain = tree.directory("home/plain/sub");
    assert_eq!(root(&plain, rules(&home)), plain);
    let exact = RootRules { canonicalize: false, ..rules(&home) };
    assert_eq!(root(&deep, exact), deep);
    // An empty `.git` is no repository, to git neither.
    tree.directory("home/repo/a/.git");
    assert_eq!(root(&deep, rules(&home)), repository);
    // Inside `.git`, as in a hook, the tree around it is meant.
    assert_eq!(root(&tree.path("home/repo/.git/objects"), rules(&home)), repository);
}

#[test]
fn a_linked_worktree_is_itself_wherever_it_lies() {
    let tree = Tree::new();
    let home = tree.home();
    let main = tree.repository("home/main");
    let nested = tree.worktree("home/main/.claude/worktrees/x", "home/main");
    let sub = tree.directory("home/main/.claude/worktrees/x/sub");
    for rules in [rules(&home), outermost(&home)] {
        assert_eq!(root(&sub, rules), nested);
        assert_eq!(root(&main, rules), main);
        assert_ne!(find(&sub, rules).unwrap().key, find(&main, rules).unwrap().key);
    }
    assert_eq!(find(&sub, rules(&home)).unwrap().marker, Some(Marker::LinkedWorktree));
    // Even where the repository it belongs to is gone.
    fs::remove_dir_all(tree.path("home/main/.git/worktrees")).unwrap();
    assert_eq!(root(&sub, outermost(&home)), nested);
}

#[test]
fn a_submodule_is_itself_or_its_superproject() {
    let tree = Tree::new();
    let home = tree.home();
    let superproject = tree.repository("home/super");
    let submodule = tree.submodule("home/super/lib/sub", "home/super", "lib/sub");
    let inner = tree.directory("home/super/lib/sub/src");
    assert_eq!(root(&inner, rules(&home)), submodule);
    assert_eq!(root(&inner, outermost(&home)), superproject);
    assert_eq!(find(&inner, rules(&home)).unwrap().marker, Some(Marker::Submodule));
}

#[test]
fn a_clone_in_a_clone_is_folded_only_where_it_is_registered() {
    let tree = Tree::new();
    let home = tree.home();
    let outer = tree.repository("home/outer");
    let vendored = tree.repository("home/outer/vendor/x");
    let old_style = tree.repository("home/outer/deps/y");
    tree.file("home/outer/.gitmodules", "[submodule \"y\"]\n\tpath = deps/y\n\turl = ../y\n");
    assert_eq!(root(&vendored, outermost(&home)), vendored);
    assert_eq!(root(&old_style, outermost(&home)), outer);
    assert_eq!(root(&old_style, rules(&home)), old_style);
}

#[test]
fn a_submodule_of_a_linked_worktree_belongs_to_that_worktree() {
    let tree = Tree::new();
    let home = tree.home();
    tree.repository("home/main");
    let worktree = tree.worktree("home/main/trees/x", "home/main");
    let repository = tree.path("home/main/.git/worktrees/x/modules/sub");
    tree.file("home/main/.git/worktrees/x/modules/sub/HEAD", "");
    tree.directory("home/main/.git/worktrees/x/modules/sub/objects");
    tree.file("home/main/trees/x/sub/.git", &format!("gitdir: {}", repository.display()));
    assert_eq!(root(&tree.path("home/main/trees/x/sub"), outermost(&home)), worktree);
}

#[test]
fn everything_and_home_are_too_wide() {
    let tree = Tree::new();
    let home = tree.home();
    for canonicalize in [true, false] {
        let rules = RootRules { canonicalize, ..rules(&home) };
        for wide in [home.as_path(), home.parent().unwrap(), home.ancestors().last().unwrap()] {
            let error = find(wide, rules).unwrap_err();
            assert!(matches!(error, RootError::TooWide { .. }), "{wide:?}: {error}");
            assert!(error.to_string().contains("give a project directory"), "{error}");
        }
    }
}

#[test]
fn a_repository_of_the_whole_home_is_not_a_workspace() {
    let tree = Tree::new();
    let home = tree.home();
    tree.repository("home");
    let project = tree.directory("home/notes/today");
    assert_eq!(root(&project, rules(&home)), project);
    assert_eq!(root(&project, outermost(&home)), project);
    assert!(matches!(find(&home, rules(&home)), Err(RootError::TooWide { .. })));
    let repository = tree.repository("home/code");
    assert_eq!(root(&repository, rules(&home)), repository);
}

#[test]
fn a_bare_repository_is_refused_and_its_worktrees_are_not() {
    let tree = Tree::new();
    let home = tree.home();
    tree.file("home/bare.git/HEAD", "ref: refs/heads/main\n");
    tree.directory("home/bare.git/objects");
    let inside = tree.directory("home/bare.git/refs/heads");
    for path in [tree.path("home/bare.git"), inside] {
        let error = find(&path, rules(&home)).unwrap_err();
        assert!(matches!(error, RootError::Bare(_)), "{error}");
    }
    tree.file("home/bare.git/worktrees/w/commondir", "../..");
    let target = tree.path("home/bare.git/worktrees/w");
    tree.file("home/bare.git/tree/.git", &format!("gitdir: {}", target.display()));
    assert_eq!(root(&tree.path("home/bare.git/tree"), outermost(&home)), tree.path("home/bare.git/tree"));
}

#[test]
fn an_odd_git_file_is_no_repository() {
    let tree = Tree::new();
    let home = tree.home();
    let repository = tree.repository("home/repo");
    for text in ["", "hello", "gitdir:", "gitdir: \0", &"gitdir: x".repeat(2000)] {
        tree.file("home/repo/sub/.git", text);
        assert_eq!(root(&tree.path("home/repo/sub"), rules(&home)), repository, "{:.20}", text);
    }
}

#[test]
fn what_is_missing_or_no_directory_is_said() {
    let tree = Tree::new();
    let home = tree.home();
    let file = tree.file("home/p/file", "");
    for missing in [tree.path("home/p/none"), file.join("below")] {
        let error = find(&missing, rules(&home)).unwrap_err();
        assert!(matches!(error, RootError::Missing(_)), "{error}");
    }
    assert!(matches!(find(Path::new("src"), rules(&home)), Err(RootError::Refused(PathRefusal::Relative(_)))));
    assert!(matches!(find(Path::new(""), rules(&home)), Err(RootError::Refused(PathRefusal::Empty))));
    #[cfg(unix)]
    {
        let socket = tree.path("home/p/socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = find(&socket, rules(&home)).unwrap_err();
        assert!(matches!(error, RootError::NotADirectory(_)), "{error}");
    }
}

#[test]
fn the_key_is_the_whole_path_and_not_its_name() {
    let tree = Tree::new();
    let home = tree.home();
    let paths = ["home/office/my-app", "home/personal/my-app", "home/test-project", "home/test/project"];
    let mut keys: Vec<_> = paths.iter().map(|path| find(&tree.directory(path), rules(&home)).unwrap().key).collect();
    assert!(keys.iter().all(|key| key.len() == 64));
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), paths.len());
}

#[cfg(unix)]
#[test]
fn a_link_leads_to_the_same_workspace() {
    let tree = Tree::new();
    let home = tree.home();
    let repository = tree.repository("home/repo");
    let inside = tree.directory("home/repo/src");
    let link = tree.path("home/link");
    std::os::unix::fs::symlink(&repository, &link).unwrap();
    assert_eq!(find(&link.join("src"), rules(&home)).unwrap(), find(&inside, rules(&home)).unwrap());
    let home_link = tree.path("elsewhere");
    std::os::unix::fs::symlink(&home, &home_link).unwrap();
    assert!(matches!(find(&home_link, rules(&home)), Err(RootError::TooWide { .. })));
    assert!(matches!(find(&home, rules(&home_link)), Err(RootError::TooWide { .. })));
}

#[test]
fn an_excluded_workspace_is_refused_however_it_is_named() {
    let tree = Tree::new();
    let home = tree.home();
    let repository = tree.repository("home/secret/repo");
    let inside = tree.directory("home/secret/repo/src");
    let other = tree.repository("home/open");
    let slashed = |path: &Path| path.to_str().unwrap().replace('\\', "/");
    let patterns = [
        slashed(&repository),
        format!("{}/", slashed(&repository)),
        slashed(&tree.path("home/secret")),
        format!("{}/sec*", slashed(&home)),
        "**/secret/*".to_owned(),
        "**/secret".to_owned(),
    ];
    for pattern in patterns {
        let exclude = [pattern.clone()];
        let rules = RootRules { exclude: &exclude, ..rules(&home) };
        let error = find(&inside, rules).unwrap_err();
        assert!(matches!(error, RootError::Excluded { .. }), "{pattern}: {error}");
        assert!(error.to_string().contains("excluded"), "{error}");
        assert_eq!(root(&other, rules), other, "{pattern}");
    }
}

#[cfg(unix)]
#[test]
fn an_exclusion_through_a_link_holds() {
    let tree = Tree::new();
    let home = tree.home();
    let repository = tree.repository("home/repo");
    let link = tree.path("home/link");
    std::os::unix::fs::symlink(&repository, &link).unwrap();
    let exclude = [link.to_str().unwrap().to_owned()];
    let rules = RootRules { exclude: &exclude, ..rules(&home) };
    assert!(matches!(find(&repository, rules), Err(RootError::Excluded { .. })));
    assert!(matches!(find(&link, rules), Err(RootError::Excluded { .. })));
}

#[test]
fn without_a_home_only_the_root_is_too_wide() {
    let tree = Tree::new();
    let project = tree.directory("p");
    let rules = RootRules { home: None, ..rules(Path::new("/")) };
    assert_eq!(root(&project, rules), project);
    let top = project.ancestors().last().unwrap();
    assert!(matches!(find(top, rules), Err(RootError::TooWide { .. })));
}

#[test]
fn a_file_belongs_to_the_repository_around_it_also_where_it_is_gone() {
    let tree = Tree::new();
    let home = tree.home();
    let repository = tree.repository("w");
    let inner = tree.submodule("w/sub", "w", "sub");
    tree.file("w/src/a.rs", "");
    let rules = rules(&home);
    let placed = |file: &str| {
        let place = place(&tree.path(file), None, rules).unwrap();
        (place.root.path, place.path)
    };
    assert_eq!(placed("w/src/a.rs"), (repository.clone(), "src/a.rs".into()));
    assert_eq!(placed("w/src/gone/deep/b.rs"), (repository.clone(), "src/gone/deep/b.rs".into()));
    assert_eq!(placed("w/src/../c.rs"), (repository.clone(), "c.rs".into()));
    assert_eq!(placed("w/sub/d"), (inner, "d".into()));
    for nowhere in ["w/gone/../../e", "plain/f", "f"] {
        assert!(place(&tree.path(nowhere), None, rules).is_err(), "{nowhere}");
    }
    assert!(place(Path::new("relative"), None, rules).is_err());
    assert!(place(Path::new("/"), None, rules).is_err());
}

#[test]
fn outside_any_repository_the_sessions_directory_counts() {
    let tree = Tree::new();
    let home = tree.home();
    let (plain, other) = (tree.directory("plain/deep"), tree.directory("other"));
    let rules = rules(&home);
    let session = plain.parent().unwrap();
    let found = place(&plain.join("a"), Some(session), rules).unwrap();
    assert_eq!((found.root.path.as_path(), found.path.as_str()), (session, "deep/a"));
    assert!(place(&other.join("a"), Some(session), rules).is_err());
    assert!(place(&home.join("a"), Some(&home), rules).is_err());
}

#[test]
fn an_excluded_file_has_no_place() {
    let tree = Tree::new();
    let home = tree.home();
    let repository = tree.repository("w");
    let exclude = [repository.join("private").display().to_string(), repository.join("*.key").display().to_string()];
    let rules = RootRules { exclude: &exclude, ..rules(&home) };
    tree.directory("w/private/deep");
    for file in ["private/deep/a", "private/gone/a", "x.key"] {
        let refused = place(&repository.join(file), None, rules);
        assert!(matches!(refused, Err(RootError::Excluded { .. })), "{file}: {refused:?}");
    }
    assert!(place(&repository.join("public"), None, rules).is_ok());
}

#[cfg(unix)]
#[test]
fn a_directory_that_is_gone_still_has_its_key() {
    let tree = Tree::new();
    let home = tree.home();
    let repository = tree.repository("w");
    let known = find(&repository, rules(&home)).unwrap();
    let link = tree.path("link");
    std::os::unix::fs::symlink(tree.path(""), &link).unwrap();
    assert!(keys_when_gone(&repository).is_empty(), "it is not gone");
    fs::remove_dir_all(&repository).unwrap();
    for given in [repository.clone(), link.join("w"), repository.join("src/deep")] {
        let keys = keys_when_gone(&given);
        assert_eq!(keys.last(), Some(&(repository.clone(), known.key.clone())), "{}", given.display());
    }
    assert!(keys_when_gone(Path::new("relative")).is_empty());
}
