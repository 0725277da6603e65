//! The memory as a machine: whatever a session, a person, `git` or a crash does in whatever order, every
//! answer is of now, none is forgotten, and the conversation only grows.
//!
//! The model answers only from what it was sent, with the last value it saw, and looks where it saw
//! none. So an old value in an answer means that the memory showed it as the present one.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Child, Stdio},
    sync::{Arc, Mutex},
};

use lm_tests::{
    ModelServer,
    daemon::{kill, running_pid, wait_until_left},
    files_below,
    model_server::{Gate, SeenRequest, Turn},
    observed::{hook, payload, repository_at, workspace_stats},
    wait_until,
};
use proptest::{prelude::*, test_runner::Config};
use serde_json::json;

use super::{BOTH, Place, answer_in, text};

/// How many files, each with one fact.
const FACTS: usize = 4;
/// Runs of the machine; `LIVE_MEMORY_TEST_MACHINES` asks for more.
const MACHINES: u32 = 12;

#[derive(Clone, Debug)]
enum Step {
    /// A file holds another value, of the same length; the time it had may be put back.
    Edit {
        fact: usize,
        restore_time: bool,
        is_observed: bool,
    },
    Delete(usize),
    /// It lies somewhere else, or where it was.
    Rename(usize),
    /// A session is said to have read or edited it.
    Observe {
        fact: usize,
        tool: &'static str,
    },
    Ask(usize),
    /// Questions at once.
    Together(Vec<usize>),
    /// A question whose asker leaves while the model is at it.
    GivenUp(usize),
    /// The file is edited while the model writes its answer.
    EditedMeanwhile(usize),
    /// The daemon is killed while the model is at a question, which the shim asks again.
    KilledMeanwhile(usize),
    Stop,
    /// The daemon is killed, perhaps in the middle of writing to the journal.
    Kill {
        is_writing: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let fact = 0..FACTS;
    prop_oneof![
        6 => (fact.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(fact, restore_time, is_observed)| Step::Edit { fact, restore_time, is_observed }),
        2 => fact.clone().prop_map(Step::Delete),
        2 => fact.clone().prop_map(Step::Rename),
        3 => (fact.clone(), prop_oneof![Just("Read"), Just("Edit"), Just("Write")])
            .prop_map(|(fact, tool)| Step::Observe { fact, tool }),
        8 => fact.clone().prop_map(Step::Ask),
        2 => prop::collection::vec(fact.clone(), 2..=4).prop_map(Step::Together),
        1 => fact.clone().prop_map(Step::GivenUp),
        1 => fact.clone().prop_map(Step::EditedMeanwhile),
        1 => fact.prop_map(Step::KilledMeanwhile),
        1 => Just(Step::Stop),
        2 => any::<bool>().prop_map(|is_writing| Step::Kill { is_writing }),
    ]
}

/// Answers with the last value that a prompt gives, or looks for it.
fn oracle(request: &SeenRequest) -> String {
    let prompt: String = request.pieces().map(|piece| piece.raw.as_str()).collect();
    // Not what stands last: news may have come after the question.
    let question = &prompt[prompt.rfind("Question:\\nWhat is FACT_").expect("a question of the machine")..];
    let fact = number_after(question, "What is FACT_").unwrap();
    let id = number_after(question, "(question ").expect("a question's number");
    let value = format!("FACT_{fact}: u64 = ");
    let last_value = prompt.rfind(&value).map(|at| (at, number_after(&prompt[at..], &value)));
    let paths = [path(fact as usize, false), path(fact as usize, true)];
    let is_named = |line: &str| paths.iter().any(|path| line.contains(path.as_str()));
    let last_under = |heading: &str| {
        let lines = prompt.match_indices(heading).map(|(at, _)| (at, prompt[at..].split("\\n").next().unwrap()));
        lines.filter(|(_, line)| is_named(line)).map(|(at, _)| at).last()
    };
    let is_after_value = |at: Option<usize>| at.is_some_and(|at| last_value.is_none_or(|(value, _)| at > value));
    let has_looked = request.messages.last().is_some_and(|last| {
        last.role == "tool" || last.pieces.iter().any(|piece| piece.raw.contains("\"tool_result\""))
    });
    let is_gone = is_after_value(last_under("Gone: "));
    let is_void = is_after_value(last_under("Changed or possibly changed"));
    match last_value {
        Some((_, Some(value))) if !is_gone && !is_void => format!("It is {value}. answer-{id}-"),
        _ if has_looked || is_gone => format!("There is none. answer-{id}-"),
        _ => String::new(),
    }
}

fn number_after(text: &str, before: &str) -> Option<u64> {
    let rest = &text[text.find(before)? + before.len()..];
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn path(fact: usize, is_moved: bool) -> String {
    if is_moved { format!("src/moved/fact_{fact}.rs") } else { format!("src/fact_{fact}.rs") }
}

fn content(fact: usize, value: u64) -> String {
    format!("//! Holds one fact.\n\npub const FACT_{fact}: u64 = {value};\n")
}

struct Machine {
    place: Place,
    server: ModelServer,
    /// Holds the next answers back, while it is there.
    gate: Arc<Mutex<Option<Gate>>>,
    /// The value of each fact that is there, and whether its file was moved.
    facts: BTreeMap<usize, (u64, bool)>,
    next_value: u64,
    next_question: u64,
    answered: Vec<u64>,
    given_up: Vec<u64>,
    /// A journal was once left with half a record at its end.
    is_torn: bool,
}

impl Machine {
    fn new(format: usize) -> Self {
        let place = Place::with(&[]);
        repository_at(&place.root);
        let gate = Arc::<Mutex<Option<Gate>>>::default();
        let held = Arc::clone(&gate);
        let server = ModelServer::start(move |request: &SeenRequest| {
            let answer = oracle(request);
            if answer.is_empty() {
                let fact = number_after(&request.question(), "What is FACT_").expect("the first request of a question");
                let input = json!({ "pattern": format!("FACT_{fact}: u64"), "output_mode": "content" });
                return Turn::calls([("Grep", input)]);
            }
            match &*held.lock().unwrap() {
                Some(gate) => Turn::text(&answer).gated(gate),
                None => Turn::text(&answer),
            }
        });
        place.choose(&server, BOTH[format], json!({ "force_explore_when_cold": false }));
        let mut machine = Self {
            place,
            server,
            gate,
            facts: BTreeMap::new(),
            next_value: 1_000,
            next_question: 100,
            answered: vec![],
            given_up: vec![],
            is_torn: false,
        };
        (0..FACTS).for_each(|fact| machine.edit(fact, false));
        machine
    }

    fn file(&self, fact: usize) -> PathBuf {
        let is_moved = self.facts.get(&fact).is_some_and(|(_, is_moved)| *is_moved);
        self.place.root.join(path(fact, is_moved))
    }

    /// Gives a fact another value; makes the file where there is none.
    fn edit(&mut self, fact: usize, restore_time: bool) {
        let file = self.file(fact);
        let before = fs::metadata(&file).and_then(|metadata| metadata.modified()).ok().filter(|_| restore_time);
        self.next_value += 1;
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, content(fact, self.next_value)).unwrap();
        if let Some(before) = before {
            fs::File::options().write(true).open(&file).unwrap().set_modified(before).unwrap();
        }
        self.facts.entry(fact).or_insert((0, false)).0 = self.next_value;
    }

    fn observe(&self, fact: usize, tool: &str) {
        let payload = payload(tool, &self.file(fact), &self.place.root).to_string();
        assert!(hook(&self.place.sandbox, payload.as_bytes()).status.success());
    }

    fn begin_question(&mut self, fact: usize) -> (u64, Child) {
        let id = self.next_question;
        self.next_question += 1;
        let mut command = self.place.command(&format!("What is FACT_{fact}? (question {id})"));
        (id, command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits for an answer, which must be of now.
    fn end_question(&mut self, fact: usize, (id, child): (u64, Child)) {
        let answer = answer_in(&child.wait_with_output().unwrap());
        let expected = match self.facts.get(&fact) {
            Some((value, _)) => format!("It is {value}. answer-{id}-\n"),
            None => format!("There is none. answer-{id}-\n"),
        };
        assert_eq!(text(&answer), expected, "FACT_{fact}: {answer}");
        assert_eq!(answer["stale"], json!([]), "{answer}");
        self.answered.push(id);
    }

    fn ask(&mut self, fact: usize) {
        let known = self.answered.clone();
        let question = self.begin_question(fact);
        let id = question.0;
        self.end_question(fact, question);
        let requests = self.server.requests();
        let own = format!("(question {id})");
        let request = requests.iter().rfind(|request| request.question().contains(&own)).unwrap();
        for earlier in known {
            assert!(request.holds(&format!("answer-{earlier}-")), "answer {earlier} is lost at question {id}");
        }
        for given_up in &self.given_up {
            assert!(!request.holds(&format!("(question {given_up})")), "question {given_up} was given up");
        }
    }

    /// Holds answers back and begins a question, until the model is at it.
    fn hold_question(&mut self, fact: usize) -> (Gate, (u64, Child)) {
        let gate = Gate::default();
        *self.gate.lock().unwrap() = Some(gate.clone());
        let question = self.begin_question(fact);
        wait_until("an answer to be written", || (gate.waiting() == 1).then_some(()));
        *self.gate.lock().unwrap() = None;
        (gate, question)
    }

    fn end_daemon(&self, kindly: bool) {
        let data = self.place.sandbox.data();
        if lm_tests::daemon::has_left(&data) {
            return;
        }
        if kindly {
            assert!(self.place.sandbox.run(&["stop"]).status.success());
        } else {
            kill(running_pid(&data));
        }
        wait_until_left(&data);
    }

    /// Leaves the beginning of a record that was being appended.
    fn tear_journal(&mut self) {
        let workspaces = self.place.sandbox.data().workspaces();
        if !workspaces.exists() {
            return;
        }
        let journals = files_below(&workspaces);
        let journal = journals.iter().find(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        let Some(journal) = journal else { return };
        let bytes = fs::read(journal).unwrap();
        let last = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let torn = [&bytes[..], &bytes[last..last + (bytes.len() - last) / 2]].concat();
        fs::write(journal, torn).unwrap();
        self.is_torn = true;
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Edit { fact, restore_time, is_observed } => {
                self.edit(fact, restore_time);
                if is_observed {
                    self.observe(fact, "Edit");
                }
            }
            Step::Delete(fact) => {
                let _ = fs::remove_file(self.file(fact));
                self.facts.remove(&fact);
            }
            Step::Rename(fact) => {
                let from = self.file(fact);
                if let Some((_, is_moved)) = self.facts.get_mut(&fact) {
                    *is_moved = !*is_moved;
                    let to = self.file(fact);
                    fs::create_dir_all(to.parent().unwrap()).unwrap();
                    fs::rename(from, to).unwrap();
                }
            }
            Step::Observe { fact, tool } => self.observe(fact, tool),
            Step::Ask(fact) => self.ask(fact),
            Step::Together(ref facts) => {
                let asked: Vec<_> = facts.iter().map(|fact| (*fact, self.begin_question(*fact))).collect();
                for (fact, question) in asked {
                    self.end_question(fact, question);
                }
            }
            Step::GivenUp(fact) => {
                let left = self.server.clients_left();
                let (_gate, (id, mut child)) = self.hold_question(fact);
                child.kill().unwrap();
                child.wait().unwrap();
                wait_until("the request to be dropped", || (self.server.clients_left() > left).then_some(()));
                self.given_up.push(id);
            }
            Step::EditedMeanwhile(fact) => {
                let (gate, question) = self.hold_question(fact);
                self.edit(fact, true);
                gate.open();
                self.end_question(fact, question);
            }
            Step::KilledMeanwhile(fact) => {
                let (_gate, question) = self.hold_question(fact);
                kill(running_pid(&self.place.sandbox.data()));
                self.end_question(fact, question);
            }
            Step::Stop => self.end_daemon(true),
            Step::Kill { is_writing } => {
                self.end_daemon(false);
                if is_writing {
                    self.tear_journal();
                }
            }
        }
    }

    fn run(mut self, steps: &[Step]) {
        for step in steps {
            self.take(step);
        }
        (0..FACTS).for_each(|fact| self.ask(fact));
        // Through all of it one conversation, each request an extension of it.
        assert_eq!(self.server.logs(), 1);
        let memory = workspace_stats(&self.place.sandbox, "project").unwrap()["memory"].take();
        assert_eq!(memory["answers"], self.answered.len(), "{memory}");
        // A torn record was never acknowledged; that it was there is said.
        let is_expected = |trouble: &serde_json::Value| {
            self.is_torn && trouble.as_str().is_some_and(|trouble| trouble.contains("is cut off at its end"))
        };
        assert!(memory["troubles"].as_array().unwrap().iter().all(is_expected), "{memory}");
        let last = self.server.requests().pop().unwrap();
        assert!(last.tokens() < 128_000, "{} tokens", last.tokens());
    }
}

#[test]
fn whatever_happens_answers_are_of_now_and_none_is_lost() {
    let machines = std::env::var("LIVE_MEMORY_TEST_MACHINES").ok().and_then(|count| count.parse().ok());
    let config = Config {
        cases: machines.unwrap_or(MACHINES),
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    };
    proptest!(config, |(format in 0..2_usize, steps in prop::collection::vec(step(), 4..20))| {
        Machine::new(format).run(&steps);
    });
}
