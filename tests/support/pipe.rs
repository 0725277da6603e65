//! Named pipes, which stand where a program expects a file.

use std::{path::Path, process::Command};

/// Makes one. By the program that every Unix has, since the system call is not to be had everywhere.
pub fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").args(["-m", "600"]).arg(path).status();
    assert!(made.is_ok_and(|status| status.success()), "cannot make the pipe {}", path.display());
}
