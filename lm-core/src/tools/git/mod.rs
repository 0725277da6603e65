//! The tools that read git repositories, by `gix`, in this process.
//!
//! A repository may be hostile: its configuration names programs, its links and pointers lead
//! elsewhere, its files are pipes. So it is opened without any trust, which makes `gix` run nothing of
//! what it names; what would lead to another repository is refused before it is opened; and all of it
//! happens on a thread of its own that can be left behind. Only names and history come from here:
//! `gix` looks at files of the working tree to compare them, but their text never leaves this room.
//! Not allowed in here: starting a process, the installation's configuration (to find it `gix` runs
//! `git`), writing.

mod changes;
mod history;
mod open;
mod patch;
mod search;
mod user;
mod withheld;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU8, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use super::{Limits, ToolError, ToolOutput, Tools, arguments::Arguments, target};
use crate::files::WorkspaceFiles;

pub use user::GitUser;

/// Threads that may hang, on a file system that does not answer or a pipe in a repository, before no
/// more are started.
const MOST_HANGING: usize = 2;
/// A call's thread is at work and waited for.
const AT_WORK: u8 = 0;
/// It is at work and nobody waits for it any more.
const LEFT_BEHIND: u8 = 1;
/// It has ended.
const ENDED: u8 = 2;
/// How often a waiting call looks whether it was cancelled.
const POLL: Duration = Duration::from_millis(20);
/// How long after the deadline what was found so far is waited for.
const GRACE: Duration = Duration::from_millis(500);

/// The git side of a workspace.
#[derive(Debug)]
pub(super) struct Git {
    files: Arc<WorkspaceFiles>,
    user: GitUser,
    left_behind: LeftBehind,
}

/// The threads of one workspace's git tools that nobody waits for any more; shared by all tools of the
/// workspace, so that a repository in which every call hangs does not collect threads.
#[derive(Clone, Debug, Default)]
pub struct LeftBehind(Arc<AtomicUsize>);

/// How far a call's thread is, told by both sides: whoever comes second knows what the first has done.
#[derive(Clone)]
struct Course {
    state: Arc<AtomicU8>,
    left_behind: LeftBehind,
}

impl Course {
    /// Nobody waits for it any more.
    fn leave_behind(&self) {
        // Counted before it can be counted down.
        self.left_behind.0.fetch_add(1, SeqCst);
        if self.state.swap(LEFT_BEHIND, SeqCst) == ENDED {
            self.left_behind.0.fetch_sub(1, SeqCst);
        }
    }
}

/// Ends a course even if the work panics.
struct EndsCourse(Course);

impl Drop for EndsCourse {
    fn drop(&mut self) {
        if self.0.state.swap(ENDED, SeqCst) == LEFT_BEHIND {
            self.0.left_behind.0.fetch_sub(1, SeqCst);
        }
    }
}

impl Git {
    pub(super) fn new(files: Arc<WorkspaceFiles>, user: GitUser, left_behind: LeftBehind) -> Self {
        Self { files, user, left_behind }
    }
}

/// When work on a repository has to end; shared with the thread that does it.
#[derive(Clone, Debug)]
struct Deadline {
    at: Instant,
    stop: Arc<AtomicBool>,
}

impl Deadline {
    fn is_over(&self) -> bool {
        self.stop.load(Relaxed) || Instant::now() >= self.at
    }

    /// One that comes earlier, as a part of the time left.
    fn part(&self, share: f64, most: Duration) -> Self {
        let left = self.at.saturating_duration_since(Instant::now()).mul_f64(share).min(most);
        Self { at: Instant::now() + left, stop: Arc::clone(&self.stop) }
    }
}

/// Runs `get_changed_files`.
pub(super) fn changed_files(
    tools: &Tools,
    arguments: &Arguments,
    limits: &Limits<'_>,
) -> Result<ToolOutput, ToolError> {
    let path = git_path(tools, arguments)?;
    apart(&tools.git, limits, move |files, user, deadline| {
        let repository = open::open(files, user)?;
        changes::changed_files(&repository, &path, deadline)
    })
}

/// Runs `git_search`.
pub(super) fn search(tools: &Tools, arguments: &Arguments, limits: &Limits<'_>) -> Result<ToolOutput, ToolError> {
    let path = git_path(tools, arguments)?;
    let request = search::Request::read(arguments, path)?;
    apart(&tools.git, limits, move |files, user, deadline| {
        let repository = open::open(files, user)?;
        search::search(&repository, &request, deadline)
    })
}

/// The path of a call, fit for git.
fn git_path(tools: &Tools, arguments: &Arguments) -> Result<PathBuf, ToolError> {
    let text = arguments.text("path")?.unwrap_or_default();
    if text.starts_with('-') {
        return Err(ToolError(format!(
            "the path `{}` begins with `-`; write `./` before it",
            super::text::cut(text, 100)
        )));
    }
    if text.chars().any(char::is_control) {
        return Err(ToolError("the path holds a control character; give it without".into()));
    }
    target::inside(tools.files.root(), text)
}

/// Does work on a thread of its own and waits for it until the deadline.
fn apart(
    git: &Git,
    limits: &Limits<'_>,
    work: impl FnOnce(&Arc<WorkspaceFiles>, &GitUser, &Deadline) -> Result<String, ToolError> + Send + 'static,
) -> Result<ToolOutput, ToolError> {
    if git.left_behind.0.load(SeqCst) >= MOST_HANGING {
        return Err(ToolError(
            "earlier calls still hang in the git repository, so its tools are not usable now; use Read and Grep".into(),
        ));
    }
    let deadline = Deadline { at: limits.deadline, stop: Arc::default() };
    let (send, receive) = mpsc::channel();
    let (files, user) = (Arc::clone(&git.files), git.user.clone());
    let course = Course { state: Arc::new(AtomicU8::new(AT_WORK)), left_behind: git.left_behind.clone() };
    let (own_deadline, ends) = (deadline.clone(), EndsCourse(course.clone()));
    let started = thread::Builder::new().name("git tool".into()).spawn(move || {
        let _ends = ends;
        // Nobody waits any more where this fails.
        let _ = send.send(work(&files, &user, &own_deadline));
    });
    if let Err(error) = started {
        return Err(ToolError(format!("cannot start a thread for git: {error}")));
    }
    loop {
        match receive.recv_timeout(POLL) {
            Ok(Ok(text)) => return Ok(ToolOutput::plain(text)),
            Ok(Err(error)) => return Err(error),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(ToolError("reading the git repository broke off; it may be damaged".into()));
            }
            Err(mpsc::RecvTimeoutError::Timeout) if limits.cancel.is_cancelled() => {
                deadline.stop.store(true, Relaxed);
                course.leave_behind();
                return Err(ToolError("the call was cancelled".into()));
            }
            Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() >= limits.deadline + GRACE => {
                deadline.stop.store(true, Relaxed);
                course.leave_behind();
                return Err(ToolError("the time was over before git had an answer; limit the call with path".into()));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}

/// An error of `gix`, for the model.
fn failed(what: &str, error: impl std::fmt::Display) -> ToolError {
    ToolError(format!("cannot {what}: {}", super::text::cut(&error.to_string(), 500)))
}
