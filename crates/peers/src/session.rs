//! One connection to a peer, without its socket or a clock: bytes and times are passed in, and bytes and events are returned.
//!
//! No output is buffered. Pending acknowledgements, the end of a resync and the next entries are tracked, and written when
//! [`PeerSession::output`] has room. A peer that sends without reading therefore causes no additional memory use. `learn`
//! receives entries, and `teach` sends them. Called by `group`.

mod learn;
mod program;
mod teach;

use std::sync::Arc;

use crate::definition::Definition;
use crate::handshake::{self, HandshakeStatus, PeerHello};
use crate::message::{self, Breach, Control, Extension, Message};
use crate::tables::{EntryOrigin, Tables};

use learn::Learning;
pub(crate) use program::PeerProgram;
pub use program::features;
use teach::{Sender, Writer};

/// A heartbeat is sent after this many milliseconds without sending a message.
pub const HEARTBEAT: u64 = 3000;

/// The peer is considered gone after this many milliseconds without receiving a message.
pub const TIMEOUT: u64 = 5000;

/// The maximum number of resync messages from a peer per session. A correct peer sends a few.
const CONTROLS: u32 = 256;

/// The settings shared by all sessions of a section.
#[derive(Debug, Clone)]
pub struct PeersSection {
    /// The name of this peer.
    pub local: Box<[u8]>,
    /// The names of all peers, including this one. Empty for a peer that DNS does not provide yet.
    pub peers: Box<[Box<[u8]>]>,
    /// The shared tables.
    pub tables: Box<[Definition]>,
    /// The names of the peers in this process, which determine the shards of their keys.
    pub ids: Box<[Box<[u8]>]>,
    /// How many entries are sent at once (`tune.peers.max-updates-at-once`).
    pub at_once: usize,
    /// The features of this process that are sent to peers; 0 if it sends none ([`features`]).
    pub features: u64,
}

/// An event of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEvent {
    /// The greetings are complete.
    Established {
        /// The index of the peer in the section.
        peer: usize,
        /// The process number of the peer, if the peer opened the connection.
        process: Option<u32>,
    },
    /// The peer refuses this session.
    Refused(HandshakeStatus),
    /// The peer requests a resync, which the session performs.
    ResyncRequested,
    /// The peer has sent everything, and reports that this is complete.
    ResyncFinished,
    /// The peer has sent all its data, which may be incomplete.
    ResyncPartial,
    /// The peer confirmed the end of the resync.
    ResyncConfirmed,
    /// The peer has sent all counts that an earlier process with the name of this one has made.
    PartsReturned,
    /// The session is over.
    Over(Over),
}

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The greeting was refused with this status.
    Refused(HandshakeStatus),
    /// The peer violated the protocol.
    Breach(Breach),
    /// The peer reports that this side violated the protocol.
    Accused,
    /// A timeout.
    Timeout,
    /// This side ended the session.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionPhase {
    /// Waiting for the other side's greeting.
    Hello,
    /// The other side has sent its greeting, which was not answered yet.
    Greeted(Guest),
    /// Waiting for the other side's answer.
    Status,
    /// Messages are exchanged.
    Open,
    /// No more input is read. The remaining output, an error or an answer, is sent.
    Over(Over),
}

/// The sender of a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Guest {
    peer: usize,
    process: u32,
}

/// The number of entries and heartbeats in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionCounts {
    /// Entries sent.
    pub taught: u64,
    /// Entries received.
    pub learned: u64,
    /// The number of heartbeats sent.
    pub heartbeats_sent: u64,
    /// The number of heartbeats received.
    pub heartbeats_received: u64,
}

/// One connection to a peer.
#[derive(Debug)]
pub struct PeerSession {
    section: Arc<PeersSection>,
    phase: SessionPhase,
    /// The index of the peer, once known.
    peer: Option<usize>,
    minor: u8,
    /// An incomplete message.
    input: Vec<u8>,
    /// The greeting or its answer, until it is written.
    greeting: Vec<u8>,
    /// When the last message was received, and when the last was sent.
    heard: u64,
    last_sent: u64,
    /// Whether a heartbeat is due.
    beat: bool,
    controls: u32,
    /// The origin of entries from a peer with this process's name.
    local: EntryOrigin,
    learning: Learning,
    sender: Sender,
    /// Pending output: a resync request, the confirmation of one, or an error.
    ask: bool,
    /// Pending output: the features of this process, and a request for its counts.
    greets: bool,
    asks_parts: bool,
    program: PeerProgram,
    confirm: bool,
    events: Vec<SessionEvent>,
    counts: SessionCounts,
}

