//! An `acme` section that is still being parsed, and the parameters of certificate lines that order certificates.

use std::net::IpAddr;
use std::time::Duration;

use plan::acme::{Challenge, MacAlgorithm, ReadyWhen};
use syntax::Word;
use tls::keygen::Curve;

use crate::draft::tls::TlsValue;

/// The names of curves for ECDSA keys.
pub(crate) const CURVES: &[(&str, Curve)] = &[
    ("P-256", Curve::P256),
    ("P-384", Curve::P384),
    ("P-521", Curve::P521),
    ("prime256v1", Curve::P256),
    ("secp384r1", Curve::P384),
    ("secp521r1", Curve::P521),
];

/// An `acme` section that is still being parsed.
#[derive(Debug, Clone)]
pub struct AcmeDraft<'a> {
    /// `directory`.
    pub directory: Option<TlsValue<'a>>,
    /// `contact`.
    pub contact: Option<&'a str>,
    /// `account-key`.
    pub account_key: Option<TlsValue<'a>>,
    /// `challenge`.
    pub challenge: Challenge,
    /// `challenge-ready`.
    pub ready: Option<(ReadyWhen, &'a Word)>,
    /// `dns-delay`.
    pub dns_delay: Duration,
    /// `dns-timeout`.
    pub dns_timeout: Duration,
    /// `keytype`: whether the key is RSA.
    pub rsa: bool,
    /// `bits`.
    pub bits: u16,
    /// `curves`.
    pub curve: Curve,
    /// `reuse-key`.
    pub reuses_key: bool,
    /// `map`.
    pub map: Option<TlsValue<'a>>,
    /// `profile`.
    pub profile: Option<&'a str>,
    /// `provider-name`.
    pub provider: Option<&'a str>,
    /// `acme-vars`.
    pub vars: Option<&'a str>,
    /// `eab-key-id`.
    pub eab_key_id: Option<TlsValue<'a>>,
    /// `eab-mac-key`.
    pub eab_mac_key: Option<TlsValue<'a>>,
    /// `eab-mac-alg`.
    pub eab_algorithm: MacAlgorithm,
}

impl Default for AcmeDraft<'_> {
    fn default() -> Self {
        Self {
            directory: None,
            contact: None,
            account_key: None,
            challenge: Challenge::Http,
            ready: None,
            dns_delay: Duration::from_secs(30),
            dns_timeout: Duration::from_secs(600),
            rsa: false,
            bits: 2048,
            curve: Curve::P384,
            reuses_key: false,
            map: None,
            profile: None,
            provider: None,
            vars: None,
            eab_key_id: None,
            eab_mac_key: None,
            eab_algorithm: MacAlgorithm::Hs256,
        }
    }
}

/// The parameters of a certificate line that order the certificate by ACME.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OrderWords {
    /// `acme`: the name of a section.
    pub(crate) section: Box<str>,
    /// `domains`.
    pub(crate) domains: Vec<Box<str>>,
    /// `ips`.
    pub(crate) addresses: Vec<IpAddr>,
}

impl OrderWords {
    /// Parses a parameter and its value; returns `Ok(false)` if the word is none of these parameters.
    ///
    /// # Errors
    /// The value is invalid.
    pub(crate) fn take(&mut self, word: &str, value: &str) -> Result<bool, String> {
        match word {
            "acme" => self.section = value.into(),
            "domains" => {
                for name in value.split(',') {
                    if !is_domain(name) {
                        return Err(format!(
                            "`{name}` is not a host name: `domains` takes host names separated by commas"
                        ));
                    }
                    self.domains.push(name.to_ascii_lowercase().into());
                }
            }
            "ips" => {
                for text in value.split(',') {
                    let address = text.parse().map_err(|_| {
                        format!("`{text}` is not an IP address: `ips` takes addresses separated by commas")
                    })?;
                    self.addresses.push(address);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Whether a certificate can be issued for this name: a DNS name, optionally with a leading `*.`.
fn is_domain(name: &str) -> bool {
    let own = name.strip_prefix("*.").unwrap_or(name);
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    own.len() <= 253 && own.split('.').all(label)
}
