//! What the shim and the daemon say to each other, and where they meet.
//!
//! In this crate: the data directory both agree on ([`directory`]), the endpoint inside it
//! ([`endpoint`], the only file of the project that names `interprocess`), the handshake that every
//! version past and future can read ([`handshake`]), the messages that follow it ([`message`]) and
//! their framing ([`codec`]); what both say about a question ([`question`]) and how both make text fit
//! for a terminal ([`printable`](mod@printable)).
//!
//! Not allowed here: policy. Who may start, replace or stop a daemon is decided in the shim and the
//! daemon; this crate knows no setting, no workspace and no model.

pub mod build;
pub mod codec;
pub mod directory;
pub mod endpoint;
pub mod handshake;
pub mod message;
pub mod printable;
pub mod question;

#[cfg(windows)]
mod user_windows;

pub use build::Build;
pub use directory::{DataDirectory, DirectoryError};
pub use endpoint::Endpoint;
