//! What the end-to-end tests share: the real binaries, private surroundings, waiting with deadlines.
//!
//! Tests never touch the real home directory, talk to 127.0.0.1 only, and end only processes they
//! started themselves.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed expectation is a failed test")]

pub mod binaries;
pub mod corpus;
pub mod daemon;
pub mod files;
pub mod git;
pub mod mcp_client;
pub mod model_server;
pub mod observed;
#[cfg(unix)]
pub mod pipe;
pub mod run;
pub mod sandbox;
pub mod scripted_daemon;
#[cfg(unix)]
pub mod terminal;
pub mod wait;

pub use files::files_below;
pub use mcp_client::McpClient;
pub use model_server::ModelServer;
#[cfg(unix)]
pub use pipe::make_pipe;
pub use sandbox::Sandbox;
pub use scripted_daemon::{Behaviour, ScriptedDaemon};
pub use wait::wait_until;
