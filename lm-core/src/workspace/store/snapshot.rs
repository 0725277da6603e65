//! The snapshot's envelope: version, owner, time and a checksum around a content that is not looked at.
//! Pure.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{error::Category, value::RawValue};

use super::journal::{Identity, other_version};

/// The version of the format.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    version: u32,
    root: String,
    key: String,
    /// In seconds since 1970.
    written_at: u64,
    /// Of the content's text.
    checksum: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct AnyVersion {
    version: u64,
}

/// The text of a snapshot.
pub(super) fn encode(identity: &Identity, content: &impl Serialize, written_at: u64) -> serde_json::Result<Vec<u8>> {
    let content = serde_json::value::to_raw_value(content)?;
    let envelope = Envelope {
        version: VERSION,
        root: identity.root.clone(),
        key: identity.key.clone(),
        written_at,
        checksum: checksum(&content),
        content: &content,
    };
    serde_json::to_vec(&envelope)
}

/// The content of a snapshot.
///
/// # Errors
/// Why it cannot be used, as the end of a sentence that begins with its name. Nothing of what it holds
/// is repeated there.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8], identity: &Identity) -> Result<T, String> {
    let text = match std::str::from_utf8(bytes) {
        Ok("") => return Err("is empty".to_owned()),
        Ok(text) => text,
        Err(_) => return Err("is not UTF-8".to_owned()),
    };
    let envelope: Envelope<'_> = match serde_json::from_str(text) {
        Ok(envelope) => envelope,
        Err(error) => match serde_json::from_str(text) {
            Ok(AnyVersion { version }) if version != u64::from(VERSION) => return Err(other_version(version, VERSION)),
            _ => return Err(flaw(&error)),
        },
    };
    if envelope.version != VERSION {
        return Err(other_version(envelope.version.into(), VERSION));
    }
    if (&envelope.root, &envelope.key) != (&identity.root, &identity.key) {
        return Err("belongs to another workspace".to_owned());
    }
    if envelope.checksum != checksum(envelope.content) {
        return Err("does not match its checksum".to_owned());
    }
    serde_json::from_str(envelope.content.get()).map_err(|error| format!("holds something that {}", flaw(&error)))
}

fn checksum(content: &RawValue) -> String {
    format!("{:08x}", crc32fast::hash(content.get().as_bytes()))
}

/// The parser's own message would repeat what it read.
fn flaw(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Eof => "is cut off",
        Category::Data => "does not have the form of a memory",
        Category::Syntax | Category::Io => "is not valid JSON",
    };
    format!("{what} (line {}, column {})", error.line(), error.column())
}
