//! Questions from directories that are no workspace, are gone, or are unusual.

use std::{fs, path::Path, process::Output};

use lm_tests::{
    Sandbox,
    run::{failed, json, stderr, succeeded},
};

fn ask(sandbox: &Sandbox, cwd: &Path, question: &str) -> Output {
    sandbox.run(&["ask", "--json", "--cwd", cwd.to_str().unwrap(), question])
}

fn project(sandbox: &Sandbox, name: &str, text: &str) -> std::path::PathBuf {
    let path = sandbox.workspace(name);
    fs::write(path.join("main.rs"), text).unwrap();
    path
}

#[test]
fn what_is_no_directory_is_refused_with_what_to_do() {
    let sandbox = Sandbox::new();
    let missing = sandbox.root().join("missing");
    let said = failed(&ask(&sandbox, &missing, "where is retry?"), 1);
    assert!(said.contains("does not exist") && said.contains("give an existing directory"), "{said}");
    for wide in [sandbox.home(), sandbox.root().to_owned()] {
        let said = failed(&ask(&sandbox, &wide, "where is retry?"), 1);
        assert!(said.contains("give a project directory"), "{said}");
    }
    #[cfg(unix)]
    {
        let socket = sandbox.workspace("p").join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let said = failed(&ask(&sandbox, &socket, "where is retry?"), 1);
        assert!(said.contains("neither a directory nor a file"), "{said}");
        let said = failed(&ask(&sandbox, Path::new("//10.0.0.1/share"), "where is retry?"), 1);
        assert!(said.contains("network or device path"), "{said}");
        let said = failed(&ask(&sandbox, Path::new("/"), "where is retry?"), 1);
        assert!(said.contains("root of the file system"), "{said}");
    }
}

#[test]
fn a_file_stands_for_its_directory_and_a_link_for_what_it_leads_to() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox, "p", "fn retry_with_backoff() {}\n");
    let from_directory = json(&ask(&sandbox, &project, "where is retry_with_backoff?"));
    assert_eq!(from_directory["sources"][0]["path"], "main.rs");
    let from_file = json(&ask(&sandbox, &project.join("main.rs"), "where is retry_with_backoff?"));
    assert_eq!(from_file["workspace"], from_directory["workspace"]);
    #[cfg(unix)]
    {
        let link = sandbox.root().join("link");
        std::os::unix::fs::symlink(&project, &link).unwrap();
        let from_link = json(&ask(&sandbox, &link, "where is retry_with_backoff?"));
        assert_eq!(from_link["workspace"], from_directory["workspace"]);
    }
}

#[test]
fn an_empty_directory_has_nothing_and_says_so() {
    let sandbox = Sandbox::new();
    let empty = sandbox.workspace("empty");
    let answer = json(&ask(&sandbox, &empty, "where is retry_with_backoff?"));
    let text = answer["answer"].as_str().unwrap();
    assert!(text.starts_with("Nothing found"), "{text}");
    assert_eq!(answer["sources"].as_array().map(Vec::len), Some(0));
}

#[test]
fn two_directories_of_one_name_never_meet() {
    let sandbox = Sandbox::new();
    let office = project(&sandbox, "office/app", "fn canary_of_the_office() {}\n");
    let personal = project(&sandbox, "personal/app", "fn something_else() {}\n");
    let question = "where is canary_of_the_office?";
    assert_eq!(json(&ask(&sandbox, &office, question))["sources"][0]["path"], "main.rs");
    let answer = json(&ask(&sandbox, &personal, question));
    assert_eq!(answer["sources"].as_array().map(Vec::len), Some(0), "{answer}");
    assert_ne!(answer["search"]["verdict"], "found");
}

