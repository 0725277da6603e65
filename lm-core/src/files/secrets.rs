//! What bears secrets: by name, and by what its text holds.
//!
//! Content is matched by the real shapes of tokens, prefix, alphabet and length, so that source code
//! that speaks about tokens, or a regular expression for them, stays visible.

use std::{
    ffi::OsStr,
    path::{Component, Path},
    sync::LazyLock,
};

use regex::Regex;

/// Whole names of files that hold credentials.
const NAMES: &[&str] = &[
    ".netrc",
    "_netrc",
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
    "credentials.json",
    ".credentials.json",
    ".envrc",
    "client_secret.json",
    "application_default_credentials.json",
    "service-account.json",
    "service_account.json",
    "serviceaccount.json",
    "secrets.json",
    "secrets.yaml",
    "secrets.yml",
    "secrets.toml",
    "terraform.tfstate",
    "terraform.tfstate.backup",
];

/// Endings of files that hold keys.
const EXTENSIONS: &[&str] =
    &["pem", "key", "p12", "pfx", "jks", "keystore", "kdbx", "kdb", "ppk", "p8", "tfvars", "ovpn", "mobileprovision"];

/// Beginnings of the names of private keys of ssh.
const SSH_KEYS: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_xmss"];

/// Endings that make `.env.example` and the like harmless: they are there to be read.
const EXAMPLES: &[&str] = &["example", "sample", "template", "dist", "defaults", "schema", "md", "tpl", "tmpl"];

/// Directories whose every file is private.
const DIRECTORIES: &[&str] = &[".ssh", ".gnupg"];

/// Files that hold credentials where they lie in a directory of that name.
const PLACES: &[(&str, &str)] =
    &[(".aws", "credentials"), (".docker", "config.json"), (".kube", "config"), (".azure", "accesstokens.json")];

/// Whether a file's name or place says that it holds secrets.
pub(crate) fn is_secret_name(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    let directory = path.parent().unwrap_or(Path::new(""));
    is_private_directory(directory) || is_secret_name_in(directory, name)
}

/// Whether all files of a directory, and of those in it, are private.
pub(super) fn is_private_directory(directory: &Path) -> bool {
    directory.components().any(|part| {
        let Component::Normal(part) = part else { return false };
        DIRECTORIES.iter().any(|private| part.as_encoded_bytes().eq_ignore_ascii_case(private.as_bytes()))
    })
}

/// As [`is_secret_name`], for a directory that is not private.
pub(super) fn is_secret_name_in(directory: &Path, name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    if PLACES.iter().any(|(place, secret)| {
        *secret == name
            && directory.file_name().is_some_and(|last| last.as_encoded_bytes().eq_ignore_ascii_case(place.as_bytes()))
    }) {
        return true;
    }
    if NAMES.contains(&name.as_str()) {
        return true;
    }
    if let Some(rest) = name.strip_prefix(".env")
        && (rest.is_empty() || rest.starts_with(['.', '-', '_']))
    {
        return !rest.rsplit(['.', '-', '_']).next().is_some_and(|ending| EXAMPLES.contains(&ending));
    }
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    if extension == Some("env") {
        return true;
    }
    // `id_rsa`, `id_rsa.old`, `id_ed25519_work`, but not the public halves and not source code.
    if SSH_KEYS.iter().any(|key| name.strip_prefix(key).is_some_and(is_key_ending)) {
        return true;
    }
    if let Some(extension) = extension {
        if EXTENSIONS.contains(&extension) {
            return true;
        }
        let stem = &name[..name.len() - extension.len() - 1];
        if extension == "json" && (stem.contains("service-account") || stem.contains("service_account")) {
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

/// The shapes of tokens, from their issuers' documentation and the rules of public secret scanners.
const SHAPES: &[&str] = &[
    // Amazon: access key ids.
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    // GitHub: classic, OAuth, app and refresh tokens; fine-grained tokens.
    r"\bgh[pousr]_[0-9A-Za-z]{36,251}\b",
    r"\bgithub_pat_[0-9A-Za-z]{22}_[0-9A-Za-z]{59}\b",
    // GitLab.
    r"\bgl(?:pat|dt|rt|soat|cbt|ptt|ft|imt|agent)-[0-9A-Za-z_\-]{20,}",
    // Anthropic, OpenAI and those who copied the shape.
    r"\bsk-ant-(?:api|admin|oat|ort|sid)[0-9]{2}-[0-9A-Za-z_\-]{24,}",
    r"\bsk-(?:proj|svcacct|admin|None|or-v1)-[0-9A-Za-z_\-]{32,}",
    r"\bsk-[0-9A-Za-z]{32,64}\b",
    // Slack.
    r"\bxox[abeoprs]-[0-9]{6,}-[0-9A-Za-z\-]{10,}",
    r"\bxapp-[0-9]-[0-9A-Z]+-[0-9]+-[0-9a-f]{32,}",
    r"hooks\.slack\.com/services/T[0-9A-Z]{8,}/B[0-9A-Z]{8,}/[0-9A-Za-z]{20,}",
    // Google: API keys and OAuth.
    r"\bAIza[0-9A-Za-z_\-]{35}",
    r"\bya29\.[0-9A-Za-z_\-]{60,}",
    r"\bGOCSPX-[0-9A-Za-z_\-]{28}",
    // Stripe.
    r"\b[rs]k_(?:live|test)_[0-9A-Za-z]{24,}\b",
    // npm, PyPI, crates.io, Docker, Hugging Face, DigitalOcean, SendGrid, Twilio, Shopify.
    r"\bnpm_[0-9A-Za-z]{36}\b",
    r"\bpypi-AgEIcHlwaS5vcmc[0-9A-Za-z_\-]{50,}",
    r"\bcio[0-9A-Za-z]{32}\b",
    r"\bdckr_pat_[0-9A-Za-z_\-]{27}",
    r"\bhf_[A-Za-z]{34}\b",
    r"\bdo[opr]_v1_[0-9a-f]{64}\b",
    r"\bSG\.[0-9A-Za-z_\-]{22}\.[0-9A-Za-z_\-]{43}",
    r"\bSK[0-9a-f]{32}\b",
    r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}\b",
    // A private key with at least a line of its body; a mere mention of the header is no key.
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:\s|\\[rn])+(?:[A-Za-z][A-Za-z0-9\-]*:[^\n]*(?:\s|\\[rn])+)*[0-9A-Za-z+/=]{40,}",
];

static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&SHAPES.join("|")).ok());

