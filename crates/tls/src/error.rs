//! Why a TLS connection failed: HAProxy's failure kind (`fc_err`, the error log), and OpenSSL's number and text (`ssl_fc_err`).
//!
//! Numbers and texts are the same as in OpenSSL 3, because operators compare them and alerting rules depend on them. Each engine
//! maps its own errors to them.

use std::fmt;

/// The OpenSSL library that is reported for all errors of this module (`ERR_LIB_SSL`).
pub(crate) const LIBRARY_SSL: u32 = 20;

/// HAProxy's kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The peer closed the connection before it sent anything.
    Empty,
    /// The connection failed during the handshake.
    Abort,
    /// The connection limit is reached (`maxsslconn`).
    TooMany,
    /// The peer requested a renegotiation.
    Renegotiation,
    /// The chain of the peer's certificate cannot be verified.
    CaFail,
    /// The certificate of the peer itself is not trusted.
    CrtFail,
    /// The server's certificate does not match `verifyhost`.
    Mismatch,
    /// The server's certificate does not match the server name that was sent.
    MismatchSni,
    /// Any other handshake failure.
    Handshake,
    /// The server rejected the early data.
    EarlyData,
    /// Any failure after the handshake.
    Fatal,
}

impl FailureKind {
    /// Returns the number in `fc_err`, the name, and the text in logs.
    pub fn facts(self) -> (u8, &'static str, &'static str) {
        match self {
            Self::Empty => (24, "SSL_EMPTY", "Connection closed during SSL handshake"),
            Self::Abort => (25, "SSL_ABORT", "Connection error during SSL handshake"),
            Self::TooMany => (27, "SSL_TOO_MANY", "Too many SSL connections"),
            Self::Renegotiation => (29, "SSL_RENEG", "Rejected a client-initiated SSL renegotiation attempt"),
            Self::CaFail => (30, "SSL_CA_FAIL", "SSL client CA chain cannot be verified"),
            Self::CrtFail => (31, "SSL_CRT_FAIL", "SSL client certificate not trusted"),
            Self::Mismatch => {
                (32, "SSL_MISMATCH", "Server presented an SSL certificate different from the configured one")
            }
            Self::MismatchSni => (
                33,
                "SSL_MISMATCH_SNI",
                "Server presented an SSL certificate different from the expected one",
            ),
            Self::Handshake => (34, "SSL_HANDSHAKE", "SSL handshake failure"),
            Self::EarlyData => (38, "SSL_EARLY_FAILED", "Server refused early data"),
            Self::Fatal => (43, "SSL_FATAL", "SSL fatal error"),
        }
    }
}

/// A failure that ends one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// HAProxy's kind.
    pub kind: FailureKind,
    /// The specific reason.
    pub reason: Reason,
    /// The verification result of the peer's certificate (`X509_V_ERR_…`); 0 if the certificate was not the cause.
    pub verify: u8,
}

impl Error {
    pub(crate) fn handshake(reason: Reason) -> Self {
        Self { kind: FailureKind::Handshake, reason, verify: 0 }
    }

    pub(crate) fn fatal(reason: Reason) -> Self {
        Self { kind: FailureKind::Fatal, reason, verify: 0 }
    }

    /// Returns OpenSSL's packed number (`ssl_fc_err`); 0 if OpenSSL's error queue would be empty.
    pub fn code(&self) -> u32 {
        match self.reason.number() {
            0 => 0,
            number => LIBRARY_SSL << 23 | number,
        }
    }

