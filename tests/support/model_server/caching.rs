//! What a provider reads from and writes to its prompt cache, as documented by the vendors; pure.
//!
//! With marks (Messages API): the prompt is tools, then system, then messages, in blocks. A mark
//! writes an entry for the whole prefix that ends with its block. Reading starts from each mark:
//! the block itself and the 20 before it are looked up, and the longest prefix found counts. A prefix
//! below the model's minimum is never cached. An entry lives five minutes or an hour from its last
//! use, and can be read only once the answer that wrote it has begun. What is read and already stands
//! in the cache costs no write; a mark inside what was read renews its entry for free.
//!
//! Without marks (chat completions): the longest common prefix with an earlier prompt, from 1024
//! tokens on and in steps of 128, for five minutes after its last use.
//!
//! Tokens are a quarter of the bytes of a block. Beside what was read, `ideal_read` says what could
//! have been, had marks stood at the right places: the longest prefix of whole blocks that some
//! earlier prompt, still within its lifetime, began with.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::seen::{Format, Mark, SeenRequest};

/// How many blocks before a mark are looked up.
const LOOK_BACK: usize = 20;
/// The shortest prompt that is cached without marks.
const AUTOMATIC_MINIMUM: u64 = 1024;
/// The steps in which it is.
const AUTOMATIC_STEP: u64 = 128;

/// The prompt tokens of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// Neither read nor written.
    pub input: u64,
    /// Read.
    pub read: u64,
    /// Written for five minutes.
    pub write_5m: u64,
    /// Written for one hour.
    pub write_1h: u64,
    /// What could have been read with ideal marks.
    pub ideal_read: u64,
}

impl Tokens {
    /// All of them.
    #[must_use]
    pub fn prompt(&self) -> u64 {
        self.input + self.read + self.write_5m + self.write_1h
    }
}

/// A block of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheBlock {
    /// Its bytes.
    pub bytes: String,
    /// Its size in tokens.
    pub tokens: u64,
    /// Its mark.
    pub mark: Option<Mark>,
}

type PrefixHash = [u8; 32];

#[derive(Debug, Clone, Copy)]
struct Entry {
    expires: u64,
    mark: Mark,
}

/// A provider's cache.
#[derive(Debug, Default)]
pub struct Cache {
    entries: BTreeMap<PrefixHash, Entry>,
    /// Every prefix of every prompt, with its expiry: what ideal marks could have made readable.
    prefixes: BTreeMap<PrefixHash, u64>,
    /// Whole prompts, for the cache without marks.
    prompts: Vec<(String, String, u64)>,
}

/// What a request reads, and what it leaves behind once its answer begins.
#[derive(Debug)]
pub struct Planned {
    /// The tokens.
    pub tokens: Tokens,
    write: Vec<(PrefixHash, Mark)>,
    prefixes: Vec<PrefixHash>,
    longest_mark: Mark,
    prompt: Option<(String, String)>,
}

fn lifetime(mark: Mark) -> u64 {
    match mark {
        Mark::FiveMinutes => 300,
        Mark::OneHour => 3600,
    }
}

/// The hash of each prefix, models apart.
fn prefix_hashes(model: &str, blocks: &[CacheBlock]) -> Vec<PrefixHash> {
    let mut hash = Sha256::new();
    hash.update(model);
    let mut hashes = Vec::with_capacity(blocks.len());
    for block in blocks {
        hash.update((block.bytes.len() as u64).to_le_bytes());
        hash.update(&block.bytes);
        hashes.push(hash.clone().finalize().into());
    }
    hashes
}

impl Cache {
    /// What a request with marks reads at second `now`.
    #[must_use]
    pub fn plan(&self, model: &str, minimum: u64, blocks: &[CacheBlock], now: u64) -> Planned {
        let hashes = prefix_hashes(model, blocks);
        let sums: Vec<u64> = blocks
            .iter()
            .scan(0, |sum, block| {
                *sum += block.tokens;
                Some(*sum)
            })
            .collect();
        let total = sums.last().copied().unwrap_or(0);
        let marks: Vec<(usize, Mark)> =
            blocks.iter().enumerate().filter_map(|(at, block)| Some((at, block.mark?))).collect();
        let found = |at: usize| self.entries.get(&hashes[at]).is_some_and(|entry| entry.expires > now);
        let hit =
            marks.iter().filter_map(|(at, _)| (at.saturating_sub(LOOK_BACK)..=*at).rev().find(|at| found(*at))).max();
        let read = hit.map_or(0, |hit| sums[hit]);

        let writing: Vec<(usize, Mark)> = marks.iter().copied().filter(|(at, _)| sums[*at] >= minimum).collect();
        let end = writing.iter().map(|(at, _)| sums[*at]).max().unwrap_or(0).max(read);
        let hour = writing
            .iter()
            .filter(|(_, mark)| *mark == Mark::OneHour)
            .map(|(at, _)| sums[*at])
            .max()
            .unwrap_or(0)
            .max(read);
        let mut write: Vec<(PrefixHash, Mark)> = writing.iter().map(|(at, mark)| (hashes[*at], *mark)).collect();
        if let Some(hit) = hit {
            let mark = self.entries[&hashes[hit]].mark;
            write.push((hashes[hit], mark));
        }
        let ideal = hashes
            .iter()
            .zip(&sums)
            .rev()
            .find(|(hash, sum)| **sum >= minimum && self.prefixes.get(*hash).is_some_and(|expires| *expires > now));
        Planned {
            tokens: Tokens {
                input: total - end,
                read,
                write_1h: hour - read,
                write_5m: end - hour,
                ideal_read: ideal.map_or(0, |(_, sum)| *sum).max(read),
            },
            write,
            prefixes: hashes,
            longest_mark: marks.iter().map(|(_, mark)| *mark).max().unwrap_or(Mark::FiveMinutes),
            prompt: None,
        }
    }

