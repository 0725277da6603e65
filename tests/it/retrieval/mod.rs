//! Answers about real files: found where they are, as they are now, and nothing that must stay hidden.

mod freshness;
mod ignored;
#[cfg(unix)]
mod odd_files;
mod secrets;
mod shown;

use std::{
    fs,
    path::{Path, PathBuf},
};

use lm_tests::{Sandbox, run, wait_until};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// As much of a file is searched.
const READ_AT_MOST: usize = 1 << 20;

/// A workspace and the sandbox it lies in.
struct Tree {
    sandbox: Sandbox,
    root: PathBuf,
}

impl Tree {
    /// An empty one, no repository.
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let root = sandbox.workspace("tree");
        Self { sandbox, root }
    }

    /// One with files.
    fn with(files: &[(&str, &str)]) -> Self {
        let tree = Self::new();
        for (path, text) in files {
            tree.write(path, text.as_bytes());
        }
        tree
    }

    fn write(&self, path: impl AsRef<Path>, bytes: &[u8]) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Asks and gives the answer's JSON, after its sources were checked against the files.
    fn ask(&self, question: &str) -> Value {
        self.ask_with(&[], question)
    }

    fn ask_with(&self, options: &[&str], question: &str) -> Value {
        let mut command = self.sandbox.shim(&["ask", "--json"]);
        let output = command.args(options).arg(question).current_dir(&self.root).output().unwrap();
        run::succeeded(&output);
        let answer = run::json(&output);
        self.check(&answer);
        answer
    }

    /// Asks and gives the answer's text.
    fn ask_text(&self, question: &str) -> String {
        run::succeeded(&self.sandbox.shim(&["ask", question]).current_dir(&self.root).output().unwrap())
    }

    /// Every source is a file as it is now, and every line of a UTF-8 file is shown as it stands there.
    fn check(&self, answer: &Value) {
        let text = answer["answer"].as_str().unwrap();
        for source in answer["sources"].as_array().unwrap() {
            let path = source["path"].as_str().unwrap();
            // Names that had to be escaped are looked at by their own test.
            if path.contains('\\') {
                continue;
            }
            let mut bytes = fs::read(self.root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            // Of a large file the beginning is read.
            bytes.truncate(READ_AT_MOST);
            let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(source["sha256"], digest, "{path}");
            let (first, last) = (source["first_line"].as_u64().unwrap(), source["last_line"].as_u64().unwrap());
            let heading = format!("### {path}:{first}-{last}\n");
            let (_, place) = text.split_once(&heading).unwrap_or_else(|| panic!("no {heading}in {text}"));
            let Ok(file) = String::from_utf8(bytes) else { continue };
            let mut shown = place.lines().skip(2);
            for (number, line) in (1..).zip(file.lines()).filter(|(number, _)| (first..=last).contains(number)) {
                // Overlong lines are shown in part.
                if line.len() < 200 {
                    assert_eq!(
                        shown.next().map(str::trim_start),
                        Some(format!("{number}  {line}").trim_end()),
                        "{path}"
                    );
                } else {
                    shown.next();
                }
            }
        }
    }

    /// Where the index of this workspace stands.
    fn index(&self) -> Value {
        let output = self.sandbox.shim(&["stats", "--json"]).current_dir(&self.root).output().unwrap();
        run::json(&output)["workspaces"][0]["index"].clone()
    }

    /// The daemon's log.
    fn log(&self) -> String {
        fs::read_to_string(self.sandbox.data().core_log()).unwrap_or_default()
    }

    /// Waits until the index is there and no work on it goes on.
    fn wait_for_index(&self) -> Value {
        wait_until("the index", || {
            let index = self.index();
            assert_ne!(index["state"], "failed", "{index}\n{}", self.log());
            (index["state"] == "ready").then_some(index)
        })
    }

    /// Asks something so that an index is made, and waits for it.
    fn indexed(self) -> Self {
        self.ask("where is the beginning?");
        self.wait_for_index();
        self
    }

    /// Asks by live search and then by index; both must say the same of these.
    fn ask_both_ways(&self, question: &str) -> [Value; 2] {
        let live = self.ask(question);
        assert_eq!(live["search"]["mode"], "live");
        self.wait_for_index();
        let indexed = self.ask(question);
        assert_eq!(indexed["search"]["mode"], "index");
        [live, indexed]
    }
}

/// The paths of an answer's sources.
fn paths(answer: &Value) -> Vec<&str> {
    answer["sources"].as_array().unwrap().iter().map(|source| source["path"].as_str().unwrap()).collect()
}

/// That an answer says that there is nothing, and names what it looked for.
fn assert_absent(answer: &Value, name: &str) {
    assert_eq!(answer["search"]["verdict"], "nothing", "{answer}");
    assert_eq!(answer["search"]["complete"], true, "{answer}");
    assert!(answer["search"]["absent_terms"].as_array().unwrap().iter().any(|term| term == name), "{answer}");
    let text = answer["answer"].as_str().unwrap();
    assert!(text.contains(&format!("`{name}` occurs nowhere")), "{text}");
    assert!(paths(answer).is_empty());
}
