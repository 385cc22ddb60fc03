//! Error codes of HTTP/3 (RFC 9114 section 8.1) and QPACK (RFC 9204 section 6).

/// The reason for the end of a stream or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of the RFCs")]
pub enum Code {
    NoError,
    GeneralProtocolError,
    InternalError,
    StreamCreationError,
    ClosedCriticalStream,
    FrameUnexpected,
    FrameError,
    ExcessiveLoad,
    IdError,
    SettingsError,
    MissingSettings,
    RequestRejected,
    RequestCancelled,
    RequestIncomplete,
    MessageError,
    ConnectError,
    VersionFallback,
    QpackDecompressionFailed,
    QpackEncoderStreamError,
    QpackDecoderStreamError,
    /// A code that the RFCs do not define; only received.
    Other(u64),
}

/// The number of defined codes.
pub const COUNT: usize = NAMED.len();

/// The defined codes, with their numbers and names.
const NAMED: [(Code, u64, &str); 20] = [
    (Code::NoError, 0x100, "H3_NO_ERROR"),
    (Code::GeneralProtocolError, 0x101, "H3_GENERAL_PROTOCOL_ERROR"),
    (Code::InternalError, 0x102, "H3_INTERNAL_ERROR"),
    (Code::StreamCreationError, 0x103, "H3_STREAM_CREATION_ERROR"),
    (Code::ClosedCriticalStream, 0x104, "H3_CLOSED_CRITICAL_STREAM"),
    (Code::FrameUnexpected, 0x105, "H3_FRAME_UNEXPECTED"),
    (Code::FrameError, 0x106, "H3_FRAME_ERROR"),
    (Code::ExcessiveLoad, 0x107, "H3_EXCESSIVE_LOAD"),
    (Code::IdError, 0x108, "H3_ID_ERROR"),
    (Code::SettingsError, 0x109, "H3_SETTINGS_ERROR"),
    (Code::MissingSettings, 0x10a, "H3_MISSING_SETTINGS"),
    (Code::RequestRejected, 0x10b, "H3_REQUEST_REJECTED"),
    (Code::RequestCancelled, 0x10c, "H3_REQUEST_CANCELLED"),
    (Code::RequestIncomplete, 0x10d, "H3_REQUEST_INCOMPLETE"),
    (Code::MessageError, 0x10e, "H3_MESSAGE_ERROR"),
    (Code::ConnectError, 0x10f, "H3_CONNECT_ERROR"),
    (Code::VersionFallback, 0x110, "H3_VERSION_FALLBACK"),
    (Code::QpackDecompressionFailed, 0x200, "QPACK_DECOMPRESSION_FAILED"),
    (Code::QpackEncoderStreamError, 0x201, "QPACK_ENCODER_STREAM_ERROR"),
    (Code::QpackDecoderStreamError, 0x202, "QPACK_DECODER_STREAM_ERROR"),
];

impl Code {
    /// The code with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Code {
        NAMED.iter().find(|row| row.1 == number).map_or(Code::Other(number), |row| row.0)
    }

    /// The number used in frames and by the transport.
    #[must_use]
    pub fn number(self) -> u64 {
        match (self, self.index()) {
            (Code::Other(number), _) => number,
            (_, index) => index.map_or(0, |index| NAMED[index].1),
        }
    }

    /// The index of a defined code, below [`COUNT`]; for tables of counters.
    #[must_use]
    pub fn index(self) -> Option<usize> {
        NAMED.iter().position(|row| row.0 == self)
    }

    /// The defined code with this index.
    #[must_use]
    pub fn from_index(index: usize) -> Option<Code> {
        NAMED.get(index).map(|row| row.0)
    }

    /// The name in the RFC.
    #[must_use]
    pub fn text(self) -> &'static str {
        self.index().map_or("unknown error code", |index| NAMED[index].2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_through_numbers_and_indexes() {
        for number in (0x100..0x111).chain([0x200, 0x202, 0, 99, 0x111, 0x203, u64::MAX >> 2]) {
            assert_eq!(Code::from_number(number).number(), number);
        }
        for index in 0..COUNT {
            assert_eq!(Code::from_index(index).and_then(Code::index), Some(index));
        }
        assert_eq!((Code::MessageError.number(), Code::Other(7).index()), (0x10e, None));
        assert_eq!((Code::IdError.text(), Code::Other(99).text()), ("H3_ID_ERROR", "unknown error code"));
    }
}
