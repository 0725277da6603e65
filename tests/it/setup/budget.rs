//! What is spent, as people see it.

use lm_tests::{Sandbox, run};

#[test]
fn stats_say_what_was_spent_before_anything_was() {
    let sandbox = Sandbox::new();
    run::succeeded(&sandbox.run(&["config", "set", "daily_budget_usd=2.5", "daily_budget_tokens=1000000"]));
    let text = run::succeeded(&sandbox.run(&["stats"]));
    assert!(text.contains("nothing yet; the daily budget is $2.50 or 1000000 tokens"), "{text}");
    let spending = run::json(&sandbox.run(&["stats", "--json"]))["spending"].clone();
    assert_eq!((&spending["limit"]["usd"], &spending["total"]["requests"]), (&2.5.into(), &0.into()));
    assert!(spending["reached"].is_null() && !sandbox.data().spending_file().exists(), "{spending}");
}
