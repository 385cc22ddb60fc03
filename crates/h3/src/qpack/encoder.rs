//! Encodes fields to field sections (RFC 9204 section 4.5).
//!
//! A dynamic table is used only if the peer permits it and the configuration wants it. A field is inserted when it occurs a second
//! time, and referred to once the peer has acknowledged the insertion: our sections never block a stream. Entries with
//! unacknowledged references stay in the table.

use std::collections::VecDeque;

use fields::{DynamicTable, FieldName, FieldSink, Indexing, NameKind, fingerprint, huffman, integer, string};

use super::instructions::take_long;
use super::{DecodeError, known};

/// The number of slots for recently seen fields, a power of two.
const SEEN: usize = 64;
/// Not inserted yet.
const NEVER: u32 = u32::MAX;
/// With more unacknowledged sections than this, the table is not used.
const SECTIONS: usize = 256;
/// With more unsent instructions than this, in bytes, nothing is inserted.
const INSTRUCTIONS: usize = 4096;
/// The size that the RFC assigns to the smallest entry (section 3.2.1).
const ENTRY_MIN: u64 = 32;
/// The longest prefix of a section, in bytes.
pub(crate) const PREFIX_MAX: usize = 20;

/// A field seen before: its hash, and the number of its table entry.
#[derive(Debug, Clone, Copy)]
struct SeenField {
    hash: u32,
    number: u32,
}

/// A section with references that the peer has not acknowledged.
#[derive(Debug, Clone, Copy)]
struct SentSection {
    stream: u64,
    /// The number of insertions that it depends on.
    required: u64,
    /// The oldest entry that it refers to.
    oldest: u64,
}

/// The state of one direction of a connection; nothing is allocated before it is needed.
#[derive(Debug)]
pub struct QpackEncoder {
    /// Whether strings are Huffman-coded if that makes them shorter.
    huffman: bool,
    table: DynamicTable,
    /// Indexed by the low bits of the hash.
    seen: Box<[SeenField]>,
    /// The capacity that the peer permits, in entries of the smallest size.
    max_entries: u64,
    /// The number of entries inserted.
    inserted: u64,
    /// How many of them the peer is known to have.
    known: u64,
    sections: VecDeque<SentSection>,
}

impl QpackEncoder {
    /// Creates an encoder for a peer with settings still unknown.
    #[must_use]
    pub fn new(huffman: bool) -> QpackEncoder {
        QpackEncoder {
            huffman,
            table: DynamicTable::new(0),
            seen: Box::default(),
            max_entries: 0,
            inserted: 0,
            known: 0,
            sections: VecDeque::new(),
        }
    }

    /// Applies the peer's SETTINGS_QPACK_MAX_TABLE_CAPACITY once; `ours` limits the capacity that is used. Instructions for the
    /// peer's decoder are appended to `instructions`, here and in sections.
    pub fn set_capacity(&mut self, peer_max: u64, ours: u32, instructions: &mut Vec<u8>) {
        let capacity = peer_max.min(u64::from(ours)) as usize;
        if capacity > 0 {
            self.max_entries = peer_max / ENTRY_MIN;
            self.table.set_limit(capacity);
            integer::put(capacity, 0x1f, 0x20, instructions);
        }
    }

    /// Applies instructions of the peer's decoder; returns how many bytes were used. The caller keeps the rest, an incomplete
    /// instruction, in front of the next bytes.
    ///
    /// # Errors
    /// The connection cannot continue (QPACK_DECODER_STREAM_ERROR).
    pub fn instructions(&mut self, input: &[u8]) -> Result<usize, DecodeError> {
        let mut rest = input;
        while let Some((&first, mut left)) = rest.split_first() {
            let mask = if first & 0x80 != 0 { 0x7f } else { 0x3f };
            let Some(value) = take_long(first, mask, &mut left)? else { break };
            match first >> 6 {
                0 => self.increment(value)?,
                1 => self.sections.retain(|section| section.stream != value),
                _ => self.acknowledge(value)?,
            }
            rest = left;
        }
        Ok(input.len() - rest.len())
    }

