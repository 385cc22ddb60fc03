//! Header blocks to fields.

use super::{Error, Field};

/// What one direction of a connection remembers; nothing is allocated before it is needed.
#[derive(Debug)]
pub struct Decoder {
    max_size: u32,
}

impl Decoder {
    /// A decoder for a peer that was told `max_size` as SETTINGS_HEADER_TABLE_SIZE.
    #[must_use]
    pub fn new(max_size: u32) -> Decoder {
        Decoder { max_size }
    }

    /// Decodes one whole header block. `each` gets every field in order; once it says `false` the
    /// rest is still decoded, since the table must stay in step, but not given.
    ///
    /// # Errors
    /// The connection cannot go on (COMPRESSION_ERROR).
    pub fn decode(&mut self, block: &[u8], each: &mut impl FnMut(Field<'_>) -> bool) -> Result<(), Error> {
        let _ = (block, each, self.max_size);
        Err(Error::Truncated)
    }

    /// Gives scratch memory back: for a connection that becomes idle.
    pub fn shrink(&mut self) {}
}
