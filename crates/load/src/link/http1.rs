//! An HTTP/1.1 connection: one request at a time.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{BodyLength, ChunkDecoder, ChunkEvent, Head, ParseOptions, ParseStatus};
use net::Stream;

use super::{BODY, Ended, LinkEnd};
use crate::environment::{Environment, Job};
use crate::options::HttpVersion;
use crate::tally::Failure;
use crate::target::{HEAD_MAX, LoadTarget, PreparedRequest};

/// The number of bytes that are read at once.
pub(super) const READ: usize = 64 * 1024;

thread_local! {
    /// The bytes of the current read, which are processed at once.
    pub(super) static INPUT: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into_boxed_slice());
    static OPTIONS: ParseOptions =
        ParseOptions { max_bytes: HEAD_MAX, max_fields: 200, ..ParseOptions::default() };
}

/// A connection.
pub(super) struct Http1Link {
    target: Arc<LoadTarget>,
    stream: Stream,
    /// The request in flight, and the number of its bytes that were sent.
    job: Option<Job>,
    sent: u64,
    /// The parser's state, kept for its memory.
    head: Head,
    /// The received part of a head.
    partial: Vec<u8>,
    response: ResponsePart,
    /// Whether the connection ends after the response.
    closes: bool,
    begun: u64,
}

/// The next part of the response.
enum ResponsePart {
    Head,
    Bytes(u64),
    Chunks(ChunkDecoder),
    UntilClose,
}

impl Http1Link {
    pub(super) fn new(target: &Arc<LoadTarget>, stream: Stream) -> Box<Self> {
        Box::new(Self {
            target: target.clone(),
            stream,
            job: None,
            sent: 0,
            head: Head::new(),
            partial: Vec::new(),
            response: ResponsePart::Head,
            closes: false,
            begun: 0,
        })
    }

    pub(super) fn has_room(&self) -> bool {
        self.job.is_none() && self.begun < self.target.per_connection
    }

    /// Whether the last request of the connection is over.
    pub(super) fn is_finished(&self) -> bool {
        self.job.is_none() && self.begun >= self.target.per_connection
    }

    pub(super) fn job(&self) -> Option<Job> {
        self.job
    }

    pub(super) fn begin(&mut self, job: Job) {
        self.begun += 1;
        self.sent = 0;
        self.response = ResponsePart::Head;
        self.job = Some(job);
    }

    /// Sends the rest of the request.
    pub(super) fn flush(&mut self, context: &mut Context<'_>, env: &Environment) -> Result<(), LinkEnd> {
        let Some(job) = &mut self.job else { return Ok(()) };
        let request = &env.shared.targets.requests[job.request as usize];
        let head = request.bytes.len() as u64;
        while self.sent < head + request.body {
            let first = request.bytes.get(self.sent as usize..).unwrap_or_default();
            let left = (head + request.body - self.sent.max(head)).min(BODY.len() as u64);
            match self.stream.poll_write_both(context, first, &BODY[..left as usize], false) {
                Poll::Ready(Ok(count)) => {
                    self.sent += count as u64;
                    if self.sent > head {
                        job.touched = env.now();
                    }
                }
                Poll::Ready(Err(_)) => {
                    // The server may have answered before it closed the connection.
                    self.sent = u64::MAX;
                    self.closes = true;
                }
                Poll::Pending => return Ok(()),
            }
        }
        // Reads send the rest.
        let _ = self.stream.poll_flush(context);
        Ok(())
    }

