//! The journal of one epoch: what it holds and how it is written and read. Pure.
//!
//! The header stands first, and twice, since everything after it rests on it; then one record for each
//! exchange, numbered from zero, so that missing ones are noticed.

use std::{borrow::Cow, io, path::Path, sync::Arc};

use serde::{Deserialize, Serialize};

use super::record::{self, Piece};
use crate::{
    files::path_to_bytes,
    memory::log::{Epoch, Exchange, Opening},
};

/// The version of the format.
const VERSION: u32 = 1;
/// How often the header is written.
const HEADERS: usize = 2;

/// What an epoch is held with, as the caller knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochHeader<'a> {
    /// Which epoch.
    pub epoch: Epoch,
    /// Names its conversation in requests.
    pub name: &'a str,
    /// The system text.
    pub system: &'a str,
    /// Tells the model and its key from others; opaque here.
    pub model: &'a str,
}

/// An epoch as it was kept.
#[derive(Clone, PartialEq, Debug)]
pub struct KeptEpoch {
    /// Which epoch.
    pub epoch: Epoch,
    /// Names its conversation in requests.
    pub name: Arc<str>,
    /// The system text.
    pub system: Arc<str>,
    /// Tells the model and its key from others; opaque here.
    pub model: Arc<str>,
    /// What it knew from the start.
    pub opening: Opening,
    /// What was committed, oldest first, with what it carried over from the epoch before.
    pub exchanges: Vec<Exchange>,
    /// How many exchanges were damaged and are missing. Where it is not zero, these exchanges are not
    /// the bytes that were sent, and the conversation has to go on in a new epoch.
    pub lost: u64,
}

/// Whose memory a file holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    /// The root as text, without loss.
    pub(super) root: String,
    /// The digest of the root.
    pub(super) key: String,
}

impl Identity {
    pub(super) fn new(root: &Path, key: &str) -> Self {
        Self { root: root_text(root), key: key.to_owned() }
    }
}

/// A path as text of its own: what is not UTF-8, and the percent sign, are written as `%e9`.
fn root_text(root: &Path) -> String {
    let mut text = String::new();
    for chunk in path_to_bytes(root).utf8_chunks() {
        text.push_str(&chunk.valid().replace('%', "%25"));
        text.extend(chunk.invalid().iter().map(|byte| format!("%{byte:02x}")));
    }
    text
}

#[derive(Serialize, Deserialize)]
struct Header<'a> {
    version: u32,
    root: Cow<'a, str>,
    key: Cow<'a, str>,
    epoch: Epoch,
    name: Cow<'a, str>,
    system: Cow<'a, str>,
    model: Cow<'a, str>,
    lost: u64,
    /// How many exchanges were written together with the header.
    carried: u64,
    opening: Cow<'a, Opening>,
}

/// A record as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Header(Header<'static>),
    Exchange(u64, Exchange),
}

/// The same as it is written.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum RecordToWrite<'a> {
    Header(&'a Header<'a>),
    Exchange(u64, &'a Exchange),
}

/// How the text of a header begins.
const HEADER_START: &[u8] = br#"{"header":"#;

/// What every version of a header has.
#[derive(Deserialize)]
struct AnyHeader {
    header: AnyVersion,
}

#[derive(Deserialize)]
struct AnyVersion {
    version: u64,
}

/// Appends an exchange's record to `bytes`.
pub(super) fn push(bytes: &mut Vec<u8>, number: u64, exchange: &Exchange) -> io::Result<()> {
    record::push(bytes, &RecordToWrite::Exchange(number, exchange))
}

/// A whole journal.
pub(super) fn encode<'a>(
    identity: &Identity,
    header: &EpochHeader<'_>,
    opening: &Opening,
    exchanges: impl ExactSizeIterator<Item = &'a Exchange>,
    lost: u64,
) -> io::Result<Vec<u8>> {
    let header = Header {
        version: VERSION,
        root: identity.root.as_str().into(),
        key: identity.key.as_str().into(),
        epoch: header.epoch,
        name: header.name.into(),
        system: header.system.into(),
        model: header.model.into(),
        lost,
        carried: exchanges.len() as u64,
        opening: Cow::Borrowed(opening),
    };
    let mut bytes = Vec::new();
    record::push(&mut bytes, &RecordToWrite::Header(&header))?;
    for _ in 1..HEADERS {
        bytes.extend_from_within(..bytes.len());
    }
    for (number, exchange) in (0..).zip(exchanges) {
        push(&mut bytes, number, exchange)?;
    }
    Ok(bytes)
}

