//! `lm-shim doctor`: what can be checked without a daemon, then what the daemon finds.

use std::{env, fs::OpenOptions, io::ErrorKind, process::ExitCode};

use lm_proto::{
    DataDirectory, Endpoint,
    message::{Report, Request},
    printable::printable_json,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    CONNECT_PATIENCE, Here, ask,
    output::{self, Outcome},
    report,
};
use crate::{
    connector::{Connector, Role},
    mcp::session,
};

/// One thing that was looked at.
struct Check {
    name: &'static str,
    is_good: bool,
    detail: String,
}

impl Check {
    fn new(name: &'static str, result: Result<String, String>) -> Self {
        let is_good = result.is_ok();
        Self { name, is_good, detail: result.unwrap_or_else(|problem| problem) }
    }
}

/// Checks everything, starting the daemon where it does not run.
pub(super) async fn doctor(Here { cwd, json }: Here) -> Outcome {
    let cwd = if cwd.is_some() { ask::directory(cwd.as_deref())? } else { ask::directory(None).unwrap_or_default() };
    let mut checks = vec![Check::new("program", core_binary())];
    let data = DataDirectory::open();
    checks.push(Check::new("data directory", describe(&data)));
    let mut daemon = None;
    if let Ok(data) = data {
        checks.push(Check::new("endpoint", Ok(Endpoint::of(&data).address().display().to_string())));
        checks.push(Check::new("life lock", life_lock(&data)));
        let connector = Connector::new(data.clone());
        match connector.connect(Role::Ask, Instant::now() + CONNECT_PATIENCE).await {
            Ok(connection) => {
                checks.push(Check::new("daemon", Ok(format!("answers, process {}", connection.daemon().pid))));
                let request = Request::Doctor { cwd, environment: session::environment_for_reports() };
                match report::exchange(&connection, request).await {
                    Ok(report) => daemon = Some(report),
                    Err(failed) => checks.push(Check::new("daemon's checks", Err(failed.into_reason()))),
                }
            }
            Err(error) => {
                let logs = format!("{error}; see {} and {}", data.start_log().display(), data.core_log().display());
                checks.push(Check::new("daemon", Err(logs)));
            }
        }
    }
    let is_healthy = checks.iter().all(|check| check.is_good) && daemon.as_ref().is_some_and(|report| report.healthy);
    let text = if json { as_json(&checks, daemon.as_ref(), is_healthy) } else { as_text(&checks, daemon.as_ref()) };
    output::print_and(&output::line(&text), if is_healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_text(checks: &[Check], daemon: Option<&Report>) -> String {
    let mut lines: Vec<String> = checks
        .iter()
        .map(|check| format!("{:<16}{}: {}", check.name, if check.is_good { "ok" } else { "fail" }, check.detail))
        .collect();
    if let Some(report) = daemon {
        lines.push(format!("\nthe daemon's own checks:\n{}", report.text));
    }
    lines.join("\n")
}

fn as_json(checks: &[Check], daemon: Option<&Report>, is_healthy: bool) -> String {
    let checks: Vec<Value> =
        checks.iter().map(|check| json!({ "name": check.name, "ok": check.is_good, "detail": check.detail })).collect();
    let daemon = daemon.and_then(|report| serde_json::from_str::<Value>(&report.json).ok());
    let json = json!({ "healthy": is_healthy, "shim": checks, "daemon": daemon }).to_string();
    printable_json(&json).into_owned()
}

fn core_binary() -> Result<String, String> {
    let shim = env::current_exe().map_err(|error| format!("cannot tell where lm-shim itself is: {error}"))?;
    let core = shim.with_file_name(format!("lm-core{}", env::consts::EXE_SUFFIX));
    match core.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(core.display().to_string()),
        Ok(_) => Err(format!("{} is not a file; install Live Memory again", core.display())),
        Err(error) => Err(format!("{} cannot be used ({error}); install Live Memory again", core.display())),
    }
}

fn describe(data: &Result<DataDirectory, lm_proto::DirectoryError>) -> Result<String, String> {
    match data {
        Ok(data) if data.is_temporary() => Ok(format!(
            "{}, which the system clears at times, since no home directory can be written",
            data.root().display()
        )),
        Ok(data) => Ok(data.root().display().to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a daemon holds its lock. Looked at before connecting, which may start one.
fn life_lock(data: &DataDirectory) -> Result<String, String> {
    let path = data.life_lock();
    let file = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok("free, no daemon has run here yet".into()),
        Err(error) => return Err(format!("{} cannot be opened: {error}", path.display())),
    };
    match fs4::FileExt::try_lock_shared(&file) {
        Ok(()) => Ok("free, no daemon ran".into()),
        Err(fs4::TryLockError::WouldBlock) => Ok("held by a running daemon".into()),
        Err(fs4::TryLockError::Error(error)) => Err(format!("{} cannot be tried: {error}", path.display())),
    }
}
