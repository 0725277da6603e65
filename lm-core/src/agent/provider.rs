//! The model that a person chose, from settings and the session's variables. Pure but for a key file.

use lm_proto::message::SessionEnvironment;

use crate::{
    llm::{
        self, Extras, ModelSettings, Provider,
        credentials::{KeyOrigin, find_key},
        pricing::{self, PriceOverrides, Prices},
    },
    settings::{self, Origin, Resolved, Settings},
};

/// A model, and what is known of it.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it holds the key")]
pub struct ChosenModel {
    /// How to reach it.
    pub settings: ModelSettings,
    /// Its name.
    pub model: String,
    /// Where the key was found, if there is one.
    pub key_origin: Option<KeyOrigin>,
    /// What it costs, where that is known.
    pub prices: Option<Prices>,
    /// The window in tokens: what the person allows, what the model has, and what it takes at its
    /// lower price, whichever is least.
    pub window: u64,
    /// The longest completion that it gives, where that is known.
    pub completion_max: Option<u32>,
}

impl ChosenModel {
    /// Where it is asked, without credentials and query.
    #[must_use]
    pub fn address(&self) -> String {
        llm::shown_address(self.settings.provider, self.settings.base_url.as_deref())
    }
}

/// The model that was chosen; `None` where none was.
///
/// # Errors
/// With what to do, where the choice cannot be followed.
pub fn choose(resolved: &Resolved, environment: &SessionEnvironment) -> Result<Option<ChosenModel>, String> {
    let settings = &resolved.settings;
    let provider = match settings.provider {
        settings::Provider::Offline => return Ok(None),
        settings::Provider::Anthropic => Provider::Anthropic,
        settings::Provider::Openai => Provider::OpenAi,
    };
    is_what_was_meant(resolved)?;
    key_belongs_to_address(resolved)?;
    let may_inherit = may_inherit(provider, resolved);
    let variable = |name: &str| {
        let (_, value) = environment.iter().find(|(given, _)| given == name).filter(|_| may_inherit)?;
        Some(value.clone())
    };
    let key = settings.api_key.as_ref().map(settings::Secret::reveal);
    let (key, key_origin) = match find_key(provider, settings.base_url.as_deref(), key, None, variable)
        .map_err(|error| error.to_string())?
    {
        Some((key, origin)) => (Some(key), Some(origin)),
        None => (None, None),
    };
    let implied = || key_origin.as_ref().and_then(KeyOrigin::implied_base_url).map(str::to_owned);
    let model_settings = ModelSettings {
        provider,
        base_url: settings.base_url.clone().or_else(implied),
        api_key: key,
        model: settings.model.clone(),
        extras: Extras::new(
            settings.openai_extra_body.as_ref(),
            settings.extra_headers.iter().map(|(name, value)| (name.as_str(), value.reveal())),
            settings.ca_file.clone(),
        )
        .map_err(|error| error.to_string())?,
    };
    let model = model_settings.model_or_default().map_err(|error| error.to_string())?;
    let facts = pricing::facts(&model);
    let prices = Prices::of(&model, &price_overrides(settings));
    let limits = [facts.map(|facts| facts.context_tokens), prices.and_then(|prices| prices.step_at())];
    let allowed = u64::from(settings.max_context_tokens);
    Ok(Some(ChosenModel {
        window: limits.into_iter().flatten().fold(allowed, u64::min),
        completion_max: facts
            .and_then(|facts| facts.max_output_tokens)
            .map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX)),
        settings: model_settings,
        model,
        key_origin,
        prices,
    }))
}

/// The prices that a person set.
#[must_use]
pub fn price_overrides(settings: &Settings) -> PriceOverrides {
    PriceOverrides {
        input: settings.price_input,
        output: settings.price_output,
        cache_read_multiple: settings.price_cache_read_mult,
        cache_write_multiple: settings.price_cache_write_mult,
    }
}

