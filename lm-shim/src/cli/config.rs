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
    let mut changes = Vec::new();
    let mut from_input = None;
    for (index, argument) in arguments.iter().enumerate() {
        // The argument itself is not repeated: it may be a secret.
        let Some((name, value)) = argument.split_once('=') else {
            return Err(Failed::usage(format!("argument {} has no `=`; write NAME=VALUE", index + 1)));
        };
        if value == "-" && from_input.replace(index).is_some() {
            return Err(Failed::usage("only one value can come from standard input; set the others one by one"));
        }
        if value != "-" && is_secret(name) {
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
        changes.push((name.to_owned(), value.to_owned()));
    }
    if let Some(index) = from_input {
        let value = ask::read_input().await?;
        if value.len() > QUESTION_BYTES_MAX {
            return Err(Failed::usage(format!("the value is longer than {QUESTION_BYTES_MAX} bytes; shorten it")));
        }
        changes[index].1 = value.trim_end_matches(['\n', '\r']).to_owned();
    }
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
