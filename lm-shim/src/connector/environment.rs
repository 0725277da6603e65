//! What a daemon inherits of its starter's environment.
//!
//! The daemon outlives the session that happened to start it and serves all others, so it gets only
//! what concerns the machine and the daemon itself. Everything else of a session, its settings and
//! keys above all, travels with each request: the first session's values must not hold for the
//! next, and a key must not lie in a process that does not need it.

use std::ffi::OsString;

/// Where the user is, how they read, and how the machine reaches the network.
const OF_THE_MACHINE: [&str; 32] = [
    "HOME",
    "USER",
    "LOGNAME",
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_CONFIG_HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "RUST_BACKTRACE",
    // Windows programs do not run without most of these.
    "SYSTEMROOT",
    "SYSTEMDRIVE",
    "WINDIR",
    "COMSPEC",
    "PATHEXT",
    "USERPROFILE",
    "USERNAME",
    "USERDOMAIN",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMDATA",
    "HOMEDRIVE",
    "HOMEPATH",
];

/// Settings of the daemon as a whole, which no request can carry.
const OF_THE_DAEMON: [&str; 7] = [
    "LIVE_MEMORY_IDLE_EXIT_S",
    "LIVE_MEMORY_LOG_LEVEL",
    "LIVE_MEMORY_LOG_FILE",
    "LIVE_MEMORY_LOG_MAX_BYTES",
    "LIVE_MEMORY_LOG_BACKUPS",
    "LIVE_MEMORY_TEST_HOLD_FILE",
    "LIVE_MEMORY_TEST_CLOCK_FILE",
];

/// The variables of `all` that the daemon gets.
pub(super) fn inherited(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    all.filter(|(name, value)| {
        // Proxies are written in lower case as often; Windows does not tell cases apart at all.
        let upper = name.to_string_lossy().to_uppercase();
        !value.is_empty() && (OF_THE_MACHINE.contains(&upper.as_str()) || OF_THE_DAEMON.contains(&upper.as_str()))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_settings_of_a_session_stay_behind() {
        let all = [
            ("HOME", "/home/me"),
            ("https_proxy", "http://proxy:1"),
            ("LIVE_MEMORY_IDLE_EXIT_S", "9"),
            ("LIVE_MEMORY_API_KEY", "secret"),
            ("ANTHROPIC_API_KEY", "secret"),
            ("LIVE_MEMORY_MODEL", "m"),
            ("LIVE_MEMORY_LOG_LEVEL", ""),
            ("CLAUDE_PROJECT_DIR", "/w"),
            ("LD_PRELOAD", "x.so"),
        ];
        let kept = inherited(all.iter().map(|(name, value)| (name.into(), value.into())));
        let names: Vec<_> = kept.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["HOME", "https_proxy", "LIVE_MEMORY_IDLE_EXIT_S"]);
    }
}
