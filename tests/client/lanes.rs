//! Runs the scenarios that are written in Python, each in a sandbox of its own.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use libtest_mimic::{Completion, Failed, Trial};
use lm_tests::{Sandbox, binaries};

/// Turns the absence of a client into a failure.
const REQUIRE_VARIABLE: &str = "LIVE_MEMORY_TEST_REQUIRE_CLIENTS";

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/client");
const PLUGIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugin");
const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/real-clients");

/// The scenarios of both clients.
pub(crate) fn trials() -> Vec<Trial> {
    let claude =
        [include_str!("claude_scenarios.py"), include_str!("claude_learning.py"), include_str!("claude_commands.py")];
    let claude = claude
        .into_iter()
        .flat_map(scenarios)
        .map(|name| Trial::ignorable_test(format!("claude_code::{name}"), move || present(claude_code(name))));
    let sdk = scenarios(include_str!("sdk_scenarios.py"))
        .map(|name| Trial::ignorable_test(format!("python_sdk::{name}"), move || present(python_sdk(name))));
    claude.chain(sdk).collect()
}

/// The names a scenario file lists at its end.
fn scenarios(source: &'static str) -> impl Iterator<Item = &'static str> {
    let (_, list) = source.split_once("SCENARIOS = [").expect("a scenario file ends with its list");
    list.lines().map(|line| line.trim().trim_end_matches(',')).filter(|name| !name.is_empty() && *name != "]")
}

/// Why a scenario did not hold.
pub(crate) enum Problem {
    /// Something that is not part of the project is not installed here.
    Absent(String),
    /// It was run and failed.
    Failed(String),
}

/// An outcome as the test runner shows it.
pub(crate) fn present(outcome: Result<(), Problem>) -> Result<Completion, Failed> {
    match outcome {
        Ok(()) => Ok(Completion::Completed),
        Err(Problem::Failed(reason)) => Err(reason.into()),
        Err(Problem::Absent(what)) if env::var_os(REQUIRE_VARIABLE).is_some() => {
            Err(format!("{what}, and {REQUIRE_VARIABLE} is set").into())
        }
        Err(Problem::Absent(what)) => Ok(Completion::ignored_with(format!("skipped: {what}"))),
    }
}

fn claude_code(scenario: &str) -> Result<(), Problem> {
    if cfg!(windows) {
        return Err(Problem::Absent("the launcher needs a POSIX shell".into()));
    }
    let python = program("python3")?;
    let client = installed_client()?;
    let sandbox = Sandbox::new();
    let plugin = sandbox.root().join("My Plugins").join("ü x").join("live-memory");
    let clone = sandbox.root().join("plugin of the sources");
    ship_plugin(&plugin, &clone).map_err(|error| Problem::Failed(format!("cannot copy the plugin: {error}")))?;
    let mut command = run(&python, "claude", scenario, &sandbox);
    command.arg("--client").arg(client).arg("--plugin").arg(plugin).arg("--clone").arg(clone);
    finish(command)
}

fn python_sdk(scenario: &str) -> Result<(), Problem> {
    let python = Path::new(INSTALLED).join(if cfg!(windows) { "venv/Scripts/python.exe" } else { "venv/bin/python" });
    if !python.exists() {
        return Err(Problem::Absent("the Python SDK is not installed in target/real-clients/venv".into()));
    }
    let sandbox = Sandbox::new();
    // The daemon is looked for beside the shim, so both must have been built.
    let _ = binaries::core();
    let mut command = run(&python, "sdk", scenario, &sandbox);
    command.arg("--shim").arg(binaries::shim());
    finish(command)
}

fn run(python: &Path, lane: &str, scenario: &str, sandbox: &Sandbox) -> Command {
    let mut command = sandbox.command(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg(Path::new(SOURCES).join("run.py")).args([lane, scenario]).arg("--sandbox").arg(sandbox.root());
    command
}

fn finish(mut command: Command) -> Result<(), Problem> {
    let output = command.output().map_err(|error| Problem::Failed(format!("cannot run {command:?}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Err(Problem::Failed(format!("{}\n{stdout}{stderr}", output.status)))
}

/// A program on the path.
pub(crate) fn program(name: &str) -> Result<PathBuf, Problem> {
    let found = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(name.into()),
        _ => Err(Problem::Absent(format!("{name} is not installed"))),
    }
}

/// The client's own binary, from whichever package npm chose for this machine.
fn installed_client() -> Result<PathBuf, Problem> {
    let packages = fs::read_dir(Path::new(INSTALLED).join("node_modules/@anthropic-ai"));
    packages
        .into_iter()
        .flatten()
        .filter_map(|package| Some(package.ok()?.path().join("claude")))
        .find(|binary| binary.is_file())
        .ok_or_else(|| Problem::Absent("Claude Code is not installed in target/real-clients".into()))
}

/// The plugin twice: as it is shipped, with this build's binaries in the place of this platform, and
/// as it lies among the sources.
fn ship_plugin(shipped: &Path, clone: &Path) -> io::Result<()> {
    copy_directory(Path::new(PLUGIN), shipped)?;
    copy_directory(Path::new(PLUGIN), clone)?;
    let binaries_directory = shipped.join("bin").join(format!("{}-{}", env::consts::OS, env::consts::ARCH));
    fs::create_dir(&binaries_directory)?;
    for binary in [binaries::shim(), binaries::core()] {
        let name = binary.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        fs::copy(binary, binaries_directory.join(name))?;
    }
    Ok(())
}

fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