impl PeerSession {
    /// Creates the connecting side, for the peer at index `peer`; `process` is the number to send.
    pub fn client(section: &Arc<PeersSection>, peer: usize, process: u32, now: u64) -> PeerSession {
        PeerSession::client_of_version(1, section, peer, process, now)
    }

    /// Creates the connecting side with version 2.`minor`.
    pub(crate) fn client_of_version(
        minor: u8,
        section: &Arc<PeersSection>,
        peer: usize,
        process: u32,
        now: u64,
    ) -> PeerSession {
        let mut session = PeerSession::new(section, SessionPhase::Status, now);
        session.peer = Some(peer);
        session.minor = minor;
        handshake::greet(minor, &section.peers[peer], &section.local, process, &mut session.greeting);
        session
    }

    /// Creates the listening side.
    pub fn server(section: &Arc<PeersSection>, now: u64) -> PeerSession {
        PeerSession::new(section, SessionPhase::Hello, now)
    }

    fn new(section: &Arc<PeersSection>, phase: SessionPhase, now: u64) -> PeerSession {
        PeerSession {
            section: section.clone(),
            phase,
            peer: None,
            minor: 1,
            input: Vec::new(),
            greeting: Vec::new(),
            heard: now,
            last_sent: now,
            beat: false,
            controls: 0,
            local: EntryOrigin::Local,
            learning: Learning::new(&section.tables),
            sender: Sender::new(section.tables.len()),
            ask: false,
            greets: section.features != 0,
            asks_parts: false,
            program: PeerProgram::Unknown,
            confirm: false,
            events: Vec::new(),
            counts: SessionCounts::default(),
        }
    }

    /// Uses other names of peers to check the greeting.
    pub(crate) fn rename_peers(&mut self, section: &Arc<PeersSection>) {
        if self.phase == SessionPhase::Hello {
            self.section = section.clone();
        }
    }

    /// Returns the index of the remote peer, once known.
    pub fn peer(&self) -> Option<usize> {
        self.peer
    }

    /// Whether messages are exchanged.
    pub fn is_open(&self) -> bool {
        self.phase == SessionPhase::Open
    }

    /// Returns why the session has ended, if it has. The rest of [`output`](Self::output) is then sent before the connection is
    /// closed.
    pub fn over(&self) -> Option<Over> {
        match self.phase {
            SessionPhase::Over(over) => Some(over),
            _ => None,
        }
    }

    /// Returns when something was last sent.
    pub(crate) fn last_sent_at(&self) -> u64 {
        self.last_sent
    }

    /// Whether a heartbeat must be sent.
    pub(crate) fn is_beat_due(&self) -> bool {
        self.beat
    }

    /// Returns the message counts.
    pub fn counts(&self) -> SessionCounts {
        self.counts
    }

    /// Returns the number of the last change of a table that the peer has acknowledged, and the number of the last one sent.
    pub fn taught(&self, table: usize) -> (u64, u64) {
        self.sender.cursor(table)
    }

    /// Returns the known state of the peer's table: its number there, the last entry received and the last one acknowledged.
    pub fn learned(&self, table: usize) -> Option<(u64, u32, u32)> {
        self.learning.view(table)
    }

    /// Returns the table of the peer's next entries, the table that was defined last for the peer, and the types that it sends for
    /// a table, as bits.
    pub(crate) fn at(&self, table: usize) -> (Option<usize>, Option<usize>, u64) {
        (self.learning.current(), self.sender.defined(), self.learning.bits(table))
    }

    /// Returns the strings sent to the peer, and those received, with their numbers.
    pub(crate) fn names(&self) -> [Vec<(usize, &[u8])>; 2] {
        [self.sender.names().collect(), self.learning.names().collect()]
    }

    /// Sets the changes of each table that the peer has from earlier sessions, and its shard of keys together with the number of
    /// shards, or `None` for all keys.
    pub fn resume(&mut self, known: &[u64], shard: Option<(u32, u32)>) {
        self.sender.resume(known, shard);
    }

    /// Returns the index of a peer with an unanswered greeting.
    pub fn greeted(&self) -> Option<usize> {
        match self.phase {
            SessionPhase::Greeted(hello) => Some(hello.peer),
            _ => None,
        }
    }

    /// Answers the greeting.
    pub fn welcome(&mut self, status: HandshakeStatus) {
        let SessionPhase::Greeted(hello) = self.phase else { return };
        handshake::answer(status, &mut self.greeting);
        if status != HandshakeStatus::Success {
            self.end(Over::Refused(status));
            return;
        }
        self.phase = SessionPhase::Open;
        self.events.push(SessionEvent::Established { peer: hello.peer, process: Some(hello.process) });
    }

