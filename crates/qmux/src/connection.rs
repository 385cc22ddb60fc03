//! A connection: its streams, and the state of its peer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quic::transport::{StreamConnection, StreamSet};
use quic::{QuicEvent, Settings, StreamDirection};

use crate::idle::IdleLimits;
use crate::parameters;
use crate::ping::Pings;

/// A QMux connection. Stream numbers are those of RFC 9000, 2.1.
pub struct QmuxConnection {
    pub(crate) streams: StreamSet,
    /// Whether the peer's parameters have arrived.
    is_connected: bool,
    pub(crate) is_over: bool,
    /// The frame with this side's parameters, until it is in a record.
    pub(crate) parameters: Option<Vec<u8>>,
    pub(crate) pings: Pings,
    pub(crate) idle: IdleLimits,
    /// The beginning of a record.
    pub(crate) partial: Vec<u8>,
    /// Records, the first `sent` bytes of which were sent.
    pub(crate) output: Vec<u8>,
    pub(crate) sent: usize,
    pub(crate) events: VecDeque<QuicEvent>,
    pub(crate) control_frames: u64,
    pub(crate) records_received: u64,
    pub(crate) records_sent: u64,
    pub(crate) bytes_sent: u64,
}

impl QmuxConnection {
    /// Creates the connection of a server, or a client. Settings for congestion control and datagrams are not used. A client sets
    /// `max_streams` to 0.
    pub fn new(is_server: bool, settings: &Settings, now: Instant) -> Self {
        Self {
            // HAProxy 3.5 logs such reports as internal errors.
            streams: StreamSet::new(is_server, settings).without_reports(),
            is_connected: false,
            is_over: false,
            parameters: Some(parameters::write(settings)),
            pings: Pings::default(),
            idle: IdleLimits::new(settings.max_idle, now),
            partial: Vec::new(),
            output: Vec::new(),
            sent: 0,
            events: VecDeque::new(),
            control_frames: 0,
            records_received: 0,
            records_sent: 0,
            bytes_sent: 0,
        }
    }

    /// Returns the next event. The first one is [`QuicEvent::Connected`], the last one [`QuicEvent::Lost`] unless this side closes the
    /// connection.
    pub fn poll(&mut self) -> Option<QuicEvent> {
        // The end comes after everything that has arrived before.
        match self.events.front() {
            Some(QuicEvent::Lost(_)) => self.streams.poll().or_else(|| self.events.pop_front()),
            _ => self.events.pop_front().or_else(|| self.streams.poll()),
        }
    }

    /// Whether the peer's parameters have arrived. Until then nothing but this side's parameters is sent.
    pub fn has_parameters(&self) -> bool {
        self.is_connected
    }

    pub(crate) fn note_parameters(&mut self) {
        self.is_connected = true;
    }

    /// Whether the connection was closed by either side.
    pub fn is_closed(&self) -> bool {
        self.is_over
    }

    /// Whether a part of a record has been received.
    pub fn is_within_record(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn timeout(&self) -> Option<Instant> {
        if self.is_over { None } else { self.idle.deadline() }
    }

    /// Returns how long the peer permits the connection to be idle; `None` without a limit.
    pub fn idle_limit_of_peer(&self) -> Option<Duration> {
        self.idle.of_peer()
    }

    /// Sends a QX_PING frame.
    pub fn ping(&mut self) {
        self.pings.want();
    }

    /// Returns the number of received frames that cost work but move no data.
    pub fn control_frames(&self) -> u64 {
        self.control_frames
    }

    /// Returns the number of records received.
    pub fn records_received(&self) -> u64 {
        self.records_received
    }

    /// Returns the number of records sent, without those of parameters and of the end of the connection.
    pub fn records_sent(&self) -> u64 {
        self.records_sent
    }
}

impl StreamConnection for QmuxConnection {
    fn streams(&mut self) -> &mut StreamSet {
        &mut self.streams
    }

    fn openable(&self, direction: StreamDirection) -> u64 {
        self.streams.openable(direction)
    }

    fn poll(&mut self) -> Option<QuicEvent> {
        Self::poll(self)
    }
}
