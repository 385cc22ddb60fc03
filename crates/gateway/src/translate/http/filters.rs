//! The filters of a route's rules and backends, as rules of the configuration.

use crate::api::extra::AuthorizationRequest;
use crate::api::{HeaderModifier, HttpFilter, PathModifier, RequestMirror, RequestRedirect, UrlRewrite};
use crate::text::{is_hostname, is_printable, is_token, literal, quote};

use super::authorize;
use super::cors::{self, CorsLines};
use super::matches::literal_path;

/// The cause of an unsupported filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadFilter {
    /// Two filters contradict each other.
    Incompatible(String),
    /// A value is not supported.
    Unsupported(String),
}

/// Filters as lines, without `http-request` and similar words in front of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Filters {
    /// Changes of the request.
    pub(crate) request: Vec<String>,
    /// Changes of the response.
    pub(crate) response: Vec<String>,
    pub(crate) cors: Option<CorsLines>,
    /// The mirrors. Their backends are resolved by the caller.
    pub(crate) mirrors: Vec<RequestMirror>,
    /// The authorization services. Their backends are resolved by the caller.
    pub(crate) authorizations: Vec<AuthorizationRequest>,
    /// A redirect, which ends the request.
    pub(crate) redirect: Vec<String>,
    /// Whether the length of the matched prefix is used.
    pub(crate) needs_prefix: bool,
}

/// Compiles filters.
///
/// # Errors
/// A filter is not supported.
pub(crate) fn compile(list: &[HttpFilter]) -> Result<Filters, BadFilter> {
    let mut filters = Filters::default();
    let mut has_rewrite = false;
    for filter in list {
        let incomplete = || BadFilter::Unsupported(format!("the {} filter has no settings", filter.r#type));
        match filter.r#type.as_str() {
            "RequestHeaderModifier" => {
                let own = filter.request_header_modifier.as_ref().ok_or_else(incomplete)?;
                push_headers(&mut filters.request, own)?;
            }
            "ResponseHeaderModifier" => {
                let own = filter.response_header_modifier.as_ref().ok_or_else(incomplete)?;
                push_headers(&mut filters.response, own)?;
            }
            "RequestMirror" => {
                filters.mirrors.push(filter.request_mirror.clone().ok_or_else(incomplete)?);
            }
            "RequestRedirect" => {
                push_redirect(&mut filters, filter.request_redirect.as_ref().ok_or_else(incomplete)?)?;
            }
            "URLRewrite" => {
                has_rewrite = true;
                push_rewrite(&mut filters, filter.url_rewrite.as_ref().ok_or_else(incomplete)?)?;
            }
            "CORS" => {
                let own = filter.cors.as_ref().ok_or_else(incomplete)?;
                filters.cors = Some(cors::compile(own).map_err(BadFilter::Unsupported)?);
            }
            "ExternalAuth" => {
                let own = filter.external_auth.as_ref().ok_or_else(incomplete)?;
                filters.authorizations.push(authorize::of_filter(own).map_err(BadFilter::Unsupported)?);
            }
            other => return Err(BadFilter::Unsupported(format!("filter type `{other}` is not supported"))),
        }
    }
    if has_rewrite && !filters.redirect.is_empty() {
        let message = "URLRewrite and RequestRedirect cannot be combined";
        return Err(BadFilter::Incompatible(message.into()));
    }
    Ok(filters)
}

fn push_headers(lines: &mut Vec<String>, own: &HeaderModifier) -> Result<(), BadFilter> {
    let unsupported = |text: &str| BadFilter::Unsupported(format!("`{text}` is not a supported header"));
    for (action, list) in [("set-header", &own.set), ("add-header", &own.add)] {
        for header in list {
            if !is_token(&header.name) || !is_printable(&header.value) || header.value.is_empty() {
                return Err(unsupported(&header.name));
            }
            lines.push(format!("{action} {} {}", quote(&header.name), quote(&literal(&header.value))));
        }
    }
    for name in &own.remove {
        if !is_token(name) {
            return Err(unsupported(name));
        }
        lines.push(format!("del-header {}", quote(name)));
    }
    Ok(())
}

/// The lines that set `txn.path` to the changed path.
fn push_path(lines: &mut Vec<String>, own: &PathModifier) -> Result<bool, BadFilter> {
    let check = |path: &str| {
        if path.is_empty() { Ok(String::new()) } else { literal_path(path).map_err(BadFilter::Unsupported) }
    };
    match own.r#type.as_str() {
        "ReplaceFullPath" => {
            let path = check(own.replace_full_path.as_deref().unwrap_or_default())?;
            let path = if path.is_empty() { "/".into() } else { path };
            lines.push(format!("set-var(txn.path) str({})", argument(&path)?));
            Ok(false)
        }
        "ReplacePrefixMatch" => {
            let prefix = check(own.replace_prefix_match.as_deref().unwrap_or_default())?;
            let prefix = literal(prefix.trim_end_matches('/'));
            lines.push(format!(
                "set-var-fmt(txn.path) {}",
                quote(&format!("{prefix}%[path,bytes(txn.prefix)]"))
            ));
            lines.push("set-var(txn.path) str(/) if !{ var(txn.path) -m len gt 0 }".into());
            Ok(true)
        }
        other => Err(BadFilter::Unsupported(format!("path type `{other}` is not supported"))),
    }
}

