//! Windows of lines: how well each answers a query, and the excerpt to show.
//!
//! Pure. Lines are counted from 0 in here.

use std::collections::HashMap;

use super::{
    definitions,
    query::{Query, exact_term},
    tokenize::Terms,
};

/// Lines of a window.
const WINDOW: usize = 60;
/// Lines from one window's beginning to the next one's.
const STEP: usize = 20;
/// How many windows of a file count.
const BEST: usize = 3;
/// The longest line that is shown whole, in characters.
pub(super) const LONGEST_LINE: usize = 500;

/// BM25's saturation and length normalisation, as the measured recipe has them.
const K1: f32 = 1.2;
const B: f32 = 0.75;
/// Terms in a window of ordinary source code.
const USUAL_LENGTH: f32 = 400.0;

/// What a query sees in a file's text; the text itself is kept elsewhere.
#[derive(Debug)]
pub(super) struct Seen {
    /// For each line, which terms occur how often.
    hits: Vec<Vec<(usize, u16)>>,
    /// Terms in each line.
    lengths: Vec<u32>,
    /// Lines that define an exact identifier, and which.
    defined_exactly: Vec<(usize, usize)>,
    /// Which terms occur in the names that the file defines, and in how many of them.
    pub(super) in_definitions: Vec<u16>,
    /// How often each term occurs in the file.
    pub(super) occurrences: Vec<u32>,
    /// The names of the exact identifiers that are defined, as written.
    pub(super) defined_names: Vec<String>,
    /// Lines that define a name with a term of the query.
    defining: Vec<usize>,
}

/// Lines to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    /// The first line.
    pub(super) first: usize,
    /// One past the last line.
    pub(super) end: usize,
}

impl Seen {
    /// Looks at a text.
    pub(super) fn new(text: &str, query: &Query) -> Self {
        let positions = query.positions();
        let mut seen = Self {
            hits: Vec::new(),
            lengths: Vec::new(),
            defined_exactly: Vec::new(),
            in_definitions: vec![0; query.terms.len()],
            occurrences: vec![0; query.terms.len()],
            defined_names: Vec::new(),
            defining: Vec::new(),
        };
        let mut buffer = String::new();
        for (number, line) in text.lines().enumerate() {
            seen.read_line(line, &positions);
            if line.len() <= 1000 {
                definitions::in_line(line, |name| {
                    seen.read_definition(name, number, query, &positions, &mut buffer);
                });
            }
        }
        seen
    }

    fn read_line(&mut self, line: &str, positions: &HashMap<&str, usize>) {
        let mut terms = Terms::new(line);
        let mut length = 0;
        let mut hits: Vec<(usize, u16)> = Vec::new();
        while let Some(term) = terms.advance() {
            length += 1;
            if let Some(&position) = positions.get(term) {
                self.occurrences[position] += 1;
                match hits.iter_mut().find(|(known, _)| *known == position) {
                    Some((_, count)) => *count = count.saturating_add(1),
                    None => hits.push((position, 1)),
                }
            }
        }
        self.hits.push(hits);
        self.lengths.push(length);
    }

    fn read_definition(
        &mut self,
        name: &str,
        line: usize,
        query: &Query,
        positions: &HashMap<&str, usize>,
        buffer: &mut String,
    ) {
        let mut terms = Terms::new(name);
        let mut counts = false;
        while let Some(term) = terms.advance() {
            if let Some(&position) = positions.get(term) {
                self.in_definitions[position] = self.in_definitions[position].saturating_add(1);
                counts = true;
            }
        }
        if counts {
            self.defining.push(line);
        }
        if let Some(position) = exact_term(name, positions, query, buffer) {
            self.defined_exactly.push((line, position));
            if !self.defined_names.iter().any(|known| known == name) {
                self.defined_names.push(name.to_owned());
            }
        }
    }

    /// Which exact identifiers the file defines.
    pub(super) fn defines(&self, position: usize) -> bool {
        self.defined_exactly.iter().any(|(_, defined)| *defined == position)
    }

    /// The mean of the best three windows' scores, given each term's weight (idf × weight in the
    /// question).
    pub(super) fn score(&self, weights: &[f32]) -> f32 {
        let mut scores: Vec<f32> = self.starts().map(|start| self.window_score(start, weights)).collect();
        scores.sort_by(|a, b| b.total_cmp(a));
        scores.truncate(BEST);
        // A file of one window is compared by that one.
        if scores.is_empty() { 0.0 } else { scores.iter().sum::<f32>() / scores.len() as f32 }
    }

