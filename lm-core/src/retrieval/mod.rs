//! Finds the places in a workspace that a question is about, without a model.
