//! A connection to an agent, without its socket: the handshake, the queries in progress, and the ways in which it ends.
//!
//! The caller owns the socket and the clock. On each turn it reads once, calls [`Connection::receive`] in a loop until it returns
//! no event, and sends everything in [`Connection::output`] with one write.
//!
//! A query keeps its slot until the caller releases it, even after its answer has arrived. The caller's table is indexed by slot,
//! so the next query could otherwise overwrite an answer that was not read yet. The late answer to a released query is discarded,
//! because stream ids are not reused.

#[cfg(test)]
mod tests;

use base::outgoing::Outgoing;

use crate::frame::{FIN, Frame, LENGTH, kind};
use crate::hello::{AgentHello, Goodbye, Offer};
use crate::status::Status;

/// The number of pending bytes of output from which queries must wait.
const OUTPUT: usize = 64 * 1024;

/// The buffer capacity that is kept for output and input while a connection is in use.
const KEPT: usize = 16 * 1024;

/// After this many abandoned queries in a row, without a single frame from the agent in between, no more are sent.
const PATIENCE: u32 = 3;

/// The maximum number of slots of one connection, including those of answers that were not read yet.
const PLACES: usize = 256;

/// The options configured for connections to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The largest frame size offered, in bytes without the length field.
    pub frame_size: u32,
    /// Whether pipelining (several queries at a time) is offered.
    pub pipelining: bool,
    /// Maximum number of concurrent queries with pipelining.
    pub most: u16,
    /// The engine id.
    pub engine: Box<str>,
}

/// The caller's handle of a query. It never refers to a later query in the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    slot: u16,
    number: u32,
}

impl Key {
    /// Returns the slot, which is small, dense, reused after the release, and can be an index of a table of the caller.
    #[must_use]
    pub fn index(self) -> usize {
        self.slot.into()
    }

    /// Returns the stream id used in frames.
    #[must_use]
    pub fn stream(self) -> u32 {
        // Stream ids are odd, as in HAProxy.
        self.number.wrapping_mul(2).wrapping_sub(1)
    }
}

/// An event from the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The agent is ready for more than the first query.
    Ready,
    /// The agent has answered a query; the actions are in [`Connection::payload`].
    Ack {
        /// The question.
        key: Key,
    },
    /// The query exceeds the agent's frame size and was not sent.
    TooBig {
        /// The question.
        key: Key,
    },
}

/// The connection is unusable; [`Connection::status`] has the reason. The remaining output must still be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// Why a query cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The agent's limit of queries is reached, or nothing more is sent.
    Full,
    /// The query does not fit in a frame.
    TooBig,
}

/// The state of a connection.
#[derive(Debug)]
enum State {
    /// The agent's HELLO has not arrived, and the first query waits for it.
    Greeting(Option<Box<[u8]>>),
    /// Queries can be sent.
    Open(AgentHello),
    /// The connection has ended.
    Over(Status),
}

/// Why a connection ends.
enum End {
    /// The agent violated the protocol.
    Fault(Status),
    /// The agent disconnected, and the status for pending queries.
    Dismissed(Status),
}

/// A slot for a query.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// The query's number; 0 if the slot is free.
    number: u32,
    /// Whether the outcome was reported, so that no further event names the query.
    is_settled: bool,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    state: State,
    places: Vec<Place>,
    /// Number of queries that were not released.
    held: usize,
    /// Number of queries that the agent has not answered yet.
    live: usize,
    /// Number of queries sent so far.
    total: u32,
    /// Number of queries abandoned since the agent's last frame.
    unheard: u32,
    /// The frame that is being received, with its length field.
    input: Vec<u8>,
    /// Set when the frame is complete and was reported: the start of its payload.
    payload_start: Option<usize>,
    output: Outgoing,
}

