//! The documentation page of the settings, made from the table.

use std::fmt::Write as _;

use super::table::{Effect, ROWS, Row, Scope, Settings};

/// What stands above the tables; the order here is the order in [`super::resolve`].
const INTRODUCTION: &str = "\
# Settings

<!-- Made from lm-core/src/settings/table.rs: LIVE_MEMORY_BLESS=1 cargo test -p lm-core settings -->

A setting has one name in three spellings: `provider` as a key in `config.json`,
`LIVE_MEMORY_PROVIDER` in the environment, and either of them (or `PROVIDER`) for
`lm-shim config set`.

## Where a value comes from

The first of these that sets a value decides:

1. the request itself (`lm-shim ask --timeout`, the tool's `max_answer_tokens`);
2. the environment of the session that asks; it holds for that session's requests only;
3. `config.json` in the data directory;
4. the plugin's options, which travel as `LIVE_MEMORY_USERCONFIG_…`;
5. the default.

Empty means unset. Settings *of the whole daemon* serve all sessions at once, so the environment of
a session does not change them: they come from the environment the daemon was started with, then
from `config.json`. `lm-shim config show` lists every value with where it comes from; a value that
is set somewhere without effect is said to be shadowed.

## `config.json`

One JSON object with the keys below, in the data directory (`~/.claude/plugins/data/live-memory`
unless `LIVE_MEMORY_DATA_DIR` says otherwise). `lm-shim config set name=value…` and
`lm-shim config unset name…` change it, all or none of the names given; it can also be edited by
hand. A byte order mark and Windows line ends are accepted. Changes hold from the next request on.

- A value that is not accepted is reported with what is, and the last good value holds, or the
  default after a restart of the daemon. The file itself is left as it is.
- A file that is not valid JSON is reported with line and column; the last good settings hold, and
  `config set` refuses to write until it is repaired or removed.
- A key that is no setting is reported with the most similar one that is, and kept.
- It is written as a whole, readable by its user alone; where it is a link, the link stays.

Lists are separated by commas or new lines, or are JSON arrays. In paths, a leading `~/` is the home
directory; `~name` is not understood.

## All settings
";

/// The page, Markdown.
#[must_use]
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let defaults = Settings::default();
    let sections = [
        (
            "### With effect, for each request",
            (|row: &Row| row.effect == Effect::Now && row.scope == Scope::Request) as fn(&Row) -> bool,
        ),
        ("### With effect, for the whole daemon", |row| row.effect == Effect::Now && row.scope == Scope::Daemon),
        ("### From the environment alone", |row| row.scope == Scope::EnvironmentOnly),
        ("### Planned: known and checked, without effect in this version", |row| row.effect == Effect::Planned),
    ];
    for (title, belongs) in sections {
        let _ = writeln!(page, "\n{title}\n\n| name | accepted | default | meaning |\n|---|---|---|---|");
        for row in ROWS.iter().filter(|row| belongs(row)) {
            let default = row.value(&defaults).map_or_else(|| "–".into(), |value| format!("`{}`", value.text()));
            let accepted = row.kind.accepted().replace('|', "\\|");
            let _ = writeln!(page, "| `{}` | {accepted} | {default} | {} |", row.key, row.meaning());
        }
    }
    page
}
