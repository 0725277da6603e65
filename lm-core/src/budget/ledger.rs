//! The sums by day, by workspace and in all, kept small. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{day::Day, sum::Sum};

/// Days that are kept one by one; what is farther from the day of the last booking counts in all.
const DAYS_MAX: usize = 62;
/// Workspaces that are kept one by one; what was not booked for longest is counted together.
const WORKSPACES_MAX: usize = 256;
/// Models without a price that are named.
const MODELS_MAX: usize = 32;
/// The longest name that is kept, in bytes.
const NAME_MAX: usize = 1_024;
/// Stands for the workspaces that are no longer kept one by one; no path is empty.
const OTHERS: &str = "";

/// One request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Booking {
    pub(super) day: Day,
    pub(super) workspace: String,
    pub(super) model: String,
    pub(super) sum: Sum,
}

/// A workspace's sum, and when it was last booked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Account {
    pub(super) sum: Sum,
    /// The number of the booking: days may go back.
    pub(super) turn: u64,
}

/// All sums.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ledger {
    pub(super) total: Sum,
    pub(super) days: BTreeMap<Day, Sum>,
    pub(super) workspaces: BTreeMap<String, Account>,
    /// How often a workspace was booked since the start.
    turns: u64,
    /// Requests without a price, by model.
    pub(super) unpriced: BTreeMap<String, u64>,
    /// The last day on which something that was spent was lost.
    pub(super) damaged: Option<Day>,
}

impl Ledger {
    pub(super) fn book(&mut self, booking: &Booking) {
        self.total += booking.sum;
        self.add_day(booking.day, booking.sum);
        self.add_workspace(&booking.workspace, booking.sum);
        if booking.sum.unpriced_requests > 0 {
            self.add_unpriced(&booking.model, booking.sum.unpriced_requests);
        }
    }

    fn add_day(&mut self, day: Day, sum: Sum) {
        *self.days.entry(day).or_default() += sum;
        // The farthest, whichever side: a clock that was once wrong must not push today out.
        while self.days.len() > DAYS_MAX
            && let Some(farthest) = self.days.keys().copied().max_by_key(|other| other.distance(day))
        {
            self.days.remove(&farthest);
        }
    }

    /// Takes a workspace's sum back from where it was kept, in the order of the bookings.
    pub(super) fn load_workspace(&mut self, name: &str, sum: Sum) {
        self.add_to(name.to_owned(), sum);
    }

    fn add_workspace(&mut self, workspace: &str, sum: Sum) {
        self.add_to(shortened(workspace), sum);
    }

    fn add_to(&mut self, name: String, sum: Sum) {
        self.turns += 1;
        let account = self.workspaces.entry(name).or_default();
        account.sum += sum;
        account.turn = self.turns;
        while self.workspaces.len() > WORKSPACES_MAX {
            let named = self.workspaces.iter().filter(|(name, _)| *name != OTHERS);
            let Some((oldest, _)) = named.min_by_key(|(_, account)| account.turn) else { return };
            let oldest = oldest.clone();
            let account = self.workspaces.remove(&oldest).unwrap_or_default();
            self.workspaces.entry(OTHERS.to_owned()).or_default().sum += account.sum;
        }
    }

    pub(super) fn add_unpriced(&mut self, model: &str, requests: u64) {
        let model = shortened(model);
        if self.unpriced.len() < MODELS_MAX || self.unpriced.contains_key(&model) {
            let count = self.unpriced.entry(model).or_default();
            *count = count.saturating_add(requests);
        }
    }

    pub(super) fn today(&self, day: Day) -> Sum {
        self.days.get(&day).copied().unwrap_or_default()
    }

    pub(super) fn spent(&self, today: Day, problem: Option<String>) -> Spent {
        let mut by_workspace: Vec<_> = self
            .workspaces
            .iter()
            .filter(|(name, _)| *name != OTHERS)
            .map(|(name, account)| (name.clone(), account.sum))
            .collect();
        by_workspace.sort_by_key(|(_, sum)| (std::cmp::Reverse(sum.nano_usd), std::cmp::Reverse(sum.tokens())));
        Spent {
            day: today,
            today: self.today(today),
            total: self.total,
            by_workspace,
            other_workspaces: self.workspaces.get(OTHERS).map(|account| account.sum).unwrap_or_default(),
            unpriced_models: self.unpriced.keys().cloned().collect(),
            damaged: self.damaged,
            problem,
        }
    }
}

fn shortened(name: &str) -> String {
    let end = (0..=name.len().min(NAME_MAX)).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    // The name of the others is nobody's.
    if end == 0 { "unnamed".to_owned() } else { name[..end].to_owned() }
}

/// What was spent, for reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spent {
    /// Today, in UTC.
    pub day: Day,
    /// What was spent today.
    pub today: Sum,
    /// What was spent in all.
    pub total: Sum,
    /// In all by workspace, the dearest first.
    pub by_workspace: Vec<(String, Sum)>,
    /// What was spent in workspaces that are no longer listed one by one.
    pub other_workspaces: Sum,
    /// Models that were asked while their price was not known.
    pub unpriced_models: Vec<String>,
    /// The last day on which figures were lost: what was spent until then is at least what is shown.
    pub damaged: Option<Day>,
    /// What is wrong with keeping the figures at the moment.
    pub problem: Option<String>,
}

impl Spent {
    /// What is to be said besides the sums; empty where they are whole and safe.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        match self.damaged {
            Some(day) if day == self.day => warnings.push(
                "figures were lost today, so that more was spent than is shown and the daily budget may be overdrawn \
                 until midnight UTC"
                    .to_owned(),
            ),
            Some(day) => {
                warnings.push(format!("figures from before {day} were lost, so that the total is a lower bound"))
            }
            None => {}
        }
        warnings.extend(self.problem.clone());
        warnings
    }
}
