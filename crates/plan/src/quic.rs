//! QUIC, resolved: `bind quic4@…` and `server quic4@…` (configuration manual, chapters 5.1 and 5.2), and `tune.quic.*` (chapter 3.2).

use std::time::Duration;

/// A congestion control algorithm (`quic-cc-algo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    /// `cubic` (RFC 9438).
    #[default]
    Cubic,
    /// `newreno` (RFC 9002, 7).
    NewReno,
    /// `bbr`.
    Bbr,
    /// `nocc`: the window always has its maximum size.
    None,
}

/// The QUIC parameters of a `bind` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuicBind {
    /// `quic-cc-algo`.
    pub congestion: Congestion,
    /// The maximum congestion window in bytes: that of `quic-cc-algo`, or `tune.quic.fe.cc.max-win-size`.
    pub max_window: u64,
    /// `quic-force-retry`: every client must validate its address first.
    pub force_retry: bool,
}

/// The QUIC parameters of a `server` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuicServer {
    /// `quic-cc-algo`.
    pub congestion: Congestion,
    /// The maximum congestion window in bytes: that of `quic-cc-algo`, or `tune.quic.be.cc.max-win-size`.
    pub max_window: u64,
}

/// `tune.quic.*`, `harden.reject-privileged-ports.quic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuicTune {
    /// `tune.quic.listen`: whether QUIC sockets are bound.
    pub listen: bool,
    /// `tune.quic.mem.tx-max`: the maximum number of unacknowledged bytes of all connections, 0 for no limit.
    pub tx_memory: u64,
    /// `tune.quic.zero-copy-fwd-send`: large payloads are sent from the buffer that they were received in.
    pub zero_copy: bool,
    /// `harden.reject-privileged-ports.quic`: datagrams from ports below 1024 are dropped.
    pub reject_privileged_ports: bool,
    /// `tune.quic.fe.sec.retry-threshold`: the number of handshakes of a frontend from which on clients must validate their address.
    pub retry_threshold: u32,
    /// `tune.quic.fe.stream.max-total`: the maximum number of requests on a connection, 0 for no limit.
    pub max_total_streams: u64,
    /// `tune.quic.fe.*`: connections of clients.
    pub front: QuicSide,
    /// `tune.quic.be.*`: connections to servers.
    pub back: QuicSide,
}

/// The settings that connections of clients and to servers have each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuicSide {
    /// `cc.cubic-min-losses`: packets lost between two acknowledgements from which on Cubic reduces its window.
    pub cubic_min_losses: u32,
    /// `tx.pacing`: packets are spread over the round-trip time.
    pub pacing: bool,
    /// `cc.hystart`: HyStart++ (RFC 9406) replaces slow start.
    pub hystart: bool,
    /// `cc.max-win-size`: the maximum congestion window in bytes.
    pub max_window: u64,
    /// `max-idle-timeout`; zero for none.
    pub max_idle_timeout: Duration,
    /// `sec.glitches-threshold`, 0 for none.
    pub glitches: u32,
    /// `stream.data-ratio`: the share of the receive buffer that one stream may use, in percent.
    pub data_ratio: u32,
    /// `stream.max-concurrent`: the maximum number of concurrent requests on a connection.
    pub max_streams: u32,
    /// `stream.rxbuf`: the receive buffer of a connection in bytes; 0 for one buffer for each concurrent request.
    pub rxbuf: u64,
    /// `tx.udp-gso`.
    pub segmentation: bool,
}

impl QuicSide {
    /// Returns the receive buffer of a connection in bytes (`initial_max_data`), for buffers of `bufsize` bytes.
    #[must_use]
    pub fn connection_window(&self, bufsize: usize) -> u64 {
        match self.rxbuf {
            0 => u64::from(self.max_streams).saturating_mul(bufsize as u64),
            size => size,
        }
    }

    /// Returns the share of a stream in bytes: whole buffers of `bufsize` bytes, at least one.
    #[must_use]
    pub fn stream_window(&self, bufsize: usize) -> u64 {
        let bufsize = bufsize.max(1) as u64;
        let share = self.connection_window(bufsize as usize) / 100 * u64::from(self.data_ratio);
        share.div_ceil(bufsize).max(1).saturating_mul(bufsize)
    }
}

impl Default for QuicTune {
    fn default() -> Self {
        Self {
            listen: true,
            tx_memory: 0,
            zero_copy: true,
            reject_privileged_ports: true,
            retry_threshold: 100,
            max_total_streams: 0,
            front: QuicSide::default(),
            back: QuicSide::default(),
        }
    }
}

impl Default for QuicSide {
    fn default() -> Self {
        Self {
            cubic_min_losses: 1,
            pacing: true,
            hystart: false,
            max_window: 480 * 1024,
            max_idle_timeout: Duration::from_secs(30),
            glitches: 0,
            data_ratio: 90,
            max_streams: 100,
            rxbuf: 0,
            segmentation: true,
        }
    }
}

/// Whether connections over TCP use HTTP/3 over QMux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QmuxUse {
    /// They do not.
    #[default]
    Never,
    /// If TLS negotiates `h3`.
    Negotiated,
    /// `proto qmux`.
    Always,
}
