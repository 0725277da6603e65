//! The process: lifecycle, locks, the server loop, its log and its counters.
//!
//! Not allowed here: what an answer is made of. A request goes through [`dispatch`] to a workspace
//! and comes back as a reply.

pub mod allocator;
pub mod clock;
pub mod dispatch;
pub mod doctor;
pub mod lifecycle;
pub mod lock;
pub mod logging;
mod memory_report;
pub mod notes;
mod people_report;
mod provider_report;
pub mod reports;
pub mod server;
mod spending_report;
pub mod status;
mod trial;
