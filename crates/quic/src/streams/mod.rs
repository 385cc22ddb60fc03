//! The streams of a connection and their flow control (RFC 9000, 2 to 4).

mod assembler;
mod halves;
mod process;
mod receive;
mod send;
mod send_buffer;

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

pub(crate) use assembler::{Assembler, TooManyGaps};
pub use receive::StreamFault;
pub(crate) use send_buffer::SendBuffer;

use crate::error::{STREAM_LIMIT_ERROR, STREAM_STATE_ERROR, TransportError};
use crate::parameters::{TransportParameters, UNI_STREAMS};
use crate::sent::SentFrame;
use crate::settings::Settings;
use crate::stream_frame;
use crate::types::{QuicEvent, StreamDirection};
use crate::varint;
use halves::{ReceiveHalf, SendHalf, Stream};

/// The bit of streams that the server opened.
const SERVER: u64 = 0x1;
/// The bit of unidirectional streams.
const UNI: u64 = 0x2;

/// The streams of a connection.
pub struct StreamSet {
    is_server: bool,
    map: HashMap<u64, Stream, RandomState>,
    ours: [OwnStreams; 2],
    peers: [PeerStreams; 2],
    /// The windows of the peer: of bidirectional streams that we open, that it opens, and of unidirectional ones.
    peer_windows: [u64; 3],
    /// The window of each stream for the peer.
    stream_window: u64,
    outgoing: OutgoingFlow,
    incoming: IncomingFlow,
    /// Streams with data to send, by priority, the highest one first.
    schedule: Vec<(i32, VecDeque<u64>)>,
    /// Streams with control frames to send.
    control: VecDeque<u64>,
    /// Streams that had no room for their last write.
    blocked: Vec<u64>,
    events: VecDeque<QuicEvent>,
    /// Whether frames report to the peer that its limits block this side.
    reports_blocked: bool,
}

/// Streams of one direction that we open.
#[derive(Debug, Default)]
struct OwnStreams {
    next: u64,
    /// The peer's limit.
    most: u64,
}

/// Streams of one direction that the peer opens.
#[derive(Debug, Default)]
struct PeerStreams {
    next: u64,
    /// The next one for [`StreamSet::accept`].
    next_accepted: u64,
    /// The limit that the peer knows.
    most: u64,
    /// How many may be open at once.
    allowed: u64,
    /// How many are over.
    ended: u64,
    sends_most: bool,
    /// Whether the event for new streams waits to be polled.
    is_announced: bool,
}

/// Flow control of sent data.
#[derive(Debug, Default)]
struct OutgoingFlow {
    /// The number of bytes that are kept for the peer at most, and now.
    window: u64,
    kept: u64,
    /// The number of bytes written to all streams, and the peer's limit.
    written: u64,
    max_data: u64,
    blocked_at: Option<u64>,
    sends_blocked: bool,
}

/// Flow control of received data.
#[derive(Debug, Default)]
struct IncomingFlow {
    /// Bytes received on all streams, bytes that were read or dropped, and the limit that the peer knows.
    received: u64,
    consumed: u64,
    max_data: u64,
    window: u64,
    sends_max_data: bool,
}

impl IncomingFlow {
    /// Gives credit for bytes that do not occupy memory any more.
    fn release(&mut self, bytes: u64) {
        self.consumed += bytes;
        let next = self.consumed + self.window;
        self.sends_max_data |= next.saturating_sub(self.max_data) >= self.window / 4;
    }
}

fn direction_of(id: u64) -> StreamDirection {
    if id & UNI == 0 { StreamDirection::Both } else { StreamDirection::One }
}

fn index(direction: StreamDirection) -> usize {
    match direction {
        StreamDirection::Both => 0,
        StreamDirection::One => 1,
    }
}

const DIRECTIONS: [StreamDirection; 2] = [StreamDirection::Both, StreamDirection::One];

impl StreamSet {
    /// Creates the streams of a server, or a client, before any is open.
    pub fn new(is_server: bool, settings: &Settings) -> Self {
        let peers = |allowed| PeerStreams { most: allowed, allowed, ..PeerStreams::default() };
        let bidi = if is_server { settings.max_streams } else { 0 };
        Self {
            is_server,
            map: HashMap::default(),
            ours: Default::default(),
            peers: [peers(bidi), peers(UNI_STREAMS)],
            peer_windows: [0; 3],
            stream_window: settings.stream_window,
            outgoing: OutgoingFlow { window: settings.send_window, ..OutgoingFlow::default() },
            incoming: IncomingFlow {
                max_data: settings.connection_window,
                window: settings.connection_window,
                ..IncomingFlow::default()
            },
            schedule: Vec::new(),
            control: VecDeque::new(),
            blocked: Vec::new(),
            events: VecDeque::new(),
            reports_blocked: true,
        }
    }

