//! Gateway classes, gateways and listener sets.

use serde_json::Value;

use super::{LabelSelector, object, part};

object! {
    /// A class of gateways.
    GatewayClass {
        /// The spec.
        spec: GatewayClassSpec,
    }
}

part! {
    /// The spec of a class.
    GatewayClassSpec {
        /// The controller of the class.
        controller_name: String,
        /// Parameters of the controller.
        parameters_ref: Option<Value>,
    }
}

object! {
    /// A gateway.
    Gateway {
        /// The spec.
        spec: GatewaySpec,
        /// The current status.
        status: GatewayStatus,
    }
}

part! {
    /// The spec of a gateway.
    GatewaySpec {
        /// The class.
        gateway_class_name: String,
        /// The listeners.
        listeners: Vec<Listener>,
        /// The requested addresses.
        addresses: Vec<Address>,
        /// Labels, annotations and parameters of the infrastructure.
        infrastructure: Option<Infrastructure>,
        /// The namespaces from which listener sets may be attached.
        allowed_listeners: Option<AllowedListeners>,
        /// TLS settings of all listeners and of connections to backends.
        tls: Option<GatewayTls>,
    }
}

part! {
    /// The part of a gateway's status that is read.
    GatewayStatus {
        /// The addresses.
        addresses: Vec<Address>,
    }
}

part! {
    /// An address of a gateway.
    Address {
        /// `IPAddress` (also if absent), `Hostname` or another type.
        r#type: Option<String>,
        /// The value; empty if the controller assigns one.
        value: String,
    }
}

part! {
    /// The infrastructure of a gateway.
    Infrastructure {
        /// Parameters of the controller.
        parameters_ref: Option<Value>,
    }
}

part! {
    /// The listener sets that may be attached.
    AllowedListeners {
        /// Their namespaces.
        namespaces: Option<FromNamespaces>,
    }
}

part! {
    /// A choice of namespaces.
    FromNamespaces {
        /// `All`, `Selector`, `Same` or `None`.
        from: Option<String>,
        /// The labels for `Selector`.
        selector: Option<LabelSelector>,
    }
}

part! {
    /// A listener of a gateway or of a listener set.
    Listener {
        /// The name, unique in the gateway or the set.
        name: String,
        /// The hostname, which may begin with `*.`. Without one, all names match.
        hostname: Option<String>,
        /// The port.
        port: i32,
        /// `HTTP`, `HTTPS`, `TLS`, `TCP` or `UDP`.
        protocol: String,
        /// TLS settings.
        tls: Option<ListenerTls>,
        /// The routes that may be attached.
        allowed_routes: Option<AllowedRoutes>,
    }
}

part! {
    /// The TLS settings of a listener.
    ListenerTls {
        /// `Terminate` (also if absent) or `Passthrough`.
        mode: Option<String>,
        /// The certificates.
        certificate_refs: Vec<ObjectRef>,
    }
}

part! {
    /// A reference to an object. The defaults of absent fields depend on the place.
    ObjectRef {
        /// The group.
        group: Option<String>,
        /// The kind.
        kind: Option<String>,
        /// The name.
        name: String,
        /// The namespace.
        namespace: Option<String>,
    }
}

part! {
    /// The routes that may be attached to a listener.
    AllowedRoutes {
        /// Their namespaces, by default that of the listener.
        namespaces: Option<FromNamespaces>,
        /// Their kinds; if empty, all kinds that suit the protocol.
        kinds: Vec<RouteKind>,
    }
}

part! {
    /// A kind of routes.
    RouteKind {
        /// The group, by default that of the Gateway API.
        group: Option<String>,
        /// The kind.
        kind: String,
    }
}

part! {
    /// The TLS settings of a gateway.
    GatewayTls {
        /// Settings of connections to backends.
        backend: Option<GatewayBackendTls>,
        /// Settings of connections from clients.
        frontend: Option<FrontendTls>,
    }
}

part! {
    /// TLS settings of a gateway's connections to backends.
    GatewayBackendTls {
        /// The client certificate.
        client_certificate_ref: Option<ObjectRef>,
    }
}

part! {
    /// TLS settings of connections from clients.
    FrontendTls {
        /// The settings for all ports that `per_port` does not list.
        default: TlsConfig,
        /// The settings of single ports.
        per_port: Vec<TlsPort>,
    }
}

part! {
    /// The settings of a port.
    TlsPort {
        /// The port.
        port: i32,
        /// The settings.
        tls: TlsConfig,
    }
}

part! {
    /// TLS settings.
    TlsConfig {
        /// The verification of client certificates.
        validation: Option<FrontendValidation>,
    }
}

part! {
    /// The verification of client certificates.
    FrontendValidation {
        /// The trusted authorities.
        ca_certificate_refs: Vec<ObjectRef>,
        /// `AllowValidOnly` (also if absent) or `AllowInsecureFallback`.
        mode: Option<String>,
    }
}

object! {
    /// A set of listeners that belong to a gateway.
    ListenerSet {
        /// The spec.
        spec: ListenerSetSpec,
    }
}

part! {
    /// The spec of a set of listeners.
    ListenerSetSpec {
        /// The gateway.
        parent_ref: ObjectRef,
        /// The listeners.
        listeners: Vec<Listener>,
    }
}
