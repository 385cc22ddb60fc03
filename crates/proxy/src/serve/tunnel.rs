//! Forwards bytes in both directions at the same time until both have ended: TCP streams, and HTTP connections that became
//! tunnels through an upgrade or CONNECT.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::BodyLength;
use net::splice::Pipe;
use plan::Proxy;
use runtime::timer::{self, NEVER};
use sample::transaction::TimeoutSlot;
use sample::{ConnectionError, Phase, StreamEnd};

use crate::client::Client;
use crate::exchange::filters;
use crate::exchange::finish::{self, Moved};
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;
use crate::flow::{Flow, FlowError, Path, Sink};
use crate::message::{download, lua, splice};
use crate::server::Upstream;

/// The inactivity timeouts of both sides, and those of half-closed connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TunnelTimeouts {
    client: Option<Duration>,
    server: Option<Duration>,
    client_fin: Option<Duration>,
    server_fin: Option<Duration>,
    /// `option independent-streams` of the frontend and of the backend.
    independent: (bool, bool),
    /// When the client and the server last sent something, in ms of the worker's clock, if rules waited for more. The time of
    /// that wait counts as inactivity too.
    heard: (u64, u64),
}

impl TunnelTimeouts {
    /// Returns the timeouts of a TCP stream, or of a tunnel if `timeout tunnel` replaces both.
    pub(crate) fn new(client: &Client, x: &Exchange, backend: &Proxy, is_tunnel: bool) -> Self {
        let frontend = &client.frontend.timeouts;
        let own = x.timeout(TimeoutSlot::Client, frontend.client);
        let other = x.timeout(TimeoutSlot::Server, backend.timeouts.server);
        let silent = x.response_body.is_silent.then_some(Duration::ZERO);
        let tunnel = if is_tunnel { x.timeout(TimeoutSlot::Tunnel, backend.timeouts.tunnel) } else { None };
        Self {
            client: tunnel.or(own),
            server: silent.or(tunnel).or(other),
            client_fin: frontend.client_fin,
            server_fin: backend.timeouts.server_fin,
            independent: (client.frontend.options.independent_streams, backend.options.independent_streams),
            heard: (x.request_body.heard_ms, x.response_body.heard_ms),
        }
    }
}

/// The state of one direction.
struct Leg {
    /// Whether the local side towards the receiver was closed after the last byte.
    shut: bool,
    /// Whether the receiver's connection is then reset instead of closed (`option nolinger`).
    breaks: bool,
}

/// Sends the response head of an upgrade, then tunnels bytes both ways.
pub(crate) async fn upgrade(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &mut Upstream,
) -> Result<(), Stop> {
    x.phase = Phase::Data;
    x.answered = true;
    // Staged bytes and the unsent rest of the request are sent before everything else.
    let staged = std::mem::take(&mut x.upload.staged);
    x.upload.start(BodyLength::UntilClose, Path::Verbatim);
    x.upload.staged = staged;
    download::begin(client, x, upstream)?;
    let limits = TunnelTimeouts::new(client, x, backend, true);
    run(client, x, upstream, limits).await.map_err(Stop::from)
}

/// The deadlines of both sides, and when they started.
struct Clock {
    limits: TunnelTimeouts,
    client_at: u64,
    server_at: u64,
    client_from: u64,
    server_from: u64,
    /// The bytes received from each side at the last check.
    seen: (u64, u64),
}

impl Clock {
    fn new(limits: TunnelTimeouts) -> Self {
        let seen = (u64::MAX, u64::MAX);
        Self { limits, client_at: NEVER, server_at: NEVER, client_from: 0, server_from: 0, seen }
    }

