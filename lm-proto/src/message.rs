//! The messages that follow the handshake.
//!
//! Enums are append-only: a variant is never removed, reordered or given other fields (postcard
//! writes the variant's position, and a struct is nothing but its fields in order). What must grow
//! freely, such as the fields of an answer or of a report, travels as JSON text inside a message.
//! `serde` attributes that leave fields out (`skip`, `flatten`, `untagged`) break postcard and are
//! not used here.

use serde::{Deserialize, Serialize};

/// Environment variables of a session that begin with `LIVE_MEMORY_`, name and value. With a question
/// come the session's [`PROVIDER_KEYS`] as well.
pub type SessionEnvironment = Vec<(String, String)>;

/// From a client to the daemon.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ClientMessage {
    /// A request; its reply carries the same id. Ids are chosen by the client, once per connection.
    Request {
        /// Names the request on this connection.
        id: u64,
        /// What is wanted.
        request: Request,
    },
    /// Stop the work on a request; no reply follows. Unknown and finished ids are ignored.
    Cancel {
        /// The request to stop.
        id: u64,
    },
}

/// What a client may want.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Answer a question about a code base.
    Ask(Ask),
    /// Report what the daemon knows and has done.
    Stats {
        /// The directory asked from, to report its workspace first; empty for none.
        cwd: String,
        /// The session's variables, to show what they shadow.
        environment: SessionEnvironment,
    },
    /// Report every setting with its value and where that comes from.
    ConfigShow {
        /// The session's variables, which take precedence.
        environment: SessionEnvironment,
    },
    /// Change settings in `config.json`, all or none.
    ConfigSet {
        /// Name and value, both as typed.
        changes: Vec<(String, String)>,
        /// The session's variables, to say what shadows a change.
        environment: SessionEnvironment,
    },
    /// Remove settings from `config.json`, all or none.
    ConfigUnset {
        /// Names as typed.
        names: Vec<String>,
        /// The session's variables, to say what still holds.
        environment: SessionEnvironment,
    },
    /// Check the daemon's surroundings and say what is wrong.
    Doctor {
        /// The directory asked from; empty for none.
        cwd: String,
        /// The session's variables.
        environment: SessionEnvironment,
    },
    /// Try a provider by a call that costs nothing, as it would be with changed settings. Nothing is
    /// stored.
    TryProvider {
        /// Name and value, both as typed.
        changes: Vec<(String, String)>,
        /// The one of [`PROVIDER_KEYS`] that the choice relies on, if it relies on one.
        environment: SessionEnvironment,
    },
    /// Take note that a session has read or changed a file. It is taken up as soon as it is read, also
    /// where the client has gone by then.
    Observe(Observation),
    /// Forget a workspace, or all of them, with everything that is kept of it.
    Empty {
        /// A directory of the workspace; it need not exist any more. Of no meaning with `everywhere`.
        cwd: String,
        /// Every workspace there is anything of.
        everywhere: bool,
        /// The session's variables.
        environment: SessionEnvironment,
    },
    /// Forget a workspace and learn at once again what is learned without being asked.
    Reset {
        /// A directory of the workspace.
        cwd: String,
        /// The session's variables.
        environment: SessionEnvironment,
    },
    /// Stop learning from what sessions read and change in a workspace, or go on with it.
    Pause {
        /// A directory of the workspace.
        cwd: String,
        /// True stops, false goes on.
        paused: bool,
        /// The session's variables.
        environment: SessionEnvironment,
    },
    /// Note something about a workspace that a person says.
    Remember {
        /// A directory of the workspace.
        cwd: String,
        /// What to note.
        text: String,
        /// The session's variables.
        environment: SessionEnvironment,
    },
    /// Forget a part of what is known of a workspace.
    Forget {
        /// A directory of the workspace.
        cwd: String,
        /// A path, a glob, `#` and the number of a fact, or text.
        pattern: String,
        /// False only says what would be forgotten.
        confirmed: bool,
        /// The session's variables.
        environment: SessionEnvironment,
    },
    /// Keep facts of a workspace when room is needed, or let them go again.
    Pin {
        /// A directory of the workspace.
        cwd: String,
        /// As for [`Self::Forget`].
        pattern: String,
        /// True keeps, false lets go.
        pinned: bool,
        /// The session's variables.
        environment: SessionEnvironment,
    },
    /// Report the facts that are known of a workspace.
    Ledger {
        /// A directory of the workspace.
        cwd: String,
        /// The session's variables.
        environment: SessionEnvironment,
    },
    /// Report the questions about a workspace and their answers.
    History {
        /// A directory of the workspace.
        cwd: String,
        /// The most answers, the newest ones.
        limit: u32,
        /// The session's variables.
        environment: SessionEnvironment,
    },
    /// Give what is known of a workspace as JSON lines, in the text of the report.
    Export {
        /// A directory of the workspace.
        cwd: String,
        /// The session's variables.
        environment: SessionEnvironment,
    },
    /// Take in such lines.
    Import {
        /// A directory of the workspace.
        cwd: String,
        /// The lines.
        lines: String,
        /// The session's variables.
        environment: SessionEnvironment,
    },
}