    /// Insert Count Increment.
    fn increment(&mut self, count: u64) -> Result<(), DecodeError> {
        if count == 0 || count > self.inserted - self.known {
            return Err(DecodeError::Index);
        }
        self.known += count;
        Ok(())
    }

    /// Section Acknowledgment.
    fn acknowledge(&mut self, stream: u64) -> Result<(), DecodeError> {
        let at = self.sections.iter().position(|section| section.stream == stream);
        let section = at.and_then(|at| self.sections.remove(at)).ok_or(DecodeError::Index)?;
        self.known = self.known.max(section.required);
        Ok(())
    }

    /// Starts a section on `stream`. Its lines are appended to `lines`; its prefix is known when it is
    /// [finished](SectionWriter::finish).
    pub fn section<'a>(
        &'a mut self,
        stream: u64,
        lines: &'a mut Vec<u8>,
        instructions: &'a mut Vec<u8>,
    ) -> SectionWriter<'a> {
        let is_dynamic = self.table.limit() > 0 && self.sections.len() < SECTIONS;
        let base = self.inserted;
        let sent = SentSection { stream, required: 0, oldest: u64::MAX };
        SectionWriter { encoder: self, lines, instructions, is_dynamic, base, sent }
    }

    /// The absolute index of the entry with this field, if the peer has it. A field that occurs for the second time is inserted.
    fn look_up(
        &mut self,
        name: FieldName<'_>,
        value: &[u8],
        in_use: u64,
        instructions: &mut Vec<u8>,
    ) -> Option<u64> {
        if value.len() + name.bytes().len() > self.table.limit() / 4 {
            return None;
        }
        if self.seen.is_empty() {
            self.seen = vec![SeenField { hash: 0, number: NEVER }; SEEN].into();
        }
        let hash = fingerprint(name, value);
        let place = &mut self.seen[hash as usize % SEEN];
        if place.hash != hash {
            *place = SeenField { hash, number: NEVER };
            return None;
        }
        if place.number != NEVER
            && let Some(age) = self.table.age(place.number)
        {
            let (kind, own) = name.split();
            let absolute = self.inserted - 1 - age as u64;
            let is_usable = absolute < self.known && self.table.is(age, kind, own, value);
            return is_usable.then_some(absolute);
        }
        let number = self.table.inserted();
        if instructions.len() < INSTRUCTIONS && self.insert(name, value, in_use, instructions) {
            self.seen[hash as usize % SEEN].number = number;
        }
        None
    }

    /// Inserts a field, unless it is larger than the table or would evict an entry that is in use. `in_use` is the oldest entry that
    /// the current section refers to.
    fn insert(&mut self, name: FieldName<'_>, value: &[u8], in_use: u64, instructions: &mut Vec<u8>) -> bool {
        let (kind, own) = name.split();
        if !self.table.may_hold(kind, own, value) {
            return false;
        }
        let oldest = self.inserted - self.table.len() as u64;
        let used = self.sections.iter().map(|section| section.oldest).min().unwrap_or(u64::MAX);
        let evicted = self.table.evictions(kind, own, value) as u64;
        if oldest + evicted > self.known.min(used).min(in_use) {
            return false;
        }
        let index = known::index_of(name);
        if index == known::NONE {
            let is_other = kind == NameKind::Other;
            self.string(name.bytes(), is_other, 0x1f, 0x40, instructions);
        } else {
            integer::put(index, 0x3f, 0xc0, instructions);
        }
        self.string(value, false, 0x7f, 0, instructions);
        if own.iter().any(u8::is_ascii_uppercase) {
            self.table.insert(kind, &own.to_ascii_lowercase(), value, true);
        } else {
            self.table.insert(kind, own, value, true);
        }
        self.inserted += 1;
        true
    }

    /// Writes a field with its value, and its name unless `index` refers to it.
    #[inline]
    fn literal(&self, secret: bool, index: usize, name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
        if index == known::NONE {
            let first = if secret { 0x30 } else { 0x20 };
            self.string(name.bytes(), matches!(name, FieldName::Other(_)), 0x07, first, out);
        } else {
            integer::put(index, 0x0f, if secret { 0x70 } else { 0x50 }, out);
        }
        self.string(value, false, 0x7f, 0, out);
    }

    /// Appends a string, in lower case if `lower` is set. `mask` has the bits of its first byte that hold the length, and `first`
    /// the bits above the Huffman flag.
    #[inline]
    fn string(&self, bytes: &[u8], lower: bool, mask: u8, first: u8, out: &mut Vec<u8>) {
        // Upper-case letters in names are rare.
        if self.huffman && !(lower && bytes.iter().any(u8::is_ascii_uppercase)) {
            let coded = huffman::coded_len(bytes);
            if coded < bytes.len() {
                integer::put(coded, mask, first | (mask + 1), out);
                return huffman::encode(bytes, out);
            }
        }
        string::put(bytes, mask, first, out);
        if lower {
            let start = out.len() - bytes.len();
            out[start..].make_ascii_lowercase();
        }
    }

    /// Frees memory, for a connection that becomes idle. Seen fields are forgotten.
    pub fn shrink(&mut self) {
        self.seen = Box::default();
        self.table.shrink();
        self.sections.shrink_to_fit();
    }
}

