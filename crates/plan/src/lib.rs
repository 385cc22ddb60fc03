//! The resolved plan: immutable, shared by all workers, the only form of the configuration that
//! data ever meets.
//!
//! Every name is an index or a shared object, every expression is compiled. Neither words nor their
//! positions nor messages about them are here: `config` makes a plan of text, at boot, at reload
//! and for servers and backends that are added at run time. Read by `proxy`, `health`, `resolvers`
//! and the binary.

#![forbid(unsafe_code)]

pub mod acme;
pub mod append_list;
pub mod backends;
pub mod bind;
pub mod check;
pub mod compression;
pub mod dial;
pub mod fcgi;
pub mod filter;
mod full_load;
pub mod global;
pub mod log;
pub mod mail;
pub mod peers;
pub mod proxy;
pub mod resolvers;
pub mod ring;
pub mod server;
pub mod servers;
pub mod source_text;
pub mod spoe;

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
    /// All proxies, in the order of the configuration, then the backends added at run time. A
    /// [`ProxyIndex`] points in here.
    pub proxies: Grown<Arc<Proxy>>,
    /// `resolvers` sections, in their order; `default` is there even if the configuration has none
    /// and the system knows name servers.
    pub resolvers: Vec<Arc<Resolvers>>,
    /// `mailers` sections, in their order.
    pub mailers: Vec<Arc<mail::Mailers>>,
    /// Index of each frontend (`frontend`, `listen`) by name.
    pub frontends: HashMap<Box<str>, ProxyIndex>,
    /// Index of each backend (`backend`, `listen`) by name.
    pub backends: Backends,
    /// What backends added at run time are made of.
    pub kept: RuntimeDefaults,
    /// What it was made of, as it was said: to tell what another one changes.
    pub said: Vec<source_text::SourceSection>,
    /// The files read, in order, for `show info` and messages.
    pub files: Vec<String>,
    /// Values of the process's variables set in `global`, and their slots.
    pub variables: Arc<sample::vars::Variables>,
    /// Pattern sets by name and id, for the runtime socket (`show acl`, `show map`).
    pub patterns: Arc<sample::pattern::PatternSets>,
    /// Certificates of JSON Web Tokens, for the runtime socket (`set ssl cert`) too.
    pub certificates: Arc<sample::keys::Certificates>,
    /// Scripts, where there are any.
    pub lua: Option<Arc<lua::Program>>,
    /// Stick tables.
    pub tables: Vec<Arc<state::table::Table>>,
    /// The stores of `cache` sections.
    pub caches: Vec<Arc<cache::Store>>,
    /// Whether one of them is filled anew while what it has is stale.
    pub revalidates: bool,
    /// The files of TLS and who uses them, for the runtime socket.
    pub tls: Arc<tls::files::Files>,
    /// Certificates that are ordered by `acme` sections.
    pub acme: Vec<Arc<acme::AcmeOrder>>,
    /// What is traced from the start (`traces` sections).
    pub traces: Vec<runtime::trace::command::TraceCommand>,
    /// All rings, for the runtime socket (`show events`).
    pub rings: Vec<Arc<state::Ring>>,
    /// The servers that rings are sent to.
    pub ring_servers: Vec<ring::RingServer>,
    /// The environment after all `setenv` and its kin, for `show env`.
    pub environment: Vec<(String, String)>,
}

/// What is kept of the configuration's text for backends that are added at run time.
#[derive(Debug, Default)]
pub struct RuntimeDefaults {
    /// The named `defaults` sections, in their order.
    pub defaults: Vec<DefaultsSection>,
    /// Those sections and what their lines may name, as text.
    pub text: Box<str>,
    /// The `healthcheck` sections, as text, for servers that are added.
    pub healthchecks: Box<str>,
}

/// A named `defaults` section.
#[derive(Debug)]
pub struct DefaultsSection {
    /// Its name.
    pub name: Box<str>,
    /// Whether it says a `mode`, or the one that it is `from` does.
    pub has_mode: bool,
}

impl RuntimeDefaults {
    /// The `defaults` section of that name.
    pub fn find(&self, name: &str) -> Option<&DefaultsSection> {
        self.defaults.iter().find(|section| *section.name == *name)
    }
}

/// Where a proxy stands in [`Plan::proxies`].
pub type ProxyIndex = usize;

impl Plan {
    /// The proxy with a backend's side named `name`.
    pub fn backend(&self, name: &str) -> Option<&Arc<Proxy>> {
        self.backends.get(name).map(|index| &self.proxies[index])
    }

    /// How many proxies the configuration has: those added at run time stand behind them.
    pub fn said_proxies(&self) -> usize {
        self.proxies.len() - self.proxies.iter_added().count()
    }

    /// The proxy with a frontend's side named `name`.
    pub fn frontend(&self, name: &str) -> Option<&Arc<Proxy>> {
        self.frontends.get(name).map(|&index| &self.proxies[index])
    }
}
