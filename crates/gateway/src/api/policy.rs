//! Reference grants, and TLS policies for backends.

use super::{object, part};

object! {
    /// Permission to refer to objects of this object's namespace from other namespaces.
    ReferenceGrant {
        /// The spec.
        spec: ReferenceGrantSpec,
    }
}

part! {
    /// The spec of a grant.
    ReferenceGrantSpec {
        /// The objects that may refer.
        from: Vec<GrantFrom>,
        /// The objects that may be referred to.
        to: Vec<GrantTo>,
    }
}

part! {
    /// Objects that may refer to others.
    GrantFrom {
        /// The group.
        group: String,
        /// The kind.
        kind: String,
        /// The namespace.
        namespace: String,
    }
}

part! {
    /// Objects that may be referred to.
    GrantTo {
        /// The group.
        group: String,
        /// The kind.
        kind: String,
        /// The name; if absent, all objects of the kind.
        name: Option<String>,
    }
}

object! {
    /// TLS settings of connections to services.
    BackendTlsPolicy {
        /// The spec.
        spec: BackendTlsPolicySpec,
    }
}

part! {
    /// The spec of a policy.
    BackendTlsPolicySpec {
        /// The services.
        target_refs: Vec<PolicyTarget>,
        /// The verification of the services' certificates.
        validation: BackendTlsValidation,
    }
}

part! {
    /// A target of a policy, in the namespace of the policy.
    PolicyTarget {
        /// The group.
        group: String,
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// The name of the port.
        section_name: Option<String>,
    }
}

part! {
    /// The verification of a service's certificate.
    BackendTlsValidation {
        /// The trusted authorities, in the namespace of the policy.
        ca_certificate_refs: Vec<super::ObjectRef>,
        /// `System` for the authorities of the system.
        well_known_ca_certificates: Option<String>,
        /// The server name, and the name in the certificate unless `subject_alt_names` lists others.
        hostname: String,
        /// The accepted names.
        subject_alt_names: Vec<SubjectAltName>,
    }
}

part! {
    /// An accepted name.
    SubjectAltName {
        /// `Hostname` or `URI`.
        r#type: String,
        /// The hostname.
        hostname: String,
        /// The URI.
        uri: String,
    }
}
