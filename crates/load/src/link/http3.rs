//! An HTTP/3 connection over QUIC or QMux.

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use h3::{Code, Connection as Http3, H3Event, OpenError, RequestKey, Role};
use quic::transport::StreamConnection;
use quic::{LostReason, QuicEvent};

use super::requests::{Requests, Running};
use super::streams::LinkStreams;
use super::{BODY, Ended, LinkEnd};
use crate::clock::Nanos;
use crate::environment::{Environment, Job};
use crate::options::HttpVersion;
use crate::tally::Failure;
use crate::target::LoadTarget;

/// A connection with streams under HTTP/3: QUIC or QMux.
pub(super) trait Http3Transport {
    type Connection: StreamConnection;

    /// The streams.
    fn streams(&mut self) -> &mut LinkStreams<Self::Connection>;

    fn is_connected(&self) -> bool;

    /// The handshake is complete.
    fn set_connected(&mut self);

    /// When the handshake times out, unless it is complete.
    fn deadline(&self) -> Option<Nanos>;

    /// Receives once and runs the timers that are due. Returns whether anything was received. `is_busy` is set while there are
    /// requests.
    ///
    /// # Errors
    /// The socket has failed or was closed.
    fn receive(
        &mut self,
        context: &mut Context<'_>,
        env: &Environment,
        is_busy: bool,
    ) -> Result<bool, LinkEnd>;

    /// Sends what the connection has to send, and sets its timer. Returns whether there may be events, because there is room for more
    /// data.
    ///
    /// # Errors
    /// The socket has failed.
    fn flush(&mut self, context: &mut Context<'_>, env: &Environment) -> Result<bool, LinkEnd>;

    /// Converts the end of the connection.
    fn end(&self, reason: &LostReason) -> LinkEnd;

    /// Closes the connection with an error code of HTTP/3. The server is notified once.
    fn close(&mut self, code: u64);
}

/// A connection.
pub(super) struct Http3Link<T> {
    target: Arc<LoadTarget>,
    transport: T,
    engine: Http3,
    requests: Requests<RequestKey>,
    /// A request that waits for the handshake, or until the server permits another stream.
    waiting: Option<Job>,
    begun: u64,
}

impl<T: Http3Transport> Http3Link<T> {
    /// Creates a connection for a request.
    pub(super) fn new(target: &Arc<LoadTarget>, transport: T, job: Job) -> Box<Self> {
        Box::new(Self {
            transport,
            engine: Http3::new(Role::Client, &target.h3),
            requests: Requests::new(),
            waiting: Some(job),
            begun: 0,
            target: target.clone(),
        })
    }

    pub(super) fn is_connected(&self) -> bool {
        self.transport.is_connected()
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.transport.deadline()
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.is_none()
            && self.requests.len() < self.target.streams
            && self.begun < self.target.per_connection
            && self.engine.free() > 0
    }

    /// Whether the last request of the connection is over.
    pub(super) fn is_finished(&self) -> bool {
        self.requests.len() == 0 && self.begun >= self.target.per_connection
    }

    /// Removes the requests in flight.
    pub(super) fn jobs(&mut self) -> impl Iterator<Item = Job> + '_ {
        self.requests.drain().chain(self.waiting.take())
    }

    pub(super) fn begin(&mut self, env: &Environment, job: Job) {
        let request = &env.shared.targets.requests[job.request as usize];
        let ends = request.body == 0;
        let opened = self.engine.open_request(self.transport.streams(), &request.head, request.scheme, ends);
        match opened {
            Ok(key) => {
                self.begun += 1;
                self.requests.put(key.index(), Running { key, job, status: 0, unsent: request.body });
                self.upload(key, env.now());
            }
            // When the connection ends, the request is sent on another one.
            Err(OpenError::Full | OpenError::Ending) => self.waiting = Some(job),
        }
    }

    /// Passes as much of a body to the transport as it takes.
    fn upload(&mut self, key: RequestKey, now: Nanos) {
        let Some(running) = self.requests.get(key.index(), key) else { return };
        while running.unsent > 0 && !self.engine.is_blocked(key) {
            let length = running.unsent.min(BODY.len() as u64);
            let ends = length == running.unsent;
            let data = Bytes::from_static(&BODY[..length as usize]);
            self.engine.send_bytes(self.transport.streams(), key, data, ends);
            running.unsent -= length;
            running.job.touched = now;
        }
    }

    /// Receives once. Returns whether anything was received.
    pub(super) fn receive(
        &mut self,
        context: &mut Context<'_>,
        env: &Environment,
        ended: &mut Ended,
    ) -> Result<bool, LinkEnd> {
        let received = self.transport.receive(context, env, self.requests.len() > 0)?;
        self.process(env, ended)?;
        Ok(received)
    }

