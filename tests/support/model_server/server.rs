//! The server itself: what it has seen, what it decides, what it found wrong.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::UNIX_EPOCH,
};

use serde_json::json;
use tokio::{net::TcpListener, runtime, sync::oneshot};

use super::{
    answers::{self, Reply},
    bill::{Bill, minimum_cacheable},
    caching::{Cache, Tokens},
    checks::{Logs, well_formed},
    clock::Clock,
    connection::{self, Answer, RawRequest},
    script::{Model, Turn},
    seen::{Format, SeenRequest},
};
use crate::wait::wait_until;

/// How a server differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Requests without this key are refused.
    pub key: Option<String>,
    /// Longer prompts in tokens are refused.
    pub window: Option<u64>,
}

/// A model server on 127.0.0.1; when dropped, the test fails if a request broke a rule.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

pub(super) struct Shared {
    clock: Clock,
    options: ServerOptions,
    model: Mutex<Box<dyn Model>>,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<SeenRequest>,
    other: Vec<String>,
    logs: Logs,
    cache: Cache,
    bill: Bill,
    usages: Vec<(usize, Tokens, u64)>,
    violations: Vec<String>,
    left: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ModelServer {
    /// A server with a model.
    #[must_use]
    pub fn start(model: impl Model + 'static) -> Self {
        Self::with(ServerOptions::default(), model)
    }

    /// A server that is not the usual one.
    #[must_use]
    pub fn with(options: ServerOptions, model: impl Model + 'static) -> Self {
        let shared = Arc::new(Shared {
            clock: Clock::default(),
            options,
            model: Mutex::new(Box::new(model)),
            state: Arc::default(),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                let accept = async {
                    while let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(connection::serve(stream, Arc::clone(&serving)));
                    }
                };
                tokio::select! { () = accept => {}, _ = stopped => {} }
            });
        });
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Its address without a path, as a person would set it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The clock of its cache, to be shared with daemons.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Another model from here on.
    pub fn set_model(&self, model: impl Model + 'static) {
        *lock(&self.shared.model) = Box::new(model);
    }

    /// Every request for a completion, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<SeenRequest> {
        lock(&self.shared.state).requests.clone()
    }

    /// Every other request, as `METHOD /path`.
    #[must_use]
    pub fn other_requests(&self) -> Vec<String> {
        lock(&self.shared.state).other.clone()
    }

    /// Waits for so many requests.
    #[must_use]
    pub fn wait_for_requests(&self, count: usize) -> Vec<SeenRequest> {
        wait_until("requests to the model server", || Some(self.requests()).filter(|requests| requests.len() >= count))
    }

    /// How many clients left before their answer was whole.
    #[must_use]
    pub fn clients_left(&self) -> usize {
        lock(&self.shared.state).left
    }

    /// What the session costs so far.
    #[must_use]
    pub fn bill(&self) -> Bill {
        lock(&self.shared.state).bill
    }

    /// Per answered request: its number, its prompt tokens, its completion tokens.
    #[must_use]
    pub fn usages(&self) -> Vec<(usize, Tokens, u64)> {
        lock(&self.shared.state).usages.clone()
    }

    /// How many append-only logs there were.
    #[must_use]
    pub fn logs(&self) -> usize {
        lock(&self.shared.state).logs.count()
    }

    /// The rules that were broken, which from here on are the test's business.
    #[must_use]
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.shared.state).violations)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Fails only if the thread is gone already.
            let _ = stop.send(());
        }
        let ended = self.thread.take().map(thread::JoinHandle::join);
        let violations = self.take_violations();
        if !thread::panicking() {
            assert!(ended.is_none_or(|ended| ended.is_ok()), "the model server failed");
            assert!(violations.is_empty(), "requests broke rules:\n{}", violations.join("\n"));
        }
    }
}

