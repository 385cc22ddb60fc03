//! The `BackendTLSPolicy` objects of a translation, by their targets.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::BackendTlsPolicy;
use crate::objects::Key;
use crate::status::StatusCondition;

/// A target: the service, and the name of the port or nothing for all ports.
pub(super) type PolicyKey<'a> = (Key, Option<&'a str>);

/// The policies by their targets.
#[derive(Default)]
pub(crate) struct Policies<'a> {
    pub(super) of_target: BTreeMap<PolicyKey<'a>, usize>,
    pub(super) list: Vec<Policy<'a>>,
    /// The gateways with routes to a service.
    pub(super) users: BTreeMap<Key, BTreeSet<Key>>,
}

/// A policy, with its outcome.
pub(super) struct Policy<'a> {
    pub(super) key: &'a Key,
    pub(super) object: &'a BackendTlsPolicy,
    /// The parameters of servers, unless the policy is invalid.
    pub(super) server: Option<String>,
    pub(super) accepted: StatusCondition,
    pub(super) resolved: StatusCondition,
}
