//! What a person can set, resolved for one request.

use std::path::PathBuf;

/// Which repository a nested directory belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RepoRootMode {
    /// The nearest repository: a submodule is a workspace of its own.
    #[default]
    Nearest,
    /// The outermost repository: a submodule belongs to its superproject.
    Outermost,
}

/// The settings that hold for one request.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Resolve a directory to its repository; false keeps one memory per exact directory.
    pub canonicalize_workspace: bool,
    /// Which repository counts.
    pub repo_root_mode: RepoRootMode,
    /// The soft deadline of a question in seconds.
    pub default_timeout_s: u32,
    /// The longest answer in tokens.
    pub max_answer_tokens: u32,
    /// Workspaces never learned from or sent.
    pub exclude: Vec<PathBuf>,
    /// Leave after so many idle seconds; 0 is never.
    pub idle_exit_s: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            canonicalize_workspace: true,
            repo_root_mode: RepoRootMode::Nearest,
            default_timeout_s: 60,
            max_answer_tokens: 4096,
            exclude: Vec::new(),
            idle_exit_s: 1800,
        }
    }
}
