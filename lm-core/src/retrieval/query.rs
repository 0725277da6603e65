//! A question to what is searched for: weighted terms, exact identifiers, mentions of paths; or that it
//! is about the workspace as a whole.
//!
//! Pure.

use std::collections::HashMap;

use super::tokenize::{Terms, fold, folded, stem, terms};

/// More terms than a question needs; what follows in a pasted text is not searched for.
const MOST_TERMS: usize = 64;
/// So many names are searched for all the same, however late they come.
const MOST_LATE_NAMES: usize = 16;
/// A word said more often than this counts no more.
const MOST_REPETITIONS: u32 = 3;

/// Words that questions are made of and that say nothing about what is asked.
const STOP_WORDS: &str = "\
    a about above after again all also am an and any anyone anything are as ask at be because been before being \
    below between both but by can cannot code codebase come could describe did do does doing done during each \
    either else every explain few file files find for from further get gets give given go goes had happen \
    happens has have having he her here how i if in inside into is it its itself just know let like live locate \
    look made make makes many may me mean might more most much must my need no nor not of off on once one only \
    or other our out over own place places please possible project repo repository same say see shall she should \
    show so some something such tell than that the their them then there these they thing this those through to \
    too under until up us use used uses using very want was way we were what when where whether which while who \
    whom whose why will with within work works would you your implemented implementation defined definition \
    located handled exactly there's don doesn isn re ve ll";

/// Words that may stand besides them in a question about the workspace as a whole.
const GENERAL_WORDS: &str = "\
    app application basically big brief briefly general generally goal goals idea introduce introduction library \
    main overall overview package picture product program purpose purposes short software summarise summarize \
    summary tool";

/// Of all these, words for the whole.
const SUBJECT_WORDS: &str = "\
    app application code codebase it library package product program project repo repository software this tool";

/// Of all these, words that ask about a whole; `where`, `which` and `who` ask for a part.
const ASKING_WORDS: &str = "\
    about describe explain how introduce introduction overview purpose summarise summarize summary tell what";

/// Names that are no words, and what stands for them in file names and texts.
const SYMBOL_NAMES: &[(&str, &str)] =
    &[("c++", "cpp cxx hpp"), ("c#", "csharp cs csproj"), ("f#", "fsharp fs fsproj"), (".net", "dotnet csproj fsproj")];

/// A term of the question.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct QueryTerm {
    /// As the index has it.
    pub(super) term: String,
    /// As the question has it.
    pub(super) shown: String,
    /// How often the question says it, capped.
    pub(super) weight: f32,
    /// Whether it stands for a whole identifier that was asked for by name.
    pub(super) exact: bool,
    /// Whether it is only a part of an identifier; then its absence means nothing.
    pub(super) part: bool,
    /// Whether it is one of several that stand for the same; then those that are missing mean nothing.
    pub(super) alternative: bool,
}

/// What a question asks for.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Query {
    /// What to look for in text, paths and names.
    pub(super) terms: Vec<QueryTerm>,
    /// Mentions of paths (`src/main.rs`, `main.rs`), in lower case.
    pub(super) paths: Vec<String>,
    /// Mentions of modules, as the path they would have (`a.b.c` → `a/b/c`), in lower case.
    pub(super) modules: Vec<String>,
    /// Words that may be a file's stem, in lower case: identifiers and words that are no stop words.
    pub(super) stems: Vec<String>,
    /// Whether it asks about the workspace as a whole, which no word of it can find.
    pub(super) general: bool,
}

impl Query {
    /// Understands a question.
    pub(super) fn parse(question: &str) -> Self {
        let mut query = Builder::default();
        query.read_quoted(question);
        for chunk in question.split_whitespace() {
            query.read_chunk(chunk);
        }
        query.read_words(question);
        query.read_symbols(question);
        query.finish(question)
    }

    /// Whether there is nothing to look for.
    pub(super) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Positions of terms by term.
    pub(super) fn positions(&self) -> HashMap<&str, usize> {
        self.terms.iter().enumerate().map(|(position, term)| (term.term.as_str(), position)).collect()
    }
}

