//! Receives an HTTP response: the head is stored in the transaction, the decoded body in the data visible to expressions. At most
//! the buffer's size is kept of either.
//!
//! HTTP/1 is parsed by this module, HTTP/2 by [`crate::multiplexed`], FastCGI by [`crate::fastcgi`].

use http::{BodyLength, ChunkDecoder, ChunkEvent, Method, ParseOptions, ParseStatus};

use crate::check_env::CheckEnv;
use crate::multiplexed::AnswerProgress;
use crate::{fastcgi, multiplexed};

/// The parser's state.
#[derive(Debug)]
enum AnswerState {
    Head,
    Length(u64),
    Chunked(ChunkDecoder),
    UntilClose,
    /// The body of a stream.
    Stream,
    Done,
    /// The response is not HTTP, or its head is too large.
    Broken,
}

/// The only request of a connection with a framed protocol.
pub(crate) enum ProbeExchange {
    Http2(Box<multiplexed::MultiplexedProbe>),
    FastCgi(Box<fastcgi::FastcgiProbe>),
}

impl ProbeExchange {
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        match self {
            Self::Http2(exchange) => exchange.take_output(),
            Self::FastCgi(exchange) => exchange.take_output(),
        }
    }

    fn receive(&mut self, input: &[u8], facts: &mut CheckEnv, limit: usize) -> usize {
        match self {
            Self::Http2(exchange) => exchange.receive(input, facts, limit),
            Self::FastCgi(exchange) => exchange.receive(input, facts, limit),
        }
    }

    fn progress(&self) -> AnswerProgress {
        match self {
            Self::Http2(exchange) => exchange.progress(),
            Self::FastCgi(exchange) => exchange.progress(),
        }
    }
}

/// A response being received.
pub(crate) struct CheckAnswer {
    method: Method,
    state: AnswerState,
    /// Unparsed bytes.
    pub(crate) raw: Vec<u8>,
    limit: usize,
    /// The connection, if it is not HTTP/1.
    exchange: Option<ProbeExchange>,
}

impl CheckAnswer {
    /// Prepares for the response to a `method` request; `limit` is the buffer's size.
    pub(crate) fn new(method: &[u8], limit: usize) -> Self {
        let method = Method::from_bytes(method);
        Self { method, state: AnswerState::Head, raw: Vec::new(), limit, exchange: None }
    }

    /// Prepares for the response to a request in a protocol other than HTTP/1.
    pub(crate) fn of_exchange(exchange: ProbeExchange, limit: usize) -> Self {
        Self { exchange: Some(exchange), ..Self::new(b"", limit) }
    }

    /// Returns pending output of the protocol; empty for HTTP/1.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        self.exchange.as_mut().map_or_else(Vec::new, |exchange| exchange.take_output())
    }

    /// Whether the head has been received.
    pub(crate) fn has_head(&self) -> bool {
        !matches!(self.state, AnswerState::Head | AnswerState::Broken)
    }

    /// Whether the response is malformed.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.state, AnswerState::Broken)
    }

    /// Whether the response is complete, or no more of it is kept.
    pub(crate) fn is_complete(&self, facts: &CheckEnv) -> bool {
        matches!(self.state, AnswerState::Done | AnswerState::Broken) || facts.received.len() >= self.limit
    }

    /// Whether the response was received as a whole, without extra bytes, and the server keeps the connection open for requests of
    /// any client.
    pub(crate) fn leaves_open(&self, facts: &CheckEnv) -> bool {
        let head = &facts.transaction.response;
        let bound = matches!(head.status(), 101 | 401 | 407);
        let whole = matches!(self.state, AnswerState::Done) && self.raw.is_empty() && self.exchange.is_none();
        whole && head.keep_alive() && !bound
    }

    /// Parses the bytes in `raw`.
    pub(crate) fn advance(&mut self, facts: &mut CheckEnv) {
        if let Some(exchange) = &mut self.exchange {
            let taken = exchange.receive(&self.raw, facts, self.limit);
            self.raw.drain(..taken);
            self.state = match exchange.progress() {
                AnswerProgress::Nothing => AnswerState::Head,
                AnswerProgress::Head => AnswerState::Stream,
                AnswerProgress::Whole => AnswerState::Done,
                AnswerProgress::Broken => AnswerState::Broken,
            };
            return;
        }
        while matches!(self.state, AnswerState::Head) && !self.raw.is_empty() {
            if !self.head(facts) {
                break;
            }
        }
        self.body(facts);
    }

    /// Parses a head. Returns whether another may follow immediately, because this one was interim.
    fn head(&mut self, facts: &mut CheckEnv) -> bool {
        let options = ParseOptions { max_bytes: self.limit, ..ParseOptions::default() };
        let head = &mut facts.transaction.response;
        let length = match http::parse_response(&self.raw, head, &options) {
            Ok(ParseStatus::Complete { len }) => len,
            Ok(ParseStatus::Partial) if self.raw.len() < self.limit && begins_like_http(&self.raw) => {
                return false;
            }
            Ok(ParseStatus::Partial) | Err(_) => {
                self.state = AnswerState::Broken;
                return false;
            }
        };
        self.raw.drain(..length);
        if (100..200).contains(&head.status()) && head.status() != 101 {
            head.clear();
            return true;
        }
        self.state = match head.response_body(self.method) {
            BodyLength::None | BodyLength::Length(0) => AnswerState::Done,
            BodyLength::Length(length) => AnswerState::Length(length),
            BodyLength::Chunked => AnswerState::Chunked(ChunkDecoder::new()),
            BodyLength::UntilClose => AnswerState::UntilClose,
        };
        facts.transaction.has_response = true;
        facts.transaction.is_http = true;
        false
    }

    fn body(&mut self, facts: &mut CheckEnv) {
        match &mut self.state {
            AnswerState::Head | AnswerState::Stream | AnswerState::Done | AnswerState::Broken => {}
            AnswerState::Length(left) => {
                let take = self.raw.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= take as u64;
                let done = *left == 0;
                facts.keep(&self.raw[..take], self.limit);
                self.raw.drain(..take);
                if done {
                    self.state = AnswerState::Done;
                }
            }
            AnswerState::UntilClose => {
                facts.keep(&self.raw, self.limit);
                self.raw.clear();
            }
            AnswerState::Chunked(_) => self.chunks(facts),
        }
    }

    fn chunks(&mut self, facts: &mut CheckEnv) {
        let AnswerState::Chunked(decoder) = &mut self.state else { return };
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
                    break self.state = AnswerState::Done;
                }
                Err(_) => break self.state = AnswerState::Broken,
            }
        }
    }

    /// Called when the other side has closed.
    pub(crate) fn end(&mut self) {
        match self.state {
            AnswerState::UntilClose | AnswerState::Stream => self.state = AnswerState::Done,
            // A truncated body can still be inspected.
            AnswerState::Length(_) | AnswerState::Chunked(_) => self.state = AnswerState::Done,
            AnswerState::Head if !self.raw.is_empty() && self.exchange.is_none() => {
                self.state = AnswerState::Broken
            }
            AnswerState::Head | AnswerState::Done | AnswerState::Broken => {}
        }
    }
}

/// Whether the first bytes may be the beginning of a status line, possibly after an empty line.
fn begins_like_http(raw: &[u8]) -> bool {
    const START: &[u8] = b"HTTP/";
    let line = raw.trim_ascii_start();
    START.starts_with(&line[..line.len().min(START.len())])
}
