//! Verifies X.509 chains in OpenSSL's order, with its error numbers (RFC 5280, 6; X509_verify_cert(3)).
//!
//! A chain is built from the peer's certificate upwards. Each issuer is first looked up among the trusted certificates. The chain
//! is then checked in several passes, as in OpenSSL: extensions, strength, revocation, signatures and dates, names. Each error is
//! reported with its depth, and the caller decides whether to ignore it (`ca-ignore-err`, `crt-ignore-err`).

mod build;
mod constraints;
mod parsed;
mod revocation;

use std::collections::HashMap;
use std::sync::Arc;

use crate::verify_code::{self as code, VerifyCode};

use build::Chain;
use parsed::Parsed;
use revocation::Lists;

/// The intended use of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Client,
    Server,
}

/// A signature: its algorithm and the key to check it with, both as the contents of their DER.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed<'a> {
    pub(crate) algorithm: &'a [u8],
    pub(crate) key_algorithm: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) message: &'a [u8],
    pub(crate) signature: &'a [u8],
}

/// Checks a signature.
pub(crate) type Check = fn(&Signed<'_>) -> bool;

/// Trusted certificates and revocation lists.
#[derive(Debug)]
pub(crate) struct Trusted {
    authorities: Vec<Arc<[u8]>>,
    /// Indexes in `authorities`, by the DER of the subject.
    by_subject: HashMap<Box<[u8]>, Vec<u32>>,
    lists: Lists,
    check: Check,
}

/// An error was not ignored.
#[derive(Debug)]
pub(crate) struct VerifyRefused;

/// Called for each error with its depth, counted from the peer's certificate. Returns whether to continue.
pub(crate) type Forgive<'a> = &'a mut dyn FnMut(VerifyCode, usize) -> bool;

fn fault(forgive: Forgive<'_>, code: VerifyCode, depth: usize) -> Result<(), VerifyRefused> {
    if forgive(code, depth) { Ok(()) } else { Err(VerifyRefused) }
}

impl Trusted {
    /// Creates the trust anchors. Unparsable certificates are skipped, which never adds trust.
    pub(crate) fn new<'a>(
        authorities: impl Iterator<Item = &'a Arc<[u8]>>,
        lists: &[Arc<[u8]>],
        check: Check,
    ) -> Self {
        let mut trusted =
            Self { authorities: Vec::new(), by_subject: HashMap::new(), lists: Lists::new(lists), check };
        for der in authorities {
            let Some(parsed) = Parsed::new(der) else { continue };
            let place = trusted.authorities.len() as u32;
            trusted.by_subject.entry(parsed.subject().into()).or_default().push(place);
            trusted.authorities.push(der.clone());
        }
        trusted
    }

    fn issuers<'a>(&'a self, subject: &[u8]) -> impl Iterator<Item = Parsed<'a>> {
        let places = self.by_subject.get(subject).into_iter().flatten();
        places.filter_map(|place| Parsed::new(&self.authorities[*place as usize]))
    }

    /// Verifies `own` with the other certificates from the peer, at `now` in seconds since 1970. Returns the last certificate of
    /// the chain.
    ///
    /// # Errors
    /// An error that was not ignored.
    pub(crate) fn verify(
        &self,
        own: &[u8],
        rest: &[&[u8]],
        purpose: Purpose,
        now: i64,
        forgive: Forgive<'_>,
    ) -> Result<Arc<[u8]>, VerifyRefused> {
        let Some(own) = Parsed::new(own) else {
            return fault(forgive, code::UNSPECIFIED, 0).map(|()| own.into());
        };
        let untrusted: Vec<_> = rest.iter().filter_map(|der| Parsed::new(der)).collect();
        let chain = Chain::build(own, &untrusted, self, now);
        if let Some(code) = chain.missing() {
            fault(forgive, code, chain.certificates.len() - 1)?;
        }
        let all = &chain.certificates;
        check_extensions(all, purpose, forgive)?;
        check_strength(all, forgive)?;
        self.lists.check(all, now, self.check, forgive)?;
        self.check_signatures(&chain, now, forgive)?;
        constraints::check(all, forgive)?;
        let last = all.last().map_or(&[][..], Parsed::der);
        let trusted = self.authorities.iter().find(|known| std::ptr::eq(known.as_ptr(), last.as_ptr()));
        Ok(trusted.map_or_else(|| last.into(), Arc::clone))
    }

    /// Checks the certificates from the top down: first the signature with the key of the certificate above, then the dates.
    fn check_signatures(
        &self,
        chain: &Chain<'_>,
        now: i64,
        forgive: Forgive<'_>,
    ) -> Result<(), VerifyRefused> {
        let all = &chain.certificates;
        for depth in (0..all.len()).rev() {
            let own = &all[depth];
            match all.get(depth + 1) {
                Some(issuer) => {
                    if !issuer.may_sign() {
                        fault(forgive, code::KEYUSAGE_NO_CERTSIGN, depth + 1)?;
                    }
                    if !own.is_signed_by(issuer, self.check) {
                        fault(forgive, code::CERT_SIGNATURE_FAILURE, depth)?;
                    }
                }
                // The signature of a trust anchor, or of an accepted self-signed certificate, is not checked.
                None if own.is_self_signed() => {}
                None if depth == 0 => fault(forgive, code::UNABLE_TO_VERIFY_LEAF_SIGNATURE, 0)?,
                // There is no certificate above with a key to check the signature.
                None => continue,
            }
            let (begin, end) = own.validity();
            if now < begin {
                fault(forgive, code::CERT_NOT_YET_VALID, depth)?;
            } else if end < now {
                fault(forgive, code::CERT_HAS_EXPIRED, depth)?;
            }
        }
        Ok(())
    }
}

/// Checks critical extensions, invalid CAs, key usage, and path lengths.
fn check_extensions(all: &[Parsed<'_>], purpose: Purpose, forgive: Forgive<'_>) -> Result<(), VerifyRefused> {
    let mut below = 0;
    for (depth, own) in all.iter().enumerate() {
        if own.has_unknown_critical() {
            fault(forgive, code::UNHANDLED_CRITICAL_EXTENSION, depth)?;
        }
        if depth > 0 {
            let authority = own.authority();
            // The last certificate may be a root without X.509 version 3 extensions.
            let good = authority.is_proper() || (authority.is_any() && depth + 1 == all.len());
            if !good {
                fault(forgive, code::INVALID_CA, depth)?;
            }
        }
        if !own.serves(purpose, depth > 0) {
            fault(forgive, code::INVALID_PURPOSE, depth)?;
        }
        if depth > 1 && own.path_length().is_some_and(|most| below > most) {
            fault(forgive, code::PATH_LENGTH_EXCEEDED, depth)?;
        }
        if depth > 0 && !own.is_self_issued() {
            below += 1;
        }
    }
    Ok(())
}

/// Checks for keys and digests below OpenSSL's security level 2.
fn check_strength(all: &[Parsed<'_>], forgive: Forgive<'_>) -> Result<(), VerifyRefused> {
    for (depth, own) in all.iter().enumerate() {
        if own.has_weak_key() {
            fault(forgive, if depth == 0 { code::EE_KEY_TOO_SMALL } else { code::CA_KEY_TOO_SMALL }, depth)?;
        }
        if depth + 1 < all.len() && own.has_weak_digest() {
            fault(forgive, code::CA_MD_TOO_WEAK, depth)?;
        }
    }
    Ok(())
}
