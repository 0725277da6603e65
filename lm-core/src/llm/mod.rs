//! Talking to a model: one request out, a stream of events in, one [`Completion`] or one classified
//! [`ModelError`] back.
//!
//! The rooms, pure unless said otherwise: what a request and a completion are ([`request`],
//! [`completion`]), what can go wrong ([`error`], `classify`), what a person adds to every request ([`extras`]), the wire formats (`anthropic`,
//! `openai`; each a request body, a decoder and its own quirks), server-sent events (`sse`), broken JSON (`lone_surrogates`), when to
//! try again (`retry`), what a usage costs ([`pricing`]), where the key comes from ([`credentials`],
//! reads the files that a person names), and the only file that opens a connection ([`http`]).
//!
//! Two promises hold for every wire format. A message is written byte for byte the same in every
//! request that carries it, whatever surrounds it, so that a provider's prompt cache and its
//! signatures hold; only cache marks move. And an answer is whole or it is an error: a stream that
//! breaks off never becomes half an answer.
//!
//! Not allowed here: memory, tools, workspaces, settings. What a person set arrives as plain values
//! in [`ModelSettings`].

mod anthropic;
mod classify;
pub mod client;
pub mod completion;
pub mod credentials;
pub mod error;
pub mod extras;
pub mod http;
mod lone_surrogates;
mod openai;
pub mod pricing;
pub mod request;
mod retry;
mod sse;
#[cfg(test)]
mod tests;
mod url;

pub use client::{CallControl, ModelClient, ModelEvent, ModelSettings, Provider, connect};
pub use completion::{Completion, InvalidCall, Stop, Usage};
pub use credentials::ApiKey;
pub use error::ModelError;
pub use extras::Extras;
pub use http::{Timeouts, Transport};
pub use request::{Breakpoint, Lifetime, ModelRequest, Position, Purpose, ToolSpec};
pub use url::{is_vendors_own, shown_address};
