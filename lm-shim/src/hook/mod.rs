//! `lm-shim hook`: tells the daemon of a file that a session has read or edited.
//!
//! A session waits for it after each of its tools, so it is a path of its own, without a runtime and
//! without the command line. It never fails, never prints, never waits for long and never starts a
//! daemon: what a daemon does not hear of now, it finds on the disk when it is asked. Not allowed here:
//! anything that writes to standard output, standard error or a file.

mod payload;
mod tool_use;

use std::{
    ffi::OsString,
    io::{IsTerminal, Read, Write, stdin},
    panic,
    process::{self, ExitCode},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use lm_proto::{
    Build, DataDirectory, Endpoint,
    codec::frame,
    endpoint::BlockingStream,
    handshake::{self, Hello, Intent},
    message::{ClientMessage, Observation, Request},
};

use self::payload::Scanner;
pub(crate) use self::tool_use::{EVENT, ToolUse, kind_of};

/// How long all of it may take once the payload has begun, and as long as nobody is there to be told.
const BUDGET: Duration = Duration::from_millis(40);
/// How much of it may go by while the payload is read; then what is known by then is told.
const READING: Duration = Duration::from_millis(25);
/// How long a daemon that is there makes it worth to wait for a payload that has not begun.
const PATIENCE: Duration = Duration::from_secs(1);
/// More of a payload is not looked through: the path stands near its beginning.
const SCANNED_MAX: usize = 16 << 20;
/// Bytes read at a time: what a pipe holds.
const PIECE: usize = 64 << 10;
/// Bytes of the shortest reply: its length, kind, id, and what it is.
const REPLY_MIN: usize = 8;

/// How often it is looked whether a payload has begun.
const POLL: Duration = Duration::from_millis(5);

/// Whether a daemon is there to be told.
static IS_MET: AtomicBool = AtomicBool::new(false);
/// When the payload has begun, in microseconds after the start.
static BEGUN_AFTER: AtomicU64 = AtomicU64::new(NOT_BEGUN);
const NOT_BEGUN: u64 = u64::MAX;

/// Whether the arguments ask for the hook itself, and not for its help.
pub(crate) fn is_wanted(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut arguments = arguments.skip(1);
    arguments.next().is_some_and(|word| word == "hook")
        && !arguments.any(|option| ["-h", "--help"].iter().any(|help| option == *help))
}

/// Reads a payload from standard input and tells the daemon what it says.
pub(crate) fn run() -> ExitCode {
    // Whatever goes wrong, there is nobody to be told of it.
    panic::set_hook(Box::new(|_| {}));
    let start = Instant::now();
    let limited = thread::Builder::new().stack_size(PIECE).spawn(move || end_in_time(start));
    if limited.is_ok() && !stdin().is_terminal() {
        drop(panic::catch_unwind(|| tell(start)));
    }
    ExitCode::SUCCESS
}

/// Ends the process when its time is over, whatever it waits for: standard input, the daemon, a disk.
fn end_in_time(start: Instant) {
    let mut end = start + BUDGET;
    loop {
        let now = Instant::now();
        if now < end {
            thread::sleep(end - now);
            continue;
        }
        match BEGUN_AFTER.load(Ordering::Relaxed) {
            NOT_BEGUN if IS_MET.load(Ordering::Relaxed) && start.elapsed() < PATIENCE => end = now + POLL,
            begun if begun != NOT_BEGUN && IS_MET.load(Ordering::Relaxed) && end != finish(start, begun) => {
                end = finish(start, begun);
            }
            _ => process::exit(0),
        }
    }
}

fn finish(start: Instant, begun: u64) -> Instant {
    start + Duration::from_micros(begun) + BUDGET
}

fn tell(start: Instant) {
    // First, so that it is known whether there is anybody to wait for.
    let data = DataDirectory::find();
    let daemon = data.and_then(|data| Endpoint::of(&data).connect_blocking().ok());
    IS_MET.store(daemon.is_some(), Ordering::Relaxed);
    let scanner = read_payload(start);
    if let (Some(mut daemon), Some(seen)) = (daemon, scanner.tool_use())
        && let Some(observation) = seen.into_observation()
    {
        // Where that fails, the daemon has just left.
        drop(send(&mut daemon, observation));
    }
}

/// Reads all of a payload where time allows it, also where it is of no interest: whoever writes it
/// should not find nobody reading.
fn read_payload(start: Instant) -> Scanner {
    let mut scanner = Scanner::default();
    let mut stdin = stdin().lock();
    let mut piece = vec![0; PIECE];
    let (mut total, mut due) = (0, None);
    loop {
        let length = match stdin.read(&mut piece) {
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            // There is no standard input.
            Err(_) => 0,
        };
        let due = *due.get_or_insert_with(|| {
            let begun = u64::try_from(start.elapsed().as_micros()).unwrap_or_default();
            BEGUN_AFTER.store(begun, Ordering::Relaxed);
            Instant::now() + READING
        });
        let is_garbage = scanner.has_ended() && scanner.tool_use().is_none();
        if !is_garbage {
            scanner.feed(&piece[..length]);
        }
        total += length;
        let is_known = scanner.has_ended() && scanner.tool_use().is_some();
        if length == 0 || is_known || total > SCANNED_MAX || Instant::now() > due {
            return scanner;
        }
    }
}

/// Says hello and what there is to say in one go, and waits until it is taken up: the session goes on
/// after that, and what it asks next then comes later. The daemon takes it up also where this process
/// has ended before it looks.
fn send(daemon: &mut BlockingStream, observation: Observation) -> std::io::Result<()> {
    let mut bytes = Hello::new(Intent::Serve, Build::with_stamp(0)).to_bytes().to_vec();
    bytes.extend(frame(&ClientMessage::Request { id: 1, request: Request::Observe(observation) })?);
    daemon.write_all(&bytes)?;
    daemon.read_exact(&mut [0; handshake::LENGTH + REPLY_MIN])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hook_itself_comes_this_way() {
        let is_wanted = |words: &[&str]| is_wanted(words.iter().map(OsString::from));
        assert!(is_wanted(&["lm-shim", "hook"]));
        assert!(is_wanted(&["lm-shim", "hook", "--what-a-later-version-knows"]));
        for words in [&["lm-shim"][..], &["lm-shim", "hook", "--help"], &["lm-shim", "ask", "hook"], &["hook"]] {
            assert!(!is_wanted(words), "{words:?}");
        }
    }
}
