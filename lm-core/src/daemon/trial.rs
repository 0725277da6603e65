//! Trying a provider before it is chosen: one call that costs nothing, and what a question would cost.
//!
//! Nothing is stored here, and nothing of any workspace is sent.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use lm_proto::message::Report;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::reports::labelled;
use crate::{
    agent::provider::ChosenModel,
    budget::{Limits, Sum, price_note},
    llm::{
        self, CallControl, ModelError, Transport, Usage,
        pricing::{self, dollars},
    },
    settings::show::shortened,
};

/// How long the call may take, repetitions included.
const PATIENCE: Duration = Duration::from_secs(20);
/// Models that are shown in the text, and that are named in the JSON.
const SHOWN: usize = 20;
const NAMED: usize = 1_000;
/// The longest name of a model that is repeated.
const NAME_MAX: usize = 100;
/// Names alike that are proposed.
const SIMILAR: usize = 3;

/// A question in the middle of a session: most of its prompt is in the provider's cache.
const TYPICAL: Usage = Usage {
    input: Some(2_000),
    cache_read: Some(28_000),
    cache_write_5m: None,
    cache_write_1h: None,
    output: Some(1_000),
};
/// The same with nothing in the cache.
const FIRST: Usage =
    Usage { input: None, cache_read: None, cache_write_5m: Some(30_000), cache_write_1h: None, output: Some(1_000) };

/// What is tried.
pub(super) struct Trial {
    /// The provider as it would be chosen. Where it names no model, any name stands in.
    pub(super) chosen: ChosenModel,
    /// Whether it names a model.
    pub(super) names_model: bool,
    /// Whether the person has set prices, which hold for whatever model is chosen.
    pub(super) own_prices: bool,
    /// The budget that would hold.
    pub(super) limits: Limits,
    /// What was spent today.
    pub(super) today: Sum,
}

impl Trial {
    /// Asks for the list of models.
    pub(super) async fn run(self, transport: Result<Arc<Transport>, String>, cancel: CancellationToken) -> Report {
        let listed = async {
            let transport = transport.map_err(ModelError::Invalid)?;
            let client = llm::connect(&self.chosen.settings, &transport)?;
            client.models(&CallControl { cancelled: cancel, ..CallControl::within(PATIENCE) }).await
        };
        let listed = listed.await.map(|mut models| {
            models.truncate(NAMED);
            models.iter().map(|name| shortened(name, NAME_MAX)).collect::<Vec<_>>()
        });
        self.report(&listed)
    }

    fn report(&self, listed: &Result<Vec<String>, ModelError>) -> Report {
        let address = self.chosen.address();
        let model = self.names_model.then_some(self.chosen.model.as_str());
        let mut text = String::new();
        let mut row = |label: &str, value: &str| text.push_str(&labelled(label, value));
        let (mut problem, mut similar) = (None, Vec::new());
        match listed {
            Err(error) => {
                row("failed", &error.to_string());
                if let Some(advice) = advice(error, &address) {
                    row("what to do", &advice);
                }
                problem = Some("unreachable");
            }
            Ok(models) => {
                let key = if self.chosen.settings.api_key.is_some() { " and takes the key" } else { " without a key" };
                row("reached", &format!("{address} answers{key}"));
                match model {
                    None => {
                        row("models", &list(models));
                        problem = Some("model_missing");
                    }
                    Some(model) if models.iter().any(|listed| pricing::is_same_model(listed, model)) => {
                        row("model", &format!("{model}, which it offers"));
                    }
                    Some(model) => {
                        similar = alike(model, models);
                        row("model", &unknown_text(model, &similar));
                        row("models", &list(models));
                        problem = Some("model_unknown");
                    }
                }
            }
        }
        let priced = |usage| self.chosen.prices.and_then(|prices| prices.cost(usage));
        let (typical, first) = (priced(&TYPICAL), priced(&FIRST));
        if let Some(model) = model.filter(|_| problem.is_none()) {
            row("price", &price_text(model, typical, first, is_here(&address)));
            let spent = dollars(self.today.usd());
            if self.own_prices {
                row("", "by price_input, price_output or their multiples as you have set them, for any model");
            }
            row("budget", &format!("{} a day (UTC), {spent} spent today; see daily_budget_usd", self.limits.text()));
            if let Some(note) = price_note(model, typical.is_some(), &self.limits) {
                row("", &note);
            }
        }
        let json = json!({
            "address": address,
            "model": model,
            "models": listed.as_ref().ok(),
            "similar": similar,
            "problem": problem,
            "error": listed.as_ref().err().map(ToString::to_string),
            "typical_usd": typical,
            "first_usd": first,
        });
        Report { text, json: json.to_string(), healthy: problem.is_none() }
    }
}

