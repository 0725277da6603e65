//! Where the key comes from. It is never an argument, and never shown.

use std::{env, fs::File, io::Read, path::Path};

use lm_proto::message::{PROVIDER_KEYS, SessionEnvironment};

use super::{Setup, choices::Choice};
use crate::cli::{
    ask,
    output::{self, Failed},
    prompt,
};

/// A longer file holds something else.
const FILE_MAX: u64 = 16 << 10;

/// A key, or how to do without one. It has no `Debug`.
pub(super) enum Key {
    /// It is stored.
    Store(String),
    /// The one that is stored is kept.
    Keep,
    /// The session's variable is used whenever a question is asked; nothing is stored.
    Inherit(&'static str),
    /// None is needed.
    None,
}

impl Key {
    /// What the setting `api_key` becomes; empty is unset, none leaves it as it is.
    pub(super) fn stored(&self) -> Option<&str> {
        match self {
            Self::Store(key) => Some(key),
            Self::Keep => None,
            Self::Inherit(_) | Self::None => Some(""),
        }
    }

    /// The variable that the choice relies on.
    pub(super) fn environment(&self) -> SessionEnvironment {
        match self {
            Self::Inherit(name) => variable(name).map(|value| ((*name).to_owned(), value)).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// The key that the options or the person give.
pub(super) async fn find(arguments: &Setup, choice: Choice, is_stored: bool, can_ask: bool) -> Result<Key, Failed> {
    if arguments.key_stdin {
        return if prompt::is_possible() { typed().await } else { given(&ask::read_input().await?, "standard input") };
    }
    if let Some(path) = &arguments.key_file {
        return given(&from_file(path)?, &format!("`{}`", path.display()));
    }
    if let Some(name) = &arguments.key_env {
        return inherited(name, choice);
    }
    if is_stored && (!can_ask || prompt::yes("A key for it is stored. Keep it?", true).await?) {
        return Ok(Key::Keep);
    }
    let present = choice.variable.filter(|name| variable(name).is_some());
    if can_ask {
        if let Some(name) = present
            && prompt::yes(&format!("{name} is set here. Use it whenever it is, and store no key?"), true).await?
        {
            return Ok(Key::Inherit(name));
        }
        return if choice.needs_key { typed().await } else { optional().await };
    }
    if !choice.needs_key {
        return Ok(Key::None);
    }
    let hint = present.map_or_else(String::new, |name| format!("; {name} is set here, which --key-env {name} uses"));
    Err(Failed::usage(format!("{} needs a key: give it with --key-stdin or --key-file FILE{hint}", choice.title)))
}

async fn typed() -> Result<Key, Failed> {
    loop {
        match prompt::hidden("API key (it is not shown): ").await? {
            empty if empty.is_empty() => output::say("Please give a key, or press Ctrl-C.\n"),
            key => return Ok(Key::Store(key)),
        }
    }
}

async fn optional() -> Result<Key, Failed> {
    let key = prompt::hidden("API key (it is not shown; empty for none): ").await?;
    Ok(if key.is_empty() { Key::None } else { Key::Store(key) })
}

fn given(text: &str, origin: &str) -> Result<Key, Failed> {
    match text.trim() {
        "" => Err(Failed::new(format!("{origin} holds no key; nothing was changed"))),
        key => Ok(Key::Store(key.to_owned())),
    }
}

fn from_file(path: &Path) -> Result<String, Failed> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Failed::new(format!("cannot read the key from `{}`: {why}; nothing was changed", path.display()))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    if text.len() as u64 > FILE_MAX {
        return Err(unreadable(&"it is far longer than a key"));
    }
    Ok(text)
}

fn inherited(name: &str, choice: Choice) -> Result<Key, Failed> {
    let Some(name) = PROVIDER_KEYS.into_iter().find(|known| *known == name && choice.variable == Some(*known)) else {
        return Err(Failed::usage(format!(
            "{name} is not the key of {}, so it would not be used; store the key with --key-stdin, as in: printenv \
             {name} | lm-shim setup --provider {} --key-stdin --yes",
            choice.title, choice.name
        )));
    };
    if variable(name).is_none() {
        return Err(Failed::new(format!(
            "{name} is not set here, so it cannot be tried; set it first, or store a key"
        )));
    }
    Ok(Key::Inherit(name))
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}
