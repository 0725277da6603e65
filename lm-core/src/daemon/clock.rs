//! What time it is: the system's clock, which tests can move.

use std::{
    env, fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::workspace::Clock;

/// Names a file with an offset in seconds that is added to the clock; it is how tests let a day or a
/// cache's lifetime pass (`docs/testing.md`).
pub const CLOCK_FILE_VARIABLE: &str = "LIVE_MEMORY_TEST_CLOCK_FILE";

/// The clock of this process.
#[must_use]
pub fn clock() -> Clock {
    match env::var_os(CLOCK_FILE_VARIABLE).filter(|value| !value.is_empty()) {
        None => Arc::new(SystemTime::now),
        Some(file) => moved_by(file.into()),
    }
}

fn moved_by(file: PathBuf) -> Clock {
    Arc::new(move || {
        let offset = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        SystemTime::now() + Duration::from_secs(offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_the_offset_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("offset");
        let clock = moved_by(file.clone());
        let ahead = || clock().duration_since(SystemTime::now()).unwrap_or_default().as_secs();
        assert_eq!(ahead(), 0, "a file that is missing moves nothing");
        fs::write(&file, "86400\n").unwrap();
        assert!((86_390..=86_400).contains(&ahead()));
    }
}
