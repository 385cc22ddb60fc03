//! The result of a translation.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::objects::Key;

/// The configuration text with its files, and the statuses and events of objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// The configuration text. It changes if and only if the proxy has to read it again.
    pub config: String,
    /// Files, keyed by path relative to the settings directory.
    ///
    /// Files in `maps/` are named after their content and never change, and those in `scripts/` only with the version of this crate. Those in `endpoints/` are read by the proxy whenever they
    /// change. Those in `certs/` and `ca/` are certificates, which the runtime socket can replace. Those in `paths/` are maps, which it can
    /// change.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Statuses of objects. The times of conditions are left to the caller.
    pub statuses: Vec<StatusUpdate>,
    /// Events about objects.
    pub events: Vec<ObjectEvent>,
}

/// The status of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusUpdate {
    /// The kind of the object.
    pub kind: &'static str,
    /// The object.
    pub key: Key,
    /// The generation of the object to which the status applies.
    pub generation: i64,
    /// The value for the object's `status` field. In routes (`parents`) and policies (`ancestors`), these are only the entries of this
    /// controller; a route or policy without an update has none.
    pub status: Value,
}

/// An event about an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectEvent {
    /// The kind of the object.
    pub kind: &'static str,
    /// The object.
    pub key: Key,
    /// Whether the event is a warning.
    pub is_warning: bool,
    /// The reason, in one word.
    pub reason: String,
    /// The message.
    pub message: String,
}
