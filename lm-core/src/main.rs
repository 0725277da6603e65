//! The daemon's executable. Shims start it; people start it with `--foreground` to see what it does.

use std::{env, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context;
use clap::Parser;
use lm_core::{
    daemon::{
        lifecycle::{self, Ended, Options},
        logging::{self, LogOptions},
    },
    settings::SettingsStore,
};
use lm_proto::{Build, DataDirectory};

/// The daemon of Live Memory. Shims start and find it by themselves.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Stay attached to the terminal and log to standard error as well
    #[arg(long)]
    foreground: bool,
    /// The data directory, instead of LIVE_MEMORY_DATA_DIR or the default one
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The build this daemon was started as, told by the shim that copied it
    #[arg(long, hide = true, value_name = "SECONDS")]
    build_stamp: Option<u64>,
    /// Wait for a daemon that is leaving
    #[arg(long, hide = true)]
    replace: bool,
}

fn main() -> ExitCode {
    // Before anything is created: whatever the starter's mask was, nothing of ours is for others.
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));

    match run(&Arguments::parse()) {
        // A lock that comes with it is held until the process is gone.
        Ok(Ended::LostElection | Ended::Left(_)) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<Ended> {
    let mut data = None;
    let ended = open(arguments).and_then(|directory| serve(arguments, data.insert(directory).clone()));
    if let Err(error) = &ended {
        // One line, without the backtrace that a returned error would print: a shim quotes it.
        let is_alone = !arguments.foreground;
        logging::report_failure(data.as_ref().filter(|_| is_alone), &format!("{error:#}"));
    }
    ended
}

fn open(arguments: &Arguments) -> anyhow::Result<DataDirectory> {
    Ok(match &arguments.data_dir {
        Some(directory) => DataDirectory::open_at(directory.clone())?,
        None => DataDirectory::open()?,
    })
}

fn serve(arguments: &Arguments, data: DataDirectory) -> anyhow::Result<Ended> {
    // The working directory must pin no directory of a user, whoever started us.
    env::set_current_dir(data.run()).with_context(|| format!("cannot enter `{}`", data.run().display()))?;
    let build = match arguments.build_stamp {
        Some(stamp) => Build::with_stamp(stamp),
        None => Build::of_core_binary(&env::current_exe().context("cannot find the daemon's own executable")?),
    };
    let settings = Arc::new(SettingsStore::open(&data));
    let set = settings.for_daemon();
    let options = Options {
        build,
        foreground: arguments.foreground,
        replaces: arguments.replace,
        log: LogOptions {
            level: set.log_level.word().to_owned(),
            file: set.log_file.unwrap_or_else(|| data.core_log()),
            max_bytes: set.log_max_bytes,
            backups: set.log_backups,
            to_stderr: arguments.foreground,
        },
        settings,
        data,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 4)))
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ended = runtime.block_on(lifecycle::run(options));
    // What still computes in the background must not keep the process.
    runtime.shutdown_background();
    Ok(ended?)
}
