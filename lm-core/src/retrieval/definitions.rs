//! The names that a text defines, told by the shapes of its lines.
//!
//! Pure, and no parser: one pass over the lines knows what a definition looks like in the languages
//! people use. A name too many costs a little rank, so the shapes are generous.

use std::{collections::HashMap, sync::LazyLock};

/// Words that may stand before the one that defines.
const MODIFIERS: &[&str] = &[
    "pub",
    "async",
    "export",
    "default",
    "static",
    "public",
    "private",
    "protected",
    "final",
    "abstract",
    "unsafe",
    "extern",
    "inline",
    "virtual",
    "override",
    "open",
    "internal",
    "data",
    "sealed",
    "declare",
    "partial",
    "readonly",
    "suspend",
    "constexpr",
    "local",
    "synchronized",
    "native",
    "explicit",
    "friend",
    "mutable",
    "noinline",
    "crate",
    "case",
    "lazy",
    "implicit",
];

/// Words after which a name follows.
const KEYWORDS: &[&str] = &[
    "fn",
    "def",
    "class",
    "struct",
    "enum",
    "trait",
    "interface",
    "type",
    "func",
    "function",
    "mod",
    "module",
    "union",
    "record",
    "object",
    "protocol",
    "namespace",
    "macro",
    "typedef",
    "sub",
    "proc",
    "define",
    "defmodule",
    "defp",
    "defmacro",
    "actor",
    "extension",
    "package",
    "service",
    "message",
    "rpc",
    "contract",
    "event",
    "annotation",
    "newtype",
    "instance",
];

/// Words after which a name follows where they begin a line of their own.
const TOP_LEVEL: &[&str] = &["const", "let", "var", "val"];

/// Words that no definition begins with.
const STATEMENTS: &[&str] = &[
    "if", "for", "while", "return", "else", "switch", "case", "match", "do", "goto", "throw", "new", "delete", "using",
    "use", "import", "from", "assert", "yield", "await", "raise", "except", "catch", "try", "with", "elif", "not",
    "and", "or", "in", "print", "echo",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Modifier,
    Keyword,
    TopLevel,
    Statement,
}

/// One look-up a word: this runs over every line of a workspace.
static ROLES: LazyLock<HashMap<&str, Role>> = LazyLock::new(|| {
    let lists = [
        (STATEMENTS, Role::Statement),
        (TOP_LEVEL, Role::TopLevel),
        (KEYWORDS, Role::Keyword),
        (MODIFIERS, Role::Modifier),
    ];
    lists.into_iter().flat_map(|(words, role)| words.iter().map(move |word| (*word, role))).collect()
});

fn role(word: &str) -> Option<Role> {
    // The longest of them; most words of code are no such words, and many are longer.
    if word.len() < 2 || word.len() > 12 { None } else { ROLES.get(word).copied() }
}

/// Calls `found` with each name that a line defines.
pub(super) fn in_line<'a>(line: &'a str, mut found: impl FnMut(&'a str)) {
    let trimmed = line.trim_start();
    let indented = trimmed.len() < line.len();
    let Some(first) = trimmed.bytes().next() else { return };
    if first == b'#' {
        let rest = trimmed[1..].trim_start();
        if let Some(rest) = rest.strip_prefix("define").filter(|rest| rest.starts_with([' ', '\t'])) {
            report(rest.trim_start(), &mut found);
        }
        return;
    }
    if !(first.is_ascii_alphabetic() || first == b'_' || first == b'(' || first == b'$') {
        return;
    }
    let mut rest = trimmed;
    let mut modified = false;
    for _ in 0..8 {
        let word = leading_word(rest);
        if word.is_empty() {
            break;
        }
        let after = &rest[word.len()..];
        if role(word) == Some(Role::Modifier) && after.starts_with([' ', '\t', '(']) {
            modified = true;
            rest = after.trim_start();
            // `pub(crate)`, `extern "C"`.
            if let Some(inside) = rest.strip_prefix('(') {
                rest = inside.split_once(')').map_or("", |(_, rest)| rest).trim_start();
            }
            if let Some(inside) = rest.strip_prefix('"') {
                rest = inside.split_once('"').map_or("", |(_, rest)| rest).trim_start();
            }
            continue;
        }
        if word == "macro_rules" {
            report(after.trim_start_matches(['!', ' ']), &mut found);
            return;
        }
        if word == "impl" {
            return report_implementation(after, found);
        }
        if (role(word) == Some(Role::Keyword) || (role(word) == Some(Role::TopLevel) && (!indented || modified)))
            && after.starts_with([' ', '\t', '*'])
        {
            return report_after_keyword(word, after, found);
        }
        // `const fn`, `enum class`.
        if word == "const" && after.trim_start().starts_with("fn ") {
            rest = after.trim_start();
            continue;
        }
        break;
    }
    let word = leading_word(rest);
    if role(word) == Some(Role::Statement) {
        return;
    }
    in_other_line(rest, indented, modified, found);
}

