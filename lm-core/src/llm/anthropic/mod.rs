//! The Anthropic Messages API, and everything that speaks it.
//!
//! A request body is written by hand-ordered types, never through a map, so that its bytes depend on
//! its content alone. Quirks of servers that were found out by their refusals are kept by name in
//! [`Server`], see [`EFFORT_REFUSED`].

mod answer;
mod request;

use std::sync::Arc;

use reqwest::{
    Method,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};
use serde::Deserialize;

use self::answer::AnthropicDecoder;
pub(super) use self::request::body;
use super::{
    ApiKey, CallControl, Completion, Extras, ModelClient, ModelError, ModelRequest, ModelSettings, Provider, Transport,
    client::{BoxFuture, EventSink},
    http::{Call, Server},
    url::BaseUrl,
};

/// The newest version, known to the vendor's own endpoint; others may know only [`OLD_VERSION`].
const NEW_VERSION: &str = "2026-10-21";
/// The version that everything knows.
const OLD_VERSION: &str = "2023-06-01";
const VENDOR_HOST: &str = "api.anthropic.com";

/// The server does not know `output_config.effort`.
const EFFORT_REFUSED: &str = "effort refused";

/// A model behind the Messages API.
pub(super) struct AnthropicClient {
    base: BaseUrl,
    key: Option<ApiKey>,
    model: String,
    extras: Extras,
    transport: Arc<Transport>,
    server: Arc<Server>,
}

impl std::fmt::Debug for AnthropicClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnthropicClient").field("base", &self.base).field("model", &self.model).finish_non_exhaustive()
    }
}

impl AnthropicClient {
    pub(super) fn new(settings: &ModelSettings, model: String, transport: &Arc<Transport>) -> Result<Self, ModelError> {
        let provider = Provider::Anthropic;
        let base = BaseUrl::parse(settings.base_url.as_deref().unwrap_or(provider.default_base_url()), provider)?;
        if settings.api_key.is_none() && base.host() == VENDOR_HOST && !settings.extras.hold_credential() {
            return Err(ModelError::Invalid(
                "provider anthropic needs an API key; give one with `lm-shim setup`, LIVE_MEMORY_API_KEY or \
                 ANTHROPIC_API_KEY (a Claude subscription is no API key)"
                    .to_owned(),
            ));
        }
        let server = transport.server(base.as_str(), settings.api_key.as_ref());
        let (key, extras) = (settings.api_key.clone(), settings.extras.clone());
        Ok(Self { base, key, model, extras, transport: Arc::clone(transport), server })
    }

    fn headers(&self, request: Option<&ModelRequest<'_>>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let vendor = self.base.host() == VENDOR_HOST;
        let version = if vendor { NEW_VERSION } else { OLD_VERSION };
        headers.insert("anthropic-version", HeaderValue::from_static(version));
        if let Some(key) = &self.key {
            // Exactly one of the two: some servers refuse both together, gateways want a bearer.
            let (name, value) = if vendor {
                (HeaderName::from_static("x-api-key"), key.expose().to_owned())
            } else {
                (AUTHORIZATION, format!("Bearer {}", key.expose()))
            };
            super::http::insert_secret(&mut headers, name, &value);
        }
        super::http::insert_labels(&mut headers, request);
        self.extras.apply(&mut headers);
        headers
    }

    fn call<'a>(
        &'a self,
        method: Method,
        path: &str,
        request: Option<&ModelRequest<'_>>,
        body: Vec<u8>,
        control: &'a CallControl,
    ) -> Call<'a> {
        Call {
            provider: Provider::Anthropic,
            server: &self.server,
            method,
            url: self.base.join(path),
            headers: self.headers(request),
            body,
            key: self.key.as_ref(),
            extras: &self.extras,
            control,
        }
    }

    /// Thinking is on by default in the current family and counts as output; looking things up
    /// needs little of it. Older models and other servers refuse the field.
    fn effort(&self) -> Option<&'static str> {
        let current = ["claude-haiku-5", "claude-sonnet-5", "claude-opus-5", "claude-fable-5"];
        let known = self.base.host() == VENDOR_HOST && current.iter().any(|family| self.model.starts_with(family));
        (known && !self.server.has(EFFORT_REFUSED)).then_some("low")
    }

    async fn ask(
        &self,
        request: ModelRequest<'_>,
        control: &CallControl,
        events: &mut EventSink<'_>,
    ) -> Result<Completion, ModelError> {
        request.validate()?;
        loop {
            let effort = self.effort();
            let body = body(&request, &self.model, effort, true)?;
            let call = self.call(Method::POST, "messages", Some(&request), body, control);
            match self.transport.complete(&call, || AnthropicDecoder::new(&self.model), events).await {
                Err(ModelError::BadRequest(reply))
                    if effort.is_some()
                        && (reply.detail.contains("effort") || reply.detail.contains("output_config")) =>
                {
                    self.server.learn(EFFORT_REFUSED);
                }
                Err(error) => return Err(error.naming_successor(&self.model)),
                Ok(decoder) => return Ok(decoder.into_completion()),
            }
        }
    }
}

impl ModelClient for AnthropicClient {
    fn provider(&self) -> Provider {
        Provider::Anthropic
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
        request: ModelRequest<'a>,
        control: &'a CallControl,
    ) -> BoxFuture<'a, Result<Option<u64>, ModelError>> {
        #[derive(Deserialize)]
        struct Count {
            input_tokens: u64,
        }
        Box::pin(async move {
            request.validate()?;
            let body = body(&request, &self.model, None, false)?;
            let call = self.call(Method::POST, "messages/count_tokens", Some(&request), body, control);
            match self.transport.fetch(&call).await {
                // Many servers of this format do not count.
                Err(ModelError::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
                Ok(document) => Ok(serde_json::from_str::<Count>(&document).ok().map(|count| count.input_tokens)),
            }
        })
    }

    fn models<'a>(&'a self, control: &'a CallControl) -> BoxFuture<'a, Result<Vec<String>, ModelError>> {
        Box::pin(async move {
            let mut call = self.call(Method::GET, "models", None, Vec::new(), control);
            if self.base.host() == VENDOR_HOST {
                // A page has 20 of them if nothing is said
                // (https://platform.claude.com/docs/en/api/models/list).
                call.url.query_pairs_mut().append_pair("limit", "1000");
            }
            super::http::model_ids(&self.transport.fetch(&call).await?, &call)
        })
    }
}
