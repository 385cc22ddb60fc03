//! Certificate fields for the other parts of Weir: names, dates, serial number.

use std::net::IpAddr;

use aws_lc_rs::digest;
use base::clock::Date;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_PKIX_ACCESS_DESCRIPTOR_OCSP, OID_X509_COMMON_NAME};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::der::{self, Der};
use crate::dn::DistinguishedName;

/// A parsed certificate.
#[derive(Debug)]
pub struct CertificateFields<'a>(X509Certificate<'a>);

impl<'a> CertificateFields<'a> {
    /// Parses `der`.
    ///
    /// # Errors
    /// A short reason why the certificate is invalid.
    pub fn parse(der: &'a [u8]) -> Result<Self, &'static str> {
        match X509Certificate::from_der(der) {
            Ok(([], certificate)) => Ok(Self(certificate)),
            Ok(_) => Err("trailing bytes after a certificate"),
            Err(_) => Err("not a certificate"),
        }
    }

    /// Returns the version (`ssl_c_version`): 3 for all certificates with extensions.
    pub fn version(&self) -> u32 {
        self.0.version().0 + 1
    }

    /// Returns the subject for display (`ssl_c_s_dn`).
    pub fn subject_name(&'a self) -> DistinguishedName<'a> {
        DistinguishedName::new(self.0.subject())
    }

    /// Returns the issuer for display (`ssl_c_i_dn`).
    pub fn issuer_name(&'a self) -> DistinguishedName<'a> {
        DistinguishedName::new(self.0.issuer())
    }

    /// Returns the serial number without leading zeros (`ssl_c_serial`).
    pub fn serial_number(&self) -> &[u8] {
        let raw = self.0.raw_serial();
        if let [0, rest @ ..] = raw
            && !rest.is_empty()
        {
            rest
        } else {
            raw
        }
    }

    /// Returns the start of the validity (`ssl_c_notbefore`): `YYMMDDhhmmssZ`.
    pub fn not_before_text(&self) -> String {
        short_time(self.validity().0)
    }

    /// Returns the end of the validity (`ssl_c_notafter`).
    pub fn not_after_text(&self) -> String {
        short_time(self.validity().1)
    }

    /// Returns OpenSSL's name of the signature algorithm (`ssl_c_sig_alg`), or the object identifier.
    pub fn signature_name(&self) -> String {
        algorithm(&self.0.signature_algorithm.algorithm.to_id_string())
    }

    /// Returns OpenSSL's name of the key algorithm (`ssl_c_key_alg`), or the object identifier.
    pub fn key_name(&self) -> String {
        algorithm(&self.0.public_key().algorithm.algorithm.to_id_string())
    }

    /// Returns the kind and size of the key as in PROXY headers: `RSA2048`, `EC256`. Returns `None` for other kinds.
    pub fn key_kind(&self) -> Option<String> {
        let info = self.0.public_key();
        if let Ok(PublicKey::RSA(key)) = info.parsed() {
            let modulus = key.modulus.iter().position(|byte| *byte != 0).map(|at| &key.modulus[at..])?;
            let bits = 8 * modulus.len() - modulus[0].leading_zeros() as usize;
            return Some(format!("RSA{bits}"));
        }
        let curve = info.algorithm.parameters.as_ref()?.as_oid().ok()?.to_id_string();
        let bits = match &*curve {
            "1.3.132.0.33" => 224,
            "1.2.840.10045.3.1.7" | "1.3.132.0.10" => 256,
            "1.3.132.0.34" => 384,
            "1.3.132.0.35" => 521,
            _ => return None,
        };
        Some(format!("EC{bits}"))
    }

    /// Returns the group of the key's curve, as its TLS number.
    pub(crate) fn group(&self) -> Option<u16> {
        let curve = self.0.public_key().algorithm.parameters.as_ref()?.as_oid().ok()?;
        Some(match &*curve.to_id_string() {
            "1.2.840.10045.3.1.7" => 23,
            "1.3.132.0.34" => 24,
            "1.3.132.0.35" => 25,
            _ => return None,
        })
    }

    /// Returns the alternative names (`ssl_c_san`): `DNS:a.test, IP Address:127.0.0.1`.
    pub fn alternative_names(&self) -> Option<String> {
        let all = self.0.subject_alternative_name().ok()??;
        let shown: Vec<_> = all.value.general_names.iter().map(general_name).collect();
        Some(shown.join(", "))
    }

    /// Returns the object identifiers of the policies (`ssl_c_policies`).
    pub fn policies(&self) -> Vec<String> {
        let found = self.0.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::CertificatePolicies(policies) => Some(policies),
            _ => None,
        });
        found.map_or(Vec::new(), |all| all.iter().map(|one| one.policy_id.to_id_string()).collect())
    }

    /// Whether issuer and subject are the same.
    pub fn is_self_issued(&self) -> bool {
        self.0.subject().as_raw() == self.0.issuer().as_raw()
    }

    /// Returns the subject, as DER.
    pub fn subject(&self) -> &[u8] {
        self.0.subject().as_raw()
    }

    /// Returns the issuer, as DER.
    pub fn issuer(&self) -> &[u8] {
        self.0.issuer().as_raw()
    }

    /// Returns the bits of the public key, without the algorithm.
    pub fn key_bits(&self) -> &[u8] {
        &self.0.public_key().subject_public_key.data
    }

    /// Returns the public key with the algorithm, as DER.
    pub fn key_info(&self) -> &[u8] {
        self.0.public_key().raw
    }

    /// Whether the certificate is valid for a host name, directly or by a name with `*` in the first label.
    pub fn is_for(&self, host: &str) -> bool {
        self.names().iter().any(|name| covers(name, host))
    }

    /// Whether the DNS names among the alternative names cover a host name.
    pub fn has_dns_name(&self, host: &str) -> bool {
        self.has_alternative(|name| matches!(name, GeneralName::DNSName(own) if covers(own, host)))
    }

    /// Whether a URI is among the alternative names.
    pub fn has_uri(&self, uri: &str) -> bool {
        self.has_alternative(|name| matches!(name, GeneralName::URI(own) if *own == uri))
    }

    fn has_alternative(&self, is_wanted: impl Fn(&GeneralName<'_>) -> bool) -> bool {
        self.0.extensions().iter().any(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(list) => list.general_names.iter().any(&is_wanted),
            _ => false,
        })
    }

    /// Whether an address is among the alternative names.
    pub fn has_address(&self, address: IpAddr) -> bool {
        let (v4, v6);
        let octets: &[u8] = match address {
            IpAddr::V4(address) => {
                v4 = address.octets();
                &v4
            }
            IpAddr::V6(address) => {
                v6 = address.octets();
                &v6
            }
        };
        self.0.extensions().iter().any(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(alternatives) => {
                alternatives.general_names.contains(&GeneralName::IPAddress(octets))
            }
            _ => false,
        })
    }

