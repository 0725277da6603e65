//! Where the key comes from, and keeping it out of everything else.
//!
//! A key is a type without `Debug` and `Display`; it is read in one place, the header of a request.
//! Text that a server sent is cleaned of it before anyone sees it. Not allowed here: writing.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};

use super::{ModelError, Provider};

/// A key file is one line; more than this is some other file.
const MAX_KEY_FILE: u64 = 16 * 1024;

/// A secret that lets one in at a provider.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a secret is never shown")]
pub struct ApiKey(SecretString);

impl ApiKey {
    /// Takes a key as a person gave it; surrounding white space is dropped.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] if it is empty, cannot stand in a header, or is a Claude
    /// subscription token; the text does not repeat it.
    pub fn new(text: &str) -> Result<Self, ModelError> {
        let text = text.trim();
        let invalid = |what: &str| Err(ModelError::Invalid(format!("the API key {what}")));
        if text.is_empty() {
            return invalid("is empty; give one with `lm-shim setup` or LIVE_MEMORY_API_KEY");
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return invalid(
                "holds white space or characters that no key has; copy it again, without quotes or line breaks",
            );
        }
        if text.starts_with("sk-ant-oat") || text.starts_with("sk-ant-ort") {
            return invalid(
                "is a Claude subscription token, which the vendor's policy does not allow here; create an API key at \
                 https://platform.claude.com",
            );
        }
        Ok(Self(text.to_owned().into()))
    }

    pub(super) fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Tells keys apart without holding any of one: a hash with salt, cut to 64 bits.
    pub(super) fn fingerprint(&self, salt: &str) -> String {
        short_digest(salt, self.expose())
    }
}

/// The first 64 bits, in hexadecimal, of the SHA-256 of salt and text.
pub(super) fn short_digest(salt: &str, text: &str) -> String {
    let digest = Sha256::new().chain_update(salt).chain_update([0]).chain_update(text).finalize();
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

impl PartialEq for ApiKey {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for ApiKey {}

/// Where a key was found, fit to be shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyOrigin {
    /// It was set.
    Setting,
    /// It stands in a file.
    File(PathBuf),
    /// The daemon's or the session's environment has it.
    Variable(&'static str),
}

impl KeyOrigin {
    /// The address that the key belongs to, if nothing else is said: a key of DeepSeek must not be
    /// sent to OpenAI.
    #[must_use]
    pub fn implied_base_url(&self) -> Option<&'static str> {
        matches!(self, Self::Variable("DEEPSEEK_API_KEY")).then_some("https://api.deepseek.com")
    }
}

/// The variables that other tools of the same provider use, in the order they are tried. Which vendor a
/// key belongs to is known by its name: none is sent to another vendor's address, nor to a server of
/// this wire format that may be anybody's. Those that speak Anthropic's are gateways to it as a rule,
/// and other tools send them the same key.
#[must_use]
pub fn inherited_variables(provider: Provider, base_url: Option<&str>) -> &'static [&'static str] {
    let host =
        base_url.and_then(|url| reqwest::Url::parse(url.trim()).ok()).and_then(|url| url.host_str().map(str::to_owned));
    match (provider, host.as_deref()) {
        (_, Some("api.deepseek.com")) => &["DEEPSEEK_API_KEY"],
        (Provider::Anthropic, _) => &["ANTHROPIC_API_KEY"],
        (Provider::OpenAi, None) => &["OPENAI_API_KEY", "DEEPSEEK_API_KEY"],
        (Provider::OpenAi, Some("api.openai.com")) => &["OPENAI_API_KEY"],
        (Provider::OpenAi, Some(_)) => &[],
    }
}

