//! End-to-end tests through the real binaries, one file per flow.

mod cli;
mod mcp;
mod stdio_bytes;