    /// Restarts the deadlines after bytes moved, or after a direction has also `ended`.
    fn moved(&mut self, (up, upload): (&Leg, &Flow), (down, download): (&Leg, &Flow), ended: bool) {
        let limits = self.limits;
        let now = timer::now_ms();
        let at = |limit: Option<Duration>| limit.map_or(NEVER, |limit| now + millis(limit));
        // A side that received the end of one direction has less time to end its own direction.
        let client_limit = if down.shut { limits.client_fin.or(limits.client) } else { limits.client };
        let server_limit = if up.shut { limits.server_fin.or(limits.server) } else { limits.server };
        let received = (upload.received, download.received);
        // In an independent stream, bytes sent to a side do not count as its activity.
        let silent = |independent: bool, same: bool, blocked: bool| independent && same && !blocked;
        let same = (received.0 == self.seen.0, received.1 == self.seen.1);
        if up.shut || ended || !silent(limits.independent.0, same.0, download.is_blocked()) {
            self.client_at = if up.shut { NEVER } else { at(client_limit) };
            self.client_from = now;
        }
        if down.shut || ended || !silent(limits.independent.1, same.1, upload.is_blocked()) {
            self.server_at = if down.shut { NEVER } else { at(server_limit) };
            self.server_from = now;
        }
        // A side does not time out while it is not read because the other side is blocked.
        match (upload.is_blocked(), download.is_blocked()) {
            (true, false) => self.client_at = NEVER,
            (false, true) => self.server_at = NEVER,
            _ => {}
        }
        self.seen = received;
        let heard = std::mem::take(&mut self.limits.heard);
        // Bytes that a side gets now count as its activity too.
        let (client_active, server_active) =
            (download.moved && !limits.independent.0, upload.moved && !limits.independent.1);
        let sides = [
            (&mut self.client_at, &mut self.client_from, heard.0, client_active),
            (&mut self.server_at, &mut self.server_from, heard.1, server_active),
        ];
        for (at, from, heard, is_active) in sides {
            if heard > 0 && !is_active {
                *from = heard;
                if *at != NEVER {
                    *at -= now.saturating_sub(heard);
                }
            }
        }
    }

    /// Adjusts the deadlines when directions end without further bytes. This does not count as activity: a side that received the
    /// end gets its shorter timeout, counted from its last activity, or the remaining part of the usual one.
    fn ended(&mut self, up: bool, down: bool) {
        if up {
            let limit = self.limits.server_fin;
            self.server_at = limit.map_or(self.server_at, |limit| self.server_from + millis(limit));
            self.client_at = NEVER;
        }
        if down {
            let limit = self.limits.client_fin;
            self.client_at = limit.map_or(self.client_at, |limit| self.client_from + millis(limit));
            self.server_at = NEVER;
        }
    }

    fn arm(&self, client: &Client) {
        client.timer.set(self.client_at.min(self.server_at));
    }

