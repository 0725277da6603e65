//! A model server for tests, in both wire formats, streaming and not.
//!
//! It answers from a [`Script`], an oracle closure or a [`ReadingModel`]; stalls where a [`Gate`] says;
//! fails as a [`Fault`] says; keeps every request; checks every request (see `checks`: a broken rule
//! fails the test when the server is dropped); and accounts the provider's prompt cache on a clock
//! that tests move, so that a session has a [`Bill`] in dollars.

mod answers;
mod bill;
mod caching;
mod checks;
mod clock;
mod connection;
mod script;
mod seen;
mod server;

pub use bill::{Bill, dollars, minimum_cacheable};
pub use caching::{Cache, CacheBlock, Planned, Tokens};
pub use clock::{CLOCK_VARIABLE, Clock};
pub use script::{Fault, Gate, Model, ReadingModel, ReportedUsage, Say, Script, Turn};
pub use seen::{Format, Mark, Piece, SeenMessage, SeenRequest};
pub use server::{ModelServer, ServerOptions};
