//! The one table of settings. The struct, its defaults, validation, `config show` and the
//! documentation page are all made from it.

use std::{fmt, path::PathBuf};

use serde_json::{Map, Value as Json};

use super::{
    field::{Concurrency, Field, LogLevel, Provider, RepoRootMode},
    kind::{Kind, Value},
    secret::Secret,
};

/// The prefix of a setting's name in the environment.
pub const PREFIX: &str = "LIVE_MEMORY_";

/// For whom a setting holds, and with that, where it may be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// For one request: the session's environment counts, and a change holds from the next request on.
    Request,
    /// For the whole daemon, which serves many sessions: `config.json` counts, and the environment the
    /// daemon was started with.
    Daemon,
    /// Where everything lies, which must be known before `config.json` can be found: environment only.
    EnvironmentOnly,
}

/// Whether this version does anything with a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It does.
    Now,
    /// The name is known and its value checked, so that files written for a later version stay valid.
    Planned,
}

/// A setting as it stands in the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its key in `config.json`; in upper case after [`PREFIX`] its name in the environment.
    pub key: &'static str,
    /// What is accepted.
    pub kind: Kind,
    /// For whom it holds.
    pub scope: Scope,
    /// Whether this version does anything with it.
    pub effect: Effect,
    /// What it means, one sentence a line.
    meaning: &'static [&'static str],
    read: fn(&Settings) -> Option<Value>,
    assign: fn(&mut Settings, &Value) -> bool,
}

impl Row {
    /// Its name in the environment.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.to_ascii_uppercase())
    }

    /// What it means, in one paragraph.
    #[must_use]
    pub fn meaning(&self) -> String {
        self.meaning.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }

    /// Its value in `settings`; `None` where nothing is set.
    #[must_use]
    pub fn value(&self, settings: &Settings) -> Option<Value> {
        (self.read)(settings)
    }

    /// The same to be shown: an address without its query, in which some gateways want a key.
    #[must_use]
    pub fn shown(&self, settings: &Settings) -> Option<Value> {
        match self.value(settings)? {
            Value::Text(address) if self.kind == Kind::Url => Some(Value::Text(match address.find(['?', '#']) {
                Some(end) => format!("{}?…", &address[..end]),
                None => address,
            })),
            value => Some(value),
        }
    }

    /// Puts a value into `settings`; false where it is not of this setting's kind, which nothing but a
    /// mistake in the table can cause.
    pub(super) fn assign(&self, settings: &mut Settings, value: &Value) -> bool {
        (self.assign)(settings, value)
    }
}

/// The row of a key.
#[must_use]
pub fn row(key: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.key == key)
}

