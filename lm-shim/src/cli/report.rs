//! Requests that are answered with a report, and `lm-shim stats`.

use std::process::ExitCode;

use lm_proto::{
    message::{Reply, Report, Request},
    printable::printable_json,
};
use tokio::time::Instant;

use super::{
    CONNECT_PATIENCE, Here, ask, connector,
    output::{self, Failed, Outcome},
};
use crate::{
    connection::{Connection, Event},
    connector::{ConnectError, Role},
    mcp::session,
};

/// Shows what the daemon knows; a daemon that does not run is not started for it.
pub(super) async fn stats(Here { cwd, json }: Here) -> Outcome {
    // A wrong directory is the daemon's to tell; none at all is no reason to know nothing.
    let cwd = if cwd.is_some() { ask::directory(cwd.as_deref())? } else { ask::directory(None).unwrap_or_default() };
    let connection = connector()?.connect(Role::Stats, Instant::now() + CONNECT_PATIENCE).await;
    let connection = match connection {
        Ok(connection) => connection,
        Err(ConnectError::NotRunning) => {
            return output::print(if json {
                "{\"running\":false}\n"
            } else {
                "The daemon is not running; the first question starts it.\n"
            });
        }
        Err(error) => return Err(Failed::from_error(error)),
    };
    let request = Request::Stats { cwd, environment: session::environment_for_reports() };
    show(&exchange(&connection, request).await?, json)
}

/// Sends a request to a daemon that is started where none runs.
pub(super) async fn request(request: Request) -> Result<Report, Failed> {
    let connection =
        connector()?.connect(Role::Ask, Instant::now() + CONNECT_PATIENCE).await.map_err(Failed::from_error)?;
    exchange(&connection, request).await
}

/// Sends a request and waits for its report.
pub(super) async fn exchange(connection: &Connection, request: Request) -> Result<Report, Failed> {
    let mut pending = connection.start(request);
    loop {
        match pending.next().await {
            Event::Progress(_) => {}
            Event::Reply(Ok(Reply::Report(report))) => return Ok(report),
            Event::Reply(Ok(Reply::Answer(_) | Reply::Noted)) => {
                return Err(Failed::new(
                    "the daemon sent an answer where a report was due; run `lm-shim stop` and try again",
                ));
            }
            Event::Reply(Err(failure)) => return Err(Failed::new(failure.message)),
            Event::Lost(reason) => {
                return Err(Failed::new(format!("the daemon was lost before it replied ({reason}); try again")));
            }
        }
    }
}

/// Prints a report; what is not healthy ends with 1.
pub(super) fn show(report: &Report, json: bool) -> Outcome {
    let code = if report.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let text = if json { printable_json(&report.json) } else { report.text.as_str().into() };
    output::print_and(&output::line(&text), code)
}
