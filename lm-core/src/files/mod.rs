//! The one door to workspace files.
