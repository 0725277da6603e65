//! The thin client of Live Memory: the MCP server of a session, and the command line for people.
//!
//! ```text
//! main → mcp → stdio          (no arguments: what Claude Code starts)
//!      → cli                  (arguments: people and scripts)
//!        both → connector → connection, spawn → the daemon lm-core
//!      → hook                 (`hook`: after each tool of a session; the endpoint by itself)
//! ```
//!
//! The shim keeps no state, reads no repository and decides nothing about answers.

mod cli;
mod connection;
mod connector;
mod hook;
mod log;
mod mcp;
mod spawn;
mod stdio;

use std::{
    env,
    io::{IsTerminal, stdin},
    process::ExitCode,
};

fn main() -> ExitCode {
    // Before anything else: a session waits for it after each of its tools.
    if hook::is_wanted(env::args_os()) {
        return hook::run();
    }
    log::take_panics();
    if env::args_os().len() > 1 {
        cli::run()
    } else if stdin().is_terminal() {
        // A client never gives a terminal, so this is a person who wants to know what there is.
        cli::show_help()
    } else {
        mcp::serve()
    }
}
