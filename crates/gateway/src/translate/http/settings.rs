//! Timeouts, retries and session persistence of rules.

use crate::api::{HttpRetry, HttpTimeouts, SessionPersistence};
use crate::durations::milliseconds;
use crate::text::{digest, is_argument, is_token, quote};

/// A timeout that is never reached, because 0 is not a timeout in the configuration language.
const NEVER: &str = "20d";

/// Timeouts and retries as lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleLimits {
    /// Lines of `http-request` in the frontend.
    pub(crate) request: Vec<String>,
    /// Lines of the backend.
    pub(crate) backend: Vec<String>,
}

/// Compiles timeouts and retries.
///
/// # Errors
/// A value is not supported.
pub(crate) fn limits(
    timeouts: Option<&HttpTimeouts>,
    retry: Option<&HttpRetry>,
) -> Result<RuleLimits, String> {
    let mut limits = RuleLimits::default();
    let time = |text: Option<&String>| text.map(|text| milliseconds(text)).transpose();
    let whole = time(timeouts.and_then(|own| own.request.as_ref()))?;
    let attempt = time(timeouts.and_then(|own| own.backend_request.as_ref()))?;
    if let Some(ms) = whole.filter(|ms| *ms > 0) {
        limits.request.push(format!("set-timeout request {ms}ms"));
    }
    // An attempt may take as long as the whole request, unless there is a limit for attempts.
    match attempt.or(whole) {
        Some(0) => limits.backend.push(format!("timeout server {NEVER}")),
        Some(ms) => limits.backend.push(format!("timeout server {ms}ms")),
        None => {}
    }
    let Some(retry) = retry else { return Ok(limits) };
    let attempts = retry.attempts.unwrap_or(1).clamp(0, 100);
    let mut codes = retry.codes.clone();
    codes.sort_unstable();
    codes.dedup();
    if let Some(code) = codes.iter().find(|code| !(400..600).contains(*code)) {
        return Err(format!("retries after status {code} are not supported"));
    }
    if let Some(backoff) = &retry.backoff {
        let ms = milliseconds(backoff)?;
        if ms > 0 {
            limits.backend.push(format!("retry-delay {ms}ms"));
        }
    }
    let codes: String = codes.iter().map(|code| format!(" {code}")).collect();
    limits.backend.push(format!("retries {attempts}"));
    limits.backend.push(format!("retry-on conn-failure empty-response response-timeout{codes}"));
    limits.backend.push("option redispatch 1".into());
    Ok(limits)
}

/// Compiles session persistence. The cookie or header names the server by a keyed hash of its address, so that it stays valid
/// whatever happens to the other servers.
///
/// # Errors
/// A value is not supported.
pub(crate) fn persistence(own: &SessionPersistence, rule: &str, secret: &str) -> Result<Vec<String>, String> {
    let is_header = match own.r#type.as_deref().unwrap_or("Cookie") {
        "Cookie" => false,
        "Header" => true,
        other => return Err(format!("session persistence of type `{other}` is not supported")),
    };
    let default = format!("weir-{}", &digest(rule)[..8]);
    let mut name = own.session_name.clone().unwrap_or_else(|| default.clone());
    if !is_token(&name) || is_header && !is_argument(&name) {
        return Err(format!("`{name}` is not the name of a cookie or header"));
    }
    let mut lines = Vec::new();
    if is_header {
        lines = header(&std::mem::replace(&mut name, default.clone()), &default);
    }
    let mut line = format!("cookie {} insert indirect nocache dynamic httponly", quote(&name));
    if let Some(lifetime) = &own.absolute_timeout {
        let seconds = (milliseconds(lifetime)? / 1000).max(1);
        line.push_str(&format!(" maxlife {seconds}s"));
        let kind = own.cookie_config.as_ref().and_then(|config| config.lifetime_type.as_deref());
        if kind == Some("Permanent") {
            line.push_str(&format!(" attr max-age={seconds}"));
        }
    }
    if let Some(idle) = &own.idle_timeout {
        line.push_str(&format!(" maxidle {}s", (milliseconds(idle)? / 1000).max(1)));
    }
    lines.extend([line, format!("dynamic-cookie-key {}", digest(secret))]);
    Ok(lines)
}

/// The lines that carry the value of a cookie in a header. The server's own cookies stay.
fn header(name: &str, cookie: &str) -> Vec<String> {
    let is_sent = format!("{{ req.fhdr({name}) -m found }}");
    let is_set = format!("{{ res.cook({cookie}) -m found }}");
    vec![
        format!("http-request add-header cookie '{cookie}=%[req.fhdr({name})]' if {is_sent}"),
        format!("http-after-response set-header {name} '%[res.cook({cookie})]' if {is_set}"),
        format!("http-after-response del-header set-cookie if {is_set} {{ res.fhdr_cnt(set-cookie) eq 1 }}"),
    ]
}
