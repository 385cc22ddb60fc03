//! What there is to count: the columns of `show stat`, the fields of `show info`, the counters of
//! name servers, and how they are written. Called by commands, the page and the Prometheus
//! exporter.

pub(crate) mod column;
pub(crate) mod field;
pub(crate) mod info;
pub(crate) mod named;
pub(crate) mod patterns;
pub(crate) mod pieces;
pub(crate) mod resolvers;
pub(crate) mod stat;