    /// What a request without marks reads at second `now`.
    #[must_use]
    pub fn plan_automatic(&self, model: &str, prompt: &str, now: u64) -> Planned {
        let common = |other: &str| other.bytes().zip(prompt.bytes()).take_while(|(a, b)| a == b).count() as u64;
        let alive = self.prompts.iter().filter(|(of, _, expires)| of == model && *expires > now);
        let longest = alive.map(|(_, other, _)| common(other) / 4).max().unwrap_or(0);
        let read = if longest < AUTOMATIC_MINIMUM { 0 } else { longest / AUTOMATIC_STEP * AUTOMATIC_STEP };
        let total = (prompt.len() as u64).div_ceil(4);
        Planned {
            tokens: Tokens { input: total - read, read, ideal_read: read, ..Tokens::default() },
            write: Vec::new(),
            prefixes: Vec::new(),
            longest_mark: Mark::FiveMinutes,
            prompt: Some((model.to_owned(), prompt.to_owned())),
        }
    }

    /// The answer has begun at second `now`: what was written can be read from here on.
    pub fn begin(&mut self, planned: Planned, now: u64) {
        for (hash, mark) in planned.write {
            let entry = self.entries.entry(hash).or_insert(Entry { expires: 0, mark });
            // A use renews an entry for its own lifetime.
            entry.mark = if entry.expires > now { entry.mark.max(mark) } else { mark };
            entry.expires = now + lifetime(entry.mark);
        }
        for hash in planned.prefixes {
            let expires = self.prefixes.entry(hash).or_default();
            *expires = (*expires).max(now + lifetime(planned.longest_mark));
        }
        if let Some((model, prompt)) = planned.prompt {
            self.prompts.push((model, prompt, now + lifetime(Mark::FiveMinutes)));
        }
    }

