//! Authentication at ingresses: users with passwords, and authorization services.
//!
//! If an annotation of this kind cannot be carried out, requests get 503: they must not pass unchecked.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::api::extra::{AdmittedUsers, AuthorizationProtocol, AuthorizationRequest};
use crate::objects::{Key, Objects};
use crate::text::{digest, is_printable, is_token, literal, quote};

use super::authorization_url::{AuthorizationTarget, Cluster};
use super::external::ExternalHost;

/// The maximum number of users in a list.
const MOST_USERS: usize = 10_000;

/// The annotations.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AuthAnnotations {
    is_basic: bool,
    secret: Option<String>,
    realm: Option<String>,
    /// Whether each key of the secret is a user.
    is_map: bool,
    url: Option<String>,
    method: Option<String>,
    sign_in: Option<String>,
    redirect_parameter: Option<String>,
    sent: Option<Vec<String>>,
    copied: Vec<String>,
}

impl AuthAnnotations {
    /// Sets an annotation `auth-…`.
    ///
    /// # Errors
    /// The annotation is not supported, or its value is invalid.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "auth-type" if ["basic", "basic-auth"].contains(&value) => self.is_basic = true,
            "auth-type" => return Err(format!("the type `{value}` is not supported; use `basic`")),
            "auth-secret" => self.secret = Some(value.into()),
            "auth-secret-type" => self.is_map = value == "auth-map",
            "auth-realm" => self.realm = (!value.is_empty()).then(|| value.into()),
            "auth-url" => self.url = Some(value.into()),
            "auth-method" if is_token(value) => self.method = Some(value.into()),
            "auth-signin" => self.sign_in = Some(value.into()),
            "auth-signin-redirect-param" if is_token(value) => self.redirect_parameter = Some(value.into()),
            "auth-response-headers" | "auth-headers-succeed" => self.copied = names(value)?,
            "auth-headers-request" => self.sent = (value != "*").then(|| names(value)).transpose()?,
            _ => return Err("it is not supported".into()),
        }
        Ok(())
    }

    /// The users that are admitted, with the problems of their list.
    ///
    /// # Errors
    /// The secret is missing or has no valid user.
    pub(crate) fn users(
        &self,
        objects: &Objects,
        namespace: &str,
    ) -> Result<Option<(AdmittedUsers, Vec<String>)>, String> {
        if !self.is_basic && (self.secret.is_none() || self.url.is_some()) {
            return Ok(None);
        }
        let secret = self.secret.as_deref().ok_or("`auth-type` needs `auth-secret`")?;
        let name = match secret.split_once('/') {
            Some((other, name)) if other == namespace => name,
            Some(_) => return Err(format!("`auth-secret` refers to another namespace: {secret}")),
            None => secret,
        };
        let found = objects.secrets.get(&Key::new(namespace, name));
        let found = found.ok_or_else(|| format!("there is no secret `{namespace}/{name}`"))?;
        let decode =
            |text: &String| STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let entries: Vec<(String, String)> = match found.data.get("auth").filter(|_| !self.is_map) {
            Some(file) => {
                let file = decode(file)
                    .ok_or_else(|| format!("secret `{namespace}/{name}`: `auth` is not a text"))?;
                let lines =
                    file.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
                lines
                    .filter_map(|line| line.split_once(':'))
                    .map(|(user, hash)| (user.into(), hash.into()))
                    .collect()
            }
            None => {
                found.data.iter().filter_map(|(user, hash)| Some((user.clone(), decode(hash)?))).collect()
            }
        };
        let (mut lines, mut problems, mut seen) = (Vec::new(), Vec::new(), std::collections::BTreeSet::new());
        for (user, hash) in entries.into_iter().take(MOST_USERS) {
            match password(hash.trim()) {
                Some(password) if is_printable(&user) && !user.is_empty() && seen.insert(user.clone()) => {
                    lines.push(format!("user {} {password}", quote(&user)));
                }
                _ => problems.push(format!("secret `{namespace}/{name}`: user `{user}` is double, or has a password that is not supported; use `htpasswd -B`")),
            }
        }
        if lines.is_empty() {
            return Err(format!("secret `{namespace}/{name}` has no users"));
        }
        let realm = self.realm.clone().unwrap_or_else(|| "Authentication required".into());
        Ok(Some((
            AdmittedUsers { name: format!("users-{}", digest(&lines)), lines, realm: literal(&realm) },
            problems,
        )))
    }

    /// The request to the authorization service for requests to a host, with its destination.
    ///
    /// # Errors
    /// The annotations do not name a service.
    pub(crate) fn authorization(
        &self,
        namespace: &str,
        host: Option<&str>,
        cluster: Cluster<'_>,
    ) -> Result<Option<(AuthorizationRequest, Option<ExternalHost>)>, String> {
        let Some(url) = &self.url else {
            return if self.sign_in.is_some() {
                Err("`auth-signin` needs `auth-url`".into())
            } else {
                Ok(None)
            };
        };
        let AuthorizationTarget { backend, server, external, url } =
            AuthorizationTarget::find(url, namespace, host, cluster)?;
        let request = AuthorizationRequest {
            backend,
            protocol: AuthorizationProtocol::Http,
            is_granted: true,
            server,
            method: Some(self.method.clone().unwrap_or_else(|| "GET".into())),
            url,
            sent: self.sent.clone(),
            copied: Some(self.copied.clone()),
            sign_in: self
                .sign_in
                .as_deref()
                .map(|own| sign_in(own, self.redirect_parameter.as_deref()))
                .transpose()?,
            body: 0,
        };
        Ok(Some((request, external)))
    }
}

