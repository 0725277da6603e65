//! Frames: a big-endian `u32` length, then one message in postcard.

use std::{io, marker::PhantomData};

use serde::{Serialize, de::DeserializeOwned};
use tokio_util::{
    bytes::{Bytes, BytesMut},
    codec::{Decoder, Encoder, Framed, LengthDelimitedCodec},
};

use crate::message::{ClientMessage, DaemonMessage};

/// The longest frame in bytes; a longer one is refused before memory is taken for it.
pub const FRAME_MAX: usize = 8 << 20;

/// Reads messages `In` and writes messages `Out`.
#[derive(Debug)]
pub struct Codec<In, Out> {
    frames: LengthDelimitedCodec,
    messages: PhantomData<fn(Out) -> In>,
}

/// A connection as the client sees it.
pub type ClientFramed<S> = Framed<S, Codec<DaemonMessage, ClientMessage>>;
/// A connection as the daemon sees it.
pub type DaemonFramed<S> = Framed<S, Codec<ClientMessage, DaemonMessage>>;

impl<In, Out> Default for Codec<In, Out> {
    fn default() -> Self {
        Self { frames: LengthDelimitedCodec::builder().max_frame_length(FRAME_MAX).new_codec(), messages: PhantomData }
    }
}

impl<In: DeserializeOwned, Out> Decoder for Codec<In, Out> {
    type Item = In;
    type Error = io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<In>> {
        let Some(frame) = self.frames.decode(bytes)? else { return Ok(None) };
        postcard::from_bytes(&frame)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("cannot read a message: {error}")))
    }
}

/// One message as the bytes of a frame, for a program without a runtime.
///
/// # Errors
/// `InvalidInput` for a message that is longer than [`FRAME_MAX`].
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = postcard::to_extend(message, vec![0; HEAD]).map_err(|error| cannot_write(&error))?;
    framed(bytes)
}

/// Bytes of a frame's length.
const HEAD: usize = size_of::<u32>();

/// Puts the length where room was left for it.
fn framed(mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let length = bytes.len() - HEAD;
    match u32::try_from(length) {
        Ok(short) if length <= FRAME_MAX => bytes[..HEAD].copy_from_slice(&short.to_be_bytes()),
        _ => return Err(cannot_write(&format_args!("it has {length} bytes, more than {FRAME_MAX}"))),
    }
    Ok(bytes)
}

fn cannot_write(reason: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("cannot write a message: {reason}"))
}

impl<In, Out: Serialize> Encoder<Out> for Codec<In, Out> {
    type Error = io::Error;

