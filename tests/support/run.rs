//! What a program said, for expectations.

use std::process::Output;

use serde_json::Value;

/// Standard output of a program that must have ended well.
pub fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}\nstderr: {}", output.status, stderr(output));
    stdout(output)
}

/// Standard error of a program that must have ended with an exit code.
pub fn failed(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "stdout: {}\nstderr: {}", stdout(output), stderr(output));
    stderr(output)
}

/// Standard output as JSON, whatever the exit code.
#[must_use]
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}\nstdout: {}\nstderr: {}", stdout(output), stderr(output)))
}

/// Standard output.
#[must_use]
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error.
#[must_use]
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
