//! Which files have which terms in their text, as a component of the engine's segments.
//!
//! The engine keeps terms as strings in an automaton, for which the many identifiers of source code
//! that are put together of several words are too dear: nobody asks the index how they are spelt.
//! Here a term is a code of forty bits, a segment in the making is one flat list that is sorted when
//! it is full, and a segment on disk is that list, compressed. Only postings are kept here; the
//! engine numbers the documents, forgets deleted ones, and checks the file's sum.

use std::{
    any::Any,
    io::{self, Write},
};

use tantivy::{
    DocId, PluginMergeContext, PluginWriter, PluginWriterContext, Segment, SegmentPlugin, SegmentReader, TantivyError,
    directory::{OwnedBytes, TerminatingWrite as _},
    index::SegmentComponent,
    indexer::{DocIdMapping, doc_id_mapping::MappingType},
    schema::{Field, OwnedValue, Schema, document::ErasedDocument},
};

use super::{
    bag::{Bag, CODE_BITS, code_of},
    schema::Document,
};

/// Names the file of a segment.
const EXTENSION: &str = "textpostings";
/// A posting in the making: code, document, count, from the highest bit to the lowest.
const DOCUMENT_BITS: u32 = 18;
const COUNT_BITS: u32 = 64 - CODE_BITS - DOCUMENT_BITS;
/// More often than this makes no difference to a score worth speaking of.
const MOST_COUNTED: u32 = (1 << COUNT_BITS) - 1;
/// Terms of a block; a look-up reads through one block.
const BLOCK: usize = 64;
/// An entry of the list of blocks: the first code and where the block begins, eight bytes each.
const BLOCK_ENTRY: usize = 16;
/// At the end of the file: total terms, blocks' beginning, lengths' beginning, eight bytes each.
const FOOTER: usize = 24;

/// Makes the engine keep postings of texts with each segment.
pub(super) struct TextPostings {
    /// The field that holds the text in a document.
    pub(super) text: Field,
}

impl SegmentPlugin for TextPostings {
    fn extensions(&self) -> &[&str] {
        &[EXTENSION]
    }

    fn create_writer(&self, _: &PluginWriterContext<'_>) -> tantivy::Result<Box<dyn PluginWriter>> {
        Ok(Box::new(PostingsWriter { text: self.text, bag: Bag::default(), postings: Vec::new(), lengths: Vec::new() }))
    }

    fn merge(&self, context: PluginMergeContext<'_>) -> tantivy::Result<()> {
        if matches!(context.doc_id_mapping.mapping_type(), MappingType::Shuffled) {
            return Err(unsupported("a merge that reorders documents"));
        }
        merge(context.readers, context.target_segment)
    }
}

fn unsupported(what: &str) -> TantivyError {
    TantivyError::InternalError(format!("{what} is not supported by the postings of texts"))
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the postings of texts are damaged")
}

/// A segment in the making.
struct PostingsWriter {
    text: Field,
    bag: Bag,
    postings: Vec<u64>,
    /// Terms of each document.
    lengths: Vec<u32>,
}

impl PluginWriter for PostingsWriter {
    fn add_document(&mut self, id: DocId, document: &dyn ErasedDocument, _: &Schema) -> tantivy::Result<()> {
        if id >> DOCUMENT_BITS != 0 {
            return Err(unsupported("a segment of so many documents"));
        }
        let document =
            document.as_any().downcast_ref::<Document>().ok_or_else(|| unsupported("another kind of document"))?;
        let mut length = 0;
        if let Some(OwnedValue::Str(text)) = document.get(&self.text) {
            length = self.bag.fill(text);
            // Doubling a large list would need its memory thrice.
            if self.postings.capacity() - self.postings.len() < self.bag.counts().len() {
                self.postings.reserve_exact(self.bag.counts().len().max(1 << 19));
            }
            self.postings.extend(self.bag.counts().iter().map(|(code, count)| {
                code << (64 - CODE_BITS) | u64::from(id) << COUNT_BITS | u64::from((*count).min(MOST_COUNTED))
            }));
        }
        self.lengths.push(length);
        Ok(())
    }

