//! The only file that opens a connection: timeouts, repetitions, the shared back-off, cancellation.
//!
//! It knows no wire format: a request comes as bytes, the answer goes to a `Decoder`. Not allowed
//! here: what a body means, beyond telling an event stream from one document.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    error::Error,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use reqwest::{
    Certificate, Client, Method, Response, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    ApiKey, CallControl, Extras, ModelError, ModelEvent, ModelRequest, Provider,
    classify::{ErrorBody, Failure, Refusal, classify},
    client::EventSink,
    credentials::{read_certificates, redact},
    error::shorten,
    lone_surrogates, retry,
    sse::{EventParser, ServerSentEvent},
    url::{self, is_loopback},
};

/// The longest answer kept that is not an event stream, in bytes.
const MAX_BODY: usize = 32 << 20;
/// How much of a refusal is read.
const MAX_REFUSAL: usize = 64 << 10;

/// How long to wait for a server. There is no limit on a whole answer but the caller's deadline.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the connection, TLS included.
    pub connect: Duration,
    /// For the first byte of the answer; a local server may read the whole prompt first.
    pub first_byte: Duration,
    /// Between two bytes of it; servers that think send pings.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(180),
            silence: Duration::from_secs(90),
        }
    }
}

/// Connections to all providers, shared by all questions of a daemon, and what is known of them.
#[derive(Debug)]
pub struct Transport {
    system: Clients,
    /// With what else is trusted, by the file it stands in.
    trusting: Mutex<BTreeMap<PathBuf, (Vec<u8>, Clients)>>,
    timeouts: Timeouts,
    servers: Mutex<BTreeMap<String, Arc<Server>>>,
}

/// Connections on this machine, and to all others.
#[derive(Clone, Debug)]
struct Clients {
    direct: Client,
    proxied: Client,
}

impl Clients {
    fn new(timeouts: Timeouts, trusted: &[Certificate]) -> Result<Self, ModelError> {
        let builder = || {
            let builder = Client::builder()
                .connect_timeout(timeouts.connect)
                // A redirected POST loses its body or sends the key elsewhere.
                .redirect(Policy::none())
                .user_agent(concat!("live-memory/", env!("CARGO_PKG_VERSION")));
            if trusted.is_empty() { builder } else { builder.tls_certs_merge(trusted.to_vec()) }
        };
        let build = |builder: reqwest::ClientBuilder| {
            builder
                .build()
                .map_err(|error| ModelError::Invalid(format!("cannot set up TLS or proxies: {}", causes(&error))))
        };
        Ok(Self { direct: build(builder().no_proxy())?, proxied: build(builder())? })
    }
}

/// What all calls to one address with one key share.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// Nobody asks again before this, and why.
    rest: Mutex<Option<Rest>>,
    /// What it was found not to understand.
    quirks: Mutex<BTreeSet<String>>,
}

#[derive(Clone, Debug)]
struct Rest {
    until: Instant,
    error: ModelError,
}

impl Server {
    /// Whether a quirk has been learned; its name is the client's business.
    pub(super) fn has(&self, quirk: &str) -> bool {
        lock(&self.quirks).contains(quirk)
    }

    /// Learns a quirk.
    pub(super) fn learn(&self, quirk: &str) {
        lock(&self.quirks).insert(quirk.to_owned());
    }

