//! `idle-ping`: pings idle connections periodically to check that the peer is alive.

use std::task::{Context, Poll};
use std::time::Duration;

use runtime::timer::{Timer, now_ms};

use super::{EngineConnection, Lifecycle};

/// The pings of one connection.
pub(crate) struct Ping {
    every: Duration,
    timer: Timer,
    /// Whether the last ping has not been answered.
    is_asked: bool,
}

impl Ping {
    /// Creates pings at an interval of `every`.
    pub(crate) fn new(every: Duration) -> Self {
        let timer = Timer::new();
        timer.set_after(now_ms(), Some(every));
        Self { every, timer, is_asked: false }
    }

    /// The peer sent something, or the connection is in use.
    pub(crate) fn note_life(&mut self) {
        self.is_asked = false;
        self.timer.set_after(now_ms(), Some(self.every));
    }

    /// Ready if the last ping was not answered before the next one was due.
    pub(crate) fn poll_silence<E: Lifecycle>(
        &mut self,
        connection: &EngineConnection<E>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        while self.timer.poll_expired(context).is_ready() {
            if self.is_asked {
                return Poll::Ready(());
            }
            self.is_asked = true;
            connection.engine.borrow_mut().ping();
            connection.touch();
            self.timer.set_after(now_ms(), Some(self.every));
        }
        Poll::Pending
    }
}
