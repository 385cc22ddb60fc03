//! All cipher suites of OpenSSL 3 up to TLS 1.2, except those with pre-shared keys or passwords, in OpenSSL's default order of
//! preference.

/// A cipher suite.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) number: u16,
    pub(crate) name: &'static str,
    /// The first version that supports the suite.
    pub(crate) version: u16,
    pub(crate) kx: Kx,
    pub(crate) au: Au,
    pub(crate) enc: Enc,
    pub(crate) bits: u16,
    pub(crate) mac: Mac,
}

/// Returns OpenSSL's name of a suite.
pub(crate) fn name(number: u16) -> Option<&'static str> {
    TABLE.iter().find(|suite| suite.number == number).map(|suite| suite.name)
}

/// Whether a suite uses Diffie-Hellman key exchange without elliptic curves.
pub fn is_dhe(number: u16) -> bool {
    TABLE.iter().any(|suite| suite.number == number && suite.kx == Kx::Dhe)
}

/// Returns the size of the suite's symmetric key in bits.
pub(crate) fn bits(number: u16) -> Option<u16> {
    TABLE.iter().find(|suite| suite.number == number).map(|suite| suite.bits)
}

/// The key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kx {
    Ecdhe,
    Dhe,
    Rsa,
}

/// The signature algorithm of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Au {
    Ecdsa,
    Rsa,
    Dss,
    Anonymous,
}

/// The encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enc {
    AesGcm,
    Chacha20,
    AesCcm,
    AesCcm8,
    AriaGcm,
    Aes,
    Camellia,
    Null,
}

/// The authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mac {
    Aead,
    Sha384,
    Sha256,
    Sha1,
    Md5,
}

#[expect(clippy::too_many_arguments, reason = "a row of the table")]
const fn row(
    number: u16,
    name: &'static str,
    version: u16,
    kx: Kx,
    au: Au,
    enc: Enc,
    bits: u16,
    mac: Mac,
) -> Suite {
    Suite { number, name, version, kx, au, enc, bits, mac }
}

