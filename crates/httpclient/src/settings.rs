//! How requests are made: time, tries, limits, whom to trust.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plan::Plan;
use resolvers::Sections;
use tls::Connector;

use crate::names::Names;

/// The settings of a caller. [`ClientSettings::default`] has HAProxy's numbers, resolves no names and speaks no
/// TLS.
#[derive(Clone)]
pub struct ClientSettings {
    /// For one connection with its TLS handshake (`httpclient.timeout.connect`).
    pub connect_timeout: Duration,
    /// From one sign of the server to the next.
    pub idle_timeout: Duration,
    /// For everything, tries that failed included.
    pub total_timeout: Duration,
    /// Tries after the first one (`httpclient.retries`).
    pub retries: u32,
    /// How TLS is spoken; `None` where it cannot be.
    pub secure: Option<Secure>,
    /// A proxy for `http` URLs, which is sent the whole URL; `https` goes past it.
    pub proxy: Option<SocketAddr>,
    /// Where to connect to, whatever the URL names.
    pub connect_to: Option<net::Target>,
    /// How names get addresses.
    pub names: Names,
    /// The most bytes of a response's head.
    pub max_head: usize,
    /// The most bytes of a response's body.
    pub max_body: usize,
}

/// How TLS is spoken.
#[derive(Debug, Clone)]
pub struct Secure {
    /// What is offered, and whom to trust.
    pub connector: Arc<Connector>,
    /// Whether the server's certificate must be good (`httpclient.ssl.verify`); then it must be for
    /// the host of the URL, address or name.
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
    /// What the plan says of such requests (`httpclient.…`); `sections` are its own.
    pub fn of(plan: &Plan, sections: &Sections) -> Self {
        let said = &plan.global.http_client;
        let section = said.resolvers.as_ref();
        let names = section.map(|section| Names::new(sections.clone(), section.clone(), said.prefer));
        let secure = said.connector.as_ref();
        Self {
            connect_timeout: said.connect_timeout,
            retries: said.retries,
            secure: secure.map(|connector| Secure { connector: connector.clone(), verifies: said.verifies }),
            names: names.unwrap_or_default(),
            ..Self::default()
        }
    }
}
