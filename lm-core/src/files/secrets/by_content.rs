//! What bears secrets by what its text holds.
//!
//! Tokens are matched by their real shapes, prefix, alphabet and length, so that source code that
//! speaks about tokens, or a regular expression for them, stays visible. A text is searched once for
//! the literal beginnings of all shapes; only where one stands is its shape tried.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use regex::Regex;

/// A shape of secrets.
struct Shape {
    /// What it begins with; each is looked for as it is written.
    anchors: &'static [&'static str],
    /// All of it, from the anchor on. A group named `secret` holds what is judged, where that is not
    /// the whole.
    pattern: &'static str,
    /// Where it may stand and what else must hold.
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A token that no letter or digit stands before. It may stand behind `_`, as in `key_ghp_…`.
    Token,
    /// A token that no letter or digit stands before or after.
    WholeToken,
    /// What is only found in its context, whatever stands around it.
    Assigned,
    /// A private key.
    PrivateKey,
    /// A signed token that tells its algorithm in its first part.
    SignedToken,
    /// Behind the scheme of an address: a user's name, a password, `@`.
    Address,
}

impl Kind {
    /// The longest part of a text that such a shape is tried on, in bytes. A text made of beginnings
    /// alone must not cost its length for each of them.
    fn longest(self) -> usize {
        match self {
            Self::Token | Self::WholeToken | Self::Assigned | Self::Address => 512,
            // What may stand before its body.
            Self::PrivateKey => 2 << 10,
            Self::SignedToken => 16 << 10,
        }
    }
}

