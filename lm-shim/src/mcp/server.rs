//! The handler of one session's requests.

use std::{
    borrow::Cow,
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};

use lm_proto::{
    DataDirectory,
    message::{Answer, Ask},
    printable::printable_line,
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject,
        ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ProtocolVersion,
        ServerCapabilities, ServerConfig,
    },
    service::{NotificationContext, Peer, RequestContext},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    hooks,
    observer::Observer,
    session::{self, SessionDirectory},
    tool::{self, Arguments},
};
use crate::{
    connector::{Connector, Role},
    log,
};

/// How long the start in the background may take before it is given up; a call starts anew.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// How long a step is held back; steps of a question that is answered by then are not worth showing.
///
/// Clients made with the official TypeScript SDK handle notifications a moment later than replies: a
/// step that they read together with its answer belongs to no call any more, and Claude Code then
/// reports a connection error.
const PROGRESS_HOLD: Duration = Duration::from_millis(200);
/// The least time between a step and the answer, for the same reason.
const PROGRESS_GAP: Duration = Duration::from_millis(50);

const INSTRUCTIONS: &str = "\
Live Memory knows this code base across sessions. Before searching or reading files to find out \
where something is, how it works or what uses it, ask `ask_live_memory` in plain words; it answers \
with `path:line` places. Read a file itself only for the exact bytes you will edit.";

/// The newest version of the protocol whose sessions begin with `initialize`.
const NEWEST_VERSION: ProtocolVersion = ProtocolVersion::LATEST_WITH_INITIALIZE;

/// Answers one client.
pub(super) struct Server {
    directory: SessionDirectory,
    connector: OnceLock<Arc<Connector>>,
    observer: Observer,
    /// Ends every running call.
    stop: CancellationToken,
}

impl Server {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { directory: SessionDirectory::default(), connector: OnceLock::new(), observer: Observer::default(), stop }
    }

    /// The way to the daemon; the data directory is not looked for before there is need.
    fn connector(&self) -> Result<&Arc<Connector>, String> {
        if let Some(connector) = self.connector.get() {
            return Ok(connector);
        }
        let data = DataDirectory::open().map_err(|error| error.to_string())?;
        Ok(self.connector.get_or_init(|| Arc::new(Connector::new(data))))
    }

    /// Answers a hook, whatever becomes of what it reports.
    async fn serve_hook(&self, name: &str, arguments: Option<&JsonObject>) -> CallToolResult {
        if name == hooks::COMMAND {
            return hooks::command(arguments).await;
        }
        if let Some(observation) = hooks::observation(arguments) {
            match self.connector() {
                Ok(connector) => self.observer.add(observation, connector),
                Err(error) => log::note(&format!("what the session does cannot be reported: {error}")),
            }
        }
        hooks::nothing()
    }

    async fn answer(&self, arguments: Arguments, context: &RequestContext<RoleServer>) -> Result<Answer, String> {
        let cwd = self.directory.resolve(arguments.cwd.as_deref(), &context.peer).await?;
        let ask = Ask {
            question: arguments.question,
            cwd,
            max_answer_tokens: arguments.max_answer_tokens,
            timeout_s: None,
            environment: session::environment_for_questions(),
        };
        let connector = self.connector()?;
        let (progress, steps) = mpsc::unbounded_channel();
        let reporting = report(steps, context.meta.get_progress_token(), context.peer.clone());
        let asking = async move {
            let progress = progress;
            connector.ask(Role::Mcp, ask, |message| drop(progress.send(message)), &CancellationToken::new()).await
        };
        let (outcome, ()) = tokio::join!(asking, reporting);
        match outcome {
            Ok(answer) => Ok(answer),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Passes steps on to a client that wants to see them; ends with the question, and what it still
/// holds back then is never sent.
async fn report(mut steps: mpsc::UnboundedReceiver<String>, token: Option<ProgressToken>, peer: Peer<RoleServer>) {
    let mut held: VecDeque<(Instant, String)> = VecDeque::new();
    let mut count = 0.0;
    let mut quiet_until = None;
    loop {
        let due = held.front().map(|(due, _)| *due);
        tokio::select! {
            biased;
            step = steps.recv() => match (step, &token) {
                (Some(message), Some(_)) => held.push_back((Instant::now() + PROGRESS_HOLD, message)),
                (Some(_), None) => {}
                (None, _) => break,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let (Some((_, message)), Some(token)) = (held.pop_front(), token.clone()) else { continue };
                count += 1.0;
                let message = printable_line(&message);
                // A client that is gone shows nothing.
                drop(peer.notify_progress(ProgressNotificationParam::new(token, count).with_message(message)).await);
                quiet_until = Some(Instant::now() + PROGRESS_GAP);
            }
        }
    }
    if let Some(quiet_until) = quiet_until {
        sleep_until(quiet_until).await;
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_protocol_version(NEWEST_VERSION)
            .with_server_info(Implementation::new("live-memory", env!("CARGO_PKG_VERSION")).with_title("Live Memory"))
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::known_up_to(&NEWEST_VERSION))
    }

    async fn on_initialized(&self, _context: NotificationContext<RoleServer>) {
        // Once, so that the first question finds the daemon running. Where that fails, the first
        // question tries again and tells why.
        match self.connector() {
            Ok(connector) => {
                if let Err(error) = connector.connect(Role::Mcp, Instant::now() + START_PATIENCE).await {
                    log::note(&format!("the daemon did not start in the background: {error}"));
                }
            }
            Err(error) => log::note(&error),
        }
    }

    async fn on_roots_list_changed(&self, _context: NotificationContext<RoleServer>) {
        self.directory.forget_roots();
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![tool::definition()]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let is_for_hooks = [hooks::OBSERVE, hooks::COMMAND].contains(&request.name.as_ref());
        if is_for_hooks && hooks::is_from_hook(&context.meta.0.0) {
            return Ok(self.serve_hook(&request.name, request.arguments.as_ref()).await.into());
        }
        if request.name != tool::NAME {
            let message = format!("there is no tool `{}`; the only one is `{}`", request.name, tool::NAME);
            return Err(ErrorData::invalid_params(message, None));
        }
        let outcome = match Arguments::read(request.arguments.as_ref()) {
            Ok(arguments) => tokio::select! {
                outcome = self.answer(arguments, &context) => outcome,
                // No reply will be sent for a cancelled call; dropping the question stops the daemon's work.
                () = context.ct.cancelled() => Err("the call was cancelled".into()),
                () = self.stop.cancelled() => Err("the session ended before the answer".into()),
            },
            Err(message) => Err(message),
        };
        Ok(match outcome {
            Ok(answer) => CallToolResult::success(vec![ContentBlock::text(tool::render(&answer))]),
            Err(message) => CallToolResult::error(vec![ContentBlock::text(tool::cut(&message))]),
        }
        .into())
    }
}
