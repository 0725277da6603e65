//! The server loop: one task per connection, one per request, none of which can harm another.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{SinkExt, StreamExt};
use lm_proto::{
    Build,
    codec::Codec,
    endpoint::{Listener, Stream},
    handshake::{Hello, Intent, State, Welcome},
    message::{ClientMessage, DaemonMessage, Failure, FailureKind, Observation, Reply, Request},
};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::{
    codec::{FramedRead, FramedWrite},
    sync::CancellationToken,
    task::TaskTracker,
};

use super::{dispatch::Dispatcher, status::Presence};

/// A client that has not said hello by then is not one.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Messages that may wait for a client to read; beyond it progress is left out and replies wait.
const OUTGOING_MAX: usize = 64;
/// The pause after a connection that could not be accepted, doubled up to the longest.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);
const ACCEPT_PAUSE_LONGEST: Duration = Duration::from_millis(500);

/// How far the daemon is on its way out; each step follows the one before.
#[derive(Clone, Debug, Default)]
pub struct Leaving {
    /// New requests are refused, running ones go on.
    pub draining: CancellationToken,
    /// Running requests are given up.
    pub hurried: CancellationToken,
    /// Connections are closed.
    pub closing: CancellationToken,
}

/// What every connection needs.
#[expect(missing_debug_implementations, reason = "it holds a clock")]
pub struct Server {
    /// Answers requests.
    pub dispatcher: Dispatcher,
    /// Told to clients.
    pub build: Build,
    /// Whether the daemon is leaving.
    pub leaving: Leaving,
    /// Every open connection.
    pub connections: TaskTracker,
}