    fn starts(&self) -> impl Iterator<Item = usize> + use<> {
        let last = self.hits.len().saturating_sub(WINDOW - STEP).max(1);
        (0..last).step_by(STEP)
    }

    fn window_score(&self, start: usize, weights: &[f32]) -> f32 {
        let end = (start + WINDOW).min(self.hits.len());
        let mut counts = vec![0_u32; weights.len()];
        for hits in &self.hits[start..end] {
            for (position, count) in hits {
                counts[*position] += u32::from(*count);
            }
        }
        let length: u32 = self.lengths[start..end].iter().sum();
        let norm = K1 * (1.0 - B + B * length as f32 / USUAL_LENGTH);
        counts
            .iter()
            .zip(weights)
            .filter(|(count, _)| **count > 0)
            .map(|(count, weight)| weight * (*count as f32) * (K1 + 1.0) / (*count as f32 + norm))
            .sum()
    }

    /// The lines to show first: at most `most_lines`, around what matters most, beginning where a
    /// definition begins if one is near. None where no line has a term that is not yet `taken`.
    /// `lines` are those of the text that was looked at, here and below.
    pub(super) fn best_span(&self, lines: &[&str], weights: &[f32], most_lines: usize, taken: &[Span]) -> Option<Span> {
        let value = self.line_values(weights, taken);
        let length = most_lines.clamp(1, WINDOW).min(value.len());
        let mut sum: f32 = value.iter().take(length).sum();
        let mut best = (sum, 0);
        for start in 1..=value.len().saturating_sub(length) {
            sum += value[start + length - 1] - value[start - 1];
            if sum > best.0 + 1e-4 {
                best = (sum, start);
            }
        }
        let (first, end) = (best.1, best.1 + length);
        // Not asked of the sum, which rounding moves.
        value[first..end].iter().any(|value| *value > 0.0).then(|| trim(lines, first, end, &value))
    }

    /// What each line is worth: its terms, and more where it defines what was asked for.
    fn line_values(&self, weights: &[f32], taken: &[Span]) -> Vec<f32> {
        let mut value: Vec<f32> =
            self.hits.iter().map(|hits| hits.iter().map(|(position, _)| weights[*position]).sum()).collect();
        for line in &self.defining {
            value[*line] *= 1.5;
        }
        for (line, position) in &self.defined_exactly {
            value[*line] += 4.0 * weights[*position].max(1.0);
        }
        for span in taken {
            value[span.first..span.end].fill(0.0);
        }
        value
    }

    /// The text of a span within a number of characters; overlong lines are cut around their first
    /// term. Gives the lines that fitted; none where not even one did.
    pub(super) fn excerpt(
        &self,
        lines: &[&str],
        span: Span,
        query: &Query,
        weights: &[f32],
        most_chars: usize,
    ) -> Option<(Span, String)> {
        let positions = query.positions();
        let shown: Vec<String> = lines[span.first..span.end].iter().map(|line| shorten(line, &positions)).collect();
        let value = self.line_values(weights, &[]);
        let sizes: Vec<usize> = shown.iter().map(|line| line.chars().count() + 1).collect();
        let (mut first, mut end) = (0, shown.len());
        let mut total: usize = sizes.iter().sum();
        // Gives up the poorer edge until it fits.
        while end > first && total > most_chars {
            let (front, back) = (value[span.first + first], value[span.first + end - 1]);
            if front < back {
                total -= sizes[first];
                first += 1;
            } else {
                end -= 1;
                total -= sizes[end];
            }
        }
        if first == end {
            return None;
        }
        Some((Span { first: span.first + first, end: span.first + end }, shown[first..end].join("\n")))
    }
}

/// Drops edges without any hit, but for a little context, and never cuts what is being defined.
fn trim(lines: &[&str], first: usize, end: usize, value: &[f32]) -> Span {
    const BEFORE: usize = 3;
    const AFTER: usize = 8;
    let hit = |line: &usize| value[*line] > 0.0;
    let first_hit = (first..end).find(hit).unwrap_or(first);
    let last_hit = (first..end).rev().find(hit).unwrap_or(end - 1);
    // Comments and attributes above a definition belong to it.
    let mut begin = first_hit.saturating_sub(BEFORE).max(first);
    while begin > 0 && begin > first_hit.saturating_sub(12) && is_lead_in(lines[begin - 1]) {
        begin -= 1;
    }
    while begin < first_hit && lines[begin].trim().is_empty() {
        begin += 1;
    }
    let mut stop = (last_hit + 1 + AFTER).min(lines.len());
    while stop > last_hit + 1 && lines[stop - 1].trim().is_empty() {
        stop -= 1;
    }
    Span { first: begin, end: stop }
}

