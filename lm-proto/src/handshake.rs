//! The first bytes on every connection, frozen for ever.
//!
//! A client sends [`Hello`], the daemon answers [`Welcome`]; only then do frames follow. Both are
//! little-endian, start with a magic and their own length, and are read by hand: a later version may
//! add bytes at the end (the length covers them, an older reader skips them) and may never change or
//! reuse what stands here. That is what lets any shim talk to any daemon well enough to agree, to
//! drain it, or to say which of the two is too old.
//!
//! ```text
//! Hello    0 magic "LMHELLO\0"   8 u16 length (36)   10 u16 oldest protocol   12 u16 newest protocol
//!         14 u16 intent         16 u64 version       24 u64 stamp             32 u32 pid
//! Welcome  0 magic "LMWELCM\0"   8 u16 length (36)   10 u16 protocol          12 u16 state
//!         14 u16 reserved (0)   16 u64 version       24 u64 stamp             32 u32 pid
//! ```

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::Build;

/// The message protocol this build speaks best.
pub const PROTOCOL_NEWEST: u16 = 1;
/// The oldest message protocol this build still speaks.
pub const PROTOCOL_OLDEST: u16 = 1;

/// Bytes of a [`Hello`] and of a [`Welcome`] as first defined.
pub const LENGTH: usize = 36;
/// A peer that announces a longer handshake than this is not ours.
const LENGTH_MAX: usize = 4096;

const HELLO_MAGIC: [u8; 8] = *b"LMHELLO\0";
const WELCOME_MAGIC: [u8; 8] = *b"LMWELCM\0";

/// What a client wants of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Intent {
    /// Exchange messages.
    Serve = 0,
    /// Ask the daemon to finish its work and leave; no message follows.
    Drain = 1,
    /// See whether it lives; no message follows and it does not count as a client.
    Probe = 2,
}

/// How the daemon receives a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum State {
    /// Messages may follow.
    Ready = 0,
    /// The daemon is leaving; connect again to its successor.
    Draining = 1,
    /// No message protocol is spoken by both.
    NoCommonProtocol = 2,
}

/// What a client says first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The oldest message protocol the client speaks.
    pub protocol_oldest: u16,
    /// The newest message protocol the client speaks.
    pub protocol_newest: u16,
    /// What the connection is for.
    pub intent: Intent,
    /// The build the client would start, which decides whether it may replace the daemon.
    pub build: Build,
    /// The client's process id, for people and logs only.
    pub pid: u32,
}

/// What the daemon answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The message protocol both will use; 0 if none is common.
    pub protocol: u16,
    /// Whether messages may follow.
    pub state: State,
    /// The daemon's build.
    pub build: Build,
    /// The daemon's process id, for people and logs only.
    pub pid: u32,
}

impl Hello {
    /// A hello of this build.
    #[must_use]
    pub fn new(intent: Intent, build: Build) -> Self {
        Self {
            protocol_oldest: PROTOCOL_OLDEST,
            protocol_newest: PROTOCOL_NEWEST,
            intent,
            build,
            pid: std::process::id(),
        }
    }

    /// The newest protocol that both this client and this build speak.
    #[must_use]
    pub fn common_protocol(&self) -> Option<u16> {
        let newest = self.protocol_newest.min(PROTOCOL_NEWEST);
        let oldest = self.protocol_oldest.max(PROTOCOL_OLDEST);
        (oldest <= newest).then_some(newest)
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LENGTH] {
        bytes(HELLO_MAGIC, [self.protocol_oldest, self.protocol_newest, self.intent as u16], self.build, self.pid)
    }

    /// Sends it.
    pub async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        stream.write_all(&self.to_bytes()).await?;
        stream.flush().await
    }

    /// Receives one. An unknown intent is an error: a daemon must not guess what it is asked.
    pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let fields = read_fields(stream, HELLO_MAGIC).await?;
        let intent = match fields.words[2] {
            0 => Intent::Serve,
            1 => Intent::Drain,
            2 => Intent::Probe,
            other => return Err(invalid(format!("unknown intent {other} in a handshake"))),
        };
        Ok(Self {
            protocol_oldest: fields.words[0],
            protocol_newest: fields.words[1],
            intent,
            build: fields.build,
            pid: fields.pid,
        })
    }
}

impl Welcome {
    /// The bytes on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LENGTH] {
        bytes(WELCOME_MAGIC, [self.protocol, self.state as u16, 0], self.build, self.pid)
    }

    /// Sends it.
    pub async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        stream.write_all(&self.to_bytes()).await?;
        stream.flush().await
    }

    /// Receives one.
    pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let fields = read_fields(stream, WELCOME_MAGIC).await?;
        let state = match fields.words[1] {
            0 => State::Ready,
            1 => State::Draining,
            2 => State::NoCommonProtocol,
            other => return Err(invalid(format!("unknown state {other} in a handshake"))),
        };
        Ok(Self { protocol: fields.words[0], state, build: fields.build, pid: fields.pid })
    }
}