    fn rest_until(&self, until: Instant, error: &ModelError) {
        let mut rest = lock(&self.rest);
        if rest.as_ref().is_none_or(|rest| rest.until < until) {
            *rest = Some(Rest { until, error: error.clone() });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request, in bytes.
pub(super) struct Call<'a> {
    pub(super) provider: Provider,
    pub(super) server: &'a Server,
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// To clean what comes back.
    pub(super) key: Option<&'a ApiKey>,
    pub(super) extras: &'a Extras,
    pub(super) control: &'a CallControl,
}

impl Call<'_> {
    /// A server's words without the secrets that it was sent.
    fn clean(&self, text: &str) -> String {
        let mut clean = redact(text, self.key);
        // Shorter ones are words, not secrets.
        for secret in self.extras.secrets().filter(|secret| secret.len() >= 6) {
            clean = clean.replace(secret, "[secret]");
        }
        clean
    }
}

/// Makes sense of one answer.
pub(super) trait Decoder: Send {
    /// Takes what stands in the headers.
    fn headers(&mut self, _headers: &HeaderMap) {}
    /// Takes one event of a stream. `Ok(true)`: nothing more is to come.
    fn event(&mut self, event: &ServerSentEvent, emit: &mut EventSink<'_>) -> Result<bool, Fault>;
    /// Takes an answer that came in one piece.
    fn whole(&mut self, body: &str, emit: &mut EventSink<'_>) -> Result<(), Fault>;
    /// Nothing more is to come: is the answer whole?
    fn finish(&mut self) -> Result<(), Fault>;
}

/// Why an answer that began with success is none.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server reports an error inside the answer: its JSON.
    Reported(String),
    /// It ended too early.
    BrokenOff,
    /// It is not what this wire format looks like.
    Malformed(String),
}

impl Transport {
    /// Opens nothing yet.
    ///
    /// # Errors
    /// [`ModelError::Invalid`]: the system's TLS or proxy configuration cannot be used.
    pub fn new(timeouts: Timeouts) -> Result<Self, ModelError> {
        // Fails only if one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let system = Clients::new(timeouts, &[])?;
        Ok(Self { system, trusting: Mutex::default(), timeouts, servers: Mutex::default() })
    }

    /// The connections that trust what a person named besides what the system does. The file is read each
    /// time, since it may be renewed while the daemon runs.
    fn clients(&self, ca_file: Option<&Path>) -> Result<Clients, ModelError> {
        let Some(path) = ca_file else { return Ok(self.system.clone()) };
        let pem = read_certificates(path)?;
        if let Some((_, clients)) = lock(&self.trusting).get(path).filter(|(known, _)| *known == pem) {
            return Ok(clients.clone());
        }
        let trusted = Certificate::from_pem_bundle(&pem).ok().filter(|trusted| !trusted.is_empty());
        let trusted = trusted
            .ok_or_else(|| ModelError::Invalid(format!("{} (ca_file) holds no certificate in PEM", path.display())))?;
        let clients = Clients::new(self.timeouts, &trusted)?;
        lock(&self.trusting).insert(path.to_owned(), (pem, clients.clone()));
        Ok(clients)
    }

    /// The shared state of an address. Limits belong to a key, so another key starts afresh.
    pub(super) fn server(&self, address: &str, key: Option<&ApiKey>) -> Arc<Server> {
        let digest = Sha256::digest(key.map(ApiKey::expose).unwrap_or_default());
        let name = format!("{address} {:02x?}", &digest[..8]);
        Arc::clone(lock(&self.servers).entry(name).or_default())
    }

    /// Asks for one document, such as a list of models.
    pub(super) async fn fetch(&self, call: &Call<'_>) -> Result<String, ModelError> {
        let document = self.complete(call, Document::default, &mut |_| {}).await?;
        Ok(document.0.unwrap_or_default())
    }

