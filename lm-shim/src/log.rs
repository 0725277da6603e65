//! The shims' log: what went wrong where nobody could be told.
//!
//! A session's standard output belongs to the protocol and its standard error is read by nobody, or
//! kept for ever by a client. So notes go to a file in the data directory, opened for each note:
//! they are few, and several shims write to it and turn it over.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    panic, process,
    time::{SystemTime, UNIX_EPOCH},
};

use lm_proto::DataDirectory;

/// The file's size in bytes at which it is turned over; one older generation is kept.
const BYTES_MAX: u64 = 1 << 20;
/// The longest note in bytes.
const NOTE_BYTES_MAX: usize = 8 << 10;

/// Writes a note. Where that is not possible the note is lost: there is no better place.
pub(crate) fn note(message: &str) {
    let Ok(data) = DataDirectory::open() else { return };
    let path = data.shim_log();
    if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > BYTES_MAX) {
        drop(fs::rename(&path, path.with_extension("log.1")));
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let end = (0..=message.len().min(NOTE_BYTES_MAX)).rev().find(|&end| message.is_char_boundary(end)).unwrap_or(0);
    let line = format!("{} {} {}\n", timestamp(), process::id(), message[..end].replace('\n', " ⏎ "));
    if let Ok(mut file) = options.open(path) {
        drop(file.write_all(line.as_bytes()));
    }
}

/// Sends the words of a panic to the log instead of standard error.
pub(crate) fn take_panics() {
    panic::set_hook(Box::new(|panic| note(&format!("panic: {panic}"))));
}

/// The time in UTC, as in `2026-01-31T23:59:59Z`.
fn timestamp() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = date((seconds / 86_400) as i64);
    let second = seconds % 86_400;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a number of days after 1970-01-01, by Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>).
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_become_dates() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (20_483, (2026, 1, 30)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), expected);
        }
    }
}
