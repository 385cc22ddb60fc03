//! A QUIC connection (RFC 9000).

mod acknowledge;
mod client;
mod close;
mod frames;
mod handshake;
mod ids;
mod keys;
mod path;
mod receive;
mod send;
mod space;
mod timers;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tls::quic::{DirectionKeys, LevelKeys, QuicHandshake};

use crate::connection_id::{ConnectionId, OwnId};
use crate::parameters::TransportParameters;
use crate::registration::{EndpointInput, EndpointShared};
use crate::settings::Settings;
use crate::stats::Stats;
use crate::streams::StreamSet;
use crate::transport::StreamConnection;
use crate::types::{LostReason, ParameterBytes, QuicEvent, StreamDirection};
use client::ClientState;
use close::CloseReason;
use ids::{OwnIds, PeerIds};
use keys::OneRttKeys;
use path::{NetworkPath, PathResponse};
use space::{LongSpace, Space, SpaceId};

/// The number of probe timeouts in a row after which a peer counts as unresponsive: about seven times the first one.
const UNANSWERED_PROBES: u32 = 3;

/// A QUIC connection. Stream numbers are those of RFC 9000, 2.1.
pub struct QuicConnection {
    side: Side,
    state: State,
    settings: Arc<Settings>,
    shared: Arc<EndpointShared>,
    tls: QuicHandshake,
    /// Whether the event for the handshake's data was reported.
    is_announced: bool,
    /// Whether the TLS handshake is complete, and whether both sides know.
    is_established: bool,
    is_confirmed: bool,
    initial: Option<Box<LongSpace>>,
    handshake: Option<Box<LongSpace>>,
    application: Space,
    one_rtt: Option<Box<OneRttKeys>>,
    /// Keys for early data: to decrypt that of a client, or to encrypt ours.
    early: Option<Box<DirectionKeys>>,
    streams: StreamSet,
    path: NetworkPath,
    /// The path before the client's last migration.
    previous: Option<Box<NetworkPath>>,
    /// Answers to challenges.
    responses: Vec<PathResponse>,
    own_ids: OwnIds,
    peer_ids: PeerIds,
    /// The ID that the last packet was addressed to.
    addressed_to: ConnectionId,
    /// Our transport parameters, as sent.
    parameters: Box<[u8]>,
    /// The peer's.
    peer: Option<Box<PeerLimits>>,
    sends_handshake_done: bool,
    sends_new_token: bool,
    /// Probe timeouts in a row.
    probe_count: u32,
    /// When the connection ends for lack of packets.
    idle_deadline: Option<Instant>,
    /// Whether a packet that the peer has to acknowledge was sent since one was received.
    has_sent_since_received: bool,
    /// When pacing permits more packets.
    paced_until: Option<Instant>,
    /// When the last packet left that had to be acknowledged.
    last_sent: Option<Instant>,
    /// When the state of a closed connection is forgotten.
    close_deadline: Option<Instant>,
    events: VecDeque<QuicEvent>,
    inputs: VecDeque<EndpointInput>,
    stats: Stats,
    /// Whether the next datagram validates a path, and is padded.
    is_validating: bool,
    /// Whether the keys are to be updated after the packet that is being sent.
    updates_keys: bool,
    /// The packet number to skip next.
    skip_at: u64,
    random: u64,
}

/// The role in the handshake.
enum Side {
    Server,
    Client(Box<ClientState>),
}

/// The life of a connection.
#[derive(Debug)]
enum State {
    Open,
    /// Closed by us: packets are answered with this.
    Closing(Box<CloseReason>),
    /// Closed by the peer.
    Draining,
    Drained,
}

/// The peer's transport parameters that matter after the handshake.
#[derive(Debug, Clone)]
struct PeerLimits {
    /// As received.
    bytes: Box<[u8]>,
    max_ack_delay: Duration,
    ack_delay_exponent: u64,
    max_idle: Duration,
    max_udp_payload: u64,
}

/// The number of bytes that are kept for a peer whatever its congestion window is.
const SEND_WINDOW_MIN: u64 = 64 * 1024;

