//! Answers a question about one workspace.
//!
//! Knows what was found and turns it into an answer, or has a model look for itself. Not allowed
//! here: files and sockets of its own; what an answer is made of is handed in.

pub mod answer;
pub mod briefing;
pub mod citations;
pub mod inquiry;
pub mod offline;
pub mod prefix_gate;
pub mod printed_calls;
pub mod prompts;
pub mod provider;
pub mod summary;

pub(crate) use lm_proto::printable;
