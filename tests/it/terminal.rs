//! What people see on a terminal, and scripts do not.

use std::process::{Command, Output, Stdio};

use lm_tests::{Behaviour, Sandbox, ScriptedDaemon, binaries, run, terminal::Terminal};

/// Runs a command whose standard error is a terminal; gives what that showed.
fn with_terminal(mut command: Command) -> (Output, String) {
    let terminal = Terminal::open();
    let child = command.stdout(Stdio::piped()).stderr(terminal.stdio()).spawn().unwrap();
    // It holds the terminal's end.
    drop(command);
    let output = child.wait_with_output().unwrap();
    (output, terminal.shown())
}

#[test]
fn progress_and_trailer_are_shown_on_a_terminal_and_nowhere_else() {
    let sandbox = Sandbox::new();
    let _daemon =
        ScriptedDaemon::start(&sandbox, |_| Behaviour::answer("in `a.rs:1`").with_progress(&["reading\x1b[2J"]));
    let (output, shown) = with_terminal(sandbox.shim(&["ask", "q"]));
    assert_eq!(run::succeeded(&output), "in `a.rs:1`\n");
    let (progress, trailer) = shown.split_once("\r\n").unwrap();
    assert!(progress.starts_with("\rasking …\rreading␛[2J"), "{shown:?}");
    // The line is wiped before anything else is said.
    assert!(progress.ends_with(" \r") && !progress.contains('\x1b'), "{shown:?}");
    assert_eq!(trailer, "offline · 1 ms\r\n");

    let (output, shown) = with_terminal(sandbox.shim(&["ask", "--json", "q"]));
    assert_eq!(run::json(&output)["answer"], "in `a.rs:1`");
    assert!(shown.contains("asking …") && !shown.contains("offline"), "{shown:?}");

    let output = sandbox.run(&["ask", "q"]);
    assert_eq!((run::succeeded(&output), run::stderr(&output)), ("in `a.rs:1`\n".into(), String::new()));
}

#[test]
fn without_arguments_a_person_is_shown_what_there_is() {
    let sandbox = Sandbox::new();
    let input = Terminal::open();
    let mut command = sandbox.shim(&[]);
    command.stdin(input.stdio());
    let (output, shown) = with_terminal(command);
    assert_eq!((output.status.code(), run::stdout(&output)), (Some(2), String::new()));
    assert!(shown.contains("Usage: lm-shim <COMMAND>") && shown.contains("lm-shim ask \""), "{shown}");
}

#[test]
fn a_question_is_not_waited_for_on_a_terminal() {
    let sandbox = Sandbox::new();
    let input = Terminal::open();
    let mut command = sandbox.shim(&["ask"]);
    command.stdin(input.stdio());
    let output = command.output().unwrap();
    assert!(run::failed(&output, 2).starts_with("lm-shim: give a question, as in: lm-shim ask"));
}

#[test]
fn control_c_ends_a_question_with_130_and_leaves_the_line_clean() {
    let sandbox = Sandbox::new();
    let daemon = ScriptedDaemon::start(&sandbox, |_| Behaviour::hold());
    let _ = binaries::core();
    // A terminal sends the signal to those whom it controls.
    let mut command = sandbox.command("setsid".as_ref());
    command.args(["--ctty", "--wait"]).arg(binaries::shim()).args(["ask", "q"]);
    let mut terminal = Terminal::open();
    command.stdin(terminal.stdio()).stdout(Stdio::piped()).stderr(terminal.stdio());
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("skipped: setsid cannot be run ({error}), so nothing gets a controlling terminal");
            return;
        }
    };
    drop(command);
    daemon.wait_for_questions(1);
    terminal.type_in(b"\x03");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), run::stdout(&output)), (Some(130), String::new()));
    daemon.wait_for_cancel();
    let shown = terminal.shown();
    assert!(shown.starts_with("\rasking …") && shown.trim_end_matches("^C").ends_with(" \r"), "{shown:?}");
}