/// An argument of a fetch, in quotes if necessary.
fn argument(text: &str) -> Result<String, BadFilter> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./~:@+=&%!*;".contains(&byte);
    if text.bytes().all(is_plain) {
        return Ok(text.into());
    }
    Err(BadFilter::Unsupported(format!("`{text}` has characters that are not supported here")))
}

fn push_rewrite(filters: &mut Filters, own: &UrlRewrite) -> Result<(), BadFilter> {
    if let Some(path) = &own.path {
        filters.needs_prefix |= push_path(&mut filters.request, path)?;
        filters.request.push("set-path '%[var(txn.path)]'".into());
    }
    if let Some(host) = &own.hostname {
        filters.request.push(format!("set-header host {}", quote(&hostname(host)?)));
    }
    Ok(())
}

fn hostname(host: &str) -> Result<String, BadFilter> {
    let is_valid = is_hostname(host) && !host.starts_with('*');
    if is_valid {
        Ok(host.into())
    } else {
        Err(BadFilter::Unsupported(format!("`{host}` is not a hostname")))
    }
}

fn push_redirect(filters: &mut Filters, own: &RequestRedirect) -> Result<(), BadFilter> {
    let lines = &mut filters.redirect;
    let status = own.status_code.unwrap_or(302);
    if ![301, 302, 303, 307, 308].contains(&status) {
        return Err(BadFilter::Unsupported(format!("redirects with status {status} are not supported")));
    }
    let scheme = match own.scheme.as_deref() {
        None => "%[var(txn.scheme)]",
        Some("http") => "http",
        Some("https") => "https",
        Some(other) => return Err(BadFilter::Unsupported(format!("scheme `{other}` is not supported"))),
    };
    let host = match &own.hostname {
        Some(host) => hostname(host)?,
        None => "%[var(txn.host)]".into(),
    };
    // Without a port, the one of the scheme is used, or the one of the listener.
    let port = match (own.port, own.scheme.as_deref()) {
        (Some(80), Some("http")) | (Some(443), Some("https")) | (None, Some(_)) => String::new(),
        (Some(port), Some(_)) => format!(":{port}"),
        (port, None) => {
            let text = port.map_or("dst_port".into(), |port| format!("int({port})"));
            lines.push(format!("set-var(txn.port) {text}"));
            lines.push("set-var-fmt(txn.port) ':%[var(txn.port)]'".into());
            for (scheme, port) in [("http", 80), ("https", 443)] {
                let condition =
                    format!("{{ var(txn.scheme) -m str {scheme} }} {{ var(txn.port) -m str :{port} }}");
                lines.push(format!("unset-var(txn.port) if {condition}"));
            }
            "%[var(txn.port)]".into()
        }
    };
    if let Some(path) = &own.path {
        filters.needs_prefix |= push_path(lines, path)?;
    } else {
        lines.push("set-var(txn.path) path".into());
    }
    lines.push("set-var-fmt(txn.query) '?%[query]' if { query -m found }".into());
    let target = format!("{scheme}://{host}{port}%[var(txn.path)]%[var(txn.query)]");
    lines.push(format!("redirect location {} code {status}", quote(&target)));
    Ok(())
}
