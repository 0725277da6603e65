//! When a conversation begins anew, and what of it stays.
//!
//! Deep and rare: past the threshold everything leaves but the fixed part, the knowledge block and the
//! newest answers, down to the floor. Tool rounds go first, then the oldest answers; what is known of files
//! is no part of a prompt here, so there is nothing of it to shed. The choice is made once per question,
//! never twice, and where nothing can leave that is said instead of trying for ever. Not allowed here:
//! asking a model, reading a clock.

/// Of the threshold, past which a conversation whose cache entry is gone begins anew: all of it would be
/// written to the cache again.
const COLD_SHARE: f64 = 0.8;
/// Less than this is not worth a request that summarises it, in tokens; answers are archived anyway.
pub const WORTH_TOKENS: u64 = 1_000;
/// Of a floor, at most this goes to the knowledge block.
pub const KNOWLEDGE_SHARE: f64 = 0.5;
/// Of what a prompt may fill, this is kept for a question and what it looks up.
const QUESTION_SHARE: f64 = 0.25;

/// How large the parts of a conversation are, in tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// What a prompt may fill.
    pub window: u64,
    /// Tools, system text and directory tree.
    pub fixed: u64,
    /// What the conversation began with: knowledge and documents.
    pub opening: u64,
    /// Everything said since.
    pub said: u64,
    /// Questions and answers alone, without what was looked up.
    pub answers: u64,
}

impl Sizes {
    /// Tokens of the next prompt before its question.
    #[must_use]
    pub fn prompt(&self) -> u64 {
        self.fixed + self.opening + self.said
    }
}

/// When and how far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Policy {
    /// The share of the window past which a conversation begins anew.
    pub threshold: f64,
    /// The share of the window that is carried over.
    pub floor: f64,
    /// The shortest time between two summaries, in seconds.
    pub cooldown_s: u64,
}

/// How things stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moment {
    /// Seconds since a summary was last tried; `None` for never.
    pub since_summary_s: Option<u64>,
    /// Whether the provider's cache entry is known to be gone.
    pub is_cold: bool,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Go on as it is.
    Continue,
    /// Summarise what leaves, then begin anew.
    Summarise,
    /// Begin anew at once, with no request for it.
    Shed,
    /// Go on, since nothing can leave: the fixed part and what was carried over fill the window.
    Stuck,
}

/// Decides.
#[must_use]
pub fn step(sizes: &Sizes, policy: &Policy, moment: &Moment) -> Step {
    let limit = sizes.window as f64 * policy.threshold;
    let is_full = sizes.prompt() as f64 > limit;
    let is_due = is_full || (moment.is_cold && sizes.prompt() as f64 > limit * COLD_SHARE);
    if !is_due {
        return Step::Continue;
    }
    // What a new epoch would not have.
    let leaves = sizes.said.saturating_sub(sizes.answers.min(floor_tokens(sizes.window, policy.floor)));
    if leaves == 0 {
        return if is_full { Step::Stuck } else { Step::Continue };
    }
    let is_cooling = moment.since_summary_s.is_some_and(|seconds| seconds < policy.cooldown_s);
    match (is_full, leaves >= WORTH_TOKENS && !is_cooling) {
        (_, true) => Step::Summarise,
        (true, false) => Step::Shed,
        (false, false) => Step::Continue,
    }
}

/// Tokens that are carried over.
#[must_use]
pub fn floor_tokens(window: u64, floor: f64) -> u64 {
    (window as f64 * floor) as u64
}

/// How a new epoch divides what it carries over, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// For the knowledge block.
    pub knowledge: usize,
    /// For answers, as long as knowledge takes all of its part.
    pub answers: usize,
}

/// Divides `bytes`.
#[must_use]
pub fn carried(bytes: usize) -> Carried {
    let knowledge = (bytes as f64 * KNOWLEDGE_SHARE) as usize;
    Carried { knowledge, answers: bytes - knowledge }
}

/// Tokens that a directory tree may take where `fixed` is everything else that always stands in a prompt:
/// its own share, less where that leaves no room for what is carried over and a question.
#[must_use]
pub fn tree_tokens(window: u64, share: f64, fixed: u64, policy: &Policy) -> u64 {
    let wanted = (window as f64 * share) as u64;
    let free = (window as f64 * (policy.threshold - QUESTION_SHARE)) as u64;
    let rest = free.saturating_sub(fixed).saturating_sub(floor_tokens(window, policy.floor));
    wanted.min(rest)
}

