//! Name constraints (RFC 5280, 4.2.1.10): the names for which the CAs in a chain may issue certificates.

use x509_parser::extensions::{GeneralName, GeneralSubtree, ParsedExtension};
use x509_parser::oid_registry::OID_X509_COMMON_NAME;
use x509_parser::x509::X509Name;

use super::parsed::Parsed;
use super::{Forgive, VerifyRefused, fault};
use crate::verify_code::{self as code, VerifyCode};

/// Checks the names of each certificate against the constraints of all certificates above it.
pub(super) fn check(all: &[Parsed<'_>], forgive: Forgive<'_>) -> Result<(), VerifyRefused> {
    if all.iter().skip(1).all(|one| one.name_constraints().is_none()) {
        return Ok(());
    }
    for (depth, own) in all.iter().enumerate().rev() {
        // The names of a self-issued CA certificate are exempt.
        if depth > 0 && own.is_self_issued() {
            continue;
        }
        for above in &all[depth + 1..] {
            let Some(constraints) = above.name_constraints() else { continue };
            let permitted = constraints.permitted_subtrees.as_deref().unwrap_or_default();
            let excluded = constraints.excluded_subtrees.as_deref().unwrap_or_default();
            if let Some(code) = judge(own, depth, permitted, excluded) {
                fault(forgive, code, depth)?;
            }
        }
    }
    Ok(())
}

fn judge(
    own: &Parsed<'_>,
    depth: usize,
    permitted: &[GeneralSubtree<'_>],
    excluded: &[GeneralSubtree<'_>],
) -> Option<VerifyCode> {
    let certificate = own.certificate();
    let mut names: Vec<ConstrainedName<'_>> = Vec::new();
    let subject = certificate.subject();
    if subject.iter().next().is_some() {
        names.push(ConstrainedName::Directory(subject));
        for email in subject.iter_email() {
            names.push(ConstrainedName::Email(email.as_str().ok()?));
        }
    }
    let mut has_dns = false;
    for extension in certificate.extensions() {
        if let ParsedExtension::SubjectAlternativeName(alternatives) = extension.parsed_extension() {
            for name in &alternatives.general_names {
                has_dns |= matches!(name, GeneralName::DNSName(_));
                names.push(ConstrainedName::of(name));
            }
        }
    }
    if depth == 0 && !has_dns {
        // If there is no other name, a common name that looks like a host name is checked.
        let common = subject.iter_by_oid(&OID_X509_COMMON_NAME).filter_map(|name| name.as_str().ok());
        names.extend(common.filter(|name| is_host(name)).map(ConstrainedName::Dns));
    }
    names.iter().find_map(|name| name.judge(permitted, excluded))
}

fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.contains('.') && name.split('.').all(is_label)
}

enum ConstrainedName<'a> {
    Directory(&'a X509Name<'a>),
    Dns(&'a str),
    Email(&'a str),
    Address(&'a [u8]),
    Uri(&'a str),
    Other,
}

impl<'a> ConstrainedName<'a> {
    fn of(name: &'a GeneralName<'a>) -> Self {
        match name {
            GeneralName::DirectoryName(name) => Self::Directory(name),
            GeneralName::DNSName(name) => Self::Dns(name),
            GeneralName::RFC822Name(name) => Self::Email(name),
            GeneralName::IPAddress(bytes) => Self::Address(bytes),
            GeneralName::URI(name) => Self::Uri(name),
            _ => Self::Other,
        }
    }

    fn judge(&self, permitted: &[GeneralSubtree<'_>], excluded: &[GeneralSubtree<'_>]) -> Option<VerifyCode> {
        let (mut asked, mut allowed) = (false, false);
        for tree in permitted {
            if let Some(within) = self.is_within(&tree.base) {
                asked = true;
                allowed |= within;
            }
        }
        if asked && !allowed {
            return Some(code::PERMITTED_VIOLATION);
        }
        let is_excluded = excluded.iter().any(|tree| self.is_within(&tree.base) == Some(true));
        is_excluded.then_some(code::EXCLUDED_VIOLATION)
    }

    /// Whether the name is within `base`, or `None` if `base` is of a different kind.
    fn is_within(&self, base: &GeneralName<'_>) -> Option<bool> {
        Some(match (self, base) {
            (Self::Directory(name), GeneralName::DirectoryName(base)) => is_directory_within(name, base),
            (Self::Dns(name), GeneralName::DNSName(base)) => is_host_within(name, base),
            (Self::Email(name), GeneralName::RFC822Name(base)) => is_email_within(name, base),
            (Self::Address(bytes), GeneralName::IPAddress(base)) => is_address_within(bytes, base),
            (Self::Uri(name), GeneralName::URI(base)) => is_uri_within(name, base),
            _ => return None,
        })
    }
}

/// Whether `name` starts with the components of `base`.
fn is_directory_within(name: &X509Name<'_>, base: &X509Name<'_>) -> bool {
    let parts = |name: &X509Name<'_>| -> Vec<(String, Vec<u8>)> {
        let all = name.iter_attributes();
        all.map(|one| (one.attr_type().to_id_string(), one.as_slice().to_ascii_lowercase())).collect()
    };
    parts(name).starts_with(&parts(base))
}

/// Whether `name` is `base` or below it. An empty base contains everything.
fn is_host_within(name: &str, base: &str) -> bool {
    let Some(start) = name.len().checked_sub(base.len()) else { return false };
    let Some((head, tail)) = name.split_at_checked(start) else { return false };
    let begins_a_label = start == 0 || base.is_empty() || base.starts_with('.') || head.ends_with('.');
    begins_a_label && tail.eq_ignore_ascii_case(base)
}

fn is_email_within(name: &str, base: &str) -> bool {
    let Some((user, host)) = name.rsplit_once('@') else { return false };
    match base.rsplit_once('@') {
        Some(("", base_host)) => host.eq_ignore_ascii_case(base_host),
        Some((base_user, base_host)) => user == base_user && host.eq_ignore_ascii_case(base_host),
        None if base.starts_with('.') => is_host_within(host, base),
        None => host.eq_ignore_ascii_case(base) || base.is_empty(),
    }
}

/// A base consists of an address and its mask.
fn is_address_within(address: &[u8], base: &[u8]) -> bool {
    let (base, mask) = base.split_at(base.len() / 2);
    address.len() == base.len()
        && base.len() == mask.len()
        && address.iter().zip(base).zip(mask).all(|((own, base), mask)| (own ^ base) & mask == 0)
}

fn is_uri_within(uri: &str, base: &str) -> bool {
    let Some((_, rest)) = uri.split_once("://") else { return false };
    let host = rest.split(['/', ':', '?', '#']).next().unwrap_or_default();
    if base.starts_with('.') { is_host_within(host, base) } else { host.eq_ignore_ascii_case(base) }
}
