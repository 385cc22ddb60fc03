//! The callbacks by which the engine reports and applies changes.

use std::pin::Pin;
use std::sync::Arc;

use state::discovery::Feed;

/// Receives messages: the syslog level and the text.
pub type NotifyDiscovery = Arc<dyn Fn(u8, &str) + Send + Sync>;

/// Called with a list that has changed.
pub type ListChanged = Arc<dyn Fn(&Arc<Feed>) + Send + Sync>;

/// Removes servers that have left and are idle. The result is whether others are still busy.
pub type SweptServers = Pin<Box<dyn Future<Output = bool>>>;

/// Callbacks of the engine. They are called on its thread.
#[derive(Clone)]
pub struct DiscoveryCallbacks {
    /// Receives messages.
    pub notify: NotifyDiscovery,
    /// Called after the list of a feed has changed.
    pub changed: ListChanged,
    /// Removes servers that have left.
    pub sweep: Arc<dyn Fn() -> SweptServers + Send + Sync>,
}
