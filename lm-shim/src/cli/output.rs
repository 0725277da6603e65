//! Writing to people: the result, what is said besides, and the exit code. Everything that is shown goes
//! through here, where it is made fit for a terminal.

use std::{
    error::Error,
    io::{self, ErrorKind, IsTerminal, Write, stderr, stdout},
    process::ExitCode,
};

use lm_proto::printable::{printable, printable_line};

/// What a command comes to.
pub(super) type Outcome = Result<Done, Failed>;

/// What a command prints at its end, and its exit code.
#[must_use]
#[derive(Debug)]
pub(super) struct Done {
    text: String,
    code: ExitCode,
    /// Said to the person after that.
    aside: Option<String>,
}

impl Done {
    /// Ended with nothing to print.
    pub(super) fn silently(code: ExitCode) -> Self {
        Self { text: String::new(), code, aside: None }
    }

    /// The same, and something said to the person after what is printed.
    pub(super) fn and_say(self, text: String) -> Self {
        Self { aside: Some(text), ..self }
    }

    /// What is printed, for another place than standard output.
    pub(super) fn into_text(self) -> String {
        printable(&self.text).into_owned()
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(super) struct Failed {
    /// None where there is nothing to say.
    reason: Option<String>,
    code: u8,
}

impl Failed {
    /// Failed for a reason, which also says what to do.
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), code: 1 }
    }

    /// Was asked for in a way that cannot be understood.
    pub(super) fn usage(reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), code: 2 }
    }

    /// Ended by Ctrl-C: 128 and the signal's number, as shells have it.
    pub(super) fn interrupted() -> Self {
        Self { reason: None, code: 130 }
    }

    /// The reason, for another text.
    pub(super) fn into_reason(self) -> String {
        self.reason.unwrap_or_default()
    }

    /// Failed for an error and what lies behind it.
    pub(super) fn from_error(error: impl Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Ends a command: prints what came of it, or says why it failed.
pub(super) fn end(outcome: Outcome) -> ExitCode {
    match outcome.and_then(write) {
        Ok(code) => code,
        Err(Failed { reason, code }) => {
            if let Some(reason) = reason {
                say(&format!("lm-shim: {}\n", on_one_line(&reason)));
            }
            ExitCode::from(code)
        }
    }
}

/// Several reasons come on lines of their own.
fn on_one_line(reason: &str) -> String {
    let mut line = String::new();
    for part in reason.lines().map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")) {
        if !line.is_empty() && !part.is_empty() {
            line.push_str(if line.ends_with([';', ',', ':', '.']) { " " } else { "; " });
        }
        line.push_str(&part);
    }
    line
}

/// A result that is to be printed.
pub(super) fn print(text: &str) -> Outcome {
    print_and(text, ExitCode::SUCCESS)
}

/// A result that is to be printed and ends with a certain code.
pub(super) fn print_and(text: &str, code: ExitCode) -> Outcome {
    Ok(Done { text: text.to_owned(), code, aside: None })
}

/// Prints a result. What a terminal would obey is shown instead: paths and values in it come from anywhere.
fn write(Done { text, code, aside }: Done) -> Result<ExitCode, Failed> {
    let mut stdout = stdout().lock();
    let code = match stdout.write_all(printable(&text).as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => code,
        // As of `lm-shim … | head`: the reader has what it wants.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => return Err(Failed::new(format!("cannot write to standard output: {error}"))),
    };
    if let Some(aside) = aside {
        say(&aside);
    }
    Ok(code)
}

/// `text` with exactly one newline at its end.
pub(super) fn line(text: &str) -> String {
    format!("{}\n", text.trim_end_matches('\n'))
}

/// Says something to the person; what cannot be said is not worth failing for.
pub(super) fn say(text: &str) {
    write_to_person(&printable(text));
}

fn write_to_person(text: &str) {
    drop(stderr().lock().write_all(text.as_bytes()));
}

/// Shows help, a version or a wrong usage, and gives the code for it.
pub(super) fn show_clap(error: &clap::Error) -> ExitCode {
    match error.print() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
    }
}

/// One line on a terminal that is written over again and again; silent anywhere else.
pub(super) struct StatusLine {
    is_terminal: bool,
    width: usize,
}

impl StatusLine {
    pub(super) fn new() -> Self {
        Self { is_terminal: stderr().is_terminal(), width: 0 }
    }

    /// Whether a person is looking.
    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows another text in place of the last one.
    pub(super) fn show(&mut self, text: &str) {
        if self.is_terminal {
            // Short of 80 columns, so that it never wraps and control characters never act.
            let text: String = printable_line(text).chars().take(78).collect();
            let width = text.chars().count();
            drop(
                write!(stderr().lock(), "\r{text}{}", " ".repeat(self.width.saturating_sub(width)))
                    .and_then(|()| io::stderr().flush()),
            );
            self.width = width;
        }
    }

    /// Takes the line away.
    pub(super) fn clear(&mut self) {
        if self.width > 0 {
            write_to_person(&format!("\r{}\r", " ".repeat(self.width)));
            self.width = 0;
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::on_one_line;

    #[test]
    fn reasons_are_told_apart_on_one_line() {
        assert_eq!(on_one_line("a  is no b\n\n c is no d\n"), "a is no b; c is no d");
        assert_eq!(on_one_line("no such directory;\n  give another"), "no such directory; give another");
    }
}
