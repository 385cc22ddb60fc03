//! Converts the plan's QUIC settings, and connects QUIC to sockets (datagrams) and timers (timeouts). Used for
//! connections from clients and to servers.

use std::time::Instant;

use ::quic::{Congestion, CongestionAlgorithm, Ecn, Settings};
use plan::quic::{QuicSide, QuicTune};
use runtime::timer::{self, NEVER};
use state::quic_counters::QuicShard;

use crate::stream::h3::H3Connection;

/// The maximum number of datagrams passed to the kernel in one call, which is as many as it segments.
pub(crate) const SEGMENTS_MAX: usize = 64;

/// Returns the transport settings of a `bind` or `server` line, with its congestion control and maximum window.
pub(crate) fn settings(
    (algorithm, window_max): (plan::quic::Congestion, u64),
    side: &QuicSide,
    tune: &QuicTune,
    bufsize: usize,
) -> Settings {
    let algorithm = match algorithm {
        plan::quic::Congestion::Cubic => CongestionAlgorithm::Cubic,
        plan::quic::Congestion::NewReno => CongestionAlgorithm::NewReno,
        plan::quic::Congestion::Bbr => CongestionAlgorithm::Bbr,
        plan::quic::Congestion::None => CongestionAlgorithm::None,
    };
    Settings {
        max_idle: Some(side.max_idle_timeout).filter(|limit| !limit.is_zero()),
        max_streams: side.max_streams.into(),
        stream_window: side.stream_window(bufsize),
        connection_window: side.connection_window(bufsize),
        send_window: window_max.saturating_mul(2),
        congestion: Congestion {
            algorithm,
            window_max,
            cubic_min_losses: side.cubic_min_losses,
            hystart: side.hystart,
            memory: Some(tune.tx_memory).filter(|limit| *limit > 0),
        },
        pacing: side.pacing,
        gso: side.segmentation,
        ..Settings::default()
    }
}

/// Converts the engine's datagrams to the socket's.
pub(crate) fn of_engine<'a>(transmit: &::quic::Transmit, bytes: &'a [u8]) -> net::udp::Transmit<'a> {
    net::udp::Transmit {
        destination: transmit.destination,
        source: transmit.source,
        ecn: transmit.ecn.map_or(0, Ecn::bits),
        segment_size: transmit.segment,
        bytes: &bytes[..transmit.length],
    }
}

/// Returns when the next timeout of a connection is due, in ms, rounded up so that it has passed by then.
pub(crate) fn timeout_ms(connection: &mut ::quic::QuicConnection) -> u64 {
    connection.timeout().map_or(NEVER, timer_ms)
}

/// Returns the time of a timer in ms, rounded up.
pub(crate) fn timer_ms(at: Instant) -> u64 {
    let after = at.saturating_duration_since(timer::epoch());
    u64::try_from(after.as_micros().div_ceil(1000)).unwrap_or(NEVER)
}

/// Adds the statistics of a connection that has ended to the counters of its frontend or backend.
pub(crate) fn count(counters: &QuicShard, connection: &H3Connection) {
    let mut engine = connection.engine.borrow_mut();
    engine.count_frames(&counters.h3);
    let stats = engine.transport.connection.stats();
    let counters = &counters.quic;
    let each = [
        (&counters.sent_pkt, stats.packets_sent),
        (&counters.lost_pkt, stats.packets_lost),
        (&counters.data_blocked, stats.data_blocked),
        (&counters.stream_data_blocked, stats.stream_data_blocked),
        (&counters.streams_blocked_bidi, stats.streams_blocked_bidi),
        (&counters.streams_blocked_uni, stats.streams_blocked_uni),
        (&counters.ncbuf_gap_limit, stats.gap_limit),
    ];
    for (counter, count) in each.into_iter().filter(|(_, count)| *count > 0) {
        counter.add(count);
    }
}
