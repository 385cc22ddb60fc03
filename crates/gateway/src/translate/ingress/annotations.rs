//! The annotations of ingress-nginx and of HAProxy's ingress controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::auth::AuthAnnotations;
use super::authorization_url::Cluster;
use super::canary::CanaryAnnotations;
use super::external::ExternalHost;
use crate::api::extra::{AuthorizationRequest, Extra};
use crate::api::*;
use crate::text::{is_hostname, is_printable, literal, quote};

/// The prefixes of annotations.
const PREFIXES: [&str; 4] =
    ["nginx.ingress.kubernetes.io/", "haproxy.org/", "haproxy-ingress.github.io/", "ingress.kubernetes.io/"];

/// The annotations of an ingress that are understood.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Understood {
    /// Whether requests without TLS are redirected: if set, even without a certificate or not at all.
    ssl_redirect: Option<bool>,
    forces_ssl: bool,
    uses_regex: bool,
    rewrite_target: Option<String>,
    pub(crate) app_root: Option<String>,
    pub(crate) aliases: Vec<String>,
    redirect: Option<(String, i32)>,
    host: Option<String>,
    cors: Option<Cors>,
    persistence: Option<SessionPersistence>,
    auth: AuthAnnotations,
    /// The authorization requests, keyed by the host of the rule.
    authorizations: BTreeMap<Option<String>, AuthorizationRequest>,
    /// The hosts outside the cluster that get authorization requests.
    pub(crate) external: BTreeSet<ExternalHost>,
    pub(crate) canary: CanaryAnnotations,
    extra: Extra,
    /// Whether a restriction cannot be carried out, so that no request may pass.
    is_closed: bool,
    /// Annotations that have no effect, with the reason.
    pub(crate) problems: Vec<String>,
}

/// Reads the annotations of an ingress.
pub(crate) fn read(annotations: &BTreeMap<String, String>) -> Understood {
    let mut understood = Understood::default();
    for (key, value) in annotations {
        let name = PREFIXES.iter().find_map(|prefix| key.strip_prefix(prefix));
        if let Some(name) = name
            && let Err(problem) = understood.set(name, value.trim())
        {
            let closes = is_restriction(name);
            understood.is_closed |= closes;
            let effect = if closes { "; requests get 503" } else { "" };
            understood.problems.push(format!("annotation `{key}`: {problem}{effect}"));
        }
    }
    understood
}

/// Whether an annotation restricts the access.
fn is_restriction(name: &str) -> bool {
    let is_list = ["whitelist-source-range", "allowlist-source-range", "allow-list", "whitelist"]
        .contains(&name)
        || ["denylist-source-range", "deny-list", "blacklist"].contains(&name);
    let without_effect = ["auth-cache", "auth-keepalive", "auth-always-set-cookie"];
    is_list || name.starts_with("auth-") && !without_effect.iter().any(|own| name.starts_with(own))
}

impl Understood {
    /// Adds the settings that depend on other objects: users and authorization services.
    pub(crate) fn resolve(&mut self, cluster: Cluster<'_>, namespace: &str, spec: &IngressSpec) {
        match self.auth.users(cluster.objects, namespace) {
            Ok(None) => {}
            Ok(Some((users, problems))) => {
                self.extra.users = Some(users);
                self.problems.extend(problems);
            }
            Err(problem) => self.close(problem),
        }
        let hosts: BTreeSet<Option<&str>> = spec.rules.iter().map(|rule| rule.host.as_deref()).collect();
        let default = spec.default_backend.iter().map(|_| None);
        for host in hosts.into_iter().chain(default) {
            match self.auth.authorization(namespace, host, cluster) {
                Ok(None) => {}
                Ok(Some((authorization, external))) => {
                    self.authorizations.insert(host.map(str::to_string), authorization);
                    self.external.extend(external);
                }
                Err(problem) => {
                    self.close(problem);
                    break;
                }
            }
        }
        if self.is_closed {
            self.extra = Extra { request: vec!["return status 503".into()], ..Extra::default() };
            self.authorizations.clear();
            self.external.clear();
        }
    }

