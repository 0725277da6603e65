//! Lets one at a time open or forget a workspace: two that opened the same memory would keep each other
//! from writing it.

use std::{
    collections::HashSet,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// Which workspaces are being opened or forgotten, by key; different ones never wait for each other.
#[derive(Debug, Default)]
pub(super) struct Gate {
    busy: Mutex<HashSet<String>>,
    freed: Condvar,
}

/// Held while at work.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    gate: &'a Gate,
    key: String,
}

impl Gate {
    /// Waits until nobody else is at work on the workspace.
    pub(super) fn enter(&self, key: &str) -> Pass<'_> {
        let mut busy = self.lock();
        while !busy.insert(key.to_owned()) {
            busy = self.freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        Pass { gate: self, key: key.to_owned() }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.gate.lock().remove(&self.key);
        self.gate.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread, time::Duration};

    #[test]
    fn one_is_alone_and_others_do_not_wait() {
        let gate = Gate::default();
        let first = gate.enter("a");
        thread::scope(|scope| {
            let (sender, entered) = mpsc::channel();
            let gate = &gate;
            let second = scope.spawn(move || {
                let pass = gate.enter("a");
                sender.send(()).unwrap();
                drop(pass);
            });
            assert!(entered.recv_timeout(Duration::from_millis(20)).is_err(), "one is at work still");
            drop(gate.enter("b"));
            drop(first);
            entered.recv_timeout(Duration::from_secs(10)).unwrap();
            second.join().unwrap();
        });
        assert!(gate.lock().is_empty());
    }
}
