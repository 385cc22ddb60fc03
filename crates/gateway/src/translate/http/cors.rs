//! Cross-origin resource sharing, as rules.

use crate::api::Cors;
use crate::text::{equal_to, is_printable, is_token, quote};

/// The lines of a CORS filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CorsLines {
    /// Lines for the request: the origin is stored in `txn.origin` if it is allowed, and preflight requests are answered.
    pub(crate) request: Vec<String>,
    /// Lines for all responses to allowed origins.
    pub(crate) response: Vec<String>,
}

/// The longest list of origins, methods or headers.
const LONGEST: usize = 64;

/// Compiles a CORS filter.
///
/// # Errors
/// A value is not supported.
pub(crate) fn compile(own: &Cors) -> Result<CorsLines, String> {
    let mut lines = CorsLines::default();
    let with_credentials = own.allow_credentials == Some(true);
    lines.request.push("unset-var(txn.origin)".into());
    for origin in own.allow_origins.iter().take(LONGEST) {
        lines.request.push(format!("set-var(txn.origin) req.fhdr(origin) if {}", origin_condition(origin)?));
    }
    let allows_all = own.allow_origins.iter().any(|origin| origin == "*") && !with_credentials;
    let origin = if allows_all { "*" } else { "%[var(txn.origin)]" };
    let mut common = vec![format!("access-control-allow-origin '{origin}'")];
    if with_credentials {
        common.push("access-control-allow-credentials true".into());
    }
    let mut preflight = common.clone();
    let requested = |with: &str| format!("'%[req.fhdr(access-control-request-{with})]'");
    let methods = list(&own.allow_methods)?;
    if !methods.is_empty() {
        let value = if methods == "*" && with_credentials { requested("method") } else { quote(&methods) };
        preflight.push(format!("access-control-allow-methods {value}"));
    }
    let headers = list(&own.allow_headers)?;
    if !headers.is_empty() {
        let value = if headers == "*" && with_credentials { requested("headers") } else { quote(&headers) };
        preflight.push(format!("access-control-allow-headers {value}"));
    }
    preflight.push(format!("access-control-max-age {}", own.max_age.unwrap_or(5).max(0)));
    let fields: Vec<String> = preflight.iter().map(|field| format!("hdr {field}")).collect();
    let is_preflight = "{ method OPTIONS } { req.fhdr(origin) -m found } { req.fhdr(access-control-request-method) -m found }";
    let allowed = "{ var(txn.origin) -m found }";
    lines.request.push(format!("return status 204 {} if {is_preflight} {allowed}", fields.join(" ")));
    lines.request.push(format!("return status 204 if {is_preflight}"));
    let exposed = list(&own.expose_headers)?;
    if !exposed.is_empty() {
        common.push(format!("access-control-expose-headers {}", quote(&exposed)));
    }
    lines.response = common.iter().map(|field| format!("set-header {field} if {allowed}")).collect();
    lines.response.push(format!("add-header vary origin if {allowed}"));
    Ok(lines)
}

/// The condition that a request comes from an origin.
fn origin_condition(origin: &str) -> Result<String, String> {
    if !is_printable(origin) || origin.contains(' ') || origin.is_empty() {
        return Err(format!("`{origin}` is not an origin"));
    }
    Ok(match origin {
        "*" => "{ req.fhdr(origin) -m found }".into(),
        _ if origin.contains('*') => {
            let regex = regex::escape(origin).replace("\\*", ".*");
            format!("{{ req.fhdr(origin) -m reg -i -- {} }}", quote(&format!("^{regex}$")))
        }
        _ => format!("{{ req.fhdr(origin) {} }}", equal_to(origin, "-i ")),
    })
}

/// A list of names as the value of a header.
fn list(names: &[String]) -> Result<String, String> {
    let names = &names[..names.len().min(LONGEST)];
    if names.iter().any(|name| name == "*") {
        return Ok("*".into());
    }
    match names.iter().find(|name| !is_token(name) || name.contains('%')) {
        Some(name) => Err(format!("`{name}` is not a name")),
        None => Ok(names.join(", ")),
    }
}
