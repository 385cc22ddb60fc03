//! One request and its response on a dedicated HTTP/2 connection.
//!
//! The engine is the crate `h2`. The bytes are transferred by the check's [`crate::link::CheckLink`] and by
//! [`crate::answer::CheckAnswer`], which stores and interprets the received bytes.

use std::io::IoSlice;
use std::sync::Arc;

use fields::Scheme;
use h2::{Config, Connection, Event, Role, StreamKey};

use crate::check_env::CheckEnv;
use crate::request::CheckMessage;

/// The scheme of requests without one in their target, as for client requests.
const SCHEME: Scheme = Scheme::Https;

/// The progress of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerProgress {
    /// No head has arrived.
    Nothing,
    /// The body is arriving.
    Head,
    /// The response is complete, or will not get any longer.
    Whole,
    /// The response will not arrive.
    Broken,
}

impl AnswerProgress {
    /// The connection has ended. A truncated body can still be inspected.
    pub(crate) fn cut(&mut self) {
        *self = match self {
            Self::Nothing | Self::Broken => Self::Broken,
            Self::Head | Self::Whole => Self::Whole,
        };
    }
}

/// The connection with its only stream.
pub(crate) struct MultiplexedProbe {
    engine: Connection<Vec<u8>>,
    /// `None` if the stream could not be opened.
    key: Option<StreamKey>,
    /// The rest of the request's body.
    body: Vec<u8>,
    progress: AnswerProgress,
}

impl MultiplexedProbe {
    /// Starts a connection with the preface and the request in its output.
    pub(crate) fn begin(config: &Arc<Config>, message: &CheckMessage<'_>) -> Self {
        let mut engine = Connection::new(Role::Client, config);
        let key = engine.open(&message.head(), SCHEME, message.body.is_empty()).ok();
        let progress = if key.is_some() { AnswerProgress::Nothing } else { AnswerProgress::Broken };
        let mut exchange = Self { engine, key, body: message.body.clone(), progress };
        exchange.send();
        exchange
    }

    pub(crate) fn progress(&self) -> AnswerProgress {
        self.progress
    }

    /// Sends as much of the body as possible at this time.
    fn send(&mut self) {
        if let Some(key) = self.key
            && !self.body.is_empty()
        {
            let sent = self.engine.send_data(key, &self.body, true);
            self.body.drain(..sent);
        }
    }

    /// Returns the output.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            let mut slices = [IoSlice::new(&[]); 2];
            let count = self.engine.output(&mut slices);
            let length: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            if length == 0 {
                return out;
            }
            slices[..count].iter().for_each(|slice| out.extend_from_slice(slice));
            self.engine.sent(length);
            // The window has room for more of the body.
            while self.engine.next_writable().is_some() {
                self.send();
            }
        }
    }

    /// Decodes `input`: stores the head in the transaction, and up to `limit` bytes of the body in the received data. Returns how
    /// much was consumed. The rest must be passed again, together with the data that follows it.
    pub(crate) fn receive(&mut self, input: &[u8], facts: &mut CheckEnv, limit: usize) -> usize {
        let mut at = 0;
        self.engine.begin_turn(false);
        while !matches!(self.progress, AnswerProgress::Whole | AnswerProgress::Broken) {
            let Ok((taken, event)) = self.engine.receive(&input[at..]) else {
                self.progress.cut();
                break;
            };
            let from = at;
            at += taken;
            match event {
                Some(event) => self.happen(event, &input[from..], facts, limit),
                // The limit here is flow control, not the number of frames.
                None if taken > 0 && self.engine.is_turn_over() => self.engine.begin_turn(false),
                None => break,
            }
        }
        while self.engine.next_writable().is_some() {
            self.send();
        }
        at
    }

    /// `input` contains the event's ranges.
    fn happen(&mut self, event: Event, input: &[u8], facts: &mut CheckEnv, limit: usize) {
        match event {
            Event::Head { end, .. } => {
                let head = self.engine.head_mut();
                if head.status() < 200 {
                    return;
                }
                // HTTP/2 has no reason phrase.
                head.set_status(head.status(), Some(b""));
                std::mem::swap(&mut facts.transaction.response, head);
                (facts.transaction.has_response, facts.transaction.is_http) = (true, true);
                self.progress = if end { AnswerProgress::Whole } else { AnswerProgress::Head };
            }
            Event::Data { key, range, end } => {
                let payload = input.get(range).unwrap_or_default();
                facts.keep(payload, limit);
                self.engine.consume(key, payload.len());
                if end {
                    self.progress = AnswerProgress::Whole;
                }
            }
            Event::Trailers { .. } => {
                std::mem::swap(&mut facts.trailers, self.engine.head_mut());
                self.progress = AnswerProgress::Whole;
            }
            Event::End { .. } => self.progress = AnswerProgress::Whole,
            Event::Reset { .. } => self.progress.cut(),
            Event::Goaway { .. } | Event::Refused { .. } | Event::Settings | Event::Pong => {}
        }
    }
}
