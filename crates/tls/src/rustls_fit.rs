//! Decides from the ClientHello whether rustls can serve a client. Called by [`crate::acceptor`].
//!
//! On lines that need OpenSSL, rustls serves the clients for which both engines would negotiate the same parameters.

use crate::details::Lacks;
use crate::engine::key::{KeyKind, PrivateKey};
use crate::engine::provider::{has_group, has_suite};
use crate::hello::{Hello, numbers};
use crate::settings::Parameters;
use crate::suites::{Au, TABLE};
use crate::{TLS10, TLS12, TLS13, names};

/// Whether rustls supports the newest common version and, before TLS 1.3, the suite, the signature and the group that would be
/// negotiated.
pub(crate) fn is_for_rustls(hello: &Hello<'_>, parameters: &Parameters, key: &PrivateKey) -> bool {
    match hello.version_up_to(parameters.max) {
        TLS13 => true,
        TLS12 => {
            agreed_suite(hello, parameters, key.kind()).is_some_and(has_suite)
                && hello.signatures.is_some_and(|schemes| key.serves(numbers(schemes)))
                && hello.groups.is_some_and(|offered| {
                    numbers(offered).any(|group| has_group(group) && parameters.groups.contains(&group))
                })
        }
        _ => false,
    }
}

/// Returns the suite that both sides would negotiate.
fn agreed_suite(hello: &Hello<'_>, parameters: &Parameters, kind: KeyKind) -> Option<u16> {
    let own = &parameters.suites12;
    let offered = || numbers(hello.suites);
    if parameters.prefer_client {
        offered().find(|suite| own.contains(suite) && fits(*suite, kind))
    } else {
        own.iter().copied().find(|suite| offered().any(|one| one == *suite) && fits(*suite, kind))
    }
}

/// Whether a certificate with that kind of key works with the suite.
fn fits(number: u16, kind: KeyKind) -> bool {
    let suite = TABLE.iter().find(|suite| suite.number == number);
    suite.is_some_and(|suite| match suite.au {
        Au::Rsa => kind == KeyKind::Rsa,
        Au::Ecdsa => matches!(kind, KeyKind::Ecdsa | KeyKind::Ed25519),
        Au::Dss => kind == KeyKind::Dsa,
        Au::Anonymous => true,
    })
}

/// Returns the version or suite that a client would need, if it has none in common with rustls.
pub(crate) fn lacks(hello: &Hello<'_>) -> Option<Lacks> {
    let version = hello.version_up_to(TLS13);
    if version == TLS13 || (version == TLS12 && numbers(hello.suites).any(has_suite)) {
        return None;
    }
    if version < TLS12 {
        return (version >= TLS10).then_some(Lacks::Version(version));
    }
    numbers(hello.suites).find(|suite| names::suite_name(*suite).is_some()).map(Lacks::Suite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{KeyPair, PKCS_RSA_SHA256};

    const GCM: u16 = 0xc02f;
    const ECDSA_GCM: u16 = 0xc02b;
    const RSA_SHA: u16 = 0x002f;

    fn bytes(numbers: &[u16]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    #[test]
    fn rustls_serves_clients_it_would_answer_like_openssl() {
        let key = KeyPair::generate_for(&PKCS_RSA_SHA256).map(|key| key.serialize_der());
        let key = key.ok().and_then(|der| PrivateKey::from_der(&der).ok()).expect("a key of RSA");
        for (own, max, offered, versions, signatures, groups, prefers, expected) in [
            (&[GCM, RSA_SHA][..], TLS13, &[GCM][..], &[TLS13, TLS12][..], 0x0804, 29, false, true),
            (&[RSA_SHA, GCM], TLS13, &[RSA_SHA, 0x1301], &[TLS13], 0x0804, 29, false, true),
            (&[GCM, RSA_SHA], TLS12, &[RSA_SHA, GCM], &[TLS13, TLS12], 0x0804, 29, false, true),
            (&[GCM, RSA_SHA], TLS12, &[RSA_SHA, GCM], &[TLS12], 0x0804, 29, true, false),
            (&[RSA_SHA, GCM], TLS12, &[GCM, RSA_SHA], &[TLS12], 0x0804, 29, false, false),
            (&[RSA_SHA, GCM], TLS12, &[GCM, RSA_SHA], &[TLS12], 0x0804, 29, true, true),
            (&[ECDSA_GCM, RSA_SHA], TLS12, &[ECDSA_GCM, RSA_SHA], &[TLS12], 0x0804, 29, false, false),
            // Only SHA-1, and a group that only OpenSSL supports.
            (&[GCM], TLS12, &[GCM], &[TLS12], 0x0201, 29, false, false),
            (&[GCM], TLS12, &[GCM], &[TLS12], 0x0804, 21, false, false),
            (&[GCM], TLS13, &[GCM], &[0x0302, 0x0301], 0x0804, 29, false, false),
        ] {
            let parameters =
                Parameters { max, suites12: own.to_vec(), prefer_client: prefers, ..Parameters::default() };
            let [offered, versions, signatures, groups] =
                [bytes(offered), bytes(versions), bytes(&[signatures]), bytes(&[groups])];
            let hello = Hello {
                legacy_version: TLS12,
                suites: &offered,
                versions: Some(&versions),
                signatures: Some(&signatures),
                groups: Some(&groups),
                ..Hello::default()
            };
            let got = is_for_rustls(&hello, &parameters, &key);
            assert_eq!(got, expected, "{own:x?} {offered:x?} {versions:x?} {prefers}");
        }
    }
}
