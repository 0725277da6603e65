//! One attempt to meet a daemon: connect, say hello, hear who it is.

use std::{io, time::Duration};

use lm_proto::{
    Build, DataDirectory, Endpoint,
    endpoint::Stream,
    handshake::{Hello, Intent, State, Welcome},
};
use tokio::time::{Instant, sleep, timeout_at};

use super::error::ConnectError;

/// A daemon that has not answered by then hangs: an idle one answers within a millisecond.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// The pause before a full queue, or a daemon that has just gone, is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// A connection that breaks in the middle of the handshake this often is as good as none.
const BROKEN_MAX: u32 = 3;

/// What came of an attempt.
#[derive(Debug)]
pub(super) enum Met {
    /// A daemon, ready for messages.
    Ready(Stream, Welcome),
    /// A daemon on its way out.
    Draining(Welcome),
    /// A daemon that speaks other protocols only.
    NoCommonProtocol(Welcome),
    /// Nobody.
    Nobody,
    /// Somebody who is not our daemon.
    Foreign,
}

/// Tries to meet the daemon of `data`.
///
/// # Errors
/// [`ConnectError::Hung`] if somebody is there and says nothing.
pub(super) async fn meet(
    data: &DataDirectory,
    intent: Intent,
    own: Build,
    deadline: Instant,
) -> Result<Met, ConnectError> {
    let limit = deadline.min(Instant::now() + HANDSHAKE_LIMIT);
    let mut broken = 0;
    loop {
        let attempt = async {
            let mut stream = Endpoint::of(data).connect().await.map_err(Trouble::Connecting)?;
            Hello::new(intent, own).write(&mut stream).await.map_err(Trouble::Shaking)?;
            let welcome = Welcome::read(&mut stream).await.map_err(Trouble::Shaking)?;
            Ok((stream, welcome))
        };
        let Ok(outcome) = timeout_at(limit, attempt).await else { return Err(super::hung(data)) };
        match outcome {
            Ok((stream, welcome)) => {
                return Ok(match welcome.state {
                    State::Ready => Met::Ready(stream, welcome),
                    State::Draining => Met::Draining(welcome),
                    State::NoCommonProtocol => Met::NoCommonProtocol(welcome),
                });
            }
            Err(Trouble::Connecting(error)) if is_busy(&error) => {}
            Err(Trouble::Connecting(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Met::Foreign);
            }
            Err(Trouble::Connecting(_)) => return Ok(Met::Nobody),
            Err(Trouble::Shaking(error)) if error.kind() == io::ErrorKind::InvalidData => return Ok(Met::Foreign),
            // It has ended between accepting and answering.
            Err(Trouble::Shaking(_)) => {
                broken += 1;
                if broken == BROKEN_MAX {
                    return Ok(Met::Nobody);
                }
            }
        }
        if Instant::now() + RETRY_PAUSE >= limit {
            return Err(super::hung(data));
        }
        sleep(RETRY_PAUSE).await;
    }
}

enum Trouble {
    Connecting(io::Error),
    Shaking(io::Error),
}

/// Whether a daemon is there and its queue of new connections is full.
fn is_busy(error: &io::Error) -> bool {
    // On Linux a full backlog; on Windows ERROR_PIPE_BUSY (231): no instance of the pipe is free.
    error.kind() == io::ErrorKind::WouldBlock || cfg!(windows) && error.raw_os_error() == Some(231)
}