    /// Returns OpenSSL's text (`ssl_fc_err_str`): `error:0A000086:SSL routines::certificate verify failed`. Empty if the code is 0.
    pub fn text(&self) -> String {
        match self.code() {
            0 => String::new(),
            code => format!("error:{code:08X}:SSL routines::{}", self.reason.text()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, _, text) = self.kind.facts();
        match self.code() {
            0 => f.write_str(text),
            _ => write!(f, "{text} ({})", self.text()),
        }
    }
}

impl std::error::Error for Error {}

macro_rules! reasons {
    ($($name:ident = $number:literal, $alert:expr, $text:literal;)*) => {
        /// The reasons of OpenSSL (`SSL_R_…`) that can occur in Weir.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason {
            /// Not a library error: the transport failed or ended.
            None,
            /// The peer sent an alert with this TLS number.
            Alert(u8),
            $(#[doc = $text] $name,)*
        }

        impl Reason {
            fn of_library(self) -> (u32, Option<u8>, &'static str) {
                match self {
                    $(Self::$name => ($number, $alert, $text),)*
                    Self::None => (0, None, ""),
                    Self::Alert(alert) => (1000 + u32::from(alert), None, alert_text(alert)),
                }
            }

            /// Returns the reason with this OpenSSL number, if it is known.
            #[cfg_attr(not(feature = "legacy-tls"), allow(dead_code, reason = "only OpenSSL has numbers"))]
            pub(crate) fn of_number(number: u32) -> Option<Self> {
                match number {
                    0 => Some(Self::None),
                    $($number => Some(Self::$name),)*
                    _ => u8::try_from(number.checked_sub(1000)?).ok().map(Self::Alert),
                }
            }
        }
    };
}

const UNEXPECTED_MESSAGE: u8 = 10;
const BAD_RECORD_MAC: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;
const HANDSHAKE_FAILURE: u8 = 40;
const ILLEGAL_PARAMETER: u8 = 47;
const DECODE_ERROR: u8 = 50;
const DECRYPT_ERROR: u8 = 51;
const PROTOCOL_VERSION: u8 = 70;
const INTERNAL_ERROR: u8 = 80;
const NO_RENEGOTIATION: u8 = 100;
const UNRECOGNIZED_NAME: u8 = 112;
const CERTIFICATE_REQUIRED: u8 = 116;

// name = number in OpenSSL, the alert sent to the peer, text in OpenSSL
reasons! {
    InvalidAlert = 205, Some(DECODE_ERROR), "invalid alert";
    BadExtension = 110, Some(DECODE_ERROR), "bad extension";
    BadHandshakeLength = 332, Some(DECODE_ERROR), "bad handshake length";
    BadKeyShare = 108, Some(ILLEGAL_PARAMETER), "bad key share";
    BadPacket = 240, Some(DECODE_ERROR), "bad packet";
    BadRecordType = 443, Some(UNEXPECTED_MESSAGE), "bad record type";
    BadSignature = 123, Some(DECRYPT_ERROR), "bad signature";
    BadDhValue = 102, Some(ILLEGAL_PARAMETER), "bad dh value";
    BinderDoesNotVerify = 253, Some(DECRYPT_ERROR), "binder does not verify";
    CaKeyTooSmall = 397, Some(HANDSHAKE_FAILURE), "ca key too small";
    CallbackFailed = 234, Some(UNRECOGNIZED_NAME), "callback failed";
    CertificateVerifyFailed = 134, None, "certificate verify failed";
    DataAfterCloseNotify = 291, None, "application data after close notify";
    DecryptionFailed = 281, Some(BAD_RECORD_MAC), "decryption failed or bad record mac";
    DhKeyTooSmall = 394, Some(HANDSHAKE_FAILURE), "dh key too small";
    DigestCheckFailed = 149, Some(DECRYPT_ERROR), "digest check failed";
    EeKeyTooSmall = 399, Some(HANDSHAKE_FAILURE), "ee key too small";
    HttpRequest = 156, None, "http request";
    HttpsProxyRequest = 155, None, "https proxy request";
    InappropriateFallback = 373, Some(86), "inappropriate fallback";
    InternalError = 786691, Some(INTERNAL_ERROR), "internal error";
    LengthMismatch = 159, Some(DECODE_ERROR), "length mismatch";
    MissingSigalgsExtension = 112, Some(109), "missing sigalgs extension";
    NoApplicationProtocol = 235, Some(120), "no application protocol";
    NoCertificateSet = 179, Some(HANDSHAKE_FAILURE), "no certificate set";
    NoCiphersAvailable = 181, Some(HANDSHAKE_FAILURE), "no ciphers available";
    NoProtocolsAvailable = 191, Some(PROTOCOL_VERSION), "no protocols available";
    NoSharedCipher = 193, Some(HANDSHAKE_FAILURE), "no shared cipher";
    NoSharedGroups = 410, Some(HANDSHAKE_FAILURE), "no shared groups";
    NoSuitableKeyShare = 101, Some(HANDSHAKE_FAILURE), "no suitable key share";
    NoSuitableSignatureAlgorithm = 118, Some(HANDSHAKE_FAILURE), "no suitable signature algorithm";
    NoRenegotiation = 339, Some(NO_RENEGOTIATION), "no renegotiation";
    NotOnRecordBoundary = 182, Some(UNEXPECTED_MESSAGE), "not on record boundary";
    PacketLengthTooLong = 198, Some(RECORD_OVERFLOW), "packet length too long";
    PeerDidNotReturnACertificate = 199, Some(CERTIFICATE_REQUIRED), "peer did not return a certificate";
    RecordLengthMismatch = 213, Some(DECODE_ERROR), "record length mismatch";
    RecordTooSmall = 298, Some(DECODE_ERROR), "record too small";
    TooManyKeyUpdates = 132, Some(UNEXPECTED_MESSAGE), "too many key updates";
    TooManyWarnAlerts = 409, Some(UNEXPECTED_MESSAGE), "too many warn alerts";
    UnexpectedCcsMessage = 262, Some(UNEXPECTED_MESSAGE), "unexpected ccs message";
    UnexpectedEof = 294, None, "unexpected eof while reading";
    UnexpectedMessage = 244, Some(UNEXPECTED_MESSAGE), "unexpected message";
    UnexpectedRecord = 245, Some(UNEXPECTED_MESSAGE), "unexpected record";
    UnsupportedProtocol = 258, Some(PROTOCOL_VERSION), "unsupported protocol";
    UnsafeLegacyRenegotiation = 338, Some(HANDSHAKE_FAILURE), "unsafe legacy renegotiation disabled";
    VersionTooLow = 396, Some(HANDSHAKE_FAILURE), "version too low";
    WrongCertificateType = 383, Some(ILLEGAL_PARAMETER), "wrong certificate type";
    WrongCipherReturned = 261, Some(ILLEGAL_PARAMETER), "wrong cipher returned";
    WrongCurve = 378, Some(ILLEGAL_PARAMETER), "wrong curve";
    WrongSignatureType = 370, Some(ILLEGAL_PARAMETER), "wrong signature type";
    WrongVersionNumber = 267, Some(PROTOCOL_VERSION), "wrong version number";
}

impl Reason {
    /// Returns OpenSSL's number.
    pub fn number(self) -> u32 {
        self.of_library().0
    }

