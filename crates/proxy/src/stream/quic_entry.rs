//! The entry of a connection in the register for `show quic`.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ::quic::ParameterBytes;
use state::quic_connections::{QuicConnection, QuicPath, QuicSnapshot, QuicState, QuicStreamSnapshot};

use super::Lifecycle as _;
use super::h3::{self, H3Connection};

/// What the register knows of a connection.
pub(crate) struct QuicEntry {
    pub(crate) connection: Rc<H3Connection>,
    /// The frontend, or the backend of the server.
    pub(crate) proxy: Arc<state::Proxy>,
    pub(crate) is_to_server: bool,
    pub(crate) local: SocketAddr,
}

impl QuicConnection for QuicEntry {
    fn snapshot(&self) -> QuicSnapshot {
        let mut engine = self.connection.engine.borrow_mut();
        let timer = engine.transport.connection.timeout().map(|at| at.saturating_duration_since(h3::now()));
        let quic = &engine.transport.connection;
        let stats = quic.stats();
        let ParameterBytes { local: local_parameters, remote: remote_parameters } = quic.parameters();
        let state = match () {
            () if quic.is_closed() && engine.is_lost() => QuicState::Draining,
            () if quic.is_closed() => QuicState::Closing,
            () if quic.is_handshaking() => QuicState::Handshake,
            () => QuicState::Open,
        };
        let streams = engine.requests().map(|request| QuicStreamSnapshot {
            id: request.id,
            is_received: request.is_received,
            is_sent: request.is_sent,
            held: request.held,
            queued: request.queued,
        });
        QuicSnapshot {
            id: 0,
            worker: 0,
            proxy: self.proxy.clone(),
            is_to_server: self.is_to_server,
            state,
            local: quic.local_ip().map_or(self.local, |ip| (ip, self.local.port()).into()),
            remote: quic.remote(),
            descriptor: self.connection.descriptor,
            timer,
            local_parameters,
            remote_parameters,
            path: QuicPath {
                rtt: stats.rtt,
                rtt_variation: stats.rtt_variation,
                rtt_min: stats.rtt_min,
                in_flight: stats.in_flight,
                window: stats.window,
                slow_start_threshold: stats.slow_start_threshold,
                mtu: stats.mtu,
                packets_sent: stats.packets_sent,
                packets_lost: stats.packets_lost,
                bytes_sent: stats.bytes_sent,
                bytes_received: stats.bytes_received,
            },
            streams: streams.collect(),
            glitches: engine.glitches(),
        }
    }
}
