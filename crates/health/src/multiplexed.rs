//! One request and its answer on a connection of HTTP/2, which serves nothing else.
//!
//! The engine is crate `h2`; bytes come from and go to the check's [`crate::link::CheckLink`], by way of
//! [`crate::answer::CheckAnswer`], which keeps and interprets the received bytes.

use std::io::IoSlice;
use std::sync::Arc;

use fields::Scheme;
use h2::{Config, Connection, Event, Role, StreamKey};

use crate::check_env::CheckEnv;
use crate::request::CheckMessage;

/// The scheme of requests whose target tells none, as those of the proxy's clients are sent.
const SCHEME: Scheme = Scheme::Https;

/// How far the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerProgress {
    /// No head is there.
    Nothing,
    /// The body is coming.
    Head,
    /// It is there, as far as it will ever be.
    Whole,
    /// None will come.
    Broken,
}

impl AnswerProgress {
    /// Nothing more will come. What there is of a body can still be looked at.
    pub(crate) fn cut(&mut self) {
        *self = match self {
            Self::Nothing | Self::Broken => Self::Broken,
            Self::Head | Self::Whole => Self::Whole,
        };
    }
}

/// The connection with its one stream.
pub(crate) struct MultiplexedProbe {
    engine: Connection<Vec<u8>>,
    /// `None` where the stream could not be opened.
    key: Option<StreamKey>,
    /// What is still to be sent of the request's body.
    body: Vec<u8>,
    progress: AnswerProgress,
}

impl MultiplexedProbe {
    /// A connection whose preface and request are in the output.
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

    /// Hands over as much of the body as may be sent now.
    fn send(&mut self) {
        if let Some(key) = self.key
            && !self.body.is_empty()
        {
            let sent = self.engine.send_data(key, &self.body, true);
            self.body.drain(..sent);
        }
    }

    /// What is to be sent.
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
            // There is room for more of the body.
            while self.engine.next_writable().is_some() {
                self.send();
            }
        }
    }

    /// Understands `input`: the head goes into the transaction, as much of the body as `limit` lets
    /// to what was received; how much of it was taken. The rest is to come again with what follows.
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
                // Flow control, not the number of frames, is what has to keep up.
                None if taken > 0 && self.engine.is_turn_over() => self.engine.begin_turn(false),
                None => break,
            }
        }
        while self.engine.next_writable().is_some() {
            self.send();
        }
        at
    }

    /// `input` is what the event's ranges are of.
    fn happen(&mut self, event: Event, input: &[u8], facts: &mut CheckEnv, limit: usize) {
        match event {
            Event::Head { end, .. } => {
                let head = self.engine.head_mut();
                if head.status() < 200 {
                    return;
                }
                // HTTP/2 has none.
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
