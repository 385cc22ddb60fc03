//! One request and its response on a dedicated FastCGI connection.
//!
//! The engine is the crate `fcgi`. The check's [`crate::link::CheckLink`] and [`crate::answer::CheckAnswer`] transfer the bytes.
//! The settings of the application's section apply, but not its rules, which are for client requests.

use std::net::SocketAddr;

use fcgi::{Config, Connection, Event, FcgiRequest, Parameters, StreamKey};
use http::{Name, ParseOptions};
use plan::fcgi::{App, SOFTWARE};

use crate::check_env::CheckEnv;
use crate::multiplexed::AnswerProgress;
use crate::request::CheckMessage;

/// The connection with its only request.
pub(crate) struct FastcgiProbe {
    engine: Connection,
    key: StreamKey,
    /// The rest of the request's body.
    body: Vec<u8>,
    progress: AnswerProgress,
}

impl FastcgiProbe {
    /// Starts a connection between `ends` with the request in its output. `None` if the request cannot be expressed: its target has
    /// no script, or its parameters are too long.
    pub(crate) fn begin(
        app: &App,
        message: &CheckMessage<'_>,
        ends: Option<(SocketAddr, SocketAddr)>,
        limit: usize,
    ) -> Option<Self> {
        let mut engine = Connection::new(Config {
            // No further requests follow.
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

    /// Sends as much of the body as possible at this time.
    fn send(&mut self) {
        let sent = self.engine.send_data(self.key, &self.body, true);
        self.body.drain(..sent);
    }

    /// Returns the output.
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

    /// See [`crate::multiplexed::MultiplexedProbe::receive`].
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

    /// `input` contains the event's ranges.
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

/// Starts the request, if it can be expressed.
fn open(
    engine: &mut Connection,
    app: &App,
    message: &CheckMessage<'_>,
    ends: Option<(SocketAddr, SocketAddr)>,
    limit: usize,
) -> Option<StreamKey> {
    let mut head = message.head();
    if head.get(&Name::new(b"connection")).is_none() {
        // This is the default in HTTP/1.0, but applications are told explicitly.
        head.append(b"connection", b"close");
    }
    let target = head.plain_target();
    let script = app.script(target)?;
    let request = FcgiRequest {
        head: &head,
        target,
        docroot: &app.docroot,
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
