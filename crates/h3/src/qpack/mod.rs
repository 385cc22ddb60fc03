//! Header compression (RFC 9204): converts between field sections and fields.
//!
//! The meaning of fields is up to [`fields`], which reads and writes messages through [`Section`] and [`SectionWriter`]. A
//! connection holds one [`QpackDecoder`] and one [`QpackEncoder`].

mod decoder;
mod encoder;
mod instructions;
mod known;

pub use decoder::{QpackDecoder, Section};
pub(crate) use encoder::PREFIX_MAX;
pub use encoder::{QpackEncoder, SectionPrefix, SectionWriter};

use fields::CodingError;

/// A section that cannot be decoded: the connection ends with QPACK_DECOMPRESSION_FAILED.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// A string or integer is invalid.
    Coding(CodingError),
    /// An index beyond the tables.
    Index,
    /// The required insert count or the base is invalid.
    Prefix,
}

impl DecodeError {
    /// A short description for logs.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            DecodeError::Coding(error) => error.text(),
            DecodeError::Index => "invalid header table index",
            DecodeError::Prefix => "invalid prefix of a field section",
        }
    }
}

impl From<CodingError> for DecodeError {
    fn from(error: CodingError) -> DecodeError {
        DecodeError::Coding(error)
    }
}
