//! From the address a person gives to the addresses that are called.

use core::net::IpAddr;

use reqwest::Url;

use super::{ModelError, Provider};

/// The address of a provider, ready to be joined.
#[derive(Clone, Debug)]
pub(super) struct BaseUrl {
    url: Url,
    provider: Provider,
}

impl BaseUrl {
    /// Takes what people paste: with or without a slash at the end, with or without `/v1`, or the
    /// full path of the call.
    pub(super) fn parse(text: &str, provider: Provider) -> Result<Self, ModelError> {
        let invalid = |why: &str| {
            Err(ModelError::Invalid(format!(
                "LIVE_MEMORY_BASE_URL {why}; give an address like {} or http://localhost:11434/v1",
                provider.default_base_url()
            )))
        };
        let Ok(mut url) = Url::parse(text.trim()) else { return invalid("is not a URL") };
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
            return invalid("must start with http:// or https://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return invalid("must not hold a user name or password (set LIVE_MEMORY_API_KEY)");
        }
        url.set_fragment(None);
        let path = url.path().trim_end_matches('/');
        let call = match provider {
            Provider::Anthropic => "/messages",
            Provider::OpenAi => "/chat/completions",
        };
        let mut path = path.strip_suffix(call).unwrap_or(path).trim_end_matches('/').to_owned();
        match provider {
            Provider::Anthropic if !path.ends_with("/v1") => path.push_str("/v1"),
            Provider::OpenAi if path.is_empty() => path.push_str(root_of(url.host_str().unwrap_or_default())),
            _ => {}
        }
        url.set_path(&path);
        Ok(Self { url, provider })
    }

    /// The address of a call such as `models`; a query given by the person stays.
    pub(super) fn join(&self, call: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/{call}", self.url.path().trim_end_matches('/')));
        url
    }

    /// The address of the call that asks the model.
    pub(super) fn completion(&self) -> Url {
        self.join(match self.provider {
            Provider::Anthropic => "messages",
            Provider::OpenAi => "chat/completions",
        })
    }

    pub(super) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// What tells one server from another.
    pub(super) fn as_str(&self) -> &str {
        self.url.as_str()
    }
}

/// The path that a bare host means: nearly always `/v1`, but some vendors have theirs elsewhere.
fn root_of(host: &str) -> &'static str {
    match host {
        // Complete without any.
        "api.deepseek.com" => "",
        "openrouter.ai" => "/api/v1",
        "api.groq.com" => "/openai/v1",
        "generativelanguage.googleapis.com" => "/v1beta/openai",
        host if host.ends_with(".openai.azure.com") => "/openai/v1",
        _ => "/v1",
    }
}

/// Whether it is this machine, which is never reached through a proxy.
pub(super) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether an address is one of the vendors whose keys other programs use, reached in a way that nobody on
/// the way can read.
#[must_use]
pub fn is_vendors_own(provider: Provider, base_url: &str) -> bool {
    let Ok(base) = BaseUrl::parse(base_url, provider) else { return false };
    let hosts: [&str; 2] = match provider {
        Provider::Anthropic => ["api.anthropic.com", "api.deepseek.com"],
        Provider::OpenAi => ["api.openai.com", "api.deepseek.com"],
    };
    base.url.scheme() == "https" && base.url.port().is_none() && hosts.contains(&base.host())
}

/// An address fit to be shown: the query may hold a key.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

/// A provider's address as a person set it, or its default one, fit to be shown.
#[must_use]
pub fn shown_address(provider: Provider, base_url: Option<&str>) -> String {
    let base = BaseUrl::parse(base_url.unwrap_or(provider.default_base_url()), provider);
    base.map_or_else(|_| "an address that is none".to_owned(), |base| shown(&base.url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_the_address_reaches_the_call() {
        let openai = [
            ("http://127.0.0.1:9", "http://127.0.0.1:9/v1/chat/completions"),
            ("http://127.0.0.1:9/", "http://127.0.0.1:9/v1/chat/completions"),
            ("http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1/chat/completions"),
            (" http://127.0.0.1:9/v1/ ", "http://127.0.0.1:9/v1/chat/completions"),
            ("http://127.0.0.1:9/v1/chat/completions", "http://127.0.0.1:9/v1/chat/completions"),
            ("http://127.0.0.1:9/gw/openai/v1", "http://127.0.0.1:9/gw/openai/v1/chat/completions"),
            ("https://api.deepseek.com", "https://api.deepseek.com/chat/completions"),
            (
                "https://r.example/openai/deployments/d?api-version=1",
                "https://r.example/openai/deployments/d/chat/completions?api-version=1",
            ),
            ("https://openrouter.ai", "https://openrouter.ai/api/v1/chat/completions"),
            ("https://r.openai.azure.com/", "https://r.openai.azure.com/openai/v1/chat/completions"),
            ("https://g.example/v1beta/openai/", "https://g.example/v1beta/openai/chat/completions"),
        ];
        for (given, expected) in openai {
            assert_eq!(BaseUrl::parse(given, Provider::OpenAi).unwrap().completion().as_str(), expected, "{given}");
        }
        let anthropic = [
            ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
            ("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
            ("https://api.anthropic.com/v1/messages", "https://api.anthropic.com/v1/messages"),
            ("https://api.deepseek.com/anthropic", "https://api.deepseek.com/anthropic/v1/messages"),
        ];
        for (given, expected) in anthropic {
            assert_eq!(BaseUrl::parse(given, Provider::Anthropic).unwrap().completion().as_str(), expected, "{given}");
        }
    }

    #[test]
    fn an_address_that_cannot_work_is_refused_without_repeating_it() {
        for bad in ["localhost:11434/v1", "api.openai.com", "", "ftp://x/", "https://me:canary@host/v1"] {
            let error = BaseUrl::parse(bad, Provider::OpenAi).unwrap_err().to_string();
            assert!(error.contains("LIVE_MEMORY_BASE_URL") && !error.contains("canary"), "{bad}: {error}");
        }
    }

    #[test]
    fn this_machine_is_recognised() {
        for (url, expected) in [
            ("http://localhost:1/", true),
            ("http://127.8.0.1/", true),
            ("http://[::1]:1/", true),
            ("http://10.0.0.1/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
