//! The idle timeout (section 7 of the draft; RFC 9000, 10.1).

use std::time::{Duration, Instant};

/// The smallest limit of a peer that is taken seriously. Over TCP a lost segment alone delays data for longer (RFC 6298, 2.4), so a
/// peer that meant a smaller limit would end connections in use. HAProxy 3.5 announces 30 ms and has no such timeout.
const PEER_MIN: Duration = Duration::from_secs(1);

/// The limits of both sides, and the last activity.
#[derive(Debug)]
pub(crate) struct IdleLimits {
    own: Option<Duration>,
    peer: Option<Duration>,
    last: Instant,
}

impl IdleLimits {
    /// Starts with the limit of this side.
    pub(crate) fn new(own: Option<Duration>, now: Instant) -> Self {
        Self { own: own.filter(|limit| !limit.is_zero()), peer: None, last: now }
    }

    /// Sets the limit of the peer; zero for none.
    pub(crate) fn set_peer(&mut self, limit: Duration) {
        self.peer = Some(limit).filter(|limit| *limit >= PEER_MIN);
    }

    /// A record was received or sent.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.last = now;
    }

    /// Returns the limit of the peer.
    pub(crate) fn of_peer(&self) -> Option<Duration> {
        self.peer
    }

    /// Returns when the connection ends without activity: the smaller limit counts.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let limit = [self.own, self.peer].into_iter().flatten().min()?;
        self.last.checked_add(limit)
    }
}
