//! The trace points of a QMux connection (source `qmux`). While no trace is active, each costs one comparison.

use ::quic::LostReason;
use runtime::trace::{self, Keys, TraceLevel, TraceSource, qmux};

use super::h3::QmuxEngine;
use crate::points::of_qmux;

/// The trace points of one connection.
#[derive(Debug)]
pub(crate) struct QmuxTracer {
    keys: Keys,
    /// The numbers of records received and sent at the last report.
    seen: (u64, u64),
    /// Whether the peer's parameters were reported.
    is_connected: bool,
}

impl QmuxTracer {
    /// A connection begins.
    #[track_caller]
    pub(crate) fn begin(keys: Keys) -> Self {
        of_qmux(&keys, (qmux::NEW, TraceLevel::User), "new connection", &|_, _| {});
        Self { keys, seen: (0, 0), is_connected: false }
    }

    /// A connection has come from another worker.
    pub(crate) fn resume(keys: Keys) -> Self {
        Self { keys, seen: (0, 0), is_connected: true }
    }

    /// Returns the keys of the connection, for its next tracer.
    pub(crate) fn keys(self) -> Keys {
        self.keys
    }

    /// Reports the records since the last turn.
    #[inline]
    pub(crate) fn turn(&mut self, engine: &QmuxEngine) {
        if trace::is_on(TraceSource::Qmux) {
            self.progress(engine);
        }
    }

    #[cold]
    fn progress(&mut self, engine: &QmuxEngine) {
        let connection = &engine.transport.connection;
        if connection.has_parameters() && !std::mem::replace(&mut self.is_connected, true) {
            let limit = connection.idle_limit_of_peer();
            let point = (qmux::PARAMETERS, TraceLevel::State);
            of_qmux(&self.keys, point, "transport parameters received", &|_, out| {
                out.push_str(&format!("idle={}ms", limit.map_or(0, |limit| limit.as_millis())));
            });
        }
        let now = (connection.records_received(), connection.records_sent());
        let before = std::mem::replace(&mut self.seen, now);
        for (events, message, count) in
            [(qmux::RX, "records received", now.0 - before.0), (qmux::TX, "records sent", now.1 - before.1)]
        {
            if count > 0 {
                of_qmux(&self.keys, (events, TraceLevel::Proto), message, &|_, out| {
                    out.push_str(&format!("count={count}"));
                });
            }
        }
    }

    /// The connection was lost.
    pub(crate) fn is_lost(&self, reason: &LostReason) {
        let level = match reason {
            LostReason::Application(_) | LostReason::Local | LostReason::TimedOut => TraceLevel::State,
            LostReason::Closed(_) | LostReason::Violation(..) | LostReason::Reset => TraceLevel::Error,
        };
        of_qmux(&self.keys, (qmux::CLOSE, level), "connection closed", &|_, out| {
            out.push_str(&format!("{reason:?}"));
        });
    }

    /// The connection is over.
    pub(crate) fn ends(&self, engine: &QmuxEngine) {
        of_qmux(&self.keys, (qmux::END, TraceLevel::State), "connection released", &|_, out| {
            let connection = &engine.transport.connection;
            let (received, sent) = (connection.records_received(), connection.records_sent());
            out.push_str(&format!("received={received} sent={sent}"));
        });
    }
}
