//! The settings as the daemon holds them: re-read when the file changes, changed on request.

use std::{
    env,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use lm_proto::DataDirectory;
use serde_json::{Map, Value as Json};

use super::{
    config_file::{self, ConfigError, Stamp},
    resolve::{Layers, Origin, Problem, Resolved, Values, interpret, named, refused, resolve},
    table::{PREFIX, Row, Scope, Settings},
};

/// A setting and what it becomes in the file; `None` unsets it.
type Change = (&'static Row, Option<Json>);

/// Reads and changes the settings of one data directory. Cheap to ask: a request costs one `stat`.
pub struct SettingsStore {
    path: PathBuf,
    daemon_environment: Vec<(String, String)>,
    home: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stamp: Option<Stamp>,
    values: Values,
    problems: Vec<Problem>,
    error: Option<ConfigError>,
}

impl std::fmt::Debug for SettingsStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SettingsStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SettingsStore {
    /// Reads `config.json` once, synchronously, with the environment of this process for what holds
    /// for the whole daemon. Never fails: a file that cannot be used is a problem that is reported.
    #[must_use]
    pub fn open(data: &DataDirectory) -> Self {
        let environment = env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with(PREFIX));
        Self::open_with(data.config_file(), environment.collect(), env::home_dir())
    }

    /// The same with everything given.
    #[must_use]
    pub fn open_with(path: PathBuf, daemon_environment: Vec<(String, String)>, home: Option<PathBuf>) -> Self {
        let home = home.filter(|home| home.is_absolute());
        let store = Self { path, daemon_environment, home, state: Mutex::default() };
        store.reload(&mut store.lock());
        store
    }

    /// The file that settings are kept in.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The home directory that `~` stands for.
    #[must_use]
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// What holds for the whole daemon.
    #[must_use]
    pub fn for_daemon(&self) -> Settings {
        self.for_request(&[]).settings
    }

    /// What holds for one request of a session, and what is wrong with it.
    #[must_use]
    pub fn for_request(&self, session: &[(String, String)]) -> Resolved {
        let state = self.fresh();
        let mut resolved = self.resolve(&state.values, session);
        resolved.problems.splice(0..0, state.problems.iter().cloned());
        resolved
    }

    /// Why `config.json` as it is now cannot be used; the last good values hold while it cannot.
    #[must_use]
    pub fn error(&self) -> Option<ConfigError> {
        self.fresh().error.clone()
    }

    /// Looks whether the file has changed, and reads it if so. Returns whether it has.
    pub fn refresh(&self) -> bool {
        let mut state = self.lock();
        let changed = config_file::stamp(&self.path) != state.stamp;
        if changed {
            self.reload(&mut state);
        }
        changed
    }

    fn resolve(&self, config: &Values, session: &[(String, String)]) -> Resolved {
        resolve(Layers {
            request: &Values::new(),
            session,
            daemon: &self.daemon_environment,
            config,
            home: self.home(),
        })
    }

    fn fresh(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if config_file::stamp(&self.path) != state.stamp {
            self.reload(&mut state);
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reload(&self, state: &mut State) {
        // Taken before reading: a change in between is then seen as one the next time.
        state.stamp = config_file::stamp(&self.path);
        match config_file::read(&self.path) {
            Ok(document) => {
                (state.values, state.problems) = interpret(&document, &state.values, self.home());
                state.error = None;
            }
            Err(error) => {
                // Such as `config.json`, line 3, and what holds meanwhile.
                let message = format!("{error} (the last good settings hold)");
                state.problems = vec![Problem { origin: Origin::Config, name: String::new(), message }];
                state.error = Some(error);
            }
        }
    }

    /// Writes changes to `config.json`, all or none. Nothing is written where one of them is not
    /// accepted or the file as it is cannot be parsed.
    ///
    /// # Errors
    /// One line for each change that was refused, or why the file cannot be used.
    pub fn set(&self, changes: &[(String, String)], session: &[(String, String)]) -> Result<Changed, String> {
        let (accepted, refusals) = self.accept_all(changes)?;
        self.change(accepted, &[], refusals, session)
    }

    /// What would hold for a session without variables of its own if changes were made. Nothing is
    /// written.
    ///
    /// # Errors
    /// As for [`SettingsStore::set`].
    pub fn preview(&self, changes: &[(String, String)]) -> Result<Resolved, String> {
        let (accepted, refusals) = self.accept_all(changes)?;
        if !refusals.is_empty() {
            return Err(refusals.join("\n"));
        }
        let mut document = config_file::read(&self.path).map_err(|error| error.to_string())?;
        apply(&mut document, &accepted);
        let (values, _) = interpret(&document, &self.fresh().values, self.home());
        Ok(self.resolve(&values, &[]))
    }

    /// The changes that are accepted, and why others are not.
    fn accept_all(&self, changes: &[(String, String)]) -> Result<(Vec<Change>, Vec<String>), String> {
        if changes.is_empty() {
            return Err("nothing to set; give `name=value`".into());
        }
        let mut accepted: Vec<Change> = Vec::new();
        let mut refusals = Vec::new();
        for (name, text) in changes {
            match self.accept(name, text) {
                Ok((row, _)) if accepted.iter().any(|(other, _)| other.key == row.key) => {
                    refusals.push(format!("`{}` is given twice", row.key));
                }
                Ok(change) => accepted.push(change),
                Err(refusal) => refusals.push(refusal),
            }
        }
        Ok((accepted, refusals))
    }

    /// Removes settings from `config.json`, all or none. A key that names no setting is removed too if
    /// the file has it.
    ///
    /// # Errors
    /// As for [`SettingsStore::set`].
    pub fn unset(&self, names: &[String], session: &[(String, String)]) -> Result<Changed, String> {
        if names.is_empty() {
            return Err("nothing to unset; give a name".into());
        }
        let mut rows = Vec::new();
        let mut refusals = Vec::new();
        let mut strays = Vec::new();
        let document = config_file::read(&self.path).map_err(|error| error.to_string())?;
        for name in names {
            match named(name) {
                Ok(row) => rows.push((row, None)),
                Err(_) if document.contains_key(name.trim()) => strays.push(name.trim().to_owned()),
                Err(refusal) => refusals.push(refusal),
            }
        }
        self.change(rows, &strays, refusals, session)
    }

    fn accept(&self, name: &str, text: &str) -> Result<Change, String> {
        let row = named(name)?;
        if row.scope == Scope::EnvironmentOnly {
            return Err(format!(
                "`{}` cannot stand in config.json, which lies inside that directory; set {} in the environment",
                row.key,
                row.variable()
            ));
        }
        // Empty means unset, here as everywhere.
        if text.trim().is_empty() {
            return Ok((row, None));
        }
        match row.kind.parse(text, self.home()) {
            Some(value) => {
                let json = row.kind.to_json(text, &value);
                Ok((row, Some(json)))
            }
            None => Err(format!("`{}` {}; give {}", row.key, refused(row, text), row.kind.accepted())),
        }
    }

    fn change(
        &self,
        changes: Vec<Change>,
        strays: &[String],
        refusals: Vec<String>,
        session: &[(String, String)],
    ) -> Result<Changed, String> {
        if !refusals.is_empty() {
            return Err(refusals.join("\n"));
        }
        let mut state = self.lock();
        let mut document = config_file::read(&self.path).map_err(|error| error.to_string())?;
        for stray in strays {
            document.remove(stray);
        }
        apply(&mut document, &changes);
        config_file::write(&self.path, &document).map_err(|error| error.to_string())?;
        self.reload(&mut state);
        let mut resolved = self.resolve(&state.values, session);
        resolved.problems.splice(0..0, state.problems.iter().cloned());
        drop(state);
        Ok(Changed { rows: changes.into_iter().map(|(row, _)| row).collect(), strays: strays.to_vec(), resolved })
    }
}

fn apply(document: &mut Map<String, Json>, changes: &[Change]) {
    for (row, value) in changes {
        match value {
            Some(json) => document.insert(row.key.to_owned(), json.clone()),
            None => document.remove(row.key),
        };
    }
}

/// What a change has come to.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The settings that were set or unset, in the order given.
    pub rows: Vec<&'static Row>,
    /// Keys without meaning that were removed.
    pub strays: Vec<String>,
    /// What holds now for the session that made the change.
    pub resolved: Resolved,
}