    /// Returns the side that timed out, and whether both did. The direction from that side ends. The direction to it continues,
    /// unless the side does not read.
    fn expired(
        &mut self,
        (up, upload, to_server): (&mut Leg, &Flow, &mut Sink<'_>),
        (down, download, to_client): (&mut Leg, &Flow, &mut Sink<'_>),
    ) -> (Fault, bool) {
        let both = self.client_at == self.server_at;
        if self.client_at <= self.server_at {
            up.cut(to_server);
            if both || download.is_blocked() {
                down.cut(to_client);
            }
            self.ended(true, false);
            return (Fault::ClientTimeout, both);
        }
        down.cut(to_client);
        if upload.is_blocked() {
            up.cut(to_server);
        }
        self.ended(false, true);
        (Fault::ServerTimeout, both)
    }
}

/// A side that timed out.
struct Late {
    fault: Fault,
    /// Which directions had ended before the timeout.
    halves: (bool, bool),
    both: bool,
}

/// Moves bytes both ways until both directions have ended.
pub(crate) async fn run(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    limits: TunnelTimeouts,
) -> Result<(), Fault> {
    filters::install(client, x, true);
    filters::install(client, x, false);
    (x.upload.pipe, x.download.pipe) = pipes(client, x);
    let mut tunnel = Tunnel::new(x, limits);
    let outcome = poll_fn(|context| tunnel.poll(client, x, upstream, context)).await;
    tunnel.conclude(x, upstream, outcome)
}

/// Both directions, and their deadlines.
struct Tunnel {
    /// From the client to the server.
    up: Leg,
    /// From the server to the client.
    down: Leg,
    clock: Clock,
    /// The bytes from and to the client before the tunnel began.
    before: (u64, u64),
    /// Whether the deadlines were set.
    armed: bool,
    /// Whether the server ended its direction first.
    server_first: bool,
    /// The first side that missed its deadline.
    late: Option<Late>,
}

impl Tunnel {
    fn new(x: &Exchange, limits: TunnelTimeouts) -> Self {
        let breaks =
            !x.txn.is_http && x.backend.as_ref().is_some_and(|backend| backend.options.nolinger_backend);
        Self {
            up: Leg { shut: false, breaks },
            down: Leg { shut: false, breaks: false },
            clock: Clock::new(limits),
            before: (x.txn.bytes_in, x.txn.bytes_out),
            armed: false,
            server_first: false,
            late: None,
        }
    }

    /// Ready when both directions have ended, or one has failed.
    fn poll(
        &mut self,
        client: &mut Client,
        x: &mut Exchange,
        upstream: &mut Upstream,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        loop {
            let before = (self.up.shut, self.down.shut);
            if let Some(outcome) = self.pump(client, x, upstream, context) {
                return Poll::Ready(outcome);
            }
            self.note_progress(client, x, before);
            if let Poll::Ready(fault) = client.poll_killed(context) {
                return Poll::Ready(Err(fault));
            }
            ready!(client.timer.poll_expired(context));
            self.expire(client, x, upstream);
        }
    }

    /// Moves the bytes that can be moved. Returns the outcome if nothing remains to be moved or a direction failed.
    fn pump(
        &mut self,
        client: &mut Client,
        x: &mut Exchange,
        upstream: &mut Upstream,
        context: &mut Context<'_>,
    ) -> Option<Result<(), Fault>> {
        let Self { up, down, .. } = self;
        x.upload.moved = false;
        x.download.moved = false;
        let uploaded = up.poll(|| lua::pump::poll_upload(client, x, upstream, context));
        up.note(&uploaded, &mut upstream.sink());
        let downloaded = down.poll(|| lua::pump::poll_download(client, x, upstream, context));
        down.note(&downloaded, &mut client.side.sink());
        // A server that has closed its side gets a clean close, not a reset.
        up.breaks &= !down.shut || up.shut;
        if up.breaks && up.shut {
            // `option nolinger` discards bytes that the server may still send.
            down.cut(&mut client.side.sink());
            return Some(Ok(()));
        }
        match (uploaded, downloaded) {
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Some(Ok(())),
            // The server had already closed its side, so bytes that it did not accept do not matter.
            (Poll::Ready(Err(FlowError::Write(_))), _) if down.shut && x.txn.is_http => Some(Ok(())),
            (uploaded, downloaded) => {
                let blame = Blame::of(error(uploaded), error(downloaded))?;
                Some(Err(blame.note(client, x)))
            }
        }
    }

    /// Restarts the deadlines if bytes moved, or if a direction has ended since `before`. Counts these bytes.
    fn note_progress(&mut self, client: &Client, x: &mut Exchange, before: (bool, bool)) {
        let Self { up, down, clock, .. } = self;
        // When a direction ends, no bytes move, but the limits change.
        let (up_ended, down_ended) = (up.shut && !before.0, down.shut && !before.1);
        self.server_first |= down_ended && !up.shut;
        let ended = up_ended || down_ended;
        if x.upload.moved || x.download.moved || !self.armed {
            self.armed = true;
            clock.moved((up, &x.upload), (down, &x.download), ended);
            clock.arm(client);
            let moved = Moved {
                counted: &mut x.counted,
                backend: x.backend.as_ref().map(|backend| &***backend),
                server: x.txn.server.as_deref(),
                trackers: Some(&x.txn.trackers),
                answered: true,
            };
            let (received, sent) = (x.upload.received, x.download.sent);
            finish::count_moved(client, moved, self.before.0 + received, self.before.1 + sent);
        } else if ended {
            clock.ended(up_ended, down_ended);
            clock.arm(client);
        }
    }

    /// Ends the directions for which a deadline has passed.
    fn expire(&mut self, client: &mut Client, x: &Exchange, upstream: &mut Upstream) {
        let Self { up, down, clock, .. } = self;
        let halves = (up.shut, down.shut);
        let (fault, both) = clock
            .expired((up, &x.upload, &mut upstream.sink()), (down, &x.download, &mut client.side.sink()));
        clock.arm(client);
        self.late.get_or_insert(Late { fault, halves, both });
    }

    /// Counts the bytes, and records how the tunnel ended.
    fn conclude(
        self,
        x: &mut Exchange,
        upstream: &mut Upstream,
        outcome: Result<(), Fault>,
    ) -> Result<(), Fault> {
        let outcome = self.late.as_ref().map_or(outcome, |late| Err(late.fault));
        let both_late = self.late.as_ref().is_some_and(|late| late.both);
        let halves = self.late.map_or((self.up.shut, self.down.shut), |late| late.halves);
        x.txn.bytes_in += x.upload.received;
        x.txn.bytes_out += x.download.sent;
        x.txn.ending.end = ending(x.txn.is_http, outcome, halves, self.server_first, both_late);
        x.txn.ending.server = sample::ConnectionOutcome::Closed;
        // After a timeout the server's connection is closed normally.
        if !matches!(outcome, Ok(()) | Err(Fault::ClientTimeout | Fault::ServerTimeout)) {
            upstream.reset();
        }
        outcome
    }
}

/// Returns the error of a direction, if it failed.
fn error(pumped: Poll<Result<(), FlowError>>) -> Option<FlowError> {
    match pumped {
        Poll::Ready(Err(error)) => Some(error),
        Poll::Ready(Ok(())) | Poll::Pending => None,
    }
}

/// The cause of a failed tunnel.
#[derive(Debug, PartialEq, Eq)]
enum Blame {
    /// The client's connection broke.
    Client(ConnectionError),
    /// The server's connection broke.
    Server(ConnectionError),
    /// The bytes violate their coding.
    Coding,
    /// A filter failed.
    Filter,
}

impl Blame {
    /// Returns the cause, if either direction failed.
    fn of(uploaded: Option<FlowError>, downloaded: Option<FlowError>) -> Option<Self> {
        let (uploaded, downloaded) = (uploaded.map(Self::of_upload), downloaded.map(Self::of_download));
        [uploaded, downloaded].into_iter().flatten().min_by_key(Self::rank)
    }

    fn of_upload(error: FlowError) -> Self {
        match error {
            FlowError::Read(error) => Self::Client(error),
            FlowError::Write(error) => Self::Server(error),
            FlowError::Coding => Self::Coding,
            FlowError::Filter => Self::Filter,
        }
    }

    fn of_download(error: FlowError) -> Self {
        match error {
            FlowError::Read(error) => Self::Server(error),
            FlowError::Write(error) => Self::Client(error),
            FlowError::Coding => Self::Coding,
            FlowError::Filter => Self::Filter,
        }
    }

    /// If both directions fail at the same time, the cause with the lower rank is reported.
    fn rank(&self) -> u8 {
        match self {
            Self::Client(_) => 0,
            Self::Server(_) => 1,
            Self::Coding => 2,
            Self::Filter => 3,
        }
    }

    /// Records the error for the log, and returns the fault.
    fn note(self, client: &Client, x: &mut Exchange) -> Fault {
        match self {
            Self::Client(error) => {
                client.session.error.set(error);
                Fault::ClientAborted
            }
            Self::Server(error) => {
                x.txn.server_error = error;
                Fault::Truncated
            }
            Self::Coding => Fault::Truncated,
            Self::Filter => Fault::Internal,
        }
    }
}

/// Returns the events as the layers saw them (`term_events`). `halves` states which directions (towards the server, towards the
/// client) had ended before.
fn ending(
    is_http: bool,
    outcome: Result<(), Fault>,
    halves: (bool, bool),
    server_first: bool,
    both_late: bool,
) -> StreamEnd {
    match (outcome, halves) {
        (Ok(()), _) if server_first => StreamEnd::TunnelByServer,
        (Ok(()), _) => StreamEnd::TunnelByClient,
        (Err(Fault::ClientTimeout), (_, true)) => StreamEnd::HalfClientTimeout,
        (Err(Fault::ServerTimeout), (true, _)) => StreamEnd::HalfServerTimeout,
        (Err(Fault::ClientTimeout | Fault::ServerTimeout), _) if both_late => StreamEnd::TunnelTimeout,
        (Err(Fault::ClientTimeout), _) => StreamEnd::TunnelClientTimeout,
        (Err(Fault::ServerTimeout), _) => StreamEnd::TunnelServerTimeout,
        (Err(Fault::ClientAborted), _) if is_http => StreamEnd::TunnelClientReset,
        (Err(Fault::ClientAborted), _) => StreamEnd::RelayClientReset,
        (Err(Fault::Truncated), _) if is_http => StreamEnd::TunnelServerReset,
        (Err(Fault::Truncated), _) => StreamEnd::RelayServerReset,
        (Err(Fault::Killed(_)), _) => StreamEnd::Killed,
        (Err(_), _) => StreamEnd::Internal,
    }
}

fn millis(limit: Duration) -> u64 {
    limit.as_millis() as u64
}

fn pipes(client: &Client, x: &Exchange) -> (Option<Pipe>, Option<Pipe>) {
    let global = &client.worker.shared.plan.global;
    if global.no_splice {
        return (None, None);
    }
    let both = [Some(&client.frontend), x.backend.as_ref()];
    let mut options = both.iter().flatten().map(|proxy| &proxy.options);
    let (mut request, mut response) = (false, false);
    for options in options.by_ref() {
        request |= options.splice_request || options.splice_auto;
        response |= options.splice_response || options.splice_auto;
    }
    request &= x.upload.gate.is_none() && x.upload.filters.is_none();
    response &= x.download.gate.is_none() && x.download.filters.is_none();
    let take = || Pipe::take(global.tune.pipesize).inspect_err(|_| splice::NO_PIPE.note()).ok();
    let pipe = |wanted: bool| wanted.then(take).flatten();
    (pipe(request), pipe(response))
}

impl Leg {
    /// Ends this direction: closes the receiver's side, and accepts no more bytes from the other side.
    fn cut(&mut self, to: &mut Sink<'_>) {
        if !self.shut {
            self.end(to);
        }
    }

    fn end(&mut self, to: &mut Sink<'_>) {
        if !self.breaks {
            to.finish();
        }
        self.shut = true;
    }

    /// Advances this direction with `pump` until it has ended.
    fn poll(&self, pump: impl FnOnce() -> Poll<Result<(), FlowError>>) -> Poll<Result<(), FlowError>> {
        if self.shut { Poll::Ready(Ok(())) } else { pump() }
    }

    /// Closes the receiver's side once all bytes are sent.
    fn note(&mut self, pumped: &Poll<Result<(), FlowError>>, to: &mut Sink<'_>) {
        if matches!(pumped, Poll::Ready(Ok(()))) {
            self.cut(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time that rules have waited counts as inactivity of a side, unless it gets bytes now.
    #[test]
    fn silence_while_rules_waited_counts() {
        let second = Some(Duration::from_secs(1));
        let now = timer::now_ms();
        let heard = (now.saturating_sub(400).max(1), 0);
        let limits = |independent| TunnelTimeouts {
            client: second,
            server: second,
            client_fin: None,
            server_fin: None,
            independent: (independent, false),
            heard,
        };
        let leg = || Leg { shut: false, breaks: false };
        let flow = |moved| {
            let mut flow = Flow::default();
            (flow.moved, flow.received) = (moved, u64::from(moved));
            flow
        };
        for (gets_bytes, independent, is_reduced) in
            [(false, false, true), (true, false, false), (true, true, true)]
        {
            let mut clock = Clock::new(limits(independent));
            clock.moved((&leg(), &flow(true)), (&leg(), &flow(gets_bytes)), false);
            let from_now = clock.client_at.saturating_sub(timer::now_ms());
            assert_eq!(clock.client_from == heard.0, is_reduced, "{gets_bytes} {independent}: {from_now}");
        }
    }

    #[test]
    fn the_client_is_blamed_first_if_both_directions_fail() {
        let (ours, theirs) = (ConnectionError::PROXY_ABORT, ConnectionError::TLS_ABORT);
        let cases = [
            (None, None, None),
            (None, Some(FlowError::Read(theirs)), Some(Blame::Server(theirs))),
            (Some(FlowError::Write(theirs)), Some(FlowError::Write(ours)), Some(Blame::Client(ours))),
            (Some(FlowError::Read(ours)), Some(FlowError::Read(theirs)), Some(Blame::Client(ours))),
            (Some(FlowError::Coding), Some(FlowError::Read(theirs)), Some(Blame::Server(theirs))),
            (Some(FlowError::Filter), Some(FlowError::Coding), Some(Blame::Coding)),
        ];
        for (uploaded, downloaded, expected) in cases {
            assert_eq!(Blame::of(uploaded, downloaded), expected);
        }
    }
}
