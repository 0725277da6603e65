//! Keeps questions that arrive together from paying for the same prefix each: a provider's cache entry
//! can be read only when the answer to the request that writes it has begun, so the others wait for that.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::OwnedMutexGuard;

/// Providers keep what was sent at least this long.
const LIFETIME: Duration = Duration::from_secs(300);
/// Longer than this none waits for another.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The gate before the prefix of one conversation.
#[derive(Debug, Default)]
pub struct PrefixGate {
    first: Arc<tokio::sync::Mutex<()>>,
    written: Mutex<Option<Instant>>,
}

/// Held by the request that writes the prefix, until its answer begins.
#[derive(Debug)]
pub struct First(#[expect(dead_code, reason = "held, not used")] OwnedMutexGuard<()>);

impl PrefixGate {
    /// Waits while another request writes the prefix, at most until `due`. `Some` for the request that
    /// has to write it.
    pub async fn enter(&self, due: Instant) -> Option<First> {
        if self.is_warm() {
            return None;
        }
        let until = due.min(Instant::now() + WAIT_MAX);
        let first = tokio::time::timeout_at(until.into(), Arc::clone(&self.first).lock_owned()).await.ok()?;
        (!self.is_warm()).then_some(First(first))
    }

    /// The answer to a request has begun: others can read what it wrote.
    pub fn began(&self) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_warm(&self) -> bool {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.is_some_and(|at| at.elapsed() < LIFETIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn the_others_wait_for_the_first_answer_to_begin() {
        let gate = Arc::new(PrefixGate::default());
        let due = Instant::now() + SOON;
        let first = gate.enter(due).await.expect("nothing was written yet");
        let waiting = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.enter(due).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        gate.began();
        drop(first);
        assert!(!waiting.await.unwrap(), "it reads what the first wrote");
        assert!(gate.enter(due).await.is_none());
    }

    #[tokio::test]
    async fn where_the_first_fails_the_next_one_writes() {
        let gate = PrefixGate::default();
        let due = Instant::now() + SOON;
        drop(gate.enter(due).await.unwrap());
        assert!(gate.enter(due).await.is_some());
    }

    #[tokio::test]
    async fn nobody_waits_past_the_deadline() {
        let gate = PrefixGate::default();
        let _first = gate.enter(Instant::now() + SOON).await.unwrap();
        assert!(gate.enter(Instant::now() + Duration::from_millis(10)).await.is_none());
    }
}
