//! Records the changes of a server in the journal.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::clock::now_ms;

use super::Server;
use crate::journal::{self, EventTopic};

impl Server {
    /// Records a change of the server with its log message, and the time since the previous one.
    pub fn record(&self, text: &str) {
        let now = now_ms();
        let since = self.reported_at.swap(now, Relaxed);
        let previous = Duration::from_millis(now.saturating_sub(since));
        let name = format!("{}/{}", self.proxy, self.name);
        journal::record_change(EventTopic::Servers, &name, previous, text);
    }
}
