//! End-to-end tests through the real binaries, one file per flow.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed expectation is a failed test")]

mod cli;
mod directories;
mod election;
mod hook;
mod llm_wire;
mod mcp;
mod memory_commands;
mod model;
mod retrieval;
mod session;
mod session_hooks;
mod settings;
mod setup;
mod stdio_bytes;
#[cfg(unix)]
mod terminal;
mod tools;
mod workspace_roots;
