//! Canary ingresses: a part of the requests for a path of another ingress goes to a different service.

use crate::api::*;
use crate::objects::Key;
use crate::text::is_token;

/// The annotations of a canary ingress.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CanaryAnnotations {
    pub(crate) is_canary: bool,
    weight: u32,
    total: Option<u32>,
    header: Option<String>,
    value: Option<String>,
    pattern: Option<String>,
    cookie: Option<String>,
}

impl CanaryAnnotations {
    /// Sets an annotation `canary-…`.
    ///
    /// # Errors
    /// The annotation is not supported, or its value is invalid.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = || value.parse::<u32>().ok().filter(|own| *own <= 1_000_000);
        let number = || number().ok_or_else(|| format!("`{value}` is not a weight"));
        match name {
            "canary-weight" => self.weight = number()?,
            "canary-weight-total" => self.total = Some(number()?),
            "canary-by-header" if is_token(value) => self.header = Some(value.into()),
            "canary-by-header-value" => self.value = (!value.is_empty()).then(|| value.into()),
            "canary-by-header-pattern" => self.pattern = Some(value.into()),
            "canary-by-cookie" if is_token(value) => self.cookie = Some(value.into()),
            _ => return Err(format!("`{value}` is not supported")),
        }
        Ok(())
    }

    /// The rules for a path of another ingress. A header has precedence over a cookie, and a cookie over the weight.
    fn split(&self, rule: HttpRouteRule, canary: HttpBackendRef) -> Vec<HttpRouteRule> {
        let mut rules = Vec::new();
        let stable = rule.backend_refs.clone();
        let mut add = |header: Option<ValueMatch>, backends: &[HttpBackendRef]| {
            let mut own = rule.clone();
            own.backend_refs = backends.to_vec();
            own.matches.iter_mut().for_each(|it| it.headers.extend(header.clone()));
            rules.push(own);
        };
        let is = |kind: &str, name: &str, value: String| {
            Some(ValueMatch { r#type: Some(kind.into()), name: name.into(), value })
        };
        let only = std::slice::from_ref(&canary);
        if let Some(header) = &self.header {
            match (&self.value, &self.pattern) {
                (Some(value), _) => add(is("Exact", header, value.clone()), only),
                (None, Some(pattern)) => {
                    add(is("RegularExpression", header, format!(".*(?:{pattern}).*")), only)
                }
                (None, None) => {
                    add(is("Exact", header, "always".into()), only);
                    add(is("Exact", header, "never".into()), &stable);
                }
            }
        }
        if let Some(cookie) = &self.cookie {
            let regex = |value: &str| format!("(?:.*; ?)?{}={value}(?:;.*)?", regex::escape(cookie));
            add(is("RegularExpression", "cookie", regex("always")), only);
            add(is("RegularExpression", "cookie", regex("never")), &stable);
        }
        let total = self.total.unwrap_or(100).max(1);
        let weight = self.weight.min(total);
        let mut shared = stable.clone();
        if weight > 0 {
            shared.iter_mut().for_each(|own| own.service.weight = Some(i64::from(total - weight)));
            let mut own = canary.clone();
            own.service.weight = Some(i64::from(weight));
            shared.push(own);
        }
        add(None, &shared);
        rules
    }
}

/// A canary ingress.
pub(crate) struct Canary<'a> {
    pub(crate) key: &'a Key,
    pub(crate) ingress: &'a Ingress,
    pub(crate) annotations: CanaryAnnotations,
}

/// The rules of a path, with those of the first canary ingress that has it.
pub(crate) fn split(
    canaries: &[Canary<'_>],
    namespace: &str,
    host: Option<&str>,
    path: &IngressPath,
    rule: HttpRouteRule,
    backend: impl Fn(&Key, &IngressBackend) -> Option<HttpBackendRef>,
) -> Vec<HttpRouteRule> {
    let found = canaries.iter().filter(|it| it.key.namespace == namespace).find_map(|canary| {
        let path = path_of(canary.ingress, host, path)?;
        Some((canary, backend(canary.key, &path.backend)?))
    });
    match found {
        Some((canary, backend)) => canary.annotations.split(rule, backend),
        None => vec![rule],
    }
}

/// The path of an ingress that equals a path of another one.
fn path_of<'i>(ingress: &'i Ingress, host: Option<&str>, path: &IngressPath) -> Option<&'i IngressPath> {
    let rules = ingress.spec.rules.iter().filter(|rule| rule.host.as_deref() == host);
    let mut paths = rules.flat_map(|rule| rule.http.iter().flat_map(|http| &http.paths));
    paths.find(|own| own.path == path.path && own.path_type == path.path_type)
}

/// Whether an ingress has a host and path of a canary ingress.
pub(crate) fn has_common_path(canary: &Ingress, other: &Ingress) -> bool {
    canary.spec.rules.iter().any(|rule| {
        let paths = rule.http.iter().flat_map(|http| &http.paths);
        paths.into_iter().any(|path| path_of(other, rule.host.as_deref(), path).is_some())
    })
}
