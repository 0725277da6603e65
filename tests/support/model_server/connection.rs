//! HTTP/1.1 by hand: tests need to reset, stall and cut a connection at exact places.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    answers::{End, Reply},
    script::Gate,
    server::Shared,
};

/// The longest request taken, in bytes.
const MAX_REQUEST: usize = 64 << 20;

/// A request before it means anything.
#[derive(Debug)]
pub(super) struct RawRequest {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

/// How to answer it.
pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) gate: Option<Gate>,
    /// Called when the answer begins, which is when a cache entry can be read.
    pub(super) begins: Box<dyn FnOnce() + Send>,
}

/// Serves one connection to its end.
pub(super) async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut buffer = Vec::new();
    while let Ok(Some(request)) = read(&mut stream, &mut buffer).await {
        let answer = shared.answer(&request);
        if matches!(answer.reply, Reply::Reset) {
            // Closing with nothing to linger for makes the system send a reset.
            let _ = stream.set_zero_linger();
            return;
        }
        // While it is answered, the client has nothing to say: what can be read is that it left.
        let (mut reading, mut writing) = stream.split();
        let mut probe = [0u8; 1];
        let left = tokio::select! {
            biased;
            written = write(&mut writing, answer) => match written {
                Ok(true) => continue,
                Ok(false) => false,
                Err(_) => true,
            },
            _ = reading.read(&mut probe) => true,
        };
        if left {
            shared.client_left();
        }
        return;
    }
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<RawRequest>> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if buffer.len() > MAX_REQUEST || stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0);
    if length > MAX_REQUEST {
        return Ok(None);
    }
    while buffer.len() < end + length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = String::from_utf8_lossy(&buffer[end..end + length]).into_owned();
    buffer.drain(..end + length);
    Ok(Some(RawRequest { method, path, headers, body }))
}

/// Writes an answer; false if the connection ends with it.
async fn write(stream: &mut (impl AsyncWriteExt + Unpin), answer: Answer) -> io::Result<bool> {
    let pass = async || {
        if let Some(gate) = &answer.gate {
            gate.pass().await;
        }
    };
    match answer.reply {
        Reply::Reset | Reply::Hang => std::future::pending().await,
        Reply::Document { status, headers, kind, body } => {
            pass().await;
            let mut head =
                format!("HTTP/1.1 {status} Answer\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n", body.len());
            for (name, value) in &headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            (answer.begins)();
            stream.write_all(format!("{head}request-id: req_fake\r\n\r\n{body}").as_bytes()).await?;
            Ok(true)
        }
        Reply::Stream { events, end } => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\
                        request-id: req_fake\r\n\r\n";
            stream.write_all(head.as_bytes()).await?;
            let mut begins = Some(answer.begins);
            for event in events {
                pass().await;
                if let Some(begins) = begins.take() {
                    begins();
                }
                stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await?;
                stream.flush().await?;
            }
            match end {
                End::Proper => stream.write_all(b"0\r\n\r\n").await?,
                // Lets what was written arrive before the end does.
                End::BrokenOff => tokio::time::sleep(Duration::from_millis(20)).await,
                End::Silence => std::future::pending().await,
            }
            Ok(end == End::Proper)
        }
    }
}