fn bytes(magic: [u8; 8], words: [u16; 3], build: Build, pid: u32) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[0..8].copy_from_slice(&magic);
    bytes[8..10].copy_from_slice(&(LENGTH as u16).to_le_bytes());
    for (index, word) in words.into_iter().enumerate() {
        bytes[10 + 2 * index..12 + 2 * index].copy_from_slice(&word.to_le_bytes());
    }
    bytes[16..24].copy_from_slice(&build.version.to_le_bytes());
    bytes[24..32].copy_from_slice(&build.stamp.to_le_bytes());
    bytes[32..36].copy_from_slice(&pid.to_le_bytes());
    bytes
}

struct Fields {
    words: [u16; 3],
    build: Build,
    pid: u32,
}

async fn read_fields(stream: &mut (impl AsyncRead + Unpin), magic: [u8; 8]) -> io::Result<Fields> {
    let mut found = [0; 8];
    stream.read_exact(&mut found).await?;
    if found != magic {
        return Err(invalid("the peer does not speak this protocol".into()));
    }
    let length = usize::from(stream.read_u16_le().await?);
    if !(LENGTH..=LENGTH_MAX).contains(&length) {
        return Err(invalid(format!("a handshake of {length} bytes")));
    }
    let mut words = [0; 3];
    for word in &mut words {
        *word = stream.read_u16_le().await?;
    }
    let build = Build { version: stream.read_u64_le().await?, stamp: stream.read_u64_le().await? };
    let pid = stream.read_u32_le().await?;
    let mut added_later = vec![0; length - LENGTH];
    stream.read_exact(&mut added_later).await?;
    Ok(Fields { words, build, pid })
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILD: Build = Build { version: 0x0001_0002_0003, stamp: 0x6553_F100 };

    /// Golden bytes: if this test fails the handshake was changed, which is never allowed.
    #[test]
    fn the_bytes_are_frozen() {
        let hello =
            Hello { protocol_oldest: 1, protocol_newest: 7, intent: Intent::Drain, build: BUILD, pid: 0x0102_0304 };
        assert_eq!(
            hello.to_bytes(),
            *b"LMHELLO\0\x24\0\x01\0\x07\0\x01\0\x03\0\x02\0\x01\0\0\0\0\xF1\x53\x65\0\0\0\0\x04\x03\x02\x01"
        );
        let welcome = Welcome { protocol: 7, state: State::NoCommonProtocol, build: BUILD, pid: 0x0102_0304 };
        assert_eq!(
            welcome.to_bytes(),
            *b"LMWELCM\0\x24\0\x07\0\x02\0\0\0\x03\0\x02\0\x01\0\0\0\0\xF1\x53\x65\0\0\0\0\x04\x03\x02\x01"
        );
    }

    #[tokio::test]
    async fn a_longer_handshake_of_a_later_version_is_understood() {
        let hello = Hello { protocol_oldest: 1, protocol_newest: 9, intent: Intent::Serve, build: BUILD, pid: 5 };
        let mut later = hello.to_bytes().to_vec();
        later[8] += 3;
        later.extend_from_slice(b"new, then a frame");
        let mut wire = later.as_slice();
        assert_eq!(Hello::read(&mut wire).await.unwrap(), hello);
        assert_eq!(wire, b", then a frame");
    }

    #[tokio::test]
    async fn garbage_is_refused() {
        for garbage in [
            &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n      "[..],
            b"LMHELLO\0\x05\0",
            b"LMHELLO\0\xFF\xFF",
            b"",
            b"LMHEL",
        ] {
            assert!(Hello::read(&mut &garbage[..]).await.is_err(), "{garbage:?}");
        }
        let mut unknown_intent = Hello::new(Intent::Serve, BUILD).to_bytes();
        unknown_intent[14] = 99;
        assert!(Hello::read(&mut &unknown_intent[..]).await.is_err());
    }

    #[test]
    fn the_newest_common_protocol_is_chosen() {
        let hello = |oldest, newest| Hello {
            protocol_oldest: oldest,
            protocol_newest: newest,
            ..Hello::new(Intent::Serve, BUILD)
        };
        assert_eq!(hello(PROTOCOL_OLDEST, PROTOCOL_NEWEST + 5).common_protocol(), Some(PROTOCOL_NEWEST));
        assert_eq!(hello(PROTOCOL_NEWEST + 1, PROTOCOL_NEWEST + 5).common_protocol(), None);
        assert_eq!(hello(0, PROTOCOL_OLDEST - 1).common_protocol(), None);
    }
}
