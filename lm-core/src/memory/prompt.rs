//! Where a provider that caches on request is asked to: the one place that spends breakpoints.
//!
//! At most four are allowed, an entry is found up to 20 blocks before one, and an entry exists only
//! where one stood. So they stand at the end of the system text and of the opening, which all
//! questions of an epoch share; where the previous request ended, which is exactly where its entry
//! is, however many blocks a round of parallel tools has added since; and at the end, to be read by
//! the next request.

use super::log::{Fork, Position};

/// The most breakpoints a request may have.
pub const BREAKPOINTS_MAX: usize = 4;

/// The breakpoints of one request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Breakpoints {
    /// Whether one stands at the end of the system text.
    pub system: bool,
    /// Where the others stand in the turns, in order, each place once.
    pub turns: Vec<Position>,
}

impl Breakpoints {
    /// Those of a fork's next request.
    #[must_use]
    pub fn of(fork: &Fork) -> Self {
        let mut turns: Vec<Position> =
            [fork.end_of_opening(), fork.end_of_previous_request(), fork.end()].into_iter().flatten().collect();
        turns.sort_unstable();
        turns.dedup();
        turns.truncate(BREAKPOINTS_MAX - 1);
        Self { system: true, turns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        conversation::Message,
        memory::log::{Epoch, Log, Opening, Provenance, Retain},
    };

    fn at(message: usize, block: usize) -> Position {
        Position { message, block }
    }

    #[test]
    fn an_empty_memory_marks_the_question() {
        let mut fork = Log::default().fork();
        fork.push(Message::user("q"));
        assert_eq!(Breakpoints::of(&fork), Breakpoints { system: true, turns: vec![at(0, 0)] });
    }

    #[test]
    fn a_later_question_marks_where_the_last_request_ended() {
        let messages = vec![Message::user("known"), Message::assistant("noted")];
        let opening = Opening { messages, ..Opening::default() };
        let mut log = Log::new(Epoch(1), opening);
        let mut fork = log.fork();
        fork.push(Message::user("q1"));
        assert_eq!(Breakpoints::of(&fork).turns, [at(1, 0), at(2, 0)]);
        fork.push(Message::assistant("a1"));
        log.commit(fork, Retain::All, Provenance::default()).unwrap();
        let mut fork = log.fork();
        fork.push(Message::user("q2"));
        assert_eq!(Breakpoints::of(&fork).turns, [at(1, 0), at(2, 0), at(4, 0)]);
    }
}
