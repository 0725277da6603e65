//! Checks the daemon's surroundings and says what to do about what is wrong.

use std::{fs, path::Path};

use lm_proto::{Endpoint, message::Report};
use serde_json::{Value as Json, json};

use super::{
    logging, provider_report,
    reports::{Subject, bytes_text, index_text, labelled},
    spending_report,
};
use crate::{retrieval::IndexState, settings::ConfigError};

/// Below this an index can no longer be written safely.
const SPACE_LOW: u64 = 200_000_000;
/// Below this nothing can.
const SPACE_NONE: u64 = 20_000_000;

/// How a check went.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, but not well.
    Warn,
    /// It does not work.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// How it went.
    pub level: Level,
    /// What was found.
    pub finding: String,
    /// What to do; empty where all is well.
    pub remedy: String,
}

fn ok(name: &'static str, finding: impl Into<String>) -> Check {
    Check { name, level: Level::Ok, finding: finding.into(), remedy: String::new() }
}

fn warn(name: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check { name, level: Level::Warn, finding: finding.into(), remedy: remedy.into() }
}

fn fail(name: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check { level: Level::Fail, ..warn(name, finding, remedy) }
}

/// Looks at everything. Blocks on the file system.
#[must_use]
pub fn doctor(subject: &Subject<'_>, config_error: Option<&ConfigError>) -> Report {
    let mut checks = vec![
        data_directory(subject),
        file_system(subject.data.root()),
        space(subject.data.root()),
        configuration(subject, config_error),
        endpoint(subject),
        lock(&subject.data.life_lock()),
        log(subject),
        provider(subject),
        budget(subject),
    ];
    checks.extend(workspace(subject));
    render(&checks)
}

/// The report about some checks.
fn render(checks: &[Check]) -> Report {
    let worst = checks.iter().map(|check| check.level).max().unwrap_or(Level::Ok);
    let mut text = String::new();
    for check in checks {
        let word = level_word(check.level);
        text.push_str(&labelled(check.name, &format!("{word}: {}", check.finding)));
        if !check.remedy.is_empty() {
            text.push_str(&labelled("", &format!("→ {}", check.remedy)));
        }
    }
    text.push_str(match worst {
        Level::Ok => "\nall is well\n",
        Level::Warn => "\nit works, but see the warnings\n",
        Level::Fail => "\nsomething does not work; see the lines with `fail`\n",
    });
    let listed: Json = checks
        .iter()
        .map(|check| {
            json!({
                "name": check.name,
                "level": level_word(check.level),
                "finding": check.finding,
                "remedy": check.remedy,
            })
        })
        .collect();
    let healthy = worst < Level::Fail;
    Report { text, json: json!({ "healthy": healthy, "checks": listed }).to_string(), healthy }
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Warn => "warn",
        Level::Fail => "fail",
    }
}

fn data_directory(subject: &Subject<'_>) -> Check {
    const NAME: &str = "data";
    let root = subject.data.root();
    let shown = root.display();
    if let Err(error) = tempfile::Builder::new().prefix(".doctor-").tempfile_in(root) {
        return fail(
            NAME,
            format!("`{shown}` cannot be written: {error}"),
            "make it writable, or set LIVE_MEMORY_DATA_DIR to a directory of yours and run `lm-shim stop`",
        );
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(root).map(|metadata| metadata.permissions().mode() & 0o777).unwrap_or_default();
        if mode & 0o077 != 0 {
            return fail(
                NAME,
                format!("`{shown}` is open to other users (mode {mode:03o})"),
                format!("run `chmod 700 {shown}`"),
            );
        }
    }
    if subject.data.is_temporary() {
        return warn(
            NAME,
            format!("no home directory can be written, so everything is kept in `{shown}` and lost with it"),
            "set LIVE_MEMORY_DATA_DIR to a directory of yours that lasts",
        );
    }
    ok(NAME, format!("`{shown}` is writable and private"))
}

/// File systems on other machines, as their drivers are called.
const NETWORK: [&str; 14] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "fuse.sshfs",
    "fuse.rclone",
    "fuse.s3fs",
    "afpfs",
    "webdav",
    "lustre",
];

fn file_system(root: &Path) -> Check {
    const NAME: &str = "file system";
    match file_system_kind(root) {
        Some(kind) if NETWORK.contains(&kind.as_str()) => warn(
            NAME,
            format!("`{kind}` is on another machine or shared with one; locks and sockets may not work there"),
            "set LIVE_MEMORY_DATA_DIR to a directory on a local disk",
        ),
        Some(kind) => ok(NAME, kind),
        None => ok(NAME, "its kind is not known on this system"),
    }
}

