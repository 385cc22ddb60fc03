//! The resolved plan: immutable, shared by all workers, and the only form of the configuration that the data path uses.
//!
//! Names are resolved to indexes or shared objects, and expressions are compiled. The plan does not contain the words of the
//! configuration, their positions, or messages about them: `config` creates a plan from text, at startup, at reload and for servers
//! and backends added at run time. Read by `proxy`, `health`, `resolvers` and the binary.

#![forbid(unsafe_code)]

pub mod acme;
pub mod append_list;
pub mod backends;
pub mod bind;
pub mod check;
pub mod compression;
pub mod dial;
pub mod discovered;
pub mod discovery;
pub mod fcgi;
pub mod filter;
mod full_load;
pub mod global;
pub mod log;
pub mod mail;
pub mod peers;
pub mod proxy;
pub mod quic;
pub mod resolvers;
pub mod ring;
pub mod server;
pub mod servers;
pub mod source_text;
pub mod spoe;
pub mod telemetry;
pub mod udp;

use std::collections::HashMap;
use std::sync::Arc;

pub use append_list::Grown;
pub use backends::Backends;
pub use bind::Bind;
pub use global::{Capability, Chroot, Global};
pub use log::Logger;
pub use proxy::{Cookie, Proxy, ProxyOptions, Timeouts};
pub use resolvers::Resolvers;
pub use server::ServerSettings;
pub use servers::Servers;

/// A whole configuration, resolved.
#[derive(Debug)]
pub struct Plan {
    /// The `global` section.
    pub global: Global,
    /// All proxies, in configuration order and indexed by [`ProxyIndex`]. Backends added at run time follow.
    pub proxies: Grown<Arc<Proxy>>,
    /// `resolvers` sections, in order. `default` exists even if it is not configured, provided that the system has name servers.
    pub resolvers: Vec<Arc<Resolvers>>,
    /// `mailers` sections, in order.
    pub mailers: Vec<Arc<mail::Mailers>>,
    /// Index of each frontend (`frontend`, `listen`) by name.
    pub frontends: HashMap<Box<str>, ProxyIndex>,
    /// Index of each backend (`backend`, `listen`) by name.
    pub backends: Backends,
    /// The backends with [attended](Self::has_attended) servers, in order.
    pub attended: Vec<ProxyIndex>,
    /// The templates for backends added at run time.
    pub kept: RuntimeDefaults,
    /// The configuration text from which the plan was created, to determine the changes in a new plan.
    pub source: Vec<source_text::PlacedSection>,
    /// The files with these sections, if a reload may resolve single sections.
    pub sectioned: Option<source_text::SectionedFiles>,
    /// The files read, in order, for `show info` and messages.
    pub files: Vec<String>,
    /// Process variables set in `global`, and their slots.
    pub variables: Arc<sample::vars::Variables>,
    /// Pattern sets by name and id, for the runtime socket (`show acl`, `show map`).
    pub patterns: Arc<sample::pattern::PatternSets>,
    /// Certificates for JSON Web Tokens, also for the runtime socket (`set ssl cert`).
    pub certificates: Arc<sample::keys::Certificates>,
    /// The scripts, if there are any.
    pub lua: Option<Arc<lua::Program>>,
    /// Stick tables.
    pub tables: Vec<Arc<state::table::Table>>,
    /// The stores of `cache` sections.
    pub caches: Vec<Arc<cache::Store>>,
    /// Whether a cache refreshes stale responses in the background.
    pub revalidates: bool,
    /// The TLS files and their users, for the runtime socket.
    pub tls: Arc<tls::files::Files>,
    /// Certificates ordered by `acme` sections.
    pub acme: Vec<Arc<acme::AcmeOrder>>,
    /// The traces enabled from the start (`traces` sections).
    pub traces: Vec<runtime::trace::command::TraceCommand>,
    /// All rings, for the runtime socket (`show events`).
    pub rings: Vec<Arc<state::Ring>>,
    /// The servers to which rings are sent.
    pub ring_servers: Vec<ring::RingServer>,
    /// `opentelemetry` sections, in order.
    pub telemetry: Vec<Arc<telemetry::TelemetrySection>>,
    /// `discovery` sections, in order.
    pub discovery: Vec<Arc<discovery::DiscoverySection>>,
    /// The environment after all `setenv` lines and similar keywords, for `show env`.
    pub environment: Vec<(String, String)>,
}

/// Configuration text kept for backends added at run time.
#[derive(Debug, Clone, Default)]
pub struct RuntimeDefaults {
    /// The named `defaults` sections, in order.
    pub defaults: Vec<DefaultsSection>,
    /// The `defaults` sections and the sections to which they refer, as text.
    pub text: Box<str>,
    /// The `healthcheck` sections, as text, for added servers.
    pub healthchecks: Box<str>,
}

/// A named `defaults` section.
#[derive(Debug, Clone)]
pub struct DefaultsSection {
    /// The name of the section.
    pub name: Box<str>,
    /// Whether the section sets a `mode`, or inherits one through `from`.
    pub has_mode: bool,
}

impl RuntimeDefaults {
    /// Returns the `defaults` section with that name.
    pub fn find(&self, name: &str) -> Option<&DefaultsSection> {
        self.defaults.iter().find(|section| *section.name == *name)
    }
}

/// An index in [`Plan::proxies`].
pub type ProxyIndex = usize;

impl Plan {
    /// Returns the backend named `name`.
    pub fn backend(&self, name: &str) -> Option<&Arc<Proxy>> {
        self.backends.get(name).map(|index| &self.proxies[index])
    }

    /// Returns the number of configured proxies, which precede those added at run time.
    pub fn configured_proxies(&self) -> usize {
        self.proxies.len() - self.proxies.iter_added().count()
    }

    /// Whether the proxy has [attended](ServerSettings::is_attended) servers, or lists of servers.
    pub fn has_attended(proxy: &Proxy) -> bool {
        !proxy.discovered.is_empty() || proxy.servers.fixed().iter().any(|server| server.is_attended())
    }

    /// Returns the backends with servers that are more than an address: servers with checks, agents or names to resolve, and so on.
    pub fn attended(&self) -> impl Iterator<Item = &Arc<Proxy>> {
        self.attended.iter().map(|index| &self.proxies[*index])
    }

    /// Returns all proxies that can have listeners, in no particular order.
    pub fn listening(&self) -> impl Iterator<Item = &Arc<Proxy>> {
        // Configured proxies that are only internal ones follow all others.
        let configured = (0..self.configured_proxies()).rev().map(|index| &self.proxies[index]);
        let hidden = configured.take_while(|proxy| proxy.is_hidden());
        self.frontends.values().map(|&index| &self.proxies[index]).chain(hidden)
    }

    /// Returns the proxies that this plan does not share with the plan that it replaces: all of them if that was resolved separately.
    pub fn unshared<'a>(&'a self, former: Option<&'a Self>) -> impl Iterator<Item = &'a Arc<Proxy>> {
        let proxies = self.proxies.iter().enumerate();
        let is_shared = move |(index, proxy): &(usize, &Arc<Proxy>)| {
            former
                .and_then(|former| former.proxies.get(*index))
                .is_some_and(|known| Arc::ptr_eq(known, proxy))
        };
        proxies.filter(move |place| !is_shared(place)).map(|(_, proxy)| proxy)
    }

    /// Returns the frontend named `name`.
    pub fn frontend(&self, name: &str) -> Option<&Arc<Proxy>> {
        self.frontends.get(name).map(|&index| &self.proxies[index])
    }
}
