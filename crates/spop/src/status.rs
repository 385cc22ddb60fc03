//! Status codes of connections (SPOE, 3.5).

/// A status code. Agents may use private codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

/// The codes that the protocol defines.
const KNOWN: &[(Status, &str)] = &[
    (Status::NORMAL, "normal"),
    (Status::IO, "I/O error"),
    (Status(2), "a timeout occurred"),
    (Status::TOO_BIG, "frame is too big"),
    (Status::INVALID, "invalid frame received"),
    (Status::NO_VERSION, "version value not found"),
    (Status::NO_FRAME_SIZE, "max-frame-size value not found"),
    (Status::NO_CAPABILITIES, "capabilities value not found"),
    (Status::BAD_VERSION, "unsupported version"),
    (Status::BAD_FRAME_SIZE, "max-frame-size too big or too small"),
    (Status::FRAGMENTED, "fragmentation not supported"),
    (Status(11), "invalid interlaced frames"),
    (Status(12), "frame-id not found"),
    (Status(13), "resource allocation error"),
    (Status::UNKNOWN, "an unknown error occurred"),
];

impl Status {
    /// No error.
    pub const NORMAL: Self = Self(0);
    /// I/O error.
    pub const IO: Self = Self(1);
    /// A frame exceeds the agreed size.
    pub const TOO_BIG: Self = Self(3);
    /// A frame is malformed or out of order.
    pub const INVALID: Self = Self(4);
    /// A handshake lacks `version`.
    pub const NO_VERSION: Self = Self(5);
    /// A handshake lacks `max-frame-size`.
    pub const NO_FRAME_SIZE: Self = Self(6);
    /// A handshake lacks `capabilities`.
    pub const NO_CAPABILITIES: Self = Self(7);
    /// The agent uses another version.
    pub const BAD_VERSION: Self = Self(8);
    /// The agent requests frames that are too large, or too small.
    pub const BAD_FRAME_SIZE: Self = Self(9);
    /// A payload is fragmented.
    pub const FRAGMENTED: Self = Self(10);
    /// Unknown error.
    pub const UNKNOWN: Self = Self(99);

    /// Returns the protocol's name of the status.
    #[must_use]
    pub fn reason(self) -> &'static str {
        let known = KNOWN.iter().find(|(status, _)| *status == self);
        known.map_or("an unknown error occurred", |(_, reason)| reason)
    }

    /// Returns whether the protocol defines the status.
    #[must_use]
    pub fn is_known(self) -> bool {
        KNOWN.iter().any(|(status, _)| *status == self)
    }
}