/// Where a part of the choice was not accepted its default must not take its place: code and key would
/// go to somebody else.
fn is_what_was_meant(resolved: &Resolved) -> Result<(), String> {
    const CHOICE: [&str; 6] = ["base_url", "api_key", "model", "extra_headers", "openai_extra_body", "ca_file"];
    let is_of_choice = |problem: &&settings::Problem| {
        let name = problem.name.to_ascii_lowercase();
        CHOICE
            .iter()
            .any(|key| name == *key || (name.starts_with("live_memory_") && name.ends_with(&format!("_{key}"))))
    };
    resolved.problems.iter().find(is_of_choice).map_or(Ok(()), |problem| Err(problem.to_string()))
}

/// A session's variables may come from a project's own files. They may name another address, or whom else
/// to trust, but what was kept for one address is not sent to it.
fn key_belongs_to_address(resolved: &Resolved) -> Result<(), String> {
    let is_kept = |key| matches!(resolved.origin(key), Origin::Config | Origin::Plugin);
    let has_kept_key = is_kept("api_key");
    if resolved.origin("base_url") == Origin::Session {
        if has_kept_key {
            return Err("LIVE_MEMORY_BASE_URL of this session is not the address that the kept api_key is for; set \
                        LIVE_MEMORY_API_KEY beside it, or put base_url into config.json"
                .to_owned());
        }
        if is_kept("extra_headers") {
            return Err(
                "LIVE_MEMORY_BASE_URL of this session is not the address that the kept extra_headers are for; \
                        set LIVE_MEMORY_EXTRA_HEADERS beside it, or put base_url into config.json"
                    .to_owned(),
            );
        }
    }
    if resolved.origin("ca_file") == Origin::Session && (has_kept_key || is_kept("extra_headers")) {
        return Err("LIVE_MEMORY_CA_FILE of this session decides who is trusted with the kept key; put ca_file into \
                    config.json"
            .to_owned());
    }
    Ok(())
}