/// The parts of a client's first packet that its connection needs.
pub(crate) struct ClientStart {
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    /// The destination of the packet.
    pub(crate) destination: ConnectionId,
    /// The client's ID.
    pub(crate) source: ConnectionId,
    /// The first destination that the client chose, if it was sent a Retry packet.
    pub(crate) before_retry: Option<ConnectionId>,
    pub(crate) is_validated: bool,
}

/// The state in which a connection begins.
struct ConnectionStart<'a> {
    now: Instant,
    side: Side,
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    /// The peer's connection ID, and ours.
    peer_id: ConnectionId,
    addressed_to: ConnectionId,
    own_id: OwnId,
    settings: &'a Arc<Settings>,
    shared: &'a Arc<EndpointShared>,
    /// The keys of Initial packets.
    keys: LevelKeys,
    tls: QuicHandshake,
    /// Our transport parameters.
    parameters: Vec<u8>,
}

impl QuicConnection {
    /// Creates the connection of a client. `None` if the cryptographic library has no keys for Initial packets.
    pub(crate) fn accept(
        now: Instant,
        start: &ClientStart,
        own_id: OwnId,
        settings: &Arc<Settings>,
        shared: &Arc<EndpointShared>,
        handshake: impl FnOnce(Vec<u8>) -> QuicHandshake,
    ) -> Option<Self> {
        let parameters = TransportParameters {
            original_destination: Some(start.before_retry.unwrap_or(start.destination)),
            initial_source: Some(own_id.into()),
            retry_source: start.before_retry.map(|_| start.destination),
            reset_token: Some(shared.keys.reset_token(&own_id)),
            ..own_parameters(settings)
        }
        .write();
        let keys = LevelKeys::initial(&start.destination, false)?;
        let mut connection = Self::start(ConnectionStart {
            now,
            side: Side::Server,
            remote: start.remote,
            local_ip: start.local_ip,
            peer_id: start.source,
            addressed_to: start.destination,
            own_id,
            settings,
            shared,
            keys,
            tls: handshake(parameters.clone()),
            parameters,
        });
        connection.path.is_validated = start.is_validated;
        Some(connection)
    }

    fn start(start: ConnectionStart<'_>) -> Self {
        let ConnectionStart { now, side, settings, .. } = start;
        let controller = crate::congestion::Controller::new(settings.congestion, Settings::INITIAL_MTU);
        let path = NetworkPath::new(now, start.remote, start.local_ip, controller, settings.mtu_max);
        let mut random = [0; 8];
        crate::keys::fill_random(&mut random);
        let random = u64::from_ne_bytes(random) | 1;
        let streams = StreamSet::new(matches!(side, Side::Server), settings);
        let mut connection = Self {
            side,
            state: State::Open,
            settings: settings.clone(),
            shared: start.shared.clone(),
            tls: start.tls,
            is_announced: false,
            is_established: false,
            is_confirmed: false,
            initial: Some(Box::new(LongSpace { space: Space::default(), keys: start.keys })),
            handshake: None,
            application: Space::default(),
            one_rtt: None,
            early: None,
            streams,
            path,
            previous: None,
            responses: Vec::new(),
            own_ids: OwnIds::new(start.own_id),
            peer_ids: PeerIds::new(start.peer_id),
            addressed_to: start.addressed_to,
            parameters: start.parameters.into(),
            peer: None,
            sends_handshake_done: false,
            sends_new_token: false,
            probe_count: 0,
            idle_deadline: None,
            has_sent_since_received: false,
            paced_until: None,
            last_sent: None,
            close_deadline: None,
            events: VecDeque::new(),
            inputs: VecDeque::new(),
            stats: Stats::default(),
            is_validating: false,
            updates_keys: false,
            skip_at: 32 + random % 64,
            random,
        };
        connection.restart_idle_timer(now);
        connection
    }

    fn is_server(&self) -> bool {
        matches!(self.side, Side::Server)
    }

