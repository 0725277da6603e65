//! What models have cost, by day and by workspace, and whether more may be spent today.
//!
//! Days are those of UTC. The sums ([`sum`], [`day`], [`ledger`]) and the limits ([`limits`]) are pure;
//! `store` alone touches the disk. Amounts are whole nano-dollars, so that sums are the same in
//! whatever order requests end. What a request is expected to cost is reserved before it and booked after
//! it, so that a limit is passed by what one request costs, however many are under way; summaries alone
//! are booked and not reserved.
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

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

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
    reserved: Arc<Mutex<Sum>>,
}

/// Money set aside for a request under way; given back when dropped, which is to be done once the request
/// is booked.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    sum: Sum,
    reserved: Arc<Mutex<Sum>>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *lock(&self.reserved) -= self.sum;
    }
}

fn lock(sum: &Mutex<Sum>) -> MutexGuard<'_, Sum> {
    sum.lock().unwrap_or_else(PoisonError::into_inner)
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
        Self { store: Arc::new(Store::open(data.spending_file(), Day::of(now))), reserved: Arc::default() }
    }

    /// Whether more may be spent today, beside what is reserved for requests under way.
    ///
    /// # Errors
    /// Which limit was reached, when it resets and how to raise it.
    pub fn check(&self, limits: &Limits, now: SystemTime) -> Result<(), Reached> {
        self.check_beside(limits, &lock(&self.reserved), now)
    }

    fn check_beside(&self, limits: &Limits, reserved: &Sum, now: SystemTime) -> Result<(), Reached> {
        let mut spent = self.store.today(Day::of(now));
        limits.check(&spent, now)?;
        spent += *reserved;
        limits.check(&spent, now)
    }

    /// Sets aside what the first request of a question is expected to cost.
    ///
    /// # Errors
    /// As [`Budget::check`]; nothing is then set aside.
    pub fn reserve(
        &self,
        limits: &Limits,
        usage: &Usage,
        cost: Option<f64>,
        now: SystemTime,
    ) -> Result<Reservation, Reached> {
        // Under one lock: questions that arrive together are looked at one after the other.
        let mut reserved = lock(&self.reserved);
        self.check_beside(limits, &reserved, now)?;
        Ok(self.set_aside(&mut reserved, usage, cost))
    }

    /// The same for a request that is made in any case, since it ends what was begun.
    pub fn reserve_anyway(&self, usage: &Usage, cost: Option<f64>) -> Reservation {
        self.set_aside(&mut lock(&self.reserved), usage, cost)
    }

    fn set_aside(&self, reserved: &mut Sum, usage: &Usage, cost: Option<f64>) -> Reservation {
        let sum = Sum::of(usage, cost);
        *reserved += sum;
        Reservation { sum, reserved: Arc::clone(&self.reserved) }
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
