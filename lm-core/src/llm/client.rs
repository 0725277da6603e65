//! The door to a model: what a caller gives, what it hears meanwhile, and the choice of the client.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    ApiKey, Completion, Extras, ModelError, ModelRequest, Transport, anthropic::AnthropicClient,
    credentials::short_digest, openai::OpenAiClient,
};

/// A wire format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Provider {
    /// The Anthropic Messages API and everything that speaks it.
    Anthropic,
    /// Any endpoint with OpenAI's chat completions.
    OpenAi,
}

impl Provider {
    /// The word in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
        }
    }

    /// Where it lives if nothing else is said.
    #[must_use]
    pub fn default_base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::OpenAi => "https://api.openai.com/v1",
        }
    }

    /// The cheap, large-context model that is used if nothing else is said; `None` where only the
    /// person knows what the server has.
    #[must_use]
    pub fn default_model(self, base_url: Option<&str>) -> Option<&'static str> {
        match (self, base_url) {
            (_, Some(url)) if url.contains("api.deepseek.com") => Some("deepseek-flash"),
            (Self::Anthropic, _) => Some("claude-haiku-5-5"),
            (Self::OpenAi, None) => Some("gpt-6-luna"),
            (Self::OpenAi, Some(url)) => url.contains("api.openai.com").then_some("gpt-6-luna"),
        }
    }
}

/// What a person set, as far as talking to a model is concerned. It has no `Debug`, since it holds
/// the key.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_debug_implementations, reason = "it holds the key")]
pub struct ModelSettings {
    /// The wire format.
    pub provider: Provider,
    /// Where to, if not the provider's own address.
    pub base_url: Option<String>,
    /// The key; a local server may need none.
    pub api_key: Option<ApiKey>,
    /// The model, if not the provider's default.
    pub model: Option<String>,
    /// What is added to every request.
    pub extras: Extras,
}

impl ModelSettings {
    /// The model that is asked.
    ///
    /// # Errors
    /// [`ModelError::Invalid`]: none was given, and only the person knows what the server has.
    pub fn model_or_default(&self) -> Result<String, ModelError> {
        let default = || self.provider.default_model(self.base_url.as_deref()).map(str::to_owned);
        self.model.clone().or_else(default).ok_or_else(|| {
            ModelError::Invalid(
                "this server has no default model; set LIVE_MEMORY_MODEL to one that it serves (`lm-shim setup` lists \
                 them)"
                    .to_owned(),
            )
        })
    }
}

impl ModelSettings {
    /// The same for the same settings and salt, and fit to be kept: no address and no key is in it.
    #[must_use]
    pub fn fingerprint(&self, salt: &str) -> String {
        let address = super::shown_address(self.provider, self.base_url.as_deref());
        let model = self.model_or_default().unwrap_or_default();
        let key = self.api_key.as_ref().map(|key| key.fingerprint(salt)).unwrap_or_default();
        format!("{} {model} {} {key}", self.provider.name(), short_digest(salt, &address))
    }
}

/// What bounds a call from outside.
#[derive(Clone, Debug)]
pub struct CallControl {
    /// Nothing, no wait and no retry, goes past it.
    pub deadline: Instant,
    /// When cancelled, the request is dropped at once.
    pub cancelled: CancellationToken,
}

impl CallControl {
    /// Bounded by time alone.
    #[must_use]
    pub fn within(time: Duration) -> Self {
        Self { deadline: Instant::now() + time, cancelled: CancellationToken::new() }
    }
}

/// What happens during a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModelEvent<'a> {
    /// The first event of the answer arrived: from here on others can read the prompt's cache entry.
    Started,
    /// More of the text.
    Text(&'a str),
    /// A tool call is complete; its arguments are the text of a JSON object.
    ToolCall {
        /// The call's id.
        id: &'a str,
        /// The tool.
        name: &'a str,
        /// The arguments.
        input: &'a str,
    },
    /// Something transient went wrong and the request is sent again after a pause.
    Retry {
        /// The pause.
        after: Duration,
        /// What went wrong.
        reason: &'a str,
    },
}

/// Hears what happens during a call.
pub type EventSink<'a> = dyn FnMut(ModelEvent<'_>) + Send + 'a;

/// A boxed future, since the trait must be usable as an object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A model behind a wire format.
pub trait ModelClient: Send + Sync + fmt::Debug {
    /// The wire format.
    fn provider(&self) -> Provider;

    /// The model that is asked.
    fn model(&self) -> &str;

    /// Sends one request and waits for the whole answer. Dropping the future drops the request.
    fn complete<'a>(
        &'a self,
        request: ModelRequest<'a>,
        control: &'a CallControl,
        events: &'a mut EventSink<'a>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>>;

    /// The prompt's size as the provider counts it, without charge; `None` where it cannot count.
    fn count_tokens<'a>(
        &'a self,
        request: ModelRequest<'a>,
        control: &'a CallControl,
    ) -> BoxFuture<'a, Result<Option<u64>, ModelError>>;

    /// Tries address and key with a call that costs nothing, and lists the models on offer.
    fn models<'a>(&'a self, control: &'a CallControl) -> BoxFuture<'a, Result<Vec<String>, ModelError>>;
}

/// The client for what a person set. Back-off and what was learned of a server live in the
/// transport, so a client may be made anew for each question.
///
/// # Errors
/// [`ModelError::Invalid`]: the base URL is none, or key or model are missing.
pub fn connect(settings: &ModelSettings, transport: &Arc<Transport>) -> Result<Arc<dyn ModelClient>, ModelError> {
    let model = settings.model_or_default()?;
    Ok(match settings.provider {
        Provider::Anthropic => Arc::new(AnthropicClient::new(settings, model, transport)?),
        Provider::OpenAi => Arc::new(OpenAiClient::new(settings, model, transport)?),
    })
}