/// Definitions that no keyword announces: C functions, methods, assignments at top level, shell
/// functions, tables.
fn in_other_line<'a>(rest: &'a str, indented: bool, modified: bool, mut found: impl FnMut(&'a str)) {
    let word = leading_word(rest);
    if word.eq_ignore_ascii_case("create") {
        let mut words = rest.split_whitespace().skip(1).skip_while(|word| {
            ["or", "replace", "unique", "temporary", "temp"].iter().any(|other| word.eq_ignore_ascii_case(other))
        });
        let kinds = ["table", "view", "index", "function", "procedure", "trigger", "type"];
        if words.next().is_some_and(|word| kinds.iter().any(|kind| word.eq_ignore_ascii_case(kind))) {
            let name = words.find(|word| !["if", "not", "exists"].iter().any(|other| word.eq_ignore_ascii_case(other)));
            if let Some(name) = name {
                report(name.trim_start_matches(['`', '"', '[']), &mut found);
            }
        }
        return;
    }
    if let Some((before, after)) = rest.split_once('(')
        && (!indented || modified)
        && !rest.trim_end().ends_with(';')
        && !before.contains(['=', '.', '"', '\'', '#', '/'])
    {
        let name = trailing_word(before.trim_end());
        let has_type = before.trim_end().len() > name.len();
        if has_type || modified || after.starts_with(')') {
            report(name, &mut found);
        }
        return;
    }
    if !indented && !word.is_empty() {
        let after = rest[word.len()..].trim_start();
        let assigned = after.starts_with(":=") || (after.starts_with('=') && !after.starts_with("=="));
        let annotated = after.starts_with(": ") && after.contains(" = ");
        if assigned || annotated {
            report(word, &mut found);
        }
    }
}

fn report_after_keyword<'a>(keyword: &str, after: &'a str, mut found: impl FnMut(&'a str)) {
    let mut after = after.trim_start_matches([' ', '\t', '*']);
    // A Go method's receiver.
    if keyword == "func" && after.starts_with('(') {
        after = after.split_once(')').map_or("", |(_, rest)| rest).trim_start();
    }
    for second in ["class ", "struct ", "function ", "fn ", "mut ", "self."] {
        after = after.strip_prefix(second).unwrap_or(after);
    }
    if keyword == "typedef" {
        let name = trailing_word(after.trim_end().trim_end_matches(';'));
        report(name, &mut found);
        return;
    }
    report(after, &mut found);
}

/// `impl<T> Trait for Type` gives the type.
fn report_implementation<'a>(after: &'a str, mut found: impl FnMut(&'a str)) {
    let mut rest = after;
    if rest.starts_with('<') {
        let mut depth = 0_usize;
        let end = rest.bytes().position(|byte| {
            match byte {
                b'<' => depth += 1,
                b'>' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0
        });
        rest = end.map_or("", |end| &rest[end + 1..]);
    }
    let target = rest.split_once(" for ").map_or(rest, |(_, target)| target).trim_start();
    let path = target.split(['<', '{', ' ']).next().unwrap_or_default();
    report(path.rsplit("::").next().unwrap_or_default(), &mut found);
}

fn report<'a>(text: &'a str, found: &mut impl FnMut(&'a str)) {
    let name = leading_word(text);
    if name.len() > 1 && !name.as_bytes()[0].is_ascii_digit() {
        found(name);
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// ASCII punctuation ends a word, so cuts are on boundaries of characters.
fn leading_word(text: &str) -> &str {
    &text[..text.bytes().take_while(|byte| is_name_byte(*byte)).count()]
}

fn trailing_word(text: &str) -> &str {
    &text[text.len() - text.bytes().rev().take_while(|byte| is_name_byte(*byte)).count()..]
}

/// Calls `found` with every name a text defines.
pub(super) fn in_text<'a>(text: &'a str, mut found: impl FnMut(&'a str)) {
    for line in text.lines() {
        // Minified code has no lines to speak of.
        if line.len() <= 1000 {
            in_line(line, &mut found);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(text: &str) -> Vec<&str> {
        let mut names = Vec::new();
        in_text(text, |name| names.push(name));
        names
    }

    #[test]
    fn definitions_of_many_languages() {
        for (line, expected) in [
            ("pub(crate) async unsafe fn read_all<T>(x: T) {", "read_all"),
            ("    pub const fn new() -> Self {", "new"),
            ("impl<T: Into<U>> Display for Error<T> {", "Error"),
            ("macro_rules! check {", "check"),
            ("pub static GLOBAL: usize = 1;", "GLOBAL"),
            ("const LIMIT: u32 = 3;", "LIMIT"),
            ("    def on_event(self):", "on_event"),
            ("class Meta(type):", "Meta"),
            ("MAX_SIZE = 12", "MAX_SIZE"),
            ("func (s *Server) Serve(l net.Listener) error {", "Serve"),
            ("type Handler interface {", "Handler"),
            ("export default function render(props) {", "render"),
            ("export const useThing = () => {", "useThing"),
            ("export abstract class Base {", "Base"),
            ("interface Props {", "Props"),
            ("public static void main(String[] args) {", "main"),
            ("static int parse_header(struct buf *b)", "parse_header"),
            ("#define MAX_LEN 12", "MAX_LEN"),
            ("typedef struct foo foo_t;", "foo_t"),
            ("install_all() {", "install_all"),
            ("CREATE TABLE IF NOT EXISTS users (", "users"),
            ("enum class Color {", "Color"),
            ("  def self.build(x)", "build"),
            ("fun", ""),
        ] {
            assert_eq!(names(line), if expected.is_empty() { vec![] } else { vec![expected] }, "{line}");
        }
    }

    #[test]
    fn uses_are_no_definitions() {
        for line in [
            "    let x = compute(y);",
            "    return parse(x)",
            "if (ready) {",
            "    foo(bar)",
            "x.y(z)",
            "// fn old()",
            "call(x);",
        ] {
            assert!(names(line).is_empty(), "{line}: {:?}", names(line));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "\\PC{0,200}", line in "[a-z(){}<>:*&=#\" ]{0,80}") {
            names(&text);
            names(&line);
        }
    }
}
