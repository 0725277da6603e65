//! Answers a question about one workspace.
