//! The trace points of a QUIC connection (source `quic`). While no trace is active, each costs one comparison.

use ::quic::{LostReason, Stats};
use runtime::trace::{self, Keys, TraceLevel, TraceSource, quic};

use super::h3::QuicEngine;
use crate::points::of_quic;

/// The trace points of one connection.
#[derive(Debug)]
pub(crate) struct QuicTracer {
    keys: Keys,
    /// The statistics at the last report, or `None` without an active trace.
    seen: Option<Box<Stats>>,
}

impl QuicTracer {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys, seen: None }
    }

    /// Returns the keys of the connection, for its next tracer.
    pub(crate) fn keys(self) -> Keys {
        self.keys
    }

    /// A connection begins.
    pub(crate) fn begins(&self, engine: &QuicEngine) {
        of_quic(&self.keys, (quic::NEW, TraceLevel::User), "new connection", &|_, out| {
            out.push_str(&format!("peer={}", engine.transport.connection.remote()));
        });
    }

    /// The handshake is complete.
    pub(crate) fn is_connected(&self, engine: &QuicEngine) {
        of_quic(&self.keys, (quic::PARAMETERS, TraceLevel::State), "handshake complete", &|_, out| {
            let details = engine.transport.connection.details();
            let alpn = details.alpn.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            let (is_resumed, is_early) = (u8::from(details.is_resumed), u8::from(details.early.came()));
            out.push_str(&format!("alpn={alpn} resumed={is_resumed} early={is_early}"));
        });
    }

    /// The connection was lost.
    pub(crate) fn is_lost(&self, reason: &LostReason) {
        let level = match reason {
            LostReason::Application(_) | LostReason::Local | LostReason::TimedOut => TraceLevel::State,
            LostReason::Closed(_) | LostReason::Violation(..) | LostReason::Reset => TraceLevel::Error,
        };
        of_quic(&self.keys, (quic::CLOSE, level), "connection closed", &|_, out| {
            out.push_str(&format!("{reason:?}"));
        });
    }

    /// Our side closes the connection.
    pub(crate) fn closes(&self) {
        of_quic(&self.keys, (quic::CLOSE, TraceLevel::State), "closing the connection", &|_, _| {});
    }

    /// The connection is over.
    pub(crate) fn ends(&self, stats: &Stats) {
        of_quic(&self.keys, (quic::END, TraceLevel::State), "connection released", &|_, out| {
            let Stats { datagrams_received, datagrams_sent, packets_lost, .. } = stats;
            out.push_str(&format!("received={datagrams_received} sent={datagrams_sent} lost={packets_lost}"));
        });
    }

    /// Reports the datagrams since the last turn.
    #[inline]
    pub(crate) fn turn(&mut self, engine: &QuicEngine) {
        if trace::is_on(TraceSource::Quic) {
            self.progress(engine);
        }
    }

    #[cold]
    fn progress(&mut self, engine: &QuicEngine) {
        let now = engine.transport.connection.stats();
        let Some(before) = self.seen.replace(Box::new(now)) else { return };
        let report = |events: u64, message: &str, count: u64, bytes: u64| {
            if count > 0 {
                of_quic(&self.keys, (events, TraceLevel::Proto), message, &|_, out| {
                    let (rtt, window) = (now.rtt.as_micros(), now.window);
                    let in_flight = now.in_flight;
                    out.push_str(&format!(
                        "count={count} bytes={bytes} rtt={rtt}us cwnd={window} in_flight={in_flight}"
                    ));
                });
            }
        };
        let received = now.datagrams_received - before.datagrams_received;
        report(quic::RX, "datagrams received", received, now.bytes_received - before.bytes_received);
        report(quic::LOSS, "packets lost", now.packets_lost - before.packets_lost, 0);
        let sent = now.datagrams_sent - before.datagrams_sent;
        report(quic::TX, "datagrams sent", sent, now.bytes_sent - before.bytes_sent);
    }
}