/// A field section being written, and its encoder.
#[derive(Debug)]
pub struct SectionWriter<'a> {
    encoder: &'a mut QpackEncoder,
    lines: &'a mut Vec<u8>,
    instructions: &'a mut Vec<u8>,
    /// Whether the dynamic table is used.
    is_dynamic: bool,
    base: u64,
    sent: SentSection,
}

/// The prefix of a finished section, which precedes its lines.
#[derive(Debug, Clone, Copy)]
pub struct SectionPrefix {
    bytes: [u8; PREFIX_MAX],
    length: usize,
}

impl SectionPrefix {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl SectionWriter<'_> {
    /// Ends the section; returns its prefix (RFC 9204 section 4.5.1).
    pub fn finish(self) -> SectionPrefix {
        let SentSection { required, .. } = self.sent;
        let mut prefix = SectionPrefix { bytes: [0; PREFIX_MAX], length: 2 };
        if required == 0 {
            return prefix;
        }
        self.encoder.sections.push_back(self.sent);
        // First appended to the lines, since integers are written to vectors.
        let end = self.lines.len();
        let encoded = required % (2 * self.encoder.max_entries) + 1;
        integer::put(encoded as usize, 0xff, 0, self.lines);
        integer::put((self.base - required) as usize, 0x7f, 0, self.lines);
        prefix.length = self.lines.len() - end;
        prefix.bytes[..prefix.length].copy_from_slice(&self.lines[end..]);
        self.lines.truncate(end);
        prefix
    }

    #[inline]
    fn write(&mut self, name: FieldName<'_>, value: &[u8], secret: bool) {
        let index = known::index_of(name);
        // A secret field stays a literal at each hop (RFC 9204 section 7.1.3).
        let whole = if secret { known::NONE } else { known::whole(index, value) };
        if whole != known::NONE {
            return integer::put(whole, 0x3f, 0xc0, self.lines);
        }
        let form = if secret { Indexing::Never } else { Indexing::of(name, value) };
        if self.is_dynamic && form == Indexing::Insert {
            let found = self.encoder.look_up(name, value, self.sent.oldest, self.instructions);
            // An entry inserted after the base was not acknowledged when the section began.
            if let Some(absolute) = found.filter(|absolute| *absolute < self.base) {
                self.sent.required = self.sent.required.max(absolute + 1);
                self.sent.oldest = self.sent.oldest.min(absolute);
                return integer::put((self.base - 1 - absolute) as usize, 0x3f, 0x80, self.lines);
            }
        }
        self.encoder.literal(form == Indexing::Never, index, name, value, self.lines);
    }
}

impl FieldSink for SectionWriter<'_> {
    #[inline]
    fn field(&mut self, name: FieldName<'_>, value: &[u8]) {
        self.write(name, value, false);
    }

    fn secret(&mut self, name: FieldName<'_>, value: &[u8]) {
        self.write(name, value, true);
    }
}
