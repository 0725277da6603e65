//! Regular expressions that a model gives.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use super::{ToolError, text::cut};

/// The longest pattern, in bytes.
const LONGEST: usize = 2_000;
/// How large a compiled pattern may be, in bytes. A tenth of what the engine allows, so that patterns
/// that explode are refused at once and not after a second.
const SIZE_LIMIT: usize = 1 << 20;
/// How large its lazily built automaton may be, in bytes and per thread.
const DFA_LIMIT: usize = 4 << 20;
/// How deep groups may nest.
const NEST_LIMIT: u32 = 64;

/// How a pattern is to be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PatternOptions {
    /// Letter case does not matter.
    pub(super) ignore_case: bool,
    /// Matches may span lines.
    pub(super) multiline: bool,
}

/// Compiles a pattern.
pub(super) fn compile(pattern: &str, options: PatternOptions) -> Result<RegexMatcher, ToolError> {
    if pattern.len() > LONGEST {
        return Err(ToolError(format!(
            "the pattern is {} bytes long, {LONGEST} are allowed; search for a part of it",
            pattern.len()
        )));
    }
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .case_insensitive(options.ignore_case)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(DFA_LIMIT)
        .nest_limit(NEST_LIMIT);
    if options.multiline {
        builder.dot_matches_new_line(true);
    } else {
        // Promises that no match crosses a line end, which is what makes searching fast.
        builder.crlf(true);
    }
    builder.build(pattern).map_err(|error| ToolError(explain(pattern, &error.to_string())))
}

/// Says what is wrong with a pattern and what to do instead.
fn explain(pattern: &str, error: &str) -> String {
    let pattern_line = pattern.replace('\n', "\\n");
    let shown = cut(&pattern_line, 200);
    let literal = regex::escape(pattern);
    let as_text = if literal != pattern && literal.len() <= 300 {
        format!("; to find it as plain text use the pattern `{literal}`")
    } else {
        String::new()
    };
    if ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|look| pattern.contains(look)) {
        return format!(
            "the pattern `{shown}` uses look-around, which is not supported; search for the part outside it and judge the lines{as_text}"
        );
    }
    if error.contains("backreferences") {
        return format!(
            "the pattern `{shown}` uses a backreference, which is not supported; write the repeated text out{as_text}"
        );
    }
    if error.contains("size limit")
        || error.contains("too big")
        || error.contains("nest limit")
        || error.contains("deeply")
    {
        return format!(
            "the pattern `{shown}` is too large once its repetitions are expanded; use smaller counts, or * and +"
        );
    }
    if error.contains("not allowed") && error.contains("\\n") {
        return format!("the pattern `{shown}` holds a line end; set multiline to true to match across lines");
    }
    // The engine's message draws the pattern over several lines; its last line tells what is wrong.
    let reason = error.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("unknown error").trim();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    format!("the pattern `{shown}` is not valid: {}{as_text}", cut(reason, 300))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(pattern: &str) -> String {
        compile(pattern, PatternOptions::default()).unwrap_err().0
    }

    #[test]
    fn what_is_not_supported_gets_a_hint() {
        insta::assert_snapshot!(error("(?<=x)y"), @r"the pattern `(?<=x)y` uses look-around, which is not supported; search for the part outside it and judge the lines; to find it as plain text use the pattern `\(\?<=x\)y`");
        insta::assert_snapshot!(error(r"(a)\1"), @r"the pattern `(a)\1` uses a backreference, which is not supported; write the repeated text out; to find it as plain text use the pattern `\(a\)\\1`");
        insta::assert_snapshot!(error("("), @r"the pattern `(` is not valid: unclosed group; to find it as plain text use the pattern `\(`");
        insta::assert_snapshot!(error("interface{}"), @r"the pattern `interface{}` is not valid: repetition quantifier expects a valid decimal; to find it as plain text use the pattern `interface\{\}`");
        insta::assert_snapshot!(error("a\nb"), @r"the pattern `a\nb` holds a line end; set multiline to true to match across lines");
        insta::assert_snapshot!(error("(a{1000}){1000}"), @"the pattern `(a{1000}){1000}` is too large once its repetitions are expanded; use smaller counts, or * and +");
    }

    #[test]
    fn exploding_patterns_are_refused() {
        assert!(error(r"(\w{1,200}){1,200}").contains("too large"));
        assert!(error(&"(".repeat(1_000)).contains("pattern"));
        assert!(error(&format!("{}a{}", "(".repeat(500), ")".repeat(500))).contains("nest"));
        assert!(error(&"x".repeat(1 << 20)).contains("are allowed"));
    }
}