fn names(value: &str) -> Result<Vec<String>, String> {
    let list: Vec<String> =
        value.split(',').map(|own| own.trim().to_string()).filter(|own| !own.is_empty()).collect();
    match list.iter().find(|own| !is_token(own)) {
        Some(own) => Err(format!("`{own}` is not the name of a header")),
        None => Ok(list),
    }
}

/// The words for a password of a list.
fn password(text: &str) -> Option<String> {
    let plain = text.strip_prefix(':').or_else(|| text.strip_prefix("{PLAIN}"));
    if let Some(plain) = plain {
        return (is_printable(plain) && !plain.is_empty())
            .then(|| format!("insecure-password {}", quote(plain)));
    }
    let kinds = ["$1$", "$2a$", "$2b$", "$2y$", "$5$", "$6$", "$y$", "$apr1$"];
    let is_hash = kinds.iter().any(|kind| text.starts_with(kind));
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./$=,".contains(&byte));
    (is_hash && is_plain).then(|| format!("password {}", quote(text)))
}

/// The log format of the URL to which clients without permission are redirected. It has the URL of the request as a parameter.
fn sign_in(url: &str, parameter: Option<&str>) -> Result<String, String> {
    let is_url = url.starts_with("https://") || url.starts_with("http://") || url.starts_with('/');
    if !is_url || !is_printable(url) || url.contains(' ') {
        return Err(format!("`auth-signin` is not a URL: {url}"));
    }
    let scheme = "%[req.fhdr(x-forwarded-proto)]";
    let mut text = literal(url);
    for (variable, value) in [
        ("$escaped_request_uri", "%[pathq,url_enc]"),
        ("$request_uri", "%[pathq]"),
        ("$pass_access_scheme", scheme),
        ("$scheme", scheme),
        ("$http_host", "%[req.fhdr(host)]"),
        ("$best_http_host", "%[req.fhdr(host)]"),
        ("$host", "%[var(txn.host)]"),
    ] {
        text = text.replace(variable, value);
    }
    if text.contains('$') {
        return Err(format!("`auth-signin` has a variable that is not supported: {url}"));
    }
    let parameter = format!("{}=", literal(parameter.unwrap_or("rd")));
    if !text.contains(&parameter) {
        let separator = if text.contains('?') { '&' } else { '?' };
        text.push_str(&format!("{separator}{parameter}{scheme}://%[req.fhdr(host)]%[pathq,url_enc]"));
    }
    Ok(text)
}