    /// The parameters of the ingress's servers, if all requests reach them unchanged and unchecked.
    pub(crate) fn servers_of_unchanged_requests(&self) -> Option<Option<String>> {
        let is_changed = self.is_closed
            || self.uses_regex
            || self.rewrite_target.is_some()
            || self.redirect.is_some()
            || self.host.is_some()
            || self.canary.is_canary
            || self.auth != AuthAnnotations::default()
            || !self.extra.request.is_empty();
        (!is_changed).then(|| self.extra.server.clone())
    }

    fn close(&mut self, problem: String) {
        self.is_closed = true;
        self.problems.push(format!("{problem}; requests get 503"));
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        if !is_printable(value) {
            return Err("the value has control characters".into());
        }
        match name {
            "ssl-redirect" => self.ssl_redirect = Some(switch(value)?),
            "force-ssl-redirect" => self.forces_ssl = switch(value)?,
            "use-regex" => self.uses_regex = switch(value)?,
            "rewrite-target" => self.rewrite_target = Some(path(value)?),
            "app-root" => self.app_root = Some(path(value)?),
            "server-alias" => {
                for alias in value.split(',').map(str::trim).filter(|alias| !alias.is_empty()) {
                    if !is_hostname(alias) {
                        return Err(format!("`{alias}` is not a hostname"));
                    }
                    self.aliases.push(alias.into());
                }
            }
            "permanent-redirect" => self.redirect = Some((url(value)?, 301)),
            "temporal-redirect" => self.redirect = Some((url(value)?, 302)),
            "upstream-vhost" if is_hostname(value) => self.host = Some(value.into()),
            "whitelist-source-range" | "allowlist-source-range" | "allow-list" | "whitelist" => {
                let line = format!("return status 403 if !{{ src {} }}", networks(value)?);
                self.extra.request.push(line);
            }
            "denylist-source-range" | "deny-list" | "blacklist" => {
                let line = format!("return status 403 if {{ src {} }}", networks(value)?);
                self.extra.request.push(line);
            }
            "proxy-body-size" => {
                let line =
                    format!("return status 413 if {{ req.hdr(content-length) -m int gt {} }}", size(value)?);
                self.extra.request.push(line);
            }
            "proxy-connect-timeout" | "timeout-connect" => self.timeout("connect", value)?,
            "proxy-read-timeout" | "timeout-server" => self.timeout("server", value)?,
            "timeout-tunnel" => self.timeout("tunnel", value)?,
            "timeout-queue" => self.timeout("queue", value)?,
            "backend-protocol" | "server-proto" | "server-ssl" | "secure-backends" => {
                self.extra.server = Some(protocol(name, value)?.into());
            }
            "load-balance" | "balance-algorithm" => {
                let algorithm = match value {
                    "round_robin" | "roundrobin" => "roundrobin",
                    "leastconn" | "least_conn" | "ewma" => "leastconn",
                    "random" => "random",
                    "source" | "ip_hash" => "source",
                    _ => return Err(format!("the algorithm `{value}` is not known")),
                };
                self.extra.backend.push(format!("balance {algorithm}"));
            }
            "limit-rps" | "rate-limit-requests" => {
                let rate: u32 = value.parse().map_err(|_| format!("`{value}` is not a number"))?;
                self.extra
                    .backend
                    .push("stick-table type ip size 100k expire 10s store http_req_rate(1s)".into());
                self.extra.backend.push("http-request track-sc0 src".into());
                let line =
                    format!("http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {rate} }}");
                self.extra.backend.push(line);
            }
            "canary" => self.canary.is_canary = switch(value)?,
            _ if name.starts_with("canary-") => self.canary.set(name, value)?,
            _ if name.starts_with("auth-") => self.auth.set(name, value)?,
            _ if name.starts_with("cors-") || name == "enable-cors" => self.set_cors(name, value)?,
            _ if name.starts_with("session-cookie-") || name.starts_with("affinity") => {
                self.set_affinity(name, value)?;
            }
            _ => return Err("it is not supported and has no effect".into()),
        }
        Ok(())
    }

