//! One connection to the daemon, shared by any number of requests at once.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{SinkExt, StreamExt};
use lm_proto::{
    codec::Codec,
    endpoint::Stream,
    handshake::Welcome,
    message::{ClientMessage, DaemonMessage, Failure, FailureKind, Reply, Request},
};
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, FramedWrite};

/// What happens to a request.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Event {
    /// A step on the way, for people.
    Progress(String),
    /// The end.
    Reply(Result<Reply, Failure>),
    /// The connection is gone, and with it the request; the text says how it went.
    Lost(String),
}

/// An open connection. It closes when it and all its [`Pending`] requests are dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    outgoing: mpsc::UnboundedSender<ClientMessage>,
    daemon: Welcome,
}

#[derive(Debug, Default)]
struct Shared(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    last_id: u64,
    pending: HashMap<u64, mpsc::UnboundedSender<Event>>,
    /// Why there will be no more replies.
    lost: Option<String>,
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut Table) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Connection {
    /// Speaks over a stream whose handshake is done.
    pub(crate) fn new(stream: Stream, daemon: Welcome) -> Self {
        let shared = Arc::new(Shared::default());
        let (outgoing, queue) = mpsc::unbounded_channel();
        tokio::spawn(carry(stream, queue, Arc::clone(&shared)));
        Self { shared, outgoing, daemon }
    }

    /// The daemon at the other end.
    pub(crate) fn daemon(&self) -> Welcome {
        self.daemon
    }

    /// Whether the daemon is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.shared.with(|table| table.lost.is_some())
    }

    /// Sends a request.
    pub(crate) fn start(&self, request: Request) -> Pending {
        let (sender, events) = mpsc::unbounded_channel();
        let id = self.shared.with(|table| {
            table.last_id += 1;
            match &table.lost {
                Some(reason) => drop(sender.send(Event::Lost(reason.clone()))),
                None => drop(table.pending.insert(table.last_id, sender)),
            }
            table.last_id
        });
        // Fails only when the connection is lost, which the table has told or will tell.
        let _ = self.outgoing.send(ClientMessage::Request { id, request });
        Pending { id, events, shared: Arc::clone(&self.shared), outgoing: self.outgoing.clone(), has_ended: false }
    }
}

/// A request under way; dropping it before its end cancels it.
#[derive(Debug)]
pub(crate) struct Pending {
    id: u64,
    events: mpsc::UnboundedReceiver<Event>,
    shared: Arc<Shared>,
    outgoing: mpsc::UnboundedSender<ClientMessage>,
    has_ended: bool,
}

impl Pending {
    /// Waits for what happens next. After [`Event::Reply`] or [`Event::Lost`] nothing does.
    pub(crate) async fn next(&mut self) -> Event {
        let event = self.events.recv().await.unwrap_or_else(|| Event::Lost("the request has ended".into()));
        self.has_ended |= !matches!(event, Event::Progress(_));
        event
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shared.with(|table| table.pending.remove(&self.id));
            let _ = self.outgoing.send(ClientMessage::Cancel { id: self.id });
        }
    }
}

/// Carries messages both ways until the daemon is gone or nobody is interested any more.
async fn carry(stream: Stream, mut queue: mpsc::UnboundedReceiver<ClientMessage>, shared: Arc<Shared>) {
    let (reading, writing) = tokio::io::split(stream);
    let mut incoming = FramedRead::new(reading, Codec::<DaemonMessage, ClientMessage>::default());
    let mut outgoing = FramedWrite::new(writing, Codec::<DaemonMessage, ClientMessage>::default());
    let read = async {
        loop {
            match incoming.next().await {
                Some(Ok(message)) => deliver(&shared, message),
                Some(Err(error)) => return error,
                None => return io::Error::new(io::ErrorKind::UnexpectedEof, "the daemon closed the connection"),
            }
        }
    };
    let write = async {
        while let Some(message) = queue.recv().await {
            let id = match &message {
                ClientMessage::Request { id, .. } | ClientMessage::Cancel { id } => *id,
            };
            match outgoing.send(message).await {
                Ok(()) => {}
                // Too long for a frame: this request alone is at fault.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    let message = format!("the request is too long: {error}");
                    end(&shared, id, Event::Reply(Err(Failure::new(FailureKind::InvalidRequest, message))));
                }
                // The daemon is gone; what it said before is still to be read, and then its end.
                Err(_) => std::future::pending().await,
            }
        }
    };
    let reason = tokio::select! {
        error = read => error.to_string(),
        () = write => "closed".to_owned(),
    };
    let pending = shared.with(|table| {
        table.lost = Some(reason.clone());
        std::mem::take(&mut table.pending)
    });
    for sender in pending.into_values() {
        let _ = sender.send(Event::Lost(reason.clone()));
    }
}

fn deliver(shared: &Shared, message: DaemonMessage) {
    match message {
        DaemonMessage::Progress { id, message } => shared.with(|table| {
            if let Some(sender) = table.pending.get(&id) {
                let _ = sender.send(Event::Progress(message));
            }
        }),
        DaemonMessage::Reply { id, outcome } => end(shared, id, Event::Reply(outcome)),
    }
}

fn end(shared: &Shared, id: u64, event: Event) {
    if let Some(sender) = shared.with(|table| table.pending.remove(&id)) {
        let _ = sender.send(event);
    }
}