    fn encode(&mut self, message: Out, bytes: &mut BytesMut) -> io::Result<()> {
        let frame = postcard::to_stdvec(&message).map_err(|error| cannot_write(&error))?;
        self.frames.encode(Bytes::from(frame), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::*;
    use proptest::prelude::*;

    fn encoded<M: Serialize>(message: M) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        Codec::<(), M>::default().encode(message, &mut bytes).unwrap();
        bytes.to_vec()
    }

    fn round_trip<M: Serialize + DeserializeOwned + Clone + PartialEq + std::fmt::Debug>(message: &M) {
        let mut bytes = BytesMut::from(encoded(message.clone()).as_slice());
        let read = Codec::<M, ()>::default().decode(&mut bytes).unwrap();
        assert_eq!(read.as_ref(), Some(message));
        assert!(bytes.is_empty());
    }

    fn every_client_message() -> Vec<ClientMessage> {
        let environment = vec![("LIVE_MEMORY_MODEL".to_owned(), "m".to_owned())];
        let requests = [
            Request::Ask(Ask {
                question: "q".into(),
                cwd: "/w".into(),
                max_answer_tokens: None,
                timeout_s: None,
                environment: vec![],
            }),
            Request::Stats { cwd: String::new(), environment: environment.clone() },
            Request::ConfigShow { environment: vec![] },
            Request::ConfigSet { changes: vec![("a".into(), "b".into())], environment: vec![] },
            Request::ConfigUnset { names: vec!["a".into()], environment: vec![] },
            Request::Doctor { cwd: "/w".into(), environment },
            Request::TryProvider {
                changes: vec![("a".into(), "b".into())],
                environment: vec![("K".into(), "v".into())],
            },
        ];
        let observed = [ObservationKind::Read, ObservationKind::Edited, ObservationKind::Removed].map(|kind| {
            Request::Observe(Observation {
                path: "/w/f".into(),
                kind,
                cwd: "/w".into(),
                environment: vec![],
                origin: "{}".into(),
            })
        });
        let memory = [
            Request::Empty { cwd: "/w".into(), everywhere: true, environment: vec![] },
            Request::Reset { cwd: "/w".into(), environment: vec![] },
            Request::Pause { cwd: "/w".into(), paused: true, environment: vec![] },
            Request::Remember { cwd: "/w".into(), text: "t".into(), environment: vec![] },
            Request::Forget { cwd: "/w".into(), pattern: "p".into(), confirmed: true, environment: vec![] },
            Request::Pin { cwd: "/w".into(), pattern: "p".into(), pinned: true, environment: vec![] },
            Request::Ledger { cwd: "/w".into(), environment: vec![] },
            Request::History { cwd: "/w".into(), limit: 300, environment: vec![] },
            Request::Export { cwd: "/w".into(), environment: vec![] },
            Request::Import { cwd: "/w".into(), lines: "l".into(), environment: vec![] },
        ];
        let requests = requests.into_iter().chain(observed).chain(memory);
        let mut messages: Vec<_> = requests.map(|request| ClientMessage::Request { id: 1, request }).collect();
        messages.push(ClientMessage::Cancel { id: 300 });
        messages
    }

    fn every_daemon_message() -> Vec<DaemonMessage> {
        let kinds = [FailureKind::InvalidRequest, FailureKind::Busy, FailureKind::Draining, FailureKind::Internal];
        let mut outcomes: Vec<_> = kinds.into_iter().map(|kind| Err(Failure::new(kind, "m"))).collect();
        outcomes.push(Ok(Reply::Answer(Answer { text: "t".into(), trailer: String::new(), json: "{}".into() })));
        outcomes.push(Ok(Reply::Report(Report { text: "t".into(), json: "{}".into(), healthy: true })));
        outcomes.push(Ok(Reply::Noted));
        let mut messages: Vec<_> =
            outcomes.into_iter().map(|outcome| DaemonMessage::Reply { id: 1, outcome }).collect();
        messages.push(DaemonMessage::Progress { id: 1, message: "p".into() });
        messages
    }

    #[test]
    fn every_message_survives_the_wire() {
        every_client_message().iter().for_each(round_trip);
        every_daemon_message().iter().for_each(round_trip);
    }

    /// Golden bytes of protocol 1: a change here needs a new protocol number, not a new expectation.
    #[test]
    fn the_bytes_of_protocol_1_are_kept() {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let client: Vec<_> = every_client_message().into_iter().map(|message| hex(encoded(message))).collect();
        assert_eq!(
            client,
            [
                "0000000b0001000171022f77000000",
                "000000190001010001114c4956455f4d454d4f52595f4d4f44454c016d",
                "0000000400010200",
                "00000009000103010161016200",
                "0000000700010401016100",
                "0000001b000105022f7701114c4956455f4d454d4f52595f4d4f44454c016d",
                "0000000d000106010161016201014b0176",
                "00000010000107042f772f6600022f7700027b7d",
                "00000010000107042f772f6601022f7700027b7d",
                "00000010000107042f772f6602022f7700027b7d",
                "00000008000108022f770100",
                "00000007000109022f7700",
                "0000000800010a022f770100",
                "0000000900010b022f77017400",
                "0000000a00010c022f7701700100",
                "0000000a00010d022f7701700100",
                "0000000700010e022f7700",
                "0000000900010f022f77ac0200",
                "00000007000110022f7700",
                "00000009000111022f77016c00",
                "0000000301ac02",
            ]
        );
        let daemon: Vec<_> = every_daemon_message().into_iter().map(|message| hex(encoded(message))).collect();
        assert_eq!(
            daemon,
            [
                "0000000600010100016d",
                "0000000600010101016d",
                "0000000600010102016d",
                "0000000600010103016d",
                "0000000a00010000017400027b7d",
                "0000000a000100010174027b7d01",
                "0000000400010002",
                "0000000401010170",
            ]
        );
    }

    #[test]
    fn a_frame_made_by_itself_is_the_same() {
        for message in every_client_message() {
            assert_eq!(frame(&message).unwrap(), encoded(message));
        }
        let long = ClientMessage::Request {
            id: 1,
            request: Request::ConfigUnset { names: vec!["n".repeat(FRAME_MAX)], environment: vec![] },
        };
        assert_eq!(frame(&long).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_giant_frame_is_refused_before_it_is_read() {
        let mut bytes = BytesMut::from(&(u32::MAX).to_be_bytes()[..]);
        assert!(Codec::<ClientMessage, ()>::default().decode(&mut bytes).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error_and_never_a_panic(bytes: Vec<u8>) {
            let mut frame = BytesMut::from(&(bytes.len() as u32).to_be_bytes()[..]);
            frame.extend_from_slice(&bytes);
            let _ = Codec::<ClientMessage, ()>::default().decode(&mut frame);
            let mut frame = BytesMut::from(bytes.as_slice());
            let _ = Codec::<DaemonMessage, ()>::default().decode(&mut frame);
        }
    }
}
