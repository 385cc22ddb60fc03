//! Fuzz targets for external input of TLS: ClientHellos, certificates, OCSP responses, and configured lists.

use std::sync::Arc;

use tls::capture::{CapturedList, Lists};
use tls::deframer::Deframer;
use tls::hello::{self, Hello};
use tls::{Trust, ciphers, crt_list, dn, ocsp, verify_chain, x509};

/// Checks that a ClientHello is parsed the same in one piece and byte by byte, and that its parts lie within it.
pub fn client_hello(bytes: &[u8]) {
    let (mut whole, mut pieces) = (Deframer::default(), Deframer::default());
    let at_once = whole.push(bytes).map(|message| message.map(<[u8]>::to_vec));
    let mut last = Ok(None);
    for byte in bytes {
        last = pieces.push(&[*byte]).map(|message| message.map(<[u8]>::to_vec));
        if last != Ok(None) {
            break;
        }
    }
    // Bytes after a message are only seen if they arrive together with it. They may be checked or not.
    if let Ok(Some(message)) = &at_once {
        assert_eq!(last.as_ref(), Ok(&Some(message.clone())));
        assert_eq!(Hello::length(message), Ok(Some(message.len())));
        if let Ok(hello) = Hello::parse(message) {
            assert!(hello.random.len() == 32 && hello.session_id.len() <= 32);
            assert!(hello::extensions(hello.extensions).all(|one| one.is_ok()));
            assert_eq!(hello::numbers(hello.suites).count() * 2, hello.suites.len());
            for most in [0, 1, 7, 64, 1000] {
                let lists = Lists::new(&hello, most);
                let all = [
                    CapturedList::Suites,
                    CapturedList::Extensions,
                    CapturedList::Groups,
                    CapturedList::PointFormats,
                    CapturedList::Versions,
                ];
                let kept = all.iter().chain([&CapturedList::Signatures]).map(|list| lists.get(*list).len());
                assert!(kept.sum::<usize>() <= most);
            }
        }
    }
}

/// Checks that a crt-list yields lines with a certificate each, or an error with its line.
pub fn crt_list(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match crt_list::parse("list", &text) {
        Ok(lines) => {
            for line in lines {
                assert!(!line.certificate.is_empty() && (1..=text.lines().count()).contains(&line.number));
                let words = line.options.iter().chain(&line.filters);
                assert!(words.into_iter().all(|word| !word.contains(['[', ']', ' ', '\t'])));
            }
        }
        Err(fault) => assert!((1..=text.lines().count()).contains(&fault.line), "{fault}"),
    }
}

/// Checks that a PEM file yields a certificate with its key, or an error.
pub fn pem(bytes: &[u8]) {
    match tls::Certificate::from_pem("file", bytes) {
        Ok(certificate) => {
            assert!(!certificate.chain.is_empty());
            assert_ne!(certificate.key.belongs_to(&certificate.chain[0]), Some(false));
        }
        Err(fault) => assert!(fault.to_string().contains("file"), "{fault}"),
    }
}

/// Verifies a chain of length-prefixed certificates, the last one trusted; and formats the certificates.
pub fn x509(bytes: &[u8]) {
    let mut chain = Vec::new();
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(behind.len());
        let (one, behind) = behind.split_at(length);
        chain.push(one);
        rest = behind;
    }
    for one in &chain {
        if let Ok(facts) = x509::CertificateFields::parse(one) {
            let show = |name: &dn::DistinguishedName<'_>| {
                (name.oneline(), name.rfc2253(), name.entry("CN", -1).map(<[u8]>::len))
            };
            let _ = (show(&facts.subject_name()), show(&facts.issuer_name()));
            let _ = (
                facts.key_kind(),
                facts.names(),
                facts.alternative_names(),
                facts.policies(),
                facts.is_for("a.test"),
            );
            assert_eq!((facts.not_before_text().len(), facts.not_after_text().len()), (13, 13));
        }
    }
    let Some((own, above)) = chain.split_first() else { return };
    let authorities = above.last().map(|one| Arc::from(*one)).into_iter().collect();
    let trust = Trust { authorities, ..Trust::default() };
    let mut faults = 0;
    let passed = verify_chain(&trust, own, above, true, 1_800_000_000, &mut |_, depth| {
        assert!(depth <= above.len());
        faults += 1;
        faults % 8 != 0
    });
    assert_eq!(passed, faults % 8 != 0 || faults == 0);
}

/// Checks that an OCSP response is parsed and kept unchanged, or refused.
pub fn ocsp(bytes: &[u8]) {
    if let Ok(response) = ocsp::Response::parse(bytes) {
        assert_eq!(&*response.der, bytes);
        assert!(response.check(bytes, bytes, 0).is_err());
        // The certificate is length-prefixed.
        let (length, behind) = ISSUER.split_at(2);
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        assert!(response.verify(&behind[..length], 0).is_err());
        assert!(response.text().starts_with("OCSP Response Data:\n"));
    }
}

/// A certificate to verify responses with.
const ISSUER: &[u8] = include_bytes!("../../../fuzz/seeds/x509/plain");

/// Checks that a cipher string selects distinct suites, or none.
pub fn ciphers(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(found) = ciphers::ciphers(&text) {
        let mut sorted = found.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert!(!found.is_empty() && sorted.len() == found.len());
    }
    let _ = (ciphers::ciphersuites(&text), ciphers::curves(&text), ciphers::sigalgs(&text));
}
