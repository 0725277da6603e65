//! The binaries under test, built once per run.
//!
//! `cargo test --workspace` does not build the binaries of other members, and an old one may lie
//! where a new one is expected; so they are built here, and found by what cargo reports.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// A directory with binaries that were built elsewhere, as for tests that run under wine.
const PREBUILT_VARIABLE: &str = "LIVE_MEMORY_TEST_BINARIES";

/// `lm-shim`.
#[must_use]
pub fn shim() -> &'static Path {
    &built().0
}

/// `lm-core`, in the same directory.
#[must_use]
pub fn core() -> &'static Path {
    &built().1
}

/// `lm-shim`, if it has been built; nothing is built for it.
#[must_use]
pub fn built_shim() -> Option<&'static Path> {
    BUILT.get().map(|(shim, _)| shim.as_path())
}

/// Copies a program that is to be run from elsewhere.
///
/// By another process: a file that this one has open for writing could be inherited by what another
/// test starts at that moment, and the system runs no program that is open for writing.
pub fn copy(program: &Path, to: &Path) {
    if cfg!(unix) {
        assert!(Command::new("cp").arg(program).arg(to).status().expect("cannot run cp").success());
    } else {
        std::fs::copy(program, to).expect("cannot copy a program");
    }
}

static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();

fn built() -> &'static (PathBuf, PathBuf) {
    BUILT.get_or_init(|| {
        let name = |stem: &str| format!("{stem}{}", env::consts::EXE_SUFFIX);
        if let Some(directory) = env::var_os(PREBUILT_VARIABLE).map(PathBuf::from) {
            return (directory.join(name("lm-shim")), directory.join(name("lm-core")));
        }
        // With the tests, so that dependencies are those of `cargo test --workspace` and not built anew.
        let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .args(["build", "--workspace", "--bins", "--tests", "--message-format=json-render-diagnostics"])
            .stderr(Stdio::inherit());
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        // What cargo told this test about its own package would make build scripts that look at
        // those variables run anew, and much be compiled again with them.
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
                build.env_remove(name);
            }
        }
        let output = build.output().expect("cannot run cargo");
        assert!(output.status.success(), "the binaries under test do not build");
        let executable = |name: &str| {
            String::from_utf8_lossy(&output.stdout)
                .lines()
                .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
                // A binary's unit tests are an executable of the same name.
                .find(|message| {
                    message["target"]["name"] == name
                        && message["profile"]["test"] == false
                        && message["executable"].is_string()
                })
                .map(|message| PathBuf::from(message["executable"].as_str().unwrap()))
                .unwrap_or_else(|| panic!("cargo built no {name}"))
        };
        (executable("lm-shim"), executable("lm-core"))
    })
}
