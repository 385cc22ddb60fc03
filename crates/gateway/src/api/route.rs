//! The parts common to all routes, and TLS, TCP and UDP routes.

use super::{object, part};

part! {
    /// The listener or gateway to which a route is attached.
    ParentRef {
        /// The group, by default that of the Gateway API.
        group: Option<String>,
        /// The kind, by default `Gateway`.
        kind: Option<String>,
        /// The namespace, by default that of the route.
        namespace: Option<String>,
        /// The name.
        name: String,
        /// The listener.
        section_name: Option<String>,
        /// The port.
        port: Option<i32>,
    }
}

part! {
    /// A service with a weight.
    BackendRef {
        /// The group, by default the core group.
        group: Option<String>,
        /// The kind, by default `Service`.
        kind: Option<String>,
        /// The name.
        name: String,
        /// The namespace, by default that of the route.
        namespace: Option<String>,
        /// The port.
        port: Option<i32>,
        /// The weight, by default 1.
        weight: Option<i64>,
    }
}

/// Declares a route of streams or datagrams.
macro_rules! stream_route {
    ($(#[$doc:meta])* $name:ident) => {
        object! {
            $(#[$doc])*
            $name {
                /// The spec.
                spec: StreamRouteSpec,
            }
        }
    };
}

stream_route! {
    /// A route of TLS connections by their server name.
    TlsRoute
}

stream_route! {
    /// A route of TCP connections.
    TcpRoute
}

stream_route! {
    /// A route of UDP sessions.
    UdpRoute
}

part! {
    /// The spec of a route of streams or datagrams.
    StreamRouteSpec {
        /// The parents.
        parent_refs: Vec<ParentRef>,
        /// The server names; only for TLS.
        hostnames: Vec<String>,
        /// The rules.
        rules: Vec<StreamRouteRule>,
    }
}

part! {
    /// A rule of a route of streams or datagrams.
    StreamRouteRule {
        /// The backends.
        backend_refs: Vec<BackendRef>,
    }
}
