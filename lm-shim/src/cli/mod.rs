//! The command line: what people and scripts type, and what they see.
//!
//! Standard output carries the result and nothing else; everything said besides goes to standard
//! error. Exit codes: 0 done, 1 failed with a reason, 2 wrong usage, 130 interrupted. Texts of
//! reports are made by the daemon; here they are only shown.

mod ask;
mod config;
mod doctor;
mod luggage;
mod memory;
mod output;
mod prompt;
mod report;
mod setup;
pub(crate) mod slash;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use clap::{
    Args, CommandFactory, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use lm_proto::DataDirectory;
use tokio::time::Instant;

use crate::connector::{Connector, Drained};
use output::{Failed, Outcome};

/// How long a command waits for the daemon to be found or started.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
/// How long `stop` waits for the daemon to finish its work.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

const AFTER_HELP: &str = "\
Without arguments lm-shim is an MCP server over standard input and output,
which is how Claude Code starts it.

Example: lm-shim ask \"where is the retry policy of the HTTP client?\"";

/// Live Memory: a memory of your code base that answers questions.
#[derive(Parser)]
#[command(name = "lm-shim", version, after_help = AFTER_HELP, disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Ask a question about a code base
    Ask(Ask),
    /// Choose the model that answers, try it and see what it costs
    Setup(setup::Setup),
    /// Finish running work and stop the daemon; the next question starts it
    Stop,
    /// Show or change settings
    #[command(subcommand)]
    Config(Config),
    /// Show what the daemon knows and has done
    Stats(Here),
    /// Check the installation and say what is wrong
    Doctor(Here),
    /// Forget everything about this workspace, or about all
    #[command(after_help = "\
What is forgotten: the conversation, what was learned and observed, the search
index, in memory and on the disk. What was spent stays on record. Answers that
are under way are given, and not remembered.")]
    Empty(Empty),
    /// Forget everything about this workspace and begin anew
    Reset(Here),
    /// Note something about this workspace
    #[command(after_help = "\
It is told to the model with the next question and from then on, as data that
a person noted. `lm-shim ledger` lists what is known, `lm-shim forget` takes it
back.

Example: lm-shim remember \"releases are cut from the branch stable\"")]
    Remember(Remember),
    /// Forget a part of what is known of this workspace
    #[command(after_help = "\
PATTERN is a path, a directory or a glob of known files, `#` and the number
of a fact, or text that occurs in what was noted or answered. Without --yes
it only says what would be forgotten. Facts, archive, conversation and older
generations on the disk are all reached. What lies in the workspace itself
can be seen anew.")]
    Forget(Forget),
    /// Keep facts when room is needed
    Pin(Pin),
    /// List the facts that are known and whether they still hold
    Ledger(Here),
    /// List the questions about this workspace and their answers
    History(History),
    /// Write what is known of this workspace as JSON lines
    Export(Luggage),
    /// Take in what `export` wrote, where the repository is the same
    Import(Luggage),
    /// Stop learning from what sessions read and edit in this workspace
    #[command(after_help = "\
Questions are answered as before. It holds for all sessions, also after a
restart, until `lm-shim resume` or until the workspace is emptied.")]
    Pause(Here),
    /// Go on learning after `pause`
    Resume(Here),
    /// Tell the daemon of a file that a session read or edited; for hooks
    #[command(after_help = "\
A command hook's payload is read from standard input, as Claude Code gives it
after the tools Read, Write, Edit, MultiEdit and NotebookEdit; all others are
passed over. Nothing is ever printed, the exit code is always 0, no daemon is
started, and it takes a moment at most, whatever is wrong.")]
    Hook,
}

#[derive(Args)]
#[command(after_help = "\
The answer goes to standard output; on a terminal, progress and a line about
how the answer came about go to standard error. The object of --json has the
answer, its sources, usage, timing and provider.")]
struct Ask {
    /// Directory asked about [default: the current one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Print one JSON object, for scripts
    #[arg(long)]
    json: bool,
    /// Answer within so many seconds, as well as can be
    #[arg(long, value_name = "S", value_parser = positive)]
    timeout: Option<u32>,
    /// The longest answer wanted, in tokens
    #[arg(long, value_name = "N", value_parser = positive)]
    max_answer_tokens: Option<u32>,
    /// The question; `-`, or nothing, reads it from standard input
    question: Vec<String>,
}

/// A number as typed.
fn positive(text: &str) -> Result<u32, &'static str> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or("give a whole number from 1")
}

