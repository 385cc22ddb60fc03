//! Timeouts, retries and session persistence of rules.

use crate::api::{HttpRetry, HttpTimeouts, SessionPersistence};
use crate::durations::milliseconds;
use crate::text::{digest, is_token, quote};

/// The statuses that `retry-on` knows.
const STATUSES: [i32; 12] = [401, 403, 404, 408, 421, 425, 429, 500, 501, 502, 503, 504];

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
    if let Some(code) = codes.iter().find(|code| !STATUSES.contains(code)) {
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

/// Compiles session persistence. The cookie names the server by a keyed hash of its address, so that it stays valid whatever
/// happens to the other servers.
///
/// # Errors
/// A value is not supported.
pub(crate) fn persistence(own: &SessionPersistence, rule: &str, secret: &str) -> Result<Vec<String>, String> {
    if own.r#type.as_deref().unwrap_or("Cookie") != "Cookie" {
        return Err("session persistence by headers is not supported".into());
    }
    let name = own.session_name.clone().unwrap_or_else(|| format!("weir-{}", &digest(rule)[..8]));
    if !is_token(&name) {
        return Err(format!("`{name}` is not the name of a cookie"));
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
    Ok(vec![line, format!("dynamic-cookie-key {}", digest(secret))])
}
