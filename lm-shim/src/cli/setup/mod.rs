//! `lm-shim setup`: choose who answers, try it by a call that costs nothing, store the choice.
//!
//! The choice is the consent to send code, so it is asked for in so many words. The key is never an
//! argument, is never shown, and goes nowhere but to the user's own daemon.

mod choices;
mod key;

use std::sync::{Mutex, PoisonError};

use clap::{Args, builder::PossibleValuesParser};
use lm_proto::message::{PROVIDER_KEYS, Report, Request};
use serde_json::Value as Json;

use super::{
    output::{self, Failed, Outcome},
    prompt, report,
};
use crate::mcp::session;
use choices::{CHOICES, Choice};
use key::Key;

#[derive(Args)]
#[command(after_help = "\
NAME of --provider: anthropic, openai, deepseek, openrouter, ollama, lmstudio,
llamacpp, vllm, other (with --base-url), offline.
NAME of --key-env: ANTHROPIC_API_KEY, OPENAI_API_KEY, DEEPSEEK_API_KEY.

Without options it asks. In a script, give at least --provider, --yes and, where
the provider needs one, a key, which is never an argument:

  lm-shim setup --provider anthropic --key-stdin --yes < key.txt
  lm-shim setup --provider deepseek --key-env DEEPSEEK_API_KEY --yes
  lm-shim setup --provider ollama --model qwen3:8b --yes
  lm-shim setup --provider offline")]
pub(super) struct Setup {
    /// Who answers; offline takes the choice back
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(choices::names()))]
    #[arg(hide_possible_values = true)]
    provider: Option<String>,
    /// The address of the server's API, if not the usual one
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The model [default: the provider's cheap one]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Read the key from standard input
    #[arg(long, group = "key")]
    key_stdin: bool,
    /// Read the key from a file
    #[arg(long, value_name = "FILE", group = "key")]
    key_file: Option<std::path::PathBuf>,
    /// Store no key; use this variable of each session
    #[arg(long, value_name = "NAME", group = "key", value_parser = PossibleValuesParser::new(PROVIDER_KEYS))]
    #[arg(hide_possible_values = true)]
    key_env: Option<String>,
    /// Consent to sending parts of your code there
    #[arg(long)]
    yes: bool,
    /// Store the choice even if it fails the test
    #[arg(long)]
    store_anyway: bool,
}

/// What `config.json` says now.
struct Stored {
    provider: String,
    base_url: String,
    model: Option<String>,
    has_key: bool,
}

/// Chooses, tries, stores.
pub(super) async fn setup(arguments: Setup) -> Outcome {
    // Whoever gives the key on standard input cannot answer there.
    let can_ask = prompt::is_possible() && !(arguments.key_stdin && arguments.yes);
    perform(arguments, can_ask, &|text| output::say(text)).await
}

/// The same in a place where nobody can be asked and standard input is not a person's; gives what is to
/// be shown.
pub(super) async fn as_given(arguments: Setup) -> Result<String, Failed> {
    if arguments.key_stdin {
        return Err(Failed::usage("there is no standard input here; give the key with --key-file or --key-env"));
    }
    let said = Mutex::new(String::new());
    let say = |text: &str| said.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    let outcome = perform(arguments, false, &say).await;
    let said = said.into_inner().unwrap_or_else(PoisonError::into_inner);
    match outcome {
        Ok(done) => Ok(said + &done.into_text()),
        Err(failed) => Err(Failed::new(said + &failed.into_reason())),
    }
}

/// Says something besides the result.
type Say<'a> = &'a (dyn Fn(&str) + Send + Sync);

async fn perform(arguments: Setup, can_ask: bool, say: Say<'_>) -> Outcome {
    let choice = choose(&arguments, can_ask).await?;
    if choice.provider == "offline" {
        return go_offline(say).await;
    }
    let address = address(&arguments, choice, can_ask).await?;
    let stored = stored().await?;
    let is_same = stored.provider == choice.provider
        && stored.base_url.trim_end_matches('/') == address.as_deref().unwrap_or_default().trim_end_matches('/');
    if !(arguments.yes || can_ask) {
        return Err(Failed::usage(format!(
            "choosing {} means that parts of the code of workspaces you ask about are sent to {}; add --yes to consent",
            choice.name,
            shown_address(choice, address.as_deref())
        )));
    }
    let key = key::find(&arguments, choice, is_same && stored.has_key, can_ask).await?;
    let kept_model = stored.model.filter(|_| is_same);
    let mut model = match (&arguments.model, choice.model) {
        (Some(model), _) => Some(model.clone()),
        (None, Some(usual)) if can_ask => {
            let usual = kept_model.as_deref().unwrap_or(usual);
            let typed = prompt::line(&format!("Model [{usual}]: ")).await?;
            if typed.is_empty() { kept_model } else { Some(typed) }
        }
        (None, _) => kept_model,
    };
    if !arguments.yes && !consents(choice, address.as_deref()).await? {
        return Err(Failed::new("nothing was changed: without consent nothing is sent anywhere"));
    }

    let (changes, tried) = loop {
        let changes = changes(choice, address.as_deref(), model.as_deref(), &key);
        say("Trying it with a call that costs nothing …\n");
        let request = Request::TryProvider { changes: changes.clone(), environment: key.environment() };
        let tried = report::request(request).await?;
        if !can_ask || !is_about_model(&tried) {
            break (changes, tried);
        }
        say(&tried.text);
        match prompt::line("Which model? (empty: leave it as it is) ").await?.as_str() {
            "" => break (changes, tried),
            name => model = Some(name.to_owned()),
        }
    };
    let mut report = String::new();
    if tried.healthy {
        report = output::line(&tried.text);
    } else {
        if !(can_ask && is_about_model(&tried)) {
            say(&output::line(&tried.text));
        }
        let anyway = arguments.store_anyway
            || can_ask && prompt::yes("This would not work now. Store it all the same?", false).await?;
        if !anyway {
            return Err(Failed::new(if can_ask {
                "nothing was stored"
            } else {
                "nothing was stored, since the test failed; put right what it says, or store the choice all the same \
                 with --store-anyway"
            }));
        }
    }
    store(changes, say).await?;
    output::print(&format!(
        "{report}Questions are now answered by {}.\n`lm-shim setup --provider offline` takes it back; `lm-shim stats` shows \
         what is\nspent.\n",
        shown_address(choice, address.as_deref())
    ))
}

