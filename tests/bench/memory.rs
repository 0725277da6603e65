//! What it costs to keep a workspace's memory and to find it again.
//!
//! A window of 128,000 tokens in 80 exchanges, and a snapshot that knows 500 files. Everything waits for
//! the disk as the daemon does; what the disk itself takes for as many bytes stands beside it, measured
//! in the same rounds. `-- DIRECTORY` measures in another directory, such as one in memory. Prints Markdown tables for `docs/benchmarks.md`; nothing is asserted about speed.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and fails by stopping")]

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use lm_core::{
    conversation::{Block, Message, Role},
    memory::log::{Epoch, Exchange, Form, Opening, Source},
    workspace::store::{EpochHeader, Store},
};
use serde::{Deserialize, Serialize};

const ROUNDS: usize = 60;
const EXCHANGES: usize = 80;
const EXCHANGE_BYTES: usize = 6_000;
const FILES: usize = 500;

/// As a manifest knows a file.
#[derive(Serialize, Deserialize)]
struct KnownFile {
    path: String,
    size: u64,
    modified: u64,
    sha256: String,
    looked_at: u64,
    shown: bool,
}

fn exchange(number: usize) -> Exchange {
    let line = "    pub fn answer(&self, \"question\": &str) -> Result<u32, Error> {\n";
    let text = line.repeat(EXCHANGE_BYTES / line.len());
    let call = Block::ToolUse { id: "call".into(), name: "Read".into(), input: r#"{"file_path":"src/a.rs"}"#.into() };
    let result = Block::ToolResult { id: "call".into(), text: text.into(), is_error: false };
    let messages = vec![
        Message::user(format!("where is number {number} answered?")),
        Message { role: Role::Assistant, blocks: vec![call] },
        Message { role: Role::User, blocks: vec![result] },
        Message::assistant(format!("At src/a.rs:{number}.")),
    ];
    let sources = vec![Source { path: "src/a.rs".into(), sha256: "0".repeat(64).into() }];
    Exchange {
        messages,
        form: Form::Whole,
        dropped_blocks: 0,
        sources,
        said: Vec::new(),
        question: "q".into(),
        observations: 0,
        notes: 0,
        at: 0,
    }
}

fn main() {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let parent = wanted.unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").to_owned());
    let temporary = tempfile::Builder::new().tempdir_in(parent).unwrap();
    let directory = temporary.path().join("memory");
    let root = PathBuf::from("/project");
    let key = "0".repeat(64);
    let open = || Store::open::<Vec<KnownFile>>(&directory, &root, &key);
    let exchanges: Vec<Arc<Exchange>> = (0..EXCHANGES).map(exchange).map(Arc::new).collect();
    let files: Vec<KnownFile> = (0..FILES)
        .map(|number| KnownFile {
            path: format!("src/some/folder/module_{number}.rs"),
            size: 12_345,
            modified: 1_700_000_000_123_456_789,
            sha256: "0".repeat(64),
            looked_at: 1_700_000_000,
            shown: true,
        })
        .collect();
    let system = "a tree of names\n".repeat(3_000);

    let mut rows: [(&str, Vec<Duration>); 6] = [
        ("a new journal with all of it", Vec::new()),
        ("the disk: a file of as many bytes, and its directory", Vec::new()),
        ("one exchange appended", Vec::new()),
        ("the disk: as many bytes appended", Vec::new()),
        ("a snapshot", Vec::new()),
        ("open: journal and snapshot read and checked", Vec::new()),
    ];
    let (mut journal_bytes, mut snapshot_bytes) = (0, 0);
    let appended = fs::OpenOptions::new().append(true).create(true).open(temporary.path().join("appended")).unwrap();
    for round in 0..ROUNDS {
        let mut store = open().store;
        let epoch = EpochHeader { epoch: Epoch(round as u64), name: "lm", system: &system, model: "model" };
        let mut measure = |row: usize, work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            rows[row].1.push(start.elapsed());
        };
        measure(0, &mut || store.begin(&epoch, &Opening::default(), &exchanges).unwrap());
        let path = directory.join(format!("journal-{round}.jsonl"));
        let bytes = fs::read(&path).unwrap();
        journal_bytes = bytes.len();
        measure(1, &mut || write_as_a_whole(temporary.path(), &bytes));
        measure(2, &mut || store.append(&exchanges[0]).unwrap());
        let length = fs::metadata(&path).unwrap().len() as usize - bytes.len();
        measure(3, &mut || {
            (&appended).write_all(&bytes[..length]).unwrap();
            appended.sync_data().unwrap();
        });
        measure(4, &mut || store.save(&files).unwrap());
        snapshot_bytes = fs::metadata(directory.join("memory.json")).unwrap().len();
        let mut opened = None;
        measure(5, &mut || opened = Some(open()));
        let opened = opened.unwrap();
        assert_eq!(opened.epoch.unwrap().exchanges.len(), EXCHANGES + 1);
        assert_eq!(opened.snapshot.unwrap().len(), FILES);
    }
    let (journal_bytes, snapshot_bytes) = (journal_bytes / 1000, snapshot_bytes / 1000);
    println!(
        "| {EXCHANGES} exchanges, {journal_bytes} kB of journal; {FILES} files, {snapshot_bytes} kB of snapshot | median ms | fastest ms | 95 % within ms |\n|---|---|---|---|"
    );
    for (what, times) in &mut rows {
        times.sort_unstable();
        let [median, fastest, slow] =
            [times.len() / 2, 0, times.len() * 95 / 100].map(|at| times[at].as_secs_f64() * 1000.0);
        println!("| {what} | {median:.2} | {fastest:.2} | {slow:.2} |");
    }
}

fn write_as_a_whole(directory: &Path, bytes: &[u8]) {
    let fresh = directory.join("fresh");
    let mut file = File::create(&fresh).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_data().unwrap();
    fs::rename(fresh, directory.join("whole")).unwrap();
    #[cfg(unix)]
    File::open(directory).unwrap().sync_all().unwrap();
}