    /// Returns the start and end of the validity, in seconds since 1970.
    pub fn validity(&self) -> (i64, i64) {
        let validity = self.0.validity();
        (validity.not_before.timestamp(), validity.not_after.timestamp())
    }

    /// Returns the bytes of the serial number.
    pub fn serial(&self) -> &[u8] {
        self.0.raw_serial()
    }

    /// Returns the identifier by which issued certificates refer to this certificate's key (RFC 5280, 4.2.1.2).
    pub(crate) fn subject_key_identifier(&self) -> Option<&[u8]> {
        self.0.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0),
            _ => None,
        })
    }

    /// Returns the URI of the first OCSP responder (RFC 5280, 4.2.2.1).
    pub fn ocsp_uri(&self) -> Option<&str> {
        self.0.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityInfoAccess(access) => {
                let responder = access
                    .accessdescs
                    .iter()
                    .find(|one| one.access_method == OID_PKIX_ACCESS_DESCRIPTOR_OCSP);
                match &responder?.access_location {
                    GeneralName::URI(uri) => Some(*uri),
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// Whether the key may sign OCSP responses for the certificate's issuer (RFC 6960, 4.2.2.2).
    pub(crate) fn signs_ocsp(&self) -> bool {
        self.0.extensions().iter().any(|extension| match extension.parsed_extension() {
            ParsedExtension::ExtendedKeyUsage(usage) => usage.ocsp_signing,
            _ => false,
        })
    }

    /// Returns all host names: the DNS names among the alternative names, then the common names.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for extension in self.0.extensions() {
            if let ParsedExtension::SubjectAlternativeName(alternatives) = extension.parsed_extension() {
                for name in &alternatives.general_names {
                    if let GeneralName::DNSName(name) = name {
                        names.push((*name).to_owned());
                    }
                }
            }
        }
        for name in self.0.subject().iter_by_oid(&OID_X509_COMMON_NAME) {
            names.extend(name.as_str().map(str::to_owned));
        }
        names
    }
}