#[test]
fn a_workspace_that_vanishes_harms_no_other_and_may_come_back() {
    let sandbox = Sandbox::new();
    let gone = project(&sandbox, "gone", "fn first_life() {}\n");
    let other = project(&sandbox, "other", "fn still_here() {}\n");
    assert_eq!(json(&ask(&sandbox, &gone, "where is first_life?"))["sources"][0]["path"], "main.rs");
    fs::remove_dir_all(&gone).unwrap();
    let said = failed(&ask(&sandbox, &gone, "where is first_life?"), 1);
    assert!(said.contains("does not exist"), "{said}");
    assert_eq!(json(&ask(&sandbox, &other, "where is still_here?"))["sources"][0]["path"], "main.rs");
    // Another tree at the same path: the old one's handle and index are not served.
    project(&sandbox, "gone", "fn second_life() {}\n");
    assert_eq!(json(&ask(&sandbox, &gone, "where is second_life?"))["sources"][0]["path"], "main.rs");
    let answer = json(&ask(&sandbox, &gone, "where is first_life?"));
    assert!(!answer["answer"].as_str().unwrap().contains("fn first_life"), "{answer}");
}

#[test]
fn an_excluded_workspace_is_not_answered_from() {
    const CANARY: &str = "canary_in_an_excluded_file";
    let sandbox = Sandbox::new();
    let secret = project(&sandbox, "home/secret", "fn canary_in_an_excluded_file() {}\n");
    succeeded(&sandbox.run(&["config", "set", "exclude=~/secret"]));
    let said = failed(&ask(&sandbox, &secret, "where is canary in a file?"), 1);
    assert!(said.contains("excluded"), "{said}");
    for entry in walk(sandbox.data().root()) {
        let bytes = fs::read(&entry).unwrap_or_default();
        assert!(!bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()), "{}", entry.display());
    }
}

fn walk(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && path.file_name().is_some_and(|name| name != "bin") => {
                files.extend(walk(&path))
            }
            Ok(kind) if kind.is_file() => files.push(path),
            _ => {}
        }
    }
    files
}

#[test]
fn an_odd_home_is_no_obstacle() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox, "p", "fn retry_with_backoff() {}\n");
    let arguments = ["ask", "--json", "--cwd", project.to_str().unwrap(), "where is retry_with_backoff?"];
    for home in [None, Some(""), Some("/"), Some("/nonexistent"), Some("relative")] {
        let mut command = sandbox.shim(&arguments);
        match home {
            Some(home) => command.env("HOME", home),
            None => command.env_remove("HOME"),
        };
        let output = command.output().unwrap();
        assert!(output.status.success(), "HOME {home:?}: {}", stderr(&output));
        assert_eq!(json(&output)["sources"][0]["path"], "main.rs", "HOME {home:?}");
        // Each home gets a daemon of its own, since that is what the environment is read by.
        succeeded(&sandbox.run(&["stop"]));
    }
}

#[cfg(unix)]
#[test]
fn a_home_that_cannot_be_written_is_replaced_by_a_private_directory() {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};

    // A user nobody else is: modes do not stop root, and one's own fallback may be in use.
    const USER: u32 = 61_234;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can act as another user");
        return;
    }
    let sandbox = Sandbox::new();
    let project = project(&sandbox, "p", "fn retry_with_backoff() {}\n");
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(sandbox.root(), 0o755);
    mode(&sandbox.home(), 0o555);
    let as_user = |arguments: &[&str]| {
        let mut command = sandbox.shim(arguments);
        command.env_remove("LIVE_MEMORY_DATA_DIR").current_dir("/").uid(USER).gid(USER);
        command.output()
    };
    if !as_user(&["--version"]).is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: another user cannot run the binaries where they were built");
        return;
    }
    let output =
        as_user(&["ask", "--json", "--cwd", project.to_str().unwrap(), "where is retry_with_backoff?"]).unwrap();
    let stats = as_user(&["stats", "--json"]).unwrap();
    let stopped = as_user(&["stop"]).unwrap();
    let kept = json(&stats)["daemon"]["data_directory"].as_str().unwrap().to_owned();
    let private = fs::metadata(&kept).unwrap().permissions().mode() & 0o777;
    fs::remove_dir_all(Path::new(&kept).parent().unwrap()).unwrap();
    assert_eq!(json(&output)["sources"][0]["path"], "main.rs", "{}", stderr(&output));
    assert_eq!(json(&stats)["daemon"]["data_is_temporary"], true);
    assert_eq!(private, 0o700);
    succeeded(&stopped);
}
