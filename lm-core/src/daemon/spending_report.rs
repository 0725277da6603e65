//! What reports say about money and tokens. Pure.

use serde_json::{Value as Json, json};

use super::reports::Subject;
use crate::{
    agent::{offline::counted, provider::ChosenModel},
    budget::{Spent, Sum, price_note},
    llm::pricing::dollars,
    workspace::daily_limits,
};

/// Workspaces that are listed in the text; the JSON has all of them.
const WORKSPACES_LISTED: usize = 5;
/// Models that are named in the text.
const MODELS_NAMED: usize = 3;

/// What was spent, in paragraphs: the sums, then what is to be said about them.
pub(super) fn text(subject: &Subject<'_>) -> Vec<String> {
    let spent = subject.spent;
    let limits = daily_limits(&subject.resolved.settings);
    let mut paragraphs = vec![match spent.total.requests {
        0 => format!("nothing yet; the daily budget is {}", limits.text()),
        _ => format!(
            "today (UTC) {}, of a daily budget of {}; in all {}",
            sum_text(&spent.today),
            limits.text(),
            sum_text(&spent.total)
        ),
    }];
    if spent.by_workspace.len() > 1 {
        let listed = spent.by_workspace.iter().take(WORKSPACES_LISTED);
        paragraphs.extend(listed.map(|(root, sum)| format!("{}: {}", root, sum_text(sum))));
    }
    if spent.total.unpriced_requests > 0 {
        let mut named = spent.unpriced_models.iter().take(MODELS_NAMED).cloned().collect::<Vec<_>>().join(", ");
        if spent.unpriced_models.len() > MODELS_NAMED {
            named.push_str(", …");
        }
        paragraphs.push(format!("price unknown of {}, whose dollars are not counted", named));
    }
    paragraphs.extend(notes(subject));
    paragraphs
}

/// `$0.0123 in 3 requests, 31000 tokens in (28000 cached) and 900 out`.
fn sum_text(sum: &Sum) -> String {
    if sum.requests == 0 {
        return "nothing".to_owned();
    }
    let unpriced = match sum.unpriced_requests {
        0 => String::new(),
        // The sum says it already.
        count if count == sum.requests => String::new(),
        count => format!(" ({count} of unknown price)"),
    };
    let money = if sum.unpriced_requests == sum.requests { "price unknown".to_owned() } else { dollars(sum.usd()) };
    let requests = counted(usize::try_from(sum.requests).unwrap_or(usize::MAX), "request");
    let Sum { tokens_in, tokens_cached, tokens_out, .. } = sum;
    format!("{money} in {requests}{unpriced}, {tokens_in} tokens in ({tokens_cached} cached) and {tokens_out} out")
}

/// What was spent today, in short.
pub(super) fn summary(subject: &Subject<'_>) -> String {
    format!(
        "{} spent today, of a daily budget of {}",
        dollars(subject.spent.today.usd()),
        daily_limits(&subject.resolved.settings).text()
    )
}

/// What keeps the budget from meaning what it says, and whether it is used up.
pub(super) fn notes(subject: &Subject<'_>) -> Vec<String> {
    let limits = daily_limits(&subject.resolved.settings);
    let mut notes = Vec::new();
    if let Some(chosen) = chosen(subject) {
        notes.extend(price_note(&chosen.model, chosen.prices.is_some(), &limits));
        notes.extend(reached(subject).map(|reached| format!("{reached}; until then answers are offline")));
    }
    notes.extend(subject.spent.warnings());
    notes
}

fn reached(subject: &Subject<'_>) -> Option<String> {
    let limits = daily_limits(&subject.resolved.settings);
    limits.check(&subject.spent.today, subject.now).err().map(|reached| reached.to_string())
}

fn chosen<'a>(subject: &Subject<'a>) -> Option<&'a ChosenModel> {
    subject.model.as_ref().ok().and_then(Option::as_ref)
}

/// The same for programs.
pub(super) fn json(subject: &Subject<'_>) -> Json {
    let Spent { day, today, total, by_workspace, other_workspaces, unpriced_models, damaged, .. } = subject.spent;
    let limits = daily_limits(&subject.resolved.settings);
    let limit = |is_set: bool, limit: Json| if is_set { limit } else { Json::Null };
    json!({
        "day": day.to_string(),
        "today": sum_json(today),
        "total": sum_json(total),
        "limit": {
            "usd": limit(limits.usd > 0.0, json!(limits.usd)),
            "tokens": limit(limits.tokens > 0, json!(limits.tokens)),
        },
        "reached": reached(subject),
        "workspaces": by_workspace.iter().map(|(root, sum)| {
            let mut about = sum_json(sum);
            about["root"] = json!(root);
            about
        }).collect::<Json>(),
        "other_workspaces": sum_json(other_workspaces),
        "unpriced_models": unpriced_models,
        "damaged": damaged.map(|day| day.to_string()),
        "notes": notes(subject),
    })
}

fn sum_json(sum: &Sum) -> Json {
    json!({
        "usd": sum.usd(),
        "tokens_in": sum.tokens_in,
        "tokens_cached": sum.tokens_cached,
        "tokens_out": sum.tokens_out,
        "requests": sum.requests,
        "unpriced_requests": sum.unpriced_requests,
    })
}
