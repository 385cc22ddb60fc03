//! Reads the parts of a message, including variable-length integers ([`base::varint`]). Used by everything in this crate that
//! parses a message.

use base::varint;

/// The unread bytes of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageReader<'a>(&'a [u8]);

impl<'a> MessageReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads a number. Returns `None` if it is missing or does not fit.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let (value, length) = varint::read(self.0).ok()?;
        self.0 = &self.0[length..];
        Some(value)
    }

    /// Reads this many bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads bytes with a length prefix.
    pub(crate) fn counted(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    /// Reads a 32-bit number in network order.
    pub(crate) fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }
}