/// From the issuers' documentation and the rules of public secret scanners.
const SHAPES: &[Shape] = &[
    // Amazon: access key ids, and the secret that belongs to one, which has no shape of its own.
    Shape { anchors: &["AKIA", "ASIA"], pattern: r"A[KS]IA[0-9A-Z]{16}", kind: Kind::WholeToken },
    Shape {
        anchors: &[
            "secret_access_key",
            "SECRET_ACCESS_KEY",
            "secretAccessKey",
            "SecretAccessKey",
            "secret-access-key",
            "secretaccesskey",
            "aws_secret_key",
            "AWS_SECRET_KEY",
            "awsSecretKey",
        ],
        pattern: r"[A-Za-z_\-]+(?:\\*[\x22'`\])]){0,3}(?:\s*:\s*&?[A-Za-z']{2,10})?[\s:=>,(|?]{1,40}(?:String::from\(|Some\()?(?:\\*[\x22'`])?(?P<secret>[0-9A-Za-z+/]{40})(?:[^0-9A-Za-z+/=]|$)",
        kind: Kind::Assigned,
    },
    // Microsoft: connection strings of storage and messaging.
    Shape {
        anchors: &["AccountKey=", "SharedAccessKey="],
        pattern: r"[A-Za-z]+=(?P<secret>[0-9A-Za-z+/]{40,}={0,2})",
        kind: Kind::Assigned,
    },
    // GitHub: classic, OAuth, app and refresh tokens; fine-grained tokens.
    Shape {
        anchors: &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"],
        pattern: r"gh[pousr]_[0-9A-Za-z]{36,251}",
        kind: Kind::WholeToken,
    },
    Shape { anchors: &["github_pat_"], pattern: r"github_pat_[0-9A-Za-z]{22}_[0-9A-Za-z]{59}", kind: Kind::WholeToken },
    // GitLab.
    Shape {
        anchors: &["glpat-", "gldt-", "glrt-", "glsoat-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-"],
        pattern: r"gl[a-z]+-[0-9A-Za-z_\-]{20,}",
        kind: Kind::Token,
    },
    // Anthropic, OpenAI and those who copied the shape.
    Shape {
        anchors: &["sk-ant-"],
        pattern: r"sk-ant-(?:api|admin|oat|ort|sid)[0-9]{2}-[0-9A-Za-z_\-]{24,}",
        kind: Kind::Token,
    },
    Shape {
        anchors: &["sk-proj-", "sk-svcacct-", "sk-admin-", "sk-None-", "sk-or-v1-"],
        pattern: r"sk-[A-Za-z]+-(?:v1-)?[0-9A-Za-z_\-]{32,}",
        kind: Kind::Token,
    },
    Shape { anchors: &["sk-"], pattern: r"sk-[0-9A-Za-z]{32,64}", kind: Kind::WholeToken },
    // Slack.
    Shape { anchors: &["xox"], pattern: r"xox[abeoprs]-[0-9]{6,}-[0-9A-Za-z\-]{10,}", kind: Kind::Token },
    Shape { anchors: &["xapp-"], pattern: r"xapp-[0-9]-[0-9A-Z]+-[0-9]+-[0-9a-f]{32,}", kind: Kind::Token },
    Shape {
        anchors: &["hooks.slack.com/"],
        pattern: r"hooks\.slack\.com/services/T[0-9A-Z]{8,}/B[0-9A-Z]{8,}/[0-9A-Za-z]{20,}",
        kind: Kind::Assigned,
    },
    // Google: API keys and OAuth.
    Shape { anchors: &["AIza"], pattern: r"AIza[0-9A-Za-z_\-]{35}", kind: Kind::Token },
    Shape { anchors: &["ya29."], pattern: r"ya29\.[0-9A-Za-z_\-]{60,}", kind: Kind::Token },
    Shape { anchors: &["GOCSPX-"], pattern: r"GOCSPX-[0-9A-Za-z_\-]{28}", kind: Kind::Token },
    // Stripe.
    Shape {
        anchors: &["sk_live_", "sk_test_", "rk_live_", "rk_test_"],
        pattern: r"[rs]k_(?:live|test)_[0-9A-Za-z]{24,}",
        kind: Kind::WholeToken,
    },
    // npm, PyPI, crates.io, Docker, Hugging Face, DigitalOcean, SendGrid, Twilio, Shopify.
    Shape { anchors: &["npm_"], pattern: r"npm_[0-9A-Za-z]{36}", kind: Kind::WholeToken },
    Shape { anchors: &["pypi-AgEI"], pattern: r"pypi-AgEIcHlwaS5vcmc[0-9A-Za-z_\-]{50,}", kind: Kind::Token },
    Shape { anchors: &["cio"], pattern: r"cio[0-9A-Za-z]{32}", kind: Kind::WholeToken },
    Shape { anchors: &["dckr_pat_"], pattern: r"dckr_pat_[0-9A-Za-z_\-]{27}", kind: Kind::Token },
    Shape { anchors: &["hf_"], pattern: r"hf_[A-Za-z]{34}", kind: Kind::WholeToken },
    Shape { anchors: &["doo_v1_", "dop_v1_", "dor_v1_"], pattern: r"do[opr]_v1_[0-9a-f]{64}", kind: Kind::WholeToken },
    Shape { anchors: &["SG."], pattern: r"SG\.[0-9A-Za-z_\-]{22}\.[0-9A-Za-z_\-]{43}", kind: Kind::Token },
    Shape { anchors: &["SK"], pattern: r"SK[0-9a-f]{32}", kind: Kind::WholeToken },
    Shape {
        anchors: &["shpat_", "shpca_", "shppa_", "shpss_"],
        pattern: r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
        kind: Kind::WholeToken,
    },
    // Three parts in base64: `{"…`, `{"…` with more than a word in it, and a signature of 32 bytes.
    Shape {
        anchors: &["eyJ"],
        pattern: r"eyJ[0-9A-Za-z_\-]{10,600}\.(?P<secret>eyJ[0-9A-Za-z_\-]{32,}\.[0-9A-Za-z_\-]{42,})",
        kind: Kind::SignedToken,
    },
    // Its header, then at least a line of its body; a mere mention of the header is no key. Between
    // lines there may stand what makes them comments, quoted strings, parts of an expression or a
    // patch, and line ends may be written as escapes.
    Shape {
        anchors: &["-----BEGIN "],
        pattern: concat!(
            r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
            r"(?:[^0-9A-Za-z]|\\+[nrt]|\\+u000[aAdD]|<br ?/?>|&#1[03];|\b(?:REM|dnl)\b)+",
            r"(?:[A-Za-z][0-9A-Za-z\-]*: [^\n\\]*(?:[^0-9A-Za-z]|\\+[nrt])+)*",
            r"[0-9A-Za-z+/=]{40,}"
        ),
        kind: Kind::PrivateKey,
    },
    // PuTTY's own form of a private key; age's; HashiCorp's Vault; Groq; xAI.
    Shape {
        anchors: &["Private-Lines: "],
        pattern: r"Private-Lines: [0-9]+\s+[0-9A-Za-z+/=]{40,}",
        kind: Kind::Assigned,
    },
    Shape { anchors: &["AGE-SECRET-KEY-1"], pattern: r"AGE-SECRET-KEY-1[0-9A-Z]{58}", kind: Kind::WholeToken },
    Shape { anchors: &["hvs."], pattern: r"hvs\.[0-9A-Za-z_\-]{24,}", kind: Kind::Token },
    Shape { anchors: &["gsk_"], pattern: r"gsk_[0-9A-Za-z]{40,}", kind: Kind::WholeToken },
    Shape { anchors: &["xai-"], pattern: r"xai-[0-9A-Za-z]{60,}", kind: Kind::WholeToken },
    Shape {
        anchors: &["://"],
        pattern: r"://(?P<user>[^\s:/?#@\x22'`<>\[\](){}\\|,]{0,64}):(?P<secret>[^\s:/?#\x22'`<>{}\\|]{6,128})@(?P<host>[0-9A-Za-z][0-9A-Za-z.\-]*|\[[0-9a-f:.]+\])",
        kind: Kind::Address,
    },
];

