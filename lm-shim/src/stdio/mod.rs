//! The byte layer: standard input and output as a transport of the protocol library.
//!
//! The shim owns its input line by line and its output as whole lines. A thread reads (a blocking
//! read of a pipe can be neither polled everywhere nor cancelled), a thread writes (a client that
//! does not read its pipe must not stop the rest). Nothing here knows a tool or the daemon.
//!
//! Only the end of input, or an output that nobody will ever read, ends the session.

mod lines;
mod message;
mod scan;

use std::{
    io::{self, ErrorKind, Read, Write},
    sync::{Arc, Condvar, Mutex, PoisonError, mpsc as thread_mpsc},
    thread,
    time::Duration,
};

use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use lines::Lines;
use message::{Gate, Inbound, Running};

/// Messages read ahead of the protocol library.
const READ_AHEAD: usize = 64;
/// Bytes that may wait for a client that does not read; until then input is read on.
const QUEUED_BYTES_MAX: usize = 8 << 20;
/// Pause before a standard stream in non-blocking mode is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// The transport, and what tells about its end.
pub(crate) struct Stdio {
    inbound: mpsc::Receiver<ClientJsonRpcMessage>,
    output: Output,
    running: Running,
}

/// Cancelled when something came to its end.
#[derive(Clone, Default)]
pub(crate) struct Ends {
    /// Input ended: no request will come any more.
    pub(crate) input: CancellationToken,
    /// Output broke: no reply will be read any more.
    pub(crate) output: CancellationToken,
}

/// Starts to read and write.
pub(crate) fn open() -> io::Result<(Stdio, Output, Ends)> {
    let ends = Ends::default();
    let running = Running::default();
    let output = Output::start(ends.output.clone())?;
    let (sender, inbound) = mpsc::channel(READ_AHEAD);
    let reader = Reader { gate: Gate::new(running.clone()), messages: sender, output: output.clone() };
    let input_end = ends.input.clone();
    thread::Builder::new().name("stdin".into()).spawn(move || {
        reader.read_to_end(io::stdin().lock());
        input_end.cancel();
    })?;
    Ok((Stdio { inbound, output: output.clone(), running }, output, ends))
}

impl Transport<RoleServer> for Stdio {
    type Error = io::Error;

    // The line is queued at once, so that lines leave in the order in which they were sent.
    fn send(&mut self, item: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let result = serde_json::to_vec(&item).map_err(io::Error::other).and_then(|line| self.output.send(line));
        match &item {
            JsonRpcMessage::Response(response) => self.running.end(&response.id),
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    self.running.end(id);
                }
            }
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
        std::future::ready(result)
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.inbound.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Reader {
    gate: Gate,
    messages: mpsc::Sender<ClientJsonRpcMessage>,
    output: Output,
}

impl Reader {
    fn read_to_end(mut self, mut input: impl Read) {
        let mut lines = Lines::default();
        let mut chunk = vec![0; 64 << 10];
        loop {
            match input.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => lines.feed(&chunk[..length], |line| self.pass_on(line)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY_PAUSE),
                Err(_) => break,
            }
            if self.messages.is_closed() {
                return;
            }
        }
        lines.finish(|line| self.pass_on(line));
    }

    fn pass_on(&mut self, line: lines::Line<'_>) {
        for inbound in self.gate.read(line) {
            self.output.wait_for_room();
            // Neither fails but at the end of the session.
            match inbound {
                Inbound::Message(message) => drop(self.messages.blocking_send(*message)),
                Inbound::Refusal(refusal) => drop(self.output.send(refusal.to_line().into_bytes())),
            }
        }
    }
}

/// The one writer of standard output.
#[derive(Clone)]
pub(crate) struct Output {
    lines: thread_mpsc::Sender<Vec<u8>>,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    bytes: usize,
    broken: bool,
}

impl Queue {
    fn change(&self, change: impl FnOnce(&mut QueueState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

impl Output {
    fn start(broken: CancellationToken) -> io::Result<Self> {
        let (sender, lines) = thread_mpsc::channel::<Vec<u8>>();
        let queue = Arc::new(Queue::default());
        let shared = Arc::clone(&queue);
        thread::Builder::new().name("stdout".into()).spawn(move || {
            let mut stdout = io::stdout().lock();
            for line in lines {
                if write_line(&mut stdout, &line).is_err() {
                    shared.change(|state| state.broken = true);
                    broken.cancel();
                    return;
                }
                shared.change(|state| state.bytes -= line.len());
            }
        })?;
        Ok(Self { lines: sender, queue })
    }

    fn send(&self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        self.queue.change(|state| state.bytes += line.len());
        self.lines.send(line).map_err(|_| ErrorKind::BrokenPipe.into())
    }

    fn wait_for_room(&self) {
        let state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.queue.changed.wait_while(state, |state| state.bytes > QUEUED_BYTES_MAX && !state.broken));
    }

    /// Waits until all that was sent is written, or cannot be, or `patience` is over.
    pub(crate) fn flush(&self, patience: Duration) {
        let state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.queue.changed.wait_timeout_while(state, patience, |state| state.bytes > 0 && !state.broken));
    }
}

/// Writes all of it, also to a stream in non-blocking mode.
fn write_line(output: &mut impl Write, line: &[u8]) -> io::Result<()> {
    let mut rest = line;
    while !rest.is_empty() {
        match output.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) => wait_or_fail(error)?,
        }
    }
    while let Err(error) = output.flush() {
        wait_or_fail(error)?;
    }
    Ok(())
}

fn wait_or_fail(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::WouldBlock => {
            thread::sleep(RETRY_PAUSE);
            Ok(())
        }
        _ => Err(error),
    }
}
