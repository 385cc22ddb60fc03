//! rustls's errors as OpenSSL's reasons.

use rustls::{
    AlertDescription, CertRevocationListError, CertificateError, Error as Engine, InvalidMessage,
    PeerIncompatible, PeerMisbehaved,
};

use crate::error::{Error, Kind, Reason};
use crate::verify_code::{self as code, VerifyCode};

/// What HAProxy would log of it.
pub(crate) fn error_of(error: &Engine) -> Error {
    if let Engine::InvalidCertificate(certificate) = error {
        let verify = verify_code_of(certificate);
        let kind = match verify {
            code::HOSTNAME_MISMATCH => Kind::MismatchSni,
            _ => Kind::Handshake,
        };
        return Error { kind, reason: Reason::CertificateVerifyFailed, verify: verify.0 };
    }
    Error::handshake(reason_of(error))
}

fn reason_of(error: &Engine) -> Reason {
    match error {
        Engine::AlertReceived(alert) => Reason::Alert(alert_of(*alert)),
        Engine::InappropriateMessage { .. } | Engine::InappropriateHandshakeMessage { .. } => {
            Reason::UnexpectedMessage
        }
        Engine::InvalidMessage(message) => match message {
            InvalidMessage::InvalidContentType => Reason::BadRecordType,
            InvalidMessage::UnknownProtocolVersion => Reason::WrongVersionNumber,
            InvalidMessage::MessageTooLarge => Reason::PacketLengthTooLong,
            InvalidMessage::HandshakePayloadTooLarge => Reason::BadHandshakeLength,
            InvalidMessage::InvalidKeyUpdate => Reason::BadPacket,
            _ => Reason::LengthMismatch,
        },
        Engine::NoCertificatesPresented => Reason::PeerDidNotReturnACertificate,
        Engine::DecryptError => Reason::DecryptionFailed,
        Engine::PeerSentOversizedRecord => Reason::PacketLengthTooLong,
        Engine::PeerIncompatible(why) => incompatible(why),
        Engine::PeerMisbehaved(why) => misbehaved(why),
        Engine::General(why) if why.contains("no server certificate chain resolved") => {
            Reason::CallbackFailed
        }
        Engine::InvalidCertRevocationList(CertRevocationListError::ParseError) => Reason::BadPacket,
        _ => Reason::InternalError,
    }
}

fn incompatible(why: &PeerIncompatible) -> Reason {
    use PeerIncompatible as Why;
    match why {
        Why::NoCipherSuitesInCommon => Reason::NoSharedCipher,
        Why::NoKxGroupsInCommon => Reason::NoSharedGroups,
        Why::NoSignatureSchemesInCommon | Why::NoCertificateRequestSignatureSchemesInCommon => {
            Reason::NoSuitableSignatureAlgorithm
        }
        Why::SignatureAlgorithmsExtensionRequired => Reason::MissingSigalgsExtension,
        Why::ServerDoesNotSupportTls12Or13
        | Why::ServerTlsVersionIsDisabledByOurConfig
        | Why::SupportedVersionsExtensionRequired
        | Why::Tls12NotOffered
        | Why::Tls12NotOfferedOrEnabled => Reason::UnsupportedProtocol,
        Why::KeyShareExtensionRequired | Why::NamedGroupsExtensionRequired => Reason::NoSharedGroups,
        _ => Reason::BadExtension,
    }
}

fn misbehaved(why: &PeerMisbehaved) -> Reason {
    use PeerMisbehaved as Why;
    match why {
        Why::IncorrectBinder => Reason::BinderDoesNotVerify,
        Why::InvalidKeyShare | Why::WrongGroupForKeyShare | Why::MissingKeyShare => Reason::BadKeyShare,
        Why::TooManyKeyUpdateRequests => Reason::TooManyKeyUpdates,
        Why::TooManyWarningAlertsReceived => Reason::TooManyWarnAlerts,
        Why::TooManyRenegotiationRequests => Reason::NoRenegotiation,
        Why::IllegalMiddleboxChangeCipherSpec => Reason::UnexpectedCcsMessage,
        Why::KeyEpochWithPendingFragment => Reason::NotOnRecordBoundary,
        Why::AttemptedDowngradeToTls12WhenTls13IsSupported => Reason::InappropriateFallback,
        Why::SignedKxWithWrongAlgorithm | Why::SignedHandshakeWithUnadvertisedSigScheme => {
            Reason::BadSignature
        }
        _ => Reason::BadExtension,
    }
}

fn alert_of(alert: AlertDescription) -> u8 {
    alert.into()
}

/// OpenSSL's number for what webpki found.
#[allow(deprecated, reason = "webpki still has both forms of some")]
pub(super) fn verify_code_of(error: &CertificateError) -> VerifyCode {
    use CertificateError as Why;
    match error {
        Why::Expired | Why::ExpiredContext { .. } => code::CERT_HAS_EXPIRED,
        Why::NotValidYet | Why::NotValidYetContext { .. } => code::CERT_NOT_YET_VALID,
        Why::Revoked => code::CERT_REVOKED,
        Why::UnhandledCriticalExtension => code::UNHANDLED_CRITICAL_EXTENSION,
        Why::UnknownIssuer => code::UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
        Why::UnknownRevocationStatus => code::UNABLE_TO_GET_CRL,
        Why::ExpiredRevocationList | Why::ExpiredRevocationListContext { .. } => code::CRL_HAS_EXPIRED,
        Why::BadSignature
        | Why::UnsupportedSignatureAlgorithm
        | Why::UnsupportedSignatureAlgorithmContext { .. }
        | Why::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => code::CERT_SIGNATURE_FAILURE,
        Why::NotValidForName | Why::NotValidForNameContext { .. } => code::HOSTNAME_MISMATCH,
        Why::InvalidPurpose | Why::InvalidPurposeContext { .. } => code::INVALID_PURPOSE,
        Why::Other(other) => {
            other.0.downcast_ref::<VerifyCode>().copied().unwrap_or(code::APPLICATION_VERIFICATION)
        }
        _ => code::APPLICATION_VERIFICATION,
    }
}
