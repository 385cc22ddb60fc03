//! The conditions of rules: paths, methods, headers and query parameters.

use crate::api::{GrpcMatch, HttpMatch, PathMatch, ValueMatch};
use crate::text::{equal_to, is_argument, is_printable, is_token, quote};

/// The longest regular expression.
const LONGEST_REGEX: usize = 1024;

/// A condition on the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathPattern {
    Exact(String),
    /// Whole elements: without a slash at the end, and empty for all paths.
    Prefix(String),
    /// A regular expression with anchors.
    Regex(String),
}

/// A match of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteMatch {
    pub(crate) path: PathPattern,
    pub(crate) has_method: bool,
    pub(crate) headers: usize,
    pub(crate) queries: usize,
    /// The conditions besides the path, as words of a rule.
    pub(crate) conditions: String,
}

impl RouteMatch {
    /// The match of all requests.
    pub(crate) fn all() -> Self {
        Self::of(PathPattern::Prefix(String::new()))
    }

    pub(crate) fn of(path: PathPattern) -> Self {
        Self { path, has_method: false, headers: 0, queries: 0, conditions: String::new() }
    }

    fn push(&mut self, condition: &str) {
        if !self.conditions.is_empty() {
            self.conditions.push(' ');
        }
        self.conditions.push_str(condition);
    }
}

/// Compiles a match of an HTTP route.
///
/// # Errors
/// A part of it is malformed.
pub(crate) fn of_http(own: &HttpMatch) -> Result<RouteMatch, String> {
    let mut result = RouteMatch::of(path(own.path.as_ref())?);
    if let Some(method) = &own.method {
        if !is_token(method) {
            return Err(format!("`{method}` is not a method"));
        }
        result.has_method = true;
        result.push(&format!("{{ method {} }}", quote(method)));
    }
    headers(&mut result, &own.headers)?;
    let mut seen = Vec::new();
    for query in &own.query_params {
        if seen.contains(&query.name.as_str()) {
            continue;
        }
        seen.push(&query.name);
        if !is_argument(&query.name) {
            return Err(format!("`{}` is not a supported name of a query parameter", query.name));
        }
        result.queries += 1;
        result.push(&value(&format!("url_param({})", query.name), query)?);
    }
    Ok(result)
}

/// Compiles a match of a gRPC route.
///
/// # Errors
/// A part of it is malformed.
pub(crate) fn of_grpc(own: &GrpcMatch) -> Result<RouteMatch, String> {
    let method = own.method.clone().unwrap_or_default();
    let (service, name) = (method.service.as_deref(), method.method.as_deref());
    let path = match method.r#type.as_deref().unwrap_or("Exact") {
        "Exact" => match (service, name) {
            (Some(service), Some(name)) => PathPattern::Exact(literal_path(&format!("/{service}/{name}"))?),
            (Some(service), None) => PathPattern::Prefix(literal_path(&format!("/{service}"))?),
            (None, Some(name)) => {
                PathPattern::Regex(whole(&regex(&format!("/[^/]+/{}", regex::escape(name)))?))
            }
            (None, None) => PathPattern::Prefix(String::new()),
        },
        "RegularExpression" => {
            let part = |text: Option<&str>| -> Result<String, String> {
                text.map_or(Ok("[^/]+".into()), |text| regex(text).map(|text| format!("(?:{text})")))
            };
            PathPattern::Regex(whole(&regex(&format!("/{}/{}", part(service)?, part(name)?))?))
        }
        other => return Err(format!("`{other}` is not a supported type of method matches")),
    };
    let mut result = RouteMatch::of(path);
    headers(&mut result, &own.headers)?;
    Ok(result)
}

fn headers(result: &mut RouteMatch, list: &[ValueMatch]) -> Result<(), String> {
    let mut seen: Vec<String> = Vec::new();
    for header in list {
        let lower = header.name.to_ascii_lowercase();
        if seen.contains(&lower) {
            continue;
        }
        if !is_argument(&header.name) {
            return Err(format!("`{}` is not a supported name of a header", header.name));
        }
        seen.push(lower);
        result.headers += 1;
        result.push(&value(&format!("req.fhdr({})", header.name), header)?);
    }
    Ok(())
}

/// The condition that a fetch yields a value.
fn value(fetch: &str, own: &ValueMatch) -> Result<String, String> {
    if !is_printable(&own.value) {
        return Err(format!("the value for `{}` has control characters", own.name));
    }
    match own.r#type.as_deref().unwrap_or("Exact") {
        "Exact" => Ok(format!("{{ {fetch} {} }}", equal_to(&own.value, ""))),
        "RegularExpression" => Ok(format!("{{ {fetch} -m reg -- {} }}", quote(&whole(&regex(&own.value)?)))),
        other => Err(format!("`{other}` is not a supported type of matches")),
    }
}

/// An expression that matches a whole text.
pub(crate) fn whole(regex: &str) -> String {
    format!("^(?:{regex})$")
}

/// Checks a regular expression.
///
/// # Errors
/// The expression is malformed or too large.
pub(crate) fn regex(text: &str) -> Result<String, String> {
    if text.len() > LONGEST_REGEX || !is_printable(text) {
        return Err(format!("the regular expression is longer than {LONGEST_REGEX} bytes or not printable"));
    }
    let compiled = regex::bytes::RegexBuilder::new(text).unicode(false).size_limit(1 << 20).build();
    match compiled {
        Ok(_) => Ok(text.into()),
        Err(_) => Err(format!("`{text}` is not a supported regular expression")),
    }
}

fn path(own: Option<&PathMatch>) -> Result<PathPattern, String> {
    let value = own.and_then(|own| own.value.as_deref()).unwrap_or("/");
    match own.and_then(|own| own.r#type.as_deref()).unwrap_or("PathPrefix") {
        "Exact" => Ok(PathPattern::Exact(literal_path(value)?)),
        "PathPrefix" => Ok(PathPattern::Prefix(literal_path(value)?.trim_end_matches('/').into())),
        "RegularExpression" => Ok(PathPattern::Regex(whole(&regex(value)?))),
        other => Err(format!("`{other}` is not a supported type of path matches")),
    }
}

/// Checks the path of a match.
pub(crate) fn literal_path(path: &str) -> Result<String, String> {
    let is_valid = path.starts_with('/') && is_printable(path) && !path.contains([' ', '?', '#']);
    if is_valid { Ok(path.into()) } else { Err(format!("`{path}` is not a path")) }
}
