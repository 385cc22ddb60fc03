//! Header compression (RFC 7541): blocks of bytes to fields and back.
//!
//! Knows nothing of what fields mean, but for the numbers of names that [`http`] knows. Used by
//! `message`; the connection holds one [`Decoder`] and one [`Encoder`].

mod decoder;
mod dynamic;
mod encoder;
mod huffman;
mod integer;
mod known;
mod recall;

pub use decoder::Decoder;
pub use encoder::Encoder;

use http::KnownName;

/// A block that cannot be decoded: the connection ends with COMPRESSION_ERROR, since its dynamic
/// table is no longer that of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The block ends within a field.
    Truncated,
    /// An integer beyond what any length or index can be.
    Integer,
    /// An index of neither table.
    Index,
    /// A code that is none, or the code of the end of a string within it.
    Huffman,
    /// Padding after a Huffman code that is longer than seven bits or not of ones.
    Padding,
    /// A change of the table's size behind a field, or above what our settings allow.
    TableSize,
}

impl Error {
    /// A few words for logs.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Error::Truncated => "truncated header block",
            Error::Integer => "integer too large in a header block",
            Error::Index => "index of no header field",
            Error::Huffman => "invalid Huffman code",
            Error::Padding => "invalid padding of a Huffman code",
            Error::TableSize => "invalid change of the header table's size",
        }
    }
}

/// One field of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: FieldName<'a>,
    /// Its value: any bytes.
    pub value: &'a [u8],
    /// The value has no CR, LF or NUL ([`http::is_line`]), which tables remember; if not, it has not
    /// been looked at.
    pub sound: bool,
    /// Whoever sends it on must not put it into a table either (RFC 7541 section 7.1.3).
    pub never_indexed: bool,
}

/// A field's name; what the tables have is known without a look at its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldName<'a> {
    /// A pseudo-field that has a meaning.
    Pseudo(Pseudo),
    /// A name that has a number. It stood in lower case.
    Known(KnownName),
    /// Any other bytes; those of a known name with upper-case letters too.
    Other(&'a [u8]),
}

/// Pseudo-fields (RFC 9113 section 8.3, RFC 8441 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of the RFC")]
pub enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Status,
    Protocol,
}

impl Pseudo {
    /// Its name, colon included.
    #[must_use]
    pub fn text(self) -> &'static [u8] {
        match self {
            Pseudo::Method => b":method",
            Pseudo::Scheme => b":scheme",
            Pseudo::Authority => b":authority",
            Pseudo::Path => b":path",
            Pseudo::Status => b":status",
            Pseudo::Protocol => b":protocol",
        }
    }
}

impl<'a> FieldName<'a> {
    /// The bytes of the name.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            FieldName::Pseudo(pseudo) => pseudo.text(),
            FieldName::Known(known) => known.text(),
            FieldName::Other(bytes) => bytes,
        }
    }
}