/// The driver's name for the file system that holds a path.
#[cfg(target_os = "linux")]
fn file_system_kind(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    mount_of(&fs::read_to_string("/proc/self/mountinfo").ok()?, &path)
}

/// The driver's name for the file system that holds a path.
#[cfg(target_os = "macos")]
fn file_system_kind(path: &Path) -> Option<String> {
    let statistics = rustix::fs::statfs(path).ok()?;
    let name = statistics.f_fstypename.iter().take_while(|&&letter| letter != 0);
    Some(name.map(|&letter| char::from(letter.cast_unsigned())).collect())
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn file_system_kind(_path: &Path) -> Option<String> {
    None
}

/// The driver of the innermost mount above `path`. Format: proc(5), `/proc/pid/mountinfo`.
#[cfg(any(target_os = "linux", test))]
fn mount_of(mountinfo: &str, path: &Path) -> Option<String> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (mount, driver) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        // Blanks and backslashes are written in octal.
        let point = point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
        Some((point, driver.split(' ').next()?.to_owned()))
    });
    // The last of several mounts on one point is the one that is seen.
    mounts
        .filter(|(point, _)| path.starts_with(point))
        .enumerate()
        .max_by_key(|(order, (point, _))| (Path::new(point).components().count(), *order))
        .map(|(_, (_, driver))| driver)
}

fn space(root: &Path) -> Check {
    const NAME: &str = "disk space";
    let remedy = "free some space, or set LIVE_MEMORY_DATA_DIR to a directory on another disk";
    match fs4::available_space(root) {
        Ok(free) if free < SPACE_NONE => fail(NAME, format!("only {} are free", bytes_text(free)), remedy),
        Ok(free) if free < SPACE_LOW => warn(NAME, format!("only {} are free", bytes_text(free)), remedy),
        Ok(free) => ok(NAME, format!("{} are free", bytes_text(free))),
        Err(error) => warn(NAME, format!("cannot be told: {error}"), "check the disk"),
    }
}

fn configuration(subject: &Subject<'_>, error: Option<&ConfigError>) -> Check {
    const NAME: &str = "settings";
    if let Some(error) = error {
        return fail(
            NAME,
            format!("{}; the last good settings hold", error.finding()),
            "correct the file, or remove it",
        );
    }
    let problems = &subject.resolved.problems;
    if !problems.is_empty() {
        let all: Vec<_> = problems.iter().map(ToString::to_string).collect();
        return warn(NAME, all.join("; "), "correct them in the file or the environment they stand in");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let open = fs::metadata(subject.config_file).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0);
        if open {
            let file = subject.config_file.display();
            return warn(NAME, format!("`{file}` can be read by other users"), format!("run `chmod 600 {file}`"));
        }
    }
    match fs::exists(subject.config_file) {
        Ok(true) => ok(NAME, format!("`{}` is valid", subject.config_file.display())),
        _ => ok(NAME, "no config.json: defaults and the environment hold"),
    }
}

fn endpoint(subject: &Subject<'_>) -> Check {
    const NAME: &str = "endpoint";
    let here = &subject.status.endpoint;
    let found = Endpoint::of(subject.data);
    if found.address() == here {
        return ok(NAME, format!("clients find `{}`", here.display()));
    }
    fail(
        NAME,
        format!("the daemon listens on `{}`, but clients look at `{}`", here.display(), found.address().display()),
        "run `lm-shim stop`; the next question starts a new daemon",
    )
}

/// The daemon holds its life lock, so nobody else can take it; where somebody can, locks do not work.
fn lock(path: &Path) -> Check {
    const NAME: &str = "lock";
    let file = match fs::OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) => {
            return fail(
                NAME,
                format!("`{}` cannot be opened: {error}", path.display()),
                "run `lm-shim stop`; the next question starts a new daemon",
            );
        }
    };
    match fs4::FileExt::try_lock(&file) {
        Ok(()) => fail(
            NAME,
            format!("`{}` is held by nobody: file locks do not work there", path.display()),
            "set LIVE_MEMORY_DATA_DIR to a directory on a local disk",
        ),
        Err(fs4::TryLockError::WouldBlock) => ok(NAME, "held by this daemon"),
        Err(fs4::TryLockError::Error(error)) => fail(
            NAME,
            format!("`{}` cannot be locked: {error}", path.display()),
            "set LIVE_MEMORY_DATA_DIR to a directory on a local disk",
        ),
    }
}

