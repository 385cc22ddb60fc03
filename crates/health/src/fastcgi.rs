//! One request and its answer on a connection of FastCGI, which serves nothing else.
//!
//! The engine is crate `fcgi`; bytes come from and go to the check's [`crate::link::CheckLink`], by way
//! of [`crate::answer::CheckAnswer`]. The settings of the application's section apply, except its rules, which are
//! for client requests.

use std::net::SocketAddr;

use fcgi::{Config, Connection, Event, FcgiRequest, Parameters, StreamKey};
use http::{Name, ParseOptions};
use plan::fcgi::{App, SOFTWARE};

use crate::check_env::CheckEnv;
use crate::multiplexed::AnswerProgress;
use crate::request::CheckMessage;

/// The connection with its one request.
pub(crate) struct FastcgiProbe {
    engine: Connection,
    key: StreamKey,
    /// What is still to be sent of the request's body.
    body: Vec<u8>,
    progress: AnswerProgress,
}

impl FastcgiProbe {
    /// A connection between `ends` whose request is in the output. `None` where the request cannot be
    /// made: its target means no script, or its parameters are too long.
    pub(crate) fn begin(
        app: &App,
        message: &CheckMessage<'_>,
        ends: Option<(SocketAddr, SocketAddr)>,
        limit: usize,
    ) -> Option<Self> {
        let mut engine = Connection::new(Config {
            // Nothing follows.
            keeps: false,
            multiplexes: false,
            most: 1,
            asks: false,
            wants_messages: false,
            head: ParseOptions { max_bytes: limit, ..ParseOptions::default() },
        });
        let key = open(&mut engine, app, message, ends, limit)?;
        let mut exchange =
            Self { engine, key, body: message.body.clone(), progress: AnswerProgress::Nothing };
        if !exchange.body.is_empty() {
            exchange.send();
        }
        Some(exchange)
    }

    pub(crate) fn progress(&self) -> AnswerProgress {
        self.progress
    }

    /// Hands over as much of the body as may be sent now.
    fn send(&mut self) {
        let sent = self.engine.send_data(self.key, &self.body, true);
        self.body.drain(..sent);
    }

    /// What is to be sent.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while !self.engine.output().is_empty() {
            let output = self.engine.output();
            out.extend_from_slice(output);
            let length = output.len();
            self.engine.sent(length);
            while self.engine.next_writable().is_some() {
                self.send();
            }
        }
        out
    }

    /// As [`crate::multiplexed::FastcgiProbe::receive`].
    pub(crate) fn receive(&mut self, input: &[u8], facts: &mut CheckEnv, limit: usize) -> usize {
        let mut at = 0;
        while !matches!(self.progress, AnswerProgress::Whole | AnswerProgress::Broken) {
            let Ok((taken, event)) = self.engine.receive(&input[at..]) else {
                self.progress.cut();
                break;
            };
            let from = at;
            at += taken;
            match event {
                Some(event) => self.happen(event, &input[from..], facts, limit),
                None => break,
            }
        }
        at
    }

    /// `input` is what the event's ranges are of.
    fn happen(&mut self, event: Event, input: &[u8], facts: &mut CheckEnv, limit: usize) {
        match event {
            Event::Head { .. } => {
                std::mem::swap(&mut facts.transaction.response, self.engine.head_mut());
                (facts.transaction.has_response, facts.transaction.is_http) = (true, true);
                self.progress = AnswerProgress::Head;
            }
            Event::Data { key, range } => {
                let payload = input.get(range).unwrap_or_default();
                facts.keep(payload, limit);
                self.engine.consume(key, payload.len());
            }
            Event::End { trailers, .. } => {
                if trailers {
                    std::mem::swap(&mut facts.trailers, self.engine.head_mut());
                }
                self.progress = AnswerProgress::Whole;
            }
            Event::Broken { .. } => self.progress.cut(),
            Event::Message => {}
        }
    }
}

/// Begins the request, if it can be made.
fn open(
    engine: &mut Connection,
    app: &App,
    message: &CheckMessage<'_>,
    ends: Option<(SocketAddr, SocketAddr)>,
    limit: usize,
) -> Option<StreamKey> {
    let mut head = message.head();
    if head.get(&Name::new(b"connection")).is_none() {
        // HTTP/1.0 need not say it; applications are told all the same.
        head.append(b"connection", b"close");
    }
    let target = head.plain_target();
    let script = app.script(target)?;
    let request = FcgiRequest {
        head: &head,
        target,
        docroot: app.docroot.as_bytes(),
        script: &script,
        client: None,
        local: ends.map(|(_, theirs)| theirs),
        is_tls: false,
        length: message.body.len() as u64,
        passed: &[b"connection"[..].into()],
        set: &[],
        software: SOFTWARE,
    };
    let mut parameters = Parameters::new(limit.min(fcgi::record::MOST));
    request.write(&mut parameters).ok()?;
    engine.open(&parameters, head.method_id(), message.body.is_empty()).ok()
}
