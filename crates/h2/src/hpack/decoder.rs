//! Decodes header blocks to fields (RFC 7541 sections 3 and 6).

use fields::integer::take;
use fields::string::{self, Text};
use fields::{CodingError, DynamicTable, Field, FieldSource, Memo, NameKind};
use http::Version;

use super::DecodeError;
use super::known::{self, COUNT};

/// The state of one direction of a connection. Memory is allocated when it is first needed.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// Decoded Huffman strings, and entries that wrap around the end of the ring.
    scratch: Vec<u8>,
    /// Recent Huffman strings, for responses.
    memo: Option<Memo>,
    /// Our SETTINGS_HEADER_TABLE_SIZE.
    max_size: u32,
}

impl Decoder {
    /// Creates a decoder. `max_size` is the SETTINGS_HEADER_TABLE_SIZE that was announced to the peer (4096 if none was).
    #[must_use]
    pub fn new(max_size: u32) -> Decoder {
        Decoder { table: DynamicTable::new(max_size as usize), scratch: Vec::new(), memo: None, max_size }
    }

    /// Creates a decoder for responses, which repeat literals more often than requests.
    #[must_use]
    pub fn of_server(max_size: u32) -> Decoder {
        Decoder { memo: Some(Memo::default()), ..Decoder::new(max_size) }
    }

    /// Decodes a whole header block. `each` is called for every field, in order. After it has returned `false`, the rest is only
    /// decoded to keep the table in sync.
    ///
    /// # Errors
    /// The connection cannot continue (COMPRESSION_ERROR).
    pub fn decode(
        &mut self,
        block: &[u8],
        each: &mut impl FnMut(Field<'_>) -> bool,
    ) -> Result<(), DecodeError> {
        let mut rest = block;
        self.change_sizes(&mut rest)?;
        let mut wanted = true;
        while let Some((&first, left)) = rest.split_first() {
            rest = left;
            if first & 0x80 != 0 {
                let index = take(first, 0x7f, &mut rest)?;
                self.indexed(index, &mut wanted, each)?;
            } else if first & 0xe0 == 0x20 {
                return Err(DecodeError::TableSize);
            } else {
                let mask = if first & 0x40 != 0 { 0x3f } else { 0x0f };
                let index = take(first, mask, &mut rest)?;
                self.literal(first, index, &mut rest, &mut wanted, each)?;
            }
        }
        Ok(())
    }

    /// Reads table size updates, which are only allowed at the beginning (RFC 7541 section 4.2).
    #[inline(always)]
    fn change_sizes(&mut self, rest: &mut &[u8]) -> Result<(), DecodeError> {
        while let [first, left @ ..] = rest
            && first & 0xe0 == 0x20
        {
            let first = *first;
            *rest = left;
            let size = take(first, 0x1f, rest)?;
            if size > self.max_size as usize {
                return Err(DecodeError::TableSize);
            }
            self.table.set_limit(size);
        }
        Ok(())
    }

    /// Reads a field that is in a table (RFC 7541 section 6.1).
    #[inline(always)]
    fn indexed(
        &mut self,
        index: usize,
        wanted: &mut bool,
        each: &mut impl FnMut(Field<'_>) -> bool,
    ) -> Result<(), DecodeError> {
        if !*wanted {
            // Nothing is copied, because a one-byte index may refer to a value of several kilobytes.
            let exists = if index <= COUNT { index > 0 } else { self.table.has(index - COUNT - 1) };
            return if exists { Ok(()) } else { Err(DecodeError::Index) };
        }
        let field = if index <= COUNT {
            known::field(index).ok_or(DecodeError::Index)?
        } else {
            let entry = self.table.get(index - COUNT - 1, &mut self.scratch).ok_or(DecodeError::Index)?;
            let name = entry.kind.name(entry.name);
            Field { name, value: entry.value, sound: entry.sound, never_indexed: false }
        };
        *wanted = each(field);
        Ok(())
    }

    /// Reads a field with a literal value; the name is a literal too if `index` is 0 (RFC 7541 sections 6.2 and 6.3).
    #[inline(always)]
    fn literal(
        &mut self,
        first: u8,
        index: usize,
        rest: &mut &[u8],
        wanted: &mut bool,
        each: &mut impl FnMut(Field<'_>) -> bool,
    ) -> Result<(), DecodeError> {
        self.scratch.clear();
        let (kind, name) = if index == 0 {
            let name = self.string(rest)?;
            (NameKind::of(name.bytes(&self.scratch)), name)
        } else if let Some((kind, _)) = known::entry(index) {
            (kind, Text::Raw(b""))
        } else {
            // Copied, because the entry may be evicted for the new one.
            let kind = self.table.name(index - COUNT - 1, &mut self.scratch).ok_or(DecodeError::Index)?;
            (kind, Text::Decoded(0, self.scratch.len()))
        };
        let value = self.string(rest)?;
        let (name, value) = (name.bytes(&self.scratch), value.bytes(&self.scratch));
        // Values in the table are only validated once.
        let inserted = first & 0x40 != 0;
        let sound = inserted && http::is_line(value);
        if *wanted {
            let never_indexed = first & 0xf0 == 0x10;
            *wanted = each(Field { name: kind.name(name), value, sound, never_indexed });
        }
        if inserted {
            let own = if kind == NameKind::Other { name } else { b"" };
            self.table.insert(kind, own, value, sound);
        }
        Ok(())
    }

    /// Reads a string with its length in the low seven bits of the first byte.
    #[inline(always)]
    fn string<'a>(&mut self, rest: &mut &'a [u8]) -> Result<Text<'a>, CodingError> {
        let (&first, left) = rest.split_first().ok_or(CodingError::Truncated)?;
        *rest = left;
        string::take(first, 0x7f, rest, &mut self.scratch, &mut self.memo)
    }

    /// Wraps a whole header block for decoding by this decoder.
    pub fn block<'a>(&'a mut self, bytes: &'a [u8]) -> Block<'a> {
        Block { decoder: self, bytes }
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

/// A header block and its decoder.
#[derive(Debug)]
pub struct Block<'a> {
    decoder: &'a mut Decoder,
    bytes: &'a [u8],
}

impl FieldSource for Block<'_> {
    type Error = DecodeError;

    const VERSION: Version = Version::Other(2, 0);

    #[inline(always)]
    fn decode(self, each: &mut impl FnMut(Field<'_>) -> bool) -> Result<(), DecodeError> {
        self.decoder.decode(self.bytes, each)
    }
}
