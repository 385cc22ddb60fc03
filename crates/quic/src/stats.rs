//! Connection statistics.

use std::time::Duration;

use crate::stream_frame::StreamFrame;
use crate::types::StreamDirection;

/// A snapshot of a connection's statistics, for `show quic`, fetches and counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// The mean deviation of the round-trip time, including delays of acknowledgements.
    pub rtt_variation: Duration,
    /// The smallest round-trip time seen.
    pub rtt_min: Duration,
    /// Unacknowledged bytes.
    pub in_flight: u64,
    /// The threshold below which the window grows quickly, in bytes; `None` before the first loss, and for algorithms without one.
    pub slow_start_threshold: Option<u64>,
    /// The congestion window, in bytes.
    pub window: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Bytes of these datagrams.
    pub bytes_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Bytes of these datagrams.
    pub bytes_received: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// How often the window was reduced.
    pub congestion_events: u64,
    /// The current UDP payload size.
    pub mtu: u16,
    /// Received DATA_BLOCKED frames.
    pub data_blocked: u64,
    /// Received STREAM_DATA_BLOCKED frames.
    pub stream_data_blocked: u64,
    /// Received STREAMS_BLOCKED frames for bidirectional streams.
    pub streams_blocked_bidi: u64,
    /// Received STREAMS_BLOCKED frames for unidirectional streams.
    pub streams_blocked_uni: u64,
    /// Received RESET_STREAM, STOP_SENDING and PATH_CHALLENGE frames, and others that cost work but move no data.
    pub control_frames: u64,
    /// Packets dropped because there were too many gaps in the bytes of a stream.
    pub gap_limit: u64,
}

impl Stats {
    /// Counts a received frame.
    pub(crate) fn note(&mut self, frame: &StreamFrame<'_>) {
        match frame {
            StreamFrame::ResetStream { .. } | StreamFrame::StopSending { .. } => self.control_frames += 1,
            StreamFrame::DataBlocked => self.data_blocked += 1,
            StreamFrame::StreamDataBlocked(_) => self.stream_data_blocked += 1,
            StreamFrame::StreamsBlocked(StreamDirection::Both) => self.streams_blocked_bidi += 1,
            StreamFrame::StreamsBlocked(StreamDirection::One) => self.streams_blocked_uni += 1,
            StreamFrame::Stream { .. }
            | StreamFrame::MaxData(_)
            | StreamFrame::MaxStreamData { .. }
            | StreamFrame::MaxStreams(..) => {}
        }
    }
}