    /// Sends a request, again after what is transient, and gives the decoder that took a whole
    /// answer. Nothing is repeated once a part of an answer was passed on.
    pub(super) async fn complete<D: Decoder>(
        &self,
        call: &Call<'_>,
        decoder: impl Fn() -> D + Send + Sync,
        events: &mut EventSink<'_>,
    ) -> Result<D, ModelError> {
        let mut progress = Progress { events, started: false, delivered: false };
        let last = Mutex::new(None);
        let repeated = async {
            let mut attempts = 0;
            loop {
                self.wait_for_rest(call).await?;
                attempts += 1;
                let mut decoder = decoder();
                let Err(failure) = self.attempt(call, &mut decoder, &mut progress).await else { return Ok(decoder) };
                tracing::debug!(url = url::shown(&call.url), attempts, error = %failure.error, "model request failed");
                let again = failure.transient && !progress.delivered && attempts <= retry::MAX_RETRIES;
                let pause = failure.retry_after.unwrap_or_else(|| retry::pause(attempts - 1, fastrand::f64()));
                let until = Instant::now() + pause;
                let error = match failure.error.after(attempts) {
                    ModelError::RateLimited { reply, .. } => {
                        let said = failure.retry_after.map(|pause| SystemTime::now() + pause);
                        ModelError::RateLimited { until: said, reply }
                    }
                    error => error,
                };
                if failure.transient && failure.status.is_some() {
                    call.server.rest_until(until, &error);
                }
                if !again || until >= call.control.deadline {
                    return Err(error);
                }
                let reason = error.to_string();
                (progress.events)(ModelEvent::Retry { after: pause, reason: &reason });
                *lock(&last) = Some(reason);
                sleep_until(until).await;
            }
        };
        tokio::select! {
            biased;
            () = call.control.cancelled.cancelled() => Err(ModelError::Cancelled),
            () = sleep_until(call.control.deadline) => {
                Err(ModelError::Deadline { url: url::shown(&call.url), last: lock(&last).take() })
            }
            result = repeated => result,
        }
    }

    /// Waits while the server is known to take nothing, or says so at once if that is too long.
    async fn wait_for_rest(&self, call: &Call<'_>) -> Result<(), ModelError> {
        loop {
            let rest = lock(&call.server.rest).clone();
            let Some(rest) = rest.filter(|rest| rest.until > Instant::now()) else { return Ok(()) };
            if rest.until >= call.control.deadline {
                return Err(rest.error);
            }
            sleep_until(rest.until).await;
        }
    }

    async fn attempt<D: Decoder>(
        &self,
        call: &Call<'_>,
        decoder: &mut D,
        progress: &mut Progress<'_, '_>,
    ) -> Result<(), Failure> {
        let shown = url::shown(&call.url);
        let clients = self.clients(call.extras.ca_file.as_deref()).map_err(Failure::permanent)?;
        let client = if is_loopback(&call.url) { &clients.direct } else { &clients.proxied };
        let mut request = client.request(call.method.clone(), call.url.clone()).headers(call.headers.clone());
        if call.method == Method::POST {
            request = request.header(CONTENT_TYPE, "application/json").body(call.body.clone());
        }
        let response = match timeout(self.timeouts.first_byte, request.send()).await {
            Err(_) => {
                let cause = format!("no answer within {} s", self.timeouts.first_byte.as_secs_f64());
                return Err(Failure::network(&shown, cause));
            }
            Ok(Err(error)) => return Err(Failure::network(&shown, call.clean(&causes(&error)))),
            Ok(Ok(response)) => response,
        };
        if !response.status().is_success() {
            return Err(self.refusal(call, response).await);
        }
        self.read(response, decoder, progress).await.map_err(|fault| fault.into_failure(call))
    }

    /// Reads an answer that began with success.
    async fn read<D: Decoder>(
        &self,
        mut response: Response,
        decoder: &mut D,
        progress: &mut Progress<'_, '_>,
    ) -> Result<(), ReadFault> {
        let status = response.status().as_u16();
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        decoder.headers(response.headers());
        // What it is, is seen from its first letter: servers label streams as text, errors as streams, and
        // some name no type.
        let mut body = Vec::new();
        let (looks, ended) = loop {
            let chunk = self.chunk(&mut response).await?;
            let ended = chunk.is_none();
            body.extend_from_slice(chunk.as_ref().map(AsRef::as_ref).unwrap_or_default());
            match Looks::of(&body, &kind) {
                Some(looks) => break (looks, ended),
                None if ended || body.len() > MAX_BODY => break (Looks::Document, ended),
                None => {}
            }
        };
        if looks == Looks::Stream {
            return self.read_stream(response, body, ended, decoder, progress).await;
        }
        while !ended && let Some(bytes) = self.chunk(&mut response).await? {
            body.extend_from_slice(bytes.as_ref());
            if body.len() > MAX_BODY {
                return Err(Fault::Malformed(format!("more than {MAX_BODY} bytes")).into());
            }
        }
        let text = String::from_utf8_lossy(&body);
        let text = text.trim_start_matches('\u{feff}').trim();
        if !text.starts_with('{') {
            let start = if text.is_empty() { "an empty body".to_owned() } else { format!("`{}`", shorten(text)) };
            let kind = if kind.is_empty() { "no content type" } else { &kind };
            return Err(Fault::Malformed(format!("status {status}, {kind}, {start} instead of JSON")).into());
        }
        progress.start();
        decoder.whole(&lone_surrogates::replaced(text), &mut |event| progress.emit(event))?;
        Ok(decoder.finish()?)
    }