/// What to do besides what the error says itself.
fn advice(error: &ModelError, address: &str) -> Option<String> {
    match error {
        ModelError::Network { .. } | ModelError::Deadline { .. } if is_here(address) => Some(
            "start the server and check the port in its address: Ollama http://localhost:11434/v1, LM Studio \
             http://localhost:1234/v1, llama.cpp http://localhost:8080/v1, vLLM http://localhost:8000/v1"
                .to_owned(),
        ),
        ModelError::Network { .. } | ModelError::Deadline { .. } => Some(
            "check the spelling of the address; where the network has a proxy, set HTTPS_PROXY, run `lm-shim stop` \
             and try again"
                .to_owned(),
        ),
        ModelError::NotFound { .. } | ModelError::Protocol { .. } => Some(
            "check the address, which for most servers ends in /v1; if it is right and the server has no list of \
             models, store the choice all the same"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Whether an address is this machine's.
fn is_here(address: &str) -> bool {
    ["://localhost", "://127.", "://[::1]"].iter().any(|host| address.contains(host))
}

fn price_text(model: &str, typical: Option<f64>, first: Option<f64>, is_here: bool) -> String {
    let (Some(typical), Some(first)) = (typical, first) else {
        let free =
            if is_here { "; `lm-shim config set price_input=0 price_output=0` says that it is free" } else { "" };
        return format!("unknown for {model}: its tokens are counted, its dollars are not{free}");
    };
    format!(
        "about {} for a question that reads 30,000 tokens, 28,000 of them from the provider's cache, and writes 1,000; \
         about {} for the first one, with nothing in the cache",
        dollars(typical),
        dollars(first)
    )
}

fn unknown_text(model: &str, similar: &[String]) -> String {
    let mut text = format!("{model} is not among the models that it offers");
    if let Some(successor) = pricing::successor(model) {
        let _ = write!(text, "; its vendor has replaced it by {successor}");
    }
    if !similar.is_empty() {
        let _ = write!(text, "; did you mean {}?", similar.join(" or "));
    }
    text
}

fn list(models: &[String]) -> String {
    if models.is_empty() {
        return "none; load one into the server first".to_owned();
    }
    let mut text = models.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if models.len() > SHOWN {
        let _ = write!(text, " and {} more", models.len() - SHOWN);
    }
    text
}

/// The names most like one.
fn alike(model: &str, models: &[String]) -> Vec<String> {
    const LIKENESS_MIN: f64 = 0.75;
    let likeness = |name: &str| {
        let part = name.contains(model) || model.contains(name);
        if part { 1.0 } else { strsim::jaro_winkler(name, model) }
    };
    let mut ranked: Vec<_> = models.iter().map(|name| (likeness(name), name)).collect();
    ranked.retain(|(likeness, _)| *likeness >= LIKENESS_MIN);
    ranked.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    ranked.into_iter().take(SIMILAR).map(|(_, name)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        agent::provider,
        settings::{SettingsStore, show::COLUMNS},
    };

    fn trial(config: &str, names_model: bool) -> Trial {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        std::fs::write(&path, config).unwrap();
        let resolved = SettingsStore::open_with(path, Vec::new(), None).for_request(&[]);
        let chosen = provider::choose(&resolved, &Vec::new()).unwrap_or_else(|error| panic!("{error}")).unwrap();
        Trial { chosen, names_model, own_prices: false, limits: Limits { usd: 5.0, tokens: 0 }, today: Sum::default() }
    }

    fn names(names: &[&str]) -> Result<Vec<String>, ModelError> {
        Ok(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn a_report_fits_a_terminal_whatever_came_of_it() {
        let many: Vec<String> = (0..30).map(|number| format!("vendor/model-{number}")).collect();
        let refused = ModelError::Network {
            url: "http://127.0.0.1:11434/v1/models".into(),
            cause: "connection refused".into(),
            attempts: 4,
        };
        let anthropic = |model: &str| trial(&format!(r#"{{"provider":"anthropic","api_key":"k"{model}}}"#), true);
        let local = |model: &str, named| {
            let config = format!(r#"{{"provider":"openai","base_url":"http://127.0.0.1:11434/v1","model":"{model}"}}"#);
            trial(&config, named)
        };
        let reports = [
            anthropic("").report(&names(&["claude-haiku-5-5", "claude-opus-5-5"])),
            anthropic(r#","model":"claude-haiku-5.5""#).report(&names(&["claude-haiku-5-5", "gpt-6-luna"])),
            local("any", false).report(&Ok(many)),
            local("qwen3:8b", true).report(&names(&["qwen3:8b"])),
            local("qwen3:8b", true).report(&Err(refused)),
        ];
        assert_eq!(reports.each_ref().map(|report| report.healthy), [true, false, false, true, false]);
        let texts = reports.map(|report| report.text);
        assert!(texts.iter().flat_map(|text| text.lines()).all(|line| line.chars().count() <= COLUMNS));
        insta::assert_snapshot!(texts.join("--\n"));
    }

    #[test]
    fn names_alike_are_proposed_and_others_are_not() {
        let models = names(&["llama3.3:70b", "qwen3:8b", "qwen3:14b", "mistral"]).unwrap();
        assert_eq!(alike("qwen3", &models), ["qwen3:8b", "qwen3:14b"]);
        assert_eq!(alike("zzz", &models), Vec::<String>::new());
    }
}
