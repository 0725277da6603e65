//! How much may be spent in a day, and what is said when it was.

use std::time::{Duration, SystemTime};

use super::{day::Day, sum::Sum};
use crate::llm::pricing::dollars;

/// The most that may be spent in a day of UTC; 0 is no limit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Limits {
    /// Dollars.
    pub usd: f64,
    /// Tokens, in and out, cached ones included.
    pub tokens: u64,
}

/// Today's limit was reached.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Reached {
    /// In dollars.
    #[error(
        "the daily budget of {} is used up: {} spent today (UTC) in {} requests{}; it resets at {} (in {}), or raise \
         it with `lm-shim config set daily_budget_usd={}`",
        dollars(*limit), dollars(spent.usd()), spent.requests, unpriced_text(spent), resets_text(*now), left_text(*now),
        raised(*limit, spent.usd())
    )]
    Dollars {
        /// The limit.
        limit: f64,
        /// What was spent today.
        spent: Sum,
        /// When that was found.
        now: SystemTime,
    },
    /// In tokens.
    #[error(
        "the daily budget of {limit} tokens is used up: {} tokens today (UTC) in {} requests; it resets at {} (in {}), \
         or raise it with `lm-shim config set daily_budget_tokens={}`",
        spent.tokens(), spent.requests, resets_text(*now), left_text(*now), limit.saturating_mul(2)
    )]
    Tokens {
        /// The limit.
        limit: u64,
        /// What was spent today.
        spent: Sum,
        /// When that was found.
        now: SystemTime,
    },
}

impl Limits {
    /// Whether more may be spent on a day on which so much was.
    ///
    /// # Errors
    /// Which limit was reached, when it resets and how to raise it.
    pub fn check(&self, today: &Sum, now: SystemTime) -> Result<(), Reached> {
        if self.usd > 0.0 && today.usd() >= self.usd {
            return Err(Reached::Dollars { limit: self.usd, spent: *today, now });
        }
        if self.tokens > 0 && today.tokens() >= self.tokens {
            return Err(Reached::Tokens { limit: self.tokens, spent: *today, now });
        }
        Ok(())
    }

    /// The limits in words: `$5.00`, `$5.00 or 1000000 tokens`, `no limit`.
    #[must_use]
    pub fn text(&self) -> String {
        match (self.usd > 0.0, self.tokens > 0) {
            (false, false) => "no limit".to_owned(),
            (true, false) => dollars(self.usd),
            (false, true) => format!("{} tokens", self.tokens),
            (true, true) => format!("{} or {} tokens", dollars(self.usd), self.tokens),
        }
    }
}

/// What is to be said where a limit in dollars cannot hold, since the model's price is not known.
#[must_use]
pub fn price_note(model: &str, price_known: bool, limits: &Limits) -> Option<String> {
    if price_known || limits.usd <= 0.0 {
        return None;
    }
    let instead = if limits.tokens > 0 { "the limit in tokens does" } else { "daily_budget_tokens can" };
    Some(format!(
        "the price of {model} is not known, so the daily budget of {} cannot hold for it ({instead}); set price_input \
         and price_output, in dollars per million tokens",
        dollars(limits.usd)
    ))
}

fn unpriced_text(spent: &Sum) -> String {
    match spent.unpriced_requests {
        0 => String::new(),
        count => format!(" ({count} of them of unknown price, not counted in dollars)"),
    }
}

/// A number that can be typed and allows as much again, or twice of what was spent where that is more.
fn raised(limit: f64, spent: f64) -> String {
    let doubled = if limit * 2.0 > spent { limit * 2.0 } else { spent * 2.0 };
    if doubled >= 1.0 { format!("{:.0}", doubled.ceil()) } else { format!("{doubled:.4}") }
}

fn resets_text(now: SystemTime) -> String {
    format!("{} 00:00 UTC", Day::of(Day::of(now).end()))
}

fn left_text(now: SystemTime) -> String {
    // Up to the next full minute: "in 0 min" would be no time.
    let minutes = Day::of(now).end().duration_since(now).unwrap_or(Duration::ZERO).as_secs().div_ceil(60);
    match minutes {
        0..60 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}