    /// Reads events, of which `begun` has arrived already.
    async fn read_stream<D: Decoder>(
        &self,
        mut response: Response,
        begun: Vec<u8>,
        mut ended: bool,
        decoder: &mut D,
        progress: &mut Progress<'_, '_>,
    ) -> Result<(), ReadFault> {
        let (mut parser, mut events) = (EventParser::default(), Vec::new());
        let endless = |_| Fault::Malformed("an endless event".to_owned());
        parser.feed(&begun, &mut events).map_err(endless)?;
        loop {
            if ended {
                parser.finish(&mut events);
            }
            for mut event in events.drain(..) {
                progress.start();
                if let Cow::Owned(clean) = lone_surrogates::replaced(&event.data) {
                    event.data = clean;
                }
                if decoder.event(&event, &mut |event| progress.emit(event))? {
                    return Ok(decoder.finish()?);
                }
            }
            if ended {
                return Ok(decoder.finish()?);
            }
            match self.chunk(&mut response).await? {
                Some(bytes) => parser.feed(bytes.as_ref(), &mut events).map_err(endless)?,
                None => ended = true,
            }
        }
    }

    async fn chunk(&self, response: &mut Response) -> Result<Option<impl AsRef<[u8]> + use<>>, ReadFault> {
        match timeout(self.timeouts.silence, response.chunk()).await {
            Err(_) => Err(ReadFault::Connection(format!("silence for {} s", self.timeouts.silence.as_secs_f64()))),
            Ok(Err(error)) => Err(ReadFault::Connection(causes(&error))),
            Ok(Ok(chunk)) => Ok(chunk),
        }
    }

    /// Reads and classifies a refusal.
    async fn refusal(&self, call: &Call<'_>, mut response: Response) -> Failure {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let retry_after = retry::requested(header("retry-after-ms"), header("retry-after"), SystemTime::now());
        let should_retry = header("x-should-retry").and_then(|value| value.parse().ok());
        let status = response.status().as_u16();
        let mut body = Vec::new();
        // What cannot be read is only missing from the message.
        while body.len() < MAX_REFUSAL
            && let Ok(Some(bytes)) = self.chunk(&mut response).await
        {
            body.extend_from_slice(bytes.as_ref());
        }
        let body = call.clean(&String::from_utf8_lossy(&body));
        let url = url::shown(&call.url);
        classify(&Refusal { provider: call.provider, url: &url, status, body: &body, retry_after, should_retry })
    }
}

/// What an answer's body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looks {
    Stream,
    Document,
}

impl Looks {
    /// What a body that begins so is; `None` while that cannot be told.
    fn of(body: &[u8], kind: &str) -> Option<Self> {
        let body = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body).trim_ascii_start();
        let fields: [&[u8]; 5] = [b"data:", b"event:", b":", b"id:", b"retry:"];
        match body.first()? {
            b'{' | b'<' | b'[' => Some(Self::Document),
            _ if kind.starts_with("text/event-stream") => Some(Self::Stream),
            _ if fields.iter().any(|field| body.starts_with(field)) => Some(Self::Stream),
            _ if fields.iter().any(|field| field.starts_with(body)) => None,
            _ => Some(Self::Document),
        }
    }
}

