//! The texts of files that were shown to a model, to tell it later what changed in them.
//!
//! Kept in memory alone and within bounds; a text that is no longer kept costs a longer notice, never
//! a wrong one.

use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

/// As many bytes are kept of one workspace.
const BYTES_MAX: usize = 16 << 20;
/// A longer text is not kept, in bytes.
const TEXT_MAX: usize = 256 << 10;
/// What an entry takes besides its text, in bytes.
const ENTRY: usize = 256;

/// Texts by the SHA-256 of the bytes they were read from.
#[derive(Debug)]
pub(super) struct Texts(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    by_sha256: LruCache<Arc<str>, Arc<str>>,
    bytes: usize,
    bytes_max: usize,
}

impl Default for Texts {
    fn default() -> Self {
        Self::with_room(BYTES_MAX)
    }
}

impl Texts {
    fn with_room(bytes_max: usize) -> Self {
        Self(Mutex::new(Kept { by_sha256: LruCache::unbounded(), bytes: 0, bytes_max }))
    }

    /// Keeps a text unless it is too long; what was not asked for longest makes room.
    pub(super) fn keep(&self, sha256: &str, text: &str) {
        if text.len() > TEXT_MAX {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.by_sha256.promote(sha256) {
            return;
        }
        kept.bytes += text.len() + ENTRY;
        kept.by_sha256.put(sha256.into(), text.into());
        while kept.bytes > kept.bytes_max
            && let Some((_, oldest)) = kept.by_sha256.pop_lru()
        {
            kept.bytes -= oldest.len() + ENTRY;
        }
    }

    /// The text, where it is still kept.
    pub(super) fn get(&self, sha256: &str) -> Option<Arc<str>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.by_sha256.get(sha256).cloned()
    }

    /// Forgets a text, such as one that turned out to be a secret.
    pub(super) fn forget(&self, sha256: &str) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = kept.by_sha256.pop(sha256) {
            kept.bytes -= text.len() + ENTRY;
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.by_sha256.clear();
        kept.bytes = 0;
    }

    /// Bytes that are taken.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_not_asked_for_longest_goes_first() {
        let texts = Texts::with_room(3 * (ENTRY + 100));
        let text = |letter: &str| letter.repeat(100);
        for name in ["a", "b", "c"] {
            texts.keep(name, &text(name));
        }
        assert_eq!(texts.get("a").as_deref(), Some(text("a").as_str()));
        texts.keep("b", &text("b"));
        texts.keep("d", &text("d"));
        assert_eq!(texts.get("c"), None);
        assert!(["a", "b", "d"].iter().all(|name| texts.get(name).is_some()));
    }

    #[test]
    fn a_long_text_is_not_kept_and_what_is_forgotten_is_gone() {
        let texts = Texts::default();
        texts.keep("long", &"x".repeat(TEXT_MAX + 1));
        texts.keep("fits", &"x".repeat(TEXT_MAX));
        assert!(texts.get("long").is_none() && texts.get("fits").is_some());
        texts.forget("fits");
        assert_eq!((texts.get("fits"), texts.bytes()), (None, 0));
        texts.keep("other", "x");
        texts.clear();
        assert_eq!((texts.get("other"), texts.bytes()), (None, 0));
    }

    proptest! {
        #[test]
        fn the_bytes_are_counted_and_bounded(steps in prop::collection::vec((0_u8..20, 0_usize..2_000, any::<bool>()), 0..200)) {
            let texts = Texts::with_room(10_000);
            for (name, length, forget) in steps {
                let name = name.to_string();
                if forget {
                    texts.forget(&name);
                } else {
                    texts.keep(&name, &"x".repeat(length));
                }
                let kept = texts.0.lock().unwrap();
                let counted: usize = kept.by_sha256.iter().map(|(_, text)| text.len() + ENTRY).sum();
                prop_assert_eq!(counted, kept.bytes);
                prop_assert!(kept.bytes <= 10_000);
            }
        }
    }
}
