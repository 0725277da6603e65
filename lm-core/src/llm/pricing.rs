//! What a usage costs, and other figures that are published per model. Pure.
//!
//! The figures are those of `data/prices.json`, each with its source and the day it was checked. An
//! unknown model has no price: it is said to be unknown, never guessed. Prices that vary with the
//! time of day are kept at their peak, so that a budget errs on the safe side.

use std::sync::LazyLock;

use serde::Deserialize;

use super::Usage;

/// Per million tokens.
const MILLION: f64 = 1_000_000.0;

/// What a million tokens of each kind cost, in dollars.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Rates {
    /// Prompt tokens outside any cache.
    #[serde(rename = "input_per_mtok")]
    pub input: f64,
    /// Completion tokens.
    #[serde(rename = "output_per_mtok")]
    pub output: f64,
    /// Prompt tokens read from the cache.
    #[serde(rename = "cache_read_per_mtok")]
    pub cache_read: f64,
    /// Prompt tokens written to the short-lived cache; absent where a write costs what input costs.
    #[serde(rename = "cache_write_5m_per_mtok")]
    pub cache_write_5m: Option<f64>,
    /// Prompt tokens written for one hour.
    #[serde(rename = "cache_write_1h_per_mtok")]
    pub cache_write_1h: Option<f64>,
}

impl Rates {
    fn cost(&self, usage: &Usage) -> f64 {
        // Where writing has no price of its own, and where it is listed as free, the tokens are
        // reported as input as well or not at all.
        let short = self.cache_write_5m.unwrap_or(self.input);
        let parts = [
            (usage.input, self.input),
            (usage.cache_read, self.cache_read),
            (usage.cache_write_5m, short),
            (usage.cache_write_1h, self.cache_write_1h.unwrap_or(short)),
            (usage.output, self.output),
        ];
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        parts.iter().map(|(tokens, rate)| tokens.unwrap_or(0) as f64 * rate / MILLION).sum()
    }
}

/// Other rates for the whole of a request whose prompt is long.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct PriceStep {
    /// The prompt in tokens, cached ones included, above which they hold.
    pub above_prompt_tokens: u64,
    /// The rates.
    #[serde(flatten)]
    pub rates: Rates,
}

/// What is published about a model.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct ModelFacts {
    /// Its id.
    pub model: String,
    /// Who sells it.
    pub provider: String,
    /// The window in tokens.
    pub context_tokens: u64,
    /// The longest completion in tokens.
    pub max_output_tokens: Option<u64>,
    /// A shorter prompt is not cached.
    pub minimum_cacheable_tokens: Option<u64>,
    /// The rates.
    #[serde(flatten)]
    pub rates: Rates,
    /// The rates for long prompts.
    pub step: Option<PriceStep>,
    /// What else there is to know.
    pub note: Option<String>,
    /// Where the figures come from.
    pub source: String,
    /// When they were checked, `YYYY-MM-DD`.
    pub checked: String,
}

#[derive(Debug, Deserialize)]
struct Retired {
    model: String,
    successor: String,
}

#[derive(Debug, Default, Deserialize)]
struct Table {
    models: Vec<ModelFacts>,
    retired: Vec<Retired>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/prices.json")).unwrap_or_else(|error| {
        // A test reads the same file; without it every price is unknown, which is what is said.
        tracing::error!(%error, "the price table cannot be read");
        Table::default()
    })
});

/// The id without the date of its release, which may be given or left out.
fn undated(model: &str) -> &str {
    match model.rsplit_once('-') {
        Some((name, date)) if date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => model.strip_suffix("-latest").unwrap_or(model),
    }
}

/// Whether two ids name the same model: the date of a release, the tag `latest`, and the collection that
/// some servers put in front may be left out.
#[must_use]
pub fn is_same_model(listed: &str, model: &str) -> bool {
    let name = |id| undated(str::strip_suffix(id, ":latest").unwrap_or(id));
    name(listed.strip_prefix("models/").unwrap_or(listed)) == name(model)
}

/// What is known of a model.
#[must_use]
pub fn facts(model: &str) -> Option<&'static ModelFacts> {
    let models = &TABLE.models;
    models
        .iter()
        .find(|facts| facts.model == model)
        .or_else(|| models.iter().find(|facts| undated(&facts.model) == undated(model)))
}

