//! Records and their eight-byte header (FastCGI specification, 3.3).

/// The only protocol version.
pub const VERSION: u8 = 1;

/// Length of a record header.
pub const HEADER: usize = 8;

/// Maximum content length of a record.
pub const MOST: usize = 65535;

/// The responder role: an application that answers requests.
pub const RESPONDER: u16 = 1;

/// The BEGIN_REQUEST flag that keeps the connection open after the request.
pub const KEEP_CONN: u8 = 1;

/// Record types.
pub mod kind {
    #![allow(missing_docs)]
    pub const BEGIN_REQUEST: u8 = 1;
    pub const ABORT_REQUEST: u8 = 2;
    pub const END_REQUEST: u8 = 3;
    pub const PARAMS: u8 = 4;
    pub const STDIN: u8 = 5;
    pub const STDOUT: u8 = 6;
    pub const STDERR: u8 = 7;
    pub const DATA: u8 = 8;
    pub const GET_VALUES: u8 = 9;
    pub const GET_VALUES_RESULT: u8 = 10;
    pub const UNKNOWN_TYPE: u8 = 11;
}

/// Protocol status in END_REQUEST, its fifth byte: how the request ended.
pub mod status {
    #![allow(missing_docs)]
    pub const REQUEST_COMPLETE: u8 = 0;
    pub const CANT_MPX_CONN: u8 = 1;
    pub const OVERLOADED: u8 = 2;
    pub const UNKNOWN_ROLE: u8 = 3;
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// The record type; see [`kind`].
    pub kind: u8,
    /// The request id; 0 for records about the connection.
    pub id: u16,
    /// Content length in bytes.
    pub length: u16,
    /// Length of the padding after the content.
    pub padding: u8,
}

impl RecordHeader {
    /// Parses a header; returns `None` if there are too few bytes. The version is not checked, as in HAProxy.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<RecordHeader> {
        let &[_, kind, id1, id0, length1, length0, padding, _] = bytes.first_chunk::<HEADER>()?;
        let (id, length) = (u16::from_be_bytes([id1, id0]), u16::from_be_bytes([length1, length0]));
        Some(RecordHeader { kind, id, length, padding })
    }

    /// Returns the encoded header.
    #[must_use]
    pub fn bytes(self) -> [u8; HEADER] {
        let ([id1, id0], [length1, length0]) = (self.id.to_be_bytes(), self.length.to_be_bytes());
        [VERSION, self.kind, id1, id0, length1, length0, self.padding, 0]
    }
}

/// Writes `content` as records of type `kind`, as many as needed; none if it is empty.
pub fn write(kind: u8, id: u16, content: &[u8], out: &mut Vec<u8>) {
    for piece in content.chunks(MOST) {
        // A chunk is at most `MOST` long, which fits the length field.
        let length = u16::try_from(piece.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&RecordHeader { kind, id, length, padding: 0 }.bytes());
        out.extend_from_slice(piece);
    }
}

/// Writes an empty record, which ends a stream of its type.
pub fn write_end(kind: u8, id: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&RecordHeader { kind, id, length: 0, padding: 0 }.bytes());
}

/// Writes the BEGIN_REQUEST record.
pub fn write_begin(id: u16, keeps: bool, out: &mut Vec<u8>) {
    let [role1, role0] = RESPONDER.to_be_bytes();
    let flags = if keeps { KEEP_CONN } else { 0 };
    write(kind::BEGIN_REQUEST, id, &[role1, role0, flags, 0, 0, 0, 0, 0], out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips() {
        let header = RecordHeader { kind: kind::STDOUT, id: 0x1234, length: 0xabcd, padding: 7 };
        assert_eq!(RecordHeader::read(&header.bytes()), Some(header));
        assert_eq!(header.bytes(), [1, 6, 0x12, 0x34, 0xab, 0xcd, 7, 0]);
        assert_eq!(RecordHeader::read(&header.bytes()[..7]), None);
    }

    #[test]
    fn long_content_takes_several_records() {
        let (content, mut out) = (vec![b'x'; MOST + 3], Vec::new());
        write(kind::STDIN, 1, &content, &mut out);
        let first = RecordHeader::read(&out).unwrap();
        let second = RecordHeader::read(&out[HEADER + MOST..]).unwrap();
        assert_eq!((first.length, second.length), (65535, 3));
        assert_eq!(out.len(), 2 * HEADER + content.len());
    }
}