    fn serialize(mut self: Box<Self>, segment: &Segment, reordered: Option<&DocIdMapping>) -> tantivy::Result<()> {
        if reordered.is_some() {
            return Err(unsupported("a segment that reorders documents"));
        }
        self.postings.sort_unstable();
        let mut file = SegmentFile::create(segment)?;
        let mut documents = Vec::new();
        for term in self.postings.chunk_by(|a, b| a >> (64 - CODE_BITS) == b >> (64 - CODE_BITS)) {
            documents.clear();
            documents.extend(term.iter().map(|posting| {
                let document = (posting >> COUNT_BITS) as u32 & ((1 << DOCUMENT_BITS) - 1);
                (document, *posting as u32 & MOST_COUNTED)
            }));
            file.write_term(term[0] >> (64 - CODE_BITS), &documents)?;
        }
        drop(std::mem::take(&mut self.postings));
        Ok(file.finish(&self.lengths)?)
    }

    fn mem_usage(&self) -> usize {
        self.postings.len() * size_of::<u64>() + self.lengths.len() * size_of::<u32>()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Writes the file of a segment, terms in the order of their codes.
struct SegmentFile<W> {
    out: W,
    written: u64,
    blocks: Vec<(u64, u64)>,
    terms: usize,
    last_code: u64,
    buffer: Vec<u8>,
    documents: Vec<u8>,
}

impl SegmentFile<tantivy::directory::WritePtr> {
    fn create(segment: &Segment) -> tantivy::Result<Self> {
        Ok(Self::new(segment.open_write(SegmentComponent::Custom(EXTENSION.into()))?))
    }

    fn finish(self, lengths: &[u32]) -> io::Result<()> {
        self.write_tail(lengths)?.terminate()
    }
}

impl<W: Write> SegmentFile<W> {
    fn new(out: W) -> Self {
        Self {
            out,
            written: 0,
            blocks: Vec::new(),
            terms: 0,
            last_code: 0,
            buffer: Vec::with_capacity(1 << 16),
            documents: Vec::new(),
        }
    }

    /// Documents with counts, in the order of documents; at least one.
    fn write_term(&mut self, code: u64, documents: &[(u32, u32)]) -> io::Result<()> {
        if self.terms.is_multiple_of(BLOCK) {
            self.blocks.push((code, self.written + self.buffer.len() as u64));
            self.last_code = code;
        }
        self.terms += 1;
        push_number(&mut self.buffer, code - self.last_code);
        self.last_code = code;
        self.documents.clear();
        let mut last = 0;
        for (document, count) in documents {
            // Most terms occur once.
            push_number(&mut self.documents, u64::from(document - last) << 1 | u64::from(*count > 1));
            if *count > 1 {
                push_number(&mut self.documents, u64::from(*count));
            }
            last = *document;
        }
        push_number(&mut self.buffer, self.documents.len() as u64);
        self.buffer.extend_from_slice(&self.documents);
        if self.buffer.len() >= 1 << 16 { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn write_tail(mut self, lengths: &[u32]) -> io::Result<W> {
        self.flush()?;
        let blocks_at = self.written;
        for (code, offset) in std::mem::take(&mut self.blocks) {
            self.buffer.extend_from_slice(&code.to_le_bytes());
            self.buffer.extend_from_slice(&offset.to_le_bytes());
        }
        self.flush()?;
        let lengths_at = self.written;
        for length in lengths {
            self.buffer.extend_from_slice(&length.to_le_bytes());
        }
        let total: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
        for number in [total, blocks_at, lengths_at] {
            self.buffer.extend_from_slice(&number.to_le_bytes());
        }
        self.flush()?;
        Ok(self.out)
    }
}

/// Seven bits a byte, the low ones first.
fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> io::Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or_else(damaged)?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(damaged())
}

/// The postings of one segment, opened for one question.
pub(super) struct SegmentPostings {
    bytes: OwnedBytes,
    total: u64,
    blocks_at: usize,
    lengths_at: usize,
    lengths_end: usize,
}

impl SegmentPostings {
    /// Opens those of a segment.
    pub(super) fn open(segment: &SegmentReader) -> tantivy::Result<Self> {
        let file = segment.open_read(SegmentComponent::Custom(EXTENSION.into()))?;
        Ok(Self::parse(file.read_bytes()?)?)
    }

    fn parse(bytes: OwnedBytes) -> io::Result<Self> {
        let lengths_end = bytes.len().checked_sub(FOOTER).ok_or_else(damaged)?;
        let number = |nth: usize| read_u64(&bytes, lengths_end + 8 * nth);
        let at = |nth| usize::try_from(number(nth)?).map_err(|_| damaged());
        let (total, blocks_at, lengths_at) = (number(0)?, at(1)?, at(2)?);
        if blocks_at > lengths_at || lengths_at > lengths_end || (lengths_at - blocks_at) % BLOCK_ENTRY != 0 {
            return Err(damaged());
        }
        Ok(Self { total, blocks_at, lengths_at, lengths_end, bytes })
    }

    /// Terms of all documents, repetitions counted.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Terms of a document, repetitions counted.
    pub(super) fn length(&self, document: DocId) -> u32 {
        let at = self.lengths_at + document as usize * 4;
        let bytes = self.bytes.get(at..at + 4).filter(|_| at + 4 <= self.lengths_end);
        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
    }

    /// Calls `found` with each document that has a term, and how often it has it.
    pub(super) fn for_each(&self, term: &str, mut found: impl FnMut(DocId, u32)) -> io::Result<()> {
        let wanted = code_of(term);
        let count = (self.lengths_at - self.blocks_at) / BLOCK_ENTRY;
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.block(middle)?.0 <= wanted { low = middle + 1 } else { high = middle }
        }
        let Some(block) = low.checked_sub(1) else { return Ok(()) };
        let (mut code, start) = self.block(block)?;
        let end = if block + 1 < count { self.block(block + 1)?.1 } else { self.blocks_at };
        let mut rest = self.bytes.get(start..end).ok_or_else(damaged)?;
        while !rest.is_empty() {
            code = code.checked_add(take_number(&mut rest)?).ok_or_else(damaged)?;
            let documents = take_documents(&mut rest)?;
            if code == wanted {
                return each_document(documents, &mut found);
            }
            if code > wanted {
                break;
            }
        }
        Ok(())
    }

    fn block(&self, nth: usize) -> io::Result<(u64, usize)> {
        let at = self.blocks_at + nth * BLOCK_ENTRY;
        let offset = usize::try_from(read_u64(&self.bytes, at + 8)?).map_err(|_| damaged())?;
        Ok((read_u64(&self.bytes, at)?, offset))
    }
}

fn read_u64(bytes: &[u8], at: usize) -> io::Result<u64> {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk()).ok_or_else(damaged)?;
    Ok(u64::from_le_bytes(*bytes))
}

fn take_documents<'a>(rest: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let length = usize::try_from(take_number(rest)?).map_err(|_| damaged())?;
    let (documents, after) = rest.split_at_checked(length).ok_or_else(damaged)?;
    *rest = after;
    Ok(documents)
}

