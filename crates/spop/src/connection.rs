//! One connection to an agent without its socket: the handshake, the questions that are still to be
//! answered, and what ends it.
//!
//! The caller owns the socket and the clock. Its turn: one read, [`Connection::receive`] in a loop
//! until it returns no event, and everything in [`Connection::output`] with one write.
//!
//! A question keeps its place until the caller releases it, even after its answer has come: the
//! caller's table is indexed by place, and an answer that was not read yet would otherwise be lost to
//! the next question. The late answer to a released question is discarded, because stream numbers are
//! not reused.

#[cfg(test)]
mod tests;

use base::outgoing::Outgoing;

use crate::frame::{FIN, Frame, LENGTH, kind};
use crate::hello::{AgentHello, Goodbye, Offer};
use crate::status::Status;

/// Bytes of output that wait before questions have to.
const OUTPUT: usize = 64 * 1024;

/// What is kept of the memory for output and input while a connection is in use.
const KEPT: usize = 16 * 1024;

/// So many questions in a row that nobody waited for any longer, with not a word from the agent in
/// between, and it is not asked again.
const PATIENCE: u32 = 3;

/// The most places of one connection, including those of answers that were not read yet.
const PLACES: usize = 256;

/// What is said of connections to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The largest frame that is offered, in bytes without its length.
    pub frame_size: u32,
    /// Whether more than one question is offered at a time.
    pub pipelining: bool,
    /// How many questions a connection has at a time then.
    pub most: u16,
    /// Who asks.
    pub engine: Box<str>,
}

/// A question for the caller. It is never mistaken for a later one in the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    slot: u16,
    number: u32,
}

impl Key {
    /// The place: small, dense, and reused after the release; for the caller's own table.
    #[must_use]
    pub fn index(self) -> usize {
        self.slot.into()
    }

    /// The number of its stream in frames.
    #[must_use]
    pub fn stream(self) -> u32 {
        // Odd, as HAProxy's are.
        self.number.wrapping_mul(2).wrapping_sub(1)
    }
}

/// What came from the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It is ready for more than the first question.
    Ready,
    /// It answers a question; its actions are in [`Connection::payload`].
    Ack {
        /// The question.
        key: Key,
    },
    /// A question is larger than the agent takes: it was not asked.
    TooBig {
        /// The question.
        key: Key,
    },
}

/// The connection is of no more use; [`Connection::status`] tells why. What is in the output still
/// is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// Why a question cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There are as many as the agent takes, or nothing more is sent.
    Full,
    /// It does not fit in a frame.
    TooBig,
}

/// How far the connection is.
#[derive(Debug)]
enum State {
    /// The agent has not said anything yet; the first question waits for that.
    Greeting(Option<Box<[u8]>>),
    /// Questions are asked.
    Open(AgentHello),
    /// It has ended.
    Over(Status),
}

/// What ends a connection.
enum End {
    /// Something that the agent must not send.
    Fault(Status),
    /// Its goodbye, and what that is to those who wait.
    Dismissed(Status),
}

/// A place for a question.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// The question's number; 0 if the place is free.
    number: u32,
    /// Whether the outcome was reported: no event names the question again.
    is_settled: bool,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    state: State,
    places: Vec<Place>,
    /// Questions that were not released.
    held: usize,
    /// Questions that the agent still has to answer.
    live: usize,
    /// Questions asked so far.
    total: u32,
    /// How many were forgotten since the agent was last heard.
    unheard: u32,
    /// The frame that is being received, with its length.
    input: Vec<u8>,
    /// Whether it is whole and was told of, and where its payload begins.
    told: Option<usize>,
    output: Outgoing,
}

