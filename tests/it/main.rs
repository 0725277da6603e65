//! End-to-end tests through the real binaries, one file per flow.

mod cli;
mod directories;
mod election;
mod mcp;
mod settings;
mod stdio_bytes;
mod workspace_roots;
