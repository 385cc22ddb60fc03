//! Ingresses.

use super::{object, part};

object! {
    /// A class of ingresses.
    IngressClass {
        /// The spec.
        spec: IngressClassSpec,
    }
}

part! {
    /// The spec of a class of ingresses.
    IngressClassSpec {
        /// The controller.
        controller: String,
    }
}

object! {
    /// An ingress.
    Ingress {
        /// The spec.
        spec: IngressSpec,
    }
}

part! {
    /// The spec of an ingress.
    IngressSpec {
        /// The class.
        ingress_class_name: Option<String>,
        /// The backend for requests that no rule matches.
        default_backend: Option<IngressBackend>,
        /// The certificates.
        tls: Vec<IngressTls>,
        /// The rules.
        rules: Vec<IngressRule>,
    }
}

part! {
    /// A certificate of an ingress.
    IngressTls {
        /// The hosts.
        hosts: Vec<String>,
        /// The secret.
        secret_name: Option<String>,
    }
}

part! {
    /// A rule of an ingress.
    IngressRule {
        /// The host; if absent, all hosts.
        host: Option<String>,
        /// The paths.
        http: Option<IngressHttp>,
    }
}

part! {
    /// The paths of a rule.
    IngressHttp {
        /// The paths.
        paths: Vec<IngressPath>,
    }
}

part! {
    /// A path.
    IngressPath {
        /// The path.
        path: Option<String>,
        /// `Exact`, `Prefix` or `ImplementationSpecific`.
        path_type: String,
        /// The backend.
        backend: IngressBackend,
    }
}

part! {
    /// A backend.
    IngressBackend {
        /// The service.
        service: Option<IngressService>,
    }
}

part! {
    /// A service.
    IngressService {
        /// The name.
        name: String,
        /// The port.
        port: IngressServicePort,
    }
}

part! {
    /// A port of a service, by name or number.
    IngressServicePort {
        /// The name.
        name: Option<String>,
        /// The number.
        number: Option<i32>,
    }
}
