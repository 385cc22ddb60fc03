//! Decodes field sections to fields (RFC 9204 section 4.5), with the dynamic table that the peer's encoder stream fills (section
//! 4.3).

use fields::integer::take;
use fields::string::{self, Text};
use fields::{CodingError, DynamicTable, Field, FieldSource, Memo, NameKind};
use http::{Version, is_line};

use super::{DecodeError, known};

/// The size that the RFC assigns to the smallest entry (section 3.2.1).
const ENTRY_MIN: u64 = 32;

/// The state of one direction of a connection; nothing is allocated before it is needed.
#[derive(Debug)]
pub struct QpackDecoder {
    table: DynamicTable,
    /// Decoded Huffman strings, and entries that wrap around the end of the table's ring.
    scratch: Vec<u8>,
    /// Recent Huffman strings, for responses.
    memo: Option<Memo>,
    /// Our SETTINGS_QPACK_MAX_TABLE_CAPACITY.
    max_capacity: u32,
    /// The number of entries inserted by the peer.
    inserted: u64,
    /// How many of them were acknowledged.
    acknowledged: u64,
}

/// The prefix of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Prefix {
    /// The number of insertions that the section depends on.
    required: u64,
    base: u64,
}

/// The entry that a line refers to.
enum TableEntry {
    Static(usize),
    /// An entry of the dynamic table, by age.
    Dynamic(usize),
}

impl QpackDecoder {
    /// Creates a decoder for a peer to which `max_capacity` was announced as SETTINGS_QPACK_MAX_TABLE_CAPACITY.
    #[must_use]
    pub fn new(max_capacity: u32) -> QpackDecoder {
        QpackDecoder {
            table: DynamicTable::new(0),
            scratch: Vec::new(),
            memo: None,
            max_capacity,
            inserted: 0,
            acknowledged: 0,
        }
    }

    /// Creates a decoder for responses, which repeat literals more often than requests.
    #[must_use]
    pub fn of_server(max_capacity: u32) -> QpackDecoder {
        QpackDecoder { memo: Some(Memo::default()), ..QpackDecoder::new(max_capacity) }
    }

    /// Whether the section refers to insertions that have not arrived yet; such a section must be kept until they have.
    ///
    /// # Errors
    /// The prefix is invalid.
    pub fn is_blocked(&self, section: &[u8]) -> Result<bool, DecodeError> {
        let mut rest = section;
        Ok(self.prefix(&mut rest)?.required > self.inserted)
    }

    /// Whether the section refers to the dynamic table, so that it must be acknowledged.
    #[must_use]
    pub fn is_dynamic(section: &[u8]) -> bool {
        section.first().is_some_and(|first| *first != 0)
    }

