//! Taking the parts of a message off its bytes, integers of variable length ([`base::varint`])
//! among them. Callers: everything in this crate that reads a message.

use base::varint;

/// The bytes of a message that are not read yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageReader<'a>(&'a [u8]);

impl<'a> MessageReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number; `None` when there is none, or none that fits.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let (value, length) = varint::read(self.0).ok()?;
        self.0 = &self.0[length..];
        Some(value)
    }

    /// So many bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// As many bytes as the number before them says.
    pub(crate) fn counted(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    /// A number of 32 bits in network order.
    pub(crate) fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }
}
