//! OpenSSL's names of versions, cipher suites, groups and signatures, and their TLS numbers.

use crate::suites;

/// number, OpenSSL's name, name in the standard, bits of the symmetric key
const SUITES: &[(u16, &str, &str, u16)] = &[
    (0x1301, "TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", 128),
    (0x1302, "TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", 256),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256", 256),
    (0xc02b, "ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 128),
    (0xc02c, "ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", 256),
    (0xc02f, "ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", 128),
    (0xc030, "ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", 256),
    (0xcca8, "ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 256),
    (0xcca9, "ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", 256),
];

/// number, OpenSSL's name, accepted aliases
const GROUPS: &[(u16, &str, &[&str])] = &[
    (23, "prime256v1", &["P-256", "secp256r1"]),
    (24, "secp384r1", &["P-384"]),
    (25, "secp521r1", &["P-521"]),
    (29, "X25519", &[]),
    (30, "X448", &[]),
    (0x11eb, "SecP256r1MLKEM768", &[]),
    (0x11ec, "X25519MLKEM768", &[]),
    (0x0201, "MLKEM768", &[]),
    (0x0202, "MLKEM1024", &[]),
];

/// number, standard name, OpenSSL's older name
const SIGNATURES: &[(u16, &str, &str)] = &[
    (0x0201, "rsa_pkcs1_sha1", "RSA+SHA1"),
    (0x0203, "ecdsa_sha1", "ECDSA+SHA1"),
    (0x0301, "rsa_pkcs1_sha224", "RSA+SHA224"),
    (0x0303, "ecdsa_sha224", "ECDSA+SHA224"),
    (0x0401, "rsa_pkcs1_sha256", "RSA+SHA256"),
    (0x0501, "rsa_pkcs1_sha384", "RSA+SHA384"),
    (0x0601, "rsa_pkcs1_sha512", "RSA+SHA512"),
    (0x0403, "ecdsa_secp256r1_sha256", "ECDSA+SHA256"),
    (0x0503, "ecdsa_secp384r1_sha384", "ECDSA+SHA384"),
    (0x0603, "ecdsa_secp521r1_sha512", "ECDSA+SHA512"),
    (0x0804, "rsa_pss_rsae_sha256", "RSA-PSS+SHA256"),
    (0x0805, "rsa_pss_rsae_sha384", "RSA-PSS+SHA384"),
    (0x0806, "rsa_pss_rsae_sha512", "RSA-PSS+SHA512"),
    (0x0807, "ed25519", ""),
    (0x0808, "ed448", ""),
    (0x0809, "rsa_pss_pss_sha256", ""),
    (0x080a, "rsa_pss_pss_sha384", ""),
    (0x080b, "rsa_pss_pss_sha512", ""),
];

/// Returns OpenSSL's name of a version.
pub fn version_name(version: u16) -> &'static str {
    match version {
        0x0300 => "SSLv3",
        0x0301 => "TLSv1",
        0x0302 => "TLSv1.1",
        0x0303 => "TLSv1.2",
        0x0304 => "TLSv1.3",
        _ => "",
    }
}

/// Returns the number of a version by its configuration name: `TLSv1.2`.
pub fn version(name: &str) -> Option<u16> {
    match name {
        "SSLv3" => Some(0x0300),
        "TLSv1.0" => Some(0x0301),
        "TLSv1.1" => Some(0x0302),
        "TLSv1.2" => Some(0x0303),
        "TLSv1.3" => Some(0x0304),
        _ => None,
    }
}

/// Returns OpenSSL's name of a cipher suite, if it can be negotiated.
pub fn suite_name(number: u16) -> Option<&'static str> {
    SUITES.iter().find(|row| row.0 == number).map(|row| row.1).or_else(|| suites::name(number))
}

/// Returns the symmetric key size of a cipher suite, in bits.
pub fn suite_bits(number: u16) -> Option<u16> {
    SUITES.iter().find(|row| row.0 == number).map(|row| row.3).or_else(|| suites::bits(number))
}

/// Returns the number of a cipher suite, by OpenSSL's name or the standard one.
pub fn suite(name: &str) -> Option<u16> {
    SUITES.iter().find(|row| row.1 == name || row.2 == name).map(|row| row.0)
}

/// Returns OpenSSL's name of a group.
pub fn group_name(number: u16) -> Option<&'static str> {
    GROUPS.iter().find(|row| row.0 == number).map(|row| row.1)
}

/// Returns OpenSSL 3.0's name of a group, if it has that group.
#[cfg_attr(not(feature = "legacy-tls"), allow(dead_code, reason = "OpenSSL takes names"))]
pub(crate) fn classic_group_name(number: u16) -> Option<&'static str> {
    if number < 0x0200 { group_name(number) } else { None }
}

/// Returns the standard name of a signature scheme.
#[cfg_attr(not(feature = "legacy-tls"), allow(dead_code, reason = "OpenSSL takes names"))]
pub(crate) fn signature_name(number: u16) -> Option<&'static str> {
    SIGNATURES.iter().find(|row| row.0 == number).map(|row| row.1)
}

/// Returns the number of a group by any of its names, ignoring case.
pub fn group(name: &str) -> Option<u16> {
    let same = |known: &str| known.eq_ignore_ascii_case(name);
    GROUPS.iter().find(|row| same(row.1) || row.2.iter().copied().any(same)).map(|row| row.0)
}

/// Returns the number of a signature scheme by either of its names, ignoring case.
pub fn signature(name: &str) -> Option<u16> {
    let same = |known: &str| !known.is_empty() && known.eq_ignore_ascii_case(name);
    let pss = |known: &str| {
        known
            .strip_prefix("RSA-PSS+")
            .zip(name.strip_prefix("PSS+"))
            .is_some_and(|(known, name)| known == name)
    };
    SIGNATURES.iter().find(|row| same(row.1) || same(row.2) || pss(row.2)).map(|row| row.0)
}
