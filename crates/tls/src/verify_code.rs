//! Verification results, with OpenSSL's numbers, names and texts (`X509_V_…`): `ssl_c_err`, `ssl_c_verify`, `crt-ignore-err`,
//! `ca-ignore-err`.

use std::fmt;

/// A result, by OpenSSL's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VerifyCode(pub u8);

impl std::error::Error for VerifyCode {}

impl fmt::Display for VerifyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        $(#[doc = $text] pub const $name: VerifyCode = VerifyCode($number);)*

        const NAMES: &[(u8, &str, &str)] = &[$(($number, stringify!($name), $text),)*];
    };
}

codes! {
    OK = 0, "ok";
    UNSPECIFIED = 1, "unspecified certificate verification error";
    UNABLE_TO_GET_ISSUER_CERT = 2, "unable to get issuer certificate";
    UNABLE_TO_GET_CRL = 3, "unable to get certificate CRL";
    UNABLE_TO_DECRYPT_CERT_SIGNATURE = 4, "unable to decrypt certificate's signature";
    UNABLE_TO_DECRYPT_CRL_SIGNATURE = 5, "unable to decrypt CRL's signature";
    UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY = 6, "unable to decode issuer public key";
    CERT_SIGNATURE_FAILURE = 7, "certificate signature failure";
    CRL_SIGNATURE_FAILURE = 8, "CRL signature failure";
    CERT_NOT_YET_VALID = 9, "certificate is not yet valid";
    CERT_HAS_EXPIRED = 10, "certificate has expired";
    CRL_NOT_YET_VALID = 11, "CRL is not yet valid";
    CRL_HAS_EXPIRED = 12, "CRL has expired";
    ERROR_IN_CERT_NOT_BEFORE_FIELD = 13, "format error in certificate's notBefore field";
    ERROR_IN_CERT_NOT_AFTER_FIELD = 14, "format error in certificate's notAfter field";
    ERROR_IN_CRL_LAST_UPDATE_FIELD = 15, "format error in CRL's lastUpdate field";
    ERROR_IN_CRL_NEXT_UPDATE_FIELD = 16, "format error in CRL's nextUpdate field";
    OUT_OF_MEM = 17, "out of memory";
    DEPTH_ZERO_SELF_SIGNED_CERT = 18, "self-signed certificate";
    SELF_SIGNED_CERT_IN_CHAIN = 19, "self-signed certificate in certificate chain";
    UNABLE_TO_GET_ISSUER_CERT_LOCALLY = 20, "unable to get local issuer certificate";
    UNABLE_TO_VERIFY_LEAF_SIGNATURE = 21, "unable to verify the first certificate";
    CERT_CHAIN_TOO_LONG = 22, "certificate chain too long";
    CERT_REVOKED = 23, "certificate revoked";
    NO_ISSUER_PUBLIC_KEY = 24, "issuer certificate doesn't have a public key";
    PATH_LENGTH_EXCEEDED = 25, "path length constraint exceeded";
    INVALID_PURPOSE = 26, "unsuitable certificate purpose";
    CERT_UNTRUSTED = 27, "certificate not trusted";
    CERT_REJECTED = 28, "certificate rejected";
    SUBJECT_ISSUER_MISMATCH = 29, "subject issuer mismatch";
    AKID_SKID_MISMATCH = 30, "authority and subject key identifier mismatch";
    AKID_ISSUER_SERIAL_MISMATCH = 31, "authority and issuer serial number mismatch";
    KEYUSAGE_NO_CERTSIGN = 32, "key usage does not include certificate signing";
    UNABLE_TO_GET_CRL_ISSUER = 33, "unable to get CRL issuer certificate";
    UNHANDLED_CRITICAL_EXTENSION = 34, "unhandled critical extension";
    KEYUSAGE_NO_CRL_SIGN = 35, "key usage does not include CRL signing";
    UNHANDLED_CRITICAL_CRL_EXTENSION = 36, "unhandled critical CRL extension";
    INVALID_NON_CA = 37, "invalid non-CA certificate (has CA markings)";
    PROXY_PATH_LENGTH_EXCEEDED = 38, "proxy path length constraint exceeded";
    KEYUSAGE_NO_DIGITAL_SIGNATURE = 39, "key usage does not include digital signature";
    PROXY_CERTIFICATES_NOT_ALLOWED = 40, "proxy certificates not allowed, please set the appropriate flag";
    INVALID_EXTENSION = 41, "invalid or inconsistent certificate extension";
    INVALID_POLICY_EXTENSION = 42, "invalid or inconsistent certificate policy extension";
    NO_EXPLICIT_POLICY = 43, "no explicit policy";
    DIFFERENT_CRL_SCOPE = 44, "different CRL scope";
    UNSUPPORTED_EXTENSION_FEATURE = 45, "unsupported extension feature";
    UNNESTED_RESOURCE = 46, "RFC 3779 resource not subset of parent's resources";
    PERMITTED_VIOLATION = 47, "permitted subtree violation";
    EXCLUDED_VIOLATION = 48, "excluded subtree violation";
    SUBTREE_MINMAX = 49, "name constraints minimum and maximum not supported";
    APPLICATION_VERIFICATION = 50, "application verification failure";
    UNSUPPORTED_CONSTRAINT_TYPE = 51, "unsupported name constraint type";
    UNSUPPORTED_CONSTRAINT_SYNTAX = 52, "unsupported or invalid name constraint syntax";
    UNSUPPORTED_NAME_SYNTAX = 53, "unsupported or invalid name syntax";
    CRL_PATH_VALIDATION_ERROR = 54, "CRL path validation error";
    PATH_LOOP = 55, "path loop";
    HOSTNAME_MISMATCH = 62, "hostname mismatch";
    EMAIL_MISMATCH = 63, "email address mismatch";
    IP_ADDRESS_MISMATCH = 64, "IP address mismatch";
    EE_KEY_TOO_SMALL = 66, "EE certificate key too weak";
    CA_KEY_TOO_SMALL = 67, "CA certificate key too weak";
    CA_MD_TOO_WEAK = 68, "CA signature digest algorithm too weak";
    INVALID_CALL = 69, "invalid certificate verification context";
    STORE_LOOKUP = 70, "issuer certificate lookup error";
    INVALID_CA = 79, "invalid CA certificate";
    EC_KEY_EXPLICIT_PARAMS = 94, "Certificate public key has explicit ECC parameters";
    MISSING_SUBJECT_KEY_IDENTIFIER = 86, "Missing Subject Key Identifier";
}

