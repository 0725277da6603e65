//! `lm-shim export` and `import`.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read as _, Write as _, stdin, stdout},
    path::{Path, PathBuf},
};

use lm_proto::{codec::FRAME_MAX, message::Request};

use super::{
    Luggage, ask,
    output::{self, Failed, Outcome},
    report,
};
use crate::mcp::session;

/// A longer file does not fit into one message.
const IMPORT_BYTES_MAX: u64 = (FRAME_MAX - 4096) as u64;

/// Writes what is known to a file or to standard output.
pub(super) async fn export(Luggage { file, here }: Luggage) -> Outcome {
    let cwd = ask::directory(here.cwd.as_deref())?;
    let report = report::request(Request::Export { cwd, environment: session::environment() }).await?;
    let Some(file) = file.filter(|file| file != Path::new("-")) else {
        // Byte for byte: JSON has no character that a terminal obeys.
        let mut stdout = stdout().lock();
        return match stdout.write_all(report.text.as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failed::new(format!("cannot write to standard output: {error}")))
            }
            _ => output::print(""),
        };
    };
    write(&file, &report.text).map_err(|error| {
        let remedy = if error.kind() == io::ErrorKind::AlreadyExists { "; give a name that is not taken" } else { "" };
        Failed::new(format!("cannot write `{}`: {error}{remedy}", file.display()))
    })?;
    if here.json {
        return output::print(&output::line(&report.json));
    }
    output::print(&format!("Wrote what is known to `{}`.\n", file.display()))
}

/// A new file, readable by the user alone.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut opened = options.open(file)?;
    opened.write_all(text.as_bytes())?;
    opened.sync_all()
}

/// Takes in what such a file, or standard input, holds.
pub(super) async fn import(Luggage { file, here }: Luggage) -> Outcome {
    let cwd = ask::directory(here.cwd.as_deref())?;
    let lines = tokio::task::spawn_blocking(move || read(file.filter(|file| file != Path::new("-"))));
    let lines = lines.await.map_err(|error| Failed::new(format!("cannot read it: {error}")))??;
    let request = Request::Import { cwd, lines, environment: session::environment() };
    report::show(&report::request(request).await?, here.json)
}

fn read(file: Option<PathBuf>) -> Result<String, Failed> {
    let name = file.as_ref().map_or_else(|| "standard input".to_owned(), |file| format!("`{}`", file.display()));
    let failed = |error: io::Error| Failed::new(format!("cannot read {name}: {error}"));
    let mut bytes = Vec::new();
    let limit = IMPORT_BYTES_MAX + 1;
    match &file {
        Some(file) => fs::File::open(file).and_then(|opened| opened.take(limit).read_to_end(&mut bytes)),
        None => stdin().lock().take(limit).read_to_end(&mut bytes),
    }
    .map_err(failed)?;
    if bytes.len() as u64 > IMPORT_BYTES_MAX {
        return Err(Failed::new(format!("{name} is longer than {IMPORT_BYTES_MAX} bytes, which no export is")));
    }
    String::from_utf8(bytes).map_err(|_| Failed::new(format!("{name} is not UTF-8, so it is no export")))
}
