//! What a session costs at published prices.
//!
//! Read from the product's own table, but computed apart from it, so that the two can disagree.

use serde_json::Value;

use super::caching::Tokens;

const TABLE: &str = include_str!("../../../lm-core/data/prices.json");

/// Where nothing is published, a prompt of so many tokens is cached.
const USUAL_MINIMUM: u64 = 1024;

fn published(model: &str) -> Option<Value> {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    let models = table["models"].as_array().unwrap();
    let dated = |known: &str| known.len() == model.len() + 9 && known.starts_with(model);
    models
        .iter()
        .find(|facts| facts["model"] == model)
        .or_else(|| models.iter().find(|facts| dated(facts["model"].as_str().unwrap())))
        .cloned()
}

/// The shortest prompt of a model that is cached.
#[must_use]
pub fn minimum_cacheable(model: &str) -> u64 {
    published(model).and_then(|facts| facts["minimum_cacheable_tokens"].as_u64()).unwrap_or(USUAL_MINIMUM)
}

/// What one request costs; `None` for a model without published prices.
#[must_use]
pub fn dollars(model: &str, tokens: &Tokens, output: u64) -> Option<f64> {
    let facts = published(model)?;
    let step = &facts["step"];
    let long = step["above_prompt_tokens"].as_u64().is_some_and(|above| tokens.prompt() > above);
    let rate = |name: &str| if long { step[name].as_f64() } else { facts[name].as_f64() };
    let input = rate("input_per_mtok")?;
    let parts = [
        (tokens.input, input),
        (tokens.read, rate("cache_read_per_mtok")?),
        (tokens.write_5m, rate("cache_write_5m_per_mtok").unwrap_or(input)),
        (tokens.write_1h, rate("cache_write_1h_per_mtok").unwrap_or(input)),
        (output, rate("output_per_mtok")?),
    ];
    Some(parts.iter().map(|(count, rate)| *count as f64 * rate).sum::<f64>() / 1e6)
}

/// The sum over a session.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Bill {
    /// Requests that were answered.
    pub requests: u64,
    /// Prompt tokens by kind.
    pub tokens: Tokens,
    /// Completion tokens.
    pub output: u64,
    /// What it costs; models without published prices count nothing.
    pub dollars: f64,
}

impl Bill {
    /// Adds a request.
    pub fn add(&mut self, model: &str, tokens: &Tokens, output: u64) {
        self.requests += 1;
        self.tokens.input += tokens.input;
        self.tokens.read += tokens.read;
        self.tokens.write_5m += tokens.write_5m;
        self.tokens.write_1h += tokens.write_1h;
        self.tokens.ideal_read += tokens.ideal_read;
        self.output += output;
        self.dollars += dollars(model, tokens, output).unwrap_or(0.0);
    }

    /// What ideal cache marks could have read and these did not, as a share of all prompt tokens.
    #[must_use]
    pub fn loss(&self) -> f64 {
        (self.tokens.ideal_read - self.tokens.read) as f64 / self.tokens.prompt().max(1) as f64
    }

    /// The share of prompt tokens that came from the cache.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        self.tokens.read as f64 / self.tokens.prompt().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(actual: Option<f64>, expected: f64) {
        assert!((actual.unwrap() - expected).abs() < expected * 0.005, "{actual:?} is not {expected}");
    }

    #[test]
    fn a_question_over_ninety_thousand_tokens() {
        let warm = Tokens { input: 1500, read: 90_000, ..Tokens::default() };
        close(dollars("claude-haiku-5-5", &warm, 600), 0.001_35);
        close(dollars("claude-haiku-4-5", &warm, 600), 0.013_5);
        let cold = Tokens { write_5m: 90_000, ..Tokens::default() };
        close(dollars("claude-haiku-5-5", &cold, 0), 0.011_25);
        let long = Tokens { input: 1500, read: 180_000, ..Tokens::default() };
        close(dollars("claude-haiku-5-5", &long, 600), 0.011_25);
        assert_eq!(dollars("unheard-of", &cold, 0), None);
        assert_eq!((minimum_cacheable("claude-haiku-4-5"), minimum_cacheable("claude-haiku-5-5")), (4096, 512));
    }

    #[test]
    fn a_session_adds_up() {
        let mut bill = Bill::default();
        let tokens = |input, read, ideal_read| Tokens { input, read, ideal_read, ..Tokens::default() };
        bill.add("claude-haiku-5-5", &tokens(1000, 0, 0), 100);
        bill.add("claude-haiku-5-5", &tokens(500, 500, 800), 100);
        close(Some(bill.dollars), (1500.0 * 0.1 + 500.0 * 0.01 + 200.0 * 0.5) / 1e6);
        assert!((bill.loss() - 0.15).abs() < 1e-9 && (bill.hit_ratio() - 0.25).abs() < 1e-9);
    }
}
