//! What bears secrets by its name, or by the place it lies in.

use std::{
    ffi::OsStr,
    path::{Component, Path},
};

/// Whole names of files that hold credentials.
const NAMES: &[&str] = &[
    ".netrc",
    "_netrc",
    ".authinfo",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".htpasswd",
    ".dockercfg",
    ".s3cfg",
    ".boto",
    ".vault-token",
    ".terraformrc",
    "terraform.rc",
    "rclone.conf",
    "kubeconfig",
    "kubeconfig.yaml",
    "kubeconfig.yml",
    "credentials.json",
    ".credentials.json",
    "credentials.tfrc.json",
    ".envrc",
    "env.local",
    "client_secret.json",
    "application_default_credentials.json",
    "service-account.json",
    "service_account.json",
    "serviceaccount.json",
    ".secrets",
    ".rclone.conf",
    "kube.config",
    ".claude.json",
    "credentials.db",
    "wp-config.php",
    "htpasswd",
    "password.txt",
    "passwords.txt",
];

/// Endings of `secret.…` and `secrets.…`, with or without a dot before them.
const SECRET_FORMATS: &[&str] = &["json", "yaml", "yml", "ini", "toml"];

/// What shells and other prompts keep of what was typed, which now and then is a password.
const HISTORIES: &[&str] = &[".histfile", ".zhistory", "fish_history", "consolehost_history.txt"];

/// Beginnings of the names of files that hold credentials.
const BEGINNINGS: &[&str] = &[".vault_pass", ".vault-pass", ".authinfo.", "kubeconfig-", "kubeconfig_", "kubeconfig."];

/// Endings of files that hold keys.
const EXTENSIONS: &[&str] = &[
    "pem",
    "key",
    "p12",
    "pfx",
    "jks",
    "keystore",
    "kdbx",
    "kdb",
    "ppk",
    "p8",
    "tfvars",
    "ovpn",
    "mobileprovision",
    "kubeconfig",
];

/// Beginnings of the names of private keys of ssh.
const SSH_KEYS: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_xmss"];

/// Endings that make `.env.example` and the like harmless: they are there to be read.
const EXAMPLES: &[&str] = &["example", "sample", "template", "dist", "defaults", "schema", "md", "tpl", "tmpl"];

/// Directories whose every file is private. In `.git` that is the addresses of remotes, which may hold
/// passwords, and what was meant for nobody else; history is read by its own tools.
const DIRECTORIES: &[&str] = &[".ssh", ".gnupg", ".env.d", ".aws", ".azure", ".git"];

/// Files that hold credentials where they lie in a directory of that name.
const PLACES: &[(&str, &str)] = &[
    (".aws", "credentials"),
    (".aws", "config"),
    (".azure", "accesstokens.json"),
    (".cargo", "credentials"),
    (".cargo", "credentials.toml"),
    (".docker", "config.json"),
    (".docker", "auth.json"),
    ("containers", "auth.json"),
    (".composer", "auth.json"),
    (".gem", "credentials"),
    ("gh", "hosts.yml"),
    (".codex", "auth.json"),
    (".kube", "config"),
    (".m2", "settings.xml"),
    (".m2", "settings-security.xml"),
];

/// What is added to the name of a copy.
const COPIES: &[&str] = &[
    "~",
    ".bak",
    "_bak",
    "-bak",
    ".backup",
    "_backup",
    "-backup",
    ".old",
    "_old",
    "-old",
    ".orig",
    ".save",
    ".copy",
    " copy",
    "_copy",
    "-copy",
    " - copy",
    ".tmp",
    ".swp",
    ".prev",
    ".disabled",
    ".rpmsave",
    ".rpmnew",
    ".dpkg-old",
    ".dpkg-dist",
];

/// Whether a file's name or place says that it holds secrets.
pub(crate) fn is_secret_name(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    let directory = path.parent().unwrap_or(Path::new(""));
    is_private_directory(directory) || is_secret_name_in(directory, name)
}