fn log(subject: &Subject<'_>) -> Check {
    const NAME: &str = "log";
    let remedy = "make it writable, or change log_file, and run `lm-shim stop`";
    match &subject.status.log {
        None => fail(NAME, "no log file could be opened", remedy),
        Some(file) => match logging::check(file) {
            Ok(()) => ok(NAME, format!("`{}` is writable", file.display())),
            Err(error) => fail(NAME, format!("`{}` cannot be written: {error}", file.display()), remedy),
        },
    }
}

fn budget(subject: &Subject<'_>) -> Check {
    const NAME: &str = "budget";
    let notes = spending_report::notes(subject);
    if notes.is_empty() {
        return ok(NAME, spending_report::summary(subject));
    }
    warn(NAME, notes.join("; "), "`lm-shim stats` shows what was spent")
}

fn provider(subject: &Subject<'_>) -> Check {
    const NAME: &str = "provider";
    let text = provider_report::text(subject);
    match subject.model {
        Ok(_) => ok(NAME, text),
        Err(_) => warn(NAME, text, "`lm-shim setup` chooses a provider and tries it"),
    }
}

fn workspace(subject: &Subject<'_>) -> Vec<Check> {
    const NAME: &str = "workspace";
    let root = match subject.root {
        None => return Vec::new(),
        Some(Err(reason)) => {
            return vec![warn(NAME, reason.clone(), "run this in a project directory, or give one with --cwd")];
        }
        Some(Ok(root)) => root,
    };
    let mut checks = vec![ok(NAME, format!("`{root}`"))];
    let open = subject.workspaces.iter().find(|workspace| workspace.root.to_str() == Some(root));
    checks.push(match open {
        None => ok("index", "not opened yet; the first question builds it"),
        Some(open) => match &open.index.state {
            IndexState::Failed(_) => {
                warn("index", index_text(&open.index), "make room and check the data directory, then ask again")
            }
            IndexState::TooLarge => {
                warn("index", index_text(&open.index), "leave out what is not code with a .livememoryignore file")
            }
            _ => ok("index", index_text(&open.index)),
        },
    });
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_holds_a_path() {
        let mountinfo = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:27 / /home rw - nfs4 server:/home rw
31 30 0:28 / /home/me/My\\040Disk rw master:2 - fuse.sshfs host:/ rw
32 22 0:29 / /tmp rw - tmpfs tmpfs rw
33 22 0:30 / /tmp rw - xfs /dev/vdb rw";
        let kind = |path: &str| mount_of(mountinfo, Path::new(path)).unwrap();
        assert_eq!(kind("/var/x"), "ext4");
        assert_eq!(kind("/home/me/x"), "nfs4");
        assert_eq!(kind("/homeless"), "ext4");
        assert_eq!(kind("/home/me/My Disk/x"), "fuse.sshfs");
        assert_eq!(kind("/tmp/x"), "xfs");
        assert_eq!(mount_of("garbage", Path::new("/")), None);
    }

    #[test]
    fn a_lock_that_nobody_holds_is_a_failure_and_one_that_is_held_is_well() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("life.lock");
        assert_eq!(lock(&path).level, Level::Fail);
        let held = fs::File::create(&path).unwrap();
        assert_eq!(lock(&path).level, Level::Fail);
        fs4::FileExt::lock(&held).unwrap();
        assert_eq!(lock(&path), ok("lock", "held by this daemon"));
    }

    #[test]
    fn a_remedy_is_said_once() {
        let error =
            ConfigError::Invalid { path: "/c".into(), line: 2, column: 0, reason: "it ends inside an object".into() };
        assert_eq!(error.finding(), "`/c` is not valid, line 2: it ends inside an object");
    }

    #[test]
    fn a_report_is_as_healthy_as_its_worst_check() {
        let checks = [ok("data", "`/d` is writable"), warn("file system", "`nfs`", "move it")];
        let report = render(&checks);
        assert!(report.healthy);
        insta::assert_snapshot!(report.text, @r"
        data        ok: `/d` is writable
        file system warn: `nfs`
                    → move it

        it works, but see the warnings
        ");
        assert!(!render(&[fail("log", "gone", "make it writable")]).healthy);
    }
}