impl VerifyCode {
    /// Returns OpenSSL's text.
    pub fn text(self) -> &'static str {
        NAMES
            .iter()
            .find(|(number, ..)| *number == self.0)
            .map_or("unknown certificate verification error", |row| row.2)
    }

    /// Whether the error is only a weak key or digest.
    pub(crate) fn is_weakness(self) -> bool {
        [EE_KEY_TOO_SMALL, CA_KEY_TOO_SMALL, CA_MD_TOO_WEAK].contains(&self)
    }

    /// Returns the TLS number of the alert that OpenSSL sends for the error.
    #[cfg_attr(not(feature = "legacy-tls"), allow(dead_code, reason = "rustls has alerts of its own"))]
    pub(crate) fn alert(self) -> u8 {
        match self {
            CERT_HAS_EXPIRED | CRL_HAS_EXPIRED => 45,
            CERT_REVOKED => 44,
            UNABLE_TO_GET_ISSUER_CERT
            | UNABLE_TO_GET_ISSUER_CERT_LOCALLY
            | DEPTH_ZERO_SELF_SIGNED_CERT
            | SELF_SIGNED_CERT_IN_CHAIN
            | UNABLE_TO_VERIFY_LEAF_SIGNATURE
            | UNABLE_TO_GET_CRL
            | UNABLE_TO_GET_CRL_ISSUER
            | CERT_CHAIN_TOO_LONG
            | PATH_LENGTH_EXCEEDED
            | INVALID_CA => 48,
            CERT_SIGNATURE_FAILURE | CRL_SIGNATURE_FAILURE => 51,
            CERT_NOT_YET_VALID | CRL_NOT_YET_VALID | CERT_UNTRUSTED | CERT_REJECTED => 42,
            INVALID_PURPOSE => 43,
            _ => 46,
        }
    }

    /// Parses a number, or a name with or without the prefix `X509_V_ERR_`.
    pub fn parse(word: &str) -> Option<Self> {
        if let Ok(number) = word.parse() {
            return Some(Self(number));
        }
        let name = word.strip_prefix("X509_V_ERR_").or_else(|| word.strip_prefix("X509_V_"))?;
        let full = |known: &str| known == name;
        NAMES.iter().find(|row| full(row.1)).map(|row| Self(row.0))
    }
}

/// A set of results (`crt-ignore-err`, `ca-ignore-err`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyCodes(u128);

impl VerifyCodes {
    /// All results.
    pub const ALL: Self = Self(u128::MAX);

    /// Adds a result. Numbers from 128 on do not exist and are ignored.
    pub fn insert(&mut self, code: VerifyCode) {
        self.0 |= 1u128.checked_shl(code.0.into()).unwrap_or(0);
    }

    /// Returns the set as a bit mask.
    pub(crate) fn bits(self) -> u128 {
        self.0
    }

    /// Whether the set contains a result.
    pub fn contains(self, code: VerifyCode) -> bool {
        self.0 & 1u128.checked_shl(code.0.into()).unwrap_or(0) != 0
    }
}
