//! Settings of the controller.

use std::collections::BTreeMap;

use crate::objects::Key;

/// Settings of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The controller name of the gateway classes that are served.
    pub controller_name: String,
    /// The controller name of the ingress classes that are served.
    pub ingress_controller: String,
    /// The addresses of gateways. Each gateway gets its own as long as there are enough; further gateways share the first one.
    pub addresses: Vec<ListenAddress>,
    /// The addresses of single gateways, which then get none of `addresses`.
    pub placements: BTreeMap<Key, ListenAddress>,
    /// The absolute path of the directory that has the files of [`Output::files`](crate::Output::files).
    pub directory: String,
    /// Lines for the `global` section.
    pub global: Vec<String>,
    /// Lines for the `defaults` section, after the built-in ones.
    pub defaults: Vec<String>,
    /// Further sections, after all others.
    pub sections: String,
    /// How often the proxy looks for changed endpoints, in milliseconds.
    pub endpoints_refresh_ms: u64,
    /// The time in seconds since 1970, to recognize expired certificates.
    pub now: u64,
}

/// An address at which gateways listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress {
    /// The IP address to bind, or `*` for all addresses.
    pub bind: String,
    /// The addresses in the status of gateways: IP addresses or hostnames.
    pub reported: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            controller_name: "weir.dev/gateway-controller".into(),
            ingress_controller: "weir.dev/ingress-controller".into(),
            addresses: vec![ListenAddress { bind: "*".into(), reported: Vec::new() }],
            placements: BTreeMap::new(),
            directory: "/run/weir-gateway".into(),
            global: Vec::new(),
            defaults: Vec::new(),
            sections: String::new(),
            endpoints_refresh_ms: 100,
            now: 0,
        }
    }
}
