//! Settings of requests: timeouts, attempts, limits, trust.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plan::Plan;
use resolvers::Sections;
use tls::Connector;

use crate::names::Names;

/// The settings of a caller. [`ClientSettings::default`] has HAProxy's default values, no resolver and no TLS.
#[derive(Clone)]
pub struct ClientSettings {
    /// Limit for one connection including its TLS handshake (`httpclient.timeout.connect`).
    pub connect_timeout: Duration,
    /// Limit for the time without any progress by the server.
    pub idle_timeout: Duration,
    /// Limit for the whole request, failed attempts included.
    pub total_timeout: Duration,
    /// Number of attempts after the first (`httpclient.retries`).
    pub retries: u32,
    /// TLS settings; `None` if TLS is not available.
    pub secure: Option<Secure>,
    /// A proxy for `http` URLs, which gets the whole URL; `https` URLs bypass it.
    pub proxy: Option<SocketAddr>,
    /// The address to connect to, overriding the one in the URL.
    pub connect_to: Option<net::Target>,
    /// The resolver of host names.
    pub names: Names,
    /// Maximum size of a response head in bytes.
    pub max_head: usize,
    /// Maximum size of a response body in bytes.
    pub max_body: usize,
}

/// The TLS settings.
#[derive(Debug, Clone)]
pub struct Secure {
    /// The client parameters and the trust anchors.
    pub connector: Arc<Connector>,
    /// Whether the server's certificate is verified (`httpclient.ssl.verify`), including whether it is for the URL's host name or
    /// address.
    pub verifies: bool,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(120),
            retries: 3,
            secure: None,
            proxy: None,
            connect_to: None,
            names: Names::default(),
            max_head: 16 << 10,
            max_body: 1 << 20,
        }
    }
}

impl ClientSettings {
    /// Returns the configured settings (`httpclient.…`) of `plan`; `sections` must be those of `plan`.
    pub fn of(plan: &Plan, sections: &Sections) -> Self {
        let given = &plan.global.http_client;
        let section = given.resolvers.as_ref();
        let names = section.map(|section| Names::new(sections.clone(), section.clone(), given.prefer));
        let secure = given.connector.as_ref();
        Self {
            connect_timeout: given.connect_timeout,
            retries: given.retries,
            secure: secure.map(|connector| Secure { connector: connector.clone(), verifies: given.verifies }),
            names: names.unwrap_or_default(),
            ..Self::default()
        }
    }
}
