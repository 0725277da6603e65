//! What the index holds of a file, and how text becomes terms in it.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use tantivy::{
    Index, SegmentPlugin,
    schema::{BytesOptions, Field, IndexRecordOption, OwnedValue, STORED, Schema, TextFieldIndexing, TextOptions},
    tokenizer::{TextAnalyzer, Token, TokenStream, Tokenizer},
};

use super::{
    super::{definitions, tokenize::Terms},
    postings::TextPostings,
};
use crate::files::path_to_bytes;

/// To be raised whenever terms, fields or stamps change their meaning, and whenever files are left out
/// that were not before: an index of another format is deleted and built anew.
const FORMAT: u32 = 4;

const TOKENIZER: &str = "live-memory";

/// A document as it is handed to the index.
pub(super) type Document = BTreeMap<Field, OwnedValue>;

/// The fields.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    schema: Schema,
    /// The relative path as bytes; names the document.
    pub(super) path: Field,
    /// [`Stamp`].
    pub(super) stamp: Field,
    /// The text, which only [`TextPostings`] looks at.
    pub(super) text: Field,
    /// Terms of the path.
    pub(super) path_terms: Field,
    /// Terms of the names that the text defines.
    pub(super) definitions: Field,
}

impl Fields {
    /// Builds the schema.
    pub(super) fn new() -> Self {
        let mut schema = Schema::builder();
        let terms = || {
            TextOptions::default().set_indexing_options(
                TextFieldIndexing::default()
                    .set_tokenizer(TOKENIZER)
                    .set_index_option(IndexRecordOption::Basic)
                    .set_fieldnorms(false),
            )
        };
        let path = schema.add_bytes_field("path", BytesOptions::default().set_indexed().set_stored());
        let stamp = schema.add_bytes_field("stamp", STORED);
        let text = schema.add_text_field("text", TextOptions::default());
        let path_terms = schema.add_text_field("path_terms", terms());
        let definitions = schema.add_text_field("definitions", terms());
        Self { schema: schema.build(), path, stamp, text, path_terms, definitions }
    }

    /// The schema of these fields.
    pub(super) fn schema(&self) -> Schema {
        self.schema.clone()
    }

    /// What the engine keeps with each segment besides its own.
    pub(super) fn plugin(&self) -> Arc<dyn SegmentPlugin> {
        Arc::new(TextPostings { text: self.text })
    }

    /// The document of a file.
    pub(super) fn document(&self, path: &Path, stamp: Stamp, text: Option<String>) -> Document {
        let mut document = Document::new();
        document.insert(self.path, OwnedValue::Bytes(path_to_bytes(path)));
        document.insert(self.stamp, OwnedValue::Bytes(stamp.to_bytes().to_vec()));
        document.insert(self.path_terms, OwnedValue::Str(path.to_string_lossy().into_owned()));
        if let Some(text) = text {
            let mut names = String::new();
            definitions::in_text(&text, |name| {
                names.push_str(name);
                names.push(' ');
            });
            document.insert(self.definitions, OwnedValue::Str(names));
            document.insert(self.text, OwnedValue::Str(text));
        }
        document
    }
}

/// Makes the index cut text as questions are cut.
pub(super) fn register_tokenizer(index: &Index) {
    index.tokenizers().register(TOKENIZER, TextAnalyzer::builder(CodeTokenizer).build());
}

/// What a commit carries to say that it is complete, of this format, and of this workspace.
pub(super) fn mark(root: &Path) -> String {
    format!("live-memory {FORMAT} {}", root.to_string_lossy())
}

/// What became of a file when it was indexed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::retrieval) enum Kind {
    /// Its text is searched.
    Text,
    /// Its text is searched up to the cap.
    Cut,
    /// Not text.
    Binary,
    /// Holds secrets.
    Secret,
    /// Cannot be read.
    Unreadable,
}

/// A file's state when it was indexed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::retrieval) struct Stamp {
    /// In bytes.
    pub(in crate::retrieval) size: u64,
    /// Nanoseconds since 1970, or [`Stamp::UNCERTAIN`].
    pub(in crate::retrieval) changed: i64,
    /// What became of it.
    pub(in crate::retrieval) kind: Kind,
}

impl Stamp {
    /// The file was written at the very time it was read; it may have changed again without a trace,
    /// so it counts as changed at the next look.
    pub(in crate::retrieval) const UNCERTAIN: i64 = i64::MIN;

    fn to_bytes(self) -> [u8; 17] {
        let mut bytes = [0; 17];
        bytes[..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.changed.to_le_bytes());
        bytes[16] = match self.kind {
            Kind::Text => 0,
            Kind::Cut => 1,
            Kind::Binary => 2,
            Kind::Secret => 3,
            Kind::Unreadable => 4,
        };
        bytes
    }

    /// Back from the stored form; none where it is not one.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let kind = match bytes.get(16)? {
            0 => Kind::Text,
            1 => Kind::Cut,
            2 => Kind::Binary,
            3 => Kind::Secret,
            4 => Kind::Unreadable,
            _ => return None,
        };
        Some(Self {
            size: u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?),
            changed: i64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?),
            kind,
        })
    }
}

#[derive(Clone)]
struct CodeTokenizer;

struct CodeTokens<'a> {
    terms: Terms<'a>,
    token: Token,
}

impl Tokenizer for CodeTokenizer {
    type TokenStream<'a> = CodeTokens<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> CodeTokens<'a> {
        CodeTokens { terms: Terms::new(text), token: Token::default() }
    }
}

impl TokenStream for CodeTokens<'_> {
    fn advance(&mut self) -> bool {
        let Some(term) = self.terms.advance() else { return false };
        self.token.text.clear();
        self.token.text.push_str(term);
        self.token.position = self.token.position.wrapping_add(1);
        true
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}
