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
    /// `stats frame-ancestors`: sources of the content security policy; empty for all.
    pub frame_ancestors: Box<str>,
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
    /// The body of a POST; `None` if it is too large.
    pub body: Option<&'a [u8]>,
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
    /// An update for a page that is already shown (`live`): without style and script.
    pub(crate) is_live: bool,
    /// With `live`, the ids of the proxies that are shown with their servers (`open=`).
    pub(crate) open: Vec<u32>,
    /// The full-screen form (`wall`).
    pub(crate) is_wall: bool,
    /// Only proxies with problems (`problems`).
    pub(crate) only_problems: bool,
    pub(crate) order: PageOrder,
    /// Part of the name of a proxy or server, or of an address (`find=`), in lower case.
    pub(crate) find: Option<String>,
    /// The objects with all their counters (`detail=`).
    pub(crate) details: Vec<Detailed>,
}

/// The order of the table (`sort=`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PageOrder {
    /// Worst first.
    #[default]
    Worst,
    Name,
    Rate,
    Errors,
    /// As configured.
    Config,
}

/// The values of `sort=`, with the labels of their links.
pub(crate) const ORDERS: &[(&str, PageOrder, &str)] = &[
    ("worst", PageOrder::Worst, "Worst first"),
    ("errors", PageOrder::Errors, "By failures"),
    ("rate", PageOrder::Rate, "By rate"),
    ("name", PageOrder::Name, "By name"),
    ("config", PageOrder::Config, "As configured"),
];

/// An object that is shown with all counters: `<proxy>`, `<proxy>.<server>`, or `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detailed {
    All,
    Proxy(u32),
    Server(u32, u32),
}

/// The most objects in `detail=` and `open=`; others are ignored.
const MOST_LISTED: usize = 64;

/// The longest text that is searched for.
const MAX_FIND: usize = 100;

impl PageOptions {
    /// The options in the form in which they follow the page's URI.
    pub(crate) fn words(&self) -> String {
        let mut out = String::new();
        for (is_set, word) in [
            (self.up, ";up"),
            (self.no_maintenance, ";no-maint"),
            (self.no_refresh, ";norefresh"),
            (self.is_wall, ";wall"),
            (self.only_problems, ";problems"),
        ] {
            out.push_str(if is_set { word } else { "" });
        }
        if let Some((word, ..)) = ORDERS.iter().find(|(_, order, _)| *order == self.order)
            && self.order != PageOrder::default()
        {
            out.push_str(";sort=");
            out.push_str(word);
        }
        for (name, text) in [(";scope=", &self.scope), (";find=", &self.find)] {
            if let Some(text) = text {
                let mut encoded = Vec::new();
                http::uri::url_encode(text.as_bytes(), &mut encoded);
                out.push_str(name);
                // These separate options, and begin a fragment.
                out.push_str(
                    &String::from_utf8_lossy(&encoded)
                        .replace(';', "%3B")
                        .replace('&', "%26")
                        .replace('#', "%23"),
                );
            }
        }
        for detailed in &self.details {
            out.push_str(";detail=");
            out.push_str(&match detailed {
                Detailed::All => "all".to_owned(),
                Detailed::Proxy(proxy) => proxy.to_string(),
                Detailed::Server(proxy, server) => format!("{proxy}.{server}"),
            });
        }
        out
    }

    /// Whether all counters of an object are shown.
    pub(crate) fn details_of(&self, wanted: Detailed) -> bool {
        self.details.iter().any(|own| *own == wanted || *own == Detailed::All)
    }
}

fn detailed(text: &str) -> Option<Detailed> {
    if text == "all" {
        return Some(Detailed::All);
    }
    match text.split_once('.') {
        Some((proxy, server)) => Some(Detailed::Server(proxy.parse().ok()?, server.parse().ok()?)),
        None => Some(Detailed::Proxy(text.parse().ok()?)),
    }
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
            "live" => options.is_live = true,
            "wall" => options.is_wall = true,
            // A field of a form has a value.
            "problems" | "problems=1" => options.only_problems = true,
            _ => {}
        }
        if let Some(text) = word.strip_prefix("sort=")
            && let Some((_, order, _)) = ORDERS.iter().find(|(name, ..)| *name == text)
        {
            options.order = *order;
        }
        if let Some(text) = word.strip_prefix("find=") {
            let text: String = decode(text).trim().to_lowercase().chars().take(MAX_FIND).collect();
            options.find = Some(text).filter(|text| !text.is_empty());
        }
        if let Some(text) = word.strip_prefix("detail=") {
            let fits = options.details.len() < MOST_LISTED;
            options.details.extend(detailed(&decode(text)).filter(|_| fits));
        }
        if let Some(text) = word.strip_prefix("open=") {
            let ids = text.split(',').filter_map(|id| id.parse::<u32>().ok());
            options.open.extend(ids.take(MOST_LISTED));
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
            (
                "/s?find=A%3Bb+c&sort=rate;problems;detail=3.5;detail=x;live;open=3,4,z",
                "/s",
                PageOptions {
                    find: Some("a;b c".into()),
                    order: PageOrder::Rate,
                    only_problems: true,
                    details: vec![Detailed::Server(3, 5)],
                    is_live: true,
                    open: vec![3, 4],
                    ..PageOptions::default()
                },
            ),
            ("/s;json-schema", "/s", PageOptions { format: PageFormat::Schema, ..PageOptions::default() }),
        ] {
            assert_eq!(options(uri, own), wanted, "{uri}");
        }
    }

    #[test]
    fn written_options_are_read_again() {
        let written = PageOptions {
            up: true,
            no_maintenance: true,
            no_refresh: true,
            is_wall: true,
            only_problems: true,
            scope: Some("a-b".into()),
            order: PageOrder::Errors,
            find: Some("a;b&c#d e".into()),
            details: vec![Detailed::All, Detailed::Proxy(3), Detailed::Server(4, 5)],
            ..PageOptions::default()
        };
        assert_eq!(options(&format!("/s{}", written.words()), "/s"), written);
        let many = "/s".to_owned() + &";detail=1".repeat(1000);
        assert_eq!(options(&many, "/s").details.len(), MOST_LISTED);
    }
}