macro_rules! settings {
    ($($(#[doc = $meaning:literal])+ $key:ident: $type:ty = $default:expr, $kind:expr, $scope:ident, $effect:ident;)*) => {
        /// The settings that hold for one request.
        #[derive(Clone, PartialEq)]
        pub struct Settings {
            $($(#[doc = $meaning])+ pub $key: $type,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        /// All settings, in the order of the documentation.
        pub const ROWS: &[Row] = &[$(Row {
            key: stringify!($key),
            kind: $kind,
            scope: Scope::$scope,
            effect: Effect::$effect,
            meaning: &[$($meaning),+],
            read: |settings| settings.$key.to_value(),
            assign: |settings, value| match <$type as Field>::from_value(value) {
                Some(value) => {
                    settings.$key = value;
                    true
                }
                None => false,
            },
        },)*];
    };
}

const fn integer(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max }
}

const fn number(min: f64, max: f64) -> Kind {
    Kind::Number { min, max }
}

const MEBIBYTE: u64 = 1 << 20;
const DAY_S: u64 = 24 * 60 * 60;

settings! {
    /// Who answers. `offline` finds places in the workspace without a model and sends nothing anywhere.
    /// Choosing another is the consent to send code to it.
    provider: Provider = Provider::Offline, Kind::Choice(Provider::WORDS), Request, Now;
    /// The address of the provider's API, where it is not the vendor's own.
    base_url: Option<String> = None, Kind::Url, Request, Now;
    /// The provider's key. Never logged and never shown.
    api_key: Option<Secret> = None, Kind::Secret, Request, Now;
    /// The model that answers; the provider's cheap default where unset.
    model: Option<String> = None, Kind::Text, Request, Now;
    /// The longest prompt in tokens; less where the model's window is smaller or a longer prompt dearer.
    max_context_tokens: u32 = 128_000, integer(8_000, 2_000_000), Request, Now;
    /// The share of the window at which a conversation is summed up and begins anew.
    compaction_threshold: f64 = 0.85, number(0.10, 0.99), Request, Now;
    /// The share of the window that is carried over then: what is known, at most half of it, and the newest answers.
    compaction_floor: f64 = 0.15, number(0.02, 0.90), Request, Now;
    /// The shortest time between two summaries in seconds; within it a full conversation begins anew without one.
    distill_min_interval_s: u32 = 60, integer(0, DAY_S), Request, Now;
    /// The share of the window that the directory tree may take.
    dirtree_fraction: f64 = 0.10, number(0.0, 0.5), Request, Now;
    /// The most rounds with tools for one question.
    max_iterations: u32 = 25, integer(1, 200), Request, Now;
    /// The most questions that may wait for one workspace; one more is refused as busy.
    max_queue_size: u32 = 100, integer(1, 10_000), Request, Now;
    /// The soft deadline of a question in seconds, time spent waiting included.
    default_timeout_s: u32 = 60, integer(5, 1_800), Request, Now;
    /// The longest answer in tokens; without a model counted as bytes divided by four.
    max_answer_tokens: u32 = 4_096, integer(256, 32_000), Request, Now;
    /// Whether questions about one workspace are answered at once or one after the other.
    concurrency: Concurrency = Concurrency::Parallel, Kind::Choice(Concurrency::WORDS), Request, Now;
    /// The most questions answered at once about one workspace.
    max_parallel_queries: u32 = 4, integer(1, 64), Request, Now;
    /// Offer two more tools that ask without waiting and fetch the answer later.
    async_tools: bool = false, Kind::Switch, Request, Planned;
    /// Learn from the files that the coding agent reads and edits.
    passive_ingestion: bool = true, Kind::Switch, Request, Now;
    /// The largest file in bytes that is learned from or preloaded.
    passive_max_file_bytes: u64 = 262_144, integer(1_024, 16 * MEBIBYTE), Request, Now;
    /// Reject once an answer that a cold memory gives without looking.
    force_explore_when_cold: bool = true, Kind::Switch, Request, Now;
    /// Keep what was read on the way to an answer.
    retain_exploration: bool = true, Kind::Switch, Request, Now;
    /// Keep the provider's cache warm between questions, which costs money.
    keep_warm: bool = false, Kind::Switch, Request, Planned;
    /// Seconds between two requests that keep a cache warm; by provider where unset.
    keep_warm_interval_s: Option<u32> = None, integer(30, 3_600), Request, Planned;
    /// Seconds without a question after which a cache is no longer kept warm.
    keep_warm_max_idle_s: u32 = 1_800, integer(0, DAY_S), Request, Planned;
    /// Resolve a directory to the root of its repository. `false` keeps one workspace per exact directory.
    canonicalize_workspace: bool = true, Kind::Switch, Request, Now;
    /// Which repository counts where one lies in another: `nearest` makes a submodule a workspace of its
    /// own, `outermost` counts it to its superproject. A linked worktree is always one of its own.
    repo_root_mode: RepoRootMode = RepoRootMode::Nearest, Kind::Choice(RepoRootMode::WORDS), Request, Now;
    /// Path globs of documents that are loaded whole whenever a conversation begins; `*` stays within a
    /// directory, `**` does not. Where unset, `CLAUDE.md`, `AGENTS.md` and the README of the root, 24 kB in all.
    preload_globs: Vec<String> = Vec::new(), Kind::List, Request, Now;
    /// The most bytes that are preloaded, within the floor's share of the window; 0 is nothing.
    preload_max_total_bytes: u64 = 2_097_152, integer(0, 64 * MEBIBYTE), Request, Now;
    /// Workspace-relative patterns outside which nothing is learned; empty is everything. `*` and `?` also
    /// match `/`, as in `src/*.rs,*.md`.
    file_globs: Vec<String> = Vec::new(), Kind::Patterns, Request, Now;
    /// Dollars per million tokens of input, where the model's price is not known.
    price_input: Option<f64> = None, number(0.0, 10_000.0), Request, Now;
    /// Dollars per million tokens of output, where the model's price is not known.
    price_output: Option<f64> = None, number(0.0, 10_000.0), Request, Now;
    /// The price of a token read from the cache, as a multiple of the input price.
    price_cache_read_mult: Option<f64> = None, number(0.0, 10.0), Request, Now;
    /// The price of a token written to the cache, as a multiple of the input price.
    price_cache_write_mult: Option<f64> = None, number(0.0, 10.0), Request, Now;
    /// Fields added to every chat-completions request, `null` to leave one of ours out. Only their names are
    /// ever shown.
    openai_extra_body: Option<Map<String, Json>> = None, Kind::Object, Request, Now;
    /// Header fields added to every request to the provider; the value `__auto__` is a new id in each. Never
    /// logged and never shown.
    extra_headers: Vec<(String, Secret)> = Vec::new(), Kind::Headers, Request, Now;
    /// Certificates that are trusted besides the system's, in PEM.
    ca_file: Option<PathBuf> = None, Kind::Path, Request, Now;
    /// The most dollars spent on models in a day of UTC, by all workspaces together; 0 is no limit. When it
    /// is reached, answers are offline until midnight UTC.
    daily_budget_usd: f64 = 5.0, number(0.0, 100_000.0), Request, Now;
    /// The most tokens, in and out, cached ones included, in a day of UTC; 0 is no limit.
    daily_budget_tokens: u64 = 0, integer(0, 1_000_000_000_000), Request, Now;
    /// Answer with the Claude subscription's credential, which the vendor's published policy restricts.
    use_oauth: bool = false, Kind::Switch, Request, Planned;
    /// Places that are never read, answered about or sent, as paths (with everything below them) or globs:
    /// whole workspaces, and directories and files inside others.
    exclude: Vec<String> = Vec::new(), Kind::Locations, Request, Now;
    /// Seconds without clients and work after which the daemon leaves; 0 is never.
    idle_exit_s: u64 = 1_800, integer(0, 7 * DAY_S), Daemon, Now;
    /// How much the daemon logs.
    log_level: LogLevel = LogLevel::Info, Kind::Choice(LogLevel::WORDS), Daemon, Now;
    /// The daemon's log file; `logs/lm-core.log` in the data directory where unset.
    log_file: Option<PathBuf> = None, Kind::Path, Daemon, Now;
    /// The size in bytes at which the log is rotated.
    log_max_bytes: u64 = 10_485_760, integer(4_096, 1_024 * MEBIBYTE), Daemon, Now;
    /// How many rotated logs are kept.
    log_backups: u32 = 5, integer(0, 100), Daemon, Now;
    /// The most bytes that the data directory may take.
    disk_max_bytes: u64 = 2_147_483_648, integer(16 * MEBIBYTE, 1 << 40), Daemon, Planned;
    /// Where everything is kept, `config.json` included; `~/.claude/plugins/data/live-memory` where unset.
    data_dir: Option<PathBuf> = None, Kind::Path, EnvironmentOnly, Now;
}

/// Every setting with its value; credentials are only said to be set.
impl fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(ROWS.iter().map(|row| (row.key, row.shown(self)))).finish()
    }
}
