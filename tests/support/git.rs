//! Real git repositories, where git is installed.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
};

use crate::Sandbox;

/// Whether git can be run; where not, says once what is skipped for it.
#[must_use]
pub fn is_there() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| {
        let there = Command::new("git").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let there = there.is_ok_and(|status| status.success());
        if !there {
            report_skipped();
        }
        there
    })
}

#[expect(clippy::print_stderr, reason = "a test that did not run must be seen in its output")]
fn report_skipped() {
    eprintln!("skipped: git is not installed, and these tests need real repositories");
}

/// Runs git in a directory, knowing no configuration but this sandbox's.
pub fn run(sandbox: &Sandbox, directory: &Path, arguments: &[&str]) {
    let output = sandbox
        .command(Path::new("git"))
        .current_dir(directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"])
        .args(["-c", "protocol.file.allow=always", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .output()
        .expect("cannot run git");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A repository with one committed file.
pub fn repository(sandbox: &Sandbox, directory: &Path, file: &str, text: &str) {
    std::fs::create_dir_all(directory).unwrap();
    run(sandbox, directory, &["init", "--quiet"]);
    std::fs::write(directory.join(file), text).unwrap();
    run(sandbox, directory, &["add", "."]);
    run(sandbox, directory, &["commit", "--quiet", "--message", "first"]);
}
