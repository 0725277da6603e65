//! What a setting may be: its kind, the values of that kind, and how a person's text becomes one.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde_json::Value as Json;

use super::secret::Secret;

/// What a setting's text may be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// `true` or `false`, also `1`/`0`, `yes`/`no`, `on`/`off`.
    Switch,
    /// A whole number from `min` to `max`.
    Integer {
        /// The smallest accepted.
        min: u64,
        /// The largest accepted.
        max: u64,
    },
    /// A number from `min` to `max`.
    Number {
        /// The smallest accepted.
        min: f64,
        /// The largest accepted.
        max: f64,
    },
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// Any text on one line.
    Text,
    /// An `http` or `https` address without credentials in it.
    Url,
    /// An absolute path; a leading `~` is the home directory.
    Path,
    /// Texts, separated by commas or new lines.
    List,
    /// Globs of paths relative to the workspace, separated by commas or new lines.
    Patterns,
    /// Absolute paths or globs, separated by commas or new lines; a leading `~` is the home directory.
    Locations,
    /// One JSON object.
    Object,
    /// A credential.
    Secret,
    /// `Name: value`, one a line or separated by commas, or a JSON object; the values may be credentials.
    Headers,
}

/// A value that was accepted.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// Of [`Kind::Switch`].
    Switch(bool),
    /// Of [`Kind::Integer`].
    Integer(u64),
    /// Of [`Kind::Number`].
    Number(f64),
    /// Of [`Kind::Choice`], [`Kind::Text`] and [`Kind::Url`].
    Text(String),
    /// Of [`Kind::Path`], with the home directory filled in.
    Path(PathBuf),
    /// Of [`Kind::List`], [`Kind::Patterns`] and [`Kind::Locations`], the last with the home directory filled in.
    List(Vec<String>),
    /// Of [`Kind::Object`].
    Object(serde_json::Map<String, Json>),
    /// Of [`Kind::Secret`].
    Secret(Secret),
    /// Of [`Kind::Headers`].
    Headers(Vec<(String, Secret)>),
}

/// Shows what [`Value::text`] shows: no credential.
impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text())
    }
}

impl Kind {
    /// Whether values of this kind are credentials, or may hold one.
    #[must_use]
    pub fn is_secret(self) -> bool {
        matches!(self, Self::Secret | Self::Headers | Self::Object)
    }

    /// What is accepted, for messages and for the documentation.
    #[must_use]
    pub fn accepted(self) -> String {
        match self {
            Self::Switch => "true or false".into(),
            Self::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Self::Number { min, max } => format!("a number from {min} to {max}"),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Text => "a text on one line".into(),
            Self::Url => "an http:// or https:// address without a name or password in it".into(),
            Self::Path => "an absolute path (a leading ~/ is the home directory)".into(),
            Self::List => "texts separated by commas or new lines".into(),
            Self::Patterns => {
                "patterns of paths relative to the workspace (no leading /, no ..) separated by commas or new lines"
                    .into()
            }
            Self::Locations => {
                "absolute paths or globs (or ones that begin with ~/ or **/) separated by commas or new lines".into()
            }
            Self::Object => "one JSON object".into(),
            Self::Secret => "a credential on one line".into(),
            Self::Headers => "`Name: value`, separated by commas or new lines, or one JSON object of texts".into(),
        }
    }

    /// Reads a text that is not empty; `None` where it is not accepted.
    #[must_use]
    pub fn parse(self, text: &str, home: Option<&Path>) -> Option<Value> {
        let text = text.trim();
        let one_line = !text.is_empty() && !text.contains(['\n', '\r', '\0']);
        match self {
            Self::Switch => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Some(Value::Switch(true)),
                "false" | "0" | "no" | "off" => Some(Value::Switch(false)),
                _ => None,
            },
            Self::Integer { min, max } => {
                let number = text.replace('_', "").parse().ok()?;
                (min..=max).contains(&number).then_some(Value::Integer(number))
            }
            Self::Number { min, max } => {
                let number: f64 = text.parse().ok()?;
                (min..=max).contains(&number).then_some(Value::Number(number))
            }
            Self::Choice(words) => {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(text))?;
                Some(Value::Text((*word).to_owned()))
            }
            Self::Text => one_line.then(|| Value::Text(text.to_owned())),
            Self::Url => {
                let address = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
                let host = address.split(['/', '?', '#']).next().unwrap_or_default();
                let plain = one_line && !host.is_empty() && !host.contains('@') && !text.contains(' ');
                plain.then(|| Value::Text(text.to_owned()))
            }
            Self::Path => {
                let path = PathBuf::from(expand_home(text, home)?);
                (one_line && path.is_absolute()).then_some(Value::Path(path))
            }
            Self::List => Some(Value::List(items(text).map(str::to_owned).collect())),
            Self::Patterns => {
                let patterns: Vec<String> = items(text).map(str::to_owned).collect();
                patterns.iter().all(|pattern| relative_glob(pattern).is_some()).then_some(Value::List(patterns))
            }
            Self::Locations => items(text).map(|item| location(item, home)).collect::<Option<_>>().map(Value::List),
            Self::Object => match serde_json::from_str(text).ok()? {
                Json::Object(object) => Some(Value::Object(object)),
                _ => None,
            },
            Self::Secret => one_line.then(|| Value::Secret(Secret::new(text))),
            Self::Headers => headers(text),
        }
    }

    /// Reads what stands in a JSON document; `None` where it is not accepted.
    #[must_use]
    pub fn parse_json(self, json: &Json, home: Option<&Path>) -> Option<Value> {
        match json {
            Json::String(text) => self.parse(text, home),
            Json::Bool(_) if self == Self::Switch => self.parse(&json.to_string(), home),
            Json::Number(_) if matches!(self, Self::Integer { .. } | Self::Number { .. }) => {
                self.parse(&json.to_string(), home)
            }
            Json::Array(array) if matches!(self, Self::List | Self::Patterns | Self::Locations) => {
                let texts = array.iter().map(Json::as_str).collect::<Option<Vec<_>>>()?;
                // A comma inside an element belongs to it: only the element is parsed, not the join.
                let parsed = texts.into_iter().filter(|text| !text.trim().is_empty()).map(|text| match self {
                    Self::Locations => location(text.trim(), home),
                    Self::Patterns => relative_glob(text.trim()).map(|_| text.trim().to_owned()),
                    _ => Some(text.trim().to_owned()),
                });
                parsed.collect::<Option<_>>().map(Value::List)
            }
            Json::Object(_) if matches!(self, Self::Object | Self::Headers) => self.parse(&json.to_string(), home),
            _ => None,
        }
    }

    /// How an accepted text is written into `config.json`: as a number or a list where it is one, and
    /// otherwise as it was typed, so that `~` stays `~`.
    #[must_use]
    pub(super) fn to_json(self, text: &str, value: &Value) -> Json {
        match (self, value) {
            (Self::Locations, _) => items(text).collect(),
            (_, Value::Switch(on)) => (*on).into(),
            (_, Value::Integer(number)) => (*number).into(),
            (_, Value::Number(number)) => (*number).into(),
            (_, Value::List(items)) => items.iter().map(String::as_str).collect(),
            (_, Value::Object(object)) => object.clone().into(),
            (Self::Choice(_), Value::Text(word)) => word.as_str().into(),
            _ => text.trim().into(),
        }
    }
}