/// The successor of a model that its vendor no longer serves.
#[must_use]
pub fn successor(model: &str) -> Option<&'static str> {
    TABLE.retired.iter().find(|retired| retired.model == model).map(|retired| retired.successor.as_str())
}

/// The prices that hold for a person: the published ones or what the person set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prices {
    rates: Rates,
    step: Option<PriceStep>,
}

/// What a person can set: dollars per million tokens, and cache prices as multiples of the input's.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PriceOverrides {
    /// `PRICE_INPUT`.
    pub input: Option<f64>,
    /// `PRICE_OUTPUT`.
    pub output: Option<f64>,
    /// `PRICE_CACHE_READ_MULT`.
    pub cache_read_multiple: Option<f64>,
    /// `PRICE_CACHE_WRITE_MULT`.
    pub cache_write_multiple: Option<f64>,
}

impl Prices {
    /// The prices of a model; `None` if they are unknown. An unknown model becomes known by setting
    /// both input and output; its cached tokens count like others unless that is set too.
    #[must_use]
    pub fn of(model: &str, overrides: &PriceOverrides) -> Option<Self> {
        let published = facts(model);
        if *overrides == PriceOverrides::default() {
            return published.map(|facts| Self { rates: facts.rates, step: facts.step });
        }
        let base = published.map(|facts| facts.rates);
        let adjusted = |base: Option<Rates>| {
            let input = overrides.input.or(base.map(|base| base.input))?;
            let output = overrides.output.or(base.map(|base| base.output))?;
            // Published cache prices keep their proportion to the input.
            let scaled =
                |price: f64| base.filter(|base| base.input > 0.0).map_or(price, |base| price * input / base.input);
            let write = overrides.cache_write_multiple.map(|multiple| multiple * input);
            Some(Rates {
                input,
                output,
                cache_read: match (overrides.cache_read_multiple, base) {
                    (Some(multiple), _) => multiple * input,
                    (None, Some(base)) => scaled(base.cache_read),
                    (None, None) => input,
                },
                cache_write_5m: write.or_else(|| base.and_then(|base| base.cache_write_5m).map(scaled)),
                cache_write_1h: write.or_else(|| base.and_then(|base| base.cache_write_1h).map(scaled)),
            })
        };
        // A price that a person set is the price at every length.
        let step = if overrides.input.is_some() || overrides.output.is_some() {
            None
        } else {
            published.and_then(|facts| facts.step).and_then(|step| {
                Some(PriceStep { above_prompt_tokens: step.above_prompt_tokens, rates: adjusted(Some(step.rates))? })
            })
        };
        Some(Self { rates: adjusted(base)?, step })
    }

    /// What a request costs in dollars; `None` if the provider reported nothing to count.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Option<f64> {
        let prompt = usage.prompt();
        if prompt.is_none() && usage.output.is_none() {
            return None;
        }
        let rates = match self.step {
            Some(step) if prompt.unwrap_or(0) > step.above_prompt_tokens => step.rates,
            _ => self.rates,
        };
        Some(rates.cost(usage))
    }

    /// The longest prompt in tokens at the lower price, if there is a step.
    #[must_use]
    pub fn step_at(&self) -> Option<u64> {
        self.step.map(|step| step.above_prompt_tokens)
    }
}