impl Connection {
    /// Returns a new connection with its handshake in the output.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut output = Outgoing::default();
        let Config { frame_size, pipelining, ref engine, .. } = config;
        Offer { frame_size, pipelining, engine, is_check: false }.write(output.end());
        Self {
            config,
            state: State::Greeting(None),
            places: Vec::new(),
            held: 0,
            live: 0,
            total: 0,
            unheard: 0,
            input: Vec::new(),
            payload_start: None,
            output,
        }
    }

    /// Returns the maximum number of concurrent queries; one until the agent has answered the handshake.
    #[must_use]
    pub fn most(&self) -> usize {
        match &self.state {
            State::Open(hello) if hello.pipelining && self.config.pipelining => {
                self.config.most.max(1).into()
            }
            State::Open(_) | State::Greeting(_) => 1,
            State::Over(_) => 0,
        }
    }

    /// Returns how many more queries can be sent.
    #[must_use]
    pub fn free(&self) -> usize {
        if self.is_stuck() || self.pending() >= OUTPUT {
            return 0;
        }
        self.most().saturating_sub(self.live).min(PLACES.saturating_sub(self.held))
    }

    /// Returns whether no more queries are sent, because the agent has not answered an abandoned query and would have to answer
    /// that first, or because it has not responded to several queries.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.unheard >= if self.most() > 1 { PATIENCE } else { 1 }
    }

    /// Returns the number of queries that are not answered yet.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live
    }

    /// Returns the number of queries that were not released, answered or not.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Returns why the connection has ended. Before that, returns the status to report if the socket closes now.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.state {
            State::Over(status) => status,
            State::Greeting(_) | State::Open(_) => Status::IO,
        }
    }

    /// Sends a query: messages encoded by [`crate::Messages`].
    ///
    /// # Errors
    /// The query was not sent.
    pub fn ask(&mut self, messages: &[u8]) -> Result<Key, Refusal> {
        if self.free() == 0 {
            return Err(Refusal::Full);
        }
        let slot = self.places.iter().position(|place| place.number == 0).unwrap_or(self.places.len());
        let key = Key { slot: u16::try_from(slot).map_err(|_| Refusal::Full)?, number: self.next_number() };
        match &mut self.state {
            State::Over(_) => return Err(Refusal::Full),
            State::Greeting(_) if !fits(messages, key, self.config.frame_size) => {
                return Err(Refusal::TooBig);
            }
            State::Greeting(first) => *first = Some(messages.into()),
            State::Open(hello) if !fits(messages, key, hello.frame_size) => return Err(Refusal::TooBig),
            State::Open(_) => notify(messages, key, self.output.end()),
        }
        self.total = key.number;
        let place = Place { number: key.number, is_settled: false };
        match self.places.get_mut(slot) {
            Some(free) => *free = place,
            None => self.places.push(place),
        }
        self.held += 1;
        self.live += 1;
        Ok(key)
    }

    /// Returns the number of the next query, from 1 to `u32::MAX >> 1`, because [`Key::stream`] doubles it.
    fn next_number(&self) -> u32 {
        self.total % (u32::MAX >> 1) + 1
    }

    /// Releases the query's slot. An answer that arrives later is discarded.
    pub fn release(&mut self, key: Key) {
        let Some(place) = self.place(key) else { return };
        let was_settled = std::mem::take(place).is_settled;
        self.held -= 1;
        if was_settled {
            return;
        }
        self.live -= 1;
        self.unheard += 1;
        if let State::Greeting(first) = &mut self.state {
            *first = None;
        }
    }

    /// Returns the slot of a query that was not released.
    fn place(&mut self, key: Key) -> Option<&mut Place> {
        self.places.get_mut(key.index()).filter(|place| place.number == key.number)
    }

    /// Marks the query as settled. Its slot stays in use until the caller has read the outcome.
    fn settle(&mut self, key: Key) {
        if let Some(place) = self.place(key)
            && !std::mem::replace(&mut place.is_settled, true)
        {
            self.live -= 1;
        }
    }

    /// Processes received bytes. Returns how many were consumed, and an event. The remaining bytes must be passed again; without an
    /// event all were consumed.
    ///
    /// # Errors
    /// The connection ends.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Option<Event>), Closed> {
        if matches!(self.state, State::Over(_)) {
            return Err(Closed);
        }
        if self.payload_start.take().is_some() {
            self.input.clear();
            self.input.shrink_to(KEPT);
        }
        let mut used = 0;
        while used < bytes.len() {
            let wanted = match self.input.first_chunk() {
                None => LENGTH,
                Some(length) => LENGTH + self.length(*length)?,
            };
            let piece = bytes.len().min(used + wanted - self.input.len());
            self.input.extend_from_slice(&bytes[used..piece]);
            used = piece;
            if let Ok(length) = <[u8; LENGTH]>::try_from(&*self.input) {
                // A frame that is too large is refused before it is received.
                self.length(length)?;
                continue;
            }
            if self.input.len() < wanted {
                continue;
            }
            let frame = std::mem::take(&mut self.input);
            let outcome = self.happen(&frame[LENGTH..]);
            self.input = frame;
            match outcome {
                Ok(None) => self.input.clear(),
                Ok(Some((event, payload))) => {
                    self.payload_start = Some(self.input.len() - payload);
                    return Ok((used, Some(event)));
                }
                Err(End::Fault(status)) => return Err(self.close(status, status)),
                Err(End::Dismissed(status)) => return Err(self.close(Status::NORMAL, status)),
            }
        }
        Ok((used, None))
    }

    /// Checks and returns the length of the next frame.
    fn length(&mut self, bytes: [u8; LENGTH]) -> Result<usize, Closed> {
        let most = match &self.state {
            State::Open(hello) => hello.frame_size,
            State::Greeting(_) | State::Over(_) => self.config.frame_size,
        };
        match u32::from_be_bytes(bytes) {
            0 => Err(self.close(Status::INVALID, Status::INVALID)),
            length if length > most => Err(self.close(Status::TOO_BIG, Status::TOO_BIG)),
            length => Ok(length as usize),
        }
    }

    /// Processes a frame. Returns its event and the length of its payload.
    fn happen(&mut self, bytes: &[u8]) -> Result<Option<(Event, usize)>, End> {
        let frame = Frame::read(bytes).ok_or(End::Fault(Status::INVALID))?;
        if frame.flags & FIN == 0 {
            return Err(End::Fault(Status::FRAGMENTED));
        }
        match (frame.kind, &mut self.state) {
            (kind::AGENT_DISCONNECT, _) => Err(dismissed(frame.payload)),
            (kind::AGENT_HELLO, State::Greeting(first)) => {
                let hello = AgentHello::read(frame.payload, self.config.frame_size).map_err(End::Fault)?;
                let first = first.take();
                self.state = State::Open(hello);
                self.unheard = 0;
                Ok(Some((self.ask_first(first, hello), 0)))
            }
            (kind::ACK, State::Open(_)) => {
                self.unheard = 0;
                Ok(self.find(frame.stream, frame.frame).map(|key| {
                    self.settle(key);
                    (Event::Ack { key }, frame.payload.len())
                }))
            }
            (kind::AGENT_HELLO, _) | (_, State::Greeting(_)) => Err(End::Fault(Status::INVALID)),
            // The protocol permits ignoring frame types of other versions.
            _ => Ok(None),
        }
    }

    /// Sends the query that waited for the handshake.
    fn ask_first(&mut self, first: Option<Box<[u8]>>, hello: AgentHello) -> Event {
        // Before the handshake there is at most one query.
        let (Some(first), Some(key)) = (first, self.waiting().next()) else { return Event::Ready };
        if fits(&first, key, hello.frame_size) {
            notify(&first, key, self.output.end());
            return Event::Ready;
        }
        self.settle(key);
        Event::TooBig { key }
    }

    /// Returns the query that a frame answers; `None` if it is unknown, already answered, or released.
    fn find(&self, stream: u64, frame: u64) -> Option<Key> {
        self.waiting().find(|key| u64::from(key.stream()) == stream && frame == FRAME)
    }

    /// Iterates over the queries that are not answered yet.
    fn waiting(&self) -> impl Iterator<Item = Key> {
        let waits = |place: &Place| place.number > 0 && !place.is_settled;
        let all = self.places.iter().zip(0..).filter(move |(place, _)| waits(place));
        all.map(|(place, slot)| Key { slot, number: place.number })
    }

    /// Ends the connection with a DISCONNECT frame.
    fn close(&mut self, reported: Status, status: Status) -> Closed {
        if !matches!(self.state, State::Over(_)) {
            Goodbye::write(reported, self.output.end());
            self.state = State::Over(status);
        }
        Closed
    }

    /// Ends the connection normally, with a DISCONNECT frame in the output.
    pub fn finish(&mut self) {
        self.close(Status::NORMAL, Status::IO);
    }

    /// Returns the payload of the last event.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.payload_start.and_then(|start| self.input.get(start..)).unwrap_or_default()
    }

    /// Returns the bytes to send now.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.output.waiting()
    }

    /// Records that the first `count` bytes of the output were sent.
    pub fn sent(&mut self, count: usize) {
        self.output.advance(count, KEPT);
    }

    /// Returns the number of bytes in the output.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.output.len()
    }

    /// Frees memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.output.shrink();
        if self.payload_start.is_some() {
            self.payload_start = None;
            self.input = Vec::new();
        }
    }
}

/// Converts the agent's DISCONNECT into the status for unanswered queries.
fn dismissed(payload: &[u8]) -> End {
    match Goodbye::read(payload) {
        Ok(Goodbye { status: Status::NORMAL, .. }) => End::Dismissed(Status::IO),
        Ok(Goodbye { status, .. }) => End::Dismissed(status),
        Err(status) => End::Fault(status),
    }
}

/// The frame id. Each stream has exactly one frame.
const FRAME: u64 = 1;

/// Returns whether messages fit in a frame of that size.
fn fits(messages: &[u8], key: Key, most: u32) -> bool {
    let mut head = Vec::with_capacity(16);
    frame(key, &[]).write(&mut head);
    head.len() - LENGTH + messages.len() <= most as usize
}

fn notify(messages: &[u8], key: Key, output: &mut Vec<u8>) {
    frame(key, messages).write(output);
}

fn frame(key: Key, payload: &[u8]) -> Frame<'_> {
    Frame { kind: kind::NOTIFY, flags: FIN, stream: key.stream().into(), frame: FRAME, payload }
}