//      number  name                   since   keys     signature  cipher     bits  mac
#[rustfmt::skip]
pub(crate) static TABLE: &[Suite] = &[
    row(0xc02c, "ECDHE-ECDSA-AES256-GCM-SHA384", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::AesGcm, 256, Mac::Aead),
    row(0xc030, "ECDHE-RSA-AES256-GCM-SHA384", 0x0303, Kx::Ecdhe, Au::Rsa, Enc::AesGcm, 256, Mac::Aead),
    row(0x00a3, "DHE-DSS-AES256-GCM-SHA384", 0x0303, Kx::Dhe, Au::Dss, Enc::AesGcm, 256, Mac::Aead),
    row(0x009f, "DHE-RSA-AES256-GCM-SHA384", 0x0303, Kx::Dhe, Au::Rsa, Enc::AesGcm, 256, Mac::Aead),
    row(0xcca9, "ECDHE-ECDSA-CHACHA20-POLY1305", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::Chacha20, 256, Mac::Aead),
    row(0xcca8, "ECDHE-RSA-CHACHA20-POLY1305", 0x0303, Kx::Ecdhe, Au::Rsa, Enc::Chacha20, 256, Mac::Aead),
    row(0xccaa, "DHE-RSA-CHACHA20-POLY1305", 0x0303, Kx::Dhe, Au::Rsa, Enc::Chacha20, 256, Mac::Aead),
    row(0xc0af, "ECDHE-ECDSA-AES256-CCM8", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::AesCcm8, 256, Mac::Aead),
    row(0xc0ad, "ECDHE-ECDSA-AES256-CCM", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::AesCcm, 256, Mac::Aead),
    row(0xc0a3, "DHE-RSA-AES256-CCM8", 0x0303, Kx::Dhe, Au::Rsa, Enc::AesCcm8, 256, Mac::Aead),
    row(0xc09f, "DHE-RSA-AES256-CCM", 0x0303, Kx::Dhe, Au::Rsa, Enc::AesCcm, 256, Mac::Aead),
    row(0xc05d, "ECDHE-ECDSA-ARIA256-GCM-SHA384", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::AriaGcm, 256, Mac::Aead),
    row(0xc061, "ECDHE-ARIA256-GCM-SHA384", 0x0303, Kx::Ecdhe, Au::Rsa, Enc::AriaGcm, 256, Mac::Aead),
    row(0xc057, "DHE-DSS-ARIA256-GCM-SHA384", 0x0303, Kx::Dhe, Au::Dss, Enc::AriaGcm, 256, Mac::Aead),
    row(0xc053, "DHE-RSA-ARIA256-GCM-SHA384", 0x0303, Kx::Dhe, Au::Rsa, Enc::AriaGcm, 256, Mac::Aead),
    row(0x00a7, "ADH-AES256-GCM-SHA384", 0x0303, Kx::Dhe, Au::Anonymous, Enc::AesGcm, 256, Mac::Aead),
    row(0xc02b, "ECDHE-ECDSA-AES128-GCM-SHA256", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::AesGcm, 128, Mac::Aead),
    row(0xc02f, "ECDHE-RSA-AES128-GCM-SHA256", 0x0303, Kx::Ecdhe, Au::Rsa, Enc::AesGcm, 128, Mac::Aead),
    row(0x00a2, "DHE-DSS-AES128-GCM-SHA256", 0x0303, Kx::Dhe, Au::Dss, Enc::AesGcm, 128, Mac::Aead),
    row(0x009e, "DHE-RSA-AES128-GCM-SHA256", 0x0303, Kx::Dhe, Au::Rsa, Enc::AesGcm, 128, Mac::Aead),
    row(0xc0ae, "ECDHE-ECDSA-AES128-CCM8", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::AesCcm8, 128, Mac::Aead),
    row(0xc0ac, "ECDHE-ECDSA-AES128-CCM", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::AesCcm, 128, Mac::Aead),
    row(0xc0a2, "DHE-RSA-AES128-CCM8", 0x0303, Kx::Dhe, Au::Rsa, Enc::AesCcm8, 128, Mac::Aead),
    row(0xc09e, "DHE-RSA-AES128-CCM", 0x0303, Kx::Dhe, Au::Rsa, Enc::AesCcm, 128, Mac::Aead),
    row(0xc05c, "ECDHE-ECDSA-ARIA128-GCM-SHA256", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::AriaGcm, 128, Mac::Aead),
    row(0xc060, "ECDHE-ARIA128-GCM-SHA256", 0x0303, Kx::Ecdhe, Au::Rsa, Enc::AriaGcm, 128, Mac::Aead),
    row(0xc056, "DHE-DSS-ARIA128-GCM-SHA256", 0x0303, Kx::Dhe, Au::Dss, Enc::AriaGcm, 128, Mac::Aead),
    row(0xc052, "DHE-RSA-ARIA128-GCM-SHA256", 0x0303, Kx::Dhe, Au::Rsa, Enc::AriaGcm, 128, Mac::Aead),
    row(0x00a6, "ADH-AES128-GCM-SHA256", 0x0303, Kx::Dhe, Au::Anonymous, Enc::AesGcm, 128, Mac::Aead),
    row(0xc024, "ECDHE-ECDSA-AES256-SHA384", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::Aes, 256, Mac::Sha384),
    row(0xc028, "ECDHE-RSA-AES256-SHA384", 0x0303, Kx::Ecdhe, Au::Rsa, Enc::Aes, 256, Mac::Sha384),
    row(0x006b, "DHE-RSA-AES256-SHA256", 0x0303, Kx::Dhe, Au::Rsa, Enc::Aes, 256, Mac::Sha256),
    row(0x006a, "DHE-DSS-AES256-SHA256", 0x0303, Kx::Dhe, Au::Dss, Enc::Aes, 256, Mac::Sha256),
    row(0xc073, "ECDHE-ECDSA-CAMELLIA256-SHA384", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::Camellia, 256, Mac::Sha384),
    row(0xc077, "ECDHE-RSA-CAMELLIA256-SHA384", 0x0303, Kx::Ecdhe, Au::Rsa, Enc::Camellia, 256, Mac::Sha384),
    row(0x00c4, "DHE-RSA-CAMELLIA256-SHA256", 0x0303, Kx::Dhe, Au::Rsa, Enc::Camellia, 256, Mac::Sha256),
    row(0x00c3, "DHE-DSS-CAMELLIA256-SHA256", 0x0303, Kx::Dhe, Au::Dss, Enc::Camellia, 256, Mac::Sha256),
    row(0x006d, "ADH-AES256-SHA256", 0x0303, Kx::Dhe, Au::Anonymous, Enc::Aes, 256, Mac::Sha256),
    row(0x00c5, "ADH-CAMELLIA256-SHA256", 0x0303, Kx::Dhe, Au::Anonymous, Enc::Camellia, 256, Mac::Sha256),
    row(0xc023, "ECDHE-ECDSA-AES128-SHA256", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::Aes, 128, Mac::Sha256),
    row(0xc027, "ECDHE-RSA-AES128-SHA256", 0x0303, Kx::Ecdhe, Au::Rsa, Enc::Aes, 128, Mac::Sha256),
    row(0x0067, "DHE-RSA-AES128-SHA256", 0x0303, Kx::Dhe, Au::Rsa, Enc::Aes, 128, Mac::Sha256),
    row(0x0040, "DHE-DSS-AES128-SHA256", 0x0303, Kx::Dhe, Au::Dss, Enc::Aes, 128, Mac::Sha256),
    row(0xc072, "ECDHE-ECDSA-CAMELLIA128-SHA256", 0x0303, Kx::Ecdhe, Au::Ecdsa, Enc::Camellia, 128, Mac::Sha256),
    row(0xc076, "ECDHE-RSA-CAMELLIA128-SHA256", 0x0303, Kx::Ecdhe, Au::Rsa, Enc::Camellia, 128, Mac::Sha256),
    row(0x00be, "DHE-RSA-CAMELLIA128-SHA256", 0x0303, Kx::Dhe, Au::Rsa, Enc::Camellia, 128, Mac::Sha256),
    row(0x00bd, "DHE-DSS-CAMELLIA128-SHA256", 0x0303, Kx::Dhe, Au::Dss, Enc::Camellia, 128, Mac::Sha256),
    row(0x006c, "ADH-AES128-SHA256", 0x0303, Kx::Dhe, Au::Anonymous, Enc::Aes, 128, Mac::Sha256),
    row(0x00bf, "ADH-CAMELLIA128-SHA256", 0x0303, Kx::Dhe, Au::Anonymous, Enc::Camellia, 128, Mac::Sha256),
    row(0xc00a, "ECDHE-ECDSA-AES256-SHA", 0x0301, Kx::Ecdhe, Au::Ecdsa, Enc::Aes, 256, Mac::Sha1),
    row(0xc014, "ECDHE-RSA-AES256-SHA", 0x0301, Kx::Ecdhe, Au::Rsa, Enc::Aes, 256, Mac::Sha1),
    row(0x0039, "DHE-RSA-AES256-SHA", 0x0300, Kx::Dhe, Au::Rsa, Enc::Aes, 256, Mac::Sha1),
    row(0x0038, "DHE-DSS-AES256-SHA", 0x0300, Kx::Dhe, Au::Dss, Enc::Aes, 256, Mac::Sha1),
    row(0x0088, "DHE-RSA-CAMELLIA256-SHA", 0x0300, Kx::Dhe, Au::Rsa, Enc::Camellia, 256, Mac::Sha1),
    row(0x0087, "DHE-DSS-CAMELLIA256-SHA", 0x0300, Kx::Dhe, Au::Dss, Enc::Camellia, 256, Mac::Sha1),
    row(0xc019, "AECDH-AES256-SHA", 0x0301, Kx::Ecdhe, Au::Anonymous, Enc::Aes, 256, Mac::Sha1),
    row(0x003a, "ADH-AES256-SHA", 0x0300, Kx::Dhe, Au::Anonymous, Enc::Aes, 256, Mac::Sha1),
    row(0x0089, "ADH-CAMELLIA256-SHA", 0x0300, Kx::Dhe, Au::Anonymous, Enc::Camellia, 256, Mac::Sha1),
    row(0xc009, "ECDHE-ECDSA-AES128-SHA", 0x0301, Kx::Ecdhe, Au::Ecdsa, Enc::Aes, 128, Mac::Sha1),
    row(0xc013, "ECDHE-RSA-AES128-SHA", 0x0301, Kx::Ecdhe, Au::Rsa, Enc::Aes, 128, Mac::Sha1),
    row(0x0033, "DHE-RSA-AES128-SHA", 0x0300, Kx::Dhe, Au::Rsa, Enc::Aes, 128, Mac::Sha1),
    row(0x0032, "DHE-DSS-AES128-SHA", 0x0300, Kx::Dhe, Au::Dss, Enc::Aes, 128, Mac::Sha1),
    row(0x0045, "DHE-RSA-CAMELLIA128-SHA", 0x0300, Kx::Dhe, Au::Rsa, Enc::Camellia, 128, Mac::Sha1),
    row(0x0044, "DHE-DSS-CAMELLIA128-SHA", 0x0300, Kx::Dhe, Au::Dss, Enc::Camellia, 128, Mac::Sha1),
    row(0xc018, "AECDH-AES128-SHA", 0x0301, Kx::Ecdhe, Au::Anonymous, Enc::Aes, 128, Mac::Sha1),
    row(0x0034, "ADH-AES128-SHA", 0x0300, Kx::Dhe, Au::Anonymous, Enc::Aes, 128, Mac::Sha1),
    row(0x0046, "ADH-CAMELLIA128-SHA", 0x0300, Kx::Dhe, Au::Anonymous, Enc::Camellia, 128, Mac::Sha1),
    row(0x009d, "AES256-GCM-SHA384", 0x0303, Kx::Rsa, Au::Rsa, Enc::AesGcm, 256, Mac::Aead),
    row(0xc0a1, "AES256-CCM8", 0x0303, Kx::Rsa, Au::Rsa, Enc::AesCcm8, 256, Mac::Aead),
    row(0xc09d, "AES256-CCM", 0x0303, Kx::Rsa, Au::Rsa, Enc::AesCcm, 256, Mac::Aead),
    row(0xc051, "ARIA256-GCM-SHA384", 0x0303, Kx::Rsa, Au::Rsa, Enc::AriaGcm, 256, Mac::Aead),
    row(0x009c, "AES128-GCM-SHA256", 0x0303, Kx::Rsa, Au::Rsa, Enc::AesGcm, 128, Mac::Aead),
    row(0xc0a0, "AES128-CCM8", 0x0303, Kx::Rsa, Au::Rsa, Enc::AesCcm8, 128, Mac::Aead),
    row(0xc09c, "AES128-CCM", 0x0303, Kx::Rsa, Au::Rsa, Enc::AesCcm, 128, Mac::Aead),
    row(0xc050, "ARIA128-GCM-SHA256", 0x0303, Kx::Rsa, Au::Rsa, Enc::AriaGcm, 128, Mac::Aead),
    row(0x003d, "AES256-SHA256", 0x0303, Kx::Rsa, Au::Rsa, Enc::Aes, 256, Mac::Sha256),
    row(0x00c0, "CAMELLIA256-SHA256", 0x0303, Kx::Rsa, Au::Rsa, Enc::Camellia, 256, Mac::Sha256),
    row(0x003c, "AES128-SHA256", 0x0303, Kx::Rsa, Au::Rsa, Enc::Aes, 128, Mac::Sha256),
    row(0x00ba, "CAMELLIA128-SHA256", 0x0303, Kx::Rsa, Au::Rsa, Enc::Camellia, 128, Mac::Sha256),
    row(0x0035, "AES256-SHA", 0x0300, Kx::Rsa, Au::Rsa, Enc::Aes, 256, Mac::Sha1),
    row(0x0084, "CAMELLIA256-SHA", 0x0300, Kx::Rsa, Au::Rsa, Enc::Camellia, 256, Mac::Sha1),
    row(0x002f, "AES128-SHA", 0x0300, Kx::Rsa, Au::Rsa, Enc::Aes, 128, Mac::Sha1),
    row(0x0041, "CAMELLIA128-SHA", 0x0300, Kx::Rsa, Au::Rsa, Enc::Camellia, 128, Mac::Sha1),
    row(0xc006, "ECDHE-ECDSA-NULL-SHA", 0x0301, Kx::Ecdhe, Au::Ecdsa, Enc::Null, 0, Mac::Sha1),
    row(0xc010, "ECDHE-RSA-NULL-SHA", 0x0301, Kx::Ecdhe, Au::Rsa, Enc::Null, 0, Mac::Sha1),
    row(0xc015, "AECDH-NULL-SHA", 0x0301, Kx::Ecdhe, Au::Anonymous, Enc::Null, 0, Mac::Sha1),
    row(0x003b, "NULL-SHA256", 0x0303, Kx::Rsa, Au::Rsa, Enc::Null, 0, Mac::Sha256),
    row(0x0002, "NULL-SHA", 0x0300, Kx::Rsa, Au::Rsa, Enc::Null, 0, Mac::Sha1),
    row(0x0001, "NULL-MD5", 0x0300, Kx::Rsa, Au::Rsa, Enc::Null, 0, Mac::Md5),
];
