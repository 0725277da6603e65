//! What leaves a prompt, as text to be summarised: word for word what stood there, in pieces that fit.
//!
//! Each piece knows which files were shown in it and what they held then, so that nothing can be noted of
//! anything else. Bytes that were never in a prompt do not get here.

use std::{fmt::Write as _, sync::Arc};

use super::{
    ledger::{Origin, notes::Shown},
    log::{Exchange, Log, Opening},
    told::Standing,
};
use crate::conversation::{Block, Message, Role};

/// A part of a conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// What was said.
    pub text: String,
    /// The files that were shown.
    pub shown: Shown,
}

impl Piece {
    /// Two pieces that are half as long, cut between lines where there are any; none where it is too short.
    #[must_use]
    pub fn halves(&self, bytes_min: usize) -> Option<[Self; 2]> {
        if self.text.len() < bytes_min * 2 {
            return None;
        }
        let at = cut(&self.text, self.text.len() / 2);
        let (first, second) = self.text.split_at(at);
        let half = |text: &str| Self { text: text.to_owned(), shown: self.shown.clone() };
        (!first.is_empty() && !second.is_empty()).then(|| [half(first), half(second)])
    }
}

/// Where to cut a text so that the first part has at most `bytes`: behind a line, else between characters.
fn cut(text: &str, bytes: usize) -> usize {
    let most = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    match text[..most].rfind('\n') {
        Some(line_end) if line_end >= most / 2 => line_end + 1,
        _ => most,
    }
}

/// Exchanges as pieces of at most `bytes_max` bytes, which is at least 1.
#[must_use]
pub fn pieces(exchanges: &[Arc<Exchange>], bytes_max: usize) -> Vec<Piece> {
    let bytes_max = bytes_max.max(8);
    let mut pieces: Vec<Piece> = Vec::new();
    for exchange in exchanges {
        let text = text(&exchange.messages);
        let mut shown = Shown::default();
        show(&mut shown, exchange);
        if let Some(last) = pieces.last_mut().filter(|last| last.text.len() + text.len() <= bytes_max) {
            last.text.push_str(&text);
            show(&mut last.shown, exchange);
            continue;
        }
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let at = if rest.len() <= bytes_max { rest.len() } else { cut(rest, bytes_max).max(1) };
            let at = (at..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
            pieces.push(Piece { text: rest[..at].to_owned(), shown: shown.clone() });
            rest = &rest[at..];
        }
    }
    pieces
}

/// The files that a whole conversation showed, its documents included.
#[must_use]
pub fn shown(log: &Log) -> Shown {
    let mut shown = Shown::default();
    documents(&mut shown, log.opening());
    log.exchanges().iter().for_each(|exchange| show(&mut shown, exchange));
    shown
}

fn documents(shown: &mut Shown, opening: &Opening) {
    for said in &opening.said {
        if let Standing::Text(sha256) = &said.standing {
            shown.add(Arc::clone(&said.path), Arc::clone(sha256), Origin::Preload);
        }
    }
}

fn show(shown: &mut Shown, exchange: &Exchange) {
    for said in &exchange.said {
        match &said.standing {
            Standing::Text(sha256) => shown.add(Arc::clone(&said.path), Arc::clone(sha256), Origin::Observed),
            // Nothing can be said of it any more.
            Standing::Gone | Standing::Unreadable => shown.remove(&said.path),
        }
    }
    for source in &exchange.sources {
        if !shown.is(source) {
            shown.add(Arc::clone(&source.path), Arc::clone(&source.sha256), Origin::Answered);
        }
    }
}

