//! `lm-shim empty`, `reset`, `pause` and `resume`, and what is left on the disk.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use lm_tests::{
    ModelServer, Sandbox,
    daemon::{Hold, assert_answered, wait_until_asked, wait_until_left},
    files_below,
    model_server::{Gate, SeenRequest, Turn},
    observed::{done, hook, observed_files, repository, settled, workspace_stats},
    run::{failed, json, succeeded},
    wait_until,
};
use serde_json::json;

const CANARY: &str = "canary_of_the_cellar";

/// A repository with a file that is found by its canary, whose index is there, and in which something
/// was observed.
fn known(sandbox: &Sandbox, name: &str) -> PathBuf {
    let root = repository(sandbox, name);
    fs::write(root.join("a.rs"), format!("fn {CANARY}() {{}}\n")).unwrap();
    assert_answered(&run_in(sandbox, &root, &["ask", &format!("where is {CANARY}?")]));
    wait_until("the index", || {
        let workspace = workspace_stats(sandbox, name)?;
        (workspace["index"]["state"] == "ready").then_some(())
    });
    let before = observed_files(sandbox, name);
    let _ = hook(sandbox, done("Read", &root.join("a.rs"), &root).to_string().as_bytes());
    wait_until("the observation", || (observed_files(sandbox, name) > before).then_some(()));
    root
}

fn run_in(sandbox: &Sandbox, directory: &Path, arguments: &[&str]) -> Output {
    sandbox.shim(arguments).current_dir(directory).output().unwrap()
}

/// The files of the data directory in which something occurs.
fn files_with(sandbox: &Sandbox, needle: &str) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
    };
    files_below(sandbox.data().root()).into_iter().filter(holds).collect()
}

fn kept(sandbox: &Sandbox) -> usize {
    sandbox.data().workspaces().read_dir().map_or(0, Iterator::count)
}

#[test]
fn emptying_leaves_nothing_of_a_workspace_and_all_of_others() {
    let sandbox = Sandbox::new();
    let (root, other) = (known(&sandbox, "project"), known(&sandbox, "other"));
    assert_eq!(kept(&sandbox), 2);
    assert!(files_below(&sandbox.data().workspaces()).len() > 2, "nothing was kept that could be forgotten");
    let text = succeeded(&run_in(&sandbox, &root, &["empty"]));
    assert!(text.contains("Forgot everything of") && text.contains("1 observed file,"), "{text}");
    assert!(text.contains("files on the disk ("), "{text}");
    assert_eq!(kept(&sandbox), 1);
    assert!(workspace_stats(&sandbox, "project").is_none());
    assert_eq!(observed_files(&sandbox, "other"), 1);
    let again = succeeded(&run_in(&sandbox, &root, &["empty"]));
    assert!(again.starts_with("Nothing was remembered of"), "{again}");
    // It is asked about as if for the first time.
    assert_answered(&run_in(&sandbox, &root, &["ask", &format!("where is {CANARY}?")]));
    succeeded(&sandbox.run(&["empty", "--cwd", root.to_str().unwrap()]));

    let all = json(&run_in(&sandbox, &other, &["empty", "all", "--json"]));
    assert_eq!(all["workspaces"].as_array().unwrap().len(), 1, "{all}");
    assert_eq!(all["workspaces"][0]["observed_files"], 1, "{all}");
    assert!(all["bytes"].as_u64().unwrap() > 0, "{all}");
    assert_eq!(kept(&sandbox), 0);
    assert_eq!(files_with(&sandbox, CANARY), Vec::<PathBuf>::new());
    let nothing = succeeded(&sandbox.run(&["empty", "all", "--yes"]));
    assert_eq!(nothing, "Nothing was remembered of any workspace.\n");
}

