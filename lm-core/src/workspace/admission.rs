//! How many questions about one workspace are answered at once, and how many may wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::settings::{Concurrency, Settings};

/// Lets questions in, first come first served.
#[derive(Default, Debug)]
pub(super) struct Admission {
    counts: Mutex<Counts>,
    freed: Notify,
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    running: u32,
    waiting: u32,
}

/// What one question accepts of others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    at_once: u32,
    waiting: u32,
}

impl Limits {
    pub(super) fn new(settings: &Settings) -> Self {
        let at_once = match settings.concurrency {
            Concurrency::Parallel => settings.max_parallel_queries,
            Concurrency::Serial => 1,
        };
        Self { at_once, waiting: settings.max_queue_size }
    }
}

/// As many wait as may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueFull {
    pub(super) waiting: u32,
}

/// Held while a question is answered.
#[derive(Debug)]
pub(super) struct Permit(Arc<Admission>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.freed.notify_one();
    }
}

struct Waiting<'a>(&'a Admission);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

impl Admission {
    /// Waits for its turn; dropping the future gives the place in the queue up.
    pub(super) async fn enter(self: &Arc<Self>, limits: Limits) -> Result<Permit, QueueFull> {
        {
            let mut counts = self.lock();
            if counts.running < limits.at_once && counts.waiting == 0 {
                counts.running += 1;
                return Ok(Permit(Arc::clone(self)));
            }
            if counts.waiting >= limits.waiting {
                return Err(QueueFull { waiting: counts.waiting });
            }
            counts.waiting += 1;
        }
        let place = Waiting(self);
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // Registered before looking, so that nothing freed in between is missed.
            freed.as_mut().enable();
            if self.take(limits) {
                drop(place);
                // Where there is room for more, the next in the queue finds out.
                self.freed.notify_one();
                return Ok(Permit(Arc::clone(self)));
            }
            freed.await;
        }
    }

    fn take(&self, limits: Limits) -> bool {
        let mut counts = self.lock();
        let free = counts.running < limits.at_once;
        counts.running += u32::from(free);
        free
    }

    /// Questions that are being answered or wait for it.
    pub(super) fn busy(&self) -> (u32, u32) {
        let counts = self.lock();
        (counts.running, counts.waiting)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        time::Duration,
    };

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn no_more_than_the_limit_run_and_all_get_their_turn() {
        let admission = Arc::new(Admission::default());
        let limits = Limits { at_once: 3, waiting: 100 };
        let peak = Arc::new(AtomicU32::new(0));
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (admission, peak) = (Arc::clone(&admission), Arc::clone(&peak));
                tokio::spawn(async move {
                    let _permit = admission.enter(limits).await.unwrap();
                    peak.fetch_max(admission.busy().0, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                })
            })
            .collect();
        for task in tasks {
            tokio::time::timeout(LONG, task).await.unwrap().unwrap();
        }
        assert_eq!(peak.load(Ordering::Relaxed), 3);
        assert_eq!(admission.busy(), (0, 0));
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_place_given_up_is_free_again() {
        let admission = Arc::new(Admission::default());
        let limits = Limits { at_once: 1, waiting: 1 };
        let running = admission.enter(limits).await.unwrap();
        let given_up = tokio::time::timeout(SHORT, admission.enter(limits)).await;
        assert!(given_up.is_err());
        assert_eq!(admission.busy(), (1, 0));

        let waiter = Arc::clone(&admission);
        let waiter = tokio::spawn(async move { waiter.enter(limits).await.map(drop) });
        while admission.busy().1 == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(admission.enter(limits).await.unwrap_err(), QueueFull { waiting: 1 });
        drop(running);
        assert_eq!(tokio::time::timeout(LONG, waiter).await.unwrap().unwrap(), Ok(()));
    }
}
