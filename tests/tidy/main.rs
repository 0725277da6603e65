//! What holds the project's structure: who may know whom, who may touch what, and that the documents
//! speak of what exists. Each rule has a test that it can be broken.
#![cfg(test)]

mod access;
mod documents;
mod files;
mod layering;
mod source;
