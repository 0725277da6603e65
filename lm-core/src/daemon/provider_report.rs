//! What reports say about who answers. Pure.

use lm_proto::message::{PROVIDER_KEYS, SessionEnvironment, inherited_keys};
use serde_json::{Value as Json, json};

use super::reports::Subject;
use crate::{
    agent::provider::{self, ChosenModel},
    llm::credentials::KeyOrigin,
    settings::{Provider, Resolved},
};

/// Who would answer a question of this session. Reports know only the names of the keys that a session
/// has, which is enough to say which one would be used.
pub(super) fn chosen_for_report(
    resolved: &Resolved,
    environment: &SessionEnvironment,
) -> Result<Option<ChosenModel>, String> {
    let mut environment = environment.clone();
    let named = inherited_keys(&environment);
    environment.retain(|(name, _)| !PROVIDER_KEYS.contains(&name.as_str()));
    environment.extend(named.into_iter().map(|name| (name.to_owned(), "present".to_owned())));
    provider::choose(resolved, &environment)
}

/// Who answers, in a sentence.
pub(super) fn text(subject: &Subject<'_>) -> String {
    match subject.model {
        Ok(None) => {
            let mut text = "offline: places and excerpts, nothing leaves this machine".to_owned();
            if !subject.inherited_keys.is_empty() {
                text.push_str("; ");
                text.push_str(&subject.inherited_keys.join(", "));
                text.push_str(" found, not used until a provider is chosen");
            }
            text
        }
        Ok(Some(chosen)) => chosen_text(chosen),
        Err(reason) => {
            format!("{} cannot be asked: {reason}; until then answers are offline", chosen_word(subject))
        }
    }
}

fn chosen_text(chosen: &ChosenModel) -> String {
    format!(
        "{} {} at {}, {}, window {} tokens{}",
        chosen.settings.provider.name(),
        chosen.model,
        chosen.address(),
        key_text(chosen.key_origin.as_ref()),
        chosen.window,
        if chosen.prices.is_some() { "" } else { ", price unknown: price_input and price_output tell it" },
    )
}

fn key_text(origin: Option<&KeyOrigin>) -> String {
    match origin {
        None => "no key".into(),
        Some(KeyOrigin::Setting) => "key set".into(),
        Some(KeyOrigin::File(path)) => format!("key from `{}`", path.display()),
        Some(KeyOrigin::Variable(name)) => format!("key from {name}"),
    }
}

fn chosen_word(subject: &Subject<'_>) -> &'static str {
    subject.resolved.settings.provider.word()
}

/// The same for programs.
pub(super) fn json(subject: &Subject<'_>) -> Json {
    let chosen = subject.model.as_ref().ok().and_then(Option::as_ref);
    let answers = chosen.map_or(Provider::Offline.word(), |chosen| chosen.settings.provider.name());
    json!({
        "chosen": chosen_word(subject),
        "answers": answers,
        "model": chosen.map(|chosen| &chosen.model),
        "address": chosen.map(ChosenModel::address),
        "key": chosen.map(|chosen| key_text(chosen.key_origin.as_ref())),
        "window_tokens": chosen.map(|chosen| chosen.window),
        "price_known": chosen.map(|chosen| chosen.prices.is_some()),
        "problem": subject.model.as_ref().err(),
        "inherited_keys": subject.inherited_keys,
    })
}
