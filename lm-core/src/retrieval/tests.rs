//! The engine as a whole, on small trees.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;

struct Workspace {
    guard: TempDir,
}

const FILES: &[(&str, &str)] = &[
    (
        "src/upload.rs",
        "//! Uploads.\n\n/// Holds the rate limit of uploads.\npub struct UploadLimiter {\n    budget: u32,\n}\n\nimpl UploadLimiter {\n    \
         /// Takes from the budget, or says how long to wait.\n    pub fn take_budget(&mut self) -> bool {\n        self.budget > 0\n    }\n}\n",
    ),
    (
        "src/main.rs",
        "mod upload;\n\nfn main() {\n    let limiter = upload::UploadLimiter::default();\n    run(limiter);\n}\n",
    ),
    (
        "src/parser.py",
        "class HeaderParser:\n    \"\"\"Parses headers of requests.\"\"\"\n\n    def parse_header(self, line):\n        return line.split(':')\n",
    ),
    ("README.md", "# Example\n\nServes files, with a limit on uploads.\n"),
    ("tests/test_parser.py", "def test_parse_header():\n    assert HeaderParser().parse_header('a:b')\n"),
];

impl Workspace {
    fn new() -> Self {
        let workspace = Self { guard: TempDir::new().unwrap() };
        fs::create_dir(workspace.root()).unwrap();
        for (path, text) in FILES {
            workspace.write(path, text.as_bytes());
        }
        // Enough other files that a word in one of them tells something.
        for number in 0..30 {
            workspace.write(
                &format!("other/module_{number}.rs"),
                format!("pub fn thing_{number}() -> u32 {{\n    {number}\n}}\n").as_bytes(),
            );
        }
        workspace
    }

    fn root(&self) -> PathBuf {
        self.guard.path().join("root")
    }

