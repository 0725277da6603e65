//! The plugin's slash commands: the same commands, typed into a session and answered there as text.
//!
//! Nobody can be asked anything here, standard input and output belong to the protocol, and what the
//! texts say of the command line is said of the slash commands instead.

use std::{ffi::OsString, path::Path, time::Duration};

use clap::Parser;

use super::{
    CommandLine, Config, Empty, Forget, Remember, Verb, config,
    output::{Done, Failed},
    perform as perform_verb, setup,
};

/// What the name of each of them begins with.
const PREFIX: &str = "live-memory-";

/// All of them, by what follows [`PREFIX`].
pub(crate) const NAMES: [&str; 11] =
    ["stats", "config", "empty", "reset", "pause", "resume", "doctor", "setup", "remember", "forget", "ledger"];

/// No command takes longer; a person waits for it.
const PATIENCE: Duration = Duration::from_secs(45);

/// Performs a command, by the name that the client knows it by (`live-memory:live-memory-stats`), and
/// gives the text to be shown; none for a command that is not of these.
pub(crate) async fn perform(name: &str, arguments: &str, cwd: Option<&str>) -> Option<String> {
    let verb = name.rsplit(':').next()?.strip_prefix(PREFIX).filter(|verb| NAMES.contains(verb))?;
    let outcome = tokio::time::timeout(PATIENCE, run(verb, arguments, cwd.map(Path::new))).await;
    Some(reworded(&match outcome {
        Ok(Ok(text)) => text,
        Ok(Err(failed)) => failed.into_reason(),
        Err(_) => "The daemon has not answered yet. `lm-shim doctor` says what is wrong with it.".to_owned(),
    }))
}

async fn run(verb: &str, arguments: &str, cwd: Option<&Path>) -> Result<String, Failed> {
    let words = match verb {
        // A sentence as it was typed, apostrophes and all.
        "remember" if !arguments.trim().is_empty() => vec!["--".to_owned(), arguments.trim().to_owned()],
        // Nothing can be read from standard input.
        "remember" => return Ok("Usage: lm-shim remember TEXT\n".to_owned()),
        _ => words(arguments),
    };
    if verb == "setup" && words.is_empty() {
        return Ok(how_to_set_up());
    }
    let line = [OsString::from("lm-shim"), verb.into()].into_iter().chain(words.into_iter().map(OsString::from));
    let verb = match CommandLine::try_parse_from(line) {
        Ok(command_line) => command_line.verb,
        // Help, or what is wrong with the arguments; both are for the person.
        Err(error) => return Ok(error.render().to_string()),
    };
    let done = match verb {
        Verb::Setup(arguments) => return setup::as_given(arguments).await,
        Verb::Config(Config::Set { changes }) => config::set_as_given(&changes).await,
        verb => perform_verb(in_session(verb, cwd)).await,
    };
    done.map(Done::into_text)
}

/// A command about the session's workspace, unless it names another.
fn in_session(mut verb: Verb, cwd: Option<&Path>) -> Verb {
    match &mut verb {
        Verb::Empty(Empty { all: Some(_), .. }) => {}
        Verb::Stats(here)
        | Verb::Doctor(here)
        | Verb::Reset(here)
        | Verb::Pause(here)
        | Verb::Resume(here)
        | Verb::Ledger(here)
        | Verb::Remember(Remember { here, .. })
        | Verb::Forget(Forget { here, .. })
        | Verb::Empty(Empty { here, .. }) => here.cwd = here.cwd.take().or_else(|| cwd.map(Path::to_owned)),
        _ => {}
    }
    verb
}

/// The words of a line; quotes keep together what has blanks.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in line.chars() {
        match quote {
            Some(open) if character == open => quote = None,
            Some(_) => word.get_or_insert_default().push(character),
            None if character == '"' || character == '\'' => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            None if character.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// A text with slash commands in place of the command line's.
fn reworded(text: &str) -> String {
    let mut text = text.to_owned();
    for name in NAMES.into_iter().filter(|name| *name != "setup") {
        for end in ["`", " ", "\n"] {
            text = text.replace(&format!("lm-shim {name}{end}"), &format!("/{PREFIX}{name}{end}"));
        }
    }
    text
}

/// The ways to choose a model, of which this session is not the best.
fn how_to_set_up() -> String {
    let program = std::env::current_exe().map_or_else(|_| "lm-shim".to_owned(), |path| path.display().to_string());
    format!(
        "\
Choose who answers questions about your code. Best in a terminal, which asks, keeps
the key unseen, and tries it by a call that costs nothing:

  \"{program}\" setup

Or here, where the key stays in the transcript that Claude Code keeps of this session:

  /live-memory-config set provider=anthropic api_key=…
  /live-memory-config set provider=openai base_url=… model=… api_key=…

Or without a key, for one that this machine has already or that needs none:

  /live-memory-setup --provider anthropic --key-env ANTHROPIC_API_KEY --yes
  /live-memory-setup --provider ollama --model NAME --yes
  /live-memory-setup --provider offline

--yes is your consent to sending parts of your code there. /live-memory-stats shows
what is chosen and what it costs.
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_blanks() {
        for (line, expected) in [
            ("", vec![]),
            ("  ", vec![]),
            ("set a=b  c=d\n", vec!["set", "a=b", "c=d"]),
            ("set extra_headers='{\"a\": \"b\"}' x=\"\"", vec!["set", "extra_headers={\"a\": \"b\"}", "x="]),
            ("--cwd C:\\w\\p \"un closed", vec!["--cwd", "C:\\w\\p", "un closed"]),
        ] {
            assert_eq!(words(line), expected, "{line}");
        }
    }

    #[test]
    fn the_command_line_is_reworded_but_for_what_needs_a_terminal() {
        assert_eq!(
            reworded(
                "`lm-shim resume` goes on; Usage: lm-shim config set <NAME=VALUE>; `lm-shim setup` and lm-shim stop"
            ),
            "`/live-memory-resume` goes on; Usage: /live-memory-config set <NAME=VALUE>; `lm-shim setup` and lm-shim stop"
        );
    }
}
