//! What can go wrong when talking to a model, each with its meaning and its remedy.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

/// How much of a server's own words is repeated.
const MAX_DETAIL: usize = 200;

/// Which server answered what. Holds no secret: URL and detail are cleaned before they get here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The address without credentials and query.
    pub url: String,
    /// The HTTP status.
    pub status: u16,
    /// The start of the server's own words.
    pub detail: String,
}

impl Reply {
    pub(super) fn new(url: &str, status: u16, detail: &str) -> Self {
        Self { url: url.to_owned(), status, detail: shorten(detail) }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {}", self.url, self.status)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}

/// One line, at most [`MAX_DETAIL`] characters.
pub(super) fn shorten(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((cut, _)) = line.char_indices().nth(MAX_DETAIL) {
        line.truncate(cut);
        line.push('…');
    }
    line
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ModelError {
    /// The key is wrong, expired or missing.
    #[error("authentication failed: {0}; set a valid key with `lm-shim setup` or LIVE_MEMORY_API_KEY")]
    Authentication(Reply),
    /// The account has no money or has reached its spending limit.
    #[error("the account cannot pay: {0}; add credit or raise the spending limit at the provider")]
    Billing(Reply),
    /// Nothing is known under the URL or the model's name.
    #[error("model or address unknown: {reply}; {remedy}")]
    NotFound {
        /// What was answered.
        reply: Reply,
        /// What to check.
        remedy: String,
    },
    /// The prompt does not fit.
    #[error(
        "the prompt exceeds the model's context window: {0}; lower LIVE_MEMORY_MAX_CONTEXT_TOKENS or choose a model \
         with a larger window"
    )]
    ContextExceeded(Reply),
    /// Too many requests or tokens.
    #[error("{}: {reply}; wait, or raise the rate limit at the provider", rate_limit_text(*until))]
    RateLimited {
        /// When the provider takes requests again, if it said so.
        until: Option<SystemTime>,
        /// What was answered, now or the last time.
        reply: Reply,
    },
    /// The provider is overloaded or broken at the moment, and stayed so.
    #[error("the provider is overloaded or failing: {reply}, {}; try again later", tries(*attempts))]
    Overloaded {
        /// What was answered last.
        reply: Reply,
        /// How many requests were made.
        attempts: u32,
    },
    /// The provider refuses this account or this request.
    #[error("the provider refuses the request: {0}; check that the key may use this model")]
    Refused(Reply),
    /// The provider does not understand the request.
    #[error(
        "the provider rejected the request: {0}; check that LIVE_MEMORY_PROVIDER, LIVE_MEMORY_BASE_URL and \
         LIVE_MEMORY_MODEL belong together"
    )]
    BadRequest(Reply),
    /// No connection, or it broke.
    #[error("no connection to {url}: {cause}, {}; check the network and the address (base_url)", tries(*attempts))]
    Network {
        /// Where to.
        url: String,
        /// What happened.
        cause: String,
        /// How many requests were made.
        attempts: u32,
    },
    /// The answer is none: not this wire format, cut off, or empty.
    #[error("{url} gave no usable answer: {what}; check that the address (base_url) is that of a model server")]
    Protocol {
        /// Where from.
        url: String,
        /// What came instead.
        what: String,
    },
    /// The caller's time was up.
    #[error("no answer from {url} in time ({}); raise the timeout or try again", last.as_deref().unwrap_or("the model was still at work"))]
    Deadline {
        /// Where from.
        url: String,
        /// What went wrong before, if anything did.
        last: Option<String>,
    },
    /// The caller no longer wants an answer.
    #[error("the request was cancelled")]
    Cancelled,
    /// The request cannot be made at all: a setting or the request itself is unusable.
    #[error("{0}")]
    Invalid(String),
}

impl ModelError {
    /// Whether asking again without a change can only fail the same way.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::Authentication(_)
                | Self::Billing(_)
                | Self::NotFound { .. }
                | Self::Refused(_)
                | Self::BadRequest(_)
                | Self::Invalid(_)
        )
    }

    /// Names the successor where a model is unknown because it was retired.
    pub(super) fn naming_successor(mut self, model: &str) -> Self {
        if let (Self::NotFound { remedy, .. }, Some(successor)) = (&mut self, super::pricing::successor(model)) {
            *remedy = format!("{model} has been retired by its vendor, set LIVE_MEMORY_MODEL to {successor}");
        }
        self
    }

    /// Says how many requests it took to give up.
    pub(super) fn after(mut self, made: u32) -> Self {
        if let Self::Overloaded { attempts, .. } | Self::Network { attempts, .. } = &mut self {
            *attempts = made;
        }
        self
    }
}

fn tries(attempts: u32) -> String {
    match attempts {
        1 => "tried once".to_owned(),
        attempts => format!("tried {attempts} times"),
    }
}

fn rate_limit_text(until: Option<SystemTime>) -> String {
    match until {
        // Up to the next full second, since a wait that ends early is refused again.
        Some(until) => {
            format!("rate limited until {}", httpdate::fmt_http_date(until + Duration::from_millis(999)))
        }
        None => "rate limited".to_owned(),
    }
}
