//! Finding, starting, replacing and ending the daemon.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation is a failed test")]

mod broken;
mod life;
mod start;
#[cfg(unix)]
mod unix;
mod versions;
