//! `lm-shim config`.

use lm_proto::{message::Request, question::QUESTION_BYTES_MAX};

use super::{
    ask,
    output::{self, Failed, Outcome},
    report,
};
use crate::mcp::session;

/// Shows all settings.
pub(super) async fn show(json: bool) -> Outcome {
    let request = Request::ConfigShow { environment: session::environment() };
    report::show(&report::request(request).await?, json)
}

/// Changes settings.
pub(super) async fn set(arguments: Vec<String>) -> Outcome {
    let mut changes = changes(&arguments)?;
    for (name, _) in changes.iter().filter(|(name, value)| value != "-" && is_secret(name)) {
        let setup = if name.to_lowercase().contains("api_key") {
            ",\nand `lm-shim setup` asks for it without showing it"
        } else {
            ""
        };
        output::say(&format!(
            "note: other users of this machine could read `{name}` on the command line, and\n\
             your shell may keep it; `lm-shim config set {name}=-` reads it from standard input{setup}\n"
        ));
    }
    let mut from_input = changes.iter_mut().filter(|(_, value)| value == "-");
    if let Some((_, value)) = from_input.next() {
        if from_input.next().is_some() {
            return Err(Failed::usage("only one value can come from standard input; set the others one by one"));
        }
        let input = ask::read_input().await?;
        if input.len() > QUESTION_BYTES_MAX {
            return Err(Failed::usage(format!("the value is longer than {QUESTION_BYTES_MAX} bytes; shorten it")));
        }
        *value = input.trim_end_matches(['\n', '\r']).to_owned();
    }
    store(changes).await
}

/// Changes settings in a place where nobody could give a value besides.
pub(super) async fn set_as_given(arguments: &[String]) -> Outcome {
    store(changes(arguments)?).await
}

fn changes(arguments: &[String]) -> Result<Vec<(String, String)>, Failed> {
    let change = |(index, argument): (usize, &String)| match argument.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        // The argument itself is not repeated: it may be a secret.
        None => Err(Failed::usage(format!("argument {} has no `=`; write NAME=VALUE", index + 1))),
    };
    arguments.iter().enumerate().map(change).collect()
}

async fn store(changes: Vec<(String, String)>) -> Outcome {
    let request = Request::ConfigSet { changes, environment: session::environment() };
    report::show(&report::request(request).await?, false)
}

/// Removes settings.
pub(super) async fn unset(names: Vec<String>) -> Outcome {
    let request = Request::ConfigUnset { names, environment: session::environment() };
    report::show(&report::request(request).await?, false)
}

/// Whether a setting's value should not be seen by others. Only a note hangs on it; the daemon knows
/// the settings.
fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    ["api_key", "secret", "password", "extra_headers", "extra_body"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn secrets_are_told_by_their_names() {
        assert!(is_secret("api_key") && is_secret("LIVE_MEMORY_API_KEY") && is_secret("extra_headers"));
        assert!(!is_secret("max_answer_tokens") && !is_secret("provider"));
    }
}
