//! Showing what a commit changed.

use gix::{
    Repository,
    bstr::ByteSlice,
    diff::blob::{Algorithm, InternedInput, diff_with_slider_heuristics},
    objs::Kind,
    prelude::{Find as _, Header as _},
};

use super::{
    changes::shown,
    history::{Entry, FileChange},
    open::Opened,
    withheld::Reason,
};
use crate::{files::holds_secret, tools::text::cut};

/// The longest file whose lines are compared, in bytes.
const BLOB_CAP: u64 = 1 << 20;
/// The longest part of a line that is shown, in characters.
const LINE_CAP: usize = 300;
/// Lines shown around a change.
const CONTEXT: usize = 3;
/// How far into a file a NUL byte makes it binary.
const SNIFFED_BYTES: usize = 8_000;

/// A version of a file.
pub(super) enum Version {
    /// Its text.
    Text(String),
    /// Not text.
    Binary,
    /// Longer than what is looked at.
    TooLarge,
    /// Not in this clone.
    Missing,
    /// Not there on this side.
    Absent,
    /// Another repository's commit.
    Submodule(String),
}

/// Reads a version of a file out of the object database: no filter and no conversion, so no program.
pub(super) fn version(repository: &Repository, entry: Option<Entry>, buffer: &mut Vec<u8>) -> Version {
    let Some(entry) = entry else { return Version::Absent };
    if entry.mode.is_commit() {
        return Version::Submodule(entry.id.to_hex_with_len(12).to_string());
    }
    match repository.objects.try_header(&entry.id) {
        Ok(Some(header)) if header.size() > BLOB_CAP => return Version::TooLarge,
        Ok(Some(_)) => {}
        _ => return Version::Missing,
    }
    match repository.objects.try_find(&entry.id, buffer) {
        Ok(Some(data)) if data.kind == Kind::Blob => {
            if memchr::memchr(0, &data.data[..data.data.len().min(SNIFFED_BYTES)]).is_some() {
                Version::Binary
            } else {
                Version::Text(String::from_utf8_lossy(data.data).into_owned())
            }
        }
        _ => Version::Missing,
    }
}

/// One line for a changed file: `M src/a.rs`.
pub(super) fn summary(change: &FileChange, prefix: &std::path::Path) -> String {
    let mark = match (&change.before, &change.after) {
        (None, _) => 'A',
        (_, None) => 'D',
        (Some(before), Some(after)) if before.mode.kind() != after.mode.kind() => 'T',
        _ => 'M',
    };
    format!("{mark} {}", shown(change.path.as_bstr(), prefix))
}

/// The lines of a change as a patch, at most `most` of them.
pub(super) fn lines(opened: &Opened, change: &FileChange, buffer: &mut Vec<u8>, most: usize) -> Vec<String> {
    if let Some(reason) = opened.withheld.reason(change.path.as_bstr()) {
        return vec![reason.note().into()];
    }
    let repository = &opened.repository;
    let before = version(repository, change.before, buffer);
    let after = version(repository, change.after, buffer);
    let (old, new) = match (&before, &after) {
        (Version::Text(old), Version::Text(new)) => (old.as_str(), new.as_str()),
        (Version::Text(old), Version::Absent) => (old.as_str(), ""),
        (Version::Absent, Version::Text(new)) => ("", new.as_str()),
        (Version::Missing, _) | (_, Version::Missing) => {
            return vec!["(not in this clone: a partial clone fetches it only when it is needed)".into()];
        }
        (Version::TooLarge, _) | (_, Version::TooLarge) => return vec!["(too large to be shown)".into()],
        (Version::Binary, _) | (_, Version::Binary) => return vec!["(binary)".into()],
        (Version::Submodule(old), Version::Submodule(new)) => return vec![format!("(submodule {old} -> {new})")],
        (Version::Submodule(old), _) => return vec![format!("(submodule {old} removed)")],
        (_, Version::Submodule(new)) => return vec![format!("(submodule {new} added)")],
        (Version::Absent, Version::Absent) => return Vec::new(),
    };
    if holds_secret(old) || holds_secret(new) {
        return vec![Reason::Secret.note().into()];
    }
    if old == new {
        return vec!["(only its mode changed)".into()];
    }
    hunks(old, new, most)
}

fn hunks(old: &str, new: &str, most: usize) -> Vec<String> {
    let input = InternedInput::new(old, new);
    let diff = diff_with_slider_heuristics(Algorithm::Histogram, &input);
    let (old_lines, new_lines): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut shown = Vec::new();
    let mut left_out = 0;
    let mut push = |line: String| {
        if shown.len() < most {
            shown.push(line);
        } else {
            left_out += 1;
        }
    };
    let text = |mark: char, line: &str| format!("{mark}{}", cut(line, LINE_CAP));
    // The end of the context behind the previous change, in lines of the new version.
    let mut reached: Option<usize> = None;
    let mut hunks = diff.hunks().peekable();
    while let Some(hunk) = hunks.next() {
        let range = |range: std::ops::Range<u32>| range.start as usize..range.end as usize;
        let (before, after) = (range(hunk.before), range(hunk.after));
        let first = after.start.saturating_sub(CONTEXT).max(reached.unwrap_or(0));
        if reached.is_none_or(|reached| first > reached) {
            let back = after.start - first;
            push(format!("@@ -{} +{} @@", before.start - back + 1, first + 1));
        }
        for line in &new_lines[first.min(new_lines.len())..after.start.min(new_lines.len())] {
            push(text(' ', line));
        }
        for line in &old_lines[before.start.min(old_lines.len())..before.end.min(old_lines.len())] {
            push(text('-', line));
        }
        for line in &new_lines[after.start.min(new_lines.len())..after.end.min(new_lines.len())] {
            push(text('+', line));
        }
        let next = hunks.peek().map_or(usize::MAX, |next| next.after.start as usize);
        let end = (after.end + CONTEXT).min(new_lines.len()).min(next);
        for line in &new_lines[after.end.min(end)..end] {
            push(text(' ', line));
        }
        reached = Some(end);
    }
    if left_out > 0 {
        shown.push(format!("({left_out} more lines)"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_with_their_surroundings() {
        let old: String = (1..=20).map(|number| format!("line {number}\n")).collect();
        let new = old.replace("line 5\n", "line five\n").replace("line 18\n", "");
        insta::assert_snapshot!(hunks(&old, &new, 100).join("\n"), @r"
        @@ -2 +2 @@
         line 2
         line 3
         line 4
        -line 5
        +line five
         line 6
         line 7
         line 8
        @@ -15 +15 @@
         line 15
         line 16
         line 17
        -line 18
         line 19
         line 20
        ");
    }

    #[test]
    fn close_changes_share_their_surroundings() {
        let old = "a\nb\nc\nd\ne\n";
        let new = "A\nb\nc\nD\ne\n";
        insta::assert_snapshot!(hunks(old, new, 100).join("\n"), @r"
        @@ -1 +1 @@
        -a
        +A
         b
         c
        -d
        +D
         e
        ");
    }

    #[test]
    fn what_is_too_long_is_counted() {
        let new = "x\n".repeat(50);
        let lines = hunks("", &new, 10);
        assert_eq!(lines.len(), 11);
        assert_eq!(lines[10], "(41 more lines)");
    }
}
