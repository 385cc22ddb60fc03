//! Certificate fields as shown by fetches.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use rcgen::{
    CertificateParams, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber, date_time_ymd,
};
use tls::x509::{CertificateFields, sha1};

#[test]
fn a_certificate_is_shown_as_haproxy_shows_it() {
    let mut params =
        CertificateParams::new(vec!["a.test".to_owned(), "10.0.0.1".to_owned(), "::1".to_owned()]).unwrap();
    params.subject_alt_names.push(SanType::URI("http://u.test/".try_into().unwrap()));
    params.serial_number = Some(SerialNumber::from(0x81fe_u64));
    params.not_before = date_time_ymd(2024, 2, 29);
    params.not_after = date_time_ymd(2051, 12, 31);
    let name = &mut params.distinguished_name;
    *name = rcgen::DistinguishedName::new();
    name.push(DnType::CountryName, "FR");
    name.push(DnType::OrganizationName, " a, b+c#");
    name.push(DnType::OrganizationalUnitName, "one");
    name.push(DnType::CommonName, "client");
    name.push(DnType::CustomDnType(vec![1, 2, 840, 113549, 1, 9, 1]), "x@y.z");
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let facts = CertificateFields::parse(certificate.der()).unwrap();
    let text = |bytes: Option<Vec<u8>>| String::from_utf8(bytes.unwrap()).unwrap();
    let subject = facts.subject_name();
    assert_eq!(text(subject.oneline()), "/C=FR/O= a, b+c#/OU=one/CN=client/emailAddress=x@y.z");
    assert_eq!(text(subject.rfc2253()), "emailAddress=x@y.z,CN=client,OU=one,O=\\ a\\, b\\+c#,C=FR");
    for (entry, occurrence, value) in [
        ("CN", 0, Some("client")),
        ("CN", 1, Some("client")),
        ("CN", -1, Some("client")),
        ("CN", 2, None),
        ("CN", -2, None),
        ("CN", i64::MIN, None),
        ("OU", 1, Some("one")),
        ("2.5.4.11", 1, None),
        ("XX", 0, None),
    ] {
        assert_eq!(subject.entry(entry, occurrence), value.map(str::as_bytes), "{entry} {occurrence}");
    }
    assert_eq!((facts.version(), facts.serial_number()), (3, &[0x81, 0xfe][..]));
    assert_eq!((&*facts.not_before_text(), &*facts.not_after_text()), ("240229000000Z", "511231000000Z"));
    assert_eq!((&*facts.signature_name(), &*facts.key_name()), ("ecdsa-with-SHA256", "id-ecPublicKey"));
    assert_eq!(
        facts.alternative_names().unwrap(),
        "DNS:a.test, IP Address:10.0.0.1, IP Address:0:0:0:0:0:0:0:1, URI:http://u.test/"
    );
    assert!(facts.policies().is_empty() && facts.is_self_issued());
    assert_ne!(sha1(certificate.der()), sha1(b""));
}
