//! One connection of a user to a server, whatever the protocol.
//!
//! A turn has three steps: [`UserConnection::receive`] processes received bytes, [`UserConnection::begin`] starts requests while
//! there is room, and [`UserConnection::flush`] sends everything at once. A connection is opened when a request needs it.

mod hq;
mod http1;
mod http2;
mod http3;
mod open;
mod qmux;
mod requests;
mod streams;
mod transport;

use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use crate::clock::{Nanos, nanos};
use crate::environment::{Environment, Job};
use crate::options::HttpVersion;
use crate::tally::Failure;
use crate::target::LoadTarget;
use hq::HqLink;
use http1::Http1Link;
use http2::Http2Link;
use http3::Http3Link;
use open::Opening;
use qmux::QmuxLink;
use transport::QuicLink;

/// The bytes of request bodies, which would take 64 KiB of the program as a constant.
pub(crate) static BODY: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![b'w'; 64 * 1024].into());

/// Why a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkEnd {
    /// It was closed in an orderly way. Requests in flight were not answered.
    Orderly,
    /// It failed.
    Failed(Failure),
}

/// The requests that have ended in a turn.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// The number of requests that are over.
    pub(crate) count: u32,
    /// Requests to send again on another connection.
    pub(crate) again: Vec<Job>,
    /// Whether a connection could not be opened.
    pub(crate) failed_to_open: bool,
    /// Whether a connection was opened.
    pub(crate) opened: bool,
}

/// A connection, or the place for one.
pub(crate) struct UserConnection {
    target: Arc<LoadTarget>,
    state: LinkState,
    /// When a connection without further requests is to be closed (`--hold`).
    held_until: Option<Nanos>,
}

enum LinkState {
    /// Nothing is connected.
    Absent,
    /// A TCP connection is being opened for a request.
    Opening {
        opening: Opening,
        job: Job,
        deadline: Nanos,
    },
    Http1(Box<Http1Link>),
    Http2(Box<Http2Link>),
    Http3(Box<Http3Link<QuicLink>>),
    Qmux(Box<Http3Link<QmuxLink>>),
    Hq(Box<HqLink>),
}

impl UserConnection {
    /// A place for a connection to `target`.
    pub(crate) fn new(target: &Arc<LoadTarget>) -> Self {
        Self { target: target.clone(), state: LinkState::Absent, held_until: None }
    }

    /// Whether another request may begin.
    pub(crate) fn has_room(&self) -> bool {
        match &self.state {
            LinkState::Absent => true,
            LinkState::Opening { .. } => false,
            LinkState::Http1(link) => link.has_room(),
            LinkState::Http2(link) => link.has_room(),
            LinkState::Http3(link) => link.has_room(),
            LinkState::Qmux(link) => link.has_room(),
            LinkState::Hq(link) => link.has_room(),
        }
    }

    /// Begins a request. Requires [`has_room`](Self::has_room).
    pub(crate) fn begin(&mut self, env: &Environment, mut job: Job, ended: &mut Ended) {
        job.touched = env.now();
        job.is_first = false;
        match &mut self.state {
            LinkState::Absent => {
                job.is_first = true;
                self.open(env, job, ended);
            }
            LinkState::Opening { .. } => {
                debug_assert!(false, "a connection that is being opened has no room")
            }
            LinkState::Http1(link) => link.begin(job),
            LinkState::Http2(link) => link.begin(env, job),
            LinkState::Http3(link) => link.begin(env, job),
            LinkState::Qmux(link) => link.begin(env, job),
            LinkState::Hq(link) => link.begin(env, job),
        }
    }

    fn open(&mut self, env: &Environment, job: Job, ended: &mut Ended) {
        env.tally().connections.add(1);
        env.tally().open.add(1);
        if env.shared.options.traces {
            env.trace(format_args!("connecting to {}", self.target.address));
        }
        if let Some(settings) = &self.target.quic {
            let target = &self.target;
            let opened = match target.version {
                HttpVersion::Hq => HqLink::connect(target, env, job).map(LinkState::Hq),
                _ => QuicLink::connect(target, settings, env)
                    .map(|transport| LinkState::Http3(Http3Link::new(target, transport, job))),
            };
            match opened {
                Ok(state) => self.state = state,
                Err(failure) => {
                    self.closed(env);
                    fail(env, failure, &job, ended);
                    ended.failed_to_open = true;
                }
            }
            return;
        }
        let deadline = env.now().saturating_add(nanos(self.target.connect_timeout));
        self.state = LinkState::Opening { opening: open::open(self.target.clone()), job, deadline };
    }