/// Finds the key: the one that was set, else the one in the file that was named, else one that other
/// tools of this provider use. Empty means unset.
///
/// # Errors
/// [`ModelError::Invalid`]: the file cannot be read, or what was found is no key.
pub fn find_key(
    provider: Provider,
    base_url: Option<&str>,
    setting: Option<&str>,
    file: Option<&Path>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<(ApiKey, KeyOrigin)>, ModelError> {
    if let Some(text) = setting.filter(|text| !text.trim().is_empty()) {
        return Ok(Some((ApiKey::new(text)?, KeyOrigin::Setting)));
    }
    if let Some(path) = file {
        let unreadable = |why: &dyn std::fmt::Display| {
            ModelError::Invalid(format!(
                "cannot read the API key file {}: {why}; check its path and mode",
                path.display()
            ))
        };
        let mut text = String::new();
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        file.take(MAX_KEY_FILE + 1).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
        if text.len() as u64 > MAX_KEY_FILE {
            return Err(unreadable(&"it is far longer than a key"));
        }
        return Ok(Some((ApiKey::new(&text)?, KeyOrigin::File(path.to_owned()))));
    }
    for name in inherited_variables(provider, base_url) {
        if let Some(text) = variable(name).filter(|text| !text.trim().is_empty()) {
            return Ok(Some((ApiKey::new(&text)?, KeyOrigin::Variable(name))));
        }
    }
    Ok(None)
}

/// The longest file of certificates that is read; a system's whole store is smaller.
const MAX_CERTIFICATES: u64 = 4 << 20;

/// Reads the certificates that a person named, in PEM.
pub(super) fn read_certificates(path: &Path) -> Result<Vec<u8>, ModelError> {
    let unreadable = |why: &dyn std::fmt::Display| {
        ModelError::Invalid(format!("cannot read the certificates in {} (ca_file): {why}", path.display()))
    };
    let mut pem = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    file.take(MAX_CERTIFICATES + 1).read_to_end(&mut pem).map_err(|error| unreadable(&error))?;
    if pem.len() as u64 > MAX_CERTIFICATES {
        return Err(unreadable(&"it is far longer than a list of certificates"));
    }
    Ok(pem)
}

/// Cleans a server's words of the key and of anything that looks like one.
pub(super) fn redact(text: &str, key: Option<&ApiKey>) -> String {
    let text = match key {
        Some(key) => text.replace(key.expose(), "[key]"),
        None => text.to_owned(),
    };
    let is_key_character =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '*' | '.');
    let mut clean = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(start) = rest.find("sk-") {
        let length = rest[start..].find(|character| !is_key_character(character)).unwrap_or(rest.len() - start);
        clean.push_str(&rest[..start]);
        // Shorter ones are words such as "sk-1" in a test's text, not keys.
        clean.push_str(if length >= 8 { "[key]" } else { &rest[start..start + length] });
        rest = &rest[start + length..];
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(setting: Option<&str>, file: Option<&Path>, variables: &[(&str, &str)]) -> Option<(String, KeyOrigin)> {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let found = find_key(Provider::OpenAi, None, setting, file, variable).unwrap_or_else(|error| panic!("{error}"));
        found.map(|(key, origin)| (key.expose().to_owned(), origin))
    }

    #[test]
    fn a_key_that_was_set_goes_before_file_and_inheritance() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, "from-file\n").unwrap();
        let variables = [("DEEPSEEK_API_KEY", "deep"), ("OPENAI_API_KEY", ""), ("ANTHROPIC_API_KEY", "other")];
        assert_eq!(found(Some("set"), Some(&file), &variables), Some(("set".into(), KeyOrigin::Setting)));
        assert_eq!(
            found(Some(" "), Some(&file), &variables),
            Some(("from-file".into(), KeyOrigin::File(file.clone())))
        );
        assert_eq!(found(None, None, &variables), Some(("deep".into(), KeyOrigin::Variable("DEEPSEEK_API_KEY"))));
        assert_eq!(found(None, None, &[]), None);
        assert_eq!(KeyOrigin::Variable("DEEPSEEK_API_KEY").implied_base_url(), Some("https://api.deepseek.com"));
        assert_eq!(KeyOrigin::Variable("OPENAI_API_KEY").implied_base_url(), None);
    }

    #[test]
    fn an_inherited_key_is_not_for_another_vendor() {
        let deepseek = Some("https://api.deepseek.com/anthropic");
        for provider in [Provider::Anthropic, Provider::OpenAi] {
            assert_eq!(inherited_variables(provider, deepseek), ["DEEPSEEK_API_KEY"]);
            let elsewhere = inherited_variables(provider, Some("http://localhost:8080/v1"));
            assert!(!elsewhere.contains(&"DEEPSEEK_API_KEY") && !elsewhere.contains(&"OPENAI_API_KEY"));
        }
        assert_eq!(inherited_variables(Provider::OpenAi, Some("https://api.openai.com/v1")), ["OPENAI_API_KEY"]);
    }

    #[test]
    fn what_is_no_key_is_refused_without_repeating_it() {
        for bad in ["", "canary key", "canary\nkey", "“canary”", "sk-ant-oat01-canary"] {
            let error = ApiKey::new(bad).err().unwrap().to_string();
            assert!(!error.contains("canary") && error.contains("key"), "{error}");
        }
        let missing =
            find_key(Provider::Anthropic, None, None, Some(Path::new("/no/such/key")), |_| None).err().unwrap();
        assert!(missing.to_string().contains("/no/such/key"), "{missing}");
    }

    #[test]
    fn a_servers_words_are_cleaned() {
        let key = ApiKey::new("canary-123").unwrap_or_else(|error| panic!("{error}"));
        let text = "bad key canary-123, was sk-proj-abc***xyz: ask-me sk-1";
        assert_eq!(redact(text, Some(&key)), "bad key [key], was [key]: ask-me sk-1");
        assert_eq!(redact("nothing", None), "nothing");
    }
}
