//! Answers a question about one workspace.

pub mod citations;
pub mod prompts;
