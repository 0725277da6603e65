//! What a workspace remembers, as pure data: no files, no clock, no network, nothing that can fail.
//!
//! The heart is the [`log`]: within an epoch it only grows, every question forks it, and what a fork
//! committed stands in it for good. [`told`] is what it says of files, [`manifest`] which files are known
//! and what happened to them since the last question, and [`delta`] tells the model what is no longer as
//! it was shown. [`compaction`] decides when an epoch ends and what of it stays; the facts that outlive it
//! are the [`ledger`], what leaves is told by the [`transcript`], and what left the window and can be searched is the [`archive`]. [`prompt`] says
//! where the provider's cache breakpoints go, [`tokens`] how large it all is, [`mod@quote`] how foreign
//! text stands in what a model is told. Not allowed here: reading, sending, storing, or asking what time
//! it is; whoever calls brings such things along.

pub mod archive;
pub mod compaction;
pub mod delta;
pub mod ledger;
pub mod log;
pub mod manifest;
pub mod prompt;
pub mod quote;
pub mod tokens;
pub mod told;
pub mod transcript;
