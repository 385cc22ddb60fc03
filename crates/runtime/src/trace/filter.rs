//! Selects the requests for traces of rules (`trace rules only …`).

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, RwLock};

use base::network::Network;

/// A criterion for requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestFilter {
    /// Requests of clients in a network.
    Source(Network),
    /// Requests with a header of this name and value.
    Header(Box<str>, Box<str>),
}

impl RequestFilter {
    /// Parses `src=<network>` or `hdr=<name>:<value>`.
    ///
    /// # Errors
    /// The criterion is unknown or its value invalid.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let usage = "use 'src=<address>[/<mask>]', 'hdr=<name>:<value>' or 'none'";
        match text.split_once('=') {
            Some(("src", network)) => match Network::parse(network) {
                Ok(network) => Ok(Self::Source(network)),
                Err(_) => Err(format!("Invalid network '{network}'\n")),
            },
            Some(("hdr", field)) => match field.split_once(':') {
                Some((name, value)) if !name.is_empty() && !value.is_empty() => {
                    Ok(Self::Header(name.into(), value.into()))
                }
                _ => Err(format!("Invalid header '{field}': {usage}\n")),
            },
            _ => Err(format!("Unknown criterion '{text}': {usage}\n")),
        }
    }

    /// Whether a request matches. `has_value` is called with the name of a header and a value, and returns whether the request has
    /// it.
    pub fn matches(&self, source: Option<IpAddr>, has_value: impl FnOnce(&str, &[u8]) -> bool) -> bool {
        match self {
            Self::Source(network) => source.is_some_and(|source| network.contains(source)),
            Self::Header(name, value) => has_value(name, value.as_bytes()),
        }
    }
}

impl fmt::Display for RequestFilter {
    /// Omits the value of a header, which is meant to be known to those who may trace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(network) => write!(f, "src={network}"),
            Self::Header(name, _) => write!(f, "hdr={name}:…"),
        }
    }
}

static FILTER: RwLock<Option<Arc<RequestFilter>>> = RwLock::new(None);

/// The current filter; `None` if all requests are traced.
pub fn request_filter() -> Option<Arc<RequestFilter>> {
    FILTER.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
}

/// Replaces the filter.
pub(super) fn set_request_filter(filter: Option<RequestFilter>) {
    *FILTER.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = filter.map(Arc::new);
}