/// Whether a name in a certificate matches `host`. `*` stands for some of the first label's characters.
fn covers(name: &str, host: &str) -> bool {
    let parts =
        |name: &str| name.split_once('.').map(|(label, domain)| (label.to_owned(), domain.to_owned()));
    let Some(((label, domain), (own_label, own_domain))) = parts(name).zip(parts(host)) else {
        return name.eq_ignore_ascii_case(host);
    };
    let Some((begin, end)) = label.split_once('*') else { return name.eq_ignore_ascii_case(host) };
    let (begin, end, own_label) =
        (begin.to_ascii_lowercase(), end.to_ascii_lowercase(), own_label.to_ascii_lowercase());
    domain.eq_ignore_ascii_case(&own_domain)
        && own_label.len() > begin.len() + end.len()
        && own_label.starts_with(&begin)
        && own_label.ends_with(&end)
}

/// Returns the contents of a certificate's subject, without its tag and length.
pub(crate) fn subject_of(der: &[u8]) -> Option<Vec<u8>> {
    let facts = CertificateFields::parse(der).ok()?;
    Some(Der(facts.subject()).take(der::SEQUENCE)?.0.to_vec())
}

/// Whether these bytes are a revocation list.
pub(crate) fn is_revocation_list(der: &[u8]) -> bool {
    matches!(CertificateRevocationList::from_der(der), Ok(([], _)))
}

/// Returns the algorithm and the bits of a public key, as contents of their DER.
pub(crate) fn key_parts(info: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut info = Der(info).take(der::SEQUENCE)?;
    let algorithm = info.take(der::SEQUENCE)?;
    let bits = info.take(der::BIT_STRING)?;
    Some((algorithm.0, bits.0.strip_prefix(&[0])?))
}

/// Returns the fingerprint of a certificate (`ssl_c_sha1`).
pub fn sha1(der: &[u8]) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes.copy_from_slice(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, der).as_ref());
    bytes
}

/// Returns OpenSSL's name of an algorithm.
pub(crate) fn algorithm(oid: &str) -> String {
    let name = match oid {
        "1.2.840.113549.1.1.1" => "rsaEncryption",
        "1.2.840.113549.1.1.4" => "RSA-MD5",
        "1.2.840.113549.1.1.5" => "RSA-SHA1",
        "1.2.840.113549.1.1.10" => "rsassaPss",
        "1.2.840.113549.1.1.11" => "RSA-SHA256",
        "1.2.840.113549.1.1.12" => "RSA-SHA384",
        "1.2.840.113549.1.1.13" => "RSA-SHA512",
        "1.2.840.113549.1.1.14" => "RSA-SHA224",
        "1.2.840.10045.2.1" => "id-ecPublicKey",
        "1.2.840.10045.4.1" => "ecdsa-with-SHA1",
        "1.2.840.10045.4.3.1" => "ecdsa-with-SHA224",
        "1.2.840.10045.4.3.2" => "ecdsa-with-SHA256",
        "1.2.840.10045.4.3.3" => "ecdsa-with-SHA384",
        "1.2.840.10045.4.3.4" => "ecdsa-with-SHA512",
        "1.2.840.10040.4.1" => "DSA",
        "1.3.101.112" => "ED25519",
        "1.3.101.113" => "ED448",
        other => other,
    };
    name.to_owned()
}

fn general_name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => format!("DNS:{name}"),
        GeneralName::RFC822Name(name) => format!("email:{name}"),
        GeneralName::URI(name) => format!("URI:{name}"),
        GeneralName::RegisteredID(oid) => format!("Registered ID:{}", oid.to_id_string()),
        GeneralName::DirectoryName(name) => {
            let text = DistinguishedName::new(name).spaced().unwrap_or_default();
            format!("DirName:{}", String::from_utf8_lossy(&text))
        }
        GeneralName::IPAddress(bytes) => match **bytes {
            [a, b, c, d] => format!("IP Address:{a}.{b}.{c}.{d}"),
            // OpenSSL's own format: groups without leading zeros, never shortened.
            ref bytes if bytes.len() == 16 => {
                let groups =
                    bytes.as_chunks().0.iter().map(|pair| format!("{:X}", u16::from_be_bytes(*pair)));
                format!("IP Address:{}", groups.collect::<Vec<_>>().join(":"))
            }
            _ => "IP Address:<invalid>".to_owned(),
        },
        _ => "othername:<unsupported>".to_owned(),
    }
}

/// Formats seconds since 1970 as in certificates, with a two-digit year.
fn short_time(seconds: i64) -> String {
    let Date { year, month, day, hour, minute, second, .. } = Date::utc(seconds);
    format!("{:02}{month:02}{day:02}{hour:02}{minute:02}{second:02}Z", year.rem_euclid(100))
}
