//! What a question costs besides the model: the time from an MCP call to its answer, less the time that
//! the model server had the request.
//!
//! The conversation is filled to about 64,000 tokens first. The server answers at once and notes when a
//! request had come in whole and when its answer had gone out. Prints a Markdown table for
//! `docs/benchmarks.md`; nothing is asserted about speed.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and fails by stopping")]

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use lm_tests::{McpClient, Sandbox};
use serde_json::json;

/// How many files are read to fill the window, and how long each is.
const FILES: usize = 12;
const FILE_BYTES: usize = 17_000;
const QUESTIONS: usize = 200;

/// What the server saw of one request.
#[derive(Clone, Copy)]
struct Served {
    bytes: usize,
    took: Duration,
}

fn main() {
    let sandbox = Sandbox::new();
    let root = sandbox.workspace("project");
    for file in 0..FILES {
        let mut text = String::new();
        while text.len() < FILE_BYTES {
            let _ = writeln!(text, "pub fn function_{file}_{}(argument: u32) -> u32 {{ argument }}", text.len());
        }
        fs::write(root.join(format!("module_{file}.rs")), text).unwrap();
    }
    let served = Arc::<Mutex<Vec<Served>>>::default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let noted = Arc::clone(&served);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let noted = Arc::clone(&noted);
            thread::spawn(move || serve(stream.unwrap(), &noted));
        }
    });
    let config = json!({
        "provider": "anthropic", "base_url": format!("http://{address}"), "api_key": "sk-bench-0123456789",
        "model": "claude-haiku-4-5", "daily_budget_usd": 0,
    });
    fs::write(sandbox.data().config_file(), config.to_string()).unwrap();

    let mut command = sandbox.shim(&[]);
    command.current_dir(&root);
    let mut client = McpClient::initialized(command);
    let ask = |client: &mut McpClient, question: &str| {
        let before = served.lock().unwrap().len();
        let start = Instant::now();
        let (failed, answer) = client.ask(json!({ "question": question }));
        let took = start.elapsed();
        assert!(!failed && answer.contains("Known"), "{answer}");
        let rounds = served.lock().unwrap()[before..].to_vec();
        (took.saturating_sub(rounds.iter().map(|round| round.took).sum()), rounds)
    };
    let (_, rounds) = ask(&mut client, "read all of it");
    assert_eq!(rounds.len(), FILES + 1);
    let mut overheads = Vec::new();
    let mut bytes = 0;
    for number in 0..QUESTIONS {
        let (overhead, rounds) = ask(&mut client, &format!("question {number}"));
        bytes = rounds[0].bytes;
        overheads.push(overhead);
    }
    overheads.sort_unstable();
    let at = |share: usize| overheads[overheads.len() * share / 100].as_secs_f64() * 1000.0;
    println!("| a question outside the model, {} kB of conversation | median ms | 95 % within ms |", bytes / 1000);
    println!("|---|---|---|");
    println!("| MCP call → answer | {:.2} | {:.2} |", at(50), at(95));
}

/// Serves one connection: reads of one file after the other for the first question, then answers.
fn serve(stream: TcpStream, served: &Mutex<Vec<Served>>) {
    stream.set_nodelay(true).unwrap();
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut output = stream;
    while let Some(body) = request(&mut input) {
        let start = Instant::now();
        let text = String::from_utf8_lossy(&body);
        let read = text.matches("\"tool_result\"").count();
        let said = if read < FILES {
            json!({ "type": "tool_use", "id": format!("call_{read}"), "name": "Read",
                    "input": { "file_path": format!("module_{read}.rs") } })
        } else {
            json!({ "type": "text", "text": "Known (module_0.rs:1)." })
        };
        let answer = json!({
            "id": "msg", "type": "message", "role": "assistant", "model": "claude-haiku-4-5", "content": [said],
            "stop_reason": if read < FILES { "tool_use" } else { "end_turn" },
            "usage": { "input_tokens": body.len() / 4, "output_tokens": 10 },
        })
        .to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        );
        let took = start.elapsed();
        served.lock().unwrap().push(Served { bytes: body.len(), took });
        output.write_all(head.as_bytes()).unwrap();
    }
}

/// The body of the next request; `None` at the end.
fn request(input: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some(body)
}