/// Why a window is too small, if what always stands in a prompt fills it by itself.
#[must_use]
pub fn misfit(sizes: &Sizes, policy: &Policy) -> Option<String> {
    let always = sizes.fixed + sizes.opening;
    let limit = (sizes.window as f64 * policy.threshold) as u64;
    (always > limit).then(|| {
        format!(
            "tools, system text, notes and documents take {always} tokens, and the window has room for {limit}: little \
             can be looked up for a question; raise max_context_tokens, or preload less"
        )
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLICY: Policy = Policy { threshold: 0.85, floor: 0.15, cooldown_s: 60 };

    fn sizes(said: u64, answers: u64) -> Sizes {
        Sizes { window: 10_000, fixed: 2_000, opening: 500, said, answers }
    }

    fn at(since_summary_s: Option<u64>, is_cold: bool) -> Moment {
        Moment { since_summary_s, is_cold }
    }

    #[test]
    fn a_full_window_is_summarised_unless_one_was_just_tried() {
        assert_eq!(step(&sizes(5_000, 500), &POLICY, &at(None, false)), Step::Continue);
        assert_eq!(step(&sizes(6_001, 500), &POLICY, &at(None, false)), Step::Summarise);
        assert_eq!(step(&sizes(6_001, 500), &POLICY, &at(Some(59), false)), Step::Shed);
        assert_eq!(step(&sizes(6_001, 500), &POLICY, &at(Some(60), false)), Step::Summarise);
    }

    #[test]
    fn a_cold_cache_is_a_better_moment() {
        assert_eq!(step(&sizes(4_400, 500), &POLICY, &at(None, true)), Step::Summarise);
        assert_eq!(step(&sizes(4_400, 500), &POLICY, &at(Some(5), true)), Step::Continue);
        assert_eq!(step(&sizes(4_200, 500), &POLICY, &at(None, true)), Step::Continue);
    }

    #[test]
    fn what_cannot_leave_is_not_tried_for() {
        let full = Sizes { fixed: 9_000, ..sizes(0, 0) };
        assert_eq!(step(&full, &POLICY, &at(None, false)), Step::Stuck);
        assert_eq!(step(&full, &POLICY, &at(None, true)), Step::Stuck);
        let small = Sizes { fixed: 9_000, ..sizes(600, 100) };
        assert_eq!(step(&small, &POLICY, &at(None, false)), Step::Shed);
        assert!(misfit(&full, &POLICY).unwrap().contains("9500 tokens"));
        assert_eq!(misfit(&sizes(6_000, 0), &POLICY), None);
    }

    #[test]
    fn the_tree_shrinks_before_anything_else_does() {
        assert_eq!(tree_tokens(100_000, 0.10, 3_000, &POLICY), 10_000);
        assert_eq!(tree_tokens(8_000, 0.10, 3_200, &POLICY), 400);
        assert_eq!(tree_tokens(8_000, 0.10, 6_000, &POLICY), 0);
    }

    proptest! {
        /// After a compaction none is due again, unless it is said that nothing can leave.
        #[test]
        fn one_compaction_is_enough_or_it_is_said(
            window in 4_000_u64..1_000_000,
            fixed in 0_u64..500_000,
            opening in 0_u64..100_000,
            said in 0_u64..2_000_000,
            answers_share in 0.0_f64..1.0,
            threshold in 0.10_f64..0.99,
            floor in 0.02_f64..0.90,
            since in prop::option::of(0_u64..200),
            is_cold: bool,
        ) {
            let answers = (said as f64 * answers_share) as u64;
            let before = Sizes { window, fixed, opening, said, answers };
            let policy = Policy { threshold, floor, cooldown_s: 60 };
            let step_before = step(&before, &policy, &Moment { since_summary_s: since, is_cold });
            if matches!(step_before, Step::Summarise | Step::Shed) {
                let kept = answers.min(floor_tokens(window, floor));
                let after = Sizes { said: kept, answers: kept, ..before };
                prop_assert!(after.prompt() < before.prompt(), "something left");
                let again = step(&after, &policy, &Moment { since_summary_s: Some(0), is_cold });
                prop_assert!(matches!(again, Step::Continue | Step::Stuck), "{again:?}");
            }
            if step_before == Step::Summarise {
                prop_assert!(since.is_none_or(|seconds| seconds >= 60));
            }
        }

        #[test]
        fn what_is_carried_is_divided_without_remainder(bytes in 0_usize..10_000_000) {
            let carried = carried(bytes);
            prop_assert_eq!(carried.knowledge + carried.answers, bytes);
        }
    }
}
