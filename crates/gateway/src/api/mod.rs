//! The API server's objects, with the fields that the translation uses. Unknown fields are ignored.

mod core;
pub(crate) mod extra;
mod gateway;
mod http;
mod ingress;
mod policy;
mod route;

pub use self::core::*;
pub use self::gateway::*;
pub use self::http::*;
pub use self::ingress::*;
pub use self::policy::*;
pub use self::route::*;

/// The API group of the Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The spec of an object type, without the metadata.
macro_rules! object {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            /// The metadata.
            pub metadata: $crate::api::Meta,
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $crate::api::Object for $name {
            fn meta(&self) -> &$crate::api::Meta {
                &self.metadata
            }
        }
    };
}

/// A part of an object: all fields are optional.
macro_rules! part {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }
    };
}

pub(crate) use {object, part};

/// An object with metadata.
pub trait Object {
    /// The metadata.
    fn meta(&self) -> &Meta;
}
