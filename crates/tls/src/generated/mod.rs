//! Certificates that are generated when clients ask for them (`generate-certificates`, manual 5.1). If none of a `bind` line's certificates matches the client's SNI, one is generated and signed by a local authority.
//!
//! A generated certificate uses the key of the line's default certificate, so that a client costs only one signature by the
//! authority in addition to the handshake's. Further clients with the same name find the certificate in a cache. Called by
//! `acceptor`.

mod cache;
mod contents;
mod signer;

use std::sync::Arc;

use aws_lc_rs::rand;
use base::clock::WallTime;

pub use cache::Cache;

use crate::store::Certificate;
use crate::x509::CertificateFields;
use contents::Issuer;
use signer::Signer;

/// Clocks of clients may be slow by so many seconds.
const BEFORE: i64 = 86_400;

/// How many seconds a certificate is good for.
const LIFETIME: i64 = 365 * 86_400;

/// An authority and what it signs with (`ca-sign-file`).
#[derive(Debug)]
pub struct Authority {
    /// Its certificate first, as DER; clients are sent all of it.
    chain: Vec<Arc<[u8]>>,
    issuer: Issuer,
    signer: Signer,
}

impl Authority {
    /// Takes an authority with its key.
    ///
    /// # Errors
    /// Its key signs no certificates here, in a few words.
    pub fn new(own: &Certificate) -> Result<Self, &'static str> {
        let der = own.chain.first().ok_or("it has no certificate")?;
        let issuer = Issuer::of(&CertificateFields::parse(der)?).ok_or("its subject cannot be parsed")?;
        Ok(Self { chain: own.chain.clone(), issuer, signer: Signer::new(&own.key)? })
    }

    /// A certificate for `name` with the key of `base`. `None` where it cannot be made.
    pub(crate) fn make(&self, name: &str, base: &Certificate) -> Option<Certificate> {
        let mut serial = [0; 16];
        rand::fill(&mut serial).ok()?;
        let now = WallTime::now().seconds;
        let key = CertificateFields::parse(base.chain.first()?).ok()?.key_info().to_vec();
        let validity = (now - BEFORE, now + LIFETIME);
        let text =
            contents::to_be_signed(&self.issuer, name, serial, validity, &key, self.signer.algorithm())?;
        let der = contents::signed(&text, self.signer.algorithm(), &self.signer.sign(&text)?);
        let mut chain = vec![der.into()];
        chain.extend(self.chain.iter().cloned());
        Certificate::new(name, chain, base.key.clone()).ok()
    }
}

/// What a line makes certificates with.
#[derive(Clone, Debug)]
pub struct Generating {
    /// Who signs them.
    pub authority: Arc<Authority>,
    /// The cache for these certificates, which all lines share (`tune.ssl.ssl-ctx-cache-size`).
    pub cache: Arc<Cache>,
}

/// Whether certificates are made for a name: letters, digits, hyphens and dots.
pub(crate) fn is_host(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keygen::{Curve, NewKey, key};
    use crate::verify_chain;
    use crate::{PrivateKey, Trust};

    fn authority(kind: NewKey) -> Certificate {
        let own = key(kind).unwrap();
        let pem = |own: &PrivateKey| rcgen::KeyPair::try_from(own.pkcs8()).unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Weir");
        params.distinguished_name.push(rcgen::DnType::CommonName, "the authority");
        let made = params.self_signed(&pem(&own)).unwrap();
        Certificate::new("ca", vec![made.der().as_ref().into()], own).unwrap()
    }

    #[test]
    fn what_is_made_is_for_its_name_and_verified_by_its_authority() {
        let base = authority(NewKey::Ecdsa(Curve::P256));
        for kind in [
            NewKey::Ecdsa(Curve::P256),
            NewKey::Ecdsa(Curve::P384),
            NewKey::Ecdsa(Curve::P521),
            NewKey::Rsa(2048),
        ] {
            let own = authority(kind);
            let made = Authority::new(&own).unwrap().make("a.test", &base).unwrap();
            assert_eq!(made.key.belongs_to(&made.chain[0]), Some(true));
            assert_eq!((&*made.names[0], made.chain.len()), ("a.test", 2));
            let facts = CertificateFields::parse(&made.chain[0]).unwrap();
            assert_eq!(facts.version(), 3, "{kind:?}");
            let trust = Trust { authorities: own.chain.clone(), ..Trust::default() };
            let now = WallTime::now().seconds;
            let faults = &mut |code, _| panic!("{kind:?}: {code:?}");
            assert!(verify_chain(&trust, &made.chain[0], &[], true, now, faults));
        }
    }

    #[test]
    fn a_name_too_long_for_a_common_name_is_an_alternative_name_alone() {
        let own = authority(NewKey::Ecdsa(Curve::P256));
        let name = format!("{}.test", "a".repeat(60));
        let made = Authority::new(&own).unwrap().make(&name, &own).unwrap();
        let facts = CertificateFields::parse(&made.chain[0]).unwrap();
        assert_eq!(facts.subject(), CertificateFields::parse(&own.chain[0]).unwrap().subject());
        assert!(facts.is_for(&name));
    }

    #[test]
    fn names_are_of_hosts() {
        for (name, is) in
            [("a.test", true), ("1.2.3.4", true), ("a.", true), ("", false), ("a_b", false), ("a,b", false)]
        {
            assert_eq!(is_host(name), is, "{name}");
        }
    }
}
