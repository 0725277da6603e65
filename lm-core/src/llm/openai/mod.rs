//! OpenAI's chat completions, and the many servers that speak a dialect of it.
//!
//! Every optional field is left out unless it is needed, since each is refused somewhere. What a
//! server was found not to understand is kept by name in [`Server`], see the constants below, and a
//! request is sent again once without it.

mod answer;
mod printed_thoughts;
mod request;

use std::sync::Arc;

use reqwest::{
    Method,
    header::{AUTHORIZATION, HeaderMap},
};
use serde::{Deserialize, Serialize};

use self::answer::OpenAiDecoder;
pub(super) use self::request::{Dialect, body};
use super::{
    ApiKey, CallControl, Completion, Extras, ModelClient, ModelError, ModelRequest, ModelSettings, Provider, Transport,
    client::{BoxFuture, EventSink},
    http::{Call, Server},
    url::BaseUrl,
};

/// The server wants the other name of the length limit than the one it is given by default.
const OTHER_LENGTH_FIELD: &str = "length limit has its other name";
/// The server takes no length limit, or none that high.
const NO_LENGTH_FIELD: &str = "length limit refused";
/// The server does not know `stream_options`.
const NO_STREAM_OPTIONS: &str = "stream_options refused";
/// The server does not know `prompt_cache_key`.
const NO_CACHE_KEY: &str = "prompt_cache_key refused";
/// The server does not know `thinking`.
const NO_THINKING_FIELD: &str = "thinking refused";
/// The server wants what was thought before a call given back with it.
const THOUGHTS_REQUIRED: &str = "reasoning_content required";

const VENDOR_HOST: &str = "api.openai.com";
const DEEPSEEK_HOST: &str = "api.deepseek.com";
const OPENROUTER_HOST: &str = "openrouter.ai";

/// A model behind chat completions.
pub(super) struct OpenAiClient {
    base: BaseUrl,
    key: Option<ApiKey>,
    model: String,
    extras: Extras,
    transport: Arc<Transport>,
    server: Arc<Server>,
}

impl std::fmt::Debug for OpenAiClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAiClient").field("base", &self.base).field("model", &self.model).finish_non_exhaustive()
    }
}

impl OpenAiClient {
    pub(super) fn new(settings: &ModelSettings, model: String, transport: &Arc<Transport>) -> Result<Self, ModelError> {
        let provider = Provider::OpenAi;
        let base = BaseUrl::parse(settings.base_url.as_deref().unwrap_or(provider.default_base_url()), provider)?;
        if settings.api_key.is_none() && base.host() == VENDOR_HOST && !settings.extras.hold_credential() {
            return Err(ModelError::Invalid(
                "provider openai needs an API key; give one with `lm-shim setup`, LIVE_MEMORY_API_KEY or \
                 OPENAI_API_KEY, or point LIVE_MEMORY_BASE_URL at a server that needs none"
                    .to_owned(),
            ));
        }
        let server = transport.server(base.as_str(), settings.api_key.as_ref());
        let (key, extras) = (settings.api_key.clone(), settings.extras.clone());
        Ok(Self { base, key, model, extras, transport: Arc::clone(transport), server })
    }

