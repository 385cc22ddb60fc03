//! Transport errors (RFC 9000, 20.1).

/// A violation of the protocol, which closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransportError {
    /// The code for the CONNECTION_CLOSE frame.
    pub code: u64,
    /// The type of the frame at fault; 0 if unknown.
    pub frame: u64,
    /// The reason phrase.
    pub reason: &'static str,
}

pub(crate) const CONNECTION_REFUSED: u64 = 0x2;
pub(crate) const FLOW_CONTROL_ERROR: u64 = 0x3;
pub(crate) const STREAM_LIMIT_ERROR: u64 = 0x4;
pub(crate) const STREAM_STATE_ERROR: u64 = 0x5;
pub(crate) const FINAL_SIZE_ERROR: u64 = 0x6;
/// FRAME_ENCODING_ERROR.
pub const FRAME_ENCODING_ERROR: u64 = 0x7;
/// TRANSPORT_PARAMETER_ERROR.
pub const TRANSPORT_PARAMETER_ERROR: u64 = 0x8;
pub(crate) const CONNECTION_ID_LIMIT_ERROR: u64 = 0x9;
/// PROTOCOL_VIOLATION.
pub const PROTOCOL_VIOLATION: u64 = 0xa;
pub(crate) const INVALID_TOKEN: u64 = 0xb;
pub(crate) const APPLICATION_ERROR: u64 = 0xc;
pub(crate) const CRYPTO_BUFFER_EXCEEDED: u64 = 0xd;
pub(crate) const KEY_UPDATE_ERROR: u64 = 0xe;
pub(crate) const AEAD_LIMIT_REACHED: u64 = 0xf;
/// The first of the codes for TLS alerts.
pub(crate) const CRYPTO_ERROR: u64 = 0x100;

impl TransportError {
    /// An error with its code and reason.
    pub const fn new(code: u64, reason: &'static str) -> Self {
        Self { code, frame: 0, reason }
    }

    /// A PROTOCOL_VIOLATION.
    pub const fn violation(reason: &'static str) -> Self {
        Self::new(PROTOCOL_VIOLATION, reason)
    }

    /// A FRAME_ENCODING_ERROR.
    pub const fn encoding(reason: &'static str) -> Self {
        Self::new(FRAME_ENCODING_ERROR, reason)
    }

    /// Names the frame at fault.
    #[must_use]
    pub const fn in_frame(mut self, frame: u64) -> Self {
        self.frame = frame;
        self
    }
}
