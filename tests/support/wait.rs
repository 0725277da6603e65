//! Waiting for conditions, never for luck.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long anything may take before a test fails; generous, since it is only waited out on failure.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until `condition` gives a value; `what` names it in the failure.
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
