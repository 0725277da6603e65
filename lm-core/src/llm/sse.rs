//! Server-sent events, from bytes in whatever pieces they come.
//!
//! Follows <https://html.spec.whatwg.org/multipage/server-sent-events.html> as far as model servers
//! use it, and is lenient where they break: bytes that are no UTF-8 are replaced rather than stalling
//! the stream, and an event that the end of the stream leaves without its blank line still counts.

/// The largest event kept, in bytes; far above any real one.
const MAX_EVENT: usize = 16 << 20;

/// One event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ServerSentEvent {
    /// Its type; empty if none was given.
    pub(super) name: String,
    /// Its lines of data.
    pub(super) data: String,
}

/// Collects bytes into events.
#[derive(Debug, Default)]
pub(super) struct EventParser {
    line: Vec<u8>,
    current: ServerSentEvent,
    has_data: bool,
    after_carriage_return: bool,
    started: bool,
}

/// An event grew past any sense.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

impl EventParser {
    /// Takes more bytes and appends the events they complete.
    pub(super) fn feed(&mut self, bytes: &[u8], events: &mut Vec<ServerSentEvent>) -> Result<(), TooLarge> {
        for &byte in bytes {
            let follows_carriage_return = std::mem::take(&mut self.after_carriage_return);
            match byte {
                b'\n' if follows_carriage_return => {}
                b'\n' | b'\r' => {
                    self.after_carriage_return = byte == b'\r';
                    self.end_line(events);
                }
                _ => self.line.push(byte),
            }
            if self.line.len() + self.current.data.len() > MAX_EVENT {
                return Err(TooLarge);
            }
        }
        Ok(())
    }

    /// The stream has ended.
    pub(super) fn finish(&mut self, events: &mut Vec<ServerSentEvent>) {
        if !self.line.is_empty() {
            self.end_line(events);
        }
        self.dispatch(events);
    }

    fn end_line(&mut self, events: &mut Vec<ServerSentEvent>) {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let line = if self.started { &*text } else { text.strip_prefix('\u{feff}').unwrap_or(&text) };
        self.started = true;
        if line.is_empty() {
            return self.dispatch(events);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.current.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.current.data.push('\n');
                }
                self.current.data.push_str(value);
            }
            // Comments, `id` and `retry` mean nothing for one answer.
            _ => {}
        }
    }

    fn dispatch(&mut self, events: &mut Vec<ServerSentEvent>) {
        let event = std::mem::take(&mut self.current);
        if std::mem::take(&mut self.has_data) {
            events.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let (mut parser, mut events) = (EventParser::default(), Vec::new());
        for piece in pieces {
            parser.feed(piece, &mut events).unwrap();
        }
        parser.finish(&mut events);
        events.into_iter().map(|event| (event.name, event.data)).collect()
    }

    #[test]
    fn reads_what_servers_send() {
        let text = "\u{feff}: keep-alive\r\n\r\nevent: a\r\ndata: {\"x\":1}\r\nid: 7\r\n\r\ndata:no space\ndata: second\n\n\
                    event: nothing\n\ndata: [DONE]";
        let expected = [("a", "{\"x\":1}"), ("", "no space\nsecond"), ("", "[DONE]")];
        assert_eq!(parse(&[text.as_bytes()]), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn bytes_that_are_no_utf8_do_not_stall_the_stream() {
        let events = parse(&[b"data: a\xff\n\ndata: b\n\n"]);
        assert_eq!(events.iter().map(|event| &*event.1).collect::<Vec<_>>(), ["a\u{fffd}", "b"]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let (mut parser, mut events) = (EventParser::default(), Vec::new());
        assert_eq!(parser.feed(&vec![b'x'; MAX_EVENT + 1], &mut events), Err(TooLarge));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            lines in prop::collection::vec("(data: ?|event: ?|: ?)[a-zé𝄞]{0,5}|", 0..20),
            ends in prop::collection::vec(prop::sample::select(vec!["\n", "\r\n", "\r"]), 20),
            cuts in prop::collection::vec(0usize..400, 0..20),
        ) {
            let bytes: Vec<u8> = lines.iter().zip(&ends).flat_map(|(line, end)| [line.as_bytes(), end.as_bytes()].concat()).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(parse(&pieces), parse(&[&bytes]));
        }
    }
}