/// Whether keys that other programs use may be used too: they belong to a vendor, so that an address which
/// a session names, and with it perhaps a project's own files, gets one only where it is that vendor's.
fn may_inherit(provider: Provider, resolved: &Resolved) -> bool {
    if resolved.origin("ca_file") == Origin::Session {
        return false;
    }
    resolved.origin("base_url") != Origin::Session
        || resolved.settings.base_url.as_deref().is_none_or(|address| llm::is_vendors_own(provider, address))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::settings::SettingsStore;

    #[test]
    fn an_address_that_is_none_is_not_replaced_by_the_vendors() {
        for bad in ["localhost:11434", "ftp://127.0.0.1/v1", "http://u:canary@127.0.0.1"] {
            let config = format!(r#"{{"provider":"openai","api_key":"k","model":"m","base_url":"{bad}"}}"#);
            let session =
                [("LIVE_MEMORY_PROVIDER", "openai"), ("LIVE_MEMORY_API_KEY", "k"), ("LIVE_MEMORY_BASE_URL", bad)];
            for error in [chosen(&config, &[]), chosen("{}", &session)].map(|chosen| chosen.err().unwrap()) {
                assert!(error.to_lowercase().contains("base_url") && !error.contains("canary"), "{error}");
            }
        }
    }

    fn chosen(config: &str, session: &[(&str, &str)]) -> Result<Option<ChosenModel>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path: PathBuf = directory.path().join("config.json");
        std::fs::write(&path, config).unwrap();
        let environment: SessionEnvironment =
            session.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let resolved = SettingsStore::open_with(path, Vec::new(), None).for_request(&environment);
        choose(&resolved, &environment)
    }

    fn model(config: &str, session: &[(&str, &str)]) -> ChosenModel {
        chosen(config, session).unwrap_or_else(|error| panic!("{error}")).unwrap()
    }

    #[test]
    fn a_key_alone_chooses_nothing() {
        assert!(chosen("{}", &[("ANTHROPIC_API_KEY", "sk-ant-x")]).is_ok_and(|chosen| chosen.is_none()));
    }

    #[test]
    fn a_provider_without_a_key_uses_the_inherited_one() {
        let anthropic = model(r#"{"provider":"anthropic"}"#, &[("ANTHROPIC_API_KEY", "sk-ant-x")]);
        assert_eq!(anthropic.key_origin, Some(KeyOrigin::Variable("ANTHROPIC_API_KEY")));
        assert_eq!(anthropic.model, "claude-haiku-5-5");
        assert_eq!(anthropic.window, 100_000, "held under the price step");
        let deepseek = model(r#"{"provider":"openai"}"#, &[("DEEPSEEK_API_KEY", "sk-x")]);
        assert_eq!(deepseek.settings.base_url.as_deref(), Some("https://api.deepseek.com"));
        assert_eq!(deepseek.model, "deepseek-flash");
    }

    #[test]
    fn what_a_person_sets_goes_before_what_is_published() {
        let config = r#"{"provider":"anthropic","api_key":"k","max_context_tokens":64000,"model":"own",
                         "price_input":1,"price_output":2}"#;
        let own = model(config, &[]);
        assert_eq!((own.window, own.model.as_str(), own.key_origin), (64_000, "own", Some(KeyOrigin::Setting)));
        assert!(own.prices.is_some());
        assert!(model(r#"{"provider":"anthropic","api_key":"k","model":"own"}"#, &[]).prices.is_none());
    }

    #[test]
    fn a_kept_key_is_not_sent_to_an_address_of_the_session() {
        let config = r#"{"provider":"anthropic","api_key":"canary-key"}"#;
        let elsewhere = ("LIVE_MEMORY_BASE_URL", "http://127.0.0.1:9");
        let error = chosen(config, &[elsewhere]).err().unwrap();
        assert!(error.contains("LIVE_MEMORY_API_KEY") && !error.contains("canary"), "{error}");
        assert!(chosen(config, &[elsewhere, ("LIVE_MEMORY_API_KEY", "own")]).is_ok());
        let all_kept = r#"{"provider":"anthropic","api_key":"canary-key","base_url":"http://127.0.0.1:9"}"#;
        assert!(chosen(all_kept, &[]).is_ok());
    }

    #[test]
    fn an_inherited_key_does_not_follow_an_address_of_the_session() {
        let key = ("ANTHROPIC_API_KEY", "sk-ant-canary");
        let chosen = ("LIVE_MEMORY_PROVIDER", "anthropic");
        for address in ["https://evil.example", "http://127.0.0.1:9", "http://api.anthropic.com"] {
            let model = model("{}", &[chosen, key, ("LIVE_MEMORY_BASE_URL", address)]);
            assert!(model.key_origin.is_none(), "{address}");
        }
        let own = [chosen, key, ("LIVE_MEMORY_BASE_URL", "https://api.anthropic.com")];
        assert!(model("{}", &own).key_origin.is_some());
        // The person's own gateway.
        let kept = r#"{"provider":"anthropic","base_url":"https://gateway.example"}"#;
        assert!(model(kept, &[key]).key_origin.is_some());
        assert!(model(kept, &[key, ("LIVE_MEMORY_CA_FILE", "/project/ca.pem")]).key_origin.is_none());
    }

    #[test]
    fn kept_headers_and_trust_stay_with_the_kept_address() {
        let kept = r#"{"provider":"anthropic","extra_headers":{"x-api-key":"canary"}}"#;
        let error = chosen(kept, &[("LIVE_MEMORY_BASE_URL", "http://127.0.0.1:9")]).err().unwrap();
        assert!(error.contains("EXTRA_HEADERS") && !error.contains("canary"), "{error}");
        let error = chosen(kept, &[("LIVE_MEMORY_CA_FILE", "/project/ca.pem")]).err().unwrap();
        assert!(error.contains("ca_file"), "{error}");
    }

    #[test]
    fn a_server_without_a_default_model_says_what_to_set() {
        let error = chosen(r#"{"provider":"openai","base_url":"http://127.0.0.1:1234/v1"}"#, &[]).err().unwrap();
        assert!(error.contains("LIVE_MEMORY_MODEL"), "{error}");
    }
}
