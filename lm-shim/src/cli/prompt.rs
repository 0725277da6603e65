//! Asking a person at a terminal. Questions go to standard error, answers come from standard input.

use std::io::{BufRead, IsTerminal, stderr, stdin};

use super::output::{self, Failed};

/// Whether there is somebody to ask.
pub(super) fn is_possible() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Asks for a line.
pub(super) async fn line(question: &str) -> Result<String, Failed> {
    output::say(question);
    read().await
}

/// Asks for a line that is not shown.
pub(super) async fn hidden(question: &str) -> Result<String, Failed> {
    output::say(question);
    let text = read_hidden().await;
    // The one that was typed was not shown either.
    output::say("\n");
    text
}

/// Asks for yes or no; nothing but a new line is the default.
pub(super) async fn yes(question: &str, default: bool) -> Result<bool, Failed> {
    loop {
        let choices = if default { "[Y/n]" } else { "[y/N]" };
        match line(&format!("{question} {choices} ")).await?.to_lowercase().as_str() {
            "" => return Ok(default),
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => output::say("Please answer y or n.\n"),
        }
    }
}

async fn read() -> Result<String, Failed> {
    let read = tokio::task::spawn_blocking(|| {
        let mut text = String::new();
        stdin().lock().read_line(&mut text).map(|length| (length > 0).then_some(text))
    });
    match read.await {
        Ok(Ok(Some(text))) => Ok(text.trim().to_owned()),
        Ok(Ok(None)) => Err(Failed::new("the input has ended; nothing was changed")),
        Ok(Err(error)) => Err(Failed::new(format!("cannot read standard input: {error}; nothing was changed"))),
        Err(error) => Err(Failed::new(format!("cannot read standard input: {error}; nothing was changed"))),
    }
}

#[cfg(unix)]
async fn read_hidden() -> Result<String, Failed> {
    let _silence = Silence::begin()?;
    read().await
}

/// Keeps a terminal from showing what is typed until it is dropped, also where Ctrl-C ends the question.
#[cfg(unix)]
struct Silence(rustix::termios::Termios);

#[cfg(unix)]
impl Silence {
    fn begin() -> Result<Self, Failed> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

        // Where it cannot be hidden, it is not asked for.
        let unable = |error| {
            Failed::new(format!("the terminal cannot hide a key ({error}); give it with --key-file or --key-stdin"))
        };
        let before = tcgetattr(stdin()).map_err(unable)?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO | LocalModes::ECHONL;
        tcsetattr(stdin(), OptionalActions::Flush, &silent).map_err(unable)?;
        Ok(Self(before))
    }
}

#[cfg(unix)]
impl Drop for Silence {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = rustix::termios::tcsetattr(stdin(), rustix::termios::OptionalActions::Now, &self.0);
    }
}

#[cfg(windows)]
async fn read_hidden() -> Result<String, Failed> {
    match tokio::task::spawn_blocking(rpassword::read_password).await {
        Ok(Ok(text)) => Ok(text.trim().to_owned()),
        Ok(Err(error)) => Err(Failed::new(format!("cannot read from the console: {error}; nothing was changed"))),
        Err(error) => Err(Failed::new(format!("cannot read from the console: {error}; nothing was changed"))),
    }
}
