//! Which value of a setting holds: request, then the session's environment, then `config.json`, then
//! the plugin's own options, then the default. Pure.

use std::{collections::BTreeMap, fmt, path::Path};

use serde_json::{Map, Value as Json};

use lm_proto::message::INHERITED_KEYS;

use super::{
    kind::{Kind, Value},
    table::{PREFIX, ROWS, Row, Scope, Settings, row},
};

/// What follows [`PREFIX`] in the names under which a client passes the plugin's options.
pub const USER_CONFIG_INFIX: &str = "USERCONFIG_";

/// Where a value comes from, strongest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// Given with the request.
    Request,
    /// The environment of the session that asks.
    Session,
    /// The environment the daemon was started with; only for settings of the whole daemon.
    DaemonEnvironment,
    /// `config.json`.
    Config,
    /// The plugin's options.
    Plugin,
    /// Nobody set it.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Request => "request",
            Self::Session => "environment",
            Self::DaemonEnvironment => "daemon environment",
            Self::Config => "config.json",
            Self::Plugin => "plugin option",
            Self::Default => "default",
        })
    }
}

/// Something about a setting that a person should repair.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// Where it stands.
    pub origin: Origin,
    /// The name as it is written there.
    pub name: String,
    /// What is wrong, what holds instead and what to do. A credential is never in it.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} {}", self.origin, self.name, self.message)
    }
}

/// Accepted values by key.
pub type Values = BTreeMap<&'static str, Value>;

/// The sources of values.
#[derive(Clone, Copy)]
pub struct Layers<'a> {
    /// Keys given with the request, already checked by who took it.
    pub request: &'a Values,
    /// `LIVE_MEMORY_*` of the session, the plugin's options among them.
    pub session: &'a [(String, String)],
    /// `LIVE_MEMORY_*` of the daemon itself; counts for the whole daemon only.
    pub daemon: &'a [(String, String)],
    /// What `config.json` sets.
    pub config: &'a Values,
    /// The home directory, for `~`.
    pub home: Option<&'a Path>,
}

/// The outcome.
#[derive(Clone, PartialEq, Debug)]
pub struct Resolved {
    /// The values that hold.
    pub settings: Settings,
    /// What was not accepted.
    pub problems: Vec<Problem>,
    /// For each key where its value comes from and where else it is set to no effect, strongest first.
    pub origins: BTreeMap<&'static str, Vec<Origin>>,
}

impl Resolved {
    /// Where the value of `key` comes from.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).and_then(|origins| origins.first()).copied().unwrap_or(Origin::Default)
    }

    /// Where `key` is set too, without effect.
    #[must_use]
    pub fn shadowed(&self, key: &str) -> &[Origin] {
        self.origins.get(key).and_then(|origins| origins.get(1..)).unwrap_or_default()
    }
}

/// Decides every setting.
#[must_use]
pub fn resolve(layers: Layers<'_>) -> Resolved {
    let mut problems = Vec::new();
    let mut settings = Settings::default();
    let mut origins = BTreeMap::new();
    unknown_variables(layers.session, &mut problems);
    for row in ROWS {
        let mut found = Vec::new();
        let variable = row.variable();
        let option = format!("{PREFIX}{USER_CONFIG_INFIX}{}", row.key.to_ascii_uppercase());
        let mut from = |environment, name: &str, origin| {
            let value = from_environment(row, environment, name, layers.home, origin, &mut problems);
            found.extend(value.map(|value| (origin, value)));
        };
        match row.scope {
            Scope::Request => {
                from(layers.session, &variable, Origin::Session);
                from(layers.session, &option, Origin::Plugin);
            }
            Scope::Daemon => {
                from(layers.daemon, &variable, Origin::DaemonEnvironment);
                from(layers.daemon, &option, Origin::Plugin);
            }
            Scope::EnvironmentOnly => from(layers.daemon, &variable, Origin::DaemonEnvironment),
        }
        if row.scope != Scope::EnvironmentOnly {
            found.extend(layers.config.get(row.key).map(|value| (Origin::Config, value.clone())));
        }
        found.extend(layers.request.get(row.key).map(|value| (Origin::Request, value.clone())));
        found.sort_by_key(|(origin, _)| *origin);
        if row.scope == Scope::Daemon {
            session_is_ignored(row, layers.session, found.first().map(|(_, value)| value), layers.home, &mut problems);
        }
        if let Some((_, value)) = found.first() {
            row.assign(&mut settings, value);
        }
        origins.insert(row.key, found.into_iter().map(|(origin, _)| origin).collect());
    }
    problems.sort();
    problems.dedup();
    Resolved { settings, problems, origins }
}

/// A variable's text; empty, and a reference that its client left unfilled, are unset.
fn lookup<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let (_, text) = environment.iter().find(|(given, _)| given == name)?;
    let text = text.trim();
    let unfilled = text.starts_with("${") && text.ends_with('}');
    (!text.is_empty() && !unfilled).then_some(text)
}

