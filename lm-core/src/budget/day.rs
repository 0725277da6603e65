//! Days of UTC.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

const SECONDS: u64 = 24 * 60 * 60;

/// A day, counted from 1970-01-01.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Day(u32);

impl Day {
    /// The day of a moment; one before 1970 counts to the first.
    #[must_use]
    pub fn of(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self(u32::try_from(seconds / SECONDS).unwrap_or(u32::MAX))
    }

    /// When the next day begins.
    #[must_use]
    pub fn end(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs((u64::from(self.0) + 1) * SECONDS)
    }

    /// How many days lie between two.
    #[must_use]
    pub fn distance(self, other: Self) -> u32 {
        self.0.abs_diff(other.0)
    }

    /// Year, month and day of the month in the Gregorian calendar
    /// (<https://howardhinnant.github.io/date_algorithms.html#civil_from_days>, for days from 1970 on).
    #[must_use]
    pub fn date(self) -> (u64, u64, u64) {
        let days = u64::from(self.0) + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        (year, month, of_year - (153 * shifted + 2) / 5 + 1)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        write!(formatter, "{year:04}-{month:02}-{day:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (seconds, date) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_799, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_796_083_199, "2026-11-30"),
            (1_796_083_200, "2026-12-01"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(Day::of(UNIX_EPOCH + Duration::from_secs(seconds)).to_string(), date, "{seconds}");
        }
        let day = Day::of(UNIX_EPOCH + Duration::from_secs(1_796_083_200));
        assert_eq!(Day::of(day.end()).distance(day), 1);
        assert_eq!(Day::of(UNIX_EPOCH - Duration::from_secs(1)).to_string(), "1970-01-01");
    }
}