    fn timeout(&mut self, which: &str, value: &str) -> Result<(), String> {
        let digits = value.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let unit = &value[digits.len()..];
        let number: u32 = digits.parse().map_err(|_| format!("`{value}` is not a time"))?;
        let unit = match unit {
            "" => "s",
            "ms" | "s" | "m" | "h" => unit,
            _ => return Err(format!("`{value}` is not a time")),
        };
        if number == 0 || number > 86_400 {
            return Err(format!("`{value}` is not a time up to a day"));
        }
        self.extra.backend.push(format!("timeout {which} {number}{unit}"));
        Ok(())
    }

    fn set_cors(&mut self, name: &str, value: &str) -> Result<(), String> {
        let list =
            || value.split(',').map(|own| own.trim().to_string()).filter(|own| !own.is_empty()).collect();
        // Values of the other annotations count only together with this one.
        if name == "enable-cors" {
            let is_on = switch(value)?;
            let cors = self.cors.get_or_insert_with(Cors::default);
            cors.max_age.get_or_insert(if is_on { 1_728_000 } else { -1 });
            return Ok(());
        }
        let cors = self.cors.get_or_insert_with(Cors::default);
        match name {
            "cors-allow-origin" => cors.allow_origins = list(),
            "cors-allow-methods" => cors.allow_methods = list(),
            "cors-allow-headers" => cors.allow_headers = list(),
            "cors-expose-headers" => cors.expose_headers = list(),
            "cors-allow-credentials" => cors.allow_credentials = Some(switch(value)?),
            "cors-max-age" => {
                cors.max_age = Some(value.parse().map_err(|_| format!("`{value}` is not a number"))?);
            }
            _ => return Err("it is not supported and has no effect".into()),
        }
        Ok(())
    }

    fn set_affinity(&mut self, name: &str, value: &str) -> Result<(), String> {
        let own = self.persistence.get_or_insert_with(SessionPersistence::default);
        match (name, value) {
            ("affinity", "cookie") => own.r#type = Some("Cookie".into()),
            ("affinity-mode", _) => {}
            ("session-cookie-name", _) => own.session_name = Some(value.into()),
            ("session-cookie-max-age" | "session-cookie-expires", _) => {
                let seconds: u32 = value.parse().map_err(|_| format!("`{value}` is not a number"))?;
                own.absolute_timeout = Some(format!("{seconds}s"));
                own.cookie_config = Some(CookieConfig { lifetime_type: Some("Permanent".into()) });
            }
            _ => return Err("it is not supported and has no effect".into()),
        }
        Ok(())
    }

    fn is_regex(&self, own: &IngressPath) -> bool {
        own.path_type != "Exact" && (self.uses_regex || self.rewrite_target.is_some())
    }