fn from_environment(
    row: &Row,
    environment: &[(String, String)],
    name: &str,
    home: Option<&Path>,
    origin: Origin,
    problems: &mut Vec<Problem>,
) -> Option<Value> {
    let text = lookup(environment, name)?;
    let value = row.kind.parse(text, home);
    if value.is_none() {
        let message = format!("{}; it is ignored: give {}", refused(row, text), row.kind.accepted());
        problems.push(Problem { origin, name: name.to_owned(), message });
    }
    value
}

/// A session cannot change what holds for all sessions; say so instead of ignoring it silently.
fn session_is_ignored(
    row: &Row,
    session: &[(String, String)],
    holds: Option<&Value>,
    home: Option<&Path>,
    problems: &mut Vec<Problem>,
) {
    let name = row.variable();
    let Some(text) = lookup(session, &name) else { return };
    let wanted = row.kind.parse(text, home);
    let default = row.value(&Settings::default());
    if wanted.is_some() && wanted.as_ref() != holds.or(default.as_ref()) {
        let message = "holds for the whole daemon, which was started with another value; \
                       set it in config.json, or stop the daemon and start it from this session";
        problems.push(Problem { origin: Origin::Session, name, message: message.into() });
    }
}

/// Variables with our prefix that name no setting; those of the surroundings (tests, the launcher)
/// have names of their own and are never near a setting's.
fn unknown_variables(session: &[(String, String)], problems: &mut Vec<Problem>) {
    for (name, text) in session {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let key = rest.strip_prefix(USER_CONFIG_INFIX).unwrap_or(rest).to_ascii_lowercase();
        if text.trim().is_empty() || row(&key).is_some() || name == INHERITED_KEYS {
            continue;
        }
        if let Some(near) = nearest(&key) {
            let right = name.replace(&key.to_ascii_uppercase(), &near.to_ascii_uppercase());
            let message = format!("is no setting; did you mean {right}?");
            problems.push(Problem { origin: Origin::Session, name: name.clone(), message });
        }
    }
}

/// Reads what `config.json` says. A value that is not accepted keeps the one that held `before`.
#[must_use]
pub fn interpret(document: &Map<String, Json>, before: &Values, home: Option<&Path>) -> (Values, Vec<Problem>) {
    let mut values = Values::new();
    let mut problems = Vec::new();
    for (key, json) in document {
        let mut problem =
            |message: String| problems.push(Problem { origin: Origin::Config, name: key.clone(), message });
        let Some(row) = row(key) else {
            problem(format!("is no setting; {}", suggestion(key)));
            continue;
        };
        if is_unset(json) {
            continue;
        }
        if row.scope == Scope::EnvironmentOnly {
            problem(format!(
                "has no effect here, since config.json lies inside it; set {} in the environment",
                row.variable()
            ));
            continue;
        }
        if let Some(value) = row.kind.parse_json(json, home) {
            values.insert(row.key, value);
        } else {
            let text = json.as_str().map_or_else(|| json.to_string(), str::to_owned);
            let kept = match before.get(row.key) {
                Some(last) => {
                    values.insert(row.key, last.clone());
                    "the last good value is kept"
                }
                None => "the default holds",
            };
            problem(format!("{}; {kept}: give {}", refused(row, &text), row.kind.accepted()));
        }
    }
    (values, problems)
}

fn is_unset(json: &Json) -> bool {
    match json {
        Json::Null => true,
        Json::String(text) => text.trim().is_empty(),
        _ => false,
    }
}

/// What was refused, without a credential and without a flood of text.
pub(super) fn refused(row: &Row, text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    // An address may have a password or a key in it, and may be refused for just that.
    if row.kind.is_secret() || (row.kind == Kind::Url && text.contains(['@', '?'])) {
        return "is not a value of its kind".into();
    }
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("cannot be `{shown}{more}`")
}

/// The setting that a person means: `provider`, `PROVIDER` and `LIVE_MEMORY_PROVIDER` are the same.
///
/// # Errors
/// What to say where there is no such setting.
pub fn named(name: &str) -> Result<&'static Row, String> {
    let key = name.trim().to_ascii_lowercase();
    let key = key.strip_prefix(&PREFIX.to_ascii_lowercase()).unwrap_or(&key);
    row(key).ok_or_else(|| {
        // `config set c2VjcmV0=` has a credential in the place of the name.
        let looks_like_a_name =
            key.len() <= NAME_MAX && key.bytes().all(|letter| letter.is_ascii_alphabetic() || b"_-".contains(&letter));
        let shown = if looks_like_a_name { format!("`{}`", name.trim()) } else { "a name that was given".into() };
        format!("{shown} is no setting; {}", suggestion(key))
    })
}

/// More letters than the name of any setting has.
const NAME_MAX: usize = 40;

fn suggestion(key: &str) -> String {
    match nearest(key) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`lm-shim config show` lists all".into(),
    }
}

/// The most similar key, if it is similar at all.
#[must_use]
pub fn nearest(key: &str) -> Option<&'static str> {
    // Below this the suggestion is more often wrong than right (Jaro-Winkler, 0 to 1).
    const SIMILAR: f64 = 0.8;
    let key = key.to_ascii_lowercase();
    let key = key.strip_prefix("live_memory_").unwrap_or(&key).replace('-', "_");
    ROWS.iter()
        .map(|row| (strsim::jaro_winkler(&key, row.key), row.key))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, key)| key)
}
