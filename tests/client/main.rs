//! Live Memory as real clients see it: Claude Code with the plugin, the official Python SDK of the
//! protocol, and the plugin's launcher; and the daemon as the system sees it.
//!
//! The clients are not part of a Rust toolchain. `.ci/run` installs them under `target/real-clients`;
//! where they are absent their tests are reported as ignored with what is missing, unless
//! `LIVE_MEMORY_TEST_REQUIRE_CLIENTS` is set, which makes absence a failure.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed expectation is a failed test")]

mod lanes;
#[cfg(unix)]
mod launcher;
#[cfg(target_os = "linux")]
mod trace;

fn main() {
    let arguments = libtest_mimic::Arguments::from_args();
    let mut trials = lanes::trials();
    #[cfg(unix)]
    trials.extend(launcher::trials());
    #[cfg(target_os = "linux")]
    trials.extend(trace::trials());
    libtest_mimic::run(&arguments, trials).exit();
}
