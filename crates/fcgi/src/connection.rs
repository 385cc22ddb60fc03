//! One connection to an application without its socket (FastCGI specification, 3 to 5).
//!
//! The caller owns the socket, the read buffer, the bodies and the clock. Its turn: one read,
//! `receive` in a loop until it tells of nothing more, the streams that have something to send,
//! `next_writable` in a loop, and everything in `output` with one write. Files: `receive` takes
//! records apart, this one writes them and keeps the streams.

mod receive;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use base::outgoing::Outgoing;
use http::{Head, Method, ParseOptions};

use crate::record::{self, HEADER, kind};
use crate::response::Gathered;
use crate::stream::{BodyProgress, RequestStream, StreamKey};
use crate::{Pairs, Parameters};
pub use receive::Closed;
use receive::ReadState;

/// Bytes of output that wait before streams have to.
const OUTPUT: usize = 64 * 1024;
/// The most that one record of a request's body has: what leaves in one piece.
const PIECE: usize = 16 * 1024;
/// Bytes of one body that nobody has taken yet, from which on nothing is read.
const HELD: usize = 64 * 1024;
/// The most of one message of the application that is kept.
const MESSAGE: usize = 8 * 1024;

const MAX_REQS: &[u8] = b"FCGI_MAX_REQS";
const MPXS_CONNS: &[u8] = b"FCGI_MPXS_CONNS";

/// What the configuration says of connections to an application (manual, 10.1.1).
#[derive(Debug, Clone)]
pub struct Config {
    /// `option keep-conn`: whether a connection outlives its request.
    pub keeps: bool,
    /// `option mpxs-conns`: whether it has more than one request at a time.
    pub multiplexes: bool,
    /// `option max-reqs`: how many.
    pub most: u16,
    /// `option get-values`: whether the application is asked for both.
    pub asks: bool,
    /// Whether messages of the application are told.
    pub wants_messages: bool,
    /// How heads of responses are read.
    pub head: ParseOptions,
}

/// Why no request can be begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// There are as many as the application takes.
    Full,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    streams: Vec<Option<RequestStream>>,
    /// How many places are taken, and how many of them the caller has forgotten.
    live: usize,
    orphans: usize,
    /// Whether one of those was ended before its time.
    has_aborted: bool,
    /// How many bodies there are that nobody takes.
    choked: usize,
    /// Requests begun so far.
    total: u32,
    reading: ReadState,
    /// The message of the last event.
    head: Head,
    message: Vec<u8>,
    /// Memory for heads to come.
    spare: Option<Box<Gathered>>,
    output: Outgoing,
    /// How much of it may be sent while the application was not heard.
    question: Option<usize>,
    /// Streams that wait for room.
    waiting: VecDeque<StreamKey>,
}

impl Connection {
    /// A connection; its question, if it has one, is in the output.
    #[must_use]
    pub fn new(config: Config) -> Connection {
        let mut output = Outgoing::default();
        let question = config.asks.then(|| {
            let mut names = Parameters::new(usize::MAX);
            for name in [MAX_REQS, MPXS_CONNS] {
                // There is room for everything.
                let _ = names.add(name, b"");
            }
            record::write(kind::GET_VALUES, 0, names.bytes(), output.end());
            output.len()
        });
        Connection {
            config,
            streams: Vec::new(),
            live: 0,
            orphans: 0,
            has_aborted: false,
            choked: 0,
            total: 0,
            reading: ReadState::Header,
            head: Head::new(),
            message: Vec::new(),
            spare: None,
            output,
            question,
            waiting: VecDeque::new(),
        }
    }

    /// How many requests it takes at once. Before the application has said so: one.
    #[must_use]
    pub fn most(&self) -> usize {
        let is_one = self.question.is_some() || !self.config.multiplexes;
        if is_one { 1 } else { self.config.most.max(1).into() }
    }

    /// How many more requests may be begun.
    #[must_use]
    pub fn free(&self) -> usize {
        if !self.config.keeps && self.total > 0 { 0 } else { self.most().saturating_sub(self.live) }
    }

