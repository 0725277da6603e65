//! The plugin's launcher alone: which `lm-shim` it becomes, and what it says where there is none.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    os::unix::{ffi::OsStringExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, SystemTime},
};

use libtest_mimic::Trial;
use tempfile::TempDir;

const LAUNCHER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugin/bin/lm-shim");

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 7] = [
        ("the_freshest_build_of_a_clone_is_run", the_freshest_build_of_a_clone_is_run),
        ("either_half_of_a_build_makes_it_fresh", either_half_of_a_build_makes_it_fresh),
        ("a_target_directory_elsewhere_is_honoured", a_target_directory_elsewhere_is_honoured),
        ("a_shipped_binary_comes_before_any_build", a_shipped_binary_comes_before_any_build),
        ("arguments_and_odd_paths_arrive_unchanged", arguments_and_odd_paths_arrive_unchanged),
        ("a_link_to_the_launcher_works", a_link_to_the_launcher_works),
        ("nothing_to_run_is_said_with_the_remedy", nothing_to_run_is_said_with_the_remedy),
    ];
    tests
        .into_iter()
        .map(|(name, test)| {
            Trial::test(format!("launcher::{name}"), move || {
                test();
                Ok(())
            })
        })
        .collect()
}

/// A clone with the launcher and whatever was "built": scripts that print their path and arguments.
struct Clone {
    root: TempDir,
}

impl Clone {
    fn new() -> Self {
        let root = tempfile::Builder::new().prefix("a clöne ").tempdir().unwrap();
        let clone = Self { root };
        fs::create_dir_all(clone.path("plugin/bin")).unwrap();
        fs::copy(LAUNCHER, clone.launcher()).unwrap();
        fs::write(clone.path("Cargo.toml"), "[workspace]\n").unwrap();
        clone
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    fn launcher(&self) -> PathBuf {
        self.path("plugin/bin/lm-shim")
    }

    /// A file that was built so many seconds ago.
    fn built(&self, relative: &str, age_s: u64) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\"\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .set_modified(SystemTime::now() - Duration::from_secs(age_s))
            .unwrap();
        path
    }

    /// What the launcher runs, under every POSIX shell of this machine.
    fn assert_runs(&self, expected: &Path) {
        for shell in shells() {
            let output = launch(Command::new(shell[0]).args(&shell[1..]).arg(self.launcher()));
            assert_eq!(ran(&output), expected.canonicalize().unwrap(), "{shell:?}: {output:?}");
        }
    }
}

fn shells() -> Vec<Vec<&'static str>> {
    let known = [vec!["sh"], vec!["dash"], vec!["bash", "--posix"], vec!["busybox", "sh"], vec!["ksh"]];
    known
        .into_iter()
        .filter(|shell| {
            Command::new(shell[0])
                .args(&shell[1..])
                .args(["-c", ":"])
                .output()
                .is_ok_and(|output| output.status.success())
        })
        .collect()
}

fn launch(command: &mut Command) -> Output {
    command.env_remove("CARGO_TARGET_DIR").current_dir("/").output().unwrap()
}

fn ran(output: &Output) -> PathBuf {
    let first = output.stdout.split(|&byte| byte == b'\n').next().unwrap();
    PathBuf::from(OsString::from_vec(first.to_vec()))
        .canonicalize()
        .unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn the_freshest_build_of_a_clone_is_run() {
    let clone = Clone::new();
    let debug = clone.built("target/debug/lm-shim", 20);
    clone.assert_runs(&debug);
    let release = clone.built("target/release/lm-shim", 10);
    clone.assert_runs(&release);
    let debug = clone.built("target/debug/lm-shim", 0);
    clone.assert_runs(&debug);
}

fn either_half_of_a_build_makes_it_fresh() {
    let clone = Clone::new();
    let debug = clone.built("target/debug/lm-shim", 30);
    clone.built("target/release/lm-shim", 20);
    clone.built("target/release/lm-core", 20);
    // Only the daemon's sources were changed, so the debug shim was not linked again.
    clone.built("target/debug/lm-core", 0);
    clone.assert_runs(&debug);
}

fn a_target_directory_elsewhere_is_honoured() {
    let clone = Clone::new();
    let inside = clone.built("target/debug/lm-shim", 0);
    let elsewhere = clone.built("else where/debug/lm-shim", 10);
    let run = |directory: &Path| {
        ran(&Command::new(clone.launcher()).env("CARGO_TARGET_DIR", directory).current_dir("/").output().unwrap())
    };
    assert_eq!(run(&clone.path("else where")), elsewhere.canonicalize().unwrap());
    // A relative one means another directory to every process; the clone's own is taken.
    assert_eq!(run(Path::new("else where")), inside.canonicalize().unwrap());
}

fn a_shipped_binary_comes_before_any_build() {
    let clone = Clone::new();
    let build = clone.built("target/debug/lm-shim", 0);
    clone.built("plugin/bin/plan9-vax/lm-shim", 0);
    clone.assert_runs(&build);
    let shipped = clone.built(&format!("plugin/bin/{}-{}/lm-shim", env::consts::OS, env::consts::ARCH), 100);
    clone.assert_runs(&shipped);
}

fn arguments_and_odd_paths_arrive_unchanged() {
    let clone = Clone::new();
    clone.built("target/debug/lm-shim", 0);
    let arguments = ["ask", "--cwd", "/a b", "what's \"this\" * $HOME `id`?", ""];
    let output = launch(Command::new(clone.launcher()).args(arguments));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.split('\n').skip(1).collect::<Vec<_>>(), [&arguments[..], &[""]].concat());
}

fn a_link_to_the_launcher_works() {
    let clone = Clone::new();
    let build = clone.built("target/debug/lm-shim", 0);
    fs::create_dir(clone.path("links")).unwrap();
    std::os::unix::fs::symlink(clone.launcher(), clone.path("links/absolute")).unwrap();
    std::os::unix::fs::symlink("absolute", clone.path("links/relative")).unwrap();
    let output = launch(&mut Command::new(clone.path("links/relative")));
    assert_eq!(ran(&output), build.canonicalize().unwrap());
}

fn nothing_to_run_is_said_with_the_remedy() {
    let clone = Clone::new();
    let said = || {
        let output = launch(&mut Command::new(clone.launcher()));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty(), "stdout belongs to the protocol: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let in_a_clone = said();
    assert!(in_a_clone.contains("cargo build --release --workspace"), "{in_a_clone}");
    assert!(in_a_clone.contains(clone.root.path().canonicalize().unwrap().to_str().unwrap()), "{in_a_clone}");
    // An installed plugin without this platform's binary does not run what lies around it.
    fs::remove_file(clone.path("Cargo.toml")).unwrap();
    clone.built("target/debug/lm-shim", 0);
    let installed = said();
    assert!(installed.contains("no lm-shim for"), "{installed}");
}
