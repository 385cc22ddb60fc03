//! Records changes of a server in the journal of events.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::clock::now_ms;

use crate::Server;
use crate::journal::{self, EventTopic};

impl Server {
    /// Records a change with its log message, and how long the server was in its previous state.
    pub fn record_change(&self, text: &str) {
        let now = now_ms();
        let since = self.reported_at.swap(now, Relaxed);
        let previous = Duration::from_millis(now.saturating_sub(since));
        journal::record_change(EventTopic::Servers, &format!("{}/{}", self.proxy, self.name), previous, text);
    }
}