    /// Informs the session that the peer has the name of this process. A predecessor is sent no changes, because they would
    /// replace its counts with lower ones.
    pub(crate) fn is_with(&mut self, process: EntryOrigin) {
        self.local = process;
        self.sender.keep_changes(process != EntryOrigin::Successor);
    }

    /// Requests a resync from the peer.
    pub fn request_resync(&mut self) {
        self.ask = true;
    }

    /// Sends everything without a request. A process that ends does this for its successor.
    pub fn teach_all(&mut self) {
        self.sender.begin_resync();
    }

    /// Ends the session locally.
    pub fn finish(&mut self) {
        self.end(Over::Ended);
    }

    fn end(&mut self, over: Over) {
        if self.over().is_none() {
            self.phase = SessionPhase::Over(over);
            self.input = Vec::new();
            self.events.push(SessionEvent::Over(over));
        }
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<SessionEvent> {
        std::mem::take(&mut self.events)
    }

    /// Processes received bytes, storing entries in `tables`.
    pub fn receive(&mut self, bytes: &[u8], now: u64, tables: &mut impl Tables) {
        if self.over().is_some() {
            return;
        }
        if self.greeted().is_some() && self.input.len() > message::LONGEST {
            self.end(Over::Breach(Breach::Protocol("data after the greeting before its answer")));
            return;
        }
        if self.input.is_empty() {
            let used = self.take(bytes, now, tables);
            if self.over().is_none() {
                self.input.extend_from_slice(&bytes[used..]);
            }
            return;
        }
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let used = self.take(&input, now, tables);
        if self.over().is_none() {
            input.drain(..used);
            self.input = input;
        }
    }

    /// Continues with the bytes after a greeting, once it was answered.
    pub fn resume_input(&mut self, now: u64, tables: &mut impl Tables) {
        if !self.input.is_empty() && self.is_open() {
            self.receive(&[], now, tables);
        }
    }

    /// Returns the number of bytes kept of an incomplete message.
    pub fn kept(&self) -> usize {
        self.input.len()
    }

    /// Processes complete messages. Returns their length.
    fn take(&mut self, bytes: &[u8], now: u64, tables: &mut impl Tables) -> usize {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let step = match self.phase {
                SessionPhase::Hello => self.take_hello(rest),
                SessionPhase::Status => self.take_status(rest, now),
                SessionPhase::Open => self.take_message(rest, now, tables),
                // Bytes after a greeting wait until it is answered.
                SessionPhase::Greeted(_) | SessionPhase::Over(_) => Ok(None),
            };
            match step {
                Ok(Some(length)) => used += length,
                Ok(None) => return used,
                Err(breach) => {
                    self.end(Over::Breach(breach));
                    return used;
                }
            }
        }
    }

    fn take_hello(&mut self, bytes: &[u8]) -> Result<Option<usize>, Breach> {
        match handshake::read_hello(bytes, &self.section.local, &self.section.peers) {
            Ok(Some(PeerHello { peer, minor, process, length })) => {
                self.peer = Some(peer);
                self.minor = minor;
                self.phase = SessionPhase::Greeted(Guest { peer, process });
                Ok(Some(length))
            }
            Ok(None) => Ok(None),
            Err(status) => {
                handshake::answer(status, &mut self.greeting);
                self.end(Over::Refused(status));
                Ok(None)
            }
        }
    }

    fn take_status(&mut self, bytes: &[u8], now: u64) -> Result<Option<usize>, Breach> {
        let Some((status, length)) = handshake::read_status(bytes)? else { return Ok(None) };
        if status != HandshakeStatus::Success {
            self.events.push(SessionEvent::Refused(status));
            self.end(Over::Refused(status));
            return Ok(None);
        }
        self.phase = SessionPhase::Open;
        self.heard = now;
        if let Some(peer) = self.peer {
            self.events.push(SessionEvent::Established { peer, process: None });
        }
        Ok(Some(length))
    }

