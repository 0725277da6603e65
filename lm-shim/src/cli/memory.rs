//! `lm-shim empty`, `reset`, `pause` and `resume`; `remember`, `forget`, `pin`, `ledger` and `history`.

use lm_proto::{message::Request, question};

use super::{
    Empty, Forget, Here, History, Pin, Remember, ask,
    output::{self, Failed, Outcome},
    prompt, report,
};
use crate::mcp::session;

/// Forgets a workspace, or all. A person at a terminal is asked before all are gone.
pub(super) async fn empty(Empty { all, yes, here }: Empty) -> Outcome {
    let everywhere = all.is_some();
    if everywhere
        && !yes
        && prompt::is_possible()
        && !prompt::yes("Forget everything about every workspace?", false).await?
    {
        return output::print("Nothing was forgotten.\n");
    }
    let cwd = if everywhere { String::new() } else { ask::directory(here.cwd.as_deref())? };
    show(Request::Empty { cwd, everywhere, environment: session::environment() }, here.json).await
}

/// Forgets a workspace and begins anew.
pub(super) async fn reset(here: Here) -> Outcome {
    let cwd = ask::directory(here.cwd.as_deref())?;
    show(Request::Reset { cwd, environment: session::environment() }, here.json).await
}

/// Stops learning, or goes on.
pub(super) async fn pause(here: Here, paused: bool) -> Outcome {
    let cwd = ask::directory(here.cwd.as_deref())?;
    show(Request::Pause { cwd, paused, environment: session::environment() }, here.json).await
}

/// Notes something.
pub(super) async fn remember(Remember { text, here }: Remember) -> Outcome {
    let text = match text.as_slice() {
        [] => ask::read_input().await?,
        [dash] if dash == "-" => ask::read_input().await?,
        words => words.join(" "),
    };
    let cwd = ask::directory(here.cwd.as_deref())?;
    show(Request::Remember { cwd, text, environment: session::environment() }, here.json).await
}

/// Forgets a part, or says what that would be.
pub(super) async fn forget(Forget { pattern, yes, here }: Forget) -> Outcome {
    let cwd = ask::directory(here.cwd.as_deref())?;
    let (pattern, environment) = (pattern.join(" "), session::environment());
    show(Request::Forget { cwd, pattern, confirmed: yes, environment }, here.json).await
}

/// Pins facts, or lets them go.
pub(super) async fn pin(Pin { pattern, off, here }: Pin) -> Outcome {
    let cwd = ask::directory(here.cwd.as_deref())?;
    let (pattern, environment) = (pattern.join(" "), session::environment());
    show(Request::Pin { cwd, pattern, pinned: !off, environment }, here.json).await
}

/// Lists facts.
pub(super) async fn ledger(here: Here) -> Outcome {
    let cwd = ask::directory(here.cwd.as_deref())?;
    show(Request::Ledger { cwd, environment: session::environment() }, here.json).await
}

/// Lists answers.
pub(super) async fn history(History { limit, here }: History) -> Outcome {
    let cwd = ask::directory(here.cwd.as_deref())?;
    show(Request::History { cwd, limit, environment: session::environment() }, here.json).await
}

async fn show(request: Request, json: bool) -> Outcome {
    let reworded = |failed: Failed| Failed::new(question::failure_for_command_line(&failed.into_reason()));
    report::show(&report::request(request).await.map_err(reworded)?, json)
}
