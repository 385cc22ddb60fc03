//! Builds a chain upwards from the peer's certificate.

use super::Trusted;
use super::parsed::Parsed;
use crate::verify_code::{self as code, VerifyCode};

/// OpenSSL's limit for certificates above the peer's.
const DEPTH_MAX: usize = 100;

/// A chain, starting with the peer's own certificate.
pub(super) struct Chain<'a> {
    pub(super) certificates: Vec<Parsed<'a>>,
    /// How many certificates of the chain are not trust anchors.
    untrusted: usize,
    /// Whether the chain ends at a trusted self-signed certificate.
    is_complete: bool,
}

impl<'a> Chain<'a> {
    pub(super) fn build(own: Parsed<'a>, sent: &[Parsed<'a>], trusted: &'a Trusted, now: i64) -> Self {
        let mut chain = Self { certificates: vec![own], untrusted: 1, is_complete: false };
        let mut used = vec![false; sent.len()];
        loop {
            let top = chain.certificates.len() - 1;
            if chain.certificates[top].is_self_signed() {
                chain.is_complete = chain.untrusted <= top || chain.anchors(top, trusted);
                return chain;
            }
            if top >= DEPTH_MAX {
                return chain;
            }
            let last = &chain.certificates[top];
            if let Some(issuer) = best(trusted.issuers(last.issuer()).filter(|one| one.issued(last)), now) {
                chain.certificates.push(issuer);
                continue;
            }
            // Above a trusted certificate, there are only trusted certificates or none.
            if chain.untrusted <= top {
                return chain;
            }
            let fits = |place: &usize| !used[*place] && sent[*place].issued(last);
            let places: Vec<usize> = (0..sent.len()).filter(fits).collect();
            let current = places.iter().find(|place| sent[**place].is_valid_at(now));
            let Some(place) = current.or_else(|| places.first()).copied() else { return chain };
            used[place] = true;
            chain.certificates.push(sent[place].clone());
            chain.untrusted += 1;
        }
    }

    /// Whether the certificate at index `top`, sent by the peer, is a trust anchor.
    fn anchors(&mut self, top: usize, trusted: &Trusted) -> bool {
        let last = &self.certificates[top];
        let known = trusted.issuers(last.subject()).any(|one| one.der() == last.der());
        if known {
            self.untrusted = top;
        }
        known
    }

    /// Returns the error for an incomplete chain.
    pub(super) fn missing(&self) -> Option<VerifyCode> {
        let top = self.certificates.len() - 1;
        if self.is_complete {
            None
        } else if top >= DEPTH_MAX {
            Some(code::CERT_CHAIN_TOO_LONG)
        } else if self.certificates[top].is_self_signed() {
            Some(if top == 0 { code::DEPTH_ZERO_SELF_SIGNED_CERT } else { code::SELF_SIGNED_CERT_IN_CHAIN })
        } else if self.untrusted <= top {
            Some(code::UNABLE_TO_GET_ISSUER_CERT)
        } else {
            Some(code::UNABLE_TO_GET_ISSUER_CERT_LOCALLY)
        }
    }
}

/// Returns the first candidate that is currently valid. Otherwise returns the one that expires last.
fn best<'a>(candidates: impl Iterator<Item = Parsed<'a>>, now: i64) -> Option<Parsed<'a>> {
    let mut fallback: Option<Parsed<'a>> = None;
    for one in candidates {
        if one.is_valid_at(now) {
            return Some(one);
        }
        if fallback.as_ref().is_none_or(|known| known.validity().1 < one.validity().1) {
            fallback = Some(one);
        }
    }
    fallback
}
