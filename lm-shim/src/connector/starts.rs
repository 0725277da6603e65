//! When daemons were started lately, so that a broken one is not started for ever.
//!
//! Read and written under the start lock only. A record that cannot be read counts as empty, one
//! that cannot be written is forgotten: limits protect the machine, they are not worth an error.

use std::{
    fs,
    io::Write,
    time::{SystemTime, UNIX_EPOCH},
};

use lm_proto::DataDirectory;
use serde::{Deserialize, Serialize};

/// The limits hold for this long, in milliseconds.
const WINDOW_MS: u64 = 60_000;
/// Failed starts within the window.
pub(super) const FAILURES_MAX: usize = 3;
/// Replacements of a running daemon within the window.
const REPLACEMENTS_MAX: usize = 3;
/// Starts of any kind within the window: generous, since a person may stop and ask at will.
const STARTS_MAX: usize = 60;

/// Times in milliseconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Starts {
    /// Every start.
    started: Vec<u64>,
    /// Starts that failed, and those of which nobody knows yet: a starter that is ended before it
    /// knows leaves a mark.
    failed: Vec<u64>,
    /// Starts that replaced a running daemon.
    replaced: Vec<u64>,
    /// The last failure that its starter saw, 0 for none.
    seen_to_fail: u64,
}

impl Starts {
    /// Reads the record as of now.
    pub(super) fn read(data: &DataDirectory) -> Self {
        let record = fs::read(data.start_record()).ok();
        let starts: Self = record.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        starts.within_window(now_ms())
    }

    /// Writes the record.
    pub(super) fn write(&self, data: &DataDirectory) {
        let fresh = data.start_record().with_extension("json.new");
        let Ok(bytes) = serde_json::to_vec(self) else { return };
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(&fresh).and_then(|mut file| file.write_all(&bytes));
        let _ = written.and_then(|()| fs::rename(&fresh, data.start_record()));
    }

    /// Forgets what is too old, and what lies in the future after the clock was set back.
    fn within_window(mut self, now: u64) -> Self {
        for times in [&mut self.started, &mut self.failed, &mut self.replaced] {
            times.retain(|&time| time <= now && now - time < WINDOW_MS);
        }
        self.seen_to_fail = if self.seen_to_fail <= now { self.seen_to_fail } else { 0 };
        self
    }

    /// How many starts failed, and in how many seconds the next one is allowed, if not now.
    pub(super) fn refusal(&self) -> Option<(usize, u64)> {
        self.refusal_at(now_ms())
    }

    fn refusal_at(&self, now: u64) -> Option<(usize, u64)> {
        let oldest_of = |times: &[u64], max: usize| times.len().checked_sub(max).map(|index| times[index]);
        let oldest = oldest_of(&self.failed, FAILURES_MAX).max(oldest_of(&self.started, STARTS_MAX))?;
        Some((self.failed.len(), (oldest + WINDOW_MS).saturating_sub(now).div_ceil(1000)))
    }

    /// Whether another running daemon may be replaced now.
    pub(super) fn may_replace(&self) -> bool {
        self.replaced.len() < REPLACEMENTS_MAX && self.refusal().is_none()
    }

    /// Whether a start was seen to fail at or after that time.
    pub(super) fn failed_since(&self, time_ms: u64) -> bool {
        self.seen_to_fail >= time_ms
    }

    /// Notes a start, as failed until [`Starts::succeeded`] says otherwise.
    pub(super) fn begin(&mut self, replaces: bool) {
        let now = now_ms();
        self.started.push(now);
        self.failed.push(now);
        if replaces {
            self.replaced.push(now);
        }
    }

    /// The start that was begun last has led to a daemon.
    pub(super) fn succeeded(&mut self) {
        self.failed.pop();
    }

    /// The start that was begun last has failed by now.
    pub(super) fn failed(&mut self) {
        self.failed.pop();
        self.seen_to_fail = now_ms();
        self.failed.push(self.seen_to_fail);
    }
}

/// Milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_are_enough_for_a_minute() {
        let mut starts = Starts::default();
        for time in [1_000, 2_000, 3_000] {
            assert_eq!(starts.refusal_at(3_000), None);
            starts.failed.push(time);
        }
        assert_eq!(starts.refusal_at(3_000), Some((3, 58)));
        assert_eq!(starts.within_window(61_000).refusal_at(61_000), None);
    }

    #[test]
    fn a_success_clears_its_own_mark_only() {
        let mut starts = Starts::default();
        starts.begin(false);
        assert!(!starts.failed_since(starts.started[0]), "nobody knows yet");
        starts.failed();
        assert!(starts.failed_since(starts.started[0]));
        starts.begin(true);
        starts.succeeded();
        assert_eq!((starts.started.len(), starts.failed.len(), starts.replaced.len()), (2, 1, 1));
    }

    #[test]
    fn times_in_the_future_are_ignored() {
        let starts = Starts {
            failed: vec![50_000; 9],
            started: vec![50_000; 99],
            replaced: vec![50_000; 9],
            seen_to_fail: 50_000,
        };
        assert_eq!(starts.within_window(40_000), Starts::default());
    }

    #[test]
    fn replacements_are_limited_on_their_own() {
        let mut starts = Starts::default();
        for _ in 0..REPLACEMENTS_MAX {
            assert!(starts.may_replace());
            starts.begin(true);
            starts.succeeded();
        }
        assert!(!starts.may_replace());
        assert_eq!(starts.refusal(), None);
    }

    #[test]
    fn a_broken_record_counts_as_empty() {
        let temporary = tempfile::tempdir().unwrap();
        let data = DataDirectory::open_at(temporary.path().join("data")).unwrap();
        fs::write(data.start_record(), "{\"failed\": \"never\"").unwrap();
        assert_eq!(Starts::read(&data), Starts::default());
        let mut starts = Starts::default();
        starts.begin(false);
        starts.write(&data);
        assert_eq!(Starts::read(&data), starts);
    }
}
