//! Verification of peer certificates, the same as with rustls ([`crate::verify`]).
//!
//! OpenSSL builds a chain from the peer's certificates, without trust anchors and ignoring every error. In its last callback, it
//! reports the peer's own certificate as valid; Weir's own verification then decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Verifier;
use openssl::ssl::{Ssl, SslVerifyMode};
use openssl::x509::{X509StoreContextRef, X509VerifyResult};

use crate::record::ALERT;
use crate::verify::Signed;
use crate::verify_code::{self as code, VerifyCode};
use crate::verify_policy::Judge;
use crate::{der, engine};

/// The result of verification for one connection. Written by the thread that processes the connection.
#[derive(Debug)]
pub(super) struct Decision {
    state: AtomicU8,
    is_due: bool,
}

/// A decision, or the lack of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionState {
    Open,
    Good,
    Refused(VerifyCode),
}

const OPEN: u8 = 0;
/// The value that stands for success. It is not an error number.
const GOOD: u8 = u8::MAX;

impl Decision {
    pub(super) fn new(is_due: bool) -> Arc<Self> {
        Arc::new(Self { state: AtomicU8::new(OPEN), is_due })
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    pub(super) fn state(&self) -> DecisionState {
        match self.state.load(Relaxed) {
            OPEN => DecisionState::Open,
            GOOD => DecisionState::Good,
            number => DecisionState::Refused(VerifyCode(number)),
        }
    }
}

/// Sets `judge` to decide about the peer's certificate; `name` is the server name that was sent.
pub(super) fn ask(
    ssl: &mut Ssl,
    mode: SslVerifyMode,
    judge: Arc<Judge>,
    name: Option<Box<str>>,
    decision: Arc<Decision>,
) {
    ssl.set_verify_callback(mode, move |is_well, context| {
        // Each chain is verified, because a server that renegotiates may present a different one.
        let is_refused = matches!(decision.state(), DecisionState::Refused(_));
        if !is_refused && is_well && context.error_depth() == 0 {
            let number = match verify(&judge, name.as_deref(), context) {
                Ok(()) => GOOD,
                Err(code) => code.0.clamp(OPEN + 1, GOOD - 1),
            };
            decision.state.store(number, Relaxed);
        }
        let goes_on = !matches!(decision.state(), DecisionState::Refused(_));
        context.set_error(if goes_on {
            X509VerifyResult::OK
        } else {
            X509VerifyResult::APPLICATION_VERIFICATION
        });
        goes_on
    });
}

fn verify(judge: &Judge, name: Option<&str>, context: &X509StoreContextRef) -> Result<(), VerifyCode> {
    let chain: Vec<Vec<u8>> =
        context.chain().into_iter().flatten().filter_map(|one| one.to_der().ok()).collect();
    let Some((own, rest)) = chain.split_first() else { return Err(code::UNSPECIFIED) };
    let rest: Vec<&[u8]> = rest.iter().map(|one| &**one).collect();
    judge.verify(own, &rest, name)
}

/// Replaces OpenSSL's alert with the one for the actual error, which OpenSSL does not report. In TLS 1.3, the alert is encrypted
/// and cannot be changed.
pub(super) fn put_alert(code: VerifyCode, sent: &mut [u8]) {
    if let [.., ALERT, 3, _, 0, 2, 2, alert] = sent {
        *alert = code.alert();
    }
}

/// Verifies a signature in a chain, including algorithms that webpki does not support.
pub(super) fn check(signed: &Signed<'_>) -> bool {
    engine::verify::check(signed) || check_with_openssl(signed).unwrap_or(false)
}

type Digest = fn() -> MessageDigest;

/// Signature algorithms, as DER, and their digests.
#[rustfmt::skip]
const DIGESTS: &[(&[u8], Digest)] = &[
    // RSA with PKCS #1 v1.5
    (&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5],  MessageDigest::sha1),
    (&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 14], MessageDigest::sha224),
    (&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11], MessageDigest::sha256),
    (&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12], MessageDigest::sha384),
    (&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13], MessageDigest::sha512),
    // ECDSA
    (&[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1],           MessageDigest::sha1),
    (&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 1],        MessageDigest::sha224),
    (&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2],        MessageDigest::sha256),
    (&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3],        MessageDigest::sha384),
    (&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4],        MessageDigest::sha512),
    // DSA
    (&[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x38, 4, 3],           MessageDigest::sha1),
    (&[6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 1],        MessageDigest::sha224),
    (&[6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 2],        MessageDigest::sha256),
];

fn check_with_openssl(signed: &Signed<'_>) -> Option<bool> {
    let (_, digest) = DIGESTS.iter().find(|(algorithm, _)| signed.algorithm.starts_with(algorithm))?;
    let key = PKey::public_key_from_der(&key_info(signed.key_algorithm, signed.key)).ok()?;
    Verifier::new(digest(), &key).ok()?.verify_oneshot(signed.signature, signed.message).ok()
}

/// Builds a SubjectPublicKeyInfo (RFC 5280, 4.1) from its parts.
fn key_info(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    let value = |tag: u8, parts: [&[u8]; 2]| {
        let length = parts[0].len() + parts[1].len();
        let bytes = length.to_be_bytes();
        let start = length.leading_zeros() as usize / 8;
        let mut der = vec![tag];
        if length >= 0x80 {
            der.push(0x80 | (bytes.len() - start) as u8);
        }
        der.extend_from_slice(if length == 0 { &[0] } else { &bytes[start..] });
        [&der, parts[0], parts[1]].concat()
    };
    let algorithm = value(der::SEQUENCE, [algorithm, &[]]);
    value(der::SEQUENCE, [&algorithm, &value(der::BIT_STRING, [&[0], key])])
}
