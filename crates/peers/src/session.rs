//! One connection to a peer, without its socket or a clock: bytes and instants come in, bytes and
//! events come out.
//!
//! Nothing that is to be sent is kept as bytes: what is owed (acknowledgements, the end of a
//! resync, the next entries) is known, and written when [`PeerSession::output`] has room. So a peer
//! that sends without reading costs nothing. `learn` receives entries, `teach` sends them. Caller: `group`.

mod learn;
mod teach;

use std::sync::Arc;

use crate::definition::Definition;
use crate::handshake::{self, HandshakeStatus, PeerHello};
use crate::message::{self, Breach, Control, Message};
use crate::tables::{EntryOrigin, Tables};

use learn::Learning;
use teach::{Sender, Writer};

/// After so many milliseconds without a message the peer is told that somebody is there.
pub const HEARTBEAT: u64 = 3000;

/// After so many milliseconds without a message from the peer, it is taken for gone.
pub const TIMEOUT: u64 = 5000;

/// How often in a session a peer may speak of resyncs: one that means it does so a few times.
const CONTROLS: u32 = 256;

/// What all sessions of a section have in common.
#[derive(Debug)]
pub struct PeersSection {
    /// The name of this peer.
    pub local: Box<[u8]>,
    /// The names of all peers, this one among them.
    pub peers: Box<[Box<[u8]>]>,
    /// The shared tables.
    pub tables: Box<[Definition]>,
    /// How this process calls them, which decides over the parts of their keys.
    pub ids: Box<[Box<[u8]>]>,
    /// How many entries are sent in one go (`tune.peers.max-updates-at-once`).
    pub at_once: usize,
}

/// What happened in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEvent {
    /// Both sides know each other: the place of the peer, and the number of its process if it is
    /// the one that connected.
    Established {
        /// Its place in the section.
        peer: usize,
        /// The number of its process.
        process: Option<u32>,
    },
    /// The peer does not want this session.
    Refused(HandshakeStatus),
    /// The peer wants to be taught everything. The session sees to it.
    ResyncRequested,
    /// The peer has taught everything, and says that it knows everything.
    ResyncFinished,
    /// The peer has taught everything that it knows, which may not be all.
    ResyncPartial,
    /// The peer has heard that it was taught everything.
    ResyncConfirmed,
    /// The session is over.
    Over(Over),
}

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The greeting was answered with this.
    Refused(HandshakeStatus),
    /// The peer broke the protocol.
    Breach(Breach),
    /// The peer says that this side broke the protocol.
    Accused,
    /// Nothing came in time.
    Timeout,
    /// It is ended from here.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionPhase {
    /// The greeting of the other side is waited for.
    Hello,
    /// The other side has greeted, and is not answered yet.
    Greeted(Guest),
    /// The answer of the other side is waited for.
    Status,
    /// Messages are exchanged.
    Open,
    /// Nothing is read any more. What is owed is written: an error, or an answer.
    Over(Over),
}

/// Who has greeted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Guest {
    peer: usize,
    process: u32,
}

/// How many entries and messages went each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionCounts {
    /// Entries that were taught.
    pub taught: u64,
    /// Entries that were learned.
    pub learned: u64,
    /// Heartbeats that were sent.
    pub heartbeats_sent: u64,
    /// Heartbeats that came.
    pub heartbeats_received: u64,
}

/// One connection to a peer.
#[derive(Debug)]
pub struct PeerSession {
    section: Arc<PeersSection>,
    phase: SessionPhase,
    /// The place of the peer, once it is known.
    peer: Option<usize>,
    minor: u8,
    /// The beginning of a message that has not come to its end.
    input: Vec<u8>,
    /// The greeting or its answer, until it is written.
    greeting: Vec<u8>,
    /// When the last message came, and when the last went.
    heard: u64,
    said: u64,
    /// Whether the peer has heard nothing for so long that it is told that somebody is there.
    beat: bool,
    controls: u32,
    /// The origin of entries from a peer with this process's name.
    local: EntryOrigin,
    learning: Learning,
    sender: Sender,
    /// To be sent: a request for a resync; the confirmation of one; what broke.
    ask: bool,
    confirm: bool,
    events: Vec<SessionEvent>,
    counts: SessionCounts,
}

impl PeerSession {
    /// The side that connected, to the peer at `peer`; `process` is the number that it shows.
    pub fn client(section: &Arc<PeersSection>, peer: usize, process: u32, now: u64) -> PeerSession {
        PeerSession::client_of_version(1, section, peer, process, now)
    }

    /// The side that connected, which speaks version 2.`minor`.
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

