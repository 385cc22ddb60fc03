//! Translates HTTP and gRPC routes.

pub(crate) mod authorize;
mod cors;
mod filters;
mod lower;
mod matches;
mod settings;
mod table;
mod write;

pub(crate) use lower::{Lowered, Parents, grpc_route, http_route};
pub(crate) use matches::RouteMatch;
pub(crate) use write::{Attached, Frontend, write};

use filters::Filters;
use table::Age;

/// A rule of a route.
pub(crate) struct HttpRule<'a> {
    /// The label of the rule's block, unique for each rule.
    pub(crate) label: String,
    pub(crate) age: Age<'a>,
    pub(crate) matches: Vec<RouteMatch>,
    pub(crate) filters: Filters,
    /// Lines of `http-request` for settings of the request, such as timeouts.
    pub(crate) settings: Vec<String>,
    /// Lines of `http-request` for mirrors.
    pub(crate) mirrors: Vec<String>,
    pub(crate) targets: Vec<RuleTarget>,
}

impl HttpRule<'_> {
    /// The backend of a rule that does nothing but choose one, always the same.
    pub(crate) fn only_backend(&self) -> Option<&str> {
        let Self { filters, settings, mirrors, targets, .. } = self;
        let mut used = targets.iter().filter(|target| target.weight > 0);
        let (target, other) = (used.next()?, used.next());
        let is_plain = *filters == Filters::default()
            && settings.is_empty()
            && mirrors.is_empty()
            && other.is_none()
            && target.filters == Filters::default()
            && target.mirrors.is_empty();
        target.backend.as_deref().filter(|_| is_plain)
    }
}

/// A destination of requests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RuleTarget {
    pub(crate) weight: u64,
    /// The backend. Without one, requests are answered with 500.
    pub(crate) backend: Option<String>,
    pub(crate) filters: Filters,
    /// Lines of `http-request` for mirrors.
    pub(crate) mirrors: Vec<String>,
}
