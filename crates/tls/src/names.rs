//! OpenSSL's names of versions, cipher suites, groups and signatures, and their numbers in TLS.

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

/// number, OpenSSL's name, other names that are understood
const GROUPS: &[(u16, &str, &[&str])] = &[
    (23, "P-256", &["prime256v1", "secp256r1"]),
    (24, "P-384", &["secp384r1"]),
    (25, "P-521", &["secp521r1"]),
    (29, "X25519", &[]),
    (30, "X448", &[]),
    (0x11eb, "SecP256r1MLKEM768", &[]),
    (0x11ec, "X25519MLKEM768", &[]),
    (0x0201, "MLKEM768", &[]),
    (0x0202, "MLKEM1024", &[]),
];

/// OpenSSL's name of a version.
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

/// The number of a version as configurations name it: `TLSv1.2`.
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

/// OpenSSL's name of a cipher suite, of those that can be negotiated.
pub fn suite_name(number: u16) -> Option<&'static str> {
    SUITES.iter().find(|row| row.0 == number).map(|row| row.1)
}

/// Bits of the symmetric key of a cipher suite.
pub fn suite_bits(number: u16) -> Option<u16> {
    SUITES.iter().find(|row| row.0 == number).map(|row| row.3)
}

/// The number of a cipher suite, by OpenSSL's name or the standard's.
pub fn suite(name: &str) -> Option<u16> {
    SUITES.iter().find(|row| row.1 == name || row.2 == name).map(|row| row.0)
}

/// OpenSSL's name of a group.
pub fn group_name(number: u16) -> Option<&'static str> {
    GROUPS.iter().find(|row| row.0 == number).map(|row| row.1)
}

/// The number of a group by any of its names, whatever their case.
pub fn group(name: &str) -> Option<u16> {
    let same = |known: &str| known.eq_ignore_ascii_case(name);
    GROUPS.iter().find(|row| same(row.1) || row.2.iter().copied().any(same)).map(|row| row.0)
}
