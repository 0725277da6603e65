//! The terms of one text, each once and with how often it occurs, in the short form that the index
//! has of them.
//!
//! Pure.

use super::super::tokenize::Terms;

/// Bits of a term's code. With ten million different terms the chance that one that is nowhere seems
/// to be somewhere is one in a hundred thousand; and then a file is read in vain.
pub(super) const CODE_BITS: u32 = 40;

/// The code by which the index knows a term of a text.
pub(super) fn code_of(term: &str) -> u64 {
    hash(term.as_bytes()) >> (64 - CODE_BITS)
}

/// Part of the format: must give the same in every process and on every machine.
fn hash(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = bytes.len() as u64;
    let mut mix = |word: u64| {
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
        hash ^= hash >> 29;
    };
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    mix(rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 32)
}

/// The terms of a text; its memory is used again for the next text.
#[derive(Default)]
pub(super) struct Bag {
    /// Open addressing by code: 1 + the count's position, 0 where free.
    table: Vec<u32>,
    counts: Vec<(u64, u32)>,
}

impl Bag {
    /// Replaces what is in it by the terms of a text; gives how many there are, repetitions counted.
    pub(super) fn fill(&mut self, text: &str) -> u32 {
        self.counts.clear();
        // By the text: a table that a huge one made large would be cleared for every small one after it.
        let size = (text.len() / 8).next_power_of_two().clamp(1 << 8, 1 << 16);
        self.table.clear();
        self.table.resize(size, 0);
        let mut terms = Terms::new(text);
        let mut length = 0;
        while let Some(term) = terms.advance() {
            self.add(code_of(term));
            length += 1;
        }
        length
    }

    /// The code of each term and how often it occurs, in no order.
    pub(super) fn counts(&self) -> &[(u64, u32)] {
        &self.counts
    }

    fn add(&mut self, code: u64) {
        if self.counts.len() * 2 >= self.table.len() {
            self.grow();
        }
        let slot = self.slot(code);
        match self.table[slot] {
            0 => {
                self.counts.push((code, 1));
                self.table[slot] = self.counts.len() as u32;
            }
            known => self.counts[known as usize - 1].1 += 1,
        }
    }

    /// Where a code is, or would go.
    fn slot(&self, code: u64) -> usize {
        let mask = self.table.len() - 1;
        let mut slot = code as usize & mask;
        while self.table[slot] != 0 && self.counts[self.table[slot] as usize - 1].0 != code {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        let size = self.table.len() * 2;
        self.table.clear();
        self.table.resize(size, 0);
        for position in 0..self.counts.len() {
            let slot = self.slot(self.counts[position].0);
            self.table[slot] = position as u32 + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A change of these makes every index on disk useless: raise the format with it.
    #[test]
    fn codes_are_the_same_everywhere() {
        let codes = ["a", "parse", "parse_header", "größe", "configuration"].map(code_of);
        insta::assert_snapshot!(codes.map(|code| format!("{code:010x}")).join(" "));
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_terms(text in "([a-z_]{1,12}|\\PC{0,9}| ){0,400}") {
            let terms = crate::retrieval::tokenize::terms(&text);
            let mut expected: BTreeMap<u64, u32> = BTreeMap::new();
            for term in &terms {
                *expected.entry(code_of(term)).or_default() += 1;
            }
            let mut bag = Bag::default();
            bag.fill("what was in it before");
            prop_assert_eq!(bag.fill(&text) as usize, terms.len());
            let found: BTreeMap<u64, u32> = bag.counts().iter().copied().collect();
            prop_assert_eq!(found, expected);
        }
    }
}