impl Server {
    /// Accepts connections until the daemon closes them.
    pub async fn accept_all(self: &Arc<Self>, listener: &Listener) {
        let mut pause = ACCEPT_PAUSE;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.leaving.closing.cancelled() => return,
            };
            match accepted {
                Ok(stream) => {
                    pause = ACCEPT_PAUSE;
                    let server = Arc::clone(self);
                    self.connections.spawn(async move {
                        if let Err(error) = server.converse(stream).await {
                            tracing::debug!(%error, "a connection ended with an error");
                        }
                    });
                }
                // A client that has vanished, another user's, or no file descriptor left: none of it
                // is a reason to leave, and none of it gets better by trying without a pause.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(ACCEPT_PAUSE_LONGEST);
                }
            }
        }
    }

    async fn converse(self: Arc<Self>, mut stream: Stream) -> io::Result<()> {
        let hello = timeout(HANDSHAKE_LIMIT, Hello::read(&mut stream)).await??;
        let protocol = hello.common_protocol();
        if hello.intent == Intent::Drain && !self.leaving.draining.is_cancelled() {
            tracing::info!(client = hello.pid, build = %hello.build, "asked to leave");
            self.leaving.draining.cancel();
        }
        let state = if self.leaving.draining.is_cancelled() {
            State::Draining
        } else if protocol.is_none() {
            State::NoCommonProtocol
        } else {
            State::Ready
        };
        let protocol = protocol.unwrap_or_default();
        let welcome = Welcome { protocol, state, build: self.build, pid: std::process::id() };
        let heard = timeout(HANDSHAKE_LIMIT, welcome.write(&mut stream)).await?;
        match (hello.intent, state) {
            // Also where the client has gone by now: what it sent with its hello is still to be read.
            (Intent::Serve, State::Ready) => self.exchange(stream).await,
            _ if heard.is_err() => heard,
            // Kept open, so that whoever asked sees the end.
            (Intent::Drain, _) => {
                self.leaving.closing.cancelled().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reads requests and writes replies, both at once, until the client is gone and all is read that
    /// it has sent.
    async fn exchange(self: Arc<Self>, stream: Stream) -> io::Result<()> {
        let _client = self.dispatcher.status().client();
        let (reading, writing) = tokio::io::split(stream);
        let mut incoming = FramedRead::new(reading, Codec::<ClientMessage, DaemonMessage>::default());
        let mut outgoing = FramedWrite::new(writing, Codec::<ClientMessage, DaemonMessage>::default());
        let (sender, mut queue) = mpsc::channel::<Outgoing>(OUTGOING_MAX);
        let requests = Requests::new(Arc::clone(&self), sender);
        let read = async {
            while let Some(message) = incoming.next().await {
                match message? {
                    // At once and in order, not as work that ends with its client.
                    ClientMessage::Request { id, request: Request::Observe(observation) } => {
                        requests.observe(id, observation).await;
                    }
                    ClientMessage::Request { id, request } => requests.start(id, request).await,
                    ClientMessage::Cancel { id } => requests.cancel(id),
                }
            }
            Ok(())
        };
        let write = async {
            while let Some(Outgoing { message, _running }) = queue.recv().await {
                if outgoing.send(message).await.is_err() {
                    requests.abandon();
                    break;
                }
            }
            // Nobody reads any more; the end of what was sent is the end of the connection.
            while queue.recv().await.is_some() {}
            Ok(())
        };
        tokio::select! {
            ended = read => ended,
            ended = write => ended,
            () = self.leaving.closing.cancelled() => Ok(()),
        }
    }
}

/// A message on its way out; its request counts as running until the message is written.
struct Outgoing {
    message: DaemonMessage,
    _running: Option<Presence>,
}

/// The requests of one connection; dropped with it, which cancels what still runs.
struct Requests {
    server: Arc<Server>,
    outgoing: mpsc::Sender<Outgoing>,
    running: Arc<Mutex<HashMap<u64, CancellationToken>>>,
    connection: CancellationToken,
}

impl Requests {
    fn new(server: Arc<Server>, outgoing: mpsc::Sender<Outgoing>) -> Self {
        Self { server, outgoing, running: Arc::default(), connection: CancellationToken::new() }
    }

    async fn start(&self, id: u64, request: Request) {
        if self.server.leaving.draining.is_cancelled() {
            return self.refuse(id, draining()).await;
        }
        let cancel = self.connection.child_token();
        {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.insert(id, cancel.clone());
        }
        let server = Arc::clone(&self.server);
        let outgoing = self.outgoing.clone();
        let running = Arc::clone(&self.running);
        let presence = self.server.dispatcher.status().request();
        tokio::spawn(async move {
            let outcome = run(server, id, request, outgoing.clone(), cancel).await;
            running.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Some(outcome) = outcome {
                let message = DaemonMessage::Reply { id, outcome };
                // Fails only when the connection is gone.
                let _ = outgoing.send(Outgoing { message, _running: Some(presence) }).await;
            }
        });
    }

    /// Takes up an observation.
    async fn observe(&self, id: u64, observation: Observation) {
        if self.server.leaving.draining.is_cancelled() {
            return self.refuse(id, draining()).await;
        }
        self.server.dispatcher.observe(observation);
        self.reply(id, Ok(Reply::Noted)).await;
    }

    async fn refuse(&self, id: u64, failure: Failure) {
        self.reply(id, Err(failure)).await;
    }

    async fn reply(&self, id: u64, outcome: Result<Reply, Failure>) {
        let message = DaemonMessage::Reply { id, outcome };
        let _ = self.outgoing.send(Outgoing { message, _running: None }).await;
    }

    /// Gives up all requests, those that come later too: nobody will hear of them.
    fn abandon(&self) {
        self.connection.cancel();
    }

    fn cancel(&self, id: u64) {
        if let Some(cancel) = self.running.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
            cancel.cancel();
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.connection.cancel();
    }
}

/// Works on one request; `None` if it was cancelled, when no reply follows.
async fn run(
    server: Arc<Server>,
    id: u64,
    request: Request,
    outgoing: mpsc::Sender<Outgoing>,
    cancel: CancellationToken,
) -> Option<Result<Reply, Failure>> {
    let hurried = server.leaving.hurried.clone();
    let progress: crate::workspace::Progress = Arc::new(move |message| {
        // A client that does not keep up misses some steps, not the reply.
        let message = DaemonMessage::Progress { id, message };
        let _ = outgoing.try_send(Outgoing { message, _running: None });
    });
    // A task of its own: a panic ends the request, not the connection.
    let stop = cancel.clone();
    let mut work = tokio::spawn(server.dispatcher.reply(request, progress, stop));
    tokio::select! {
        biased;
        () = cancel.cancelled() => {
            work.abort();
            None
        }
        finished = &mut work => Some(finished.unwrap_or_else(|error| {
            tracing::error!(%error, "a request did not end by itself");
            Err(Failure::new(FailureKind::Internal, "the daemon failed at this request; its log says more"))
        })),
        () = hurried.cancelled() => {
            cancel.cancel();
            work.abort();
            Some(Err(draining()))
        }
    }
}

fn draining() -> Failure {
    Failure::new(FailureKind::Draining, "the daemon is leaving; ask again to reach its successor")
}
