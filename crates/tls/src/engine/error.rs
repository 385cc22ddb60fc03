//! Maps rustls errors to OpenSSL's reasons.

use rustls::{
    AlertDescription, CertRevocationListError, CertificateError, Error as Engine, InvalidMessage,
    PeerIncompatible, PeerMisbehaved,
};

use crate::error::{Error, Reason};

/// Returns the error that HAProxy would log.
pub(crate) fn error_of(error: &Engine) -> Error {
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
        Engine::InvalidCertificate(CertificateError::BadSignature) => Reason::BadSignature,
        Engine::InvalidCertificate(CertificateError::Other(why))
            if why.0.is::<super::verify::WrongCurve>() =>
        {
            Reason::WrongCurve
        }
        Engine::InvalidCertificate(_) => Reason::CertificateVerifyFailed,
        Engine::NoCertificatesPresented => Reason::PeerDidNotReturnACertificate,
        Engine::NoApplicationProtocol => Reason::NoApplicationProtocol,
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
        Why::KeyShareExtensionRequired | Why::NamedGroupsExtensionRequired => Reason::NoSuitableKeyShare,
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