/// Whether text holds something that has the shape of a real secret.
pub(crate) fn holds_secret(text: &str) -> bool {
    // Without the pattern nothing may pass; a test compiles it.
    PATTERN.as_ref().is_none_or(|pattern| pattern.find_iter(text).any(|found| !is_placeholder(found.as_str())))
}

/// `AKIAXXXXXXXXXXXXXXXX`, `sk-000…`, `AKIAIOSFODNN7EXAMPLE`: shapes that documentation uses. A real
/// token is random, and a random one has many different characters.
fn is_placeholder(token: &str) -> bool {
    if token.starts_with("-----") {
        return false;
    }
    let body = token.get(4..).unwrap_or_default();
    let lower = body.to_lowercase();
    if ["example", "placeholder", "your", "dummy", "redacted", "abcdefgh", "xxxxxxxx"]
        .iter()
        .any(|word| lower.contains(word))
    {
        return true;
    }
    let mut seen = [false; 128];
    body.bytes().filter(u8::is_ascii).for_each(|byte| seen[usize::from(byte)] = true);
    let different = seen.iter().filter(|seen| **seen).count();
    different < 7
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together at run time, so that this file does not hold what it looks for.
    fn token(prefix: &str, body: &str) -> String {
        format!("{prefix}{body}")
    }

    const RANDOM: &str = "q7Zt1LxV0sPd9KfR3mWb8YcN5hJg2TuE6aQvXoSi4nDyGpCk";

    #[test]
    fn the_pattern_compiles() {
        assert!(PATTERN.is_some());
        assert!(!holds_secret("nothing of the kind"));
    }

    #[test]
    fn real_shapes_are_found() {
        for secret in [
            token("AKIA", "Q7ZT1LXV0SPD9KFR"),
            token("ghp_", &RANDOM[..36]),
            token("github_pat_", &format!("{}_{}{}", &RANDOM[..22], RANDOM, &RANDOM[..11])),
            token("glpat-", &RANDOM[..20]),
            token("sk-ant-", &format!("api03-{RANDOM}")),
            token("sk-proj-", RANDOM),
            token("sk-", RANDOM),
            token("xoxb-", "123456789012-123456789012-q7Zt1LxV0sPd"),
            token("AIza", &RANDOM[..35]),
            token("sk_live_", &RANDOM[..24]),
            token("npm_", &RANDOM[..36]),
            token("-----BEGIN OPENSSH PRIVATE ", &format!("KEY-----\n{RANDOM}{RANDOM}\n")),
            token("-----BEGIN RSA PRIVATE ", &format!("KEY-----\nProc-Type: 4,ENCRYPTED\n\n{RANDOM}{RANDOM}\n")),
            token("\"-----BEGIN PRIVATE ", &format!("KEY-----\\n{RANDOM}\\n\"")),
        ] {
            assert!(holds_secret(&format!("let key = \"{secret}\";")), "missed {secret}");
        }
    }

    #[test]
    fn speaking_about_secrets_is_no_secret() {
        for harmless in [
            r"ghp_[0-9A-Za-z]{36}",
            "if token.startswith('ghp_') or token.startswith('sk-ant-'):",
            "-----BEGIN PRIVATE KEY-----",
            "expects `-----BEGIN RSA PRIVATE KEY-----` and then base64",
            "sk-test, sk-123, risk-assessment-of-the-very-long-named-thing-that-follows",
            "AKIAIOSFODNN7EXAMPLE",
            "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "xoxb-your-token-here",
            "task-0123456789abcdef0123456789abcdef01234567",
        ] {
            assert!(!holds_secret(harmless), "taken for a secret: {harmless}");
        }
    }

    #[test]
    fn names_of_secret_files() {
        for secret in [
            ".env",
            ".env.local",
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
        ] {
            assert!(!is_secret_name(Path::new(harmless)), "{harmless} is refused");
        }
    }
}