    /// Processes the events of the transport.
    fn process(&mut self, env: &Environment, ended: &mut Ended) -> Result<(), LinkEnd> {
        let mut lost = None;
        while let Some(event) = self.transport.streams().connection.poll() {
            if let Some(end) = self.note_transport(&event, ended) {
                lost = Some(end);
            }
        }
        self.engine.begin_turn(false);
        loop {
            match self.engine.next(self.transport.streams()) {
                Ok(Some(event)) => self.note(event, env, ended),
                Ok(None) => break,
                Err(violation) => {
                    self.transport.close(violation.code().number());
                    return Err(LinkEnd::Failed(Failure::Protocol));
                }
            }
        }
        env.tally().bytes.add(std::mem::take(&mut self.transport.streams().received));
        while let Some(key) = self.engine.next_writable() {
            self.upload(key, env.now());
        }
        if let Some(end) = lost {
            return Err(end);
        }
        if self.is_connected()
            && self.engine.free() > 0
            && let Some(job) = self.waiting.take()
        {
            self.begin(env, job);
        }
        if self.requests.len() == 0 && self.engine.is_ending() { Err(LinkEnd::Orderly) } else { Ok(()) }
    }

    /// Passes an event of the transport to HTTP/3. Returns how the connection has ended, if it has.
    fn note_transport(&mut self, event: &QuicEvent, ended: &mut Ended) -> Option<LinkEnd> {
        match *event {
            QuicEvent::Connected => {
                self.transport.set_connected();
                ended.opened = true;
                self.engine.start(self.transport.streams());
            }
            QuicEvent::Opened(direction) => {
                while let Some(id) = self.transport.streams().connection.accept_stream(direction) {
                    self.engine.opened(id);
                }
            }
            QuicEvent::Readable(id) => self.engine.readable(id),
            QuicEvent::Writable(id) => self.engine.writable(id),
            QuicEvent::Stopped(id, code) => self.engine.stopped(id, code),
            QuicEvent::Available(_) => self.engine.available(),
            QuicEvent::Lost(ref reason) => return Some(self.transport.end(reason)),
            QuicEvent::HandshakeData | QuicEvent::Finished(_) => {}
        }
        None
    }

    fn note(&mut self, event: H3Event, env: &Environment, ended: &mut Ended) {
        match event {
            H3Event::Head { key, end, .. } => {
                let status = self.engine.head_mut().status();
                let Some(running) = self.requests.get(key.index(), key) else { return };
                env.progress(&mut running.job);
                if status >= 200 {
                    running.status = status;
                }
                if end {
                    self.complete(key, env, ended);
                }
            }
            H3Event::Data { key, bytes, end } => {
                self.engine.consume(key, bytes.len());
                if let Some(running) = self.requests.get(key.index(), key) {
                    env.progress(&mut running.job);
                }
                if end {
                    self.complete(key, env, ended);
                }
            }
            H3Event::Trailers { key } | H3Event::End { key } => self.complete(key, env, ended),
            H3Event::Reset { key, code, by } => {
                let running = self.requests.take(key.index(), key);
                self.engine.release(self.transport.streams(), key, None);
                let Some(Running { job, status, .. }) = running else { return };
                if by.is_unprocessed(code) && !job.is_repeated {
                    ended.again.push(Job { is_repeated: true, ..job });
                    return;
                }
                ended.count += 1;
                if status != 0 && code == Code::NoError {
                    // A complete response to a request that the server did not need completely.
                    env.answered(HttpVersion::H3, status, &job);
                } else {
                    env.failed(Failure::Reset, &job);
                }
            }
            H3Event::Refused { .. } | H3Event::Goaway { .. } | H3Event::Settings => {}
        }
    }

    fn complete(&mut self, key: RequestKey, env: &Environment, ended: &mut Ended) {
        let running = self.requests.take(key.index(), key);
        self.engine.release(self.transport.streams(), key, None);
        if let Some(running) = running {
            env.answered(HttpVersion::H3, running.status, &running.job);
            ended.count += 1;
        }
    }

    /// Sends the output, and continues bodies as long as there is room.
    pub(super) fn flush(
        &mut self,
        context: &mut Context<'_>,
        env: &Environment,
        ended: &mut Ended,
    ) -> Result<(), LinkEnd> {
        while self.transport.flush(context, env)? {
            self.process(env, ended)?;
        }
        Ok(())
    }

    /// Resets requests without progress since `since`. Returns when the oldest of the others was touched.
    pub(super) fn expire(&mut self, env: &Environment, since: Nanos, ended: &mut Ended) -> Option<Nanos> {
        while let Some(key) = self.requests.stalled(since) {
            let running = self.requests.take(key.index(), key);
            self.engine.release(self.transport.streams(), key, Some(Code::RequestCancelled));
            if let Some(running) = running {
                env.failed(Failure::Timeout, &running.job);
                ended.count += 1;
            }
        }
        let waiting = self.waiting.map(|job| job.touched);
        self.requests.oldest().into_iter().chain(waiting).min()
    }

    /// Closes the connection. The server is notified once.
    pub(super) fn close(&mut self) {
        self.transport.close(Code::NoError.number());
    }
}