/// The longest first part of a signed token, in bytes, its dot included.
const LONGEST_HEAD: usize = 604;
/// The beginning of the signed token that everybody copies from jwt.io, behind its first part.
const KNOWN_SIGNED: &str = "eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9l";
/// The beginning of the key that Microsoft publishes for its storage emulator.
const KNOWN_ACCOUNT: &str = "Eby8vdM02xNOcqFl";

/// The shapes, ready to be looked for.
struct Patterns {
    /// Any long anchor, and any short one: apart, for the search for a set is only as fast as its
    /// shortest member allows.
    anchors: [Regex; 2],
    /// By anchor.
    shapes: HashMap<&'static str, (Kind, Arc<Regex>)>,
}

static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(compile);

fn compile() -> Option<Patterns> {
    // The longer of two anchors with the same beginning stands first in `SHAPES`, and so wins here.
    let any = |wanted: fn(&str) -> bool| {
        let anchors = SHAPES.iter().flat_map(|shape| shape.anchors).filter(|anchor| wanted(anchor));
        Regex::new(&anchors.map(|anchor| regex::escape(anchor)).collect::<Vec<_>>().join("|")).ok()
    };
    let mut shapes = HashMap::new();
    for shape in SHAPES {
        let pattern = Arc::new(Regex::new(&format!(r"\A(?:{})", shape.pattern)).ok()?);
        shapes.extend(shape.anchors.iter().map(|anchor| (*anchor, (shape.kind, Arc::clone(&pattern)))));
    }
    Some(Patterns { anchors: [any(|anchor| anchor.len() > 3)?, any(|anchor| anchor.len() <= 3)?], shapes })
}

/// Whether text holds something that has the shape of a real secret.
pub(crate) fn holds_secret(text: &str) -> bool {
    // Without the patterns nothing may pass; a test compiles them.
    PATTERNS.as_ref().is_none_or(|patterns| patterns.match_any(text))
}

impl Patterns {
    fn match_any(&self, text: &str) -> bool {
        self.anchors.iter().any(|anchors| {
            let mut from = 0;
            while let Some(found) = anchors.find_at(text, from) {
                // Anchors are ASCII; a shape may begin inside the anchor of another one.
                from = found.start() + 1;
                let Some((kind, pattern)) = self.shapes.get(found.as_str()) else { continue };
                if matches_at(text, found.start(), *kind, pattern) {
                    return true;
                }
            }
            false
        })
    }
}

