//! What is spent, as people see it, over crashes and with a damaged record.

use std::fs;

use lm_tests::{Sandbox, daemon, run};
use serde_json::Value;

use super::{KEY, ask, one_line, server, setup};

fn spending(sandbox: &Sandbox) -> Value {
    run::json(&sandbox.run(&["stats", "--json"]))["spending"].clone()
}

#[test]
fn stats_say_what_was_spent_before_anything_was() {
    let sandbox = Sandbox::new();
    run::succeeded(&sandbox.run(&["config", "set", "daily_budget_usd=2.5", "daily_budget_tokens=1000000"]));
    let text = one_line(&run::succeeded(&sandbox.run(&["stats"])));
    assert!(text.contains("nothing yet; the daily budget is $2.50 or 1000000 tokens"), "{text}");
    let spending = spending(&sandbox);
    assert_eq!((&spending["limit"]["usd"], &spending["total"]["requests"]), (&2.5.into(), &0.into()));
    assert!(spending["reached"].is_null() && !sandbox.data().spending_file().exists(), "{spending}");
}

#[test]
fn what_was_spent_outlives_a_crash_and_a_damaged_record_is_said() {
    let sandbox = Sandbox::new();
    let server = server();
    let arguments = ["--provider", "anthropic", "--base-url", &server.url(), "--key-stdin", "--yes"];
    run::succeeded(&setup(&sandbox, &arguments, KEY));
    assert_eq!(ask(&sandbox, &[])["provider"], "anthropic");
    let before = spending(&sandbox);
    assert!(before["today"]["usd"].as_f64().unwrap() > 0.0 && before["today"]["requests"] == 1, "{before}");

    daemon::kill(daemon::running_pid(&sandbox.data()));
    assert_eq!(ask(&sandbox, &[])["provider"], "anthropic");
    let after = spending(&sandbox);
    assert_eq!((&after["total"]["requests"], &after["workspaces"][0]["requests"]), (&2.into(), &2.into()));
    assert_eq!(after["damaged"], Value::Null);

    run::succeeded(&sandbox.run(&["stop"]));
    fs::write(sandbox.data().spending_file(), "{\"kind\":").unwrap();
    assert_eq!(ask(&sandbox, &[])["provider"], "anthropic");
    let text = one_line(&run::succeeded(&sandbox.run(&["stats"])));
    assert!(text.contains("figures were lost today") && text.contains("spending-damaged-1.jsonl"), "{text}");
    let damaged = spending(&sandbox);
    assert_eq!((&damaged["damaged"], &damaged["total"]["requests"]), (&damaged["day"], &1.into()));
}