    fn index(&self) -> PathBuf {
        self.guard.path().join("data/index")
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn retriever(&self) -> Retriever {
        Retriever::new(self.root(), self.index())
    }

    /// A retriever whose index is ready.
    fn indexed(&self) -> Retriever {
        let retriever = self.retriever();
        ask(&retriever, "upload");
        settle(&retriever);
        assert_eq!(retriever.status().state, IndexState::Ready);
        retriever
    }
}

fn limits() -> SearchLimits {
    SearchLimits { deadline: Instant::now() + Duration::from_secs(30), max_places: 8, max_excerpt_chars: 8000 }
}

fn ask(retriever: &Retriever, question: &str) -> SearchOutcome {
    retriever.search(question, limits(), &|_| {}, &CancellationToken::new()).unwrap()
}

fn settle(retriever: &Retriever) {
    let start = Instant::now();
    while retriever.is_working() {
        assert!(start.elapsed() < Duration::from_secs(60), "the index is never done");
        thread::sleep(Duration::from_millis(5));
    }
}

fn first(outcome: &SearchOutcome) -> &Place {
    outcome.places.first().unwrap_or_else(|| panic!("no place in {outcome:?}"))
}

#[test]
fn the_same_places_are_found_live_and_by_index() {
    for (question, expected) in [
        ("Where is the rate limit of uploads?", "src/upload.rs"),
        ("What does `take_budget` return?", "src/upload.rs"),
        ("Who implements HeaderParser?", "src/parser.py"),
        ("How are request headers parsed?", "src/parser.py"),
        ("What is in src/main.rs?", "src/main.rs"),
        ("Which test covers parse_header?", "tests/test_parser.py"),
        ("module 17", "other/module_17.rs"),
    ] {
        let workspace = Workspace::new();
        // One retriever at a time: two would make their indexes in the same place.
        let retriever = workspace.retriever();
        let live = ask(&retriever, question);
        assert_eq!(live.how, How::Live { complete: true });
        assert_eq!(first(&live).path, expected, "live: {question}");
        settle(&retriever);
        let indexed = ask(&retriever, question);
        assert_eq!(indexed.how, How::Indexed { complete: true });
        assert_eq!(first(&indexed).path, expected, "by index: {question}");
        assert_eq!(live.files_searched, indexed.files_searched);
    }
}

#[test]
fn places_are_exact() {
    let workspace = Workspace::new();
    let retriever = workspace.indexed();
    let outcome = ask(&retriever, "take_budget");
    let place = first(&outcome);
    let text = fs::read_to_string(workspace.root().join(&place.path)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[place.first_line - 1..place.last_line].join("\n"), place.excerpt);
    assert!(place.excerpt.contains("pub fn take_budget"));
    assert!(place.why.contains("defines `take_budget`"), "{}", place.why);
    assert_eq!(place.sha256.len(), 64);
}

#[test]
fn what_does_not_exist_is_said_to_be_absent() {
    let workspace = Workspace::new();
    for retriever in [workspace.retriever(), workspace.indexed()] {
        let outcome = ask(&retriever, "Where is `frobnicate_widget` called?");
        assert_eq!(outcome.verdict, Verdict::Nothing, "{outcome:?}");
        assert!(outcome.places.is_empty());
        assert!(outcome.absent_terms.contains(&"frobnicate_widget".to_owned()), "{:?}", outcome.absent_terms);
        let outcome = ask(&retriever, "How does the kubernetes operator reconcile tenants?");
        assert_ne!(outcome.verdict, Verdict::Found, "{outcome:?}");
        assert!(outcome.absent_terms.contains(&"kubernetes".to_owned()));
    }
}

#[test]
fn a_name_that_every_file_has_is_found_whatever_else_is_asked() {
    let workspace = Workspace::new();
    for number in 0..60 {
        workspace.write(&format!("src/caller_{number}.rs"), b"fn run() { shared_counter(); }\n");
    }
    let retriever = workspace.retriever();
    // Live, then by index.
    for _ in 0..2 {
        let outcome = ask(&retriever, "who invokes shared_counter and wherefore?");
        assert_eq!(outcome.verdict, Verdict::Found, "{outcome:?}");
        let outcome = ask(&retriever, "who connects shared_counter with unheard_of_thing?");
        assert_eq!((outcome.verdict, outcome.places.is_empty()), (Verdict::Weak, false), "{outcome:?}");
        assert_eq!(ask(&retriever, "where is `unheard_of_thing`?").verdict, Verdict::Nothing);
        settle(&retriever);
    }
}

#[test]
fn a_misspelt_name_gets_the_right_one_suggested() {
    let workspace = Workspace::new();
    let outcome = ask(&workspace.indexed(), "What is UploadLimitter?");
    assert_eq!(outcome.suggestions.first().map(String::as_str), Some("UploadLimiter"), "{outcome:?}");
}

#[test]
fn a_slip_in_the_first_letters_gets_a_suggestion_too() {
    let workspace = Workspace::new();
    let retriever = workspace.indexed();
    for misspelt in ["who calls YploadLimiter?", "who calls Xu_ploadLimiter?", "where is `ztake_budget`?"] {
        let outcome = ask(&retriever, misspelt);
        assert_eq!(outcome.suggestions.len(), 1, "{misspelt}: {outcome:?}");
    }
}

#[test]
fn a_general_question_gets_what_introduces_the_workspace() {
    let workspace = Workspace::new();
    workspace.write("Cargo.toml", b"[package]\nname = \"example\"\n");
    for retriever in [workspace.retriever(), workspace.indexed()] {
        let outcome = ask(&retriever, "What does this project do?");
        assert_eq!(outcome.verdict, Verdict::Overview);
        let paths: Vec<&str> = outcome.places.iter().map(|place| place.path.as_str()).collect();
        assert_eq!(paths, ["README.md", "Cargo.toml", "src/main.rs"]);
        assert_eq!((first(&outcome).first_line, first(&outcome).last_line), (1, 3));
        assert!(first(&outcome).excerpt.contains("Serves files"));
        settle(&retriever);
    }
    fs::remove_dir_all(workspace.root()).unwrap();
    fs::create_dir(workspace.root()).unwrap();
    assert_eq!(ask(&workspace.retriever(), "What does this project do?").verdict, Verdict::Nothing);
}

#[test]
fn names_without_letters_find_their_files() {
    let workspace = Workspace::new();
    workspace.write("native/engine.cpp", b"int main() { return 0; }\n");
    workspace.write("native/Tool.csproj", b"<Project>\n</Project>\n");
    for retriever in [workspace.retriever(), workspace.indexed()] {
        for (question, expected) in
            [("C++", "native/engine.cpp"), ("Is there any C#?", "native/Tool.csproj"), (".NET", "native/Tool.csproj")]
        {
            let outcome = ask(&retriever, question);
            assert_eq!(first(&outcome).path, expected, "{question}: {outcome:?}");
            assert!(outcome.absent_terms.iter().all(|term| term == "NET"), "{outcome:?}");
            settle(&retriever);
        }
        let outcome = ask(&retriever, "F#");
        assert_eq!((outcome.verdict, outcome.absent_terms.len()), (Verdict::Nothing, 0), "{outcome:?}");
    }
}

#[test]
fn case_of_any_letter_does_not_count() {
    let workspace = Workspace::new();
    workspace.write("src/maß.py", "def größe_der_straße():\n    return 1\n".as_bytes());
    for retriever in [workspace.retriever(), workspace.indexed()] {
        for question in ["where is GRÖSSE_DER_STRASSE?", "`Größe_der_Straße`"] {
            let outcome = ask(&retriever, question);
            assert_eq!((first(&outcome).path.as_str(), outcome.verdict), ("src/maß.py", Verdict::Found), "{outcome:?}");
            settle(&retriever);
        }
    }
}

#[test]
fn an_empty_file_that_is_named_is_found_to_be_empty() {
    let workspace = Workspace::new();
    workspace.write("src/nothing_in_here.rs", b"");
    for retriever in [workspace.retriever(), workspace.indexed()] {
        let outcome = ask(&retriever, "What is in src/nothing_in_here.rs?");
        assert_eq!(
            (outcome.verdict, outcome.empty_files),
            (Verdict::Nothing, vec!["src/nothing_in_here.rs".to_owned()])
        );
        let outcome = ask(&retriever, "What is in src/main.rs?");
        assert!(outcome.empty_files.is_empty());
        settle(&retriever);
    }
}

#[test]
fn a_search_cut_short_calls_nothing_absent() {
    let workspace = Workspace::new();
    let out_of_time = SearchLimits { deadline: Instant::now(), ..limits() };
    let outcome =
        workspace.retriever().search("frobnicate_widget", out_of_time, &|_| {}, &CancellationToken::new()).unwrap();
    assert_eq!(outcome.how, How::Live { complete: false });
    assert!(outcome.absent_terms.is_empty());
}

#[test]
fn a_cancelled_search_ends_with_that() {
    let workspace = Workspace::new();
    let cancel = CancellationToken::new();
    cancel.cancel();
    for retriever in [workspace.retriever(), workspace.indexed()] {
        let outcome = retriever.search("upload", limits(), &|_| {}, &cancel);
        assert!(matches!(outcome, Err(SearchError::Cancelled)));
    }
}

#[test]
fn a_question_without_words_is_refused_with_advice() {
    let workspace = Workspace::new();
    for question in ["", "???", "C", "a ! b", "1 + 1 = ?"] {
        let outcome = workspace.retriever().search(question, limits(), &|_| {}, &CancellationToken::new());
        assert!(matches!(outcome, Err(SearchError::NothingToSearch)), "{question}");
    }
}

#[test]
fn a_question_about_the_whole_project_leads_to_its_introduction() {
    let workspace = Workspace::new();
    workspace.write("README.md", b"# Uploader\n\nMoves files to where they belong.\n\n## Overview\n\nOne binary.\n");
    workspace.write("bindings/cpp/upload.cc", b"// The cpp side of it.\nvoid upload() {}\n");
    for retriever in [workspace.retriever(), workspace.indexed()] {
        for question in ["What does this project do?", "what is this?"] {
            let outcome = ask(&retriever, question);
            assert_eq!(outcome.places.first().map(|place| place.path.as_str()), Some("README.md"), "{question}");
            assert_eq!(outcome.absent_terms, Vec::<String>::new());
        }
        assert_eq!(ask(&retriever, "C++?").places[0].path, "bindings/cpp/upload.cc");
    }
}

#[test]
fn a_vanished_workspace_is_an_error() {
    let workspace = Workspace::new();
    let retriever = workspace.retriever();
    fs::remove_dir_all(workspace.root()).unwrap();
    let outcome = retriever.search("upload", limits(), &|_| {}, &CancellationToken::new());
    // The open handle still lists the deleted directory on some systems: then it is empty.
    match outcome {
        Err(SearchError::Workspace { .. }) => {}
        Ok(outcome) => assert!(outcome.places.is_empty() && outcome.files_searched == 0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn changes_count_at_once_and_reach_the_index() {
    let workspace = Workspace::new();
    let retriever = workspace.indexed();
    workspace.write("src/upload.rs", b"pub fn entirely_different() {}\n");
    workspace.write("src/fresh.rs", b"pub fn brand_new_function() {}\n");
    fs::remove_file(workspace.root().join("src/parser.py")).unwrap();
    fs::remove_file(workspace.root().join("tests/test_parser.py")).unwrap();
    for round in 0..2 {
        let at = |question: &str| ask(&retriever, question);
        assert_eq!(first(&at("entirely_different")).path, "src/upload.rs", "round {round}");
        assert_eq!(first(&at("brand_new_function")).path, "src/fresh.rs", "round {round}");
        let gone = at("parse_header");
        assert!(gone.places.is_empty() && gone.absent_terms.contains(&"parse_header".to_owned()), "{gone:?}");
        let gone = at("take_budget");
        assert!(gone.absent_terms.contains(&"take_budget".to_owned()), "{gone:?}");
        settle(&retriever);
    }
    assert_eq!(retriever.status().state, IndexState::Ready);
    assert_eq!(retriever.status().files, FILES.len() + 30 - 2 + 1);
}

#[test]
fn a_change_of_the_same_size_at_the_same_time_is_seen() {
    let workspace = Workspace::new();
    workspace.write("src/a.rs", b"fn first_name() {}\n");
    let retriever = workspace.indexed();
    let path = workspace.root().join("src/a.rs");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, b"fn other_name() {}\n").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert_eq!(first(&ask(&retriever, "other_name")).path, "src/a.rs");
}

#[test]
fn the_index_is_kept_for_the_next_process() {
    let workspace = Workspace::new();
    drop(workspace.indexed());
    workspace.write("src/later.rs", b"fn written_meanwhile() {}\n");
    let retriever = workspace.retriever();
    let outcome = ask(&retriever, "take_budget");
    assert_eq!(outcome.how, How::Indexed { complete: true });
    assert_eq!(first(&outcome).path, "src/upload.rs");
    assert_eq!(first(&ask(&retriever, "written_meanwhile")).path, "src/later.rs");
}

#[test]
fn a_damaged_index_is_built_anew() {
    for damage in [truncate as fn(&Path), fill_with_noise, drop_meta] {
        let workspace = Workspace::new();
        drop(workspace.indexed());
        damage(&workspace.index());
        let retriever = workspace.retriever();
        assert_eq!(first(&ask(&retriever, "take_budget")).path, "src/upload.rs");
        settle(&retriever);
        let outcome = ask(&retriever, "take_budget");
        assert_eq!(outcome.how, How::Indexed { complete: true });
        assert_eq!(first(&outcome).path, "src/upload.rs");
    }
}

fn index_files(index: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(index).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| ["idx", "term", "store"].iter().any(|end| path.extension().is_some_and(|own| own == *end)))
        .collect()
}

fn truncate(index: &Path) {
    for file in index_files(index) {
        let length = fs::metadata(&file).unwrap().len();
        fs::File::options().write(true).open(file).unwrap().set_len(length / 2).unwrap();
    }
}

fn fill_with_noise(index: &Path) {
    for file in index_files(index) {
        let length = usize::try_from(fs::metadata(&file).unwrap().len()).unwrap();
        fs::write(file, vec![0xa5; length]).unwrap();
    }
}

fn drop_meta(index: &Path) {
    fs::write(index.join("meta.json"), "{}").unwrap();
}

#[test]
fn an_index_of_another_workspace_is_not_used() {
    let workspace = Workspace::new();
    let other = Workspace::new();
    other.write("only_there.rs", b"fn canary_elsewhere() {}\n");
    drop(other.indexed());
    let retriever = Retriever::new(workspace.root(), other.index());
    let outcome = ask(&retriever, "canary_elsewhere");
    assert_eq!(outcome.how, How::Live { complete: true });
    assert!(outcome.places.is_empty());
}

#[test]
fn an_index_that_cannot_be_written_leaves_live_search() {
    let workspace = Workspace::new();
    // A file where the index's parent should be.
    fs::write(workspace.guard.path().join("data"), "").unwrap();
    let retriever = workspace.retriever();
    for _ in 0..2 {
        assert_eq!(first(&ask(&retriever, "take_budget")).path, "src/upload.rs");
        settle(&retriever);
    }
    assert!(matches!(retriever.status().state, IndexState::Failed(_)), "{:?}", retriever.status());
}

#[test]
fn secrets_are_neither_shown_nor_in_the_index() {
    let workspace = Workspace::new();
    let canary = "canaryvaluexyz";
    let token = format!("gh{}_{}", "p", "q7Zt1LxV0sPd9KfR3mWb8YcN5hJg2TuE6aQv");
    workspace.write(".env", format!("PASSWORD={canary}\n").as_bytes());
    workspace.write("config/client.py", format!("TOKEN = '{token}'\n# {canary}\n").as_bytes());
    for retriever in [workspace.retriever(), workspace.indexed()] {
        let outcome = ask(&retriever, &format!("where is {canary} in the config client?"));
        assert!(outcome.places.iter().all(|place| !place.excerpt.contains(canary)), "{outcome:?}");
        assert!(outcome.absent_terms.contains(&canary.to_owned()));
        assert_eq!(outcome.left_out.secret, 2, "{outcome:?}");
    }
    for file in fs::read_dir(workspace.index()).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        assert!(memchr::memmem::find(&bytes, canary.as_bytes()).is_none());
        assert!(memchr::memmem::find(&bytes, token[4..].to_lowercase().as_bytes()).is_none());
    }
}

#[test]
fn overlong_lines_and_many_places_stay_within_the_limits() {
    let workspace = Workspace::new();
    workspace.write(
        "dist/bundle.js",
        format!("{}function collectStats(){{}}{}", "a=1;".repeat(120_000), "b=2;".repeat(1_200_000)).as_bytes(),
    );
    for number in 0..40 {
        workspace.write(&format!("many/file_{number}.rs"), "fn collect_stats() { stats(); }\n".repeat(200).as_bytes());
    }
    for retriever in [workspace.retriever(), workspace.indexed()] {
        let outcome = ask(&retriever, "collectStats");
        assert!(outcome.places.iter().map(|place| place.excerpt.chars().count()).sum::<usize>() <= 8000);
        assert!(outcome.places.iter().all(|place| place.excerpt.lines().all(|line| line.chars().count() <= 500)));
        let bundle = outcome.places.iter().find(|place| place.path == "dist/bundle.js").unwrap();
        assert!(bundle.excerpt.contains("collectStats") && bundle.excerpt.contains("characters"), "{}", bundle.excerpt);
        assert_eq!(outcome.left_out.cut, 1);
    }
}

#[test]
fn other_encodings_are_searched_too() {
    let workspace = Workspace::new();
    let utf16: Vec<u8> = "\u{feff}fn wide_characters() {}\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    workspace.write("src/wide.rs", &utf16);
    workspace.write("src/latin.rs", b"// caf\xe9\nfn narrow_characters() {}\n");
    for retriever in [workspace.retriever(), workspace.indexed()] {
        assert_eq!(first(&ask(&retriever, "wide_characters")).path, "src/wide.rs");
        assert_eq!(first(&ask(&retriever, "narrow_characters")).path, "src/latin.rs");
    }
}

#[test]
fn an_empty_workspace_has_nothing() {
    let workspace = Workspace::new();
    fs::remove_dir_all(workspace.root()).unwrap();
    fs::create_dir(workspace.root()).unwrap();
    for retriever in [workspace.retriever(), workspace.indexed()] {
        let outcome = ask(&retriever, "anything_here");
        assert_eq!((outcome.verdict, outcome.files_searched), (Verdict::Nothing, 0));
        assert!(outcome.how.is_complete());
    }
}

/// Each update adds a segment; past a number of them they are merged, deleted files left out.
#[test]
fn many_updates_later_the_index_is_that_of_the_files() {
    let workspace = Workspace::new();
    let retriever = workspace.indexed();
    let mut most_segments = 0;
    let was_merged = std::cell::Cell::new(false);
    let mut last = 0;
    // How many updates become one segment depends on how busy the machine is.
    for update in (0..80).take_while(|update| *update < 22 || !was_merged.get()) {
        last = update;
        let text = format!("pub fn changed_in_{update}() {{}}\npub fn renewed_thing() -> u32 {{ {update} }}\n");
        workspace.write("src/renewed.rs", text.as_bytes());
        workspace.write(&format!("added/number_{update}.rs"), format!("pub fn added_{update}() {{}}\n").as_bytes());
        fs::remove_file(workspace.root().join(format!("other/module_{}.rs", update % 30))).ok();
        ask(&retriever, "renewed_thing");
        settle(&retriever);
        let segments = retriever.segments();
        was_merged.set(was_merged.get() || segments < most_segments);
        most_segments = most_segments.max(segments);
    }
    assert!(was_merged.get(), "{most_segments} segments, never merged");
    for (question, expected) in [
        (format!("where is changed_in_{last}?").as_str(), Some("src/renewed.rs")),
        ("where is changed_in_3?", None),
        ("where is added_0?", Some("added/number_0.rs")),
        ("where is added_21?", Some("added/number_21.rs")),
        ("where is the UploadLimiter?", Some("src/upload.rs")),
    ] {
        // A search that meets an update is made live.
        settle(&retriever);
        let outcome = ask(&retriever, question);
        assert_eq!(outcome.how, How::Indexed { complete: true }, "{question} {:?}", retriever.status());
        assert_eq!(outcome.places.first().map(|place| place.path.as_str()), expected, "{question}");
    }
    let gone = ask(&retriever, "where is thing_7?");
    assert!(gone.absent_terms.contains(&"thing_7".to_owned()), "{gone:?}");
    let fresh = Workspace { guard: TempDir::new().unwrap() };
    let anew = Retriever::new(workspace.root(), fresh.index());
    ask(&anew, "upload");
    settle(&anew);
    // Scores may differ a little: until they are merged away, deleted files count in how rare a word is.
    let best = |retriever: &Retriever, question: &str| first(&ask(retriever, question)).path.clone();
    for question in ["renewed_thing", "added 17", "rate limit of uploads", "HeaderParser", "module 29"] {
        assert_eq!(best(&retriever, question), best(&anew, question), "{question}");
    }
}

/// Searches that began before the index was there end after it is; none may have it built again under
/// those that use it by then.
#[test]
fn nothing_is_lost_while_the_index_comes_into_use() {
    for _ in 0..6 {
        let workspace = Workspace::new();
        let retriever = workspace.retriever();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut by_index = 0;
                    while by_index < 10 {
                        let outcome = ask(&retriever, "where is take_budget?");
                        assert_eq!(first(&outcome).path, "src/upload.rs", "{outcome:?}");
                        by_index += usize::from(matches!(outcome.how, How::Indexed { .. }));
                    }
                });
            }
        });
        settle(&retriever);
        let built_in = retriever.status().built_in;
        retriever.shared.start_build(FILES.len(), &crate::files::Excluded::default());
        settle(&retriever);
        assert_eq!((retriever.status().state, retriever.status().built_in), (IndexState::Ready, built_in));
    }
}