/// What a file holds.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) kept: KeptEpoch,
    /// Where the next record goes.
    pub(super) length: u64,
    /// Whether the line before that place is ended.
    pub(super) is_ended: bool,
    /// Whether it lacks exchanges that were to be written with the header, and has none that came later:
    /// so a power failure leaves it when the epoch was begun and not acknowledged.
    pub(super) is_unfinished: bool,
    pub(super) flaw: Option<Flaw>,
}

/// What is wrong with a file some of which can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    /// Its last record was not written to the end.
    Torn,
    /// Something in it is not as it was written.
    Damaged,
}

/// Reads a journal.
///
/// # Errors
/// Why nothing of it can be used, as the end of a sentence that begins with its name.
pub(super) fn decode(bytes: &[u8], identity: &Identity, epoch: Epoch) -> Result<Found, String> {
    if bytes.is_empty() {
        return Err("is empty".to_owned());
    }
    let mut read = Read::default();
    let mut header = None;
    for piece in record::pieces(bytes) {
        let (text, is_ended) = match piece {
            Piece::Damage { is_torn } => {
                read.damage(is_torn);
                continue;
            }
            Piece::Record { text, is_ended } => (text, is_ended),
        };
        read.length = text.end + usize::from(is_ended);
        read.is_ended = is_ended;
        let text = &bytes[text];
        if header.is_some() && text.starts_with(HEADER_START) {
            read.header();
            continue;
        }
        match serde_json::from_slice(text) {
            Ok(Record::Header(found)) => {
                if let Some(reason) = foreign(&found, identity, epoch) {
                    return Err(reason);
                }
                read.header();
                header = Some(found);
            }
            Ok(Record::Exchange(number, exchange)) => read.take(number, exchange),
            Err(_) => match serde_json::from_slice::<AnyHeader>(text) {
                Ok(AnyHeader { header }) if header.version != u64::from(VERSION) => {
                    return Err(other_version(header.version, VERSION));
                }
                _ => read.damage(false),
            },
        }
    }
    let header = header.ok_or("has no beginning that can be read")?;
    Ok(read.end(header))
}

/// Why a file of another version is not used.
pub(super) fn other_version(found: u64, known: u32) -> String {
    format!("is of version {found}, and this daemon reads version {known}")
}

/// Why a header is not the one that is looked for.
fn foreign(header: &Header<'_>, identity: &Identity, epoch: Epoch) -> Option<String> {
    if header.version != VERSION {
        Some(other_version(header.version.into(), VERSION))
    } else if header.root != identity.root || header.key != identity.key {
        Some("belongs to another workspace".to_owned())
    } else if header.epoch != epoch {
        Some(format!("holds epoch {}, which its name does not say", header.epoch.0))
    } else {
        None
    }
}

/// What was read so far.
#[derive(Default)]
struct Read {
    headers: usize,
    exchanges: Vec<Exchange>,
    expected: u64,
    missing: u64,
    length: usize,
    is_ended: bool,
    is_damaged: bool,
    /// Damage since the last record.
    trailing: Option<Flaw>,
}

impl Read {
    fn damage(&mut self, is_torn: bool) {
        if is_torn {
            self.trailing.get_or_insert(Flaw::Torn);
        } else {
            self.is_damaged = true;
            self.trailing = Some(Flaw::Damaged);
        }
    }

    fn header(&mut self) {
        self.headers += 1;
        self.trailing = None;
    }

    fn take(&mut self, number: u64, exchange: Exchange) {
        let Some(skipped) = number.checked_sub(self.expected) else { return self.damage(false) };
        self.missing += skipped;
        self.is_damaged |= skipped > 0;
        self.expected = number.saturating_add(1);
        self.exchanges.push(exchange);
        self.trailing = None;
    }

    fn end(self, header: Header<'static>) -> Found {
        // What is damaged at the end was one exchange at least, unless the second header is meant.
        let is_one_more =
            self.trailing == Some(Flaw::Damaged) && (self.headers == HEADERS || !self.exchanges.is_empty());
        let flaw = if self.is_damaged { Some(Flaw::Damaged) } else { self.trailing };
        let is_unfinished = self.expected <= header.carried && (self.exchanges.len() as u64) < header.carried;
        let kept = KeptEpoch {
            epoch: header.epoch,
            name: header.name.into(),
            system: header.system.into(),
            model: header.model.into(),
            opening: header.opening.into_owned(),
            exchanges: self.exchanges,
            lost: header.lost.saturating_add(self.missing).saturating_add(u64::from(is_one_more)),
        };
        Found { kept, length: self.length as u64, is_ended: self.is_ended, is_unfinished, flaw }
    }
}
