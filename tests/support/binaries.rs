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

fn built() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
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
        let output = build.output().expect("cannot run cargo");
        assert!(output.status.success(), "the binaries under test do not build");
        let executable = |name: &str| {
            String::from_utf8_lossy(&output.stdout)
                .lines()
                .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
                .find(|message| message["target"]["name"] == name && message["executable"].is_string())
                .map(|message| PathBuf::from(message["executable"].as_str().unwrap()))
                .unwrap_or_else(|| panic!("cargo built no {name}"))
        };
        (executable("lm-shim"), executable("lm-core"))
    })
}