    fn closed(&mut self, env: &Environment) {
        env.tally().open.decrement();
        self.state = LinkState::Absent;
        self.held_until = None;
    }

    /// Reads, and processes the received bytes. Returns whether there were any.
    pub(crate) fn receive(
        &mut self,
        context: &mut Context<'_>,
        env: &Environment,
        ended: &mut Ended,
    ) -> bool {
        let received = match &mut self.state {
            LinkState::Absent => return false,
            LinkState::Opening { .. } => return self.continue_opening(context, env, ended),
            LinkState::Http1(link) => link.receive(context, env, ended),
            LinkState::Http2(link) => link.receive(context, env, ended),
            LinkState::Http3(link) => link.receive(context, env, ended),
            LinkState::Qmux(link) => link.receive(context, env, ended),
            LinkState::Hq(link) => link.receive(context, env, ended),
        };
        match received {
            Ok(_) if self.is_finished() && self.release(env) => true,
            Ok(progress) => progress,
            Err(end) => {
                self.end(env, end, ended);
                true
            }
        }
    }

    fn continue_opening(&mut self, context: &mut Context<'_>, env: &Environment, ended: &mut Ended) -> bool {
        let LinkState::Opening { opening, job, deadline } = &mut self.state else { return false };
        let opened = match opening.as_mut().poll(context) {
            Poll::Pending => return false,
            Poll::Ready(opened) => opened,
        };
        env.tick();
        let (mut job, deadline) = (*job, *deadline);
        job.touched = env.now();
        match opened {
            Ok(stream) => {
                // With QMux, the handshake follows.
                ended.opened = self.target.qmux.is_none();
                self.state = match self.target.version {
                    HttpVersion::H3 if let Some(settings) = &self.target.qmux => {
                        let transport = QmuxLink::new(stream, settings, env, deadline);
                        LinkState::Qmux(Http3Link::new(&self.target, transport, job))
                    }
                    HttpVersion::H2 => {
                        let mut link = Http2Link::new(&self.target, stream);
                        link.begin(env, job);
                        LinkState::Http2(link)
                    }
                    _ => {
                        let mut link = Http1Link::new(&self.target, stream);
                        link.begin(job);
                        LinkState::Http1(link)
                    }
                };
            }
            Err(error) => {
                if env.shared.options.traces {
                    env.trace(format_args!("cannot connect to {}: {}", self.target.address, error.text));
                }
                self.closed(env);
                fail(env, error.failure, &job, ended);
                ended.failed_to_open = true;
            }
        }
        true
    }

    /// Sends the output. Returns whether the connection has ended.
    pub(crate) fn flush(&mut self, context: &mut Context<'_>, env: &Environment, ended: &mut Ended) -> bool {
        let flushed = match &mut self.state {
            LinkState::Absent | LinkState::Opening { .. } => return false,
            LinkState::Http1(link) => link.flush(context, env),
            LinkState::Http2(link) => link.flush(context, env),
            LinkState::Http3(link) => link.flush(context, env, ended),
            LinkState::Qmux(link) => link.flush(context, env, ended),
            LinkState::Hq(link) => link.flush(context, env),
        };
        if let Err(end) = flushed {
            self.end(env, end, ended);
            return true;
        }
        false
    }

