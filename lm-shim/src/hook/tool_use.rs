//! A session's use of a tool on a file, and the observation that it makes. Shared by both forms of hooks.

use std::{
    env,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use lm_proto::{
    Build,
    message::{Observation, ObservationKind},
};

use crate::mcp::session;

/// The event after which a tool has done what it was asked to.
pub(crate) const EVENT: &str = "PostToolUse";

/// What a tool does to the file that it is used on; none for tools that are of no interest.
pub(crate) fn kind_of(tool: &str) -> Option<ObservationKind> {
    match tool {
        "Read" => Some(ObservationKind::Read),
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => Some(ObservationKind::Edited),
        _ => None,
    }
}

/// A file that a tool was used on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ToolUse {
    pub(crate) kind: ObservationKind,
    /// The tool's name.
    pub(crate) tool: String,
    /// As the client gave it.
    pub(crate) path: String,
    /// The session's directory.
    pub(crate) cwd: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) agent: Option<String>,
}

impl ToolUse {
    /// What the daemon is told, as of now; none for a path that leads nowhere.
    pub(crate) fn into_observation(self) -> Option<Observation> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let origin = serde_json::json!({
            "session": self.session,
            "agent": self.agent,
            "tool": self.tool,
            "at_ms": u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            "build": Build::with_stamp(0).to_string(),
        });
        Some(Observation {
            path: absolute(self.path, self.cwd.as_deref())?,
            kind: self.kind,
            cwd: self.cwd.unwrap_or_default(),
            environment: session::environment(),
            origin: origin.to_string(),
        })
    }
}

/// A relative path is meant from the session's directory, which the process usually has too.
fn absolute(path: String, cwd: Option<&str>) -> Option<String> {
    // On Windows shells of the MSYS family write `/w/p` for `W:\p`, which the daemon understands.
    if Path::new(&path).is_absolute() || path.starts_with('/') {
        return Some(path);
    }
    let base = cwd.map(PathBuf::from).filter(|cwd| cwd.is_absolute()).or_else(|| env::current_dir().ok())?;
    base.join(path).into_os_string().into_string().ok()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_the_sessions() {
        let absolute = |path: &str, cwd| absolute(path.to_owned(), cwd);
        assert_eq!(absolute("/a/b", Some("/w")).as_deref(), Some("/a/b"));
        assert_eq!(absolute("a/../b", Some("/w")).as_deref(), Some("/w/a/../b"));
        let own = env::current_dir().unwrap().join("a").into_os_string().into_string().unwrap();
        assert_eq!(absolute("a", Some("w")), Some(own.clone()));
        assert_eq!(absolute("a", None), Some(own));
    }
}