    /// The side that was connected to.
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
            said: now,
            beat: false,
            controls: 0,
            local: EntryOrigin::Local,
            learning: Learning::new(&section.tables),
            sender: Sender::new(section.tables.len()),
            ask: false,
            confirm: false,
            events: Vec::new(),
            counts: SessionCounts::default(),
        }
    }

    /// Who the other side is, once it has said so.
    pub fn peer(&self) -> Option<usize> {
        self.peer
    }

    /// Whether messages are exchanged.
    pub fn is_open(&self) -> bool {
        self.phase == SessionPhase::Open
    }

    /// Why it is over, if it is. What [`output`](Self::output) has to say then goes out before the
    /// connection is closed.
    pub fn over(&self) -> Option<Over> {
        match self.phase {
            SessionPhase::Over(over) => Some(over),
            _ => None,
        }
    }

    /// When something was last sent.
    pub(crate) fn said_at(&self) -> u64 {
        self.said
    }

    /// How much went each way.
    pub fn counts(&self) -> SessionCounts {
        self.counts
    }

    /// The number of the last change of a table that the peer has acknowledged, and of the last
    /// that was sent.
    pub fn taught(&self, table: usize) -> (u64, u64) {
        self.sender.cursor(table)
    }

    /// What the peer said of a table: its number there, the last number learned and the last acknowledged.
    pub fn learned(&self, table: usize) -> Option<(u64, u32, u32)> {
        self.learning.view(table)
    }

    /// Of which table the peer's next entries are, which table it was told of last, and the kinds of
    /// data that it sends of a table, a bit each.
    pub(crate) fn at(&self, table: usize) -> (Option<usize>, Option<usize>, u64) {
        (self.learning.current(), self.sender.defined(), self.learning.bits(table))
    }

    /// The strings that were sent to the peer, and those that it sent, with their numbers.
    pub(crate) fn names(&self) -> [Vec<(usize, &[u8])>; 2] {
        [self.sender.names().collect(), self.learning.names().collect()]
    }

    /// The peer knows each table up to these numbers, from sessions before; of `shards` parts of the
    /// keys it gets the one given here, or all.
    pub fn resume(&mut self, known: &[u64], shard: Option<(u32, u32)>) {
        self.sender.resume(known, shard);
    }

    /// A greeting came that is not answered: who sent it.
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

    /// The peer has this process's name. A predecessor is sent no changes: it would replace its
    /// counts by lower ones.
    pub(crate) fn is_with(&mut self, process: EntryOrigin) {
        self.local = process;
        self.sender.keep_changes(process != EntryOrigin::Successor);
    }

    /// Asks the peer for everything it knows.
    pub fn request_resync(&mut self) {
        self.ask = true;
    }

    /// Teaches everything without being asked: a process that ends does so to its successor.
    pub fn teach_all(&mut self) {
        self.sender.begin_resync();
    }

    /// Ends the session from here.
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

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<SessionEvent> {
        std::mem::take(&mut self.events)
    }

    /// Bytes came. Entries in them go to `tables`.
    pub fn receive(&mut self, bytes: &[u8], now: u64, tables: &mut impl Tables) {
        if self.over().is_some() {
            return;
        }
        if self.greeted().is_some() && self.input.len() > message::LONGEST {
            self.end(Over::Breach(Breach::Protocol("more than a greeting before its answer")));
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

    /// Reads on after a greeting was answered: what came behind it.
    pub fn resume_input(&mut self, now: u64, tables: &mut impl Tables) {
        if !self.input.is_empty() && self.is_open() {
            self.receive(&[], now, tables);
        }
    }

    /// How many bytes are kept of a message that is not complete.
    pub fn kept(&self) -> usize {
        self.input.len()
    }

    /// Takes what is complete off the bytes; says how much that was.
    fn take(&mut self, bytes: &[u8], now: u64, tables: &mut impl Tables) -> usize {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let step = match self.phase {
                SessionPhase::Hello => self.take_hello(rest),
                SessionPhase::Status => self.take_status(rest, now),
                SessionPhase::Open => self.take_message(rest, now, tables),
                // What comes behind a greeting waits for its answer.
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
        match message {
            Message::Control(control) => self.control(control)?,
            Message::ProtocolError | Message::SizeError => {
                self.end(Over::Accused);
                return Ok(None);
            }
            Message::Update { incremental, timed, body } => {
                let origin = self.origin(timed);
                if self.learning.update(incremental, timed, body, origin, now, tables)? {
                    self.counts.learned += 1;
                }
            }
            Message::Define(body) => self.learning.define(body, &self.section.tables)?,
            Message::Switch(id) => self.learning.switch(id),
            Message::Ack { table, update } => self.sender.ack(table, update),
            Message::Unknown => {}
        }
        Ok(Some(length))
    }

    /// Where an entry of this session is learned. Those of resyncs alone are told with their time.
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
            return Err(Breach::Protocol("resyncs without end"));
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

    /// Appends what is to be sent until `out` has `limit` bytes, give or take one message. Called
    /// again until it appends nothing. `up_to_date`: whether this side knows everything, which it
    /// says at the end of a resync.
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
            self.said = now;
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
        if std::mem::take(&mut self.ask) {
            message::control(Control::ResyncRequest, out);
        }
        self.learning.acks(out);
        if std::mem::take(&mut self.confirm) {
            message::control(Control::ResyncConfirm, out);
        }
        let timed = self.minor > 0;
        let writer = Writer::new(&self.section, timed, now, out, limit);
        self.counts.taught += self.sender.output(up_to_date, writer, tables);
        if out.len() == before && (self.beat || now >= self.said + HEARTBEAT) {
            message::control(Control::Heartbeat, out);
            self.counts.heartbeats_sent += 1;
        }
    }

    /// When [`tick`](Self::tick) and [`output`](Self::output) are to be called at the latest.
    pub fn next(&self) -> Option<u64> {
        match self.phase {
            SessionPhase::Over(_) => None,
            SessionPhase::Open if !self.beat => Some((self.heard + TIMEOUT).min(self.said + HEARTBEAT)),
            _ => Some(self.heard + TIMEOUT),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: u64) {
        // A peer that reads nothing is not told again and again.
        self.beat |= self.is_open() && now >= self.said + HEARTBEAT;
        if self.over().is_none() && now >= self.heard + TIMEOUT {
            self.end(Over::Timeout);
        }
    }
}
