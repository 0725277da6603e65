//! The tools that the client's hooks call: never listed, never called by a model, and nothing in their
//! answers fails, blocks or shows anything that was not asked for.

use lm_proto::message::Observation;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde_json::{Value, json};

use crate::{
    cli,
    hook::{EVENT, ToolUse, kind_of},
};

/// After a tool that has read or edited a file.
pub(super) const OBSERVE: &str = "observe";
/// A slash command, before it would become a prompt.
pub(super) const COMMAND: &str = "command";

/// The entry by which the client says which use of a tool by the model a call belongs to.
const TOOL_USE_ID: &str = "claudecode/toolUseId";

/// Whether a call comes from a hook: calls of the model name their use.
pub(super) fn is_from_hook(meta: &JsonObject) -> bool {
    !meta.contains_key(TOOL_USE_ID)
}

/// What a hook's call tells of; none where it is of no interest.
pub(super) fn observation(arguments: Option<&JsonObject>) -> Option<Observation> {
    if text(arguments, "event").is_some_and(|event| event != EVENT) {
        return None;
    }
    let tool = text(arguments, "tool")?;
    let seen = ToolUse {
        kind: kind_of(&tool)?,
        path: text(arguments, "path").or_else(|| text(arguments, "notebook"))?,
        cwd: text(arguments, "cwd"),
        session: text(arguments, "session"),
        agent: text(arguments, "agent"),
        tool,
    };
    seen.into_observation()
}

/// The answer that says nothing.
pub(super) fn nothing() -> CallToolResult {
    CallToolResult::success(Vec::new())
}

/// Performs a slash command. One that is not known here is left to the client.
pub(super) async fn command(arguments: Option<&JsonObject>) -> CallToolResult {
    let name = text(arguments, "command").unwrap_or_default();
    let given = text(arguments, "arguments").unwrap_or_default();
    let cwd = text(arguments, "cwd");
    match cli::slash::perform(&name, &given, cwd.as_deref()).await {
        // The prompt goes no further, and the person reads why: that is the answer. The other way of
        // stopping it would repeat what was typed, which may hold a key.
        Some(answer) => {
            let reply = json!({ "continue": false, "stopReason": format!("\n{}", answer.trim_end()) });
            CallToolResult::success(vec![ContentBlock::text(reply.to_string())])
        }
        None => nothing(),
    }
}

/// An argument; what the client does not have is an empty text.
fn text(arguments: Option<&JsonObject>, name: &str) -> Option<String> {
    arguments?.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lm_proto::message::ObservationKind;

    fn of(arguments: Value) -> Option<Observation> {
        observation(arguments.as_object())
    }

    #[test]
    fn what_a_tool_did_is_read_from_the_arguments() {
        let path = if cfg!(windows) { "C:\\w\\a" } else { "/w/a" };
        let seen = of(json!({
            "event": "PostToolUse", "tool": "Edit", "path": path, "notebook": "", "cwd": "/w", "session": "s", "agent": "a",
        }))
        .unwrap();
        assert_eq!((seen.path.as_str(), seen.kind, seen.cwd.as_str()), (path, ObservationKind::Edited, "/w"));
        let origin: Value = serde_json::from_str(&seen.origin).unwrap();
        assert_eq!((&origin["session"], &origin["agent"], &origin["tool"]), (&json!("s"), &json!("a"), &json!("Edit")));
        let notebook = of(json!({ "tool": "NotebookEdit", "path": "", "notebook": path })).unwrap();
        assert_eq!(notebook.kind, ObservationKind::Edited);
        assert_eq!(of(json!({ "tool": "Read", "path": path })).unwrap().kind, ObservationKind::Read);
    }

    #[test]
    fn what_is_of_no_interest_is_nothing() {
        for arguments in [
            json!({}),
            json!({ "tool": "Bash", "path": "/w/a" }),
            json!({ "tool": "Read" }),
            json!({ "tool": "Read", "path": "", "notebook": "" }),
            json!({ "tool": "Read", "path": 7 }),
            json!({ "event": "PreToolUse", "tool": "Read", "path": "/w/a" }),
        ] {
            assert_eq!(of(arguments.clone()), None, "{arguments}");
        }
        assert_eq!(observation(None), None);
    }
}