    /// What a received request reads.
    pub(super) fn plan_request(&self, request: &SeenRequest, minimum: u64, now: u64) -> Planned {
        match request.format {
            Format::Messages => {
                let blocks: Vec<CacheBlock> = request
                    .pieces()
                    .map(|piece| CacheBlock { bytes: piece.raw.clone(), tokens: piece.tokens(), mark: piece.mark })
                    .collect();
                self.plan(&request.model, minimum, &blocks, now)
            }
            Format::ChatCompletions => {
                let prompt: String = request.pieces().map(|piece| piece.raw.as_str()).collect();
                self.plan_automatic(&request.model, &prompt, now)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIVE: Option<Mark> = Some(Mark::FiveMinutes);
    const HOUR: Option<Mark> = Some(Mark::OneHour);

    /// Blocks of `tokens` each, with the given marks.
    fn blocks(sizes: &[(u64, Option<Mark>)]) -> Vec<CacheBlock> {
        let block = |(number, (tokens, mark)): (usize, &(u64, Option<Mark>))| CacheBlock {
            bytes: number.to_string(),
            tokens: *tokens,
            mark: *mark,
        };
        sizes.iter().enumerate().map(block).collect()
    }

    fn send(cache: &mut Cache, minimum: u64, blocks: &[CacheBlock], now: u64) -> Tokens {
        let planned = cache.plan("m", minimum, blocks, now);
        let tokens = planned.tokens;
        cache.begin(planned, now);
        tokens
    }

    fn tokens(input: u64, read: u64, write_5m: u64, write_1h: u64, ideal_read: u64) -> Tokens {
        Tokens { input, read, write_5m, write_1h, ideal_read }
    }

    #[test]
    fn the_second_request_reads_what_the_first_wrote() {
        let mut cache = Cache::default();
        let first = blocks(&[(1000, FIVE), (500, None)]);
        assert_eq!(send(&mut cache, 512, &first, 0), tokens(500, 0, 1000, 0, 0));
        assert_eq!(send(&mut cache, 512, &first, 299), tokens(500, 1000, 0, 0, 1500));
        // The use at 299 renewed it; nobody renewed the part that no mark covered.
        assert_eq!(send(&mut cache, 512, &first, 598), tokens(500, 1000, 0, 0, 1500));
        assert_eq!(send(&mut cache, 512, &first, 898), tokens(500, 0, 1000, 0, 0));
    }

    #[test]
    fn a_rolling_mark_writes_only_what_is_new() {
        let mut cache = Cache::default();
        send(&mut cache, 512, &blocks(&[(1000, FIVE), (300, FIVE)]), 0);
        let longer = blocks(&[(1000, FIVE), (300, None), (200, FIVE), (50, None)]);
        assert_eq!(send(&mut cache, 512, &longer, 10), tokens(50, 1300, 200, 0, 1300));
    }

    #[test]
    fn an_entry_further_back_than_twenty_blocks_is_missed() {
        for (appended, read) in [(20, 1000), (21, 0)] {
            let mut cache = Cache::default();
            send(&mut cache, 512, &blocks(&[(1000, FIVE)]), 0);
            let mut sizes = vec![(1000, None)];
            sizes.extend(vec![(10, None); appended - 1]);
            sizes.push((10, FIVE));
            let sent = send(&mut cache, 512, &blocks(&sizes), 1);
            assert_eq!((sent.read, sent.ideal_read), (read, 1000), "{appended} blocks later");
        }
    }

    #[test]
    fn below_the_minimum_nothing_is_cached() {
        let mut cache = Cache::default();
        let short = blocks(&[(4095, FIVE)]);
        assert_eq!(send(&mut cache, 4096, &short, 0), tokens(4095, 0, 0, 0, 0));
        assert_eq!(send(&mut cache, 4096, &short, 1), tokens(4095, 0, 0, 0, 0));
        assert_eq!(send(&mut cache, 4095, &short, 2), tokens(0, 0, 4095, 0, 4095));
    }

    #[test]
    fn both_lifetimes_in_one_request() {
        let mut cache = Cache::default();
        let mixed = blocks(&[(1000, HOUR), (400, FIVE), (30, None)]);
        assert_eq!(send(&mut cache, 512, &mixed, 0), tokens(30, 0, 400, 1000, 0));
        // The short one is gone, the long one is still there and renewed.
        assert_eq!(send(&mut cache, 512, &mixed, 301), tokens(30, 1000, 400, 0, 1430));
        assert_eq!(send(&mut cache, 512, &mixed, 3900), tokens(30, 1000, 400, 0, 1430));
        assert_eq!(send(&mut cache, 512, &mixed, 7501), tokens(30, 0, 400, 1000, 0));
    }

    #[test]
    fn nothing_can_be_read_before_the_answer_that_writes_it_begins() {
        let mut cache = Cache::default();
        let prompt = blocks(&[(1000, FIVE)]);
        let first = cache.plan("m", 512, &prompt, 0);
        assert_eq!(cache.plan("m", 512, &prompt, 0).tokens.read, 0);
        cache.begin(first, 1);
        assert_eq!(cache.plan("m", 512, &prompt, 1).tokens.read, 1000);
        assert_eq!(cache.plan("other", 512, &prompt, 1).tokens.read, 0);
    }

    #[test]
    fn a_change_early_in_the_prompt_loses_all_that_follows() {
        let mut cache = Cache::default();
        let mut prompt = blocks(&[(600, FIVE), (600, FIVE)]);
        send(&mut cache, 512, &prompt, 0);
        prompt[1].bytes = "changed".to_owned();
        assert_eq!(send(&mut cache, 512, &prompt, 1), tokens(0, 600, 600, 0, 600));
        prompt[0].bytes = "changed".to_owned();
        assert_eq!(send(&mut cache, 512, &prompt, 2), tokens(0, 0, 1200, 0, 0));
    }

    #[test]
    fn automatic_caching_reads_in_steps_from_a_minimum_on() {
        let mut cache = Cache::default();
        let read = |cache: &mut Cache, prompt: &str, now| {
            let planned = cache.plan_automatic("m", prompt, now);
            let tokens = planned.tokens;
            cache.begin(planned, now);
            (tokens.input, tokens.read)
        };
        let base = "x".repeat(4 * 1200);
        assert_eq!(read(&mut cache, &base, 0), (1200, 0));
        // 1200 common tokens are 9 steps of 128.
        assert_eq!(read(&mut cache, &format!("{base}{}", "y".repeat(400)), 1), (1300 - 1152, 1152));
        assert_eq!(read(&mut cache, &"x".repeat(4 * 1023), 2), (1023, 0));
        assert_eq!(read(&mut cache, &base, 400), (1200, 0));
    }
}