impl Value {
    /// For people. A credential is only said to be set; of an object, which may hold one, only the names of
    /// its fields are said.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Switch(on) => on.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            Self::Path(path) => path.display().to_string(),
            Self::List(items) => items.join(", "),
            Self::Object(object) if object.is_empty() => "set, without fields".into(),
            Self::Object(object) => {
                format!("set: {}", object.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
            }
            Self::Secret(_) | Self::Headers(_) => "set".into(),
        }
    }

    /// For programs. A credential is only said to be set; and so is each field of an object.
    #[must_use]
    pub fn json(&self) -> Json {
        match self {
            Self::Switch(on) => (*on).into(),
            Self::Integer(number) => (*number).into(),
            Self::Number(number) => (*number).into(),
            Self::List(items) => items.iter().map(String::as_str).collect(),
            Self::Object(object) => object.keys().map(|key| (key.clone(), Json::from("set"))).collect(),
            Self::Text(_) | Self::Path(_) | Self::Secret(_) | Self::Headers(_) => self.text().into(),
        }
    }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', '\n', '\r']).map(str::trim).filter(|item| !item.is_empty())
}

/// `~` and what begins with `~/` (on Windows also `~\`) with the home directory in its place; `None`
/// where that is not known, and for `~name`, which only shells understand.
fn expand_home(text: &str, home: Option<&Path>) -> Option<String> {
    let Some(rest) = text.strip_prefix('~') else { return Some(text.to_owned()) };
    let rest = match rest.strip_prefix('/').or_else(|| rest.strip_prefix('\\').filter(|_| cfg!(windows))) {
        Some(rest) => rest,
        None if rest.is_empty() => rest,
        None => return None,
    };
    let home = home?.to_str()?.trim_end_matches(['/', '\\']);
    Some(if rest.is_empty() { home.to_owned() } else { format!("{home}/{rest}") })
}

fn location(item: &str, home: Option<&Path>) -> Option<String> {
    let expanded = expand_home(item, home)?;
    let anchored = expanded.starts_with("**/") || Path::new(&expanded).is_absolute();
    (anchored && globset::Glob::new(&expanded).is_ok()).then_some(expanded)
}

/// A glob of paths relative to a workspace, in which `*` and `?` also match `/`; `None` where it is none.
#[must_use]
pub fn relative_glob(pattern: &str) -> Option<globset::Glob> {
    let pattern = pattern.trim();
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let is_inside = !pattern.starts_with(['/', '\\', '~'])
        && pattern.as_bytes().get(1) != Some(&b':')
        && pattern.split(['/', '\\']).all(|part| part != "..");
    let glob = globset::GlobBuilder::new(pattern)
        .literal_separator(false)
        .case_insensitive(cfg!(any(windows, target_os = "macos")))
        .build();
    glob.ok().filter(|_| is_inside && !pattern.is_empty())
}

fn headers(text: &str) -> Option<Value> {
    let pairs: Vec<(String, String)> = if text.starts_with('{') {
        let object: serde_json::Map<String, Json> = serde_json::from_str(text).ok()?;
        object.into_iter().map(|(name, value)| Some((name, value.as_str()?.to_owned()))).collect::<Option<_>>()?
    } else {
        items(text)
            .map(|line| line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())))
            .collect::<Option<_>>()?
    };
    // RFC 9110, section 5.6.2: the letters of a field name.
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let good = pairs.iter().all(|(name, value)| is_name(name) && !value.contains(['\n', '\r', '\0']));
    good.then(|| Value::Headers(pairs.into_iter().map(|(name, value)| (name, Secret::new(value))).collect()))
}
