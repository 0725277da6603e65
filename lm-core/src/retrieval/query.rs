//! A question to what is searched for: weighted terms, exact identifiers, mentions of paths.
//!
//! Pure.

use std::collections::HashMap;

use super::tokenize::{Terms, stem, terms};

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
        if query.query.terms.is_empty() {
            query.read_languages(question);
        }
        if query.query.terms.is_empty() && question.chars().any(char::is_alphabetic) {
            query.ask_in_general();
        }
        query.finish()
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
            self.query.paths.push(without_line.replace('\\', "/").trim_start_matches('/').to_lowercase());
            return;
        }
        if let Some((stem, extension)) = without_line.rsplit_once('.')
            && !stem.is_empty()
            && is_listed(FILE_EXTENSIONS, &extension.to_lowercase())
        {
            self.query.paths.push(without_line.to_lowercase());
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
            let path = names.join("/").to_lowercase();
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
            let lower = word.to_lowercase();
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
            self.query.terms.push(QueryTerm { term, shown: shown.to_owned(), weight: 1.0, exact, part });
        }
    }

    /// If nothing is left but stop words, they are what is asked for.
    /// Names of languages that are no words without their signs.
    fn read_languages(&mut self, question: &str) {
        for word in question.to_lowercase().split_whitespace() {
            let word = word.trim_end_matches(['?', '!', ',', ';', ':', '.']);
            let names: &[&str] = match word {
                "c++" => &["cpp", "cxx"],
                "c#" => &["csharp"],
                "f#" => &["fsharp"],
                ".net" => &["dotnet"],
                "c" | "r" | "d" => &[word],
                _ => &[],
            };
            names.iter().for_each(|name| self.add_word(name, word));
        }
    }

    /// A question of nothing but common words is about the project as a whole, which its own
    /// introduction answers best.
    fn ask_in_general(&mut self) {
        for word in ["readme", "overview", "introduction", "architecture"] {
            self.add_word(word, word);
        }
        self.query.paths.push("readme.md".to_owned());
    }

    fn add_word(&mut self, word: &str, shown: &str) {
        self.query.stems.push(word.to_owned());
        let mut term = word.to_owned();
        stem(&mut term);
        self.query.terms.push(QueryTerm {
            term,
            shown: shown.to_owned(),
            weight: 1.0,
            exact: false,
            // Its absence says nothing: the person did not name it so.
            part: true,
        });
    }

    fn finish(mut self) -> Query {
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
    buffer.extend(name.trim_matches('_').chars().flat_map(char::to_lowercase));
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
        let in_general = Query::parse("what is this?");
        assert!(in_general.terms.iter().any(|term| term.shown == "readme" && term.part));
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
