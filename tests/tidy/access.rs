//! Who may open files, start processes, print, use unsafe code, and name which crate.

use crate::source::{File, names, project_files};

/// Words that only the named places may use; a place that ends in `/` is a folder.
struct Rule {
    /// What is guarded, for the message.
    what: &'static str,
    /// Any of these in a line of code is a use.
    words: &'static [&'static str],
    /// Where the rule holds.
    within: &'static str,
    /// Where the words may be used.
    allowed: &'static [&'static str],
}

const EVERYWHERE: &str = "lm-";

const RULES: &[Rule] = &[
    Rule {
        what: "opens files",
        words: &["std::fs", "fs::", "tokio::fs", "File::open", "File::create", "OpenOptions"],
        within: "lm-core/",
        allowed: &[
            // The one door to workspace files,
            "lm-core/src/files/",
            // finding where a workspace begins, before there is a door to it,
            "lm-core/src/workspace/root.rs",
            "lm-core/src/workspace/repository.rs",
            "lm-core/src/workspace/registry.rs",
            // what is kept of a workspace in the data directory,
            "lm-core/src/workspace/kept.rs",
            // the file that a person named for the key,
            "lm-core/src/llm/credentials.rs",
            // judging a git repository before it is opened, and the user's own git configuration,
            "lm-core/src/tools/git/open.rs",
            "lm-core/src/tools/git/user.rs",
            // and the data directory.
            "lm-core/src/settings/config_file.rs",
            "lm-core/src/budget/store.rs",
            "lm-core/src/daemon/",
            "lm-core/src/main.rs",
            "lm-core/src/retrieval/index/",
            "lm-core/src/workspace/store/",
        ],
    },
    Rule {
        what: "starts processes",
        words: &["process::Command", "Command::new", "tokio::process", "posix_spawn", "CreateProcessW"],
        within: EVERYWHERE,
        allowed: &["lm-shim/src/spawn.rs"],
    },
    Rule {
        what: "is unsafe",
        words: &["unsafe"],
        within: EVERYWHERE,
        allowed: &["lm-shim/src/spawn.rs", "lm-proto/src/user_windows.rs", "lm-core/src/daemon/allocator.rs"],
    },
    Rule {
        what: "writes to stdout or stderr",
        words: &["println!", "print!", "eprintln!", "eprint!", "dbg!", "io::stdout", "io::stderr"],
        within: EVERYWHERE,
        allowed: &["lm-shim/src/cli/", "lm-shim/src/stdio/", "lm-core/src/daemon/logging.rs", "lm-core/src/main.rs"],
    },
    Rule {
        what: "opens network connections",
        words: &["std::net", "tokio::net", "TcpStream", "TcpListener", "UdpSocket"],
        within: EVERYWHERE,
        allowed: &[],
    },
    Rule {
        what: "names interprocess",
        words: &["interprocess"],
        within: EVERYWHERE,
        allowed: &["lm-proto/src/endpoint.rs"],
    },
    Rule { what: "names reqwest", words: &["reqwest"], within: EVERYWHERE, allowed: &["lm-core/src/llm/"] },
    Rule {
        what: "reads a secret",
        words: &["expose_secret", "ExposeSecret"],
        within: EVERYWHERE,
        allowed: &["lm-core/src/llm/credentials.rs"],
    },
    Rule { what: "names cap_std", words: &["cap_std"], within: EVERYWHERE, allowed: &["lm-core/src/files/"] },
    Rule { what: "names gix", words: &["gix"], within: EVERYWHERE, allowed: &["lm-core/src/tools/git/"] },
    Rule { what: "names tantivy", words: &["tantivy"], within: EVERYWHERE, allowed: &["lm-core/src/retrieval/"] },
    Rule {
        what: "names rmcp",
        words: &["rmcp"],
        within: EVERYWHERE,
        allowed: &["lm-shim/src/mcp/", "lm-shim/src/stdio/"],
    },
    Rule {
        what: "names clap",
        words: &["clap"],
        within: EVERYWHERE,
        allowed: &["lm-shim/src/cli/", "lm-core/src/main.rs"],
    },
    Rule {
        what: "leaves fields out of messages, which postcard cannot read back",
        words: &[
            "skip",
            "skip_serializing",
            "skip_serializing_if",
            "skip_deserializing",
            "flatten",
            "untagged",
            "Value",
        ],
        within: "lm-proto/src/message.rs",
        allowed: &[],
    },
];

fn is_under(path: &str, place: &str) -> bool {
    path == place || (place.ends_with('/') && path.starts_with(place))
}

fn violations(files: &[File]) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_product_code()) {
        let broken: Vec<&Rule> = RULES
            .iter()
            .filter(|rule| {
                file.path.starts_with(rule.within) && !rule.allowed.iter().any(|place| is_under(&file.path, place))
            })
            .collect();
        for (number, line) in file.code() {
            for rule in &broken {
                if let Some(word) = rule.words.iter().find(|word| names(&line, word)) {
                    violations
                        .push(format!("{}:{number}: `{word}` {}; allowed: {:?}", file.path, rule.what, rule.allowed));
                }
            }
        }
    }
    violations
}

#[test]
fn only_the_named_places_touch_the_world() {
    let violations = violations(&project_files());
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// A place that does not exist any more would let the next file of that name do what it likes.
#[test]
fn every_allowed_place_exists() {
    let files = project_files();
    let missing: Vec<_> = RULES
        .iter()
        .flat_map(|rule| rule.allowed)
        .filter(|place| !files.iter().any(|file| is_under(&file.path, place)))
        .collect();
    assert!(missing.is_empty(), "these places are gone: {missing:?}");
}

#[test]
fn every_rule_can_be_broken() {
    for rule in RULES {
        let path =
            if rule.within.ends_with(".rs") { rule.within.to_owned() } else { "lm-core/src/agent/mod.rs".to_owned() };
        let file = File { path, text: format!("fn f() {{ {} }}", rule.words[0]) };
        assert!(!violations(&[file]).is_empty(), "nothing guards against code that {}", rule.what);
    }
    let harmless =
        File { path: "lm-core/src/agent/mod.rs".into(), text: "// unsafe println! \nlet a = \"tantivy\";".into() };
    assert_eq!(violations(&[harmless]), Vec::<String>::new());
}