    /// Sends no DATA_BLOCKED and STREAM_DATA_BLOCKED frames (RFC 9000, 4.1): they only help a peer to choose its windows.
    pub fn without_reports(mut self) -> Self {
        self.reports_blocked = false;
        self
    }

    /// Sets the limits of the peer.
    pub fn set_parameters(&mut self, peer: &TransportParameters) {
        self.outgoing.max_data = self.outgoing.max_data.max(peer.max_data);
        self.peer_windows =
            [peer.max_stream_data_remote, peer.max_stream_data_local, peer.max_stream_data_uni];
        for (ours, most) in self.ours.iter_mut().zip([peer.max_streams_bidi, peer.max_streams_uni]) {
            ours.most = ours.most.max(most);
        }
        // Early data may have opened streams before.
        let (windows, is_server) = (self.peer_windows, self.is_server);
        for (id, stream) in &mut self.map {
            if let Some(send) = &mut stream.send {
                send.max_data = send.max_data.max(peer_window(&windows, is_server, *id));
            }
        }
        for direction in DIRECTIONS {
            if self.ours[index(direction)].most > 0 {
                self.events.push_back(QuicEvent::Available(direction));
            }
        }
        self.wake_blocked();
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<QuicEvent> {
        let event = self.events.pop_front()?;
        if let QuicEvent::Opened(direction) = event {
            self.peers[index(direction)].is_announced = false;
        }
        if self.events.is_empty() && self.events.capacity() > 16 {
            self.events = VecDeque::new();
        }
        Some(event)
    }

    fn is_ours(&self, id: u64) -> bool {
        (id & SERVER != 0) == self.is_server
    }

    /// Returns how many more streams the peer permits to open.
    pub fn openable(&self, direction: StreamDirection) -> u64 {
        let ours = &self.ours[index(direction)];
        ours.most.saturating_sub(ours.next)
    }

    /// Frees the memory of empty queues.
    pub fn shrink(&mut self) {
        self.schedule.retain(|(_, streams)| !streams.is_empty());
        self.schedule.shrink_to_fit();
        self.control.shrink_to_fit();
        self.blocked.shrink_to_fit();
        self.events.shrink_to_fit();
        self.map.shrink_to_fit();
    }

    /// Opens a stream, if the peer permits another one.
    pub fn open(&mut self, direction: StreamDirection) -> Option<u64> {
        let ours = &mut self.ours[index(direction)];
        if ours.next >= ours.most {
            return None;
        }
        let id = ours.next << 2
            | if direction == StreamDirection::One { UNI } else { 0 }
            | if self.is_server { SERVER } else { 0 };
        ours.next += 1;
        self.create(id);
        Some(id)
    }

    /// Returns the next stream that the peer has opened.
    pub fn accept(&mut self, direction: StreamDirection) -> Option<u64> {
        let peers = &mut self.peers[index(direction)];
        if peers.next_accepted == peers.next {
            return None;
        }
        let id = peers.next_accepted << 2
            | if direction == StreamDirection::One { UNI } else { 0 }
            | if self.is_server { 0 } else { SERVER };
        peers.next_accepted += 1;
        Some(id)
    }

    fn create(&mut self, id: u64) {
        let is_ours = self.is_ours(id);
        let is_uni = id & UNI != 0;
        let send = (!is_uni || is_ours).then(|| {
            let max_data = peer_window(&self.peer_windows, self.is_server, id);
            Box::new(SendHalf { max_data, ..SendHalf::default() })
        });
        let receive = (!is_uni || !is_ours)
            .then(|| Box::new(ReceiveHalf { max_data: self.stream_window, ..ReceiveHalf::default() }));
        self.map.insert(id, Stream { send, receive, has_control: false });
    }

    /// Checks the ID in a frame, and opens the streams of the peer up to it. `is_for_sender` is set for frames from the receiver of data.
    fn admit(&mut self, id: u64, is_for_sender: bool) -> Result<(), TransportError> {
        let direction = direction_of(id);
        if self.is_ours(id) {
            if id >> 2 >= self.ours[index(direction)].next {
                return Err(TransportError::new(STREAM_STATE_ERROR, "the stream was not opened"));
            }
            if direction == StreamDirection::One && !is_for_sender {
                return Err(TransportError::new(STREAM_STATE_ERROR, "the stream is for sending only"));
            }
            return Ok(());
        }
        if direction == StreamDirection::One && is_for_sender {
            return Err(TransportError::new(STREAM_STATE_ERROR, "the stream is for receiving only"));
        }
        let number = id >> 2;
        let peers = &mut self.peers[index(direction)];
        if number >= peers.most {
            return Err(TransportError::new(STREAM_LIMIT_ERROR, "too many streams"));
        }
        if number < peers.next {
            return Ok(());
        }
        let first = std::mem::replace(&mut peers.next, number + 1);
        if !std::mem::replace(&mut peers.is_announced, true) {
            self.events.push_back(QuicEvent::Opened(direction));
        }
        for new in first..=number {
            self.create(new << 2 | id & (SERVER | UNI));
        }
        Ok(())
    }

    /// Whether the peer may open the stream and has not done so.
    fn is_unopened(&self, id: u64) -> bool {
        !self.is_ours(id) && id >> 2 >= self.peers[index(direction_of(id))].next
    }

    /// Whether the application has not accepted the stream yet, so that events for it are of no use.
    fn is_unknown(&self, id: u64) -> bool {
        !self.is_ours(id) && id >> 2 >= self.peers[index(direction_of(id))].next_accepted
    }

    /// Removes a stream if both its halves are over.
    fn remove_if_over(&mut self, id: u64) {
        let Some(stream) = self.map.get(&id) else { return };
        if stream.send.is_some() || stream.receive.is_some() {
            return;
        }
        self.map.remove(&id);
        if self.map.len() * 8 < self.map.capacity() && self.map.capacity() > 32 {
            self.map.shrink_to(0);
        }
        if !self.is_ours(id) {
            let peers = &mut self.peers[index(direction_of(id))];
            peers.ended += 1;
            peers.note_credit();
        }
    }

    /// The peer waits for permission to open streams.
    pub(crate) fn on_streams_blocked(&mut self, direction: StreamDirection) {
        let peers = &mut self.peers[index(direction)];
        peers.sends_most |= peers.ended + peers.allowed > peers.most;
    }

    pub(crate) fn on_max_streams(&mut self, direction: StreamDirection, most: u64) {
        let ours = &mut self.ours[index(direction)];
        if most > ours.most {
            ours.most = most;
            self.events.push_back(QuicEvent::Available(direction));
        }
    }

    /// Queues a stream for its control frames.
    fn queue_control(&mut self, id: u64) {
        if let Some(stream) = self.map.get_mut(&id)
            && !std::mem::replace(&mut stream.has_control, true)
        {
            self.control.push_back(id);
        }
    }

    /// Whether there are control frames of streams to send.
    pub(crate) fn has_control(&self) -> bool {
        !self.control.is_empty()
            || self.incoming.sends_max_data
            || self.outgoing.sends_blocked
            || self.peers.iter().any(|peers| peers.sends_most)
    }

    /// Appends control frames as long as they fit before `limit`.
    pub(crate) fn write_control(
        &mut self,
        out: &mut Vec<u8>,
        limit: usize,
        sent: &mut impl Extend<SentFrame>,
    ) {
        /// A type and three numbers.
        const FRAME_MAX: usize = 1 + 3 * 8;
        let has_room = |out: &Vec<u8>| out.len() + FRAME_MAX <= limit;
        if self.incoming.sends_max_data && has_room(out) {
            self.incoming.sends_max_data = false;
            self.incoming.max_data = self.incoming.consumed + self.incoming.window;
            varint::write_all(out, &[stream_frame::MAX_DATA, self.incoming.max_data.min(varint::MAX)]);
            sent.extend([SentFrame::MaxData]);
        }
        for direction in DIRECTIONS {
            let peers = &mut self.peers[index(direction)];
            if peers.sends_most && has_room(out) {
                peers.sends_most = false;
                peers.most = peers.most.max(peers.ended + peers.allowed);
                let kind = stream_frame::MAX_STREAMS_BIDI + index(direction) as u64;
                varint::write_all(out, &[kind, peers.most]);
                sent.extend([SentFrame::MaxStreams(direction)]);
            }
        }
        if self.outgoing.sends_blocked && has_room(out) {
            self.outgoing.sends_blocked = false;
            varint::write_all(out, &[stream_frame::DATA_BLOCKED, self.outgoing.max_data]);
            sent.extend([SentFrame::DataBlocked]);
        }
        while has_room(out) {
            let Some(&id) = self.control.front() else { break };
            if !self.write_stream_control(id, out, limit, sent) {
                break;
            }
            self.control.pop_front();
            if let Some(stream) = self.map.get_mut(&id) {
                stream.has_control = false;
            }
        }
        if self.control.is_empty() && self.control.capacity() > 0 {
            self.control = VecDeque::new();
        }
    }

    /// Appends the control frames of one stream; returns `false` if they do not all fit.
    fn write_stream_control(
        &mut self,
        id: u64,
        out: &mut Vec<u8>,
        limit: usize,
        sent: &mut impl Extend<SentFrame>,
    ) -> bool {
        const ALL_MAX: usize = 3 * (1 + 3 * 8);
        if out.len() + ALL_MAX > limit {
            return false;
        }
        let window = self.stream_window;
        let Some(stream) = self.map.get_mut(&id) else { return true };
        if let Some(send) = &mut stream.send {
            if let Some(reset) = send.reset.as_mut().filter(|reset| reset.is_pending) {
                reset.is_pending = false;
                varint::write_all(out, &[stream_frame::RESET_STREAM, id, reset.code, send.buffer.end()]);
                sent.extend([SentFrame::ResetStream(id)]);
            } else if send.sends_blocked {
                send.sends_blocked = false;
                varint::write_all(out, &[stream_frame::STREAM_DATA_BLOCKED, id, send.max_data]);
                sent.extend([SentFrame::StreamDataBlocked(id)]);
            }
        }
        if let Some(receive) = &mut stream.receive {
            if let Some((code, is_pending @ true)) = &mut receive.stop {
                *is_pending = false;
                varint::write_all(out, &[stream_frame::STOP_SENDING, id, *code]);
                sent.extend([SentFrame::StopSending(id)]);
            }
            if std::mem::take(&mut receive.sends_max_data) {
                receive.max_data = receive.max_data.max(receive.assembler.read_offset() + window);
                varint::write_all(
                    out,
                    &[stream_frame::MAX_STREAM_DATA, id, receive.max_data.min(varint::MAX)],
                );
                sent.extend([SentFrame::MaxStreamData(id)]);
            }
        }
        true
    }

    /// A control frame was lost.
    pub(crate) fn lose_control(&mut self, lost: &SentFrame) {
        match *lost {
            SentFrame::MaxData => self.incoming.sends_max_data = true,
            SentFrame::MaxStreams(direction) => self.peers[index(direction)].sends_most = true,
            SentFrame::DataBlocked => {
                self.outgoing.sends_blocked = self.outgoing.blocked_at == Some(self.outgoing.max_data);
            }
            SentFrame::ResetStream(id)
            | SentFrame::StreamDataBlocked(id)
            | SentFrame::StopSending(id)
            | SentFrame::MaxStreamData(id) => {
                let Some(stream) = self.map.get_mut(&id) else { return };
                match (lost, &mut stream.send, &mut stream.receive) {
                    (SentFrame::ResetStream(_), Some(send), _) if send.reset.is_some() => {
                        send.reset.iter_mut().for_each(|reset| reset.is_pending = true);
                    }
                    (SentFrame::StreamDataBlocked(_), Some(send), _) => {
                        send.sends_blocked = send.blocked_at == Some(send.max_data);
                    }
                    (SentFrame::StopSending(_), _, Some(receive)) if receive.size.is_none() => {
                        if let Some((_, is_pending)) = &mut receive.stop {
                            *is_pending = true;
                        }
                    }
                    (SentFrame::MaxStreamData(_), _, Some(receive)) => {
                        receive.sends_max_data = receive.size.is_none();
                    }
                    _ => return,
                }
                self.queue_control(id);
            }
            _ => {}
        }
    }
}

impl PeerStreams {
    /// Announces streams that ended, once there are enough of them to be worth a frame.
    fn note_credit(&mut self) {
        let credit = (self.ended + self.allowed).saturating_sub(self.most);
        self.sends_most |= credit > 0 && credit >= self.allowed / 4;
    }
}

/// The peer's initial window of a stream.
fn peer_window(windows: &[u64; 3], is_server: bool, id: u64) -> u64 {
    let is_ours = (id & SERVER != 0) == is_server;
    match (id & UNI != 0, is_ours) {
        (true, _) => windows[2],
        (false, true) => windows[0],
        (false, false) => windows[1],
    }
}