    /// Returns the alert to send to the peer, if any.
    pub fn alert(self) -> Option<u8> {
        self.of_library().1
    }

    /// Returns OpenSSL's text.
    pub fn text(self) -> &'static str {
        self.of_library().2
    }
}

/// Returns the OpenSSL 3.0 text for a received alert.
fn alert_text(alert: u8) -> &'static str {
    match alert {
        10 => "sslv3 alert unexpected message",
        20 => "sslv3 alert bad record mac",
        21 => "tlsv1 alert decryption failed",
        22 => "tlsv1 alert record overflow",
        30 => "sslv3 alert decompression failure",
        40 => "sslv3 alert handshake failure",
        41 => "sslv3 alert no certificate",
        42 => "sslv3 alert bad certificate",
        43 => "sslv3 alert unsupported certificate",
        44 => "sslv3 alert certificate revoked",
        45 => "sslv3 alert certificate expired",
        46 => "sslv3 alert certificate unknown",
        47 => "sslv3 alert illegal parameter",
        48 => "tlsv1 alert unknown ca",
        49 => "tlsv1 alert access denied",
        50 => "tlsv1 alert decode error",
        51 => "tlsv1 alert decrypt error",
        60 => "tlsv1 alert export restriction",
        70 => "tlsv1 alert protocol version",
        71 => "tlsv1 alert insufficient security",
        80 => "tlsv1 alert internal error",
        86 => "tlsv1 alert inappropriate fallback",
        90 => "tlsv1 alert user cancelled",
        100 => "tlsv1 alert no renegotiation",
        109 => "tlsv13 alert missing extension",
        110 => "tlsv1 unsupported extension",
        111 => "tlsv1 certificate unobtainable",
        112 => "tlsv1 unrecognized name",
        113 => "tlsv1 bad certificate status response",
        114 => "tlsv1 bad certificate hash value",
        115 => "tlsv1 alert unknown psk identity",
        116 => "tlsv13 alert certificate required",
        120 => "tlsv1 alert no application protocol",
        _ => "unknown alert type",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_texts_match_openssl() {
        for (reason, text) in [
            (Reason::WrongVersionNumber, "error:0A00010B:SSL routines::wrong version number"),
            (Reason::Alert(46), "error:0A000416:SSL routines::sslv3 alert certificate unknown"),
            (Reason::NoSharedCipher, "error:0A0000C1:SSL routines::no shared cipher"),
            (Reason::None, ""),
        ] {
            assert_eq!(Error::handshake(reason).text(), text);
        }
    }
}
