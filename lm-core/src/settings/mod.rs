//! What a person can set, where it may be set, and what holds.
//!
//! One typed table ([`table`]) gives the [`Settings`] struct, validation, `config show` and the
//! documentation page. Deciding which value holds ([`resolve`]) is pure; the file is read and written
//! in one place and held by the [`SettingsStore`].
//!
//! Not allowed here: acting on a setting. Rooms that use one take it from [`Settings`].

mod config_file;
pub mod field;
pub mod kind;
pub mod page;
pub mod resolve;
mod secret;
pub mod show;
mod store;
pub mod table;

pub use config_file::ConfigError;
pub use field::{Concurrency, LogLevel, Provider, RepoRootMode};
pub use kind::relative_glob;
pub use resolve::{Origin, Problem, Resolved};
pub use secret::Secret;
pub use store::{Changed, SettingsStore};
pub use table::{Effect, Row, Scope, Settings};

#[cfg(test)]
mod tests;