#[derive(Default)]
struct Builder {
    query: Query,
    /// Identifiers asked for by name, as written.
    exact: Vec<String>,
}

impl Builder {
    /// What stands in backticks or quotation marks is meant literally if it looks like a name.
    fn read_quoted(&mut self, question: &str) {
        for mark in ['`', '"', '\''] {
            let mut parts = question.split(mark);
            parts.next();
            while let (Some(inside), Some(_)) = (parts.next(), parts.next()) {
                let name = inside.trim().trim_end_matches("()");
                if is_identifier(name) && name.len() > 1 {
                    self.exact.push(name.to_owned());
                }
            }
        }
    }

    fn read_chunk(&mut self, written: &str) {
        let chunk = written.trim_matches(|character: char| !character.is_alphanumeric() && !"_/.~".contains(character));
        let chunk = chunk.trim_end_matches(['.', '/']).trim_start_matches("./");
        if chunk.len() < 2 || chunk.len() > 300 {
            return;
        }
        if chunk.contains("://") {
            return;
        }
        let without_line =
            chunk.split_once(':').filter(|(_, rest)| !rest.starts_with(':')).map_or(chunk, |(path, _)| path);
        if without_line.contains(['/', '\\']) {
            self.query.paths.push(folded(without_line.replace('\\', "/").trim_start_matches('/')));
            return;
        }
        if let Some((stem, extension)) = without_line.rsplit_once('.')
            && !stem.is_empty()
            && is_listed(FILE_EXTENSIONS, &extension.to_lowercase())
        {
            self.query.paths.push(folded(without_line));
            return;
        }
        let names: Vec<&str> = chunk
            .split([
                '.', ':', '(', ')', '<', '>', '[', ']', ',', ';', '=', '&', '*', '!', '?', '`', '"', '\'', '{', '}',
                '#', '@', '-',
            ])
            .filter(|name| is_identifier(name))
            .collect();
        let qualified = chunk.contains("::") || (chunk.contains('.') && names.len() > 1);
        if qualified && names.len() > 1 {
            let path = folded(&names.join("/"));
            if let Some((parents, _)) = path.rsplit_once('/').filter(|(parents, _)| parents.contains('/')) {
                self.query.modules.push(parents.to_owned());
            }
            self.query.modules.push(path);
        }
        let count = names.len();
        for (position, name) in names.into_iter().enumerate() {
            let named =
                looks_like_code(name) || (qualified && position + 1 == count) || written.contains(&format!("{name}("));
            if named && name.len() > 1 {
                self.exact.push(name.to_owned());
            }
        }
    }

    fn read_words(&mut self, question: &str) {
        let mut words = Terms::new(question);
        let mut previous = (usize::MAX, 0);
        while let Some(term) = words.advance() {
            let term = term.to_owned();
            let span = words.span();
            let word = &question[span.0..span.1];
            let first_of_identifier = span != previous;
            previous = span;
            let lower = folded(word);
            if first_of_identifier {
                if is_listed(STOP_WORDS, &lower) && !self.is_exact(word) {
                    continue;
                }
                self.query.stems.push(lower.clone());
            } else if is_listed(STOP_WORDS, &term) {
                continue;
            }
            let exact = first_of_identifier && self.is_exact(word);
            self.add(term, word, exact, !first_of_identifier);
        }
    }

    /// `C++` and its like have no letters to be found by; what their files are called has.
    fn read_symbols(&mut self, question: &str) {
        for chunk in question.split(|letter: char| letter.is_whitespace() || ",;/()".contains(letter)) {
            let chunk = chunk.trim_matches(|letter: char| !letter.is_alphanumeric() && !"+#.".contains(letter));
            let name = chunk.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.').to_lowercase();
            let Some((_, words)) = SYMBOL_NAMES.iter().find(|(symbol, _)| *symbol == name) else { continue };
            for word in words.split(' ') {
                if !self.query.terms.iter().any(|known| known.term == word) {
                    self.add(word.to_owned(), chunk, false, true);
                    if let Some(added) = self.query.terms.last_mut().filter(|added| added.term == word) {
                        added.alternative = true;
                    }
                }
            }
        }
    }

