//! The parameters of a scrape, as in HAProxy's exporter.

use std::borrow::Cow;

use crate::certificates;
use crate::prometheus::SCOPES;

/// Both names select the scope of name servers.
const RESOLVER: &str = "resolver";
const RESOLVERS: &str = "resolvers";

/// Stick tables.
pub(super) const TABLES: &str = "sticktable";

/// Caches, which HAProxy's exporter does not have.
const CACHES: &str = "cache";

/// Percent-decodes a name or value of the query.
fn decoded(text: &[u8]) -> Result<Cow<'_, str>, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "Invalid parameter.")?;
    Ok(if text.contains('%') { Cow::Owned(crate::page::decode(text)) } else { Cow::Borrowed(text) })
}

/// The parsed query string.
#[derive(Default)]
pub(super) struct MetricsQuery {
    /// The scopes; `None` for all.
    scopes: Option<Vec<String>>,
    pub(super) no_maintenance: bool,
    /// `metrics=`: names to which the output is restricted, and names to exclude.
    only: Vec<String>,
    without: Vec<String>,
    /// `desc-labels`.
    pub(super) describe: bool,
    /// `extra-counters`.
    pub(super) modules: bool,
    /// `no-histograms`, which HAProxy's exporter does not have.
    pub(super) no_histograms: bool,
}

impl MetricsQuery {
    /// Parses the parameters in order: an empty scope resets the scopes before it.
    pub(super) fn read(query: &str) -> Result<Self, &'static str> {
        let mut wanted = Self::default();
        for (name, value) in http::uri::params(query.as_bytes(), false, None) {
            let name = decoded(name)?;
            let value = value.map(decoded).transpose()?;
            match (&*name, value.as_deref()) {
                ("scope", Some("*")) => wanted.scopes = None,
                ("scope", Some("")) => wanted.scopes = Some(Vec::new()),
                ("scope", None) => return Err("Missing scope."),
                ("metrics", None) => return Err("Missing metric names."),
                ("scope", Some(scope)) => {
                    let known = ["global", RESOLVER, RESOLVERS, TABLES, CACHES, certificates::SCOPE]
                        .contains(&scope)
                        || SCOPES.iter().any(|row| row.0 == scope);
                    if !known {
                        return Err("Unknown scope.");
                    }
                    let scope = if scope == RESOLVERS { RESOLVER } else { scope };
                    wanted.scopes.get_or_insert_default().push(scope.to_owned());
                }
                ("metrics", Some(names)) => {
                    for name in names.split(',').filter(|name| !name.is_empty()) {
                        match name.strip_prefix('-') {
                            Some(name) => wanted.without.push(name.to_owned()),
                            None => wanted.only.push(name.to_owned()),
                        }
                    }
                }
                ("no-maint", _) => wanted.no_maintenance = true,
                ("desc-labels", _) => wanted.describe = true,
                ("no-histograms", _) => wanted.no_histograms = true,
                ("extra-counters", _) => wanted.modules = true,
                _ => {}
            }
        }
        Ok(wanted)
    }

    pub(super) fn scope(&self, name: &str) -> bool {
        self.scopes.as_ref().is_none_or(|scopes| scopes.iter().any(|scope| scope == name))
    }

    /// Whether the metric `name` of `object` is selected.
    pub(super) fn metric(&self, object: &str, name: &str) -> bool {
        if self.only.is_empty() && self.without.is_empty() {
            return true;
        }
        self.named(&format!("haproxy_{object}_{name}"))
    }

    /// Whether the metric with this full name is selected.
    pub(super) fn named(&self, full: &str) -> bool {
        let is = |known: &String| known == full;
        (self.only.is_empty() || self.only.iter().any(is)) && !self.without.iter().any(is)
    }
}
