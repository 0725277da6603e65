//! From a server's refusal to what it means. Pure.
//!
//! Status first, then the error's type and code, and wording only where providers give nothing
//! better: a full window and an empty account both come as plain 400s.

use std::time::Duration;

use serde_json::Value;

use super::{ModelError, Provider, error::Reply, retry};

/// How servers say that a prompt is too long, in lower case: Anthropic now and earlier, OpenAI,
/// vLLM, llama.cpp, Gemini, Bedrock, Cerebras and what several gateways copy.
const OVERFLOW: [&str; 11] = [
    "prompt is too long",
    "exceed context limit",
    "context_length_exceeded",
    "maximum context length",
    "longer than the model's context length",
    "exceed_context_size_error",
    "exceeds the maximum number of tokens allowed",
    "exceed model maximum",
    "exceed the configured limit",
    "maximum input length is",
    "while limit is",
];

/// How they say that money is the matter, whatever the status.
const BILLING: [&str; 9] = [
    "billing_error",
    "insufficient_quota",
    "credit balance is too low",
    "contract_spend_limit_reached",
    "enforced_spend_limit_reached",
    "spend limit",
    "spending limit",
    "insufficient balance",
    "specified api usage limits",
];

/// A refusal, and whether and when to try again.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: ModelError,
    pub(super) transient: bool,
    /// The pause the server asks for.
    pub(super) retry_after: Option<Duration>,
    /// The status, where there was an answer at all.
    pub(super) status: Option<u16>,
}

impl Failure {
    /// One that a repetition cannot mend.
    pub(super) fn permanent(error: ModelError) -> Self {
        Self { error, transient: false, retry_after: None, status: None }
    }

    /// A connection that did not come about or broke.
    pub(super) fn network(url: &str, cause: String) -> Self {
        let error = ModelError::Network { url: url.to_owned(), cause, attempts: 1 };
        Self { error, transient: true, retry_after: None, status: None }
    }
}

/// The outside of a refusal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal<'a> {
    pub(super) provider: Provider,
    /// Fit to be shown.
    pub(super) url: &'a str,
    pub(super) status: u16,
    /// The body, cleaned of secrets.
    pub(super) body: &'a str,
    pub(super) retry_after: Option<Duration>,
    /// The server's own opinion on trying again.
    pub(super) should_retry: Option<bool>,
}

/// The parts of an error object, in any of the shapes that servers use.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorBody {
    pub(super) kind: String,
    pub(super) code: String,
    pub(super) message: String,
}

impl ErrorBody {
    /// `{"error":{…}}`, `{"error":"text"}`, `{"message":…}`, `{"detail":…}`; `None` if it is none.
    pub(super) fn parse(body: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(body).ok()?;
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let object = value.as_object()?;
        let error = object.get("error").filter(|error| !error.is_null());
        match error {
            Some(Value::Object(error)) => {
                let field = |name: &str| error.get(name).map(text).unwrap_or_default();
                let detail = error.get("details").and_then(|details| details.get("error_code")).map(text);
                let code = detail.unwrap_or_else(|| field("code"));
                Some(Self { kind: field("type"), code, message: field("message") })
            }
            Some(other) => Some(Self { message: text(other), ..Self::default() }),
            None => {
                let message = object.get("message").or_else(|| object.get("detail")).map(text)?;
                let field = |name: &str| object.get(name).map(text).unwrap_or_default();
                Some(Self { kind: field("type"), code: field("code"), message })
            }
        }
    }

    /// The status that an error inside a 200 would have had.
    pub(super) fn status(&self) -> Option<u16> {
        let of_kind = match self.kind.as_str() {
            "overloaded_error" => 529,
            "rate_limit_error" | "rate_limit_exceeded" => 429,
            "api_error" | "server_error" | "internal_server_error" => 500,
            "timeout_error" => 504,
            "authentication_error" => 401,
            "billing_error" => 402,
            "permission_error" => 403,
            "not_found_error" => 404,
            "request_too_large" => 413,
            "invalid_request_error" => 400,
            _ => 0,
        };
        let of_code = self.code.parse().unwrap_or(0);
        [of_code, of_kind].into_iter().find(|status| (400..600).contains(status))
    }
}

