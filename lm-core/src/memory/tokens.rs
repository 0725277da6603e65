//! How many tokens a text is, estimated from its bytes and corrected by what providers report.
//!
//! No tokenizer is linked: those of the models in use are not public. Bytes per token depend on the
//! model's family; each response's usage then corrects the estimate, per model.

/// Bytes per token before any correction: what text of source trees measured against public
/// tokenizers, and the vendors' own figures where theirs are not public.
const BYTES_PER_TOKEN_RECENT_CLAUDE: f64 = 2.6;
const BYTES_PER_TOKEN_OPENAI: f64 = 3.7;
const BYTES_PER_TOKEN_OTHER: f64 = 3.3;

/// A correction is believed within these bounds only; beyond them a server misreports its usage.
const CORRECTION_MIN: f64 = 0.5;
const CORRECTION_MAX: f64 = 3.0;
/// The weight of the newest report in the running mean.
const NEWEST_WEIGHT: f64 = 0.3;
/// A report about fewer estimated tokens than this says nothing about the ratio.
const REPORT_MIN_TOKENS: u64 = 2_000;

/// Estimates tokens for one model.
#[derive(Clone, PartialEq, Debug)]
pub struct TokenEstimate {
    bytes_per_token: f64,
    mean: f64,
    last: f64,
}

impl TokenEstimate {
    /// The uncorrected estimate for a model, known by its name.
    #[must_use]
    pub fn of_model(model: &str) -> Self {
        let bytes_per_token = match Family::of(model) {
            Family::RecentClaude => BYTES_PER_TOKEN_RECENT_CLAUDE,
            Family::OpenAi => BYTES_PER_TOKEN_OPENAI,
            Family::Other => BYTES_PER_TOKEN_OTHER,
        };
        Self { bytes_per_token, mean: 1.0, last: 1.0 }
    }

    /// The same estimate with a correction that was learned before; out of bounds it is ignored.
    #[must_use]
    pub fn with_correction(mut self, correction: f64) -> Self {
        if (CORRECTION_MIN..=CORRECTION_MAX).contains(&correction) {
            self.mean = correction;
            self.last = correction;
        }
        self
    }

    /// Tokens of `bytes` bytes of text, rounded up, erring high.
    #[must_use]
    pub fn tokens(&self, bytes: usize) -> u64 {
        (bytes as f64 / self.bytes_per_token * self.correction()).ceil() as u64
    }

    /// Bytes of text that surely fit into `tokens`.
    #[must_use]
    pub fn bytes(&self, tokens: u64) -> usize {
        (tokens as f64 * self.bytes_per_token / self.correction()).floor() as usize
    }

    /// Learns from a response: the text added since the last one was `bytes` long and made the
    /// reported prompt grow by `tokens`.
    pub fn learn(&mut self, bytes: usize, tokens: u64) {
        let uncorrected = bytes as f64 / self.bytes_per_token;
        if uncorrected < REPORT_MIN_TOKENS as f64 {
            return;
        }
        let ratio = (tokens as f64 / uncorrected).clamp(CORRECTION_MIN, CORRECTION_MAX);
        self.last = ratio;
        self.mean += NEWEST_WEIGHT * (ratio - self.mean);
    }

    /// The factor by which the model's tokens exceed the uncorrected estimate; what is kept of it.
    #[must_use]
    pub fn correction(&self) -> f64 {
        self.mean.max(self.last)
    }
}

enum Family {
    RecentClaude,
    OpenAi,
    Other,
}

impl Family {
    fn of(model: &str) -> Self {
        let model = model.to_ascii_lowercase();
        if let Some((_, version)) = model.split_once("claude") {
            // `claude-haiku-5-5`, `claude-sonnet-5`, `claude-haiku-4-5-20251001`, `claude-3-5-sonnet`.
            let mut numbers =
                version.split(|other: char| !other.is_ascii_digit()).filter_map(|digits| digits.parse::<u32>().ok());
            let major = numbers.next().unwrap_or(u32::MAX);
            let minor = numbers.next().filter(|&minor| minor < 100).unwrap_or(0);
            // From 4.7 on the tokenizer counts about 30 % more for the same text.
            if (major, minor) >= (4, 7) { Self::RecentClaude } else { Self::Other }
        } else if model.contains("gpt")
            || model.strip_prefix('o').is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()))
        {
            Self::OpenAi
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn families_differ() {
        let tokens = |model| TokenEstimate::of_model(model).tokens(10_000);
        assert!(tokens("claude-haiku-5-5") > tokens("claude-haiku-4-5-20251001"));
        assert_eq!(tokens("claude-opus-4-8"), tokens("anthropic.claude-sonnet-5"));
        assert_eq!(tokens("claude-sonnet-4-6"), tokens("claude-3-5-sonnet-20241022"));
        assert!(tokens("claude-haiku-4-5") > tokens("gpt-6-luna"));
        assert_eq!(tokens("deepseek-flash"), tokens("qwen3"));
        assert_eq!(tokens("o4-mini"), tokens("gpt-6"));
        assert_eq!(tokens("olmo"), tokens("qwen3"));
    }

    #[test]
    fn it_learns_fast_upwards_and_slowly_downwards() {
        let mut estimate = TokenEstimate::of_model("unknown");
        let before = estimate.tokens(33_000);
        estimate.learn(33_000, 20_000);
        assert_eq!(estimate.tokens(33_000), 20_000);
        estimate.learn(33_000, 10_000);
        let after = estimate.tokens(33_000);
        assert!(before < after && after < 20_000, "{before} {after}");
    }

    #[test]
    fn small_and_absurd_reports_do_no_harm() {
        let mut estimate = TokenEstimate::of_model("unknown");
        estimate.learn(100, 90_000);
        assert_eq!(estimate.tokens(3_300), 1_000);
        estimate.learn(330_000, u64::MAX);
        assert_eq!(estimate.tokens(3_300), 3_000);
        estimate.learn(330_000, 0);
        assert!(estimate.tokens(3_300) >= 500);
    }

    proptest! {
        #[test]
        fn what_fits_by_bytes_fits_by_tokens(tokens in 0_u64..2_000_000, reported in 0_u64..200_000) {
            let mut estimate = TokenEstimate::of_model("claude-haiku-5-5");
            estimate.learn(100_000, reported);
            prop_assert!(estimate.tokens(estimate.bytes(tokens)) <= tokens);
        }
    }
}
