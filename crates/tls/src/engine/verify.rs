//! The certificates of peers, as rustls asks about them.
//!
//! rustls calls a verifier in the midst of a handshake and takes yes or no. What was found, and
//! forgiven, is left for the connection whose turn it is ([`take_outcome`]), or was left by a session
//! that is resumed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use base::clock::WallTime;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};

use crate::error::Kind;
use crate::settings::{ClientVerify, Trust, VerifyMode};
use crate::verify::{Purpose, Signed, Trusted};
use crate::verify_code::{self as code, VerifyCode};
use crate::x509;

/// What verification found in the peer's chain; all 0 where nothing was wrong or nothing was
/// verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The last error of all, forgiven or not (`ssl_c_verify`).
    pub last: VerifyCode,
    /// The first error above the peer's own certificate (`ssl_c_ca_err`).
    pub ca: VerifyCode,
    /// How far above it was (`ssl_c_ca_err_depth`).
    pub ca_depth: u8,
    /// The first error of the peer's own certificate (`ssl_c_err`).
    pub own: VerifyCode,
    /// What was not forgiven, as HAProxy calls it.
    pub(crate) refused: Option<Kind>,
}

thread_local! {
    static OUTCOME: Cell<Outcome> = const { Cell::new(Outcome {
        last: code::OK, ca: code::OK, ca_depth: 0, own: code::OK, refused: None,
    }) };
    static ROOT: RefCell<Option<Arc<[u8]>>> = const { RefCell::new(None) };
}

/// The end of the chain that was verified during the turn that has just ended.
pub(crate) fn take_root() -> Option<Arc<[u8]>> {
    ROOT.take()
}

/// What the verifiers found so far.
pub(super) fn outcome() -> Outcome {
    OUTCOME.get()
}

pub(super) fn set_outcome(outcome: Outcome) {
    OUTCOME.set(outcome);
}

/// What the verifiers found during the turn that has just ended.
pub(super) fn take_outcome() -> Outcome {
    OUTCOME.take()
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    aws_lc_rs::default_provider().signature_verification_algorithms
}

/// Checks a signature within a chain.
fn check(signed: &Signed<'_>) -> bool {
    algorithms().all.iter().any(|one| {
        one.signature_alg_id().as_ref() == signed.algorithm
            && one.public_key_alg_id().as_ref() == signed.key_algorithm
            && one.verify_signature(signed.key, signed.message, signed.signature).is_ok()
    })
}

fn trusted(trust: &Trust) -> Trusted {
    Trusted::new(trust.authorities.iter().chain(&trust.unnamed), &trust.crls, check)
}

/// Verifies a chain outside of a handshake, at `now` in seconds since 1970: whether every fault was
/// forgiven. Each is told with its depth, counted from `own`, as DER like all of them.
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

/// The error that makes rustls tell the peer what OpenSSL would.
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

/// Verifies a chain with what `trusted` has, and leaves the outcome. `forgiven` tells of each fault
/// and its depth whether to go on.
fn verify(
    trusted: &Trusted,
    own: &CertificateDer<'_>,
    rest: &[CertificateDer<'_>],
    purpose: Purpose,
    forgiven: impl Fn(VerifyCode, usize) -> Result<(), Kind>,
) -> Result<(), Error> {
    let mut outcome = Outcome::default();
    let rest: Vec<&[u8]> = rest.iter().map(|der| &**der).collect();
    let result = trusted.verify(own, &rest, purpose, WallTime::now().seconds, &mut |code, depth| {
        outcome.last = code;
        if depth == 0 && outcome.own == code::OK {
            outcome.own = code;
        } else if depth > 0 && outcome.ca == code::OK {
            (outcome.ca, outcome.ca_depth) = (code, u8::try_from(depth).unwrap_or(u8::MAX));
        }
        outcome.refused = forgiven(code, depth).err();
        outcome.refused.is_none()
    });
    OUTCOME.set(outcome);
    result.map(|root| ROOT.set(Some(root))).map_err(|_| refusal(outcome.last))
}

/// The key of a certificate of whichever version.
fn key_of(certificate: &CertificateDer<'_>) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let facts = x509::Facts::parse(certificate);
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

/// The schemes that peers may sign with.
fn limited(schemes: &[u16]) -> Vec<SignatureScheme> {
    let all = algorithms().supported_schemes();
    if schemes.is_empty() {
        return all;
    }
    schemes.iter().copied().map(SignatureScheme::from).filter(|scheme| all.contains(scheme)).collect()
}

/// How a listener verifies its clients.
pub(crate) fn of_clients(verify: &ClientVerify, schemes: &[u16]) -> Arc<dyn ClientCertVerifier> {
    let subjects = verify.trust.authorities.iter().filter_map(|der| x509::subject_of(der));
    Arc::new(Clients {
        verify: verify.clone(),
        trusted: trusted(&verify.trust),
        hints: subjects.map(|name| DistinguishedName::in_sequence(&name)).collect(),
        schemes: limited(schemes),
    })
}

/// The certificates of clients.
struct Clients {
    verify: ClientVerify,
    trusted: Trusted,
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
        self.verify.mode == VerifyMode::Required
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
        let forgiven = |code, depth| {
            let (codes, kind) = match depth {
                0 => (self.verify.crt_ignore, Kind::CrtFail),
                _ => (self.verify.ca_ignore, Kind::CaFail),
            };
            if codes.contains(code) { Ok(()) } else { Err(kind) }
        };
        verify(&self.trusted, own, rest, Purpose::Client, forgiven)?;
        Ok(ClientCertVerified::assertion())
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

/// How a server's certificate is verified.
pub(crate) struct OfServer {
    /// Whom to trust; `None` with `verify none`.
    trusted: Option<Trusted>,
    /// The name that the certificate must have (`verifyhost`) instead of the one that was sent.
    host: Option<Box<str>>,
    schemes: Vec<SignatureScheme>,
}

impl fmt::Debug for OfServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfServer").finish_non_exhaustive()
    }
}

/// Trust in any server, or in those whose chain ends at one of `trust`.
pub(crate) fn of_server(trust: Option<&Trust>, host: Option<&str>, schemes: &[u16]) -> Arc<OfServer> {
    let trusted = trust.map(trusted);
    Arc::new(OfServer { trusted, host: host.map(Box::from), schemes: limited(schemes) })
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
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        verify(trusted, own, rest, Purpose::Server, |_, _| Err(Kind::Handshake))?;
        let sent = if let ServerName::DnsName(name) = sent { Some(name.as_ref()) } else { None };
        let (wanted, kind) = match &self.host {
            Some(host) => (Some(&**host), Kind::Mismatch),
            None => (sent, Kind::MismatchSni),
        };
        let Some(wanted) = wanted else { return Ok(ServerCertVerified::assertion()) };
        if x509::Facts::parse(own).is_ok_and(|facts| facts.is_for(wanted)) {
            return Ok(ServerCertVerified::assertion());
        }
        let last = code::HOSTNAME_MISMATCH;
        OUTCOME.set(Outcome { last, own: last, refused: Some(kind), ..Outcome::default() });
        Err(refusal(last))
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
