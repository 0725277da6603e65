//! The daemon as tests see it: what it says of itself, how it is ended, and one of another version.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Arc, Mutex, mpsc},
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use futures_util::{SinkExt, StreamExt};
use lm_proto::{
    Build, DataDirectory, Endpoint,
    codec::{Codec, DaemonFramed},
    endpoint::{Listener, Stream},
    handshake::{Hello, Intent, State, Welcome},
    message::{Answer, ClientMessage, DaemonMessage, Failure, FailureKind, Reply, Request},
};
use serde::Deserialize;
use tokio::time::timeout;

use crate::{Sandbox, binaries, wait_until};

/// What the daemon notes about itself.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Notes {
    /// Process id.
    pub pid: u32,
    /// Version and stamp.
    pub build: String,
    /// Socket or pipe.
    pub endpoint: PathBuf,
    /// Its log.
    pub log: PathBuf,
    /// What it runs from.
    pub executable: PathBuf,
}

/// The daemon's notes, if there are any.
#[must_use]
pub fn notes(data: &DataDirectory) -> Option<Notes> {
    serde_json::from_slice(&fs::read(data.daemon_notes()).ok()?).ok()
}

/// Asks the daemon who it is.
pub fn welcome(data: &DataDirectory, intent: Intent) -> io::Result<Welcome> {
    block_on(async {
        let handshake = async {
            let mut stream = Endpoint::of(data).connect().await?;
            Hello::new(intent, Build::default()).write(&mut stream).await?;
            Welcome::read(&mut stream).await
        };
        timeout(Duration::from_secs(10), handshake).await?
    })
}

/// Waits until a daemon answers and returns its process id.
#[must_use]
pub fn running_pid(data: &DataDirectory) -> u32 {
    wait_until("a daemon that answers", || welcome(data, Intent::Probe).ok()).pid
}

/// Whether no daemon lives: the kernel knows.
#[must_use]
pub fn has_left(data: &DataDirectory) -> bool {
    let Ok(file) = fs::OpenOptions::new().read(true).write(true).open(data.life_lock()) else { return true };
    fs4::FileExt::try_lock(&file).is_ok()
}

/// Waits until no daemon lives.
pub fn wait_until_left(data: &DataDirectory) {
    wait_until("the daemon to leave", || has_left(data).then_some(()));
}

/// How often a daemon has started to listen, by its log.
#[must_use]
pub fn starts(data: &DataDirectory) -> usize {
    fs::read_to_string(data.core_log()).unwrap_or_default().matches(" listening pid=").count()
}

/// Waits until the daemon has been asked `count` questions, by its log.
pub fn wait_until_asked(data: &DataDirectory, count: usize) {
    let asked = || fs::read_to_string(data.core_log()).unwrap_or_default().matches("a question arrived").count();
    wait_until("a question to arrive", || (asked() >= count).then_some(()));
}

/// Ends a daemon of this test at once, as a crash would.
pub fn kill(pid: u32) {
    #[cfg(unix)]
    signal(pid, rustix::process::Signal::KILL);
    #[cfg(windows)]
    assert!(Command::new("taskkill").args(["/F", "/PID", &pid.to_string()]).output().unwrap().status.success());
}

/// Sends a signal to a process of this test.
#[cfg(unix)]
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// A question from a workspace that has something to find.
#[must_use]
pub fn ask_command(sandbox: &Sandbox) -> Command {
    let mut command = sandbox.shim(&["ask", "where is the port set"]);
    command.current_dir(workspace(sandbox));
    command
}

/// Asks a question to its end.
#[must_use]
pub fn ask(sandbox: &Sandbox) -> Output {
    ask_command(sandbox).output().unwrap()
}

/// A workspace that has something to find.
#[must_use]
pub fn workspace(sandbox: &Sandbox) -> PathBuf {
    let workspace = sandbox.workspace("project");
    let file = workspace.join("server.rs");
    if !file.exists() {
        fs::write(file, "pub fn port() -> u16 {\n    8080\n}\n").unwrap();
    }
    workspace
}

/// Fails unless the output is an answer.
#[track_caller]
pub fn assert_answered(output: &Output) {
    let (answer, error) = texts(output);
    assert!(output.status.success() && !answer.trim().is_empty(), "{:?}\n{answer}\n{error}", output.status);
}

