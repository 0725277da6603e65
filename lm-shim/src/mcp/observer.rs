//! Tells the daemon in the background of what a session reads and edits.
//!
//! Whoever reports waits for nothing: what is reported is queued, once for each file however often it is
//! reported, and a task that ends with the queue takes it to the daemon, which it starts where none runs.
//! A daemon that is away is tried again after growing pauses.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lm_proto::message::{Observation, ObservationKind};
use tokio::time::{Instant, sleep};

use crate::connector::Connector;

/// As many files wait at most; then the one that has waited longest falls out.
const WAITING_MAX: usize = 1_024;
/// As many are taken to the daemon at a time.
const BATCH: usize = 64;
/// How long taking them there may last.
const DELIVERY_LIMIT: Duration = Duration::from_secs(10);
/// The pause after a failure grows from the first of these to the second.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);

/// The observations of one session on their way to the daemon.
#[derive(Clone, Default)]
pub(super) struct Observer {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    waiting: Waiting,
    /// Whether there is a task that will look again.
    is_worked_on: bool,
}

impl Observer {
    /// Queues one and returns at once.
    pub(super) fn add(&self, observation: Observation, connector: &Arc<Connector>) {
        let mut state = self.lock();
        state.waiting.put(observation);
        if !state.is_worked_on {
            state.is_worked_on = true;
            tokio::spawn(self.clone().work(Arc::clone(connector)));
        }
    }

    async fn work(self, connector: Arc<Connector>) {
        let mut pause = PAUSE_FIRST;
        while let Some(batch) = self.next() {
            let left = connector.observe(batch, Instant::now() + DELIVERY_LIMIT).await;
            if left.is_empty() {
                pause = PAUSE_FIRST;
                continue;
            }
            self.lock().waiting.put_back(left);
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_LONGEST);
        }
    }

    /// What is to be taken to the daemon next; none ends the task.
    fn next(&self) -> Option<Vec<Observation>> {
        let mut state = self.lock();
        let batch = state.waiting.take(BATCH);
        // Under the lock: what comes now starts another task.
        state.is_worked_on = !batch.is_empty();
        state.is_worked_on.then_some(batch)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What waits, in the order in which files were first reported, one entry for a file.
#[derive(Default)]
struct Waiting(VecDeque<Observation>);

impl Waiting {
    fn put(&mut self, observation: Observation) {
        if let Some(earlier) = self.0.iter_mut().find(|earlier| earlier.path == observation.path) {
            let kind = newest(earlier.kind, observation.kind);
            *earlier = Observation { kind, ..observation };
            return;
        }
        if self.0.len() >= WAITING_MAX {
            self.0.pop_front();
        }
        self.0.push_back(observation);
    }

    fn take(&mut self, count: usize) -> Vec<Observation> {
        self.0.drain(..count.min(self.0.len())).collect()
    }

    /// Puts what was taken in front again, unless the same files were reported meanwhile.
    fn put_back(&mut self, taken: Vec<Observation>) {
        for earlier in taken.into_iter().rev() {
            let has_room = self.0.len() < WAITING_MAX;
            match self.0.iter_mut().find(|later| later.path == earlier.path) {
                Some(later) => later.kind = newest(earlier.kind, later.kind),
                None if has_room => self.0.push_front(earlier),
                None => {}
            }
        }
    }
}

/// The newest of two counts, but having been read says nothing new of a file that was edited.
fn newest(earlier: ObservationKind, later: ObservationKind) -> ObservationKind {
    match (earlier, later) {
        (ObservationKind::Edited, ObservationKind::Read) => ObservationKind::Edited,
        _ => later,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ObservationKind::{Edited, Read};

    fn observation(path: &str, kind: ObservationKind) -> Observation {
        Observation { path: path.into(), kind, cwd: String::new(), environment: vec![], origin: "{}".into() }
    }

    fn names(waiting: &Waiting) -> Vec<(&str, ObservationKind)> {
        waiting.0.iter().map(|one| (one.path.as_str(), one.kind)).collect()
    }

    #[test]
    fn a_file_waits_once_and_keeps_its_place() {
        let mut waiting = Waiting::default();
        for (path, kind) in [("a", Read), ("b", Edited), ("a", Edited), ("b", Read)] {
            waiting.put(observation(path, kind));
        }
        assert_eq!(names(&waiting), [("a", Edited), ("b", Edited)]);
    }

    #[test]
    fn what_could_not_be_delivered_comes_first_again() {
        let mut waiting = Waiting::default();
        for path in ["a", "b", "c"] {
            waiting.put(observation(path, Edited));
        }
        let taken = waiting.take(2);
        waiting.put(observation("b", Read));
        waiting.put_back(taken);
        assert_eq!(names(&waiting), [("a", Edited), ("c", Edited), ("b", Edited)]);
    }

    #[test]
    fn the_queue_is_bounded_and_keeps_the_youngest() {
        let mut waiting = Waiting::default();
        for number in 0..=WAITING_MAX {
            waiting.put(observation(&number.to_string(), Read));
        }
        assert_eq!((waiting.0.len(), waiting.0[0].path.as_str()), (WAITING_MAX, "1"));
        waiting.put_back(vec![observation("old", Read)]);
        assert_eq!((waiting.0.len(), waiting.0[0].path.as_str()), (WAITING_MAX, "1"));
    }
}
