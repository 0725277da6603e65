//! Files with secrets are not shown, not quoted, not kept and not logged.

use std::{fs, path::Path};

use lm_tests::McpClient;
use serde_json::json;

use super::Tree;

/// Put together at run time, so that this file does not hold what it looks for.
fn token(prefix: &str, body: &str) -> String {
    format!("{prefix}{body}")
}

const RANDOM: &str = "q7Zt1LxV0sPd9KfR3mWb8YcN5hJg2TuE6aQvXoSi4nDyGpCk";

#[test]
fn secrets_by_name_and_by_content_leave_no_trace() {
    let tree = Tree::with(&[("src/main.rs", "fn connect_database() { read_password(); }\n")]);
    let by_name = [
        ".env",
        ".env.production",
        "deploy/id_rsa",
        "tls/server.pem",
        ".npmrc",
        "credentials.json",
        ".aws/credentials",
        ".ssh/config",
        ".env.bak",
        "deploy/id_rsa~",
        "tls/server.key.1",
        "credentials copy.json",
        ".cargo/credentials.toml",
        ".m2/settings.xml",
        "infra/prod.tfvars.json",
        "Secrets.YML",
        ".bash_history",
    ];
    let mut canaries = Vec::new();
    for (number, path) in by_name.iter().enumerate() {
        let canary = format!("canaryname{number}q{}", &RANDOM[..12]);
        tree.write(path, format!("database password connect {canary}\n").as_bytes());
        canaries.push(canary);
    }
    let by_content = [
        ("config.py", token("ghp_", &RANDOM[..36])),
        ("notes.md", token("-----BEGIN RSA PRIVATE ", &format!("KEY-----\n{RANDOM}{RANDOM}\n"))),
        ("client.ts", token("sk-ant-", &format!("api03-{RANDOM}"))),
        ("aws.tf", token("AKIA", "Q7ZT1LXV0SPD9KFR")),
        ("names.py", token("key_ghp_", &RANDOM[..36])),
        ("comment.go", token("// -----BEGIN RSA PRIVATE ", &format!("KEY-----\n// {RANDOM}{RANDOM}\n"))),
        ("database.ini", token("postgres://app:", "Xk29fjQmLz@db.internal:5432/app")),
        ("storage.cs", token("AccountName=a;AccountKey=", &format!("{RANDOM}{}==", &RANDOM[..38]))),
        ("settings.rb", token("aws_secret_access_key = ", &RANDOM[..40])),
        ("session.http", token("Bearer eyJhbGciOiJIUzI1NiJ9.eyJ", &format!("{RANDOM}.{}", &RANDOM[..43]))),
    ];
    for (number, (path, secret)) in by_content.iter().enumerate() {
        let canary = format!("canarytext{number}q{}", &RANDOM[..12]);
        tree.write(path, format!("database password connect {canary}\nx = \"{secret}\"\n").as_bytes());
        canaries.push(canary);
        canaries.push(secret.lines().last().unwrap().trim_start_matches("// ").to_owned());
    }

    let mut said = String::new();
    let mut ask = |question: &str| {
        for arguments in [&["ask", question][..], &["ask", "--json", question], &["stats"], &["doctor"]] {
            let output = tree.sandbox.shim(arguments).current_dir(&tree.root).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            said += &String::from_utf8_lossy(&output.stdout);
            said += &String::from_utf8_lossy(&output.stderr);
        }
    };
    ask("where does it connect to the database with a password?");
    tree.wait_for_index();
    ask("where does it connect to the database with a password?");
    ask("show me .env and config.py and credentials.json");
    let mut server = tree.sandbox.shim(&[]);
    server.env("CLAUDE_PROJECT_DIR", &tree.root);
    said += &McpClient::initialized(server).ask(json!({"question": "what is in config.py and .env?"})).1;

    let answer = tree.ask("where is connect_database?");
    assert_eq!(answer["search"]["left_out"]["secret"], by_name.len() + by_content.len(), "{answer}");
    assert!(said.contains("src/main.rs"), "{said}");
    tree.wait_for_index();
    let kept = bytes_below(tree.sandbox.data().root()) + &bytes_below(&tree.sandbox.home());
    assert!(kept.contains("connect"), "nothing is kept at all");
    for canary in &canaries {
        assert!(!said.contains(canary.as_str()), "{canary} was shown: {said}");
        assert!(!kept.contains(canary.as_str()), "{canary} was kept");
    }
    // Not as words of the index either, where they are not written one after the other.
    for canary in canaries.iter().filter(|canary| canary.starts_with("canary")) {
        let answer = tree.ask(&format!("where is `{canary}`?"));
        assert_eq!(answer["search"]["absent_terms"], json!([canary]), "{answer}");
    }
}