fn each_document(mut bytes: &[u8], found: &mut impl FnMut(DocId, u32)) -> io::Result<()> {
    let mut document = 0_u64;
    while !bytes.is_empty() {
        let number = take_number(&mut bytes)?;
        document = document.checked_add(number >> 1).ok_or_else(damaged)?;
        let count = if number & 1 == 1 { take_number(&mut bytes)? } else { 1 };
        let document = DocId::try_from(document).map_err(|_| damaged())?;
        found(document, u32::try_from(count).map_err(|_| damaged())?);
    }
    Ok(())
}

/// Where a merge is in one of its sources.
struct Source {
    postings: SegmentPostings,
    /// The number that each document has in the merged segment; none where it was deleted.
    renumbered: Vec<Option<DocId>>,
    at: usize,
    terms: usize,
    /// The term that comes next, and where its documents lie.
    next: Option<(u64, usize, usize)>,
}

impl Source {
    /// Goes on to the next term.
    fn step(&mut self) -> io::Result<()> {
        let end = self.postings.blocks_at;
        let mut rest = self.postings.bytes.get(self.at..end).ok_or_else(damaged)?;
        if rest.is_empty() {
            self.next = None;
            return Ok(());
        }
        let delta = take_number(&mut rest)?;
        let before = match self.next {
            Some((code, ..)) if !self.terms.is_multiple_of(BLOCK) => code,
            _ => self.postings.block(self.terms / BLOCK)?.0,
        };
        let documents = take_documents(&mut rest)?.len();
        self.terms += 1;
        self.at = end - rest.len();
        let code = before.checked_add(delta).ok_or_else(damaged)?;
        self.next = Some((code, self.at - documents, self.at));
        Ok(())
    }
}

