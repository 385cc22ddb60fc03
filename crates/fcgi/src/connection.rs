//! A connection to a FastCGI application, without its socket (FastCGI specification, 3 to 5).
//!
//! The caller owns the socket, the read buffer, the bodies and the clock. On each turn it reads once, calls `receive` in a loop
//! until it returns no event, sends on the streams that have data, calls `next_writable` in a loop, and sends everything in
//! `output` with one write. The `receive` module parses records; this module writes them and manages the streams.

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

/// The number of pending bytes of output from which streams must wait.
const OUTPUT: usize = 64 * 1024;
/// The maximum content of one record of a request body, which is sent in one piece.
const PIECE: usize = 16 * 1024;
/// The number of unconsumed bytes of one body from which nothing more is read.
const HELD: usize = 64 * 1024;
/// The maximum length of a message of the application; the rest is not kept.
const MESSAGE: usize = 8 * 1024;

const MAX_REQS: &[u8] = b"FCGI_MAX_REQS";
const MPXS_CONNS: &[u8] = b"FCGI_MPXS_CONNS";

/// The configured options of connections to an application (manual, 10.1.1).
#[derive(Debug, Clone)]
pub struct Config {
    /// `option keep-conn`: keep the connection open after a request.
    pub keeps: bool,
    /// `option mpxs-conns`: send several requests at a time.
    pub multiplexes: bool,
    /// `option max-reqs`: the maximum number of concurrent requests.
    pub most: u16,
    /// `option get-values`: query both limits from the application.
    pub asks: bool,
    /// Whether the application's messages (stderr) are reported.
    pub wants_messages: bool,
    /// Parser options for response heads.
    pub head: ParseOptions,
}

/// Why a request cannot be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// The application's limit of concurrent requests is reached.
    Full,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    streams: Vec<Option<RequestStream>>,
    /// The number of slots in use, and how many of these the caller has released.
    live: usize,
    orphans: usize,
    /// Whether a released request was aborted.
    has_aborted: bool,
    /// Number of bodies that have reached their limit of unconsumed bytes.
    choked: usize,
    /// Requests started so far.
    total: u32,
    reading: ReadState,
    /// The head and the message of the last event.
    head: Head,
    message: Vec<u8>,
    /// A reusable buffer for heads.
    spare: Option<Box<Gathered>>,
    output: Outgoing,
    /// How much of the output may be sent before the application has answered the query.
    question: Option<usize>,
    /// Streams that wait for room in the output.
    waiting: VecDeque<StreamKey>,
}

impl Connection {
    /// Returns a new connection; its GET_VALUES query, if there is one, is in the output.
    #[must_use]
    pub fn new(config: Config) -> Connection {
        let mut output = Outgoing::default();
        let question = config.asks.then(|| {
            let mut names = Parameters::new(usize::MAX);
            for name in [MAX_REQS, MPXS_CONNS] {
                // There is room for all of them.
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

    /// Returns how many concurrent requests the application accepts; one until it has answered the query.
    #[must_use]
    pub fn most(&self) -> usize {
        let is_one = self.question.is_some() || !self.config.multiplexes;
        if is_one { 1 } else { self.config.most.max(1).into() }
    }

    /// Returns how many more requests may be started.
    #[must_use]
    pub fn free(&self) -> usize {
        if !self.config.keeps && self.total > 0 { 0 } else { self.most().saturating_sub(self.live) }
    }

    /// Returns the number of unfinished requests, including those the caller has released.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.live
    }

    /// Returns whether the caller has released all requests.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.live == self.orphans
    }

    /// Returns whether a request was released before it was finished, so that the application may still be working on it.
    #[must_use]
    pub fn has_aborted(&self) -> bool {
        self.has_aborted
    }

    /// Starts a request with this method; with `ends` it has no body.
    ///
    /// # Errors
    /// No slot is free.
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
        // The value is at most `max-reqs`, which fits.
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

    /// Writes part of a request body and returns how many bytes were accepted. With `end`, the body is complete once all of `data`
    /// is accepted. If nothing was accepted, [`next_writable`](Self::next_writable) reports when there is room.
    pub fn send_data(&mut self, key: StreamKey, data: &[u8], end: bool) -> usize {
        let room = (OUTPUT + HEADER).saturating_sub(self.pending());
        let output = self.output.end();
        let Some(stream) = find(&mut self.streams, key) else { return data.len() };
        if stream.is_ended || stream.is_sent {
            // The application ignores the rest of the body.
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

    /// Returns the next stream that waited for room and now has it.
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

    /// Records that the caller has used `count` bytes of the stream's body.
    pub fn consume(&mut self, key: StreamKey, count: usize) {
        if let Some(stream) = find(&mut self.streams, key) {
            let was_choked = stream.held >= HELD;
            stream.held = stream.held.saturating_sub(count);
            self.choked -= usize::from(was_choked && stream.held < HELD);
        }
    }

    /// Releases a stream. If it is not finished it is aborted, and its slot becomes free when the application has ended it.
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

    /// Returns whether reading must pause because a body is not being consumed.
    #[must_use]
    pub fn must_drain(&self) -> bool {
        self.choked > 0
    }

    /// Returns the head of the last event, which the caller can swap with its own.
    pub fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    /// Returns the message of the last event.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Returns the bytes that can be sent now.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        let waiting = self.output.waiting();
        &waiting[..self.question.unwrap_or(waiting.len())]
    }

    /// Records that the first `count` bytes of the output were sent. Streams may have become writable.
    pub fn sent(&mut self, count: usize) {
        self.output.advance(count, PIECE);
        if let Some(left) = &mut self.question {
            *left -= count;
        }
    }

    /// Returns the number of bytes in the output, including those that must wait.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.output.len()
    }

    /// Frees memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.head.clear();
        self.head.shrink(0);
        (self.message, self.spare) = (Vec::new(), None);
        self.output.shrink();
        self.waiting.shrink_to_fit();
    }

    /// Applies the values that the application reported.
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

/// Returns the stream of a key unless the caller has released it.
fn find(streams: &mut [Option<RequestStream>], key: StreamKey) -> Option<&mut RequestStream> {
    let stream = streams.get_mut(key.index())?.as_mut()?;
    (stream.number == key.number && !stream.is_released).then_some(stream)
}
