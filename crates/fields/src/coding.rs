//! The boundary between field sections and their compression.

use http::Version;

use crate::name::FieldName;

/// An error in a string or integer. Errors of a whole section have the type [`FieldSource::Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodingError {
    /// The input ends within an integer or a string.
    Truncated,
    /// An integer above [`crate::integer::MAX`], or one padded with too many bytes.
    Integer,
    /// A string contains the Huffman code of EOS.
    Huffman,
    /// Huffman padding longer than seven bits, or with a zero bit.
    Padding,
}

impl CodingError {
    /// A short description for logs.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            CodingError::Truncated => "truncated header block",
            CodingError::Integer => "integer too large in a header block",
            CodingError::Huffman => "invalid Huffman code",
            CodingError::Padding => "invalid padding of a Huffman code",
        }
    }
}

/// One decoded field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name of the field.
    pub name: FieldName<'a>,
    /// The value of the field, which may contain any bytes.
    pub value: &'a [u8],
    /// Whether the value is known to contain no CR, LF or NUL ([`http::is_line`]), for example because the table entry was checked
    /// before. `false` means that it was not checked.
    pub sound: bool,
    /// Whether intermediaries are also forbidden to add the field to a table (RFC 7541 section 7.1.3, RFC 9204 section 7.1.3).
    pub never_indexed: bool,
}

/// An encoded field section together with its decoder.
pub trait FieldSource {
    /// The reason why a section cannot be decoded.
    type Error;

    /// The version of messages with this encoding.
    const VERSION: Version;

    /// Decodes the section and passes each field, in order, to `each`. After `each` has returned
    /// `false`, the rest is decoded only to keep the compression state in step.
    ///
    /// # Errors
    /// The section is not valid. The connection cannot continue.
    fn decode(self, each: &mut impl FnMut(Field<'_>) -> bool) -> Result<(), Self::Error>;
}

/// An encoder that appends to one field section.
pub trait FieldSink {
    /// Appends a field. Its name is written in lower case.
    fn field(&mut self, name: FieldName<'_>, value: &[u8]);

    /// Appends a field that must not be added to any table, neither here nor at later hops.
    fn secret(&mut self, name: FieldName<'_>, value: &[u8]);
}
