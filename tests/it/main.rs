//! End-to-end tests through the real binaries, one file per flow.

mod cli;
mod directories;
mod mcp;
mod session;
mod settings;
mod stdio_bytes;
mod workspace_roots;