/// What happened to a file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// The file: an absolute path, as the client gave it.
    pub path: String,
    /// What happened to it.
    pub kind: ObservationKind,
    /// The session's directory; empty where it is not known.
    pub cwd: String,
    /// The session's variables, which hold for this observation.
    pub environment: SessionEnvironment,
    /// Who saw it and when, as one JSON object (`docs/protocol.md` names its fields).
    pub origin: String,
}

/// What may happen to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ObservationKind {
    /// It was read, whole or in part.
    Read,
    /// It was written or changed.
    Edited,
    /// It was removed.
    Removed,
}

/// The entry of a [`SessionEnvironment`] that lists, separated by commas, which of [`PROVIDER_KEYS`]
/// the session's environment has. It is no variable of anybody's: clients put it in with requests for
/// reports, and only names are in it, never values.
pub const INHERITED_KEYS: &str = "LIVE_MEMORY_INHERITED_KEYS";

/// Variables that hold keys of model providers for programs of all kinds. Having one chooses nothing.
pub const PROVIDER_KEYS: [&str; 3] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "DEEPSEEK_API_KEY"];

/// The provider keys that a session says it has; other names are passed over.
#[must_use]
pub fn inherited_keys(environment: &[(String, String)]) -> Vec<&'static str> {
    let listed = environment.iter().find(|(name, _)| name == INHERITED_KEYS).map_or("", |(_, list)| list);
    PROVIDER_KEYS.into_iter().filter(|key| listed.split(',').any(|name| name == *key)).collect()
}

/// A question.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ask {
    /// In natural language.
    pub question: String,
    /// An absolute directory in the workspace that is asked about.
    pub cwd: String,
    /// The longest answer wanted, in tokens; the setting's value where absent.
    pub max_answer_tokens: Option<u32>,
    /// The soft deadline in seconds, queueing included; the setting's value where absent.
    pub timeout_s: Option<u32>,
    /// The session's variables, which hold for this question.
    pub environment: SessionEnvironment,
}

/// From the daemon to a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DaemonMessage {
    /// The end of a request.
    Reply {
        /// The request's id.
        id: u64,
        /// What came of it.
        outcome: Result<Reply, Failure>,
    },
    /// A step on the way; any number may come before the reply.
    Progress {
        /// The request's id.
        id: u64,
        /// What is being done, for a person.
        message: String,
    },
}

/// A request's result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::Ask`].
    Answer(Answer),
    /// To the requests that report, configure, or change what is remembered.
    Report(Report),
    /// To [`Request::Observe`]: it is queued.
    Noted,
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The answer itself, Markdown.
    pub text: String,
    /// One line about how it came about: provider, time, files, cost.
    pub trailer: String,
    /// All of it as one JSON object (`docs/protocol.md` names its fields).
    pub json: String,
}

/// A report.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// For a person, in a terminal of 80 columns.
    pub text: String,
    /// The same as one JSON object.
    pub json: String,
    /// False where the report is about something that is wrong, as an exit code shows it.
    pub healthy: bool,
}

/// Why a request has no result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// What kind, for programs.
    pub kind: FailureKind,
    /// What happened and what to do about it, for people and models.
    pub message: String,
}

/// The kinds of failure a client treats differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FailureKind {
    /// The request itself is at fault; the same request fails again.
    InvalidRequest,
    /// Too much is going on; the same request may succeed later.
    Busy,
    /// The daemon is leaving; the same request succeeds with its successor.
    Draining,
    /// The daemon is at fault; its log says more.
    Internal,
}

impl Failure {
    /// A failure of the given kind.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
