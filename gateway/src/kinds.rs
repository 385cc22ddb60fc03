//! The kinds of objects that are watched.

use gateway_model::Key;

/// How a controller shares the status of an object with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusShape {
    /// The status is neither used nor written.
    None,
    /// The status is used, but not written.
    Observed,
    /// The whole status belongs to this controller.
    Whole,
    /// The status has a list in that field. Each entry names its controller.
    Entries(&'static str),
    /// Only that field is written.
    Field(&'static str),
}

/// A kind of objects.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WatchedKind {
    /// The kind, as in the objects.
    pub(crate) kind: &'static str,
    /// The group and version, as in `apiVersion`.
    pub(crate) version: &'static str,
    /// The plural name in paths.
    plural: &'static str,
    is_namespaced: bool,
    /// A field selector that leaves out objects that are never used, encoded for a URL.
    pub(crate) selector: &'static str,
    /// The shape of the status.
    pub(crate) status: StatusShape,
    /// Whether the kind is an extension, which a cluster may lack.
    pub(crate) is_extension: bool,
    /// Whether the kind is only used for Ingresses.
    pub(crate) is_ingress: bool,
}

const GATEWAY_V1: &str = "gateway.networking.k8s.io/v1";

const fn core(kind: &'static str, version: &'static str, plural: &'static str) -> WatchedKind {
    WatchedKind {
        kind,
        version,
        plural,
        is_namespaced: true,
        selector: "",
        status: StatusShape::None,
        is_extension: false,
        is_ingress: false,
    }
}

const fn gateway(kind: &'static str, plural: &'static str, status: StatusShape) -> WatchedKind {
    WatchedKind { status, is_extension: true, ..core(kind, GATEWAY_V1, plural) }
}

const fn route(kind: &'static str, plural: &'static str) -> WatchedKind {
    gateway(kind, plural, StatusShape::Entries("parents"))
}

/// All kinds.
pub(crate) const KINDS: &[WatchedKind] = &[
    WatchedKind { is_namespaced: false, ..gateway("GatewayClass", "gatewayclasses", StatusShape::Whole) },
    gateway("Gateway", "gateways", StatusShape::Whole),
    gateway("ListenerSet", "listenersets", StatusShape::Whole),
    route("HTTPRoute", "httproutes"),
    route("GRPCRoute", "grpcroutes"),
    route("TLSRoute", "tlsroutes"),
    route("TCPRoute", "tcproutes"),
    route("UDPRoute", "udproutes"),
    gateway("ReferenceGrant", "referencegrants", StatusShape::None),
    gateway("BackendTLSPolicy", "backendtlspolicies", StatusShape::Entries("ancestors")),
    WatchedKind {
        status: StatusShape::Field("loadBalancer"),
        is_ingress: true,
        ..core("Ingress", "networking.k8s.io/v1", "ingresses")
    },
    WatchedKind {
        is_namespaced: false,
        is_ingress: true,
        ..core("IngressClass", "networking.k8s.io/v1", "ingressclasses")
    },
    WatchedKind { is_namespaced: false, ..core("Namespace", "v1", "namespaces") },
    WatchedKind { status: StatusShape::Observed, ..core("Service", "v1", "services") },
    core("EndpointSlice", "discovery.k8s.io/v1", "endpointslices"),
    // Releases of Helm and tokens can be most of the bytes in a cluster.
    WatchedKind {
        selector: "type%21%3Dhelm.sh%2Frelease.v1%2Ctype%21%3Dkubernetes.io%2Fservice-account-token",
        ..core("Secret", "v1", "secrets")
    },
    WatchedKind { selector: "metadata.name%21%3Dkube-root-ca.crt", ..core("ConfigMap", "v1", "configmaps") },
];

impl WatchedKind {
    /// Returns the kind with this name.
    pub(crate) fn named(kind: &str) -> Option<&'static Self> {
        KINDS.iter().find(|own| own.kind == kind)
    }

    fn root(&self) -> String {
        let prefix = if self.version == "v1" { "api" } else { "apis" };
        format!("/{prefix}/{}", self.version)
    }

    /// The path of the objects in all namespaces.
    pub(crate) fn list_path(&self) -> String {
        format!("{}/{}", self.root(), self.plural)
    }

    /// The path of an object.
    pub(crate) fn path(&self, key: &Key) -> String {
        match self.is_namespaced {
            true => format!("{}/namespaces/{}/{}/{}", self.root(), key.namespace, self.plural, key.name),
            false => format!("{}/{}/{}", self.root(), self.plural, key.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_the_model_is_watched() {
        let watched: Vec<&str> = KINDS.iter().map(|own| own.kind).collect();
        assert_eq!(watched, gateway_model::Objects::KINDS);
    }

    #[test]
    fn paths_follow_the_scope() {
        let path = |kind: &str, key: &Key| WatchedKind::named(kind).expect("it is known").path(key);
        assert_eq!(path("Service", &Key::new("a", "b")), "/api/v1/namespaces/a/services/b");
        assert_eq!(
            path("GatewayClass", &Key::new("", "b")),
            "/apis/gateway.networking.k8s.io/v1/gatewayclasses/b"
        );
    }

    /// The resources of each rule of a role, with its verbs.
    fn rules(text: &str) -> Vec<(Vec<String>, String)> {
        let words = |text: &str| -> Vec<String> {
            let words = text.split(|byte: char| !(byte.is_ascii_alphanumeric() || "/.".contains(byte)));
            words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        let parts = text.split("resources:").skip(1).filter_map(|part| part.split_once("verbs:"));
        let lines = parts.map(|(resources, rest)| (resources, rest.lines().next().unwrap_or_default()));
        lines.map(|(resources, verbs)| (words(resources), words(verbs).join(" "))).collect()
    }

    #[test]
    fn roles_have_exactly_the_rights_that_are_used() {
        let listed: Vec<&str> = KINDS.iter().map(|kind| kind.plural).collect();
        let is_written =
            |kind: &&WatchedKind| !matches!(kind.status, StatusShape::None | StatusShape::Observed);
        let written: Vec<String> =
            KINDS.iter().filter(is_written).map(|kind| format!("{}/status", kind.plural)).collect();
        for (name, text) in [
            ("kubernetes", include_str!("../../packaging/kubernetes/rbac.yaml")),
            ("helm", include_str!("../../packaging/helm/weir-gateway/templates/rbac.yaml")),
        ] {
            let mut wanted: Vec<(String, &str)> =
                listed.iter().map(|own| ((*own).to_owned(), "list watch")).collect();
            wanted.extend(written.iter().map(|own| (own.clone(), "patch")));
            wanted.push(("events".to_owned(), "create"));
            wanted.extend(
                [("leases", "create"), ("leases", "get update")].map(|(own, verbs)| (own.to_owned(), verbs)),
            );
            let granted = rules(text);
            let mut granted: Vec<(String, &str)> = granted
                .iter()
                .flat_map(|(resources, verbs)| resources.iter().map(move |own| (own.clone(), &**verbs)))
                // The rule of the Lease names it.
                .filter(|(own, _)| !matches!(own.as_str(), "resourceNames" | "weir" | "gateway"))
                .collect();
            wanted.sort();
            granted.sort();
            assert_eq!(granted, wanted, "{name}");
        }
    }
}