    /// Reads once. Returns whether anything was received.
    pub(super) fn receive(
        &mut self,
        context: &mut Context<'_>,
        env: &Environment,
        ended: &mut Ended,
    ) -> Result<bool, LinkEnd> {
        if self.job.is_none() {
            // Data or the end of an idle connection.
            return match self.stream.poll_idle(context) {
                Poll::Pending => Ok(false),
                Poll::Ready(_) => Err(LinkEnd::Orderly),
            };
        }
        INPUT.with_borrow_mut(|input| match self.stream.poll_read(context, input) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(_)) => Err(LinkEnd::Failed(Failure::Closed)),
            Poll::Ready(Ok(count)) => {
                env.tick();
                if count == 0 {
                    self.ended(env, ended)?;
                } else {
                    env.tally().bytes.add(count as u64);
                    self.take(&input[..count], env, ended)?;
                }
                Ok(true)
            }
        })
    }

    /// Handles the end of the stream during a response.
    fn ended(&mut self, env: &Environment, ended: &mut Ended) -> Result<(), LinkEnd> {
        if matches!(self.response, ResponsePart::UntilClose) {
            self.closes = true;
            return self.complete(env, ended);
        }
        Err(LinkEnd::Failed(Failure::Closed))
    }

    /// Processes received bytes.
    fn take(&mut self, bytes: &[u8], env: &Environment, ended: &mut Ended) -> Result<(), LinkEnd> {
        if let Some(job) = &mut self.job {
            env.progress(job);
        }
        let mut partial = std::mem::take(&mut self.partial);
        let taken = if partial.is_empty() {
            self.parse(bytes, env, ended)
        } else {
            partial.extend_from_slice(bytes);
            self.parse(&partial, env, ended)
        };
        if let Ok(rest) = taken
            && self.job.is_some()
        {
            // At most one head, which the parser limits.
            match partial.is_empty() {
                true => partial.extend_from_slice(&bytes[bytes.len() - rest..]),
                false => drop(partial.drain(..partial.len() - rest)),
            }
        } else {
            partial.clear();
        }
        self.partial = partial;
        taken.map(drop)
    }

    /// Processes bytes; returns how many of them belong to an incomplete head.
    fn parse(&mut self, bytes: &[u8], env: &Environment, ended: &mut Ended) -> Result<usize, LinkEnd> {
        let mut rest = bytes;
        let broken = LinkEnd::Failed(Failure::Protocol);
        loop {
            match &mut self.response {
                ResponsePart::Head => {
                    let parsed = OPTIONS.with(|options| http::parse_response(rest, &mut self.head, options));
                    match parsed.map_err(|_| broken)? {
                        ParseStatus::Partial => return Ok(rest.len()),
                        ParseStatus::Complete { len } => rest = &rest[len..],
                    }
                    if (100..200).contains(&self.head.status()) && self.head.status() != 101 {
                        continue;
                    }
                    self.response = self.body(env);
                }
                ResponsePart::Bytes(left) => {
                    let count = (*left).min(rest.len() as u64);
                    *left -= count;
                    rest = &rest[count as usize..];
                    if *left > 0 {
                        return Ok(0);
                    }
                    self.complete(env, ended)?;
                    return if rest.is_empty() { Ok(0) } else { Err(broken) };
                }
                ResponsePart::Chunks(decoder) => match decoder.decode(rest, 0).map_err(|_| broken)? {
                    ChunkEvent::Data { range } => rest = &rest[range.end..],
                    ChunkEvent::More => return Ok(0),
                    ChunkEvent::Done { consumed } => {
                        rest = &rest[consumed..];
                        self.response = ResponsePart::Bytes(0);
                    }
                },
                ResponsePart::UntilClose => return Ok(0),
            }
        }
    }

    /// Returns how the body of the response ends.
    fn body(&mut self, env: &Environment) -> ResponsePart {
        self.closes |= !self.head.keep_alive();
        match self.head.response_body(self.request(env).method) {
            BodyLength::None => ResponsePart::Bytes(0),
            BodyLength::Length(length) => ResponsePart::Bytes(length),
            BodyLength::Chunked => ResponsePart::Chunks(ChunkDecoder::new()),
            BodyLength::UntilClose => ResponsePart::UntilClose,
        }
    }

    fn request<'a>(&self, env: &'a Environment) -> &'a PreparedRequest {
        &env.shared.targets.requests[self.job.map_or(0, |job| job.request as usize)]
    }

    /// Counts the response, and closes the connection if it cannot be used again.
    fn complete(&mut self, env: &Environment, ended: &mut Ended) -> Result<(), LinkEnd> {
        let request = self.request(env);
        let is_sent = self.sent >= request.bytes.len() as u64 + request.body;
        let Some(job) = self.job.take() else { return Ok(()) };
        env.answered(HttpVersion::H1, self.head.status(), &job);
        ended.count += 1;
        if self.is_finished() {
            // Without a reset, each connection would block its port for a minute.
            self.stream.reset_on_close();
        }
        if self.closes || !is_sent { Err(LinkEnd::Orderly) } else { Ok(()) }
    }
}
