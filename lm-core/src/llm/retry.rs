//! When to try again. Pure: time comes in as values.

use std::time::{Duration, SystemTime};

/// How often a request is sent again after something transient.
pub(super) const MAX_RETRIES: u32 = 3;

/// The first pause; each further one doubles, as the vendors' own clients do.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause that no server asked for.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Whether a status means "not now" rather than "not like this".
pub(super) fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 409 | 429 | 500 | 502 | 503 | 504 | 529)
}

/// The pause before the `retry`th repetition (from 0); `random` in 0..1 takes up to a quarter off,
/// so that many clients do not come back at once.
pub(super) fn pause(retry: u32, random: f64) -> Duration {
    let full = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(retry)).min(LONGEST_PAUSE);
    full.mul_f64(1.0 - 0.25 * random.clamp(0.0, 1.0))
}

/// A server that asks for a longer rest is asked again all the same after this: it may be wrong, and
/// nobody would know that it works again.
const LONGEST_REST: Duration = Duration::from_secs(60 * 60);

/// What a server asks for, up to [`LONGEST_REST`]: `retry-after-ms`, else `retry-after` in seconds or as a date.
pub(super) fn requested(milliseconds: Option<&str>, seconds: Option<&str>, now: SystemTime) -> Option<Duration> {
    let number = |text: &str, scale: f64| {
        let value = text.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)?;
        Some(Duration::try_from_secs_f64(value * scale).unwrap_or(LONGEST_REST))
    };
    let asked = milliseconds.and_then(|text| number(text, 0.001)).or_else(|| {
        let text = seconds?;
        number(text, 1.0).or_else(|| {
            let date = httpdate::parse_http_date(text.trim()).ok()?;
            Some(date.duration_since(now).unwrap_or_default())
        })
    });
    asked.map(|rest| rest.min(LONGEST_REST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let pauses: Vec<u128> = (0..6).map(|retry| pause(retry, 0.0).as_millis()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 8000]);
        assert_eq!(pause(0, 1.0).as_millis(), 375);
        assert_eq!(pause(u32::MAX, 0.0), LONGEST_PAUSE);
    }

    #[test]
    fn a_servers_wish_is_read_in_every_form() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let wish = |ms, s| requested(ms, s, now);
        assert_eq!(wish(Some("1500"), Some("9")), Some(Duration::from_millis(1500)));
        assert_eq!(wish(Some("soon"), Some("2")), Some(Duration::from_secs(2)));
        assert_eq!(wish(None, Some(" 0.5 ")), Some(Duration::from_millis(500)));
        assert_eq!(wish(None, Some("Sun, 06 Nov 1994 08:50:37 GMT")), Some(Duration::from_secs(60)));
        assert_eq!(wish(None, Some("Sun, 06 Nov 1994 08:00:00 GMT")), Some(Duration::ZERO));
        for long in ["99999", "1e18", "1e300", "Fri, 31 Dec 9999 23:59:59 GMT"] {
            assert_eq!(wish(None, Some(long)), Some(LONGEST_REST), "{long}");
        }
        for nonsense in ["-1", "NaN", "1e400", "later", ""] {
            assert_eq!(wish(None, Some(nonsense)), None, "{nonsense}");
        }
    }
}