fn is_lead_in(line: &str) -> bool {
    let line = line.trim_start();
    ["//", "#", "*", "/*", "@", "\"\"\"", "--"].iter().any(|start| line.starts_with(start))
}

/// Cuts an overlong line to [`LONGEST_LINE`] characters around the first term of the query in it,
/// with a visible mark on each side that was cut.
pub(super) fn shorten(line: &str, positions: &HashMap<&str, usize>) -> String {
    if line.len() <= LONGEST_LINE || line.chars().count() <= LONGEST_LINE {
        return line.trim_end().to_owned();
    }
    let mut terms = Terms::new(line);
    let mut at = 0;
    while let Some(term) = terms.advance() {
        if positions.contains_key(term) {
            at = terms.span().0;
            break;
        }
    }
    // Marks and counts take up to sixty characters.
    let kept = LONGEST_LINE - 60;
    let before = line[..at].chars().count();
    let skipped = before.saturating_sub(kept / 3);
    let mut middle: String = line.chars().skip(skipped).take(kept).collect();
    let left = line.chars().count() - skipped - middle.chars().count();
    if skipped > 0 {
        middle.insert_str(0, &format!("[… {skipped} characters] "));
    }
    if left > 0 {
        middle.push_str(&format!(" [{left} characters …]"));
    }
    middle
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn weights(query: &Query) -> Vec<f32> {
        vec![2.0; query.terms.len()]
    }

    #[test]
    fn the_window_with_the_words_wins() {
        let mut text = "let filler = compute(other);\n".repeat(200);
        text.push_str("fn rate_limit(upload: Upload) {\n    // the rate limit of uploads\n}\n");
        text.push_str(&"let filler = compute(other);\n".repeat(200));
        let query = Query::parse("where is the rate limit of uploads?");
        let seen = Seen::new(&text, &query);
        let lines: Vec<&str> = text.lines().collect();
        let span = seen.best_span(&lines, &weights(&query), 40, &[]).unwrap();
        assert!(span.first <= 200 && span.end > 201, "{span:?}");
        let (_, excerpt) = seen.excerpt(&lines, span, &query, &weights(&query), 2000).unwrap();
        assert!(excerpt.contains("fn rate_limit"), "{excerpt}");
    }

    #[test]
    fn overlong_lines_are_cut_around_the_match() {
        let line = format!("{}needle_here{}", "var a=1;".repeat(300_000), "b()".repeat(100_000));
        let query = Query::parse("needle_here");
        let seen = Seen::new(&line, &query);
        let lines = [line.as_str()];
        let span = seen.best_span(&lines, &weights(&query), 40, &[]).unwrap();
        let (_, excerpt) = seen.excerpt(&lines, span, &query, &weights(&query), 2000).unwrap();
        assert!(excerpt.contains("needle_here"), "{excerpt}");
        assert!(excerpt.contains("[… 2399854 characters]"), "{excerpt}");
        assert!(excerpt.chars().count() <= LONGEST_LINE);
    }

    proptest! {
        #[test]
        fn spans_lie_inside_and_excerpts_are_bounded(
            text in "(\\PC{0,30}|needle|fn needle\\(\\) \\{|ü{300,600}needle)(\n(\\PC{0,30}|needle|ü{500,900} needle ü{9})){0,90}",
            most_lines in 0_usize..80,
            most_chars in 0_usize..3000,
        ) {
            let query = Query::parse("`needle` in a haystack");
            let seen = Seen::new(&text, &query);
            let weights = weights(&query);
            prop_assert!(seen.score(&weights).is_finite());
            let lines: Vec<&str> = text.lines().collect();
            let mut taken = Vec::new();
            while let Some(span) = seen.best_span(&lines, &weights, most_lines, &taken) {
                prop_assert!(span.first < span.end && span.end <= text.lines().count());
                if let Some((kept, excerpt)) = seen.excerpt(&lines, span, &query, &weights, most_chars) {
                    prop_assert!(span.first <= kept.first && kept.end <= span.end);
                    prop_assert!(excerpt.chars().count() <= most_chars);
                    prop_assert!(excerpt.lines().all(|line| line.chars().count() <= LONGEST_LINE));
                }
                taken.push(span);
                prop_assert!(taken.len() <= text.lines().count());
            }
        }
    }
}