/// `$5.00`, `$0.0013`: small amounts keep two digits that say something.
#[must_use]
pub fn dollars(amount: f64) -> String {
    if amount == 0.0 || amount >= 0.1 {
        format!("${amount:.2}")
    } else if amount >= 0.000_1 {
        format!("${amount:.4}")
    } else {
        "under $0.0001".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(model: &str, usage: &Usage) -> f64 {
        Prices::of(model, &PriceOverrides::default()).unwrap().cost(usage).unwrap()
    }

    fn close(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < expected * 0.005, "{actual} is not {expected}");
    }

    /// A question over a prefix that the cache holds.
    fn warm(prefix: u64) -> Usage {
        Usage { input: Some(1500), cache_read: Some(prefix), output: Some(600), ..Usage::default() }
    }

    #[test]
    fn the_table_is_whole() {
        let table: Table = serde_json::from_str(include_str!("../../data/prices.json")).unwrap();
        assert!(table.models.len() >= 30);
        for facts in &table.models {
            assert!(facts.rates.input > 0.0 && facts.rates.cache_read <= facts.rates.input, "{}", facts.model);
            assert!(facts.checked.len() == 10 && !facts.source.is_empty(), "{}", facts.model);
            assert!(facts.step.is_none_or(|step| step.above_prompt_tokens < facts.context_tokens), "{}", facts.model);
        }
        for retired in &table.retired {
            assert!(super::facts(&retired.successor).is_some() && super::facts(&retired.model).is_none());
        }
    }

    #[test]
    fn a_warm_question_over_ninety_thousand_tokens() {
        close(cost("claude-haiku-5-5", &warm(90_000)), 0.001_35);
        close(cost("claude-haiku-4-5", &warm(90_000)), 0.013_5);
        close(cost("gpt-6-luna", &warm(90_000)), 0.001_35);
        // Peak; half of it off-peak.
        close(cost("deepseek-flash", &warm(90_000)), 2.0 * 0.000_855);
    }

    #[test]
    fn filling_a_cold_cache() {
        let fill = Usage { cache_write_5m: Some(90_000), ..Usage::default() };
        close(cost("claude-haiku-5-5", &fill), 0.011_25);
        close(cost("claude-haiku-4-5-20251001", &fill), 0.112_5);
        let hour = Usage { cache_write_1h: Some(90_000), ..Usage::default() };
        close(cost("claude-haiku-5-5", &hour) - cost("claude-haiku-5-5", &fill), 0.006_75);
    }

    #[test]
    fn a_long_prompt_changes_the_price_of_the_whole_request() {
        let below = Usage { input: Some(0), cache_read: Some(100_000), output: Some(1000), ..Usage::default() };
        let above = Usage { input: Some(1), ..below };
        close(cost("claude-haiku-5-5", &below), 0.001_5);
        close(cost("claude-haiku-5-5", &above), 0.007_5);
        close(cost("claude-haiku-5-5", &warm(180_000)), 0.011_25);
        assert_eq!(Prices::of("claude-haiku-5-5", &PriceOverrides::default()).unwrap().step_at(), Some(100_000));
    }

    #[test]
    fn what_is_unknown_is_said_to_be_unknown() {
        assert_eq!(Prices::of("qwen3:8b", &PriceOverrides::default()), None);
        assert_eq!(Prices::of("qwen3:8b", &PriceOverrides { input: Some(1.0), ..PriceOverrides::default() }), None);
        let known = Prices::of("gpt-5-nano", &PriceOverrides::default()).unwrap();
        assert_eq!(known.cost(&Usage::default()), None);
    }

    #[test]
    fn a_person_can_set_prices() {
        let set = |input, output, read, write| PriceOverrides {
            input,
            output,
            cache_read_multiple: read,
            cache_write_multiple: write,
        };
        let usage = Usage {
            input: Some(1_000_000),
            cache_read: Some(1_000_000),
            cache_write_5m: Some(1_000_000),
            output: Some(1_000_000),
            ..Usage::default()
        };
        let of = |model: &str, overrides| Prices::of(model, &overrides).unwrap().cost(&usage).unwrap();
        close(of("local", set(Some(1.0), Some(2.0), None, None)), 1.0 + 1.0 + 1.0 + 2.0);
        close(of("local", set(Some(1.0), Some(2.0), Some(0.1), Some(1.25))), 1.0 + 0.1 + 1.25 + 2.0);
        // Twice the input price: cache prices follow, and the step is gone.
        close(of("claude-haiku-5-5", set(Some(0.2), None, None, None)), 0.2 + 0.02 + 0.25 + 0.5);
        // Only the multiples: the step stays.
        close(of("claude-haiku-5-5", set(None, None, Some(0.5), None)), 0.5 + 0.25 + 0.625 + 2.5);
    }

    #[test]
    fn one_model_has_several_ids() {
        assert!(is_same_model("claude-haiku-4-5-20251001", "claude-haiku-4-5"));
        assert!(is_same_model("llama3.3:latest", "llama3.3") && is_same_model("models/gemini-3", "gemini-3"));
        assert!(!is_same_model("qwen3:8b", "qwen3:14b") && !is_same_model("claude-haiku-5-5", "claude-haiku-4-5"));
    }

    #[test]
    fn retired_models_are_named_with_their_successor() {
        assert_eq!(successor("deepseek-chat"), Some("deepseek-flash"));
        assert_eq!(successor("claude-haiku-5-5"), None);
    }
}