async fn choose(arguments: &Setup, can_ask: bool) -> Result<Choice, Failed> {
    if let Some(choice) = arguments.provider.as_deref().and_then(choices::find) {
        return Ok(choice);
    }
    if !can_ask {
        return Err(Failed::usage(
            "there is no terminal to ask at; say who should answer, as in: lm-shim setup --provider anthropic \
             --key-file key.txt --yes",
        ));
    }
    let mut menu = "Who should answer questions about your code?\n\n".to_owned();
    for (index, choice) in CHOICES.iter().enumerate() {
        menu.push_str(&format!("  {:2}  {}\n", index + 1, choice.title));
    }
    output::say(&format!("{menu}\n"));
    loop {
        let typed = prompt::line(&format!("1 to {}: ", CHOICES.len())).await?;
        match choices::find(&typed) {
            Some(choice) => return Ok(choice),
            None => output::say("Please give a number of the list.\n"),
        }
    }
}

/// The address to store; none where the daemon knows the vendor's.
async fn address(arguments: &Setup, choice: Choice, can_ask: bool) -> Result<Option<String>, Failed> {
    if let Some(given) = &arguments.base_url {
        return Ok(Some(given.trim().to_owned()));
    }
    if choice.asks_address {
        if !can_ask {
            return Err(Failed::usage(format!(
                "give the server's address, as in: lm-shim setup --provider {} --base-url http://localhost:8080/v1 \
                 --model NAME --yes",
                choice.name
            )));
        }
        loop {
            match prompt::line("Address, for most servers ending in /v1: ").await? {
                empty if empty.is_empty() => output::say("Please give an address.\n"),
                given => return Ok(Some(given)),
            }
        }
    }
    // Local servers often have another port.
    if can_ask && !choice.needs_key && arguments.provider.is_none() {
        let usual = choice.address.unwrap_or_default();
        let typed = prompt::line(&format!("Address [{usual}]: ")).await?;
        if !typed.is_empty() {
            return Ok(Some(typed));
        }
    }
    Ok(choice.address.map(str::to_owned))
}

fn shown_address(choice: Choice, address: Option<&str>) -> String {
    address.map_or_else(|| choice.title.to_owned(), str::to_owned)
}

async fn consents(choice: Choice, address: Option<&str>) -> Result<bool, Failed> {
    output::say(&format!(
        "\nFrom then on, when you or an agent asks a question, parts of the code of that\nworkspace are sent to\n\n  \
         {}\n\nFiles that usually hold secrets, and workspaces that `exclude` names, never are.\n",
        shown_address(choice, address)
    ));
    prompt::yes("Do you want that?", false).await
}

/// All that belongs to the choice, so that nothing of an earlier one is left; empty is unset.
fn changes(choice: Choice, address: Option<&str>, model: Option<&str>, key: &Key) -> Vec<(String, String)> {
    let mut changes = vec![
        ("provider", choice.provider),
        ("base_url", address.unwrap_or_default()),
        ("model", model.unwrap_or_default()),
    ];
    changes.extend(key.stored().map(|key| ("api_key", key)));
    changes.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Whether another name of a model is all that is missing.
fn is_about_model(tried: &Report) -> bool {
    let json: Json = serde_json::from_str(&tried.json).unwrap_or_default();
    matches!(json["problem"].as_str(), Some("model_missing" | "model_unknown"))
}

async fn stored() -> Result<Stored, Failed> {
    // Without the session's variables: what is stored is wanted, not what holds here.
    let shown = report::request(Request::ConfigShow { environment: Vec::new() }).await?;
    let json: Json = serde_json::from_str(&shown.json).unwrap_or_default();
    let value = |name: &str| json["settings"][name]["value"].as_str().map(str::to_owned);
    let is_stored = json["settings"]["api_key"]["origin"] == "config";
    Ok(Stored {
        provider: value("provider").unwrap_or_default(),
        base_url: value("base_url").unwrap_or_default(),
        model: value("model"),
        has_key: value("api_key").is_some() && is_stored,
    })
}

async fn go_offline(say: Say<'_>) -> Outcome {
    // Not only unset: an option of the plugin must not choose again.
    let mut changes = vec![("provider".to_owned(), "offline".to_owned())];
    changes.extend(["base_url", "model", "api_key"].map(|name| (name.to_owned(), String::new())));
    store(changes, say).await?;
    output::print(
        "Answers are offline again, and nothing leaves this machine. The consent to send\ncode is taken back; address, \
         model and key were removed from config.json.\n",
    )
}

/// Writes the choice, all or none, and says what keeps it from holding here.
async fn store(changes: Vec<(String, String)>, say: Say<'_>) -> Result<(), Failed> {
    let changed = report::request(Request::ConfigSet { changes, environment: session::environment() }).await?;
    let json: Json = serde_json::from_str(&changed.json).unwrap_or_default();
    let shadows = json["changed"].as_object().into_iter().flatten().filter_map(|(_, about)| about["shadowed"].as_str());
    for shadow in shadows {
        say(&format!("note: {shadow}\n"));
    }
    Ok(())
}
