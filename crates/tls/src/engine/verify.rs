//! The verification of peer certificates, behind the traits of rustls.
//!
//! rustls calls a verifier during a handshake; the verifier calls [`Judge`], which decides.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};

use crate::settings::{AlternativeName, ClientVerify, Trust, VerifyMode};
use crate::verify::{Check, Purpose, Signed, Trusted};
use crate::verify_code::{self as code, VerifyCode};
use crate::verify_policy::Judge;
use crate::x509;

fn algorithms() -> WebPkiSupportedAlgorithms {
    aws_lc_rs::default_provider().signature_verification_algorithms
}

/// Checks a signature in a chain.
pub(crate) fn check(signed: &Signed<'_>) -> bool {
    algorithms().all.iter().any(|one| {
        one.signature_alg_id().as_ref() == signed.algorithm
            && one.public_key_alg_id().as_ref() == signed.key_algorithm
            && one.verify_signature(signed.key, signed.message, signed.signature).is_ok()
    })
}

fn trusted(trust: &Trust) -> Trusted {
    trusted_with(trust, check)
}

/// Returns the trust anchors in `trust`, with `check` for the signatures.
pub(crate) fn trusted_with(trust: &Trust, check: Check) -> Trusted {
    Trusted::new(trust.authorities.iter().chain(&trust.unnamed), &trust.crls, check)
}

/// Verifies a chain outside of a handshake, at `now` in seconds since 1970. Returns whether every error was ignored. Reports each
/// error with its depth, counted from `own`. All certificates are DER.
pub fn verify_chain(
    trust: &Trust,
    own: &[u8],
    rest: &[&[u8]],
    is_server: bool,
    now: i64,
    forgive: &mut dyn FnMut(VerifyCode, usize) -> bool,
) -> bool {
    let purpose = if is_server { Purpose::Server } else { Purpose::Client };
    trusted(trust).verify(own, rest, purpose, now, forgive).is_ok()
}

/// Returns the error for which rustls sends the same alert as OpenSSL.
fn refusal(code: VerifyCode) -> Error {
    Error::InvalidCertificate(match code {
        code::CERT_HAS_EXPIRED | code::CRL_HAS_EXPIRED => CertificateError::Expired,
        code::CERT_REVOKED => CertificateError::Revoked,
        code::UNABLE_TO_GET_ISSUER_CERT
        | code::UNABLE_TO_GET_ISSUER_CERT_LOCALLY
        | code::DEPTH_ZERO_SELF_SIGNED_CERT
        | code::SELF_SIGNED_CERT_IN_CHAIN
        | code::UNABLE_TO_VERIFY_LEAF_SIGNATURE
        | code::UNABLE_TO_GET_CRL
        | code::UNABLE_TO_GET_CRL_ISSUER
        | code::CERT_CHAIN_TOO_LONG
        | code::PATH_LENGTH_EXCEEDED
        | code::INVALID_CA => CertificateError::UnknownIssuer,
        code::CERT_SIGNATURE_FAILURE | code::CRL_SIGNATURE_FAILURE => CertificateError::BadSignature,
        code::CERT_NOT_YET_VALID | code::CRL_NOT_YET_VALID | code::CERT_UNTRUSTED | code::CERT_REJECTED => {
            CertificateError::BadEncoding
        }
        code => CertificateError::Other(OtherError(Arc::new(code))),
    })
}

/// Lets `judge` decide; `sent` is the server name that was sent.
fn verify(
    judge: &Judge,
    own: &CertificateDer<'_>,
    rest: &[CertificateDer<'_>],
    sent: Option<&str>,
) -> Result<(), Error> {
    let rest: Vec<&[u8]> = rest.iter().map(|der| &**der).collect();
    judge.verify(own, &rest, sent).map_err(refusal)
}

/// Returns the key of a certificate of any version.
fn key_of(certificate: &CertificateDer<'_>) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let facts = x509::CertificateFields::parse(certificate);
    let facts = facts.map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    Ok(SubjectPublicKeyInfoDer::from(facts.key_info().to_vec()))
}

fn check_tls12(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let key = key_of(certificate)?;
    let bad = || Error::InvalidCertificate(CertificateError::BadSignature);
    let (key_algorithm, key) = x509::key_parts(&key).ok_or_else(bad)?;
    let known = algorithms();
    let mut fitting =
        known.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme).flat_map(|row| row.1);
    let is_good = fitting.any(|one| {
        one.public_key_alg_id().as_ref() == key_algorithm
            && one.verify_signature(key, message, signed.signature()).is_ok()
    });
    if is_good { Ok(HandshakeSignatureValid::assertion()) } else { Err(bad()) }
}

fn check_tls13(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    verify_tls13_signature_with_raw_key(message, &key_of(certificate)?, signed, &algorithms())
}

/// Returns the schemes with which peers may sign.
fn limited(schemes: &[u16]) -> Vec<SignatureScheme> {
    let all = algorithms().supported_schemes();
    if schemes.is_empty() {
        return all;
    }
    schemes.iter().copied().map(SignatureScheme::from).filter(|scheme| all.contains(scheme)).collect()
}

/// The key of the certificate is on a curve that the line does not allow.
#[derive(Debug)]
pub(super) struct WrongCurve;

impl fmt::Display for WrongCurve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrong curve")
    }
}

impl std::error::Error for WrongCurve {}

/// Returns the verifier for a listener's clients.
pub(crate) fn of_clients(
    verify: &ClientVerify,
    schemes: &[u16],
    groups: &[u16],
) -> Arc<dyn ClientCertVerifier> {
    let subjects = verify.trust.authorities.iter().filter(|_| !verify.hides_names);
    let subjects = subjects.filter_map(|der| x509::subject_of(der));
    Arc::new(Clients {
        is_mandatory: verify.mode == VerifyMode::Required,
        judge: Judge::of_clients(trusted(&verify.trust), verify),
        hints: subjects.map(|name| DistinguishedName::in_sequence(&name)).collect(),
        schemes: limited(schemes),
        groups: groups.into(),
    })
}

/// The verifier for client certificates.
struct Clients {
    is_mandatory: bool,
    /// The curves allowed for keys in TLS 1.2 (RFC 8422 section 5.1.1); all if empty.
    groups: Box<[u16]>,
    judge: Judge,
    hints: Vec<DistinguishedName>,
    schemes: Vec<SignatureScheme>,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        verify(&self.judge, own, rest, None)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let curve = x509::CertificateFields::parse(certificate).ok().and_then(|facts| facts.group());
        if curve.is_some_and(|curve| !self.groups.is_empty() && !self.groups.contains(&curve)) {
            return Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(WrongCurve)))));
        }
        check_tls12(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        check_tls13(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// The verifier for a server's certificate.
pub(crate) struct OfServer {
    judge: Judge,
    schemes: Vec<SignatureScheme>,
}

impl fmt::Debug for OfServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfServer").finish_non_exhaustive()
    }
}

/// Returns a verifier that trusts any server, or only servers with a chain that ends at one of `trust`.
/// `names` are the host of `verifyhost` and the names of `verifysan`.
pub(crate) fn of_server(
    trust: Option<&Trust>,
    names: (Option<&str>, &[AlternativeName]),
    schemes: &[u16],
) -> Arc<OfServer> {
    let judge = Judge::of_server(trust.map(trusted), names);
    Arc::new(OfServer { judge, schemes: limited(schemes) })
}

impl ServerCertVerifier for OfServer {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        sent: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let sent = if let ServerName::DnsName(name) = sent { Some(name.as_ref()) } else { None };
        verify(&self.judge, own, rest, sent)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        check_tls12(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        check_tls13(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
