//! Error codes of RST_STREAM and GOAWAY (RFC 9113 section 7).

/// The reason for the end of a stream or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of the RFC")]
pub enum Code {
    NoError,
    ProtocolError,
    InternalError,
    FlowControlError,
    SettingsTimeout,
    StreamClosed,
    FrameSizeError,
    RefusedStream,
    Cancel,
    CompressionError,
    ConnectError,
    EnhanceYourCalm,
    InadequateSecurity,
    Http11Required,
    /// A code that the RFC does not define; only received.
    Other(u32),
}

/// The defined codes, indexed by number.
const NAMED: [(Code, &str); 14] = [
    (Code::NoError, "NO_ERROR"),
    (Code::ProtocolError, "PROTOCOL_ERROR"),
    (Code::InternalError, "INTERNAL_ERROR"),
    (Code::FlowControlError, "FLOW_CONTROL_ERROR"),
    (Code::SettingsTimeout, "SETTINGS_TIMEOUT"),
    (Code::StreamClosed, "STREAM_CLOSED"),
    (Code::FrameSizeError, "FRAME_SIZE_ERROR"),
    (Code::RefusedStream, "REFUSED_STREAM"),
    (Code::Cancel, "CANCEL"),
    (Code::CompressionError, "COMPRESSION_ERROR"),
    (Code::ConnectError, "CONNECT_ERROR"),
    (Code::EnhanceYourCalm, "ENHANCE_YOUR_CALM"),
    (Code::InadequateSecurity, "INADEQUATE_SECURITY"),
    (Code::Http11Required, "HTTP_1_1_REQUIRED"),
];

impl Code {
    /// The code with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Code {
        NAMED.get(number as usize).map_or(Code::Other(number), |named| named.0)
    }

    /// The number used in frames.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Code::Other(number) => number,
            named => NAMED.iter().position(|row| row.0 == named).unwrap_or_default() as u32,
        }
    }

    /// The name in the RFC.
    #[must_use]
    pub fn text(self) -> &'static str {
        NAMED.get(self.number() as usize).map_or("unknown error code", |named| named.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_through_numbers() {
        for number in (0..20).chain([u32::MAX]) {
            assert_eq!(Code::from_number(number).number(), number);
        }
        assert_eq!(
            (Code::from_number(13), Code::from_number(1)),
            (Code::Http11Required, Code::ProtocolError)
        );
        assert_eq!((Code::Cancel.text(), Code::Other(99).text()), ("CANCEL", "unknown error code"));
    }
}