/// Turns as text. What a model thought is its own, and opaque.
fn text(messages: &[Message]) -> String {
    let mut text = String::new();
    for message in messages {
        for block in &message.blocks {
            // Writing to a string cannot fail.
            let _ = match block {
                Block::Text { text: said } => {
                    let who = if message.role == Role::User { "asked" } else { "answered" };
                    writeln!(text, "[{who}]\n{said}")
                }
                Block::ToolUse { name, input, .. } => writeln!(text, "[looked with {name}] {input}"),
                Block::ToolResult { text: found, .. } => writeln!(text, "[found]\n{found}"),
                Block::Reasoning { .. } => Ok(()),
            };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::{
        log::{Epoch, Form, Source},
        told::Said,
    };

    fn exchange(question: &str, found: &str, said: Vec<Said>, sources: Vec<Source>) -> Arc<Exchange> {
        let call = Block::ToolUse { id: "1".into(), name: "Read".into(), input: r#"{"file_path":"a"}"#.into() };
        let result = Block::ToolResult { id: "1".into(), text: found.into(), is_error: false };
        let thought = Block::Reasoning { model: "m".into(), raw: "{\"secret\":1}".into() };
        Arc::new(Exchange {
            messages: vec![
                Message::user(question),
                Message { role: Role::Assistant, blocks: vec![thought, call] },
                Message { role: Role::User, blocks: vec![result] },
                Message::assistant("the answer"),
            ],
            form: Form::Whole,
            dropped_blocks: 0,
            sources,
            said,
            question: question.into(),
            observations: 0,
            notes: 0,
            at: 0,
        })
    }

    fn source(path: &str, sha256: &str) -> Source {
        Source { path: path.into(), sha256: sha256.into() }
    }

    #[test]
    fn what_was_said_is_told_in_order_and_with_what_was_shown() {
        let exchanges = [
            exchange("q1", "line\n", vec![Said::shown("a", "1"), Said::shown("b", "1")], vec![source("a", "1")]),
            exchange("q2", "x", vec![Said::shown("a", "2"), Said::notice("b", Standing::Gone)], vec![source("c", "9")]),
        ];
        let [piece] = pieces(&exchanges[..1], 1_000).try_into().unwrap();
        assert_eq!(
            piece.text,
            "[asked]\nq1\n[looked with Read] {\"file_path\":\"a\"}\n[found]\nline\n\n[answered]\nthe answer\n"
        );
        let mut expected = Shown::default();
        expected.add("a".into(), "1".into(), Origin::Observed);
        expected.add("b".into(), "1".into(), Origin::Observed);
        assert_eq!(piece.shown, expected);
        let together = &pieces(&exchanges, 1_000)[0].shown;
        let mut expected = Shown::default();
        expected.add("a".into(), "2".into(), Origin::Observed);
        expected.add("c".into(), "9".into(), Origin::Answered);
        assert_eq!(*together, expected, "the newest text counts, and what is gone does not");
        let opening = Opening { said: vec![Said::shown("README.md", "5")], ..Opening::default() };
        let log = Log::restore(Epoch(0), opening, exchanges.iter().map(|exchange| (**exchange).clone()).collect());
        expected.add("README.md".into(), "5".into(), Origin::Preload);
        assert_eq!(shown(&log), expected);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_every_piece_fits(
            texts in prop::collection::vec("(?s)[a-z\u{e4}\n]{0,120}", 0..6),
            bytes_max in 1_usize..300,
        ) {
            let exchanges: Vec<_> = texts.iter().map(|text| exchange("q", text, vec![], vec![])).collect();
            let whole: String = exchanges.iter().map(|exchange| text(&exchange.messages)).collect();
            let pieces = pieces(&exchanges, bytes_max);
            prop_assert!(pieces.iter().all(|piece| piece.text.len() <= bytes_max.max(8) && !piece.text.is_empty()));
            prop_assert_eq!(pieces.iter().map(|piece| piece.text.as_str()).collect::<String>(), whole);
            for piece in &pieces {
                if let Some([first, second]) = piece.halves(4) {
                    prop_assert_eq!(format!("{}{}", first.text, second.text), piece.text.clone());
                }
            }
        }
    }
}
