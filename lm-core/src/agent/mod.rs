//! Answers a question about one workspace.
//!
//! Knows what was found and turns it into an answer. Not allowed here: files, sockets, clocks; what
//! an answer is made of is handed in.

pub mod offline;