    fn take_message(
        &mut self,
        bytes: &[u8],
        now: u64,
        tables: &mut impl Tables,
    ) -> Result<Option<usize>, Breach> {
        let Some((message, length)) = message::read(bytes)? else { return Ok(None) };
        self.heard = now;
        self.note_program(&message, now, tables);
        match message {
            Message::Extension(extension) => self.extension(extension)?,
            Message::Control(control) => self.control(control)?,
            Message::ProtocolError | Message::SizeError => {
                self.end(Over::Accused);
                return Ok(None);
            }
            Message::Update { incremental, timed, body } => {
                let origin = self.origin(timed);
                if self.learning.update(incremental, timed, body, origin, now, tables)? {
                    self.counts.learned += 1;
                    if let (Some(table), Some(peer)) = (self.learning.current(), self.peer) {
                        tables.note_traffic(table, peer, length, false);
                    }
                }
            }
            Message::Define(body) => {
                let peer = self.peer.map_or(&[][..], |peer| &self.section.peers[peer]);
                self.learning.define(body, &self.section.tables, peer)?;
            }
            Message::Switch(id) => self.learning.switch(id),
            Message::Ack { table, update } => {
                if let (Some((table, delay)), Some(peer)) = (self.sender.ack(table, update, now), self.peer) {
                    tables.note_delay(table, peer, delay);
                }
            }
            Message::Unknown => {}
        }
        Ok(Some(length))
    }

    /// Returns the origin of a learned entry. Only entries of a resync have an expiry time.
    fn origin(&self, timed: bool) -> EntryOrigin {
        match self.peer {
            Some(peer) if self.section.peers[peer] != self.section.local => {
                EntryOrigin::Remote { peer, resync: timed }
            }
            _ => self.local,
        }
    }

    fn control(&mut self, control: Control) -> Result<(), Breach> {
        if control == Control::Heartbeat {
            self.counts.heartbeats_received += 1;
            return Ok(());
        }
        self.controls += 1;
        if self.controls > CONTROLS {
            return Err(Breach::Protocol("too many resyncs"));
        }
        let event = match control {
            Control::ResyncRequest => {
                self.sender.begin_resync();
                SessionEvent::ResyncRequested
            }
            Control::ResyncFinished | Control::ResyncPartial => {
                self.confirm = true;
                if control == Control::ResyncFinished {
                    SessionEvent::ResyncFinished
                } else {
                    SessionEvent::ResyncPartial
                }
            }
            Control::ResyncConfirm => {
                if !self.sender.confirmed() {
                    return Ok(());
                }
                SessionEvent::ResyncConfirmed
            }
            Control::Heartbeat => return Ok(()),
        };
        self.events.push(event);
        Ok(())
    }

    /// Appends output until `out` has about `limit` bytes (to within one message). Call it again until it appends nothing.
    /// `up_to_date` is whether the data of this side is complete, which it reports at the end of a resync.
    pub fn output(
        &mut self,
        out: &mut Vec<u8>,
        limit: usize,
        up_to_date: bool,
        now: u64,
        tables: &mut impl Tables,
    ) {
        let before = out.len();
        out.append(&mut self.greeting);
        match self.phase {
            SessionPhase::Over(Over::Breach(breach)) if !self.sender.is_silent() => {
                message::error(breach, out);
                self.sender.silence();
            }
            SessionPhase::Open => self.messages(out, limit, up_to_date, now, tables),
            _ => {}
        }
        if out.len() > before {
            self.last_sent = now;
            self.beat = false;
        }
    }

    fn messages(
        &mut self,
        out: &mut Vec<u8>,
        limit: usize,
        up_to_date: bool,
        now: u64,
        tables: &mut impl Tables,
    ) {
        let before = out.len();
        if std::mem::take(&mut self.greets) {
            message::extension(Extension::Features(self.section.features), out);
        }
        if std::mem::take(&mut self.asks_parts) {
            message::extension(Extension::PartsRequest, out);
        }
        if std::mem::take(&mut self.ask) {
            message::control(Control::ResyncRequest, out);
        }
        self.learning.acks(out);
        if std::mem::take(&mut self.confirm) {
            message::control(Control::ResyncConfirm, out);
        }
        let timed = self.minor > 0;
        let writer = Writer::new(&self.section, timed, now, out, limit, self.peer);
        self.counts.taught += self.sender.output(up_to_date, writer, tables);
        if out.len() == before && (self.beat || now >= self.last_sent + HEARTBEAT) {
            message::control(Control::Heartbeat, out);
            self.counts.heartbeats_sent += 1;
        }
    }

    /// Returns the latest time to call [`tick`](Self::tick) and [`output`](Self::output).
    pub fn next(&self) -> Option<u64> {
        match self.phase {
            SessionPhase::Over(_) => None,
            SessionPhase::Open if !self.beat => Some((self.heard + TIMEOUT).min(self.last_sent + HEARTBEAT)),
            _ => Some(self.heard + TIMEOUT),
        }
    }

    /// Processes the passing of time.
    pub fn tick(&mut self, now: u64) {
        // Heartbeats do not accumulate for a peer that does not read.
        self.beat |= self.is_open() && now >= self.last_sent + HEARTBEAT;
        if self.over().is_none() && now >= self.heard + TIMEOUT {
            self.end(Over::Timeout);
        }
    }
}
