//! An HTTP/2 connection.

use std::io::IoSlice;
use std::sync::Arc;
use std::task::{Context, Poll};

use h2::{Code, Connection as Http2, Event, Role, StreamKey};
use net::Stream;

use super::http1::INPUT;
use super::requests::{Requests, Running};
use super::{BODY, Ended, LinkEnd};
use crate::clock::Nanos;
use crate::environment::{Environment, Job};
use crate::options::HttpVersion;
use crate::tally::Failure;
use crate::target::LoadTarget;

/// The parts of the output that are sent with one call.
const SLICES: usize = 16;

/// The number of bytes that the engine leaves at most unless it has to wait.
const KEPT_MAX: usize = 300;

/// A connection.
pub(super) struct Http2Link {
    target: Arc<LoadTarget>,
    stream: Stream,
    engine: Http2<&'static [u8]>,
    requests: Requests<StreamKey>,
    /// Bytes that the engine takes together with the next ones.
    kept: Vec<u8>,
    begun: u64,
}

impl Http2Link {
    pub(super) fn new(target: &Arc<LoadTarget>, stream: Stream) -> Box<Self> {
        Box::new(Self {
            target: target.clone(),
            stream,
            engine: Http2::new(Role::Client, &target.h2),
            requests: Requests::new(),
            kept: Vec::new(),
            begun: 0,
        })
    }

    pub(super) fn has_room(&self) -> bool {
        self.requests.len() < self.target.streams
            && self.begun < self.target.per_connection
            && self.engine.free() > 0
    }

    /// Whether the last request of the connection is over.
    pub(super) fn is_finished(&self) -> bool {
        self.requests.len() == 0 && self.begun >= self.target.per_connection
    }

    /// Removes the requests in flight.
    pub(super) fn jobs(&mut self) -> impl Iterator<Item = Job> + '_ {
        self.requests.drain()
    }

    pub(super) fn begin(&mut self, env: &Environment, job: Job) {
        let request = &env.shared.targets.requests[job.request as usize];
        // A connection with room has a free stream, also before the server's settings arrive.
        let Ok(key) = self.engine.open(&request.head, request.scheme, request.body == 0) else { return };
        self.begun += 1;
        self.requests.put(key.index(), Running { key, job, status: 0, unsent: request.body });
        self.upload(key, env.now());
    }

    /// Passes as much of a body to the engine as it takes.
    fn upload(&mut self, key: StreamKey, now: Nanos) {
        let Some(running) = self.requests.get(key.index(), key) else { return };
        while running.unsent > 0 {
            let length = running.unsent.min(BODY.len() as u64);
            let is_last = length == running.unsent;
            let range = 0..length as usize;
            let sent = match self.engine.send_owned(key, &BODY, range, is_last) {
                Ok(()) => length,
                Err((_, rest)) => rest.start as u64,
            };
            running.unsent -= sent;
            if sent > 0 {
                running.job.touched = now;
            }
            if sent < length {
                return;
            }
        }
    }

    /// Reads once. Returns whether anything was received.
    pub(super) fn receive(
        &mut self,
        context: &mut Context<'_>,
        env: &Environment,
        ended: &mut Ended,
    ) -> Result<bool, LinkEnd> {
        INPUT.with_borrow_mut(|input| {
            let kept = self.kept.len();
            // Frames that had to wait until the output was sent are processed before more are read.
            let count = if kept > KEPT_MAX && !self.engine.must_drain() {
                0
            } else {
                match self.stream.poll_read(context, &mut input[kept..]) {
                    Poll::Pending => return Ok(false),
                    Poll::Ready(Err(_)) => return Err(LinkEnd::Failed(Failure::Closed)),
                    Poll::Ready(Ok(0)) => return Err(LinkEnd::Orderly),
                    Poll::Ready(Ok(count)) => count,
                }
            };
            env.tick();
            env.tally().bytes.add(count as u64);
            input[..kept].copy_from_slice(&self.kept);
            self.kept.clear();
            self.engine.begin_turn(false);
            let mut rest = &input[..kept + count];
            loop {
                let (used, event) =
                    self.engine.receive(rest).map_err(|_| LinkEnd::Failed(Failure::Protocol))?;
                rest = &rest[used..];
                match event {
                    Some(event) => self.note(event, env, ended),
                    None => break,
                }
            }
            self.kept.extend_from_slice(rest);
            if self.requests.len() == 0 && self.engine.is_ending() { Err(LinkEnd::Orderly) } else { Ok(true) }
        })
    }

    fn note(&mut self, event: Event, env: &Environment, ended: &mut Ended) {
        match event {
            Event::Head { key, end, .. } => {
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
            Event::Data { key, range, end } => {
                self.engine.consume(key, range.len());
                if let Some(running) = self.requests.get(key.index(), key) {
                    env.progress(&mut running.job);
                }
                if end {
                    self.complete(key, env, ended);
                }
            }
            Event::Trailers { key } | Event::End { key } => self.complete(key, env, ended),
            Event::Reset { key, code, by } => {
                let running = self.requests.take(key.index(), key);
                self.engine.release(key);
                let Some(Running { job, status, .. }) = running else { return };
                if by.is_unprocessed(code) && !job.is_repeated {
                    ended.again.push(Job { is_repeated: true, ..job });
                    return;
                }
                ended.count += 1;
                if status != 0 && code == Code::NoError {
                    // A complete response to a request that the server did not need completely.
                    env.answered(HttpVersion::H2, status, &job);
                } else {
                    env.failed(Failure::Reset, &job);
                }
            }
            Event::Refused { .. } | Event::Goaway { .. } | Event::Settings | Event::Pong => {}
        }
    }

    fn complete(&mut self, key: StreamKey, env: &Environment, ended: &mut Ended) {
        let running = self.requests.take(key.index(), key);
        self.engine.release(key);
        if let Some(running) = running {
            env.answered(HttpVersion::H2, running.status, &running.job);
            ended.count += 1;
        }
    }

    /// Sends the output with as few calls as possible, and continues bodies as long as there is room.
    pub(super) fn flush(&mut self, context: &mut Context<'_>, env: &Environment) -> Result<(), LinkEnd> {
        loop {
            while let Some(key) = self.engine.next_writable() {
                self.upload(key, env.now());
            }
            if self.engine.pending() == 0 {
                break;
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.engine.output(&mut slices);
            match self.stream.poll_write_parts(context, &slices[..count]) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(_)) => return Err(LinkEnd::Failed(Failure::Closed)),
                Poll::Ready(Ok(sent)) => self.engine.sent(sent),
            }
        }
        let _ = self.stream.poll_flush(context);
        Ok(())
    }

    /// Resets requests without progress since `since`. Returns when the oldest of the others was touched.
    pub(super) fn expire(&mut self, env: &Environment, since: Nanos, ended: &mut Ended) -> Option<Nanos> {
        while let Some(key) = self.requests.stalled(since) {
            let running = self.requests.take(key.index(), key);
            self.engine.release(key);
            if let Some(running) = running {
                env.failed(Failure::Timeout, &running.job);
                ended.count += 1;
            }
        }
        self.requests.oldest()
    }
}
