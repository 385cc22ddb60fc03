//! The objects from which a configuration is made.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::*;

/// The namespace (empty for cluster-wide objects) and name of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// A key of these parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => out.write_str(&self.name),
            namespace => write!(out, "{namespace}/{}", self.name),
        }
    }
}

macro_rules! objects {
    ($($(#[$doc:meta])* $field:ident: $type:ident = $kind:literal;)*) => {
        /// The objects from which a configuration is made, by kind.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct Objects {
            $($(#[$doc])* pub $field: BTreeMap<Key, $type>,)*
        }

        impl Objects {
            /// The kinds.
            pub const KINDS: &[&str] = &[$($kind),*];

            /// Adds an object or replaces the one with its name. Returns whether the object differs from the replaced one.
            ///
            /// # Errors
            /// The kind is unknown, or a field has a wrong type.
            pub fn insert(&mut self, kind: &str, object: Value) -> Result<bool, String> {
                match kind {
                    $($kind => {
                        let object: $type = serde_json::from_value(object).map_err(|error| error.to_string())?;
                        let key = Key::new(&object.metadata.namespace, &object.metadata.name);
                        let is_new = self.$field.get(&key) != Some(&object);
                        self.$field.insert(key, object);
                        Ok(is_new)
                    })*
                    _ => Err(format!("unknown kind `{kind}`")),
                }
            }

            /// Removes an object. Returns whether there was one.
            pub fn remove(&mut self, kind: &str, key: &Key) -> bool {
                match kind {
                    $($kind => self.$field.remove(key).is_some(),)*
                    _ => false,
                }
            }

            /// Makes an object equal to the one of `other`, or removes it if `other` has none with this name.
            pub fn copy_from(&mut self, other: &Self, kind: &str, key: &Key) {
                match kind {
                    $($kind => match other.$field.get(key) {
                        Some(object) => drop(self.$field.insert(key.clone(), object.clone())),
                        None => drop(self.$field.remove(key)),
                    },)*
                    _ => {}
                }
            }

            /// Removes all objects of a kind.
            pub fn clear(&mut self, kind: &str) {
                match kind {
                    $($kind => self.$field.clear(),)*
                    _ => {}
                }
            }
        }
    };
}

objects! {
    /// Classes of gateways.
    gateway_classes: GatewayClass = "GatewayClass";
    /// Gateways.
    gateways: Gateway = "Gateway";
    /// Sets of listeners.
    listener_sets: ListenerSet = "ListenerSet";
    /// Routes of HTTP requests.
    http_routes: HttpRoute = "HTTPRoute";
    /// Routes of gRPC calls.
    grpc_routes: GrpcRoute = "GRPCRoute";
    /// Routes of TLS connections.
    tls_routes: TlsRoute = "TLSRoute";
    /// Routes of TCP connections.
    tcp_routes: TcpRoute = "TCPRoute";
    /// Routes of UDP sessions.
    udp_routes: UdpRoute = "UDPRoute";
    /// Grants of references.
    reference_grants: ReferenceGrant = "ReferenceGrant";
    /// TLS settings of connections to services.
    backend_tls_policies: BackendTlsPolicy = "BackendTLSPolicy";
    /// Ingresses.
    ingresses: Ingress = "Ingress";
    /// Classes of ingresses.
    ingress_classes: IngressClass = "IngressClass";
    /// Namespaces.
    namespaces: Namespace = "Namespace";
    /// Services.
    services: Service = "Service";
    /// Endpoints of services.
    endpoint_slices: EndpointSlice = "EndpointSlice";
    /// Secrets.
    secrets: Secret = "Secret";
    /// Configuration maps.
    config_maps: ConfigMap = "ConfigMap";
}
