//! OpenAI's chat completions, and the many servers that speak a dialect of it.
//!
//! Every optional field is left out unless it is needed, since each is refused somewhere. What a
//! server was found not to understand is kept by name in [`Server`], see the constants below, and a
//! request is sent again once without it.

mod answer;
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
    ApiKey, CallControl, Completion, ModelClient, ModelError, ModelRequest, ModelSettings, Provider, Transport,
    client::{BoxFuture, EventSink},
    http::{Call, Server},
    url::BaseUrl,
};

/// The server wants the other name of the length limit than the one it is given by default.
const OTHER_LENGTH_FIELD: &str = "length limit has its other name";
/// The server does not know `stream_options`.
const NO_STREAM_OPTIONS: &str = "stream_options refused";

const VENDOR_HOST: &str = "api.openai.com";
const DEEPSEEK_HOST: &str = "api.deepseek.com";

/// A model behind chat completions.
pub(super) struct OpenAiClient {
    base: BaseUrl,
    key: Option<ApiKey>,
    model: String,
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
        if settings.api_key.is_none() && base.host() == VENDOR_HOST {
            return Err(ModelError::Invalid(
                "provider openai needs an API key; give one with `lm-shim setup`, LIVE_MEMORY_API_KEY or \
                 OPENAI_API_KEY, or point LIVE_MEMORY_BASE_URL at a server that needs none"
                    .to_owned(),
            ));
        }
        let server = transport.server(base.as_str(), settings.api_key.as_ref());
        Ok(Self { base, key: settings.api_key.clone(), model, transport: Arc::clone(transport), server })
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
        let (provider, server, key) = (Provider::OpenAi, &*self.server, self.key.as_ref());
        Call { provider, server, method, url, headers, body, key, control }
    }

    /// The quirk under which the other name of the length limit is remembered: servers decide it by
    /// model.
    fn length_quirk(&self) -> String {
        format!("{OTHER_LENGTH_FIELD}: {}", self.model)
    }

    /// What this server is taken to understand.
    fn dialect(&self) -> Dialect {
        let vendor = self.base.host() == VENDOR_HOST;
        Dialect {
            completion_tokens_field: vendor != self.server.has(&self.length_quirk()),
            stream_options: !self.server.has(NO_STREAM_OPTIONS),
            cache_key: vendor,
            thinking_off: self.base.host() == DEEPSEEK_HOST,
        }
    }

    /// Learns from a refusal of what was said in a dialect; false if there is nothing to learn.
    fn learn(&self, used: Dialect, detail: &str) -> bool {
        let detail = detail.to_lowercase();
        // Advice to use the other name holds both.
        let length_field = if used.completion_tokens_field { "max_completion_tokens" } else { "max_tokens" };
        if detail.contains(length_field) && !detail.contains("context") {
            self.server.learn(&self.length_quirk());
        } else if detail.contains("stream_options") || detail.contains("include_usage") {
            self.server.learn(NO_STREAM_OPTIONS);
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
            let body = body(&request, &self.model, dialect)?;
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