    /// Whether nothing but the workspace itself is asked about.
    fn is_general(&self, question: &str) -> bool {
        if !(self.exact.is_empty() && self.query.paths.is_empty() && self.query.modules.is_empty()) {
            return false;
        }
        let lower = folded(question);
        let words = || lower.split(|letter: char| !letter.is_alphanumeric()).filter(|word| word.chars().count() > 1);
        let any_of = |list: &str| words().any(|word| is_listed(list, word));
        words().all(|word| is_listed(STOP_WORDS, word) || is_listed(GENERAL_WORDS, word))
            && any_of(SUBJECT_WORDS)
            && any_of(ASKING_WORDS)
            && !any_of("where which who")
    }

    fn is_exact(&self, word: &str) -> bool {
        self.exact.iter().any(|name| name == word)
    }

    fn add(&mut self, term: String, shown: &str, exact: bool, part: bool) {
        if let Some(known) = self.query.terms.iter_mut().find(|known| known.term == term) {
            known.weight = (known.weight + 1.0).min(MOST_REPETITIONS as f32);
            known.exact |= exact;
            if known.part && !part {
                known.part = false;
                shown.clone_into(&mut known.shown);
            }
        } else if self.query.terms.len() < MOST_TERMS + if exact { MOST_LATE_NAMES } else { 0 } {
            self.query.terms.push(QueryTerm {
                term,
                shown: shown.to_owned(),
                weight: 1.0,
                exact,
                part,
                alternative: false,
            });
        }
    }

    fn finish(mut self, question: &str) -> Query {
        self.query.general = self.is_general(question);
        let query = &mut self.query;
        for list in [&mut query.paths, &mut query.modules, &mut query.stems] {
            list.sort();
            list.dedup();
            list.truncate(MOST_TERMS);
        }
        self.query
    }
}

/// Endings by which a word with a dot is a file and not a qualified name.
const FILE_EXTENSIONS: &str = "\
    rs py pyi js mjs cjs jsx ts tsx go java kt kts scala c h cc cpp cxx hh hpp hxx m mm cs fs vb rb php pl pm \
    lua swift dart ex exs erl hs ml mli clj el lisp r jl zig nim sh bash zsh fish ps1 bat sql proto graphql html \
    htm css scss less vue svelte md rst txt toml yaml yml json xml ini cfg conf lock gradle cmake tf nix \
    dockerfile ipynb csv tex";

/// Whether a list of words has a word.
fn is_listed(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|listed| listed == word)
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|character| character.is_alphanumeric() || character == '_')
        && !text.starts_with(|character: char| character.is_ascii_digit())
}

/// Written as nobody writes prose: with an underscore or a capital inside.
fn looks_like_code(name: &str) -> bool {
    let inner = name.trim_matches('_');
    if inner.contains('_') || (name.starts_with('_') && inner.len() > 1) {
        return true;
    }
    let bytes = name.as_bytes();
    bytes.windows(2).any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
        || bytes.windows(3).any(|three| {
            three[0].is_ascii_uppercase()
                && three[1].is_ascii_uppercase()
                && three[2].is_ascii_lowercase()
                && three[2] != b's'
        })
}

/// Whether a name is, in the form of the index, one of a query's exact identifiers; gives which.
pub(super) fn exact_term(
    name: &str,
    positions: &HashMap<&str, usize>,
    query: &Query,
    buffer: &mut String,
) -> Option<usize> {
    buffer.clear();
    buffer.extend(name.trim_matches('_').chars().flat_map(fold));
    let find = |buffer: &str| positions.get(buffer).copied().filter(|position| query.terms[*position].exact);
    find(buffer).or_else(|| {
        stem(buffer);
        find(buffer)
    })
}

