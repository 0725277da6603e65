//! The MCP server: what Claude Code starts for a session and talks to over standard input and output.
//!
//! `initialize`, `tools/list` and `ping` are answered from here at once; the daemon is only needed
//! for a call, and started in the background as soon as the client is ready. What goes wrong with
//! it becomes the text of a call's result. Bytes and lines are the business of `stdio`, finding and
//! starting the daemon of `connector`; no state is kept here beyond the session.

mod hooks;
mod observer;
mod server;
pub(crate) mod session;
pub(crate) mod tool;

use std::{process::ExitCode, time::Duration};

use rmcp::ServiceExt;
use tokio_util::sync::CancellationToken;

use crate::{log, stdio};
use server::Server;

/// After the end of input, running calls may still finish for so long; then they are cancelled.
const CALLS_GRACE: Duration = Duration::from_secs(3);
/// For cancelled calls to end and for their replies to be written.
const END_GRACE: Duration = Duration::from_secs(1);

/// Serves one session, until its input ends.
pub(crate) fn serve() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start: {error}")),
    };
    let (transport, output, ends) = match stdio::open() {
        Ok(opened) => opened,
        Err(error) => return failed(&format!("cannot start the threads of standard input and output: {error}")),
    };
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let session = async {
            match Server::new(stop.clone()).serve(transport).await {
                Ok(session) => drop(session.waiting().await),
                // Nothing but the end of input before `initialize` gets here.
                Err(error) => log::note(&format!("no session: {error}")),
            }
        };
        let end = async {
            ends.input.cancelled().await;
            tokio::time::sleep(CALLS_GRACE).await;
            stop.cancel();
            tokio::time::sleep(END_GRACE).await;
        };
        tokio::select! {
            () = session => {}
            () = end => {}
            () = ends.output.cancelled() => {}
        }
    });
    output.flush(END_GRACE);
    // Not waiting for the threads, of which one may hang in a read or a write for ever.
    std::process::exit(0)
}

fn failed(message: &str) -> ExitCode {
    log::note(message);
    ExitCode::FAILURE
}
