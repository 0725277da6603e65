//! Keeps a workspace from being opened while it is being forgotten.

use std::{
    collections::HashMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// Who is at work on which workspace, by key. Any number may open one, or one alone forgets it;
/// different workspaces never wait for each other.
#[derive(Debug, Default)]
pub(super) struct Gate {
    busy: Mutex<HashMap<String, Busy>>,
    freed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Busy {
    Opening(usize),
    Forgetting,
}

/// Held while at work.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    gate: &'a Gate,
    key: String,
}

impl Gate {
    /// Waits until nobody forgets the workspace.
    pub(super) fn open(&self, key: &str) -> Pass<'_> {
        self.enter(key, |busy| match busy {
            None => Some(Busy::Opening(1)),
            Some(Busy::Opening(count)) => Some(Busy::Opening(count + 1)),
            Some(Busy::Forgetting) => None,
        })
    }

    /// Waits until nobody else is at work on the workspace.
    pub(super) fn alone(&self, key: &str) -> Pass<'_> {
        self.enter(key, |busy| busy.is_none().then_some(Busy::Forgetting))
    }

    fn enter(&self, key: &str, next: impl Fn(Option<Busy>) -> Option<Busy>) -> Pass<'_> {
        let mut busy = self.lock();
        loop {
            if let Some(next) = next(busy.get(key).copied()) {
                busy.insert(key.to_owned(), next);
                return Pass { gate: self, key: key.to_owned() };
            }
            busy = self.freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Busy>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut busy = self.gate.lock();
        match busy.get_mut(&self.key) {
            Some(Busy::Opening(count)) if *count > 1 => *count -= 1,
            _ => drop(busy.remove(&self.key)),
        }
        drop(busy);
        self.gate.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread, time::Duration};

    #[test]
    fn one_is_forgotten_alone_and_others_do_not_wait() {
        let gate = Gate::default();
        let (first, second) = (gate.open("a"), gate.open("a"));
        thread::scope(|scope| {
            let (sender, entered) = mpsc::channel();
            let alone = scope.spawn({
                let gate = &gate;
                move || {
                    let pass = gate.alone("a");
                    sender.send(()).unwrap();
                    drop(pass);
                }
            });
            drop(first);
            assert!(entered.recv_timeout(Duration::from_millis(20)).is_err(), "one is still being opened");
            drop(gate.alone("b"));
            drop(second);
            entered.recv_timeout(Duration::from_secs(10)).unwrap();
            alone.join().unwrap();
        });
        drop(gate.open("a"));
        assert!(gate.lock().is_empty());
    }
}