/// Whether a shape stands at a place of a text, and is no placeholder.
fn matches_at(text: &str, start: usize, kind: Kind, pattern: &Regex) -> bool {
    let bytes = text.as_bytes();
    let in_a_word = start > 0 && bytes[start - 1].is_ascii_alphanumeric();
    let possible = match kind {
        Kind::Token | Kind::WholeToken | Kind::SignedToken => !in_a_word,
        // The scheme.
        Kind::Address => in_a_word,
        Kind::Assigned | Kind::PrivateKey => true,
    };
    if !possible {
        return false;
    }
    let mut end = text.len().min(start + kind.longest());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let rest = &text[start..end];
    match kind {
        Kind::PrivateKey => pattern.is_match(rest),
        Kind::Token => pattern.find(rest).is_some_and(|found| !is_placeholder(found.as_str())),
        Kind::WholeToken => pattern.find(rest).is_some_and(|found| {
            let goes_on = bytes.get(start + found.end()).is_some_and(u8::is_ascii_alphanumeric);
            !goes_on && !is_placeholder(found.as_str())
        }),
        Kind::Assigned => pattern.captures(rest).is_some_and(|found| {
            let secret = found.name("secret").or(found.get(0)).map_or("", |secret| secret.as_str());
            !is_placeholder(secret) && !secret.starts_with(KNOWN_ACCOUNT)
        }),
        Kind::SignedToken => {
            // Looked at first, for it is quick.
            let head = rest.as_bytes().iter().take(LONGEST_HEAD).position(|byte| *byte == b'.');
            head.is_some_and(|end| tells_algorithm(&rest[..end]))
                && pattern.captures(rest).is_some_and(|found| !found["secret"].starts_with(KNOWN_SIGNED))
        }
        Kind::Address => pattern
            .captures(rest)
            .is_some_and(|found| is_real_password(&found["user"], &found["secret"], &found["host"])),
    }
}

/// Whether JSON in base64 has the key `alg`, which looks different in each of three positions.
fn tells_algorithm(head: &str) -> bool {
    ["ImFsZyI6", "JhbGciO", "iYWxnIj"].iter().any(|encoded| head.contains(encoded))
}

/// Shapes that documentation uses: `AKIAIOSFODNN7EXAMPLE`, `sk-000…`, one letter repeated. A real token
/// is random, and a random one has many different characters.
fn is_placeholder(token: &str) -> bool {
    let body = token.get(4..).unwrap_or_default();
    let lower = body.to_lowercase();
    ["example", "placeholder", "your", "dummy", "redacted", "abcdefgh", "xxxxxxxx"]
        .iter()
        .any(|word| lower.contains(word))
        || different_characters(body) < 7
}

fn different_characters(text: &str) -> usize {
    let mut seen = [false; 128];
    text.bytes().filter(u8::is_ascii).for_each(|byte| seen[usize::from(byte)] = true);
    seen.iter().filter(|seen| **seen).count()
}

/// Words that stand for a password where addresses are explained, alone or several together.
const PASSWORD_WORDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "passw0rd",
    "p4ssw0rd",
    "pass",
    "pwd",
    "pw",
    "secret",
    "token",
    "hunter",
    "user",
    "username",
    "name",
    "admin",
    "root",
    "guest",
    "test",
    "testing",
    "example",
    "sample",
    "demo",
    "dummy",
    "fake",
    "foo",
    "bar",
    "baz",
    "change",
    "changeme",
    "me",
    "my",
    "your",
    "the",
    "some",
    "here",
    "redacted",
    "hidden",
    "postgres",
    "postgresql",
    "mysql",
    "mariadb",
    "mongo",
    "mongodb",
    "redis",
    "rabbitmq",
    "db",
    "database",
    "local",
    "default",
    "auth",
    "oauth",
    "key",
    "api",
    "access",
    "x",
    "xxx",
    "abc",
    "qwerty",
    "placeholder",
    "basic",
    "git",
    "github",
    "credentials",
    "login",
    "port",
    "host",
    "with",
    "special",
    "chars",
    "super",
    "not",
    "a",
    "very",
    "secure",
];

/// Hosts that exist in explanations only (RFC 2606, RFC 6761).
const HOSTS: &[&str] = &["example", "example.com", "example.org", "example.net"];

