//! The daemon of Live Memory: one memory per repository, answered read-only.
//!
//! A [`daemon`] keeps a memory per [`workspace`]; an [`agent`] answers with [`tools`], [`retrieval`] and
//! a model ([`llm`]). Dependencies run one way:
//!
//! ```text
//! main → daemon → workspace → agent → { llm, memory, tools, retrieval } → files
//!                     settings is known to daemon, workspace and agent; it knows none of them
//!                     budget is known to daemon and workspace; it knows llm, whose usage it counts
//!                     conversation (types only) is known to all above that speak with a model
//! ```
//!
//! The rooms inside the braces never know each other. `docs/architecture.md` has the map, the
//! invariants and the test that holds each.

pub mod agent;
pub mod budget;
pub mod conversation;
pub mod daemon;
pub mod files;
pub mod llm;
pub mod memory;
pub mod retrieval;
pub mod settings;
pub mod tools;
pub mod workspace;