impl Connection {
    /// A connection whose handshake is in the output.
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
            told: None,
            output,
        }
    }

    /// How many questions it has at once. Before the agent has said so: one.
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

    /// How many more questions may be asked.
    #[must_use]
    pub fn free(&self) -> usize {
        if self.is_stuck() || self.pending() >= OUTPUT {
            return 0;
        }
        self.most().saturating_sub(self.live).min(PLACES.saturating_sub(self.held))
    }

    /// Whether the agent is not asked any more: it owes an answer that nobody waits for, and would have
    /// to give that first; or it has been silent about several.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.unheard >= if self.most() > 1 { PATIENCE } else { 1 }
    }

    /// Questions that are to be answered.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live
    }

    /// Questions that were not released, answered or not.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Why it has ended; before that, what it is if its socket ends now.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.state {
            State::Over(status) => status,
            State::Greeting(_) | State::Open(_) => Status::IO,
        }
    }

    /// Asks a question: messages as [`crate::Messages`] writes them.
    ///
    /// # Errors
    /// It is not asked.
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

    /// The number of the next question, from 1 to `u32::MAX >> 1`: [`Key::stream`] doubles it.
    fn next_number(&self) -> u32 {
        self.total % (u32::MAX >> 1) + 1
    }

    /// Gives the question's place back. An answer that comes later is discarded.
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

    /// The place of a question that was not released.
    fn place(&mut self, key: Key) -> Option<&mut Place> {
        self.places.get_mut(key.index()).filter(|place| place.number == key.number)
    }

    /// The question has an outcome; its place stays taken until the caller has read it.
    fn settle(&mut self, key: Key) {
        if let Some(place) = self.place(key)
            && !std::mem::replace(&mut place.is_settled, true)
        {
            self.live -= 1;
        }
    }

    /// Takes in what came: how much was used of it, and what it tells. The rest is to be given again;
    /// where nothing is told all was used.
    ///
    /// # Errors
    /// The connection ends.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Option<Event>), Closed> {
        if matches!(self.state, State::Over(_)) {
            return Err(Closed);
        }
        if self.told.take().is_some() {
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
                // What is too large is not waited for.
                self.length(length)?;
                continue;
            }
            if self.input.len() < wanted {
                continue;
            }
            let frame = std::mem::take(&mut self.input);
            let told = self.happen(&frame[LENGTH..]);
            self.input = frame;
            match told {
                Ok(None) => self.input.clear(),
                Ok(Some((event, payload))) => {
                    self.told = Some(self.input.len() - payload);
                    return Ok((used, Some(event)));
                }
                Err(End::Fault(status)) => return Err(self.close(status, status)),
                Err(End::Dismissed(status)) => return Err(self.close(Status::NORMAL, status)),
            }
        }
        Ok((used, None))
    }

    /// The length of the next frame.
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

    /// What a frame tells, and how long its payload is.
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
            // Of another version: the protocol allows to pass over it.
            _ => Ok(None),
        }
    }

    /// Asks what waited for the agent to be ready.
    fn ask_first(&mut self, first: Option<Box<[u8]>>, hello: AgentHello) -> Event {
        // Before the handshake there is at most one.
        let (Some(first), Some(key)) = (first, self.waiting().next()) else { return Event::Ready };
        if fits(&first, key, hello.frame_size) {
            notify(&first, key, self.output.end());
            return Event::Ready;
        }
        self.settle(key);
        Event::TooBig { key }
    }

    /// The question that a frame answers; `None` if it is unknown, answered already, or released.
    fn find(&self, stream: u64, frame: u64) -> Option<Key> {
        self.waiting().find(|key| u64::from(key.stream()) == stream && frame == FRAME)
    }

    /// Questions that are to be answered.
    fn waiting(&self) -> impl Iterator<Item = Key> {
        let waits = |place: &Place| place.number > 0 && !place.is_settled;
        let all = self.places.iter().zip(0..).filter(move |(place, _)| waits(place));
        all.map(|(place, slot)| Key { slot, number: place.number })
    }

    /// Ends the connection with a last word to the agent.
    fn close(&mut self, said: Status, status: Status) -> Closed {
        if !matches!(self.state, State::Over(_)) {
            Goodbye::write(said, self.output.end());
            self.state = State::Over(status);
        }
        Closed
    }

    /// Leaves the last word in the output: the connection is of no more use, and nothing went wrong.
    pub fn finish(&mut self) {
        self.close(Status::NORMAL, Status::IO);
    }

    /// What the last event brought.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.told.and_then(|start| self.input.get(start..)).unwrap_or_default()
    }

    /// What is to be sent now.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.output.waiting()
    }

    /// The first `count` bytes of the output are sent.
    pub fn sent(&mut self, count: usize) {
        self.output.advance(count, KEPT);
    }

    /// Bytes that wait in the output.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.output.len()
    }

    /// Gives back memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.output.shrink();
        if self.told.is_some() {
            self.told = None;
            self.input = Vec::new();
        }
    }
}

/// What a goodbye of the agent is to the questions that it leaves unanswered.
fn dismissed(payload: &[u8]) -> End {
    match Goodbye::read(payload) {
        Ok(Goodbye { status: Status::NORMAL, .. }) => End::Dismissed(Status::IO),
        Ok(Goodbye { status, .. }) => End::Dismissed(status),
        Err(status) => End::Fault(status),
    }
}

/// The number of every frame in its stream: a question has one.
const FRAME: u64 = 1;

/// Whether messages fit in a frame of that size.
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
