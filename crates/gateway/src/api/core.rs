//! Metadata and the core types: services, endpoints, secrets, namespaces.

use std::collections::BTreeMap;

use super::{object, part};

part! {
    /// The metadata of an object.
    Meta {
        /// The name.
        name: String,
        /// The namespace; empty for cluster-wide objects.
        namespace: String,
        /// The UID.
        uid: String,
        /// The generation of the spec.
        generation: i64,
        /// The time of creation in RFC 3339, which sorts as text.
        creation_timestamp: String,
        /// Labels.
        labels: BTreeMap<String, String>,
        /// Annotations.
        annotations: BTreeMap<String, String>,
    }
}

part! {
    /// A label selector.
    LabelSelector {
        /// Labels with their required values.
        match_labels: BTreeMap<String, String>,
        /// Further requirements.
        match_expressions: Vec<LabelRequirement>,
    }
}

part! {
    /// A requirement of a label selector.
    LabelRequirement {
        /// The label.
        key: String,
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        operator: String,
        /// The values for `In` and `NotIn`.
        values: Vec<String>,
    }
}

impl LabelSelector {
    /// Whether the labels fulfill all requirements. An empty selector matches everything.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

impl LabelRequirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator.as_str() {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

object! {
    /// A namespace.
    Namespace {}
}

object! {
    /// A service.
    Service {
        /// The spec.
        spec: ServiceSpec,
    }
}

part! {
    /// The spec of a service.
    ServiceSpec {
        /// The ports.
        ports: Vec<ServicePort>,
        /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
        r#type: String,
        /// The host of a service with type `ExternalName`.
        external_name: String,
    }
}

part! {
    /// A port of a service.
    ServicePort {
        /// The name, which may be empty if there is only one port.
        name: String,
        /// The port.
        port: i32,
        /// `TCP` (also if empty), `UDP` or `SCTP`.
        protocol: String,
        /// The application protocol, such as `kubernetes.io/h2c`.
        app_protocol: Option<String>,
        /// The number or name of the endpoints' port.
        target_port: Option<serde_json::Value>,
    }
}

object! {
    /// A part of a service's endpoints.
    EndpointSlice {
        /// `IPv4`, `IPv6` or `FQDN`.
        address_type: String,
        /// The endpoints.
        endpoints: Vec<Endpoint>,
        /// The ports of each endpoint.
        ports: Vec<EndpointPort>,
    }
}

part! {
    /// An endpoint of a slice.
    Endpoint {
        /// The addresses. Only the first one is used.
        addresses: Vec<String>,
        /// The conditions.
        conditions: EndpointConditions,
        /// The zone.
        zone: Option<String>,
        /// The pod.
        target_ref: Option<TargetRef>,
    }
}

part! {
    /// The object behind an endpoint.
    TargetRef {
        /// The name of the pod.
        name: String,
    }
}

part! {
    /// The conditions of an endpoint.
    EndpointConditions {
        /// Whether it may get new connections; true if absent.
        ready: Option<bool>,
        /// Whether it still answers, even if it is terminating.
        serving: Option<bool>,
        /// Whether it is terminating.
        terminating: Option<bool>,
    }
}

part! {
    /// A port of a slice.
    EndpointPort {
        /// The name of the service's port.
        name: Option<String>,
        /// The port of the endpoints.
        port: Option<i32>,
        /// `TCP` (also if absent), `UDP` or `SCTP`.
        protocol: Option<String>,
    }
}

object! {
    /// A secret.
    Secret {
        /// Values in base64.
        data: BTreeMap<String, String>,
        /// The type, such as `kubernetes.io/tls`.
        r#type: String,
    }
}

object! {
    /// A configuration map.
    ConfigMap {
        /// The values.
        data: BTreeMap<String, String>,
    }
}
