//! Header compression (RFC 7541): converts between header blocks and fields.
//!
//! The crate [`fields`] interprets the fields: it reads and writes messages through [`Block`] and [`BlockWriter`]. A connection has
//! one [`Decoder`] and one [`Encoder`].

mod decoder;
mod encoder;
mod known;

pub use decoder::{Block, Decoder};
pub use encoder::{BlockWriter, Encoder};

use fields::CodingError;

/// A block cannot be decoded. The connection ends with COMPRESSION_ERROR, because the dynamic tables of both sides are out of sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// A string or integer is invalid.
    Coding(CodingError),
    /// An index beyond both tables, or index 0.
    Index,
    /// A table size update after a field, or above the size that the settings of this side allow.
    TableSize,
}

impl DecodeError {
    /// A short description for logs.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            DecodeError::Coding(error) => error.text(),
            DecodeError::Index => "invalid header table index",
            DecodeError::TableSize => "invalid header table size update",
        }
    }
}

impl From<CodingError> for DecodeError {
    fn from(error: CodingError) -> DecodeError {
        DecodeError::Coding(error)
    }
}
