//! `lm-shim ask`.

use std::{
    env,
    io::{IsTerminal, Read, stdin},
    path::Path,
};

use lm_proto::{message, printable::printable_json, question};
use tokio_util::sync::CancellationToken;

use super::{
    Ask, connector,
    output::{self, Failed, Outcome, StatusLine},
};
use crate::{connector::Role, mcp::session};

/// Asks, shows what is going on, prints the answer.
pub(super) async fn ask(arguments: Ask) -> Outcome {
    let question = read_question(arguments.question).await?;
    let ask = message::Ask {
        question,
        cwd: directory(arguments.cwd.as_deref())?,
        max_answer_tokens: arguments.max_answer_tokens,
        timeout_s: arguments.timeout,
        environment: session::environment_for_questions(),
    };
    let connector = connector()?;
    let mut status = StatusLine::new();
    status.show("asking …");
    let answer = connector.ask(Role::Ask, ask, |step| status.show(&step), &CancellationToken::new()).await;
    status.clear();
    let answer = answer.map_err(|error| Failed::new(question::failure_for_command_line(&error.to_string())))?;
    let printed = output::print(&output::line(&if arguments.json {
        printable_json(&answer.json).into_owned()
    } else {
        question::answer_for_command_line(&answer.text)
    }))?;
    let is_wanted = status.is_terminal() && !arguments.json && !answer.trailer.is_empty();
    Ok(if is_wanted { printed.and_say(format!("\n{}\n", answer.trailer)) } else { printed })
}

/// The words given, or what standard input has.
async fn read_question(words: Vec<String>) -> Result<String, Failed> {
    let question = match words.as_slice() {
        [] if stdin().is_terminal() => {
            return Err(Failed::usage("give a question, as in: lm-shim ask \"where is the entry point?\""));
        }
        [] => read_input().await?,
        [dash] if dash == "-" => read_input().await?,
        words => words.join(" "),
    };
    question::check(&question).map_err(|error| Failed::usage(error.to_string()))?;
    Ok(question.trim().to_owned())
}

/// All of standard input, as far as it can be a question or a setting.
pub(super) async fn read_input() -> Result<String, Failed> {
    let read = tokio::task::spawn_blocking(|| {
        let mut bytes = Vec::new();
        let limit = question::QUESTION_BYTES_MAX as u64 + 1;
        stdin().lock().take(limit).read_to_end(&mut bytes).map(|_| bytes)
    });
    match read.await {
        Ok(Ok(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Ok(Err(error)) => Err(Failed::new(format!("cannot read standard input: {error}"))),
        Err(error) => Err(Failed::new(format!("cannot read standard input: {error}"))),
    }
}

/// The directory asked from, absolute.
pub(super) fn directory(given: Option<&Path>) -> Result<String, Failed> {
    let path = match given {
        Some(given) => std::path::absolute(given)
            .map_err(|error| Failed::usage(format!("cannot use `{}` as a directory: {error}", given.display())))?,
        None => env::current_dir().map_err(|error| {
            Failed::new(format!("the current directory cannot be read ({error}); give one with --cwd"))
        })?,
    };
    session::to_text(&path).map_err(Failed::new)
}