/// Whether all files of a directory, and of those in it, are private.
pub(in crate::files) fn is_private_directory(directory: &Path) -> bool {
    directory.components().any(|part| {
        let Component::Normal(part) = part else { return false };
        let name = part.to_string_lossy().to_lowercase();
        DIRECTORIES.contains(&without_copies(&name))
    })
}

/// As [`is_secret_name`], for a directory that is not private.
pub(in crate::files) fn is_secret_name_in(directory: &Path, name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    if is_secret(directory, &name) {
        return true;
    }
    let original = without_copies(&name);
    // `env.bak` is what a hidden `.env` is renamed to.
    if original.len() < name.len() && (is_secret(directory, original) || original == "env") {
        return true;
    }
    // What an editor keeps of `name` while it is open: `#name#`, `.#name`.
    if let Some(edited) = name.strip_prefix(".#").or_else(|| name.strip_prefix('#')?.strip_suffix('#'))
        && is_secret(directory, edited)
    {
        return true;
    }
    // `secrets copy.json`, `credentials (1).json`.
    let Some((stem, extension)) = name.rsplit_once('.') else { return false };
    let original = without_copies(stem);
    original.len() < stem.len() && !original.is_empty() && is_secret(directory, &format!("{original}.{extension}"))
}

/// A name without what was added to it when it was copied, once or several times.
fn without_copies(name: &str) -> &str {
    let mut original = name;
    loop {
        let shorter = COPIES.iter().find_map(|copy| original.strip_suffix(copy)).unwrap_or_else(|| numbered(original));
        if shorter.is_empty() || shorter.len() == original.len() {
            return original;
        }
        original = shorter;
    }
}

/// Without the `.1`, ` 2` or ` (3)` at its end; `.bak.20240131` is a copy as well.
fn numbered(name: &str) -> &str {
    let bare = name.strip_suffix(')').unwrap_or(name);
    let digits = bare.len() - bare.trim_end_matches(|character: char| character.is_ascii_digit()).len();
    let rest = &bare[..bare.len() - digits];
    let mark = if bare.len() < name.len() { " (" } else { "." };
    let spaced = rest.strip_suffix(' ').filter(|_| bare.len() == name.len());
    let shorter = rest.strip_suffix(mark).or(spaced);
    shorter.filter(|_| (1..=8).contains(&digits)).unwrap_or(name)
}

/// Whether a name in lower case is one of a file with secrets.
fn is_secret(directory: &Path, name: &str) -> bool {
    if PLACES.iter().any(|(place, secret)| {
        *secret == name
            && directory.file_name().is_some_and(|last| last.as_encoded_bytes().eq_ignore_ascii_case(place.as_bytes()))
    }) {
        return true;
    }
    if NAMES.contains(&name)
        || HISTORIES.contains(&name)
        || name.starts_with('.') && name.ends_with("_history")
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
    {
        return true;
    }
    // `.env`, `.env1`, `.env.production`.
    if let Some(rest) = name.strip_prefix(".env") {
        let rest = rest.trim_start_matches(|character: char| character.is_ascii_digit());
        if matches!(rest, "bak" | "old" | "orig" | "backup" | "copy" | "local" | "prod" | "dev") {
            return true;
        }
        if rest.is_empty() || rest.starts_with(['.', '-', '_']) {
            return !rest.rsplit(['.', '-', '_']).next().is_some_and(|ending| EXAMPLES.contains(&ending));
        }
    }
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) => (stem, Some(extension)),
        None => (name, None),
    };
    if extension == Some("env") {
        return true;
    }
    // `id_rsa`, `id_rsa.old`, `id_ed25519_work`, but not the public halves and not source code.
    if SSH_KEYS.iter().any(|key| name.strip_prefix(key).is_some_and(is_key_ending)) {
        return true;
    }
    // Terraform keeps every password it was given, and renames what it replaces.
    if name.ends_with(".tfvars.json") || name.ends_with(".tfstate") || name.contains(".tfstate.") {
        return true;
    }
    if let Some(extension) = extension {
        if EXTENSIONS.contains(&extension) {
            return true;
        }
        if SECRET_FORMATS.contains(&extension) && matches!(stem.trim_start_matches('.'), "secret" | "secrets") {
            return true;
        }
        if extension == "json"
            && (stem.starts_with("client_secret")
                || stem.contains("service-account")
                || stem.contains("service_account"))
        {
            return true;
        }
    }
    false
}

