//! Reads certificates and CA certificates from secrets and config maps.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::api::{ObjectRef, Secret};
use crate::objects::Key;
use crate::text::section_name;

use super::context::Context;
use super::grants::Referrer;
use super::pem;

/// The cause of an unusable reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadRef {
    /// The reference needs a grant.
    NotPermitted(String),
    /// The kind is not supported.
    Kind(String),
    /// The object does not exist, or its content is invalid.
    Invalid(String),
}

impl BadRef {
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::NotPermitted(message) | Self::Kind(message) | Self::Invalid(message) => message,
        }
    }
}

/// The file of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateFile {
    /// The absolute path.
    pub(crate) path: String,
    /// A message if the certificate has expired.
    pub(crate) expired: Option<String>,
}

/// Writes the certificate and key of a secret to a file.
///
/// # Errors
/// The reference is not allowed, or the secret has no valid certificate and key.
pub(crate) fn key_pair(
    context: &mut Context<'_>,
    reference: &ObjectRef,
    from: Referrer<'_>,
) -> Result<CertificateFile, BadRef> {
    let key = resolve(context, reference, from, "Secret")?;
    let objects = context.objects;
    let secret = objects.secrets.get(&key).ok_or_else(|| missing("secret", &key))?;
    let invalid = |problem: String| BadRef::Invalid(format!("secret `{key}`: {problem}"));
    let pair = pair(secret).map_err(invalid)?;
    let is_expired = pair.not_after < context.settings.now;
    let expired = is_expired.then(|| format!("the certificate of secret `{key}` has expired"));
    if let Some(message) = &expired {
        context.warn("Secret", &key, "CertificateExpired", message.clone());
    }
    let relative = format!("certs/{}.pem", file_name(&key));
    let path = context.path(&relative);
    context.files.insert(relative, pair.pem);
    Ok(CertificateFile { path, expired })
}

/// The authorities of the references as PEM text, and the errors of references without any.
pub(crate) fn authorities(
    context: &Context<'_>,
    references: &[ObjectRef],
    from: Referrer<'_>,
) -> (Vec<u8>, Vec<BadRef>) {
    let (mut text, mut errors) = (Vec::new(), Vec::new());
    for reference in references {
        match authority(context, reference, from) {
            Ok(pem) => text.extend_from_slice(&pem),
            Err(error) => errors.push(error),
        }
    }
    (text, errors)
}

fn authority(context: &Context<'_>, reference: &ObjectRef, from: Referrer<'_>) -> Result<Vec<u8>, BadRef> {
    let key = resolve(context, reference, from, "ConfigMap")?;
    let map = context.objects.config_maps.get(&key).ok_or_else(|| missing("configuration map", &key))?;
    let invalid = |problem: &str| BadRef::Invalid(format!("configuration map `{key}`: {problem}"));
    let text = map.data.get("ca.crt").ok_or_else(|| invalid("there is no `ca.crt`"))?;
    let certificates = pem::certificates(text.as_bytes()).map_err(|problem| invalid(&problem))?;
    Ok(certificates.pem)
}

/// The key of the object to which a reference refers.
fn resolve(
    context: &Context<'_>,
    reference: &ObjectRef,
    from: Referrer<'_>,
    kind: &str,
) -> Result<Key, BadRef> {
    let group = reference.group.as_deref().unwrap_or("");
    let given = reference.kind.as_deref().unwrap_or(kind);
    if !group.is_empty() || given != kind {
        let name = &reference.name;
        return Err(BadRef::Kind(format!(
            "`{name}` is a {given}; only {kind}s of the core group are supported"
        )));
    }
    let namespace = reference.namespace.as_deref().unwrap_or(from.namespace);
    let key = Key::new(namespace, &reference.name);
    if !context.grants.allow(from, "", kind, namespace, &reference.name) {
        return Err(BadRef::NotPermitted(format!(
            "no ReferenceGrant allows the reference to {kind} `{key}`"
        )));
    }
    Ok(key)
}

fn missing(what: &str, key: &Key) -> BadRef {
    BadRef::Invalid(format!("there is no {what} `{key}`"))
}

/// The name of an object's file, unique for each object.
pub(crate) fn file_name(key: &Key) -> String {
    section_name(&format!("{}_{}", key.namespace, key.name)).replace(':', "-")
}

/// The certificate chain and the key of a secret.
struct KeyPair {
    pem: Vec<u8>,
    not_after: u64,
}

fn pair(secret: &Secret) -> Result<KeyPair, String> {
    let value = |name: &str| {
        let text = secret.data.get(name).ok_or_else(|| format!("there is no `{name}`"))?;
        STANDARD.decode(text).map_err(|_| format!("`{name}` is not in base64"))
    };
    let (chain, key) = (value("tls.crt")?, value("tls.key")?);
    let chain = pem::certificates(&chain).map_err(|problem| format!("`tls.crt`: {problem}"))?;
    let mut text = chain.pem;
    text.extend_from_slice(&pem::private_key(&key).map_err(|problem| format!("`tls.key`: {problem}"))?);
    Ok(KeyPair { pem: text, not_after: chain.not_after })
}
