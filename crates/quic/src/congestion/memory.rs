//! The limit for unacknowledged bytes of all connections (`tune.quic.mem.tx-max`).
//!
//! The limit is soft: every connection may have [`PACKETS_MIN`] packets in flight, so that it makes progress, and a connection
//! only notices the limit when it sends. Without the setting nothing is counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The packets that a connection may have in flight above the limit.
const PACKETS_MIN: u64 = 2;

/// Unacknowledged bytes of all connections. Written by the workers of these connections.
static IN_FLIGHT: AtomicU64 = AtomicU64::new(0);

/// The bytes of one connection. Dropping it returns them.
#[derive(Debug)]
pub(super) struct MemoryShare {
    limit: u64,
    own: u64,
}

impl MemoryShare {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, own: 0 }
    }

    /// Sets the bytes of this connection.
    pub(super) fn set(&mut self, own: u64) {
        let before = std::mem::replace(&mut self.own, own);
        if own > before {
            IN_FLIGHT.fetch_add(own - before, Relaxed);
        } else {
            IN_FLIGHT.fetch_sub(before - own, Relaxed);
        }
    }

    /// Limits a window: without room, only the minimum is sent.
    pub(super) fn limit(&self, window: u64, mtu: u16) -> u64 {
        let room = self.limit.saturating_sub(IN_FLIGHT.load(Relaxed));
        let least = u64::from(mtu) * PACKETS_MIN;
        window.min(self.own.saturating_add(room).max(least))
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_share_the_limit_and_each_keeps_two_packets() {
        const MTU: u16 = 1000;
        let mut first = MemoryShare::new(10_000);
        let mut second = MemoryShare::new(10_000);
        first.set(7_000);
        assert_eq!(second.limit(50_000, MTU), 3_000);
        assert_eq!(second.limit(2_500, MTU), 2_500, "the window of the connection remains");
        second.set(3_000);
        assert_eq!((first.limit(50_000, MTU), second.limit(50_000, MTU)), (7_000, 3_000));
        assert_eq!(MemoryShare::new(10_000).limit(50_000, MTU), 2_000);
        drop(first);
        assert_eq!(second.limit(50_000, MTU), 10_000);
    }
}