    /// Closes the connection, and decides about its requests.
    fn end(&mut self, env: &Environment, end: LinkEnd, ended: &mut Ended) {
        let mut jobs = Vec::new();
        match &mut self.state {
            LinkState::Absent => return,
            LinkState::Opening { job, .. } => jobs.push(*job),
            LinkState::Http1(link) => jobs.extend(link.job()),
            LinkState::Http2(link) => jobs.extend(link.jobs()),
            LinkState::Http3(link) => {
                ended.failed_to_open |= !link.is_connected();
                jobs.extend(link.jobs());
                link.close();
            }
            LinkState::Qmux(link) => {
                ended.failed_to_open |= !link.is_connected();
                jobs.extend(link.jobs());
                link.close();
            }
            LinkState::Hq(link) => {
                ended.failed_to_open |= !link.is_connected();
                jobs.extend(link.jobs());
                link.close();
            }
        }
        self.closed(env);
        let failure = match end {
            LinkEnd::Orderly => Failure::Closed,
            LinkEnd::Failed(failure) => failure,
        };
        if env.shared.options.traces {
            env.trace(format_args!(
                "connection to {} ended with {} requests",
                self.target.address,
                jobs.len()
            ));
        }
        for job in jobs {
            // A server may close an idle connection at any time, also when a request is on its way.
            let is_race = failure == Failure::Closed && !job.is_first && job.first_byte == 0;
            let request = &env.shared.targets.requests[job.request as usize];
            if is_race && !job.is_repeated && request.method.is_idempotent() {
                ended.again.push(Job { is_repeated: true, ..job });
            } else {
                fail(env, failure, &job, ended);
            }
        }
    }

    /// Ends requests without progress since `since`. Returns when the oldest of the others was touched.
    pub(crate) fn expire(&mut self, env: &Environment, since: Nanos, ended: &mut Ended) -> Option<Nanos> {
        let oldest = match &mut self.state {
            LinkState::Absent => None,
            // The time limit for connections applies instead.
            LinkState::Opening { .. } => None,
            LinkState::Http1(link) => link.job().map(|job| job.touched),
            LinkState::Http2(link) => link.expire(env, since, ended),
            LinkState::Http3(link) => link.expire(env, since, ended),
            LinkState::Qmux(link) => link.expire(env, since, ended),
            LinkState::Hq(link) => link.expire(env, since, ended),
        };
        if self.deadline().is_some_and(|deadline| env.now() >= deadline) {
            ended.failed_to_open = true;
            self.end(env, LinkEnd::Failed(Failure::Connect), ended);
            return None;
        }
        match oldest {
            Some(touched) if touched <= since => {
                self.end(env, LinkEnd::Failed(Failure::Timeout), ended);
                None
            }
            other => other,
        }
    }

    /// When a connection that is being opened times out.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        match &self.state {
            LinkState::Opening { deadline, .. } => Some(*deadline),
            LinkState::Http3(link) => link.deadline(),
            LinkState::Qmux(link) => link.deadline(),
            LinkState::Hq(link) => link.deadline(),
            _ => None,
        }
    }

    /// When the user must look at the connection again: to give up opening it, or because it was held for long enough.
    pub(crate) fn wakes_at(&self) -> Option<Nanos> {
        self.held_until.or_else(|| self.deadline())
    }

    /// Whether all requests of `-r` are over.
    fn is_finished(&self) -> bool {
        match &self.state {
            LinkState::Absent | LinkState::Opening { .. } => false,
            LinkState::Http1(link) => link.is_finished(),
            LinkState::Http2(link) => link.is_finished(),
            LinkState::Http3(link) => link.is_finished(),
            LinkState::Qmux(link) => link.is_finished(),
            LinkState::Hq(link) => link.is_finished(),
        }
    }

    /// Closes a connection that is not used again, once it was held for the time of `--hold`. Returns whether it is closed.
    pub(crate) fn release(&mut self, env: &Environment) -> bool {
        if matches!(self.state, LinkState::Absent) {
            return true;
        }
        let until =
            self.held_until.unwrap_or_else(|| env.now().saturating_add(nanos(env.shared.options.hold)));
        if env.now() < until && !env.shared.is_released() {
            self.held_until = Some(until);
            return false;
        }
        self.end(env, LinkEnd::Orderly, &mut Ended::default());
        true
    }

    /// Gives up all requests.
    pub(crate) fn abort(&mut self, env: &Environment, ended: &mut Ended) {
        self.end(env, LinkEnd::Failed(Failure::Timeout), ended);
    }
}

fn fail(env: &Environment, failure: Failure, job: &Job, ended: &mut Ended) {
    env.failed(failure, job);
    ended.count += 1;
}