fn is_key_ending(rest: &str) -> bool {
    rest.is_empty()
        || (rest.starts_with(['_', '-', '.'])
            && !rest.ends_with(".pub")
            && !rest[1..].contains('.')
            && !matches!(rest, ".rs" | ".py" | ".go" | ".js" | ".ts" | ".c" | ".h" | ".java" | ".md" | ".rb" | ".sh"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secret_files() {
        for secret in [
            ".env",
            ".env.local",
            "#.env#",
            ".git/config",
            "vendored/.git/logs/HEAD",
            ".#id_rsa",
            "env.bak",
            ".envbak",
            ".aws/sso/cache/a.json",
            ".aws.bak/credentials",
            ".rclone.conf",
            "kube.config",
            "kubeconfig-prod",
            "client_secret_123.json",
            ".codex/auth.json",
            ".claude.json",
            "wp-config.php",
            "deploy/.env.production",
            "prod.env",
            "id_rsa",
            "keys/id_ed25519",
            "id_rsa.old",
            "server.pem",
            "tls/server.key",
            ".npmrc",
            ".netrc",
            ".pypirc",
            "credentials.json",
            "store.p12",
            "passwords.kdbx",
            "ID_RSA",
            "my-service-account-prod.json",
            ".ssh/config",
            ".aws/credentials",
            "home/.docker/config.json",
            ".env~",
            ".env.bak",
            ".env1",
            ".env.d/database",
            "env.local",
            "id_rsa~",
            "id_rsa copy",
            "id_rsa.bak.1",
            "id_ed25519.20240131",
            "server.key.1",
            "server.pem.orig",
            ".npmrc.save",
            ".NETRC.BAK",
            "secrets copy.json",
            "credentials (1).json",
            "credentials copy 2.json",
            "credentials.json.old",
            ".cargo/credentials",
            ".cargo/credentials.toml",
            ".gem/credentials",
            ".aws/config",
            ".aws/config.bak",
            ".config/gh/hosts.yml",
            "containers/auth.json",
            ".docker/auth.json",
            "kubeconfig",
            "prod.kubeconfig",
            ".terraformrc",
            ".vault_pass",
            ".vault_pass.txt",
            ".authinfo",
            ".authinfo.gpg",
            ".m2/settings.xml",
            "prod.tfvars.json",
            "terraform.tfstate",
            "prod.tfstate.1700000000.backup",
            ".secrets",
            ".secrets.toml",
            "secret.json",
            "Secrets.YAML",
            "secret.yml",
            "secrets.ini",
            "secrets.toml",
            "passwords.txt",
            ".bash_history",
            ".zsh_history",
            ".psql_history",
            "fish_history",
        ] {
            assert!(is_secret_name(Path::new(secret)), "{secret} is let through");
        }
        for harmless in [
            ".env.example",
            ".env.sample",
            ".environment.md",
            "environment.rs",
            "src/env.rs",
            "id_map.py",
            "id_rsa.pub",
            "id_rsa.rs",
            "key.rs",
            "keys.py",
            "credentials.py",
            "monkey",
            "pem.go",
            "secrets.rs",
            "envoy.yaml",
            ".env.template",
            "id_rsa.pub.bak",
            "key.rs.bak",
            "notes.old",
            "monkey.1",
            "config",
            "auth.json",
            "settings.xml",
            "hosts.yml",
            "history.rs",
            "bash_history.md",
            "secret_santa.json",
            "secrets.py",
            "passwords.rs",
            "tfstate.go",
            ".environment",
            "1",
            ".1",
            "(1)",
            "~",
        ] {
            assert!(!is_secret_name(Path::new(harmless)), "{harmless} is refused");
        }
    }
}