#[derive(Subcommand)]
enum Config {
    /// Show every setting, its value and where that comes from
    Show(Json),
    /// Change settings in config.json, all or none
    #[command(after_help = "\
NAME=- reads the value from standard input, which keeps a secret out of the
shell's history and out of sight of other users.

Example: lm-shim config set default_timeout_s=120 max_answer_tokens=2000")]
    Set {
        /// What to set
        #[arg(value_name = "NAME=VALUE", required = true)]
        changes: Vec<String>,
    },
    /// Remove settings from config.json, so that defaults hold again
    Unset {
        /// What to remove
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

#[derive(Args)]
struct Empty {
    /// Every workspace there is anything of
    #[arg(value_parser = ["all"], value_name = "all", conflicts_with = "cwd")]
    all: Option<String>,
    /// Do not ask, even on a terminal
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    here: Here,
}

#[derive(Args)]
struct Remember {
    /// What to note; `-`, or nothing, reads it from standard input
    text: Vec<String>,
    #[command(flatten)]
    here: Here,
}

#[derive(Args)]
struct Forget {
    /// What to forget
    #[arg(value_name = "PATTERN", required = true)]
    pattern: Vec<String>,
    /// Do it, instead of saying what would be forgotten
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    here: Here,
}

#[derive(Args)]
struct Pin {
    /// Which facts: as for `lm-shim forget`
    #[arg(value_name = "PATTERN", required = true)]
    pattern: Vec<String>,
    /// Let them go again
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    here: Here,
}

#[derive(Args)]
struct History {
    /// The most answers, the newest ones
    #[arg(long, value_name = "N", default_value = "20", value_parser = positive)]
    limit: u32,
    #[command(flatten)]
    here: Here,
}

#[derive(Args)]
struct Luggage {
    /// The file; `-`, or nothing, is standard output or input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    here: Here,
}

#[derive(Args)]
struct Here {
    /// A directory of the workspace [default: the current one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Json {
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

/// Runs what the arguments say.
pub(crate) fn run() -> ExitCode {
    run_with(std::env::args_os().collect())
}

fn run_with(arguments: Vec<OsString>) -> ExitCode {
    let command_line = match CommandLine::try_parse_from(arguments) {
        Ok(command_line) => command_line,
        Err(error) => return output::show_clap(&with_tip(error)),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output::end(Err(Failed::new(format!("cannot start: {error}; try again")))),
    };
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = perform(command_line.verb) => outcome,
            // What was asked for is dropped, which cancels it in the daemon.
            Ok(()) = tokio::signal::ctrl_c() => Err(Failed::interrupted()),
        }
    });
    // A read of standard input may still hang in a thread of the runtime.
    runtime.shutdown_background();
    output::end(outcome)
}

/// Adds the command that was probably meant. The parser does so itself, but not for words as short as
/// `aks`.
fn with_tip(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::InvalidSubcommand
        && error.get(ContextKind::SuggestedSubcommand).is_none()
        && let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand)
    {
        let command = CommandLine::command();
        let near = command
            .get_subcommands()
            .map(|verb| (strsim::damerau_levenshtein(given, verb.get_name()), verb.get_name().to_owned()))
            .filter(|(edits, name)| *edits <= 2 && *edits < name.len())
            .min();
        if let Some((_, name)) = near {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![name]));
        }
    }
    error
}

async fn perform(verb: Verb) -> Outcome {
    match verb {
        Verb::Ask(arguments) => ask::ask(arguments).await,
        Verb::Setup(arguments) => setup::setup(arguments).await,
        Verb::Stop => stop().await,
        Verb::Config(Config::Show(Json { json })) => config::show(json).await,
        Verb::Config(Config::Set { changes }) => config::set(changes).await,
        Verb::Config(Config::Unset { names }) => config::unset(names).await,
        Verb::Stats(here) => report::stats(here).await,
        Verb::Doctor(here) => doctor::doctor(here).await,
        Verb::Empty(arguments) => memory::empty(arguments).await,
        Verb::Reset(here) => memory::reset(here).await,
        Verb::Remember(arguments) => memory::remember(arguments).await,
        Verb::Forget(arguments) => memory::forget(arguments).await,
        Verb::Pin(arguments) => memory::pin(arguments).await,
        Verb::Ledger(here) => memory::ledger(here).await,
        Verb::History(arguments) => memory::history(arguments).await,
        Verb::Export(luggage) => luggage::export(luggage).await,
        Verb::Import(luggage) => luggage::import(luggage).await,
        Verb::Pause(here) => memory::pause(here, true).await,
        Verb::Resume(here) => memory::pause(here, false).await,
        // It does not come this way; `crate::hook::is_wanted` says what does.
        Verb::Hook => Ok(output::Done::silently(crate::hook::run())),
    }
}

/// Shows what there is to someone who started the server by hand.
pub(crate) fn show_help() -> ExitCode {
    output::say(&CommandLine::command().render_help().to_string());
    ExitCode::from(2)
}

async fn stop() -> Outcome {
    let drained = connector()?.drain(Instant::now() + STOP_PATIENCE).await.map_err(Failed::from_error)?;
    output::print(match drained {
        Drained::Left => "The daemon has finished its work and left.\n",
        Drained::WasNotRunning => "The daemon was not running.\n",
    })
}

/// The way to the daemon of this user's data directory.
fn connector() -> Result<Connector, Failed> {
    Ok(Connector::new(DataDirectory::open().map_err(Failed::from_error)?))
}
