//! Revocation lists. Each certificate of a chain is looked up in the list of its issuer.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::signature::{RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use super::parsed::{Parsed, is_signed};
use super::{Check, Forgive, Signed, VerifyRefused, fault};
use crate::verify_code as code;

/// The revocation lists of a line, by the DER of their issuer.
#[derive(Debug)]
pub(super) struct Lists {
    by_issuer: HashMap<Box<[u8]>, Vec<Arc<[u8]>>>,
    /// Whether lists are configured at all, parsable or not.
    wanted: bool,
}

impl Lists {
    pub(super) fn new(ders: &[Arc<[u8]>]) -> Self {
        let mut lists: HashMap<Box<[u8]>, Vec<Arc<[u8]>>> = HashMap::new();
        for der in ders {
            if let Some(list) = parse(der) {
                lists.entry(list.issuer().as_raw().into()).or_default().push(der.clone());
            }
        }
        Self { by_issuer: lists, wanted: !ders.is_empty() }
    }

    /// Checks every certificate of the chain, if lists are configured.
    pub(super) fn check(
        &self,
        all: &[Parsed<'_>],
        now: i64,
        check: Check,
        forgive: Forgive<'_>,
    ) -> Result<(), VerifyRefused> {
        if !self.wanted {
            return Ok(());
        }
        for (depth, own) in all.iter().enumerate() {
            let candidates = self.by_issuer.get(own.issuer()).into_iter().flatten();
            let lists: Vec<_> = candidates.filter_map(|der| Some((&**der, parse(der)?))).collect();
            let current = lists.iter().find(|(_, list)| is_current(list, now));
            let Some((der, list)) = current.or_else(|| lists.first()) else {
                fault(forgive, code::UNABLE_TO_GET_CRL, depth)?;
                continue;
            };
            // The last certificate is its own issuer.
            let issuer = all.get(depth + 1).unwrap_or(own);
            check_list(der, list, issuer, now, depth, check, forgive)?;
            let serial = own.certificate().raw_serial();
            if list.iter_revoked_certificates().any(|revoked| revoked.raw_serial() == serial) {
                fault(forgive, code::CERT_REVOKED, depth)?;
            }
        }
        Ok(())
    }
}

fn parse(der: &[u8]) -> Option<CertificateRevocationList<'_>> {
    match CertificateRevocationList::from_der(der) {
        Ok(([], list)) => Some(list),
        _ => None,
    }
}

fn is_current(list: &CertificateRevocationList<'_>, now: i64) -> bool {
    list.last_update().timestamp() <= now && list.next_update().is_none_or(|next| now <= next.timestamp())
}

/// Checks the list itself: issuer, dates, and signature.
fn check_list(
    der: &[u8],
    list: &CertificateRevocationList<'_>,
    issuer: &Parsed<'_>,
    now: i64,
    depth: usize,
    check: Check,
    forgive: Forgive<'_>,
) -> Result<(), VerifyRefused> {
    if issuer.subject() != list.issuer().as_raw() {
        return fault(forgive, code::UNABLE_TO_GET_CRL_ISSUER, depth);
    }
    if !issuer.may_sign_lists() {
        fault(forgive, code::KEYUSAGE_NO_CRL_SIGN, depth)?;
    }
    let understood = |one: &ParsedExtension<'_>| {
        matches!(
            one,
            ParsedExtension::CRLNumber(_)
                | ParsedExtension::AuthorityKeyIdentifier(_)
                | ParsedExtension::IssuingDistributionPoint(_)
        )
    };
    if list.extensions().iter().any(|one| one.critical && !understood(one.parsed_extension())) {
        fault(forgive, code::UNHANDLED_CRITICAL_CRL_EXTENSION, depth)?;
    }
    if now < list.last_update().timestamp() {
        fault(forgive, code::CRL_NOT_YET_VALID, depth)?;
    }
    if list.next_update().is_some_and(|next| next.timestamp() < now) {
        fault(forgive, code::CRL_HAS_EXPIRED, depth)?;
    }
    if !is_signed(der, issuer, |signed| check(signed) || is_signed_with_sha1(signed)) {
        fault(forgive, code::CRL_SIGNATURE_FAILURE, depth)?;
    }
    Ok(())
}

/// `sha1WithRSAEncryption` without parameters.
const SHA1_WITH_RSA: [u8; 13] = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5, 5, 0];

/// Whether a list is signed with RSA and SHA-1. OpenSSL only rejects such signatures of certificates: to forge a list, the CA must
/// first have signed another list with the same hash.
fn is_signed_with_sha1(signed: &Signed<'_>) -> bool {
    let key = UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, signed.key);
    signed.algorithm == SHA1_WITH_RSA && key.verify(signed.message, signed.signature).is_ok()
}
