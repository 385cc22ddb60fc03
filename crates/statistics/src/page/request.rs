//! Requests for the statistics page, and its configuration.

use std::time::Duration;

/// The configuration of the page (`stats …`).
#[derive(Debug, Clone, Default)]
pub struct PageSettings {
    /// `stats uri`.
    pub uri: Box<str>,
    /// `stats refresh`.
    pub refresh: Option<Duration>,
    /// `stats scope`: the proxies shown; empty for all.
    pub scope: Vec<Box<str>>,
    /// `stats hide-version`.
    pub hide_version: bool,
    /// `stats show-legends`.
    pub show_legends: bool,
    /// `stats show-node`.
    pub node: Option<Box<str>>,
    /// `stats show-desc`.
    pub description: Option<Box<str>>,
}

/// A request for the page.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest<'a> {
    /// The method.
    pub method: http::Method,
    /// Path and query.
    pub uri: &'a str,
    /// The body of a POST.
    pub body: &'a [u8],
    /// Whether `stats admin` allows changes to this client.
    pub admin: bool,
}

/// The response.
pub struct PageResponse {
    /// The status code.
    pub status: u16,
    /// Headers, with names in lower case and without the length.
    pub headers: Vec<(&'static str, String)>,
    /// The body, in pieces that are each cheap to generate. A piece may be empty, which must not end a chunked body.
    pub body: Box<dyn Iterator<Item = Vec<u8>>>,
}

/// The outcome of a form, shown after the redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionOutcome {
    /// All chosen servers were changed.
    Done,
    /// Nothing was changed: no server or no action was chosen.
    None,
    /// Some of the chosen servers do not exist.
    Part,
    /// The action, the backend or all the servers are unknown.
    Error,
    /// The client may not change anything, or not this backend.
    Deny,
    /// The form is too large.
    TooLarge,
}

impl ActionOutcome {
    /// The value of `st=` in the page's address.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Done => "DONE",
            Self::None => "NONE",
            Self::Part => "PART",
            Self::Error => "ERRP",
            Self::Deny => "DENY",
            Self::TooLarge => "EXCD",
        }
    }
}

/// The options after the URI.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PageOptions {
    pub(crate) format: PageFormat,
    pub(crate) up: bool,
    pub(crate) no_maintenance: bool,
    pub(crate) no_refresh: bool,
    /// The outcome of an action, to be displayed (`st=`).
    pub(crate) outcome: Option<String>,
    pub(crate) scope: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PageFormat {
    #[default]
    Html,
    Csv,
    Typed,
    Json,
    Schema,
    Info,
}

/// The longest scope accepted from a request, as in HAProxy.
const MAX_SCOPE: usize = 20;

/// Parses `;csv;norefresh`, `?scope=x` and similar options after the page's own URI.
pub(crate) fn options(uri: &str, own: &str) -> PageOptions {
    let rest = uri.strip_prefix(own).unwrap_or(uri);
    let (mut options, mut scope) = (PageOptions::default(), None);
    for word in rest.split([';', '&', '?']) {
        match word {
            "csv" => options.format = PageFormat::Csv,
            "typed" => options.format = PageFormat::Typed,
            "json" => options.format = PageFormat::Json,
            "json-schema" => options.format = PageFormat::Schema,
            "info" => options.format = PageFormat::Info,
            "up" => options.up = true,
            "no-maint" => options.no_maintenance = true,
            "norefresh" => options.no_refresh = true,
            _ => {}
        }
        if let Some(outcome) = word.strip_prefix("st=") {
            options.outcome = Some(outcome.to_owned());
        }
        if let Some(text) = word.strip_prefix("scope=") {
            scope.get_or_insert(text);
        }
    }
    options.scope = scope.and_then(scope_of);
    options
}

/// The substring of proxy names that a scope selects; `None` for all proxies. A text with a character that cannot occur in a
/// proxy's name (`*`) also selects all.
fn scope_of(text: &str) -> Option<String> {
    let decoded = decode(text);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    let fits = !decoded.is_empty() && decoded.chars().all(is_name);
    fits.then(|| decoded.chars().take(MAX_SCOPE).collect())
}

/// Decodes a part of a form or address: percent-encoding and `+`.
pub fn decode(text: &str) -> String {
    let mut out = Vec::new();
    if http::uri::url_decode(text.as_bytes(), true, &mut out) {
        String::from_utf8_lossy(&out).into_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_after_the_uri_may_have_any_order() {
        let csv = PageOptions { format: PageFormat::Csv, ..PageOptions::default() };
        for (uri, own, wanted) in [
            ("/;csv;", "/", csv.clone()),
            ("/?;csv;scope=b1", "/", PageOptions { scope: Some("b1".into()), ..csv.clone() }),
            (
                "/stats?scope=a%2Db&up",
                "/stats",
                PageOptions { scope: Some("a-b".into()), up: true, ..PageOptions::default() },
            ),
            ("/s;csv;scope=a;scope=*", "/s", PageOptions { scope: Some("a".into()), ..csv.clone() }),
            ("/s;csv?scope=*&scope=a", "/s", csv.clone()),
            ("/s;csv?scope=&scope=a", "/s", csv.clone()),
            ("/s;csv?scope=a%20b", "/s", csv.clone()),
            (
                "/stats;norefresh;st=DONE",
                "/stats",
                PageOptions { no_refresh: true, outcome: Some("DONE".into()), ..PageOptions::default() },
            ),
            ("/csv", "/csv", PageOptions::default()),
            ("/s;json-schema", "/s", PageOptions { format: PageFormat::Schema, ..PageOptions::default() }),
        ] {
            assert_eq!(options(uri, own), wanted, "{uri}");
        }
    }
}
