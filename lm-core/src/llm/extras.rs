//! What a person adds to every request: fields of the body, header fields, certificates. Pure.

use std::{collections::BTreeMap, path::PathBuf};

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::ModelError;

/// Stands for an id of its own in every request.
const AUTO: &str = "__auto__";

/// Header fields that belong to the connection, or would send a request to another than its address.
const NEVER: [&str; 7] = ["host", "content-length", "content-type", "transfer-encoding", "connection", "upgrade", "te"];

/// Fields of a body that other settings decide, or that the conversation consists of.
const OWN_FIELDS: [(&str, &str); 4] = [
    ("model", "set LIVE_MEMORY_MODEL"),
    ("messages", "they are the conversation"),
    ("tools", "they are the product's own"),
    ("stream", "answers are read as streams, or whole where a server does not stream"),
];

/// What is added to every request. It has no `Debug`, since it may hold secrets.
#[derive(Clone, PartialEq, Eq, Default)]
#[expect(missing_debug_implementations, reason = "it may hold secrets")]
pub struct Extras {
    /// Certificates that are trusted besides the system's, in PEM.
    pub ca_file: Option<PathBuf>,
    body: BTreeMap<String, Value>,
    headers: Vec<(HeaderName, Option<HeaderValue>)>,
}

impl Extras {
    /// Takes what was set: fields of a chat-completions body, and header fields. The value `__auto__` is
    /// an id that is new in every request.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] naming the field that cannot be added; its value is not repeated.
    pub fn new<'a>(
        body: Option<&Map<String, Value>>,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        ca_file: Option<PathBuf>,
    ) -> Result<Self, ModelError> {
        let invalid = |what: String| Err(ModelError::Invalid(what));
        let mut extras = Self { ca_file, ..Self::default() };
        for (name, value) in body.into_iter().flatten() {
            if let Some((_, instead)) = OWN_FIELDS.iter().find(|(own, _)| own == name) {
                return invalid(format!("openai_extra_body cannot set `{name}`: {instead}"));
            }
            extras.body.insert(name.clone(), value.clone());
        }
        for (name, value) in headers {
            let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
                return invalid(format!("extra_headers: `{name}` is not the name of a header field"));
            };
            if NEVER.contains(&header.as_str()) {
                return invalid(format!("extra_headers cannot set `{header}`, which belongs to the connection"));
            }
            let value = match value {
                AUTO => None,
                text => match HeaderValue::from_str(text) {
                    Ok(mut value) => {
                        value.set_sensitive(true);
                        Some(value)
                    }
                    Err(_) => {
                        return invalid(format!(
                            "extra_headers: the value of `{header}` cannot stand in a header field"
                        ));
                    }
                },
            };
            extras.headers.push((header, value));
        }
        Ok(extras)
    }

    /// Fields of the body; `null` means that the field is not sent at all.
    pub(super) fn body(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.body.iter().filter(|(_, value)| !value.is_null())
    }

    /// Whether a field of the body was decided by the person.
    pub(super) fn decides(&self, field: &str) -> bool {
        self.body.contains_key(field)
    }

    /// Whether the header fields let one in, so that no key is needed beside them.
    pub(super) fn hold_credential(&self) -> bool {
        self.headers.iter().any(|(name, _)| is_credential(name))
    }

    /// Puts the header fields among a request's, in place of those of the same name. A request bears one
    /// credential.
    pub(super) fn apply(&self, headers: &mut HeaderMap) {
        if self.hold_credential() {
            headers.remove(AUTHORIZATION);
            headers.remove("x-api-key");
        }
        for (name, value) in &self.headers {
            headers.insert(name, value.clone().unwrap_or_else(fresh_id));
        }
    }

    /// The secrets among the header fields, to be cleaned out of what a server says.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().filter_map(|(_, value)| value.as_ref()?.to_str().ok())
    }
}

fn is_credential(name: &HeaderName) -> bool {
    matches!(name.as_str(), "authorization" | "x-api-key" | "api-key")
}

fn fresh_id() -> HeaderValue {
    let id = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    // Digits can stand in every header field.
    HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str, headers: &[(&str, &str)]) -> String {
        let body: Map<String, Value> = serde_json::from_str(body).unwrap();
        Extras::new(Some(&body), headers.iter().copied(), None).err().unwrap().to_string()
    }

    #[test]
    fn what_cannot_be_added_is_refused_without_repeating_it() {
        for field in ["model", "messages", "tools", "stream"] {
            let error = refused(&format!(r#"{{"{field}":"canary"}}"#), &[]);
            assert!(error.contains(field) && !error.contains("canary"), "{error}");
        }
        for name in ["Host", "content-length", "no name"] {
            let error = refused("{}", &[(name, "canary")]);
            assert!(error.contains("extra_headers") && !error.contains("canary"), "{error}");
        }
        assert!(!refused("{}", &[("x-a", "canary\u{7f}")]).contains("canary"));
    }

    #[test]
    fn a_request_bears_one_credential() {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", HeaderValue::from_static("k"));
        Extras::new(None, [("Authorization", "Bearer b")], None).unwrap_or_default().apply(&mut headers);
        assert!(headers.get("x-api-key").is_none() && headers.get("authorization").is_some_and(|v| v == "Bearer b"));
    }

    #[test]
    fn an_automatic_id_is_new_in_every_request() {
        let extras = Extras::new(None, [("x-request-id", "__auto__")], None).unwrap_or_default();
        let id = || {
            let mut headers = HeaderMap::new();
            extras.apply(&mut headers);
            headers["x-request-id"].to_str().unwrap().to_owned()
        };
        assert!(id().len() == 32 && id() != id());
    }
}
