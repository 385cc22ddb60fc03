//! An answer of HTTP as it comes: the head goes into the transaction, the body, freed of its
//! coding, to what expressions see. Never more than the buffer's size of either.
//!
//! HTTP/1 is read here, HTTP/2 in [`crate::multiplexed`], FastCGI in [`crate::fastcgi`].

use http::{BodyLength, ChunkDecoder, ChunkEvent, Method, ParseOptions, Status};

use crate::facts::Facts;
use crate::multiplexed::Progress;
use crate::{fastcgi, multiplexed};

/// Where reading is.
#[derive(Debug)]
enum State {
    Head,
    Length(u64),
    Chunked(ChunkDecoder),
    UntilClose,
    /// The body of a stream.
    Stream,
    Done,
    /// It is no HTTP, or its head is too large.
    Broken,
}

/// The one request of a connection on which bytes come in frames.
pub(crate) enum Exchange {
    Http2(Box<multiplexed::Exchange>),
    FastCgi(Box<fastcgi::Exchange>),
}

impl Exchange {
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        match self {
            Self::Http2(exchange) => exchange.take_output(),
            Self::FastCgi(exchange) => exchange.take_output(),
        }
    }

    fn receive(&mut self, input: &[u8], facts: &mut Facts, limit: usize) -> usize {
        match self {
            Self::Http2(exchange) => exchange.receive(input, facts, limit),
            Self::FastCgi(exchange) => exchange.receive(input, facts, limit),
        }
    }

    fn progress(&self) -> Progress {
        match self {
            Self::Http2(exchange) => exchange.progress(),
            Self::FastCgi(exchange) => exchange.progress(),
        }
    }
}

/// An answer being received.
pub(crate) struct Answer {
    method: Method,
    state: State,
    /// Bytes not understood yet.
    pub(crate) raw: Vec<u8>,
    limit: usize,
    /// The connection, where that is not of HTTP/1.
    exchange: Option<Exchange>,
}

impl Answer {
    /// Before the first byte of the answer to a request of `method`; `limit` is the buffer's size.
    pub(crate) fn new(method: &str, limit: usize) -> Self {
        let method = Method::from_bytes(method.as_bytes());
        Self { method, state: State::Head, raw: Vec::new(), limit, exchange: None }
    }

    /// The same on a connection that has been asked in another protocol than HTTP/1.
    pub(crate) fn of_exchange(exchange: Exchange, limit: usize) -> Self {
        Self { exchange: Some(exchange), ..Self::new("", limit) }
    }

    /// What is to be sent for the answer to go on; nothing in HTTP/1.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        self.exchange.as_mut().map_or_else(Vec::new, |exchange| exchange.take_output())
    }

    /// Whether the head is there.
    pub(crate) fn has_head(&self) -> bool {
        !matches!(self.state, State::Head | State::Broken)
    }

    /// Whether it cannot be understood.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.state, State::Broken)
    }

    /// Whether nothing more of it is to come or to be kept.
    pub(crate) fn is_complete(&self, facts: &Facts) -> bool {
        matches!(self.state, State::Done | State::Broken) || facts.received.len() >= self.limit
    }

    /// Whether all of it came, and nothing else, and whoever sent it goes on listening for this
    /// proxy and for its clients alike.
    pub(crate) fn leaves_open(&self, facts: &Facts) -> bool {
        let head = &facts.transaction.response;
        let bound = matches!(head.status(), 101 | 401 | 407);
        let whole = matches!(self.state, State::Done) && self.raw.is_empty() && self.exchange.is_none();
        whole && head.keep_alive() && !bound
    }

    /// Understands what is in `raw`.
    pub(crate) fn advance(&mut self, facts: &mut Facts) {
        if let Some(exchange) = &mut self.exchange {
            let taken = exchange.receive(&self.raw, facts, self.limit);
            self.raw.drain(..taken);
            self.state = match exchange.progress() {
                Progress::Nothing => State::Head,
                Progress::Head => State::Stream,
                Progress::Whole => State::Done,
                Progress::Broken => State::Broken,
            };
            return;
        }
        while matches!(self.state, State::Head) && !self.raw.is_empty() {
            if !self.head(facts) {
                break;
            }
        }
        self.body(facts);
    }

    /// Reads a head; whether another may follow at once, because this one was interim.
    fn head(&mut self, facts: &mut Facts) -> bool {
        let options = ParseOptions { max_bytes: self.limit, ..ParseOptions::default() };
        let head = &mut facts.transaction.response;
        let length = match http::parse_response(&self.raw, head, &options) {
            Ok(Status::Complete { len }) => len,
            Ok(Status::Partial) if self.raw.len() < self.limit && begins_like_http(&self.raw) => {
                return false;
            }
            Ok(Status::Partial) | Err(_) => {
                self.state = State::Broken;
                return false;
            }
        };
        self.raw.drain(..length);
        if (100..200).contains(&head.status()) && head.status() != 101 {
            head.clear();
            return true;
        }
        self.state = match head.response_body(self.method) {
            BodyLength::None | BodyLength::Length(0) => State::Done,
            BodyLength::Length(length) => State::Length(length),
            BodyLength::Chunked => State::Chunked(ChunkDecoder::new()),
            BodyLength::UntilClose => State::UntilClose,
        };
        facts.transaction.has_response = true;
        facts.transaction.is_http = true;
        false
    }

    fn body(&mut self, facts: &mut Facts) {
        match &mut self.state {
            State::Head | State::Stream | State::Done | State::Broken => {}
            State::Length(left) => {
                let take = self.raw.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= take as u64;
                let done = *left == 0;
                facts.keep(&self.raw[..take], self.limit);
                self.raw.drain(..take);
                if done {
                    self.state = State::Done;
                }
            }
            State::UntilClose => {
                facts.keep(&self.raw, self.limit);
                self.raw.clear();
            }
            State::Chunked(_) => self.chunks(facts),
        }
    }

    fn chunks(&mut self, facts: &mut Facts) {
        let State::Chunked(decoder) = &mut self.state else { return };
        let mut at = 0;
        loop {
            match decoder.decode(&self.raw, at) {
                Ok(ChunkEvent::Data { range }) => {
                    at = range.end;
                    facts.keep(&self.raw[range], self.limit);
                }
                Ok(ChunkEvent::More) => break self.raw.clear(),
                Ok(ChunkEvent::Done { consumed }) => {
                    self.raw.drain(..consumed);
                    break self.state = State::Done;
                }
                Err(_) => break self.state = State::Broken,
            }
        }
    }

    /// The other side will send nothing more.
    pub(crate) fn end(&mut self) {
        match self.state {
            State::UntilClose | State::Stream => self.state = State::Done,
            // What there is of a body that was cut short can still be looked at.
            State::Length(_) | State::Chunked(_) => self.state = State::Done,
            State::Head if !self.raw.is_empty() && self.exchange.is_none() => self.state = State::Broken,
            State::Head | State::Done | State::Broken => {}
        }
    }
}

/// Whether the first bytes may be those of a status line, possibly behind an empty line.
fn begins_like_http(raw: &[u8]) -> bool {
    const START: &[u8] = b"HTTP/";
    let line = raw.trim_ascii_start();
    START.starts_with(&line[..line.len().min(START.len())])
}
