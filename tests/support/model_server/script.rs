//! What the server's model says, and what goes wrong on the way.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::Value;
use tokio::sync::Semaphore;

use super::SeenRequest;

/// Decides what to say.
pub trait Model: Send {
    /// The answer to a request; `None` fails the test.
    fn answer(&mut self, request: &SeenRequest) -> Option<Turn>;
}

/// An oracle: it sees the request and decides.
impl<F: FnMut(&SeenRequest) -> Turn + Send> Model for F {
    fn answer(&mut self, request: &SeenRequest) -> Option<Turn> {
        Some(self(request))
    }
}

/// Turns said one after the other, whatever is asked; asked more often, the test fails.
#[derive(Debug, Default)]
pub struct Script(VecDeque<Turn>);

impl Script {
    /// These turns.
    #[must_use]
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self(turns.into_iter().collect())
    }
}

impl Model for Script {
    fn answer(&mut self, _: &SeenRequest) -> Option<Turn> {
        self.0.pop_front()
    }
}

/// A model that reads what it still needs and then answers: as a real one, it does not read again
/// what already stands in its prompt.
#[derive(Debug, Clone)]
pub struct ReadingModel {
    /// The files, each with a piece of its text that shows it was read.
    pub needs: Vec<(String, String)>,
    /// What it answers when it has seen them all.
    pub answer: String,
    /// Whether it asks for all missing files in one turn.
    pub parallel: bool,
}

impl Model for ReadingModel {
    fn answer(&mut self, request: &SeenRequest) -> Option<Turn> {
        let mut missing: Vec<_> = self.needs.iter().filter(|(_, text)| !request.holds(text)).collect();
        if !self.parallel {
            missing.truncate(1);
        }
        if missing.is_empty() {
            return Some(Turn::text(&self.answer));
        }
        Some(Turn::calls(missing.iter().map(|(path, _)| ("Read", serde_json::json!({ "file_path": path })))))
    }
}

/// A part of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Say {
    /// Text.
    Text(String),
    /// A thought with its signature.
    Thinking(String, String),
    /// A tool call.
    Call {
        /// The tool.
        name: String,
        /// The arguments as they are sent, JSON or not.
        arguments: String,
    },
}

/// Usage as reported, in place of what the accounting says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportedUsage {
    /// Prompt tokens outside the cache.
    pub input: u64,
    /// Prompt tokens read from it.
    pub read: u64,
    /// Prompt tokens written for five minutes.
    pub write_5m: u64,
    /// Prompt tokens written for one hour.
    pub write_1h: u64,
    /// Completion tokens.
    pub output: u64,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// A refusal.
    Status {
        /// The HTTP status.
        status: u16,
        /// Headers besides the usual ones.
        headers: Vec<(&'static str, String)>,
        /// The body.
        body: String,
    },
    /// The connection is reset before anything is said.
    Reset,
    /// Nothing is ever said.
    Hang,
    /// The connection ends after so many events.
    HalfStream(usize),
    /// Silence after so many events.
    Silence(usize),
    /// After so many events comes one that is no JSON.
    Malformed(usize),
    /// Success, and after so many events this error object. Unstreamed: nothing but the object.
    ErrorWithin(usize, String),
    /// Success with this content type and body.
    Page(&'static str, String),
}

/// What the model says in one answer.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    /// The parts.
    pub say: Vec<Say>,
    /// Reported instead of what the accounting says.
    pub usage: Option<ReportedUsage>,
    /// Reported without any usage at all.
    pub without_usage: bool,
    /// The reason to stop, if not the natural one.
    pub stop: Option<String>,
    /// What goes wrong.
    pub fault: Option<Fault>,
    /// What each event waits for.
    pub gate: Option<Gate>,
    /// Answer in one piece even if a stream was asked for.
    pub whole: bool,
}

impl Turn {
    /// A text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self { say: vec![Say::Text(text.to_owned())], ..Self::default() }
    }

    /// Tool calls, all in one turn.
    pub fn calls<'a>(calls: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let call = |(name, input): (&str, Value)| Say::Call { name: name.to_owned(), arguments: input.to_string() };
        Self { say: calls.into_iter().map(call).collect(), ..Self::default() }
    }

    /// Nothing but a fault.
    #[must_use]
    pub fn fault(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }

    /// A refusal with an error object that both formats understand.
    #[must_use]
    pub fn status(status: u16, kind: &str, message: &str) -> Self {
        let body = serde_json::json!({ "type": "error", "error": { "type": kind, "message": message } }).to_string();
        Self::fault(Fault::Status { status, headers: Vec::new(), body })
    }

    /// Too many requests, with what the server asks for.
    #[must_use]
    pub fn rate_limited(retry_after: &str) -> Self {
        let mut turn = Self::status(429, "rate_limit_error", "too many requests");
        if let Some(Fault::Status { headers, .. }) = &mut turn.fault {
            headers.push(("retry-after", retry_after.to_owned()));
        }
        turn
    }

    /// Overloaded.
    #[must_use]
    pub fn overloaded() -> Self {
        Self::status(529, "overloaded_error", "Overloaded")
    }

    /// The prompt does not fit.
    #[must_use]
    pub fn context_too_long() -> Self {
        Self::status(400, "invalid_request_error", "prompt is too long: 203284 tokens > 200000 maximum")
    }

    /// Adds a fault.
    #[must_use]
    pub fn failing(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Lets each event wait.
    #[must_use]
    pub fn gated(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// In one piece.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Stops for another reason.
    #[must_use]
    pub fn stopping(mut self, reason: &str) -> Self {
        self.stop = Some(reason.to_owned());
        self
    }
}

/// Holds events back until the test lets them through.
#[derive(Debug, Clone)]
pub struct Gate {
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(0)), waiting: Arc::default() }
    }
}

impl Gate {
    /// Lets so many events through.
    pub fn let_through(&self, events: usize) {
        self.permits.add_permits(events);
    }

    /// Lets everything through from now on.
    pub fn open(&self) {
        self.permits.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// How many answers wait at this moment.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    pub(super) async fn pass(&self) {
        struct Leave<'a>(&'a AtomicUsize);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _leave = Leave(&self.waiting);
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
    }
}
