//! `servers from` lines: the servers made of a list of instances (docs/discovery.md).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use state::discovery::Feed;

use crate::discovery::{DiscoverySection, InstanceFilter};
use crate::server::ServerSettings;

/// A `servers from` line.
#[derive(Debug)]
pub struct DiscoveredServers {
    /// The number of the line among those of its backend.
    pub number: usize,
    /// The section.
    pub section: Arc<DiscoverySection>,
    /// The list of instances.
    pub feed: Arc<Feed>,
    /// The conditions for instances.
    pub filter: InstanceFilter,
    /// `max`: the maximum number of servers.
    pub max: usize,
    /// `prefer-zone`: instances of other zones are only used as backup servers.
    pub prefer_zone: Option<Box<str>>,
    /// The settings of its servers.
    pub prototype: ServerSettings,
    /// The number of instances that were left out of the last list because of `max`.
    pub excess: AtomicU64,
    /// The number of servers, without those that are leaving.
    pub count: AtomicU64,
}