/// Whether `user:password@host` looks like one that opens something.
fn is_real_password(user: &str, password: &str, host: &str) -> bool {
    let host = host.to_lowercase();
    let explains =
        HOSTS.iter().any(|known| host == *known || host.strip_suffix(known).is_some_and(|sub| sub.ends_with('.')))
            || [".test", ".invalid", ".local.test"].iter().any(|end| host.ends_with(end));
    let lower = password.to_lowercase();
    // Filled in by a program: `$PASSWORD`, `%s`, `***`, `...`.
    let is_template = lower.contains(['$', '*', '…', ';', '(', ')', '|', '&', '\u{fffd}'])
        || lower.contains("...")
        || lower.contains("%s");
    if explains || is_template || user.eq_ignore_ascii_case(password) || different_characters(password) < 5 {
        return false;
    }
    // A password of letters alone is more often a word that stands for one, unless it is long.
    let letters = lower.bytes().filter(u8::is_ascii_alphabetic).count();
    let mixed = letters < lower.len() && letters > 0 || letters >= 12;
    // `app:app123`.
    let rest = lower.strip_prefix(&user.to_lowercase()).unwrap_or(&lower);
    mixed && !rest.split(|character: char| !character.is_ascii_alphabetic()).all(is_made_of_words)
}

/// Whether a run of letters is nothing but words that stand for a password.
fn is_made_of_words(letters: &str) -> bool {
    letters.is_empty() || PASSWORD_WORDS.iter().any(|word| letters.strip_prefix(word).is_some_and(is_made_of_words))
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
        assert!(PATTERNS.is_some());
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
    fn a_token_may_stand_in_a_longer_name() {
        for (prefix, body) in [("ghp_", &RANDOM[..36]), ("AKIA", "Q7ZT1LXV0SPD9KFR"), ("sk-", RANDOM)] {
            let secret = token(prefix, body);
            for text in [
                format!("key_{secret}"),
                format!("{secret}_backup"),
                format!("é{secret}é"),
                format!("AKIAAKIA_{secret}"),
                secret.clone(),
            ] {
                assert!(holds_secret(&text), "missed {text}");
            }
            assert!(!holds_secret(&format!("word{secret}")), "{secret} in a word");
        }
    }

    #[test]
    fn keys_in_comments_strings_and_escapes_are_found() {
        let body = format!("MII{}", RANDOM);
        let (begin, end) = (token("-----BEGIN RSA PRIVATE ", "KEY-----"), token("-----END RSA PRIVATE ", "KEY-----"));
        for text in [
            format!("{begin}\n{body}\n{end}"),
            format!("    {begin}\n    {body}\n    {end}"),
            format!("# {begin}\n# {body}\n"),
            format!("// {begin}\r\n// {body}\r\n"),
            format!(" * {begin}\n * {body}\n"),
            format!("-- {begin}\n-- {body}\n"),
            format!("REM {begin}\nREM {body}\n"),
            format!("'{begin}\\n' +\n    '{body}\\n'"),
            format!("concat!(\"{begin}\\n\",\n  \"{body}\\n\")"),
            format!("{{\"key\": \"{begin}\\n{body}\\n\"}}"),
            format!("\"{{\\\"key\\\": \\\"{begin}\\\\n{body}\\\\n\\\"}}\""),
            format!("KEY=\"{begin}\\r\\n{body}\""),
            format!("+{begin}\n+{body}\n"),
            format!("<key>{begin}&#10;{body}</key>"),
            format!("# {begin}\n# Proc-Type: 4,ENCRYPTED\n# DEK-Info: AES-128-CBC,0123ABCD\n#\n# {body}\n"),
            format!("{begin} {body}"),
        ] {
            assert!(holds_secret(&text), "missed {text}");
        }
        for text in [
            format!("`{begin}` begins a key, and after it comes {body}"),
            format!("{begin}\n...\n{end}\n"),
            format!("{begin}\n<your key>\n{end}\n"),
            format!("# {begin}\n# MIIEvQ...\n# {end}\n"),
            token("-----BEGIN PUBLIC ", &format!("KEY-----\n{body}\n")),
            token("-----BEGIN CERTI", &format!("FICATE-----\n{body}\n")),
        ] {
            assert!(!holds_secret(&text), "taken for a key: {text}");
        }
    }

    #[test]
    fn secrets_of_amazon_are_found_in_their_assignments() {
        let secret = format!("{}/+", &RANDOM[..38]);
        for text in [
            format!("aws_secret_access_key = {secret}\n"),
            format!("export AWS_SECRET_ACCESS_KEY=\"{secret}\""),
            format!("AWS_SECRET_ACCESS_KEY: '{secret}'"),
            format!("{{\"SecretAccessKey\": \"{secret}\"}}"),
            format!("{{\\\"SecretAccessKey\\\": \\\"{secret}\\\"}}"),
            format!("const secretAccessKey: string = '{secret}';"),
            format!("config[\"aws_secret_access_key\"] = '{secret}'"),
            format!("<SecretAccessKey>{secret}</SecretAccessKey>"),
            format!("secretAccessKey => \"{secret}\""),
        ] {
            assert!(holds_secret(&text), "missed {text}");
        }
        for text in [
            token("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/", "bPxRfiCYEXAMPLEKEY"),
            format!("digest = {secret}"),
            "aws_secret_access_key = os.environ['AWS_SECRET_ACCESS_KEY']".to_owned(),
            "AWS_SECRET_ACCESS_KEY=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx".to_owned(),
        ] {
            assert!(!holds_secret(&text), "taken for a secret: {text}");
        }
    }

    #[test]
    fn connection_strings_are_found() {
        let key = format!("{}{}==", RANDOM, &RANDOM[..38]);
        assert!(holds_secret(&format!("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={key};")));
        assert!(holds_secret(&format!("SharedAccessKeyName=Root;SharedAccessKey={}=", &RANDOM[..43])));
        assert!(!holds_secret("AccountKey=<your key>; AccountKey={key}"));
        for address in [
            "postgres://app:Xk29fjQm@db.internal:5432/app",
            "url = \"mongodb+srv://service:gT7-pq.Lz1@cluster0.abcde.mongodb.net/x\"",
            "redis://:q7Zt1LxV0s@10.0.0.3:6379/0",
            "https://deploy:correcthorsebatterystaple@git.company.com/repo.git",
            "amqp://worker:s3cr3tP4ss@[::1]:5672",
        ] {
            assert!(holds_secret(address), "missed {address}");
        }
        for address in [
            "postgres://user:password@localhost/db",
            "postgres://postgres:postgres@db:5432/app",
            "https://user:pass123@host/",
            "https://me:my-secret-token@github.com/x",
            "https://app:Xk29fjQm@db.example.com/",
            "postgres://app:${DB_PASSWORD}@db/app, postgres://app:$PASSWORD@db, http://u:{password}@h",
            "http://user:%s@host, ftp://a:*******@b, https://x:<token>@github.com",
            "see http://host:8080/path@version and https://crates.io/x:y@z",
            "git://user@host:path, ssh://git@github.com:22/a",
            "app://app:app123@app",
        ] {
            assert!(!holds_secret(address), "taken for a password: {address}");
        }
    }

    #[test]
    fn signed_tokens_are_found() {
        let payload = "eyJzdWIiOiJzZXJ2aWNlLTE3IiwiZXhwIjoxOTk5OTk5OTk5fQ";
        let signature = &RANDOM[..43];
        for head in [
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
            "eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9",
            "eyJraWQiOiIxIiwiYWxnIjoiRVMyNTYifQ",
        ] {
            assert!(holds_secret(&format!("Authorization: Bearer {head}.{payload}.{signature}")), "missed {head}");
        }
        let head = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";
        let known = "eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ";
        for harmless in [
            format!("{head}.{known}.{signature}"),
            format!("{head}.{payload}"),
            format!("{head}.{payload}.sig"),
            format!("eyJmb28iOiJiYXIifQ.{payload}.{signature}"),
        ] {
            assert!(!holds_secret(&harmless), "taken for a token: {harmless}");
        }
    }
}
