//! Verification of peers' certificates by webpki, with OpenSSL's numbers.
//!
//! rustls calls a verifier in the midst of a handshake and takes yes or no. What was found, and forgiven, is left for the
//! connection whose turn it is ([`take_outcome`]).

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use super::error::verify_code_of;
use crate::settings::{ClientVerify, Trust, VerifyMode};
use crate::verify_code::{self as code, VerifyCode};

/// What verification found in the peer's chain; all 0 where nothing was wrong or nothing was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The first error above the peer's own certificate, and how far above it (`ssl_c_ca_err`, `ssl_c_ca_err_depth`).
    pub ca: VerifyCode,
    /// How many certificates above the peer's own it was.
    pub ca_depth: u8,
    /// The first error of the peer's own certificate (`ssl_c_err`).
    pub own: VerifyCode,
}

thread_local! {
    static OUTCOME: Cell<Outcome> = const { Cell::new(Outcome {
        ca: VerifyCode(0), ca_depth: 0, own: VerifyCode(0),
    }) };
}

/// What the verifiers found during the turn that has just ended.
pub(crate) fn take_outcome() -> Outcome {
    OUTCOME.take()
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    aws_lc_rs::default_provider().signature_verification_algorithms
}

fn refused(code: VerifyCode) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(code))))
}

fn roots(trust: &Trust) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let all = trust.authorities.iter().chain(&trust.unnamed);
    roots.add_parsable_certificates(all.map(|der| CertificateDer::from(der.to_vec())));
    roots
}

fn crls(trust: &Trust) -> Vec<CertificateRevocationListDer<'static>> {
    trust.crls.iter().map(|der| CertificateRevocationListDer::from(der.to_vec())).collect()
}

/// Which error a chain has, or none. What webpki finds may lie anywhere in it: the certificates of the peer tell where.
fn judge(result: Result<(), Error>, own: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> Outcome {
    let Err(error) = result else { return Outcome::default() };
    let found = match &error {
        Error::InvalidCertificate(error) => verify_code_of(error),
        _ => code::APPLICATION_VERIFICATION,
    };
    // OpenSSL looks for issuers from the peer's own certificate upwards and names the one whose issuer is missing.
    if found == code::UNABLE_TO_GET_ISSUER_CERT_LOCALLY {
        if is_self_signed(own) {
            return Outcome { own: code::DEPTH_ZERO_SELF_SIGNED_CERT, ..Outcome::default() };
        }
        if rest.is_empty() {
            return Outcome { own: found, ..Outcome::default() };
        }
        let depth = u8::try_from(rest.len()).unwrap_or(u8::MAX);
        let ca =
            if rest.last().is_some_and(is_self_signed) { code::SELF_SIGNED_CERT_IN_CHAIN } else { found };
        return Outcome { ca, ca_depth: depth, own: VerifyCode(0) };
    }
    Outcome { own: found, ..Outcome::default() }
}

fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    crate::x509::Facts::parse(certificate).is_ok_and(|facts| facts.is_self_issued())
}

/// How a listener verifies its clients.
pub(crate) fn of_clients(
    verify: &ClientVerify,
    schemes: &[u16],
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let named = Trust { unnamed: Vec::new(), ..(*verify.trust).clone() };
    let (roots, hints) = (roots(&verify.trust), roots(&named).subjects());
    let inner = if roots.is_empty() {
        None
    } else {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .with_crls(crls(&verify.trust))
            .allow_unauthenticated();
        Some(builder.build().map_err(|error| error.to_string())?)
    };
    let schemes = limited(schemes);
    Ok(Arc::new(Clients { verify: verify.clone(), inner, hints, schemes }))
}

/// The schemes that peers may sign with.
fn limited(schemes: &[u16]) -> Vec<SignatureScheme> {
    let all = algorithms().supported_schemes();
    if schemes.is_empty() {
        return all;
    }
    schemes.iter().copied().map(SignatureScheme::from).filter(|scheme| all.contains(scheme)).collect()
}

/// The certificates of clients.
struct Clients {
    verify: ClientVerify,
    inner: Option<Arc<dyn ClientCertVerifier>>,
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
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let result = match &self.inner {
            Some(inner) => inner.verify_client_cert(own, rest, now).map(drop),
            None => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        };
        let found = judge(result, own, rest);
        OUTCOME.set(found);
        let forgiven = |code: VerifyCode, codes: crate::VerifyCodes| code == code::OK || codes.contains(code);
        if !forgiven(found.ca, self.verify.ca_ignore) {
            return Err(refused(found.ca));
        }
        if !forgiven(found.own, self.verify.crt_ignore) {
            return Err(refused(found.own));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// How a server's certificate is verified.
pub(crate) struct OfServer {
    /// Whom to trust; `None` with `verify none`.
    chain: Option<Arc<dyn ServerCertVerifier>>,
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
pub(crate) fn of_server(
    trust: Option<&Trust>,
    host: Option<&str>,
    schemes: &[u16],
) -> Result<Arc<OfServer>, String> {
    let chain = trust
        .map(|trust| -> Result<Arc<dyn ServerCertVerifier>, String> {
            if trust.authorities.is_empty() {
                return Ok(Arc::new(Nobody));
            }
            let provider = Arc::new(aws_lc_rs::default_provider());
            let builder =
                rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots(trust)), provider)
                    .with_crls(crls(trust));
            Ok(builder.build().map_err(|error| error.to_string())?)
        })
        .transpose()?;
    Ok(Arc::new(OfServer { chain, host: host.map(Box::from), schemes: limited(schemes) }))
}

impl ServerCertVerifier for OfServer {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        sent: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        let named = ParsedCertificate::try_from(own)?;
        // webpki does both at once. The name is looked at apart, because it may be no name of the certificate at all.
        let result = match chain.verify_server_cert(own, rest, sent, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ))
            | Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        let found = judge(result, own, rest);
        OUTCOME.set(found);
        for code in [found.ca, found.own] {
            if code != code::OK {
                return Err(refused(code));
            }
        }
        let wanted = match &self.host {
            Some(host) => ServerName::try_from(&**host).ok(),
            None => matches!(sent, ServerName::DnsName(_)).then(|| sent.clone()),
        };
        let Some(wanted) = wanted else { return Ok(ServerCertVerified::assertion()) };
        match verify_server_name(&named, &wanted) {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(_) => Err(refused(code::HOSTNAME_MISMATCH)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// No authority at all: no chain can end anywhere.
#[derive(Debug)]
struct Nobody;

impl ServerCertVerifier for Nobody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Vec::new()
    }
}