#[test]
fn what_an_earlier_daemon_kept_is_forgotten_too() {
    let sandbox = Sandbox::new();
    let root = known(&sandbox, "project");
    succeeded(&sandbox.run(&["stop"]));
    wait_until_left(&sandbox.data());
    // As one that was killed in the middle of forgetting leaves it.
    let leftover = sandbox.data().workspaces().join("forgotten-0123");
    fs::create_dir(&leftover).unwrap();
    fs::write(leftover.join("words"), CANARY).unwrap();
    let report = json(&run_in(&sandbox, &root, &["empty", "--json"]));
    assert!(report["files"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(kept(&sandbox), 0);
    assert_eq!(files_with(&sandbox, CANARY), Vec::<PathBuf>::new());
}

#[test]
fn a_workspace_whose_directory_is_gone_can_be_emptied() {
    let sandbox = Sandbox::new();
    let root = known(&sandbox, "project");
    fs::remove_dir_all(&root).unwrap();
    let unknown = sandbox.root().join("never-there");
    let refused = failed(&sandbox.run(&["empty", "--cwd", unknown.to_str().unwrap()]), 1);
    assert!(refused.contains("does not exist; give an existing directory with `--cwd`"), "{refused}");
    let refused = failed(&sandbox.run(&["reset", "--cwd", root.to_str().unwrap()]), 1);
    assert!(refused.contains("does not exist"), "{refused}");
    assert_eq!(kept(&sandbox), 1);
    let below = root.join("src/deep");
    let text = succeeded(&sandbox.run(&["empty", "--cwd", below.to_str().unwrap()]));
    assert!(text.contains("Forgot everything of"), "{text}");
    assert_eq!(kept(&sandbox), 0);
}

#[test]
fn a_workspace_that_is_excluded_now_can_be_emptied() {
    let sandbox = Sandbox::new();
    let root = known(&sandbox, "project");
    succeeded(&sandbox.run(&["config", "set", &format!("exclude={}", root.display())]));
    failed(&run_in(&sandbox, &root, &["pause"]), 1);
    succeeded(&run_in(&sandbox, &root, &["empty"]));
    assert_eq!(kept(&sandbox), 0);
}

#[test]
fn resetting_forgets_and_begins_anew() {
    let sandbox = Sandbox::new();
    let root = known(&sandbox, "project");
    let text = succeeded(&run_in(&sandbox, &root, &["reset"]));
    assert!(text.contains("Forgot everything of") && text.contains("begins anew"), "{text}");
    let workspace = workspace_stats(&sandbox, "project").expect("it is open again");
    assert_eq!((&workspace["observed"]["files"], &workspace["index"]["files"]), (&json!(0), &json!(0)));
    assert_eq!(files_with(&sandbox, CANARY), Vec::<PathBuf>::new());
}

#[test]
fn pausing_holds_for_all_sessions_and_daemons_until_it_is_taken_back() {
    let sandbox = Sandbox::new();
    let root = known(&sandbox, "project");
    let text = succeeded(&run_in(&sandbox, &root, &["pause"]));
    assert!(text.starts_with("Paused learning"), "{text}");
    let edit = |file: &str| {
        let _ = hook(&sandbox, done("Edit", &root.join(file), &root).to_string().as_bytes());
    };
    edit("b.rs");
    wait_until("the observation to be dropped", || {
        (workspace_stats(&sandbox, "project")?["observed"]["missed"] == 1).then_some(())
    });
    assert_eq!(observed_files(&sandbox, "project"), 1);
    assert_answered(&run_in(&sandbox, &root, &["ask", &format!("where is {CANARY}?")]));

    succeeded(&sandbox.run(&["stop"]));
    wait_until_left(&sandbox.data());
    let again = json(&run_in(&sandbox, &root, &["pause", "--json"]));
    assert_eq!((&again["paused"], &again["was_paused"]), (&json!(true), &json!(true)), "{again}");
    edit("c.rs");
    let observations = settled(&sandbox, 1);
    assert_eq!(observations["dropped"]["paused"], 1, "{observations}");
    let shown = succeeded(&sandbox.run(&["stats"]));
    assert!(shown.contains("learning is paused"), "{shown}");

    let text = succeeded(&run_in(&sandbox, &root, &["resume"]));
    assert!(text.starts_with("Resumed learning"), "{text}");
    edit("d.rs");
    settled(&sandbox, 2);
    assert_eq!(observed_files(&sandbox, "project"), 2, "what was learned before is known still");
    let text = succeeded(&run_in(&sandbox, &root, &["resume"]));
    assert!(text.starts_with("Nothing to resume"), "{text}");

    // Emptying takes it back, and says so.
    succeeded(&run_in(&sandbox, &root, &["pause"]));
    let text = succeeded(&run_in(&sandbox, &root, &["empty"]));
    assert!(text.replace('\n', " ").contains("Learning was paused and is not any more."), "{text}");
    assert_eq!(kept(&sandbox), 0);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        succeeded(&run_in(&sandbox, &root, &["pause"]));
        let mark = files_below(&sandbox.data().workspaces()).into_iter().find(|path| path.ends_with("paused"));
        assert_eq!(mark.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_question_under_way_is_answered_and_not_remembered() {
    let sandbox = Sandbox::new();
    let root = repository(&sandbox, "project");
    fs::write(root.join("a.rs"), format!("fn {CANARY}() {{}}\n")).unwrap();
    let hold = Hold::new(&sandbox);
    let mut command = sandbox.shim(&["ask", &format!("where is {CANARY}?")]);
    command.current_dir(&root).stdout(Stdio::piped()).stderr(Stdio::piped());
    let asking = hold.on(&mut command).spawn().unwrap();
    wait_until_asked(&sandbox.data(), 1);
    succeeded(&run_in(&sandbox, &root, &["empty"]));
    hold.release();
    assert_answered(&asking.wait_with_output().unwrap());
}

#[test]
fn an_answer_of_a_model_that_comes_after_emptying_is_not_remembered() {
    let sandbox = Sandbox::new();
    let root = repository(&sandbox, "project");
    fs::write(root.join("a.rs"), "fn a() {}\n").unwrap();
    let gate = Gate::default();
    let held = gate.clone();
    let server = ModelServer::start(move |_: &SeenRequest| Turn::text(CANARY).gated(&held));
    let config = json!({
        "provider": "anthropic", "base_url": server.url(), "api_key": "sk-test-0123456789",
        "model": "claude-haiku-5-5", "force_explore_when_cold": false,
    });
    fs::write(sandbox.data().config_file(), config.to_string()).unwrap();
    let mut command = sandbox.shim(&["ask", "what is it?"]);
    command.current_dir(&root).stdout(Stdio::piped()).stderr(Stdio::piped());
    let asking = command.spawn().unwrap();
    wait_until("the question at the model", || (gate.waiting() == 1).then_some(()));
    let text = succeeded(&run_in(&sandbox, &root, &["empty"])).replace('\n', " ");
    assert!(text.contains("1 question still being answered will not be remembered."), "{text}");
    gate.open();
    let answer = succeeded(&asking.wait_with_output().unwrap());
    assert!(answer.contains(CANARY), "{answer}");
    assert_eq!(files_with(&sandbox, CANARY), Vec::<PathBuf>::new());
    succeeded(&run_in(&sandbox, &root, &["ask", "and now?"]));
    let last = server.requests().pop().unwrap();
    let last_text = format!("{last:?}");
    assert!(last.question().contains("and now?") && !last_text.contains(CANARY), "{}", last_text);
}

#[test]
fn a_place_that_is_no_workspace_is_refused() {
    let sandbox = Sandbox::new();
    succeeded(&sandbox.run(&["config", "show"]));
    for command in ["empty", "reset", "pause", "resume"] {
        let refused = failed(&sandbox.run(&[command, "--cwd", sandbox.home().to_str().unwrap()]), 1);
        assert!(refused.contains("your home directory") && refused.contains("`--cwd`"), "{command}: {refused}");
    }
    assert_eq!(sandbox.run(&["empty", "everything"]).status.code(), Some(2));
    assert_eq!(sandbox.run(&["empty", "all", "--cwd", "/w"]).status.code(), Some(2));
}

#[cfg(unix)]
#[test]
fn a_person_is_asked_before_everything_is_forgotten() {
    use lm_tests::terminal::Terminal;

    let sandbox = Sandbox::new();
    let root = known(&sandbox, "project");
    let on_terminal = |arguments: &[&str], answer: Option<&str>| {
        let mut terminal = Terminal::open();
        let mut command = sandbox.shim(arguments);
        command.current_dir(&root).stdin(terminal.stdio()).stderr(terminal.stdio()).stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        drop(command);
        if let Some(answer) = answer {
            terminal.answer("Forget everything about every workspace? [y/N] ", answer);
        }
        succeeded(&child.wait_with_output().unwrap())
    };
    for answer in ["n", ""] {
        assert_eq!(on_terminal(&["empty", "all"], Some(answer)), "Nothing was forgotten.\n");
        assert_eq!(kept(&sandbox), 1);
    }
    assert!(on_terminal(&["empty", "all"], Some("y")).starts_with("Forgot everything of 1 workspace"));
    assert_eq!(kept(&sandbox), 0);
    // One alone, and with --yes, nobody is asked.
    let _ = known(&sandbox, "project");
    on_terminal(&["empty"], None);
    on_terminal(&["empty", "all", "--yes"], None);
    assert_eq!(kept(&sandbox), 0);
}