    /// The condition for a path.
    pub(crate) fn path(&self, own: &IngressPath) -> PathMatch {
        let value = own.path.clone().unwrap_or_else(|| "/".into());
        let (kind, value) = match own.path_type.as_str() {
            "Exact" => ("Exact", value),
            _ if self.is_regex(own) => ("RegularExpression", format!("(?i:{value}).*")),
            _ => ("PathPrefix", value),
        };
        PathMatch { r#type: Some(kind.into()), value: Some(value) }
    }

    /// Applies the annotations to a rule.
    pub(crate) fn apply(
        &self,
        rule: &mut HttpRouteRule,
        host: Option<&str>,
        own: &IngressPath,
        has_tls: bool,
    ) {
        let mut extra = self.extra.clone();
        extra.authorization = self.authorizations.get(&host.map(str::to_string)).cloned();
        if self.forces_ssl || has_tls && self.ssl_redirect.unwrap_or(true) {
            extra.request.insert(0, "redirect scheme https code 308 if !{ ssl_fc }".into());
        }
        if let Some((target, status)) = &self.redirect {
            extra.redirect = Some(format!("{} code {status}", quote(&literal(target))));
        }
        if let Some(target) = &self.rewrite_target {
            let from = own.path.as_deref().unwrap_or("/");
            let regex = match own.path_type.as_str() {
                "Exact" => format!("^{}$", regex::escape(from)),
                _ => format!("^(?i:{from}).*$"),
            };
            let target = literal(target).replace('\\', "\\\\").replace('$', "\\");
            extra.changes.push(format!("replace-path {} {}", quote(&regex), quote(&target)));
        }
        if let Some(host) = &self.host {
            extra.changes.push(format!("set-header host {}", quote(host)));
        }
        let is_on = |cors: &&Cors| cors.max_age.is_some_and(|age| age >= 0);
        if let Some(cors) = self.cors.as_ref().filter(is_on) {
            let mut cors = cors.clone();
            let or = |list: &mut Vec<String>, text: &str| {
                if list.is_empty() {
                    list.extend(text.split(' ').map(str::to_string));
                }
            };
            or(&mut cors.allow_origins, "*");
            or(&mut cors.allow_methods, "GET PUT POST DELETE PATCH OPTIONS");
            or(
                &mut cors.allow_headers,
                "DNT Keep-Alive User-Agent X-Requested-With If-Modified-Since Cache-Control Content-Type Range Authorization",
            );
            rule.filters.push(HttpFilter {
                r#type: "CORS".into(),
                cors: Some(cors),
                ..HttpFilter::default()
            });
        }
        rule.session_persistence = self.persistence.clone().filter(|own| own.r#type.is_some());
        rule.extra = extra;
    }
}

/// The rule that redirects `/`.
pub(crate) fn app_root(root: &str) -> HttpRouteRule {
    let path = PathMatch { r#type: Some("Exact".into()), value: Some("/".into()) };
    let redirect = Some(format!("{} code 302", quote(&literal(root))));
    HttpRouteRule {
        matches: vec![HttpMatch { path: Some(path), ..HttpMatch::default() }],
        extra: Extra { redirect, ..Extra::default() },
        ..HttpRouteRule::default()
    }
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "true" | "on" | "yes" => Ok(true),
        "false" | "off" | "no" => Ok(false),
        _ => Err(format!("`{value}` is neither true nor false")),
    }
}

fn path(value: &str) -> Result<String, String> {
    if value.starts_with('/') && !value.contains(' ') {
        Ok(value.into())
    } else {
        Err(format!("`{value}` is not a path"))
    }
}

fn url(value: &str) -> Result<String, String> {
    let is_url = value.starts_with("http://") || value.starts_with("https://") || value.starts_with('/');
    if is_url && !value.contains(' ') { Ok(value.into()) } else { Err(format!("`{value}` is not a URL")) }
}

/// A list of networks as patterns.
fn networks(value: &str) -> Result<String, String> {
    let list: Vec<&str> = value.split(',').map(str::trim).filter(|own| !own.is_empty()).collect();
    for own in &list {
        let (address, bits) =
            own.split_once('/').map_or((*own, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| format!("`{own}` is not a network"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if bits.is_some_and(|bits| bits.parse::<u8>().map_or(true, |bits| bits > most)) {
            return Err(format!("`{own}` is not a network"));
        }
    }
    if list.is_empty() { Err("the list is empty".into()) } else { Ok(list.join(" ")) }
}

/// A size in bytes: `8m`.
fn size(value: &str) -> Result<u64, String> {
    let lower = value.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match &lower[digits.len()..] {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return Err(format!("`{value}` is not a size")),
    };
    let number: u32 = digits.parse().map_err(|_| format!("`{value}` is not a size"))?;
    // 0 disables the limit.
    Ok(if number == 0 { i64::MAX as u64 } else { u64::from(number) * factor })
}

/// The parameters of servers.
fn protocol(name: &str, value: &str) -> Result<&'static str, String> {
    match (name, value.to_ascii_lowercase().as_str()) {
        ("server-ssl" | "secure-backends", value) => Ok(if switch(value)? { " ssl verify none" } else { "" }),
        (_, "http" | "h1" | "auto_http") => Ok(""),
        (_, "https" | "h1-ssl") => Ok(" ssl verify none"),
        (_, "grpc" | "h2" | "h2c") => Ok(" proto h2"),
        (_, "grpcs" | "h2-ssl") => Ok(" ssl verify none alpn h2"),
        _ => Err(format!("the protocol `{value}` is not supported")),
    }
}