/// What goes to the caller, and whether anything did.
struct Progress<'a, 'b> {
    events: &'a mut EventSink<'b>,
    started: bool,
    delivered: bool,
}

impl Progress<'_, '_> {
    fn start(&mut self) {
        if !std::mem::replace(&mut self.started, true) {
            (self.events)(ModelEvent::Started);
        }
    }

    fn emit(&mut self, event: ModelEvent<'_>) {
        self.delivered = true;
        (self.events)(event);
    }
}

enum ReadFault {
    Answer(Fault),
    Connection(String),
}

impl From<Fault> for ReadFault {
    fn from(fault: Fault) -> Self {
        Self::Answer(fault)
    }
}

impl ReadFault {
    fn into_failure(self, call: &Call<'_>) -> Failure {
        let url = url::shown(&call.url);
        let protocol = |what: String| ModelError::Protocol { url: url.clone(), what: call.clean(&what) };
        match self {
            Self::Connection(cause) => Failure::network(&url, format!("the answer broke off: {}", call.clean(&cause))),
            Self::Answer(Fault::BrokenOff) => Failure::network(&url, "the answer broke off".to_owned()),
            Self::Answer(Fault::Malformed(what)) => Failure::permanent(protocol(what)),
            Self::Answer(Fault::Reported(body)) => {
                let body = call.clean(&body);
                match ErrorBody::parse(&body).and_then(|error| error.status()) {
                    Some(status) => classify(&Refusal {
                        provider: call.provider,
                        url: &url,
                        status,
                        body: &body,
                        retry_after: None,
                        should_retry: None,
                    }),
                    // Known wordings still tell a full window or an empty account.
                    None => classify(&Refusal {
                        provider: call.provider,
                        url: &url,
                        status: 400,
                        body: &body,
                        retry_after: None,
                        should_retry: Some(false),
                    }),
                }
            }
        }
    }
}

/// An answer that is one JSON document.
#[derive(Default)]
struct Document(Option<String>);

impl Decoder for Document {
    fn event(&mut self, _: &ServerSentEvent, _: &mut EventSink<'_>) -> Result<bool, Fault> {
        Err(Fault::Malformed("an event stream instead of one document".to_owned()))
    }

    fn whole(&mut self, body: &str, _: &mut EventSink<'_>) -> Result<(), Fault> {
        self.0 = Some(body.to_owned());
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if self.0.is_some() { Ok(()) } else { Err(Fault::BrokenOff) }
    }
}

/// An error with its causes, which is where the useful part is; reqwest's own text only adds the URL.
fn causes(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = next {
        let part = error.to_string();
        if !text.ends_with(&part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
        next = error.source();
    }
    if text.is_empty() { error.to_string() } else { text }
}

/// Sets a header that no log shows.
pub(super) fn insert_secret(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // A key consists of characters that a header can hold.
    if let Ok(mut value) = HeaderValue::from_str(value) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}

/// Says why a request is made and which conversation it continues, for the logs of gateways.
pub(super) fn insert_labels(headers: &mut HeaderMap, request: Option<&ModelRequest<'_>>) {
    let Some(request) = request else { return };
    headers.insert("x-live-memory-purpose", HeaderValue::from_static(request.purpose.name()));
    if let Some(name) = request.conversation.and_then(|name| HeaderValue::from_str(name).ok()) {
        headers.insert("x-live-memory-conversation", name);
    }
}

/// The provider's name for a request.
pub(super) fn request_id(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// The ids in a list of models, which looks the same in both wire formats.
pub(super) fn model_ids(document: &str, call: &Call<'_>) -> Result<Vec<String>, ModelError> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        id: String,
    }
    let list: List = serde_json::from_str(document).map_err(|error| ModelError::Protocol {
        url: url::shown(&call.url),
        what: format!("`{}` is no list of models ({error})", call.clean(&shorten(document))),
    })?;
    Ok(list.data.into_iter().map(|entry| entry.id).collect())
}
