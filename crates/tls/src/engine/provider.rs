//! The suites, groups and versions of rustls, by their TLS numbers.

use std::sync::Arc;

use ::aws_lc_rs::agreement::{ECDH_P521, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ::aws_lc_rs::rand::SystemRandom;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{ActiveKeyExchange, CryptoProvider, SharedSecret, SupportedKxGroup};
use rustls::{Error, NamedGroup, PeerMisbehaved, SupportedCipherSuite, SupportedProtocolVersion, version};

use crate::settings::Parameters;

/// The groups supported by rustls, by number.
static GROUPS: &[&dyn SupportedKxGroup] = &[
    kx_group::X25519MLKEM768,
    kx_group::SECP256R1MLKEM768,
    kx_group::MLKEM768,
    kx_group::MLKEM1024,
    kx_group::X25519,
    kx_group::SECP256R1,
    kx_group::SECP384R1,
    &P521,
];

fn suite(number: u16) -> Option<SupportedCipherSuite> {
    aws_lc_rs::ALL_CIPHER_SUITES.iter().copied().find(|suite| u16::from(suite.suite()) == number)
}

fn group(number: u16) -> Option<&'static dyn SupportedKxGroup> {
    GROUPS.iter().copied().find(|group| u16::from(group.name()) == number)
}

/// Whether the engine supports this cipher suite.
pub fn has_suite(number: u16) -> bool {
    suite(number).is_some()
}

/// Whether the engine supports this group.
pub fn has_group(number: u16) -> bool {
    group(number).is_some()
}

/// Returns the versions in the configured range that rustls supports.
pub(crate) fn versions(parameters: &Parameters) -> Vec<&'static SupportedProtocolVersion> {
    [(crate::TLS13, &version::TLS13), (crate::TLS12, &version::TLS12)]
        .into_iter()
        .filter(|(number, _)| (parameters.min..=parameters.max).contains(number))
        .map(|(_, version)| version)
        .collect()
}

/// Returns the cryptography for a line. Unsupported parts are omitted.
pub(crate) fn provider(parameters: &Parameters) -> Arc<CryptoProvider> {
    // Suites of a disabled version are not offered, because listeners choose certificates based on the suites.
    let of = |version, suites: &'_ [u16]| {
        let is_spoken = (parameters.min..=parameters.max).contains(&version);
        if is_spoken { suites.to_vec() } else { Vec::new() }
    };
    let suites = [of(crate::TLS13, &parameters.suites13), of(crate::TLS12, &parameters.suites12)].concat();
    Arc::new(CryptoProvider {
        cipher_suites: suites.into_iter().filter_map(suite).collect(),
        kx_groups: parameters.groups.iter().filter_map(|number| group(*number)).collect(),
        ..aws_lc_rs::default_provider()
    })
}

/// P-521, which rustls does not include, although its cryptography library supports it.
#[derive(Debug)]
struct P521;

impl SupportedKxGroup for P521 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let failed = |_| Error::FailedToGetRandomBytes;
        let own = EphemeralPrivateKey::generate(&ECDH_P521, &SystemRandom::new()).map_err(failed)?;
        let public = own.compute_public_key().map_err(failed)?.as_ref().into();
        Ok(Box::new(P521Exchange { own, public }))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }
}

struct P521Exchange {
    own: EphemeralPrivateKey,
    public: Box<[u8]>,
}

impl ActiveKeyExchange for P521Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let bad = Error::from(PeerMisbehaved::InvalidKeyShare);
        // Points must be uncompressed (RFC 8446, 4.2.8.2).
        if peer.first() != Some(&4) {
            return Err(bad);
        }
        let peer = UnparsedPublicKey::new(&ECDH_P521, peer);
        agree_ephemeral(self.own, peer, bad, |secret| Ok(SharedSecret::from(secret)))
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }
}