/// What a refusal means.
pub(super) fn classify(refusal: &Refusal<'_>) -> Failure {
    let parsed = ErrorBody::parse(refusal.body);
    let detail = parsed
        .as_ref()
        .map_or(refusal.body, |parsed| if parsed.message.is_empty() { refusal.body } else { &parsed.message });
    let reply = Reply::new(refusal.url, refusal.status, detail);
    let words = refusal.body.to_lowercase();
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| words.contains(phrase));
    let code = parsed.map(|parsed| parsed.code).unwrap_or_default();

    let (error, mut transient) = match refusal.status {
        401 => (ModelError::Authentication(reply), false),
        402 => (ModelError::Billing(reply), false),
        413 => (ModelError::ContextExceeded(reply), false),
        400 | 403 | 422 | 429 if says(&BILLING) => (ModelError::Billing(reply), false),
        400 | 422 | 500 if says(&OVERFLOW) => (ModelError::ContextExceeded(reply), false),
        403 => (ModelError::Refused(reply), false),
        404 | 405 => (ModelError::NotFound { remedy: not_found_remedy(refusal.provider, refusal.url), reply }, false),
        // Growing faster than the contract allows: trying again at once is what it complains of.
        429 => (ModelError::RateLimited { until: None, reply }, code != "ramp_limit_exceeded"),
        status if retry::is_transient(status) || status >= 500 => {
            (ModelError::Overloaded { reply, attempts: 1 }, retry::is_transient(status))
        }
        _ => (ModelError::BadRequest(reply), false),
    };
    if !matches!(error, ModelError::Billing(_) | ModelError::ContextExceeded(_) | ModelError::Authentication(_)) {
        transient = refusal.should_retry.unwrap_or(transient);
    }
    Failure { error, transient, retry_after: refusal.retry_after, status: Some(refusal.status) }
}

fn not_found_remedy(provider: Provider, url: &str) -> String {
    let mut remedy = "check LIVE_MEMORY_MODEL and LIVE_MEMORY_BASE_URL".to_owned();
    let path = url.splitn(4, '/').nth(3).unwrap_or_default();
    if provider == Provider::OpenAi && !path.split('/').any(|part| part.starts_with("v1")) {
        remedy.push_str(" (most servers want an address that ends in /v1)");
    }
    remedy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, body: &str) -> Failure {
        classify(&Refusal {
            provider: Provider::OpenAi,
            url: "http://h/v1/chat/completions",
            status,
            body,
            retry_after: None,
            should_retry: None,
        })
    }

    #[test]
    fn a_full_window_is_recognised_in_every_wording() {
        for body in [
            "prompt is too long: 203284 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length",
            r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#,
            "This model's maximum context length is 8192 tokens. However, you requested 9000",
            r#"{"error":{"type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096,"message":"x"}}"#,
            "the prompt is longer than the model's context length",
            "The input token count exceeds the maximum number of tokens allowed",
            "prompt tokens (9) exceed model maximum (8)",
            "Current length is 9 while limit is 8",
            "maximum input length is 8",
            "Input tokens exceed the configured limit of 8 tokens",
        ] {
            let failure = failure(400, body);
            assert!(matches!(failure.error, ModelError::ContextExceeded(_)) && !failure.transient, "{body}");
        }
        assert!(matches!(failure(413, "").error, ModelError::ContextExceeded(_)));
    }

    #[test]
    fn money_is_never_retried() {
        for (status, body) in [
            (402, ""),
            (429, r#"{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}"#),
            (400, "Your credit balance is too low to access the API"),
            (429, r#"{"error":{"details":{"error_code":"contract_spend_limit_reached"}}}"#),
        ] {
            let failure = failure(status, body);
            assert!(matches!(failure.error, ModelError::Billing(_)) && !failure.transient, "{status} {body}");
        }
        assert!(!failure(429, r#"{"error":{"details":{"error_code":"ramp_limit_exceeded"}}}"#).transient);
    }

    #[test]
    fn statuses_are_what_they_are() {
        let transient: Vec<u16> = (400..600).filter(|status| failure(*status, "").transient).collect();
        assert_eq!(transient, [408, 409, 429, 500, 502, 503, 504, 529]);
        assert!(matches!(failure(418, "").error, ModelError::BadRequest(_)));
        assert!(matches!(failure(501, "").error, ModelError::Overloaded { .. }));
        assert!(matches!(failure(405, "").error, ModelError::NotFound { .. }));
        assert!(matches!(failure(302, "").error, ModelError::BadRequest(_)));
    }

    #[test]
    fn a_server_may_overrule() {
        let refusal = |status, should_retry| Refusal {
            provider: Provider::Anthropic,
            url: "u",
            status,
            body: "",
            retry_after: None,
            should_retry,
        };
        assert!(!classify(&refusal(529, Some(false))).transient);
        assert!(classify(&refusal(400, Some(true))).transient);
        assert!(!classify(&refusal(401, Some(true))).transient, "a wrong key stays wrong");
    }

    #[test]
    fn every_shape_of_an_error_is_read() {
        let parse = |body| ErrorBody::parse(body).unwrap();
        assert_eq!(parse(r#"{"error":"plain"}"#).message, "plain");
        assert_eq!(parse(r#"{"error":{"message":"m","code":429}}"#).status(), Some(429));
        assert_eq!(parse(r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#).status(), Some(529));
        assert_eq!(parse(r#"{"detail":"d"}"#).message, "d");
        assert_eq!(parse(r#"{"object":"error","message":"m","code":503}"#).status(), Some(503));
        assert_eq!(parse(r#"{"error":{"code":null,"message":"m"}}"#).status(), None);
        assert_eq!(ErrorBody::parse(r#"{"error":null,"choices":[]}"#), None);
        assert_eq!(ErrorBody::parse("<html>"), None);
    }
}