    fn call<'a>(
        &'a self,
        method: Method,
        url: reqwest::Url,
        request: Option<&ModelRequest<'_>>,
        body: Vec<u8>,
        control: &'a CallControl,
    ) -> Call<'a> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.key {
            super::http::insert_secret(&mut headers, AUTHORIZATION, &format!("Bearer {}", key.expose()));
        }
        super::http::insert_labels(&mut headers, request);
        self.extras.apply(&mut headers);
        let (provider, server, key) = (Provider::OpenAi, &*self.server, self.key.as_ref());
        Call { provider, server, method, url, headers, body, key, extras: &self.extras, control }
    }

    /// A quirk as it is remembered: servers decide these by model.
    fn of_model(&self, quirk: &str) -> String {
        format!("{quirk}: {}", self.model)
    }

    /// What this server is taken to understand.
    fn dialect(&self) -> Dialect {
        let vendor = self.base.host() == VENDOR_HOST;
        let reseller = self.base.host() == OPENROUTER_HOST;
        let learned = |quirk| self.server.has(&self.of_model(quirk));
        Dialect {
            completion_tokens_field: vendor != learned(OTHER_LENGTH_FIELD),
            no_length: learned(NO_LENGTH_FIELD),
            no_stream_options: self.server.has(NO_STREAM_OPTIONS),
            cache_key: vendor && !self.server.has(NO_CACHE_KEY),
            thinking_off: self.base.host() == DEEPSEEK_HOST && !learned(NO_THINKING_FIELD),
            thoughts_required: learned(THOUGHTS_REQUIRED),
            ask_cost: reseller,
            cache_marks: reseller && self.model.contains("claude"),
        }
    }

    /// Learns from a refusal of what was said in a dialect; false if there is nothing to learn.
    fn learn(&self, used: Dialect, detail: &str) -> bool {
        let detail = detail.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| detail.contains(word));
        // Advice to use the other name holds both.
        let length_field = if used.completion_tokens_field { "max_completion_tokens" } else { "max_tokens" };
        if says(&["reasoning_content"]) {
            self.server.learn(&self.of_model(THOUGHTS_REQUIRED));
        } else if says(&[length_field]) && !says(&["context"]) {
            let is_value = says(&["too large", "at most", "less than", "exceed", "maximum value"]);
            let was_other = used.completion_tokens_field != (self.base.host() == VENDOR_HOST);
            // A name that was learned and is refused as well: this server takes neither.
            let quirk = if is_value || was_other { NO_LENGTH_FIELD } else { OTHER_LENGTH_FIELD };
            self.server.learn(&self.of_model(quirk));
        } else if says(&["stream_options", "include_usage"]) {
            self.server.learn(NO_STREAM_OPTIONS);
        } else if says(&["prompt_cache_key"]) {
            self.server.learn(NO_CACHE_KEY);
        } else if says(&["thinking"]) {
            self.server.learn(&self.of_model(NO_THINKING_FIELD));
        }
        // Another request may have learned it in the meantime.
        self.dialect() != used
    }

    async fn ask(
        &self,
        request: ModelRequest<'_>,
        control: &CallControl,
        events: &mut EventSink<'_>,
    ) -> Result<Completion, ModelError> {
        request.validate()?;
        loop {
            let dialect = self.dialect();
            let body = body(&request, &self.model, dialect, &self.extras)?;
            let call = self.call(Method::POST, self.base.completion(), Some(&request), body, control);
            match self.transport.complete(&call, || OpenAiDecoder::new(&self.model), events).await {
                Err(ModelError::BadRequest(reply)) if self.learn(dialect, &reply.detail) => {}
                Err(error) => return Err(error.naming_successor(&self.model)),
                Ok(decoder) => return Ok(decoder.completion),
            }
        }
    }
}

impl ModelClient for OpenAiClient {
    fn provider(&self) -> Provider {
        Provider::OpenAi
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn complete<'a>(
        &'a self,
        request: ModelRequest<'a>,
        control: &'a CallControl,
        events: &'a mut EventSink<'a>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(self.ask(request, control, events))
    }

    fn count_tokens<'a>(
        &'a self,
        _: ModelRequest<'a>,
        _: &'a CallControl,
    ) -> BoxFuture<'a, Result<Option<u64>, ModelError>> {
        Box::pin(async { Ok(None) })
    }

    fn models<'a>(&'a self, control: &'a CallControl) -> BoxFuture<'a, Result<Vec<String>, ModelError>> {
        Box::pin(async move {
            let call = self.call(Method::GET, self.base.join("models"), None, Vec::new(), control);
            super::http::model_ids(&self.transport.fetch(&call).await?, &call)
        })
    }
}

/// What the model thought, as kept in a conversation.
#[derive(Serialize, Deserialize)]
struct Thought {
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
}