impl Shared {
    fn seconds(&self) -> u64 {
        self.clock.now().duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    pub(super) fn client_left(&self) {
        lock(&self.state).left += 1;
    }

    /// Decides how a request is answered.
    pub(super) fn answer(&self, raw: &RawRequest) -> Answer {
        let document = |status, body: serde_json::Value| Answer {
            reply: Reply::Document { status, headers: Vec::new(), kind: "application/json", body: body.to_string() },
            gate: None,
            begins: Box::new(|| {}),
        };
        let path = raw.path.split('?').next().unwrap_or_default();
        let format = if path.ends_with("/messages") || path.ends_with("/messages/count_tokens") {
            Some(Format::Messages)
        } else if path.ends_with("/chat/completions") {
            Some(Format::ChatCompletions)
        } else {
            None
        };
        let refusal = |status, kind: &str, message: &str| {
            document(status, json!({ "type": "error", "error": { "type": kind, "message": message } }))
        };
        let mut state = lock(&self.state);
        if let Some(key) = &self.options.key {
            let given = |(name, value): &(String, String)| match name.as_str() {
                "x-api-key" => value == key,
                "authorization" => value.strip_prefix("Bearer ") == Some(key),
                _ => false,
            };
            if !raw.headers.iter().any(given) {
                state.other.push(format!("{} {path} (refused)", raw.method));
                return refusal(401, "authentication_error", "invalid x-api-key");
            }
        }
        let Some(format) = format.filter(|_| raw.method == "POST") else {
            state.other.push(format!("{} {path}", raw.method));
            if raw.method == "GET" && path.ends_with("/v1/models") {
                return document(
                    200,
                    json!({ "object": "list", "data": [{ "id": "claude-haiku-5-5" }, { "id": "gpt-6-luna" }] }),
                );
            }
            return refusal(404, "not_found_error", "no such path");
        };
        // Kept requests are printed by failing tests.
        let headers = raw
            .headers
            .iter()
            .map(|(name, value)| {
                let secret = matches!(&**name, "x-api-key" | "authorization");
                (name.clone(), if secret { "[secret]".to_owned() } else { value.clone() })
            })
            .collect();
        let counts = path.ends_with("/count_tokens");
        let number = state.requests.len();
        let request = match SeenRequest::parse(number, format, path, self.clock.now(), headers, &raw.body) {
            Ok(request) => request,
            Err(why) => {
                state.violations.push(format!("request {number} cannot be read: {why}"));
                return refusal(400, "invalid_request_error", &why);
            }
        };
        let mut wrong = well_formed(&request);
        if counts {
            state.other.push(format!("POST {path}"));
            state.violations.extend(wrong.into_iter().map(|what| format!("counting: {what}")));
            return document(200, json!({ "input_tokens": request.tokens() }));
        }
        wrong.extend(state.logs.check(&request));
        state.violations.extend(wrong.into_iter().map(|what| format!("request {number}: {what}")));
        state.requests.push(request.clone());
        if self.options.window.is_some_and(|window| request.tokens() > window) {
            let window = self.options.window.unwrap_or_default();
            let message = format!("prompt is too long: {} tokens > {window} maximum", request.tokens());
            return refusal(400, "invalid_request_error", &message);
        }
        drop(state);
        // Without the lock: an oracle may look at the server.
        let turn = lock(&self.model).answer(&request);
        let mut state = lock(&self.state);
        let turn = turn.unwrap_or_else(|| {
            state.violations.push(format!("request {number}: the script has no turn left for it"));
            Turn::status(400, "invalid_request_error", "the script is at its end")
        });
        let planned = state.cache.plan_request(&request, minimum_cacheable(&request.model), self.seconds());
        let tokens = planned.tokens;
        let reply = answers::reply(&request, &turn, &tokens);
        let answered = match &reply {
            Reply::Stream { .. } => true,
            Reply::Document { status, .. } => *status == 200 && turn.fault.is_none(),
            Reply::Reset | Reply::Hang => false,
        };
        let (shared, now) = (Arc::clone(&self.state), self.seconds());
        let output = answers::output_tokens(&turn);
        let begins = move || {
            if answered {
                let mut state = lock(&shared);
                state.cache.begin(planned, now);
                state.bill.add(&request.model, &tokens, output);
                state.usages.push((number, tokens, output));
            }
        };
        Answer { reply, gate: turn.gate, begins: Box::new(begins) }
    }
}
