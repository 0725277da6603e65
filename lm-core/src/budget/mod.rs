//! What models have cost, by day and by workspace, and whether more may be spent today.
//!
//! Days are those of UTC. The sums ([`sum`], [`day`], [`ledger`]) and the limits ([`limits`]) are pure;
//! `store` alone touches the disk. Amounts are whole nano-dollars, so that sums are the same in
//! whatever order requests end. A limit is looked at before a request and booked after it, so that
//! requests under way at the same time may go past it by what they cost.
//!
//! Not allowed here: workspaces, settings, models. A price that is not known is booked as unknown,
//! never as nothing.

pub mod day;
pub mod ledger;
pub mod limits;
mod store;
pub mod sum;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::SystemTime};

use lm_proto::DataDirectory;

use crate::llm::Usage;
use day::Day;
use ledger::Booking;
pub use ledger::Spent;
pub use limits::{Limits, Reached, price_note};
use store::Store;
pub use sum::Sum;

/// The spending of one data directory, kept across restarts. Cheap to clone and to share.
#[derive(Clone)]
pub struct Budget {
    store: Arc<Store>,
}

impl fmt::Debug for Budget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Budget").finish_non_exhaustive()
    }
}

impl Budget {
    /// Reads what was spent. Only for the daemon that holds the life lock. Never fails: what cannot be
    /// read is set aside, logged, and said by [`Budget::spent`].
    #[must_use]
    pub fn open(data: &DataDirectory, now: SystemTime) -> Self {
        Self { store: Arc::new(Store::open(data.spending_file(), Day::of(now))) }
    }

    /// Whether more may be spent today.
    ///
    /// # Errors
    /// Which limit was reached, when it resets and how to raise it.
    pub fn check(&self, limits: &Limits, now: SystemTime) -> Result<(), Reached> {
        limits.check(&self.store.today(Day::of(now)), now)
    }

    /// Books one request as soon as it is known. Without a price its tokens count and its dollars are
    /// said to be unknown. Writes a short record, without waiting for the disk.
    ///
    /// `workspace` is the root's path.
    pub fn book(&self, workspace: &str, model: &str, usage: &Usage, cost: Option<f64>, now: SystemTime) {
        let booking = Booking {
            day: Day::of(now),
            workspace: workspace.to_owned(),
            model: model.to_owned(),
            sum: Sum::of(usage, cost),
        };
        Store::book(&self.store, booking);
    }

    /// What was spent, for reports.
    #[must_use]
    pub fn spent(&self, now: SystemTime) -> Spent {
        self.store.spent(Day::of(now))
    }
}