    /// Returns a random number, for purposes that do not need secrecy against a peer that sees many of them.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn space(&self, id: SpaceId) -> Option<&Space> {
        match id {
            SpaceId::Initial => self.initial.as_ref().map(|long| &long.space),
            SpaceId::Handshake => self.handshake.as_ref().map(|long| &long.space),
            SpaceId::Application => Some(&self.application),
        }
    }

    fn space_mut(&mut self, id: SpaceId) -> Option<&mut Space> {
        match id {
            SpaceId::Initial => self.initial.as_mut().map(|long| &mut long.space),
            SpaceId::Handshake => self.handshake.as_mut().map(|long| &mut long.space),
            SpaceId::Application => Some(&mut self.application),
        }
    }

    /// Returns the next input for the endpoint.
    pub fn endpoint_input(&mut self) -> Option<EndpointInput> {
        self.inputs.pop_front()
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<QuicEvent> {
        // The end comes after everything that has arrived before.
        match self.events.front() {
            Some(QuicEvent::Lost(_)) => self.streams.poll().or_else(|| self.events.pop_front()),
            _ => self.events.pop_front().or_else(|| self.streams.poll()),
        }
    }

    /// Returns the results of the TLS handshake so far.
    pub fn details(&self) -> Arc<tls::Details> {
        self.tls.details().clone()
    }

    /// Returns the transport parameters of both sides.
    pub fn parameters(&self) -> ParameterBytes {
        let remote = self.peer.as_ref().map_or(&[][..], |peer| &peer.bytes);
        ParameterBytes { local: self.parameters.to_vec(), remote: remote.to_vec() }
    }

    /// Returns how long the connection may be idle, by the parameters of both sides; `None` without a limit.
    pub fn max_idle_timeout(&self) -> Option<Duration> {
        let own = self.settings.max_idle.unwrap_or_default();
        let peer = self.peer.as_ref().map(|peer| peer.max_idle).unwrap_or_default();
        [own, peer].into_iter().filter(|limit| !limit.is_zero()).min()
    }

    /// Whether the handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        !self.is_established && !self.is_closed()
    }

    /// Whether the connection was closed by either side.
    pub fn is_closed(&self) -> bool {
        !matches!(self.state, State::Open)
    }

    /// Whether the connection is over for good: the peer was notified, and its last packets have arrived or expired.
    pub fn is_drained(&self) -> bool {
        matches!(self.state, State::Drained)
    }

    /// Sends a PING.
    pub fn ping(&mut self) {
        self.application.sends_ping = true;
    }

    /// The peer's current address.
    pub fn remote(&self) -> SocketAddr {
        self.path.remote
    }

    /// The local address that the peer uses.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.path.local_ip
    }

    /// Returns the number of received frames that cost work but move no data.
    pub fn control_frames(&self) -> u64 {
        self.stats.control_frames
    }

    /// Returns the number of received datagrams.
    pub fn datagrams_received(&self) -> u64 {
        self.stats.datagrams_received
    }

    /// Returns the connection's statistics.
    pub fn stats(&self) -> Stats {
        let NetworkPath { rtt, controller, in_flight, mtu, .. } = &self.path;
        Stats {
            rtt: rtt.smoothed,
            rtt_variation: rtt.variation,
            rtt_min: rtt.min,
            in_flight: *in_flight,
            slow_start_threshold: controller.threshold(),
            window: controller.window(),
            congestion_events: controller.events,
            mtu: mtu.current(),
            ..self.stats
        }
    }
}

/// Our transport parameters that do not depend on the connection.
fn own_parameters(settings: &Settings) -> TransportParameters {
    TransportParameters {
        max_udp_payload: u64::from(settings.mtu_max.max(Settings::INITIAL_MTU)),
        disable_active_migration: !settings.migration,
        active_ids: ids::PEERS_MAX as u64,
        ..TransportParameters::of_streams(settings)
    }
}

impl StreamConnection for QuicConnection {
    fn streams(&mut self) -> &mut StreamSet {
        &mut self.streams
    }

    fn openable(&self, direction: StreamDirection) -> u64 {
        self.streams.openable(direction)
    }

    fn shrink(&mut self) {
        if self.is_confirmed {
            // A server's session tickets follow its handshake directly. Later ones are ignored.
            self.tls.settle();
        }
        self.streams.shrink();
        self.application.sent.shrink();
        self.responses.shrink_to_fit();
        self.events.shrink_to_fit();
        self.inputs.shrink_to_fit();
    }

    fn poll(&mut self) -> Option<QuicEvent> {
        Self::poll(self)
    }

    fn is_unresponsive(&self) -> bool {
        self.is_established && self.probe_count >= UNANSWERED_PROBES
    }
}

#[cfg(test)]
mod tests;