/// The terms of a path.
pub(super) fn path_terms(path: &std::path::Path) -> Vec<String> {
    let mut all = terms(&path.to_string_lossy());
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exact(question: &str) -> Vec<String> {
        Query::parse(question).terms.into_iter().filter(|term| term.exact).map(|term| term.shown).collect()
    }

    #[test]
    fn names_are_told_from_prose() {
        assert_eq!(exact("Where is parse_header called from HookStats?"), ["parse_header", "HookStats"]);
        assert_eq!(exact("what does `flush` do, and retry()?"), ["flush", "retry"]);
        assert_eq!(exact("How does Server::accept_loop work"), ["accept_loop"]);
        assert_eq!(exact("how does `Server::run` work"), ["run"]);
        assert_eq!(exact("How are HTTP errors and APIs retried?"), Vec::<String>::new());
    }

    #[test]
    fn paths_and_modules_are_noticed() {
        let query = Query::parse("In lib/net/tcp.c:120 and main.rs, what does app.core.views.render do?");
        assert_eq!(query.paths, ["lib/net/tcp.c", "main.rs"]);
        assert_eq!(query.modules, ["app/core/views", "app/core/views/render"]);
        assert_eq!(exact("what does app.core.views.render do?"), ["render"]);
    }

    #[test]
    fn stop_words_are_not_searched_for() {
        let query = Query::parse("Where is the rate limit of the uploader implemented?");
        let terms: Vec<_> = query.terms.iter().map(|term| term.term.as_str()).collect();
        assert_eq!(terms, ["rate", "limit", "upload"]);
        assert!(Query::parse("1 + 1 = ?").is_empty());
    }

    #[test]
    fn a_question_about_the_whole_is_told_from_others() {
        for general in [
            "What does this project do?",
            "what is this",
            "Give me a brief overview of this repository",
            "Summarize the codebase.",
            "What is the purpose of this application?",
            "How does it work?",
        ] {
            assert!(Query::parse(general).general, "{general}");
        }
        for other in [
            "",
            "???",
            "C",
            "library",
            "where is it?",
            "what is a?",
            "who uses this code?",
            "What is the purpose of retry.rs?",
            "overview of `main`",
            "What is a cache?",
        ] {
            assert!(!Query::parse(other).general, "{other}");
        }
    }

    #[test]
    fn names_without_letters_are_understood() {
        let found = |question: &str| -> Vec<String> {
            Query::parse(question).terms.into_iter().filter(|term| term.alternative).map(|term| term.term).collect()
        };
        assert_eq!(found("C++"), ["cpp", "cxx", "hpp"]);
        assert_eq!(found("Is there any C++17 in here?"), ["cpp", "cxx", "hpp"]);
        assert_eq!(found("C#/F# code"), ["csharp", "cs", "csproj", "fsharp", "fs", "fsproj"]);
        assert_eq!(found("does it run on .NET?"), ["dotnet", "csproj", "fsproj"]);
        assert!(found("c, counter++, #include, a.net").is_empty());
    }

    #[test]
    fn a_name_at_the_end_of_a_long_text_is_searched_for() {
        let filler: Vec<String> = (0..100).map(|number| format!("filler{number}x")).collect();
        let question = format!("{} where is holds_secret?", filler.join(" "));
        assert!(Query::parse(&question).terms.iter().any(|term| term.exact && term.term == "holds_secret"));
    }

    #[test]
    fn repetition_is_capped() {
        let query = Query::parse("cache cache cache cache cache");
        assert_eq!(query.terms.len(), 1);
        assert!((query.terms[0].weight - 3.0).abs() < f32::EPSILON);
    }

    proptest! {
        #[test]
        fn any_question_is_understood(question in "\\PC{0,200}") {
            let query = Query::parse(&question);
            prop_assert!(query.terms.len() <= MOST_TERMS + MOST_LATE_NAMES);
        }
    }
}