    /// Decodes a whole section, which must not be blocked. `each` gets every field in order; after it returns `false` the rest is
    /// still checked, but not passed on.
    ///
    /// # Errors
    /// The connection cannot continue (QPACK_DECOMPRESSION_FAILED).
    pub fn decode(
        &mut self,
        section: &[u8],
        each: &mut impl FnMut(Field<'_>) -> bool,
    ) -> Result<(), DecodeError> {
        let mut rest = section;
        let prefix = self.prefix(&mut rest)?;
        if prefix.required > self.inserted {
            return Err(DecodeError::Prefix);
        }
        let mut wanted = true;
        while let Some((&first, left)) = rest.split_first() {
            rest = left;
            self.line(first, &mut rest, prefix, &mut wanted, each)?;
        }
        Ok(())
    }

    /// Takes the prefix (RFC 9204 section 4.5.1).
    #[inline(always)]
    fn prefix(&self, rest: &mut &[u8]) -> Result<Prefix, DecodeError> {
        if let [0, 0, left @ ..] = *rest {
            *rest = left;
            return Ok(Prefix { required: 0, base: 0 });
        }
        let encoded = take_byte(rest).and_then(|first| take(first, 0xff, rest))? as u64;
        let first = take_byte(rest)?;
        let delta = take(first, 0x7f, rest)? as u64;
        let required = self.required(encoded)?;
        let base = match first & 0x80 {
            0 => required + delta,
            _ => required.checked_sub(delta + 1).ok_or(DecodeError::Prefix)?,
        };
        Ok(Prefix { required, base })
    }

    /// Reconstructs the required insert count (RFC 9204 section 4.5.1.1).
    fn required(&self, encoded: u64) -> Result<u64, DecodeError> {
        if encoded == 0 {
            return Ok(0);
        }
        let max_entries = u64::from(self.max_capacity) / ENTRY_MIN;
        let full = 2 * max_entries;
        if encoded > full {
            return Err(DecodeError::Prefix);
        }
        let most = self.inserted + max_entries;
        let required = most / full * full + encoded - 1;
        let required = match required > most {
            true => required.checked_sub(full).ok_or(DecodeError::Prefix)?,
            false => required,
        };
        if required == 0 { Err(DecodeError::Prefix) } else { Ok(required) }
    }

    /// Reads a field line (RFC 9204 sections 4.5.2 to 4.5.6).
    #[inline(always)]
    fn line(
        &mut self,
        first: u8,
        rest: &mut &[u8],
        prefix: Prefix,
        wanted: &mut bool,
        each: &mut impl FnMut(Field<'_>) -> bool,
    ) -> Result<(), DecodeError> {
        if first & 0x80 != 0 {
            let index = take(first, 0x3f, rest)?;
            let entry = self.entry(first & 0x40 != 0, index, prefix)?;
            return self.indexed(&entry, wanted, each);
        }
        if first & 0xf0 == 0x10 {
            let index = take(first, 0x0f, rest)?;
            let entry = self.after_base(index, prefix)?;
            return self.indexed(&entry, wanted, each);
        }
        self.scratch.clear();
        let (kind, name, is_secret) = if first & 0x40 != 0 {
            let index = take(first, 0x0f, rest)?;
            let entry = self.entry(first & 0x10 != 0, index, prefix)?;
            let (kind, name) = self.name(&entry)?;
            (kind, name, first & 0x20 != 0)
        } else if first & 0x20 != 0 {
            let name = string::take(first, 0x07, rest, &mut self.scratch, &mut self.memo)?;
            (NameKind::of(name.bytes(&self.scratch)), name, first & 0x10 != 0)
        } else {
            let index = take(first, 0x07, rest)?;
            let entry = self.after_base(index, prefix)?;
            let (kind, name) = self.name(&entry)?;
            (kind, name, first & 0x08 != 0)
        };
        let first = take_byte(rest)?;
        let value = string::take(first, 0x7f, rest, &mut self.scratch, &mut self.memo)?;
        if *wanted {
            let (name, value) = (name.bytes(&self.scratch), value.bytes(&self.scratch));
            *wanted = each(Field { name: kind.name(name), value, sound: false, never_indexed: is_secret });
        }
        Ok(())
    }

    /// The entry at a static index, or one before the base.
    #[inline(always)]
    fn entry(&self, is_static: bool, index: usize, prefix: Prefix) -> Result<TableEntry, DecodeError> {
        if is_static {
            return Ok(TableEntry::Static(index));
        }
        let absolute = prefix.base.checked_sub(index as u64 + 1).ok_or(DecodeError::Index)?;
        self.dynamic(absolute, prefix)
    }

    /// An entry after the base.
    fn after_base(&self, index: usize, prefix: Prefix) -> Result<TableEntry, DecodeError> {
        self.dynamic(prefix.base + index as u64, prefix)
    }

    fn dynamic(&self, absolute: u64, prefix: Prefix) -> Result<TableEntry, DecodeError> {
        if absolute >= prefix.required {
            return Err(DecodeError::Index);
        }
        let age = usize::try_from(self.inserted - 1 - absolute).map_err(|_| DecodeError::Index)?;
        if self.table.has(age) { Ok(TableEntry::Dynamic(age)) } else { Err(DecodeError::Index) }
    }

    /// Passes on an entry.
    #[inline(always)]
    fn indexed(
        &mut self,
        entry: &TableEntry,
        wanted: &mut bool,
        each: &mut impl FnMut(Field<'_>) -> bool,
    ) -> Result<(), DecodeError> {
        let field = match *entry {
            TableEntry::Static(index) => known::field(index).ok_or(DecodeError::Index)?,
            // Nothing is copied here: a one-byte index may refer to a value of several kilobytes.
            TableEntry::Dynamic(_) if !*wanted => return Ok(()),
            TableEntry::Dynamic(age) => {
                let entry = self.table.get(age, &mut self.scratch).ok_or(DecodeError::Index)?;
                let name = entry.kind.name(entry.name);
                Field { name, value: entry.value, sound: entry.sound, never_indexed: false }
            }
        };
        if *wanted {
            *wanted = each(field);
        }
        Ok(())
    }

    /// The name of an entry. That of a dynamic one is copied into the scratch buffer, which is empty.
    fn name(&mut self, entry: &TableEntry) -> Result<(NameKind, Text<'static>), DecodeError> {
        match *entry {
            TableEntry::Static(index) => {
                let (kind, name) = known::name(index).ok_or(DecodeError::Index)?;
                Ok((kind, Text::Raw(name)))
            }
            TableEntry::Dynamic(age) => {
                let kind = self.table.name(age, &mut self.scratch).ok_or(DecodeError::Index)?;
                Ok((kind, Text::Decoded(0, self.scratch.len())))
            }
        }
    }

    /// Applies instructions of the encoder stream; returns how many bytes were used. The caller keeps the rest, an incomplete
    /// instruction, in front of the next bytes.
    ///
    /// # Errors
    /// The connection cannot continue (QPACK_ENCODER_STREAM_ERROR).
    pub fn instructions(&mut self, input: &[u8]) -> Result<usize, DecodeError> {
        let mut rest = input;
        while let Some((&first, mut left)) = rest.split_first() {
            match self.instruction(first, &mut left) {
                Ok(()) => rest = left,
                // Only a huge instruction can still be incomplete here: none that fits into the table is as long.
                Err(DecodeError::Coding(CodingError::Truncated)) if rest.len() <= self.longest() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(input.len() - rest.len())
    }

    /// The length of the longest instruction: no Huffman code has more than 30 bits.
    fn longest(&self) -> usize {
        self.max_capacity as usize * 4 + 32
    }

    fn instruction(&mut self, first: u8, rest: &mut &[u8]) -> Result<(), DecodeError> {
        self.scratch.clear();
        if first & 0xe0 == 0x20 {
            let capacity = take(first, 0x1f, rest)?;
            if capacity > self.max_capacity as usize {
                return Err(DecodeError::Index);
            }
            self.table.set_limit(capacity);
            return Ok(());
        }
        if first & 0xe0 == 0 {
            let age = take(first, 0x1f, rest)?;
            return self.duplicate(age);
        }
        let (kind, name) = if first & 0x80 != 0 {
            let index = take(first, 0x3f, rest)?;
            let is_static = first & 0x40 != 0;
            self.name(&if is_static { TableEntry::Static(index) } else { TableEntry::Dynamic(index) })?
        } else {
            let name = string::take(first, 0x1f, rest, &mut self.scratch, &mut None)?;
            (NameKind::of(name.bytes(&self.scratch)), name)
        };
        let first = take_byte(rest)?;
        let value = string::take(first, 0x7f, rest, &mut self.scratch, &mut None)?;
        let (name, value) = (name.bytes(&self.scratch), value.bytes(&self.scratch));
        insert(&mut self.table, kind, if kind == NameKind::Other { name } else { b"" }, value)?;
        self.inserted += 1;
        Ok(())
    }

    /// Inserts a copy of an entry.
    fn duplicate(&mut self, age: usize) -> Result<(), DecodeError> {
        let mut around = Vec::new();
        let entry = self.table.get(age, &mut around).ok_or(DecodeError::Index)?;
        let (kind, name_len) = (entry.kind, entry.name.len());
        self.scratch.extend_from_slice(entry.name);
        self.scratch.extend_from_slice(entry.value);
        let (name, value) = self.scratch.split_at(name_len);
        insert(&mut self.table, kind, name, value)?;
        self.inserted += 1;
        Ok(())
    }

    /// Appends an Insert Count Increment to the decoder stream, if the peer does not know of all insertions.
    pub fn acknowledge_insertions(&mut self, out: &mut Vec<u8>) {
        let count = self.inserted - self.acknowledged;
        if count > 0 {
            fields::integer::put(count as usize, 0x3f, 0x00, out);
            self.acknowledged = self.inserted;
        }
    }

    /// Appends a Section Acknowledgment for a section of `stream` that referred to the dynamic table.
    pub fn acknowledge_section(stream: u64, out: &mut Vec<u8>) {
        fields::integer::put(stream as usize, 0x7f, 0x80, out);
    }

    /// Appends a Stream Cancellation for a stream with a section that will not be decoded.
    pub fn cancel_stream(stream: u64, out: &mut Vec<u8>) {
        fields::integer::put(stream as usize, 0x3f, 0x40, out);
    }

    /// Wraps a whole section for decoding by this decoder.
    pub fn section<'a>(&'a mut self, bytes: &'a [u8]) -> Section<'a> {
        Section { decoder: self, bytes }
    }

    /// Frees scratch memory, for a connection that becomes idle.
    pub fn shrink(&mut self) {
        self.scratch = Vec::new();
        if let Some(memo) = &mut self.memo {
            memo.clear();
        }
        self.table.shrink();
    }
}

/// Inserts a field. One that does not fit into the table is an error (RFC 9204 section 3.2.2).
fn insert(table: &mut DynamicTable, kind: NameKind, name: &[u8], value: &[u8]) -> Result<(), DecodeError> {
    if !table.may_hold(kind, name, value) {
        return Err(DecodeError::Index);
    }
    // Values in the table are validated once.
    table.insert(kind, name, value, is_line(value));
    Ok(())
}

#[inline(always)]
fn take_byte(rest: &mut &[u8]) -> Result<u8, CodingError> {
    let (&first, left) = rest.split_first().ok_or(CodingError::Truncated)?;
    *rest = left;
    Ok(first)
}

/// A field section and its decoder.
#[derive(Debug)]
pub struct Section<'a> {
    decoder: &'a mut QpackDecoder,
    bytes: &'a [u8],
}

impl FieldSource for Section<'_> {
    type Error = DecodeError;

    const VERSION: Version = Version::Other(3, 0);

    #[inline(always)]
    fn decode(self, each: &mut impl FnMut(Field<'_>) -> bool) -> Result<(), DecodeError> {
        self.decoder.decode(self.bytes, each)
    }
}
