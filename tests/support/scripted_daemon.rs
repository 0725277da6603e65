//! A daemon that says what a test wants, at the real endpoint in the real protocol.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use futures_util::{SinkExt, StreamExt};
use lm_proto::{
    Build, Endpoint,
    codec::DaemonFramed,
    endpoint::Stream,
    handshake::{Hello, Intent, PROTOCOL_NEWEST, State, Welcome},
    message::{Answer, Ask, ClientMessage, DaemonMessage, Failure, FailureKind, Reply, Request},
};
use tokio::runtime::Runtime;

use crate::{Sandbox, wait_until};

/// What the daemon does with a request.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Steps it reports first.
    pub progress: Vec<String>,
    /// How it ends; never, if none.
    pub outcome: Option<Result<Reply, Failure>>,
}

impl Behaviour {
    /// Answers.
    #[must_use]
    pub fn answer(text: impl Into<String>) -> Self {
        let text = text.into();
        let json = serde_json::json!({ "answer": text }).to_string();
        let answer = Answer { text, trailer: "offline · 1 ms".into(), json };
        Self { progress: Vec::new(), outcome: Some(Ok(Reply::Answer(answer))) }
    }

    /// Fails.
    #[must_use]
    pub fn fail(message: &str) -> Self {
        Self { progress: Vec::new(), outcome: Some(Err(Failure::new(FailureKind::Internal, message))) }
    }

    /// Works for ever.
    #[must_use]
    pub fn hold() -> Self {
        Self { progress: Vec::new(), outcome: None }
    }

    /// Reports steps first.
    #[must_use]
    pub fn with_progress(mut self, steps: &[&str]) -> Self {
        self.progress = steps.iter().map(|&step| step.to_owned()).collect();
        self
    }
}

/// What a daemon saw of its clients.
#[derive(Clone, PartialEq, Debug)]
pub enum Seen {
    /// A message.
    Message(ClientMessage),
    /// A connection that had carried a message was closed.
    Closed,
}

type Script = dyn Fn(&Request) -> Behaviour + Send + Sync;

/// A running scripted daemon; it is gone when dropped.
pub struct ScriptedDaemon {
    runtime: Option<Runtime>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl fmt::Debug for ScriptedDaemon {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ScriptedDaemon").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl ScriptedDaemon {
    /// Listens in a sandbox in which no daemon runs.
    #[must_use]
    pub fn start(sandbox: &Sandbox, script: impl Fn(&Request) -> Behaviour + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let endpoint = Endpoint::of(&sandbox.data());
        endpoint.remove_stale().unwrap();
        let listener = runtime.block_on(async { endpoint.listen() }).unwrap();
        let (script, shared): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&seen));
        runtime.spawn(async move {
            while let Ok(stream) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&shared)));
            }
        });
        Self { runtime: Some(runtime), seen }
    }

    /// Everything it saw so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The questions it was asked so far.
    #[must_use]
    pub fn questions(&self) -> Vec<Ask> {
        self.seen()
            .into_iter()
            .filter_map(|seen| match seen {
                Seen::Message(ClientMessage::Request { request: Request::Ask(ask), .. }) => Some(ask),
                _ => None,
            })
            .collect()
    }

    /// Waits until it was asked as many questions.
    pub fn wait_for_questions(&self, count: usize) {
        wait_until("the daemon is asked", || (self.questions().len() >= count).then_some(()));
    }

    /// Waits until a client has given up a request, by saying so or by leaving.
    pub fn wait_for_cancel(&self) {
        wait_until("the daemon is told to stop", || {
            self.seen()
                .iter()
                .any(|seen| matches!(seen, Seen::Closed | Seen::Message(ClientMessage::Cancel { .. })))
                .then_some(())
        });
    }
}

impl Drop for ScriptedDaemon {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(mut stream: Stream, script: Arc<Script>, seen: Arc<Mutex<Vec<Seen>>>) {
    let Ok(hello) = Hello::read(&mut stream).await else { return };
    let state = if hello.intent == Intent::Drain { State::Draining } else { State::Ready };
    // Newer than any shim, so that none replaces it.
    let build = Build { version: u64::MAX, stamp: u64::MAX };
    let welcome = Welcome { protocol: PROTOCOL_NEWEST, state, build, pid: std::process::id() };
    if welcome.write(&mut stream).await.is_err() || hello.intent != Intent::Serve {
        return;
    }
    let mut framed: DaemonFramed<Stream> = DaemonFramed::new(stream, Default::default());
    let mut has_spoken = false;
    while let Some(Ok(message)) = framed.next().await {
        has_spoken = true;
        seen.lock().unwrap().push(Seen::Message(message.clone()));
        let ClientMessage::Request { id, request } = message else { continue };
        let behaviour = script(&request);
        for step in behaviour.progress {
            if framed.send(DaemonMessage::Progress { id, message: step }).await.is_err() {
                return;
            }
        }
        if let Some(outcome) = behaviour.outcome
            && framed.send(DaemonMessage::Reply { id, outcome }).await.is_err()
        {
            return;
        }
    }
    if has_spoken {
        seen.lock().unwrap().push(Seen::Closed);
    }
}