/// What was said on stdout and stderr.
#[must_use]
pub fn texts(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A file that keeps questions from being answered while it exists.
#[derive(Debug)]
pub struct Hold(PathBuf);

impl Hold {
    /// Holds the questions of the daemon that a command started with [`Hold::on`] starts.
    #[must_use]
    pub fn new(sandbox: &Sandbox) -> Self {
        let path = sandbox.root().join("hold");
        fs::write(&path, "").unwrap();
        Self(path)
    }

    /// Lets the daemon that `command` may start know.
    pub fn on<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LIVE_MEMORY_TEST_HOLD_FILE", &self.0)
    }

    /// Lets the questions go on.
    pub fn release(&self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// A directory with a shim and a daemon of its own, as another installation or build.
#[derive(Debug)]
pub struct Installation(PathBuf);

impl Installation {
    /// The programs under test, as if built at `stamp` (seconds since the Unix epoch).
    #[must_use]
    pub fn built_at(sandbox: &Sandbox, stamp: u64) -> Self {
        Self::with_core(sandbox, &format!("built-{stamp}"), binaries::core(), stamp)
    }

    /// The shim under test beside another program in place of the daemon.
    #[must_use]
    pub fn with_core(sandbox: &Sandbox, name: &str, core: &Path, stamp: u64) -> Self {
        let directory = sandbox.workspace(name);
        let installed = |program: &Path| directory.join(program.file_name().unwrap());
        fs::copy(binaries::shim(), installed(binaries::shim())).unwrap();
        let copy = installed(binaries::core());
        fs::copy(core, &copy).unwrap();
        let file = fs::OpenOptions::new().write(true).open(copy).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(stamp)).unwrap();
        Self(directory)
    }

    /// Its daemon as if built again at `stamp`.
    pub fn rebuild(&self, stamp: u64) {
        let core = self.0.join(binaries::core().file_name().unwrap());
        let file = fs::OpenOptions::new().write(true).open(core).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(stamp)).unwrap();
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// A question through its shim.
    #[must_use]
    pub fn ask(&self, sandbox: &Sandbox) -> Output {
        let shim = self.0.join(binaries::shim().file_name().unwrap());
        let mut command = sandbox.command(&shim);
        command.args(["ask", "where is the port set"]).current_dir(workspace(sandbox)).output().unwrap()
    }
}

/// A daemon of another version: it holds the life lock, says what it is told to say, drains when it
/// is asked to, and answers every question with its own name.
#[derive(Debug)]
pub struct FakeDaemon {
    seen: Arc<Mutex<Vec<Hello>>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a [`FakeDaemon`] answers.
pub const FAKE_ANSWER: &str = "answered by the other version";

impl FakeDaemon {
    /// Starts it in this process and waits until it listens.
    #[must_use]
    pub fn start(data: &DataDirectory, build: Build, state: State) -> Self {
        let seen = Arc::<Mutex<Vec<Hello>>>::default();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn({
            let (data, seen) = (data.clone(), Arc::clone(&seen));
            move || {
                let lock = fs::OpenOptions::new();
                let lock = lock.clone().read(true).write(true).create(true).truncate(false).open(data.life_lock());
                let lock = lock.unwrap();
                fs4::FileExt::try_lock(&lock).unwrap();
                let endpoint = Endpoint::candidates(&data).swap_remove(0);
                block_on(async {
                    let listener = endpoint.listen().unwrap();
                    endpoint.record(&data).unwrap();
                    ready.send(()).unwrap();
                    tokio::select! {
                        () = serve(&listener, build, state, &seen) => {}
                        _ = stopped => {}
                    }
                });
                endpoint.remove_stale().unwrap();
                drop(lock);
            }
        });
        is_ready.recv().unwrap();
        Self { seen, stop: Some(stop), thread: Some(thread) }
    }

    /// Everything that clients said first.
    #[must_use]
    pub fn seen(&self) -> Vec<Hello> {
        self.seen.lock().unwrap().clone()
    }

    /// Whether a client has asked it to leave.
    #[must_use]
    pub fn was_drained(&self) -> bool {
        self.seen().iter().any(|hello| hello.intent == Intent::Drain)
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

async fn serve(listener: &Listener, build: Build, state: State, seen: &Mutex<Vec<Hello>>) {
    loop {
        let Ok(mut stream) = listener.accept().await else { continue };
        let Ok(hello) = Hello::read(&mut stream).await else { continue };
        seen.lock().unwrap().push(hello);
        let state = if hello.intent == Intent::Drain { State::Draining } else { state };
        let protocol = if state == State::NoCommonProtocol { 0 } else { 1 };
        let welcome = Welcome { protocol, state, build, pid: std::process::id() };
        welcome.write(&mut stream).await.unwrap();
        match (hello.intent, state) {
            (Intent::Drain, _) => return,
            (Intent::Serve, State::Ready) => drop(tokio::spawn(answer_all(stream))),
            _ => {}
        }
    }
}

async fn answer_all(stream: Stream) {
    let mut messages = DaemonFramed::new(stream, Codec::default());
    while let Some(Ok(message)) = messages.next().await {
        let ClientMessage::Request { id, request } = message else { continue };
        let outcome = match request {
            Request::Ask(_) => Ok(Reply::Answer(Answer {
                text: FAKE_ANSWER.into(),
                trailer: String::new(),
                json: serde_json::json!({ "answer": FAKE_ANSWER }).to_string(),
            })),
            _ => Err(Failure::new(FailureKind::InvalidRequest, "the other version knows questions only")),
        };
        if messages.send(DaemonMessage::Reply { id, outcome }).await.is_err() {
            return;
        }
    }
}

/// Runs what a test does by itself.
///
/// What is left in the background is not waited for: on Windows, flushing a pipe whose other end has
/// stopped reading may never end.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}
