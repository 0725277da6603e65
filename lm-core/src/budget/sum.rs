//! What some requests came to.

use std::ops::{AddAssign, SubAssign};

use serde::{Deserialize, Serialize};

use crate::llm::Usage;

const NANO: f64 = 1e9;

/// Dollars, tokens and requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sum {
    /// Billionths of a dollar, as far as prices are known.
    pub nano_usd: u64,
    /// Prompt tokens, those read from or written to a cache included.
    pub tokens_in: u64,
    /// Those of them that were read from a cache.
    pub tokens_cached: u64,
    /// Completion tokens.
    pub tokens_out: u64,
    /// Requests.
    pub requests: u64,
    /// Those of them whose dollars are not known.
    pub unpriced_requests: u64,
}

impl Sum {
    /// One request; a cost that is no amount of money counts as unknown.
    #[must_use]
    pub fn of(usage: &Usage, cost: Option<f64>) -> Self {
        let cost = cost.filter(|cost| cost.is_finite() && *cost >= 0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates and is not negative")]
        let nano_usd = cost.map(|cost| (cost * NANO).round() as u64);
        Self {
            nano_usd: nano_usd.unwrap_or(0),
            tokens_in: usage.prompt().unwrap_or(0),
            tokens_cached: usage.cache_read.unwrap_or(0),
            tokens_out: usage.output.unwrap_or(0),
            requests: 1,
            unpriced_requests: u64::from(cost.is_none()),
        }
    }

    /// Dollars, as far as prices are known.
    #[must_use]
    pub fn usd(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "shown to cents")]
        let nano = self.nano_usd as f64;
        nano / NANO
    }

    /// All tokens.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens_in.saturating_add(self.tokens_out)
    }
}

impl SubAssign for Sum {
    fn sub_assign(&mut self, other: Self) {
        let take = |mine: &mut u64, theirs: u64| *mine = mine.saturating_sub(theirs);
        take(&mut self.nano_usd, other.nano_usd);
        take(&mut self.tokens_in, other.tokens_in);
        take(&mut self.tokens_cached, other.tokens_cached);
        take(&mut self.tokens_out, other.tokens_out);
        take(&mut self.requests, other.requests);
        take(&mut self.unpriced_requests, other.unpriced_requests);
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        let add = |mine: &mut u64, theirs: u64| *mine = mine.saturating_add(theirs);
        add(&mut self.nano_usd, other.nano_usd);
        add(&mut self.tokens_in, other.tokens_in);
        add(&mut self.tokens_cached, other.tokens_cached);
        add(&mut self.tokens_out, other.tokens_out);
        add(&mut self.requests, other.requests);
        add(&mut self.unpriced_requests, other.unpriced_requests);
    }
}