    /// Requests that are not over, those included that the caller has forgotten.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.live
    }

    /// Whether all that there is was forgotten by the caller.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.live == self.orphans
    }

    /// Whether a request was forgotten before it was over: the application may go on with it.
    #[must_use]
    pub fn has_aborted(&self) -> bool {
        self.has_aborted
    }

    /// Begins a request of this method; with `ends` it has no body.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn open(
        &mut self,
        parameters: &Parameters,
        method: Method,
        ends: bool,
    ) -> Result<StreamKey, OpenError> {
        if self.free() == 0 {
            return Err(OpenError::Full);
        }
        let slot = self.streams.iter().position(Option::is_none).unwrap_or(self.streams.len());
        // No more than `max-reqs`, which fits.
        let slot = u16::try_from(slot).map_err(|_| OpenError::Full)?;
        self.total = self.total.wrapping_add(1);
        let stream = RequestStream::new(self.total, method);
        let key = StreamKey { slot, number: stream.number };
        match self.streams.get_mut(usize::from(slot)) {
            Some(place) => *place = Some(stream),
            None => self.streams.push(Some(stream)),
        }
        self.live += 1;
        let id = slot + 1;
        record::write_begin(id, self.config.keeps, self.output.end());
        record::write(kind::PARAMS, id, parameters.bytes(), self.output.end());
        record::write_end(kind::PARAMS, id, self.output.end());
        if ends {
            self.send_data(key, &[], true);
        }
        Ok(key)
    }

    /// Writes a part of a request's body; how many bytes were taken. With `end` nothing follows,
    /// once all of `data` is taken. Where nothing was, [`next_writable`](Self::next_writable) tells
    /// when there is room.
    pub fn send_data(&mut self, key: StreamKey, data: &[u8], end: bool) -> usize {
        let room = (OUTPUT + HEADER).saturating_sub(self.pending());
        let output = self.output.end();
        let Some(stream) = find(&mut self.streams, key) else { return data.len() };
        if stream.is_ended || stream.is_sent {
            // Nobody reads it any more.
            return data.len();
        }
        let taken = data.len().min(room.saturating_sub(HEADER));
        if taken == 0 && !data.is_empty() {
            if !std::mem::replace(&mut stream.waits, true) {
                self.waiting.push_back(key);
            }
            return 0;
        }
        let id = key.slot + 1;
        for piece in data[..taken].chunks(PIECE) {
            record::write(kind::STDIN, id, piece, output);
        }
        if end && taken == data.len() {
            stream.is_sent = true;
            record::write_end(kind::STDIN, id, output);
        }
        taken
    }

    /// The next stream that waited for room and has it now.
    pub fn next_writable(&mut self) -> Option<StreamKey> {
        if self.pending() >= OUTPUT {
            return None;
        }
        while let Some(key) = self.waiting.pop_front() {
            if let Some(stream) = find(&mut self.streams, key) {
                stream.waits = false;
                return Some(key);
            }
        }
        None
    }

    /// The caller has used so many bytes of the stream's body.
    pub fn consume(&mut self, key: StreamKey, count: usize) {
        if let Some(stream) = find(&mut self.streams, key) {
            let was_choked = stream.held >= HELD;
            stream.held = stream.held.saturating_sub(count);
            self.choked -= usize::from(was_choked && stream.held < HELD);
        }
    }

    /// The caller forgets the stream. One that is not over is aborted; its place is free once the
    /// application has ended it.
    pub fn release(&mut self, key: StreamKey) {
        let Some(stream) = find(&mut self.streams, key) else { return };
        self.choked -= usize::from(stream.held >= HELD);
        stream.held = 0;
        if stream.is_ended {
            self.free_place(key.slot);
            return;
        }
        stream.is_released = true;
        self.orphans += 1;
        if !matches!(stream.body, BodyProgress::Over) || !stream.is_sent {
            stream.is_sent = true;
            self.has_aborted = true;
            record::write_end(kind::ABORT_REQUEST, key.slot + 1, self.output.end());
        }
    }

    fn free_place(&mut self, slot: u16) {
        if let Some(stream) = self.streams.get_mut(usize::from(slot)).and_then(Option::take) {
            self.live -= 1;
            self.orphans -= usize::from(stream.is_released);
        }
    }

    /// Whether reading must stop: somebody does not take what there is for them.
    #[must_use]
    pub fn must_drain(&self) -> bool {
        self.choked > 0
    }

    /// The head of the last event; to be swapped with the caller's own.
    pub fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    /// The message of the last event.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// What is to be sent now.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        let waiting = self.output.waiting();
        &waiting[..self.question.unwrap_or(waiting.len())]
    }

    /// The first `count` bytes of the output are sent. Streams may have become writable.
    pub fn sent(&mut self, count: usize) {
        self.output.advance(count, PIECE);
        if let Some(left) = &mut self.question {
            *left -= count;
        }
    }

    /// Bytes that wait in the output, those included that must.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.output.len()
    }

    /// Gives back memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.head.clear();
        self.head.shrink(0);
        (self.message, self.spare) = (Vec::new(), None);
        self.output.shrink();
        self.waiting.shrink_to_fit();
    }

    /// Takes in what the application says of itself.
    fn settle(&mut self, pairs: Pairs<'_>) {
        for (name, value) in pairs {
            let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
            match (name, number) {
                (MAX_REQS, Some(most @ 1..)) => {
                    self.config.most = u16::try_from(most).unwrap_or(u16::MAX - 1);
                }
                (MPXS_CONNS, Some(number)) => self.config.multiplexes = number == 1,
                _ => {}
            }
        }
        self.question = None;
    }
}

/// The stream of a key, unless the caller has forgotten it.
fn find(streams: &mut [Option<RequestStream>], key: StreamKey) -> Option<&mut RequestStream> {
    let stream = streams.get_mut(key.index())?.as_mut()?;
    (stream.number == key.number && !stream.is_released).then_some(stream)
}