/// Documents keep their order and close the gaps that deleted ones left, as the engine has it.
fn merge(readers: &[SegmentReader], target: &Segment) -> tantivy::Result<()> {
    let mut sources = Vec::new();
    let mut lengths = Vec::new();
    for reader in readers {
        let postings = SegmentPostings::open(reader)?;
        let mut renumbered = vec![None; reader.max_doc() as usize];
        for document in reader.doc_ids_alive() {
            renumbered[document as usize] = Some(lengths.len() as DocId);
            lengths.push(postings.length(document));
        }
        let mut source = Source { postings, renumbered, at: 0, terms: 0, next: None };
        source.step()?;
        sources.push(source);
    }
    let mut file = SegmentFile::create(target)?;
    let mut documents = Vec::new();
    while let Some(code) = sources.iter().filter_map(|source| source.next.map(|next| next.0)).min() {
        documents.clear();
        for source in &mut sources {
            let Some((_, start, end)) = source.next.filter(|next| next.0 == code) else { continue };
            let bytes = source.postings.bytes.get(start..end).ok_or_else(damaged)?;
            each_document(bytes, &mut |document, count| {
                if let Some(Some(renumbered)) = source.renumbered.get(document as usize) {
                    documents.push((*renumbered, count));
                }
            })?;
            source.step()?;
        }
        if !documents.is_empty() {
            file.write_term(code, &documents)?;
        }
    }
    Ok(file.finish(&lengths)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn written(terms: &BTreeMap<String, BTreeMap<u32, u32>>, lengths: &[u32]) -> Vec<u8> {
        let mut sorted: Vec<(u64, Vec<(u32, u32)>)> = terms
            .iter()
            .map(|(term, documents)| (code_of(term), documents.iter().map(|(id, count)| (*id, *count)).collect()))
            .collect();
        sorted.sort();
        let mut file = SegmentFile::new(Vec::new());
        for (code, documents) in sorted {
            file.write_term(code, &documents).unwrap();
        }
        file.write_tail(lengths).unwrap()
    }

    proptest! {
        #[test]
        fn what_was_written_is_found(
            terms in proptest::collection::btree_map(
                "[a-z]{2,9}",
                proptest::collection::btree_map(0_u32..3000, 1_u32..200, 1..20),
                0..300,
            ),
            absent in "[A-Z]{2,9}",
        ) {
            let lengths: Vec<u32> = (0..3000).collect();
            let postings = SegmentPostings::parse(OwnedBytes::new(written(&terms, &lengths))).unwrap();
            for (term, documents) in &terms {
                let mut found = BTreeMap::new();
                postings.for_each(term, |id, count| { found.insert(id, count); }).unwrap();
                prop_assert_eq!(&found, documents);
            }
            postings.for_each(&absent, |_, _| panic!("{absent} is nowhere")).unwrap();
            prop_assert_eq!(postings.length(2999), 2999);
            prop_assert_eq!(postings.length(3000), 0);
            prop_assert_eq!(postings.total(), lengths.iter().map(|length| u64::from(*length)).sum::<u64>());
        }

        #[test]
        fn damage_is_an_error_at_worst(cut in 0_usize..200, flipped in 0_usize..200, value in any::<u8>()) {
            let terms = (0..40_u32).map(|nth| (format!("term{nth}"), BTreeMap::from([(nth, 1)]))).collect();
            let mut bytes = written(&terms, &[1; 40]);
            let last = bytes.len() - 1;
            bytes[last - flipped] = value;
            bytes.truncate(last + 1 - cut);
            if let Ok(postings) = SegmentPostings::parse(OwnedBytes::new(bytes)) {
                for nth in 0..40 {
                    let _ = postings.for_each(&format!("term{nth}"), |_, _| {});
                    postings.length(nth);
                }
            }
        }
    }
}
