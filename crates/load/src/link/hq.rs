//! HTTP/0.9 over QUIC (`hq-interop`): a request line on each stream, and a body as the response.

use std::sync::Arc;
use std::task::Context;

use quic::transport::StreamConnection as _;
use quic::{QuicEvent, StreamDirection, StreamRead};

use super::http3::Http3Transport as _;
use super::requests::{Requests, Running};
use super::transport::QuicLink;
use super::{Ended, LinkEnd};
use crate::clock::Nanos;
use crate::environment::{Environment, Job};
use crate::options::HttpVersion;
use crate::tally::Failure;
use crate::target::LoadTarget;

/// The number of bytes that are read at once.
const READ: usize = 64 * 1024;

/// The code with which the connection is closed: the protocol has none.
const NO_ERROR: u64 = 0;

/// A connection.
pub(super) struct HqLink {
    target: Arc<LoadTarget>,
    quic: QuicLink,
    requests: Requests<u64>,
    /// The streams of the requests by slot.
    streams: Vec<Option<u64>>,
    /// A request that waits for the handshake, or until the server permits another stream.
    waiting: Option<Job>,
    begun: u64,
}

impl HqLink {
    /// Creates a connection for a request.
    pub(super) fn connect(
        target: &Arc<LoadTarget>,
        env: &Environment,
        job: Job,
    ) -> Result<Box<Self>, Failure> {
        let settings = target.quic.as_ref().ok_or(Failure::Connect)?;
        Ok(Box::new(Self {
            quic: QuicLink::connect(target, settings, env)?,
            requests: Requests::new(),
            streams: vec![None; target.streams],
            waiting: Some(job),
            begun: 0,
            target: target.clone(),
        }))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.quic.is_connected
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.quic.deadline()
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.is_none()
            && self.requests.len() < self.target.streams
            && self.begun < self.target.per_connection
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
        let connection = &mut self.quic.streams.connection;
        let slot = self.streams.iter().position(Option::is_none);
        let (Some(slot), Some(id)) = (slot, connection.open(StreamDirection::Both)) else {
            self.waiting = Some(job);
            return;
        };
        let request = &env.shared.targets.requests[job.request as usize];
        let line = [b"GET ", request.head.target(), b"\r\n"].concat();
        // A new stream has room for a line. If the server refuses it, an event follows.
        let _ = connection.write(id, &line);
        connection.finish(id);
        self.begun += 1;
        self.streams[slot] = Some(id);
        self.requests.put(slot, Running { key: id, job, status: 200, unsent: 0 });
    }

    /// Receives datagrams once. Returns whether anything was received.
    pub(super) fn receive(
        &mut self,
        context: &mut Context<'_>,
        env: &Environment,
        ended: &mut Ended,
    ) -> Result<bool, LinkEnd> {
        let received = self.quic.receive(context, env, true)?;
        let mut lost = None;
        while let Some(event) = self.quic.streams.connection.poll() {
            match event {
                QuicEvent::Connected => (self.quic.is_connected, ended.opened) = (true, true),
                QuicEvent::Readable(id) => self.read(id, env, ended),
                QuicEvent::Stopped(id, _) => self.finish(id, Some(Failure::Reset), env, ended),
                QuicEvent::Lost(reason) => lost = Some(self.quic.end(&reason)),
                _ => {}
            }
        }
        if let Some(end) = lost {
            return Err(end);
        }
        if self.is_connected()
            && let Some(job) = self.waiting.take()
        {
            self.begin(env, job);
        }
        Ok(received)
    }

    fn read(&mut self, id: u64, env: &Environment, ended: &mut Ended) {
        loop {
            match self.quic.streams.connection.read(id, READ) {
                StreamRead::Bytes(bytes) => {
                    env.tally().bytes.add(bytes.len() as u64);
                    let slot = self.slot(id);
                    if let Some(running) = slot.and_then(|slot| self.requests.get(slot, id)) {
                        env.progress(&mut running.job);
                    }
                }
                StreamRead::Blocked => return,
                StreamRead::Finished => return self.finish(id, None, env, ended),
                StreamRead::Reset(_) => return self.finish(id, Some(Failure::Reset), env, ended),
            }
        }
    }

    fn slot(&self, id: u64) -> Option<usize> {
        self.streams.iter().position(|stream| *stream == Some(id))
    }

    /// Ends a request.
    fn finish(&mut self, id: u64, failure: Option<Failure>, env: &Environment, ended: &mut Ended) {
        let Some(slot) = self.slot(id) else { return };
        self.streams[slot] = None;
        let Some(mut running) = self.requests.take(slot, id) else { return };
        ended.count += 1;
        match failure {
            Some(failure) => env.failed(failure, &running.job),
            None => {
                env.progress(&mut running.job);
                env.answered(HttpVersion::Hq, running.status, &running.job);
            }
        }
    }

    pub(super) fn flush(&mut self, context: &mut Context<'_>, env: &Environment) -> Result<(), LinkEnd> {
        self.quic.flush(context, env).map(drop)
    }

    /// Stops requests without progress since `since`. Returns when the oldest of the others was touched.
    pub(super) fn expire(&mut self, env: &Environment, since: Nanos, ended: &mut Ended) -> Option<Nanos> {
        while let Some(id) = self.requests.stalled(since) {
            self.quic.streams.connection.stop(id, NO_ERROR);
            self.finish(id, Some(Failure::Timeout), env, ended);
        }
        let waiting = self.waiting.map(|job| job.touched);
        self.requests.oldest().into_iter().chain(waiting).min()
    }

    /// Closes the connection. The server is notified once.
    pub(super) fn close(&mut self) {
        self.quic.close(NO_ERROR);
    }
}