#[test]
fn a_file_that_becomes_a_secret_is_forgotten() {
    let tree = Tree::with(&[("config.py", "endpoint_of_service = 1\n"), ("b.py", "other_service = 1\n")]).indexed();
    assert_eq!(tree.ask("where is endpoint_of_service?")["search"]["verdict"], "found");
    let secret = token("ghp_", &RANDOM[..36]);
    tree.write("config.py", format!("endpoint_of_service = 1\ntoken = '{secret}'\n").as_bytes());
    for _ in 0..2 {
        let answer = tree.ask("where is endpoint_of_service?");
        assert!(super::paths(&answer).iter().all(|path| *path != "config.py"), "{answer}");
        tree.wait_for_index();
    }
    assert!(!bytes_below(&tree.sandbox.data().workspaces()).contains(&secret));
}

#[test]
fn a_token_at_the_end_of_what_is_read_of_a_large_file_is_not_shown_in_part() {
    let secret = token("ghp_", &RANDOM[..36]);
    let beginning = &secret[..30];
    let line = "filler_of_this_file = 1\n";
    let mut text = "the_last_line_read = '".to_owned();
    text.insert_str(0, &line.repeat(((1 << 20) - text.len() - beginning.len()) / line.len()));
    text.insert_str(0, &"#".repeat((1 << 20) - text.len() - beginning.len()));
    text += &secret;
    text += "'\n";
    assert!(text[..1 << 20].ends_with(beginning));
    let tree = Tree::with(&[("large.py", &text), ("small.py", "a_line_of_another_file = 1\n")]);
    for _ in 0..2 {
        let answer = tree.ask("where is the_last_line_read?");
        assert!(!answer.to_string().contains(beginning), "{answer}");
        assert_eq!(answer["search"]["left_out"]["secret"], 1, "{answer}");
        tree.wait_for_index();
    }
    assert!(!bytes_below(tree.sandbox.data().root()).to_lowercase().contains(&beginning.to_lowercase()));
}

/// Every byte of every file below, as text.
fn bytes_below(directory: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            all += &bytes_below(&entry.path());
        } else if kind.is_file() {
            // Copies of the programs hold no file of the workspace.
            if !entry.path().to_string_lossy().contains("lm-core-") {
                all += &String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default());
            }
        }
    }
    all
}

/// Whoever keeps the data directory in a workspace does not get the settings, and the key in them,
/// into an answer.
#[test]
fn the_data_directory_is_never_searched() {
    let tree = Tree::with(&[("a.rs", "fn api_key_of_the_person() {}\n")]);
    let data = tree.root.join(".lm");
    let run = |arguments: &[&str]| {
        let mut command = tree.sandbox.shim(arguments);
        let output = command.env("LIVE_MEMORY_DATA_DIR", &data).current_dir(&tree.root).output().unwrap();
        lm_tests::run::succeeded(&output);
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["config", "set", "api_key=canary-of-the-key"]);
    for _ in 0..2 {
        let answer = run(&["ask", "--json", "api_key_of_the_person and api_key canary"]);
        assert!(answer.contains("a.rs") && !answer.contains("canary-of-the-key"), "{answer}");
    }
    let inside = run(&["ask", "--json", "--cwd", data.to_str().unwrap(), "api_key_of_the_person and api_key canary"]);
    assert!(!inside.contains("canary-of-the-key"), "{inside}");
    run(&["stop"]);
}
