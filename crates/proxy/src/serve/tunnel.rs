//! Two directions of bytes at once, until both have ended: TCP streams, and HTTP connections that
//! an upgrade or CONNECT turned into tunnels.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use http::BodyLength;
use net::splice::Pipe;
use plan::Proxy;
use runtime::timer::{self, NEVER};
use sample::transaction::TimeoutSlot;
use sample::{End, Phase};

use crate::client::Client;
use crate::exchange::filters;
use crate::exchange::finish::{self, Moved};
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;
use crate::flow::{Flow, FlowError, Path, Sink};
use crate::message::{download, scripted, splice};
use crate::server::Upstream;

/// How long each side may be silent, and how long once it is half closed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    client: Option<Duration>,
    server: Option<Duration>,
    client_fin: Option<Duration>,
    server_fin: Option<Duration>,
    /// `option independent-streams` of the frontend and of the backend.
    independent: (bool, bool),
    /// When client and server were last heard of, in ms of the worker's clock, where rules waited
    /// for more: that time counts too.
    heard: (u64, u64),
}

impl Limits {
    /// Those of a TCP stream, or of a tunnel where `timeout tunnel` takes the place of both.
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

/// One direction, and where it stands.
struct Leg {
    /// Whether our side towards the receiver was closed after the last byte.
    shut: bool,
    /// Whether the receiver is told nothing then: its connection is reset (`option nolinger`).
    breaks: bool,
}

/// Sends the response head of an upgrade, then bytes both ways.
pub(crate) async fn upgrade(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &mut Upstream,
) -> Result<(), Stop> {
    x.phase = Phase::Data;
    x.answered = true;
    // What is staged or still to be sent of the request goes first; then everything.
    let staged = std::mem::take(&mut x.upload.staged);
    x.upload.start(BodyLength::UntilClose, Path::Verbatim);
    x.upload.staged = staged;
    download::begin(client, x, upstream)?;
    let limits = Limits::new(client, x, backend, true);
    run(client, x, upstream, limits).await.map_err(Stop::from)
}

/// When each side has been silent for too long, and since when that counts.
struct Clock {
    limits: Limits,
    client_at: u64,
    server_at: u64,
    client_from: u64,
    server_from: u64,
    /// Bytes received from each side when they were last looked at.
    seen: (u64, u64),
}

impl Clock {
    fn new(limits: Limits) -> Self {
        let seen = (u64::MAX, u64::MAX);
        Self { limits, client_at: NEVER, server_at: NEVER, client_from: 0, server_from: 0, seen }
    }

    /// Counts anew after bytes moved, or a direction `ended` with them.
    fn moved(&mut self, (up, upload): (&Leg, &Flow), (down, download): (&Leg, &Flow), ended: bool) {
        let limits = self.limits;
        let now = timer::now_ms();
        let at = |limit: Option<Duration>| limit.map_or(NEVER, |limit| now + millis(limit));
        // A side that was told our end has its own, shorter time to end as well.
        let client_limit = if down.shut { limits.client_fin.or(limits.client) } else { limits.client };
        let server_limit = if up.shut { limits.server_fin.or(limits.server) } else { limits.server };
        let received = (upload.received, download.received);
        // Bytes sent to a side are no sign of its life where its stream is independent.
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
        // Who is not read from, for the other side does not take it, is not silent.
        match (upload.is_blocked(), download.is_blocked()) {
            (true, false) => self.client_at = NEVER,
            (false, true) => self.server_at = NEVER,
            _ => {}
        }
        self.seen = received;
        let heard = std::mem::take(&mut self.limits.heard);
        let sides = [
            (&mut self.client_at, &mut self.client_from, heard.0),
            (&mut self.server_at, &mut self.server_from, heard.1),
        ];
        for (at, from, heard) in sides {
            if heard > 0 {
                *from = heard;
                if *at != NEVER {
                    *at -= now.saturating_sub(heard);
                }
            }
        }
    }

    /// Directions ended without another byte, which is no sign of life: whoever was told has its
    /// own time, which counts from its last sign, or what was left of the usual one.
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

    /// Who was silent for too long, and whether both were. What it would have sent ends here; what
    /// it is sent goes on, unless it does not take it.
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

/// A side that was silent for too long.
struct Late {
    fault: Fault,
    /// Which directions had ended before.
    halves: (bool, bool),
    both: bool,
}

/// Moves bytes both ways until both directions have ended.
pub(crate) async fn run(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    limits: Limits,
) -> Result<(), Fault> {
    filters::install(client, x, true);
    filters::install(client, x, false);
    (x.upload.pipe, x.download.pipe) = pipes(client, x);
    let breaks = !x.txn.is_http && x.backend.as_ref().is_some_and(|backend| backend.options.nolinger_backend);
    let mut up = Leg { shut: false, breaks };
    let mut down = Leg { shut: false, breaks: false };
    let mut clock = Clock::new(limits);
    let before = (x.txn.bytes_in, x.txn.bytes_out);
    let mut armed = false;
    let mut server_first = false;
    let mut late: Option<Late> = None;
    let outcome = poll_fn(|context: &mut Context<'_>| {
        loop {
            x.upload.moved = false;
            x.download.moved = false;
            let ended = (up.shut, down.shut);
            let first = up.poll(|| scripted::poll_upload(client, x, upstream, context));
            up.note(&first, &mut upstream.sink());
            let second = down.poll(|| scripted::poll_download(client, x, upstream, context));
            down.note(&second, &mut client.side.sink());
            // A server that has ended its side is owed an end, no reset.
            up.breaks &= !down.shut || up.shut;
            if up.breaks && up.shut {
                // What the server may still say is lost, as the option says.
                down.cut(&mut client.side.sink());
                return Poll::Ready(Ok(()));
            }
            match (first, second) {
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(Ok(())),
                // The server had ended before, and said all: nobody misses what it did not take.
                (Poll::Ready(Err(FlowError::Write(_))), _) if down.shut && x.txn.is_http => {
                    return Poll::Ready(Ok(()));
                }
                (Poll::Ready(Err(FlowError::Read(error))), _)
                | (_, Poll::Ready(Err(FlowError::Write(error)))) => {
                    client.session.error.set(error);
                    return Poll::Ready(Err(Fault::ClientAborted));
                }
                (Poll::Ready(Err(FlowError::Write(error))), _)
                | (_, Poll::Ready(Err(FlowError::Read(error)))) => {
                    x.txn.server_error = error;
                    return Poll::Ready(Err(Fault::Truncated));
                }
                (Poll::Ready(Err(FlowError::Coding)), _) | (_, Poll::Ready(Err(FlowError::Coding))) => {
                    return Poll::Ready(Err(Fault::Truncated));
                }
                (Poll::Ready(Err(FlowError::Filter)), _) | (_, Poll::Ready(Err(FlowError::Filter))) => {
                    return Poll::Ready(Err(Fault::Internal));
                }
                _ => {}
            }
            // An end passed on is no byte, but from now on another time counts.
            let (up_ended, down_ended) = (up.shut && !ended.0, down.shut && !ended.1);
            server_first |= down_ended && !up.shut;
            let ended = up_ended || down_ended;
            if x.upload.moved || x.download.moved || !armed {
                armed = true;
                clock.moved((&up, &x.upload), (&down, &x.download), ended);
                clock.arm(client);
                let moved = Moved {
                    counted: &mut x.counted,
                    backend: x.backend.as_ref().map(|backend| &***backend),
                    server: x.txn.server.as_deref(),
                    trackers: Some(&x.txn.trackers),
                    answered: true,
                };
                let (received, sent) = (x.upload.received, x.download.sent);
                finish::count_moved(client, moved, before.0 + received, before.1 + sent);
            } else if ended {
                clock.ended(up_ended, down_ended);
                clock.arm(client);
            }
            if let Poll::Ready(fault) = client.poll_killed(context) {
                return Poll::Ready(Err(fault));
            }
            if client.timer.poll_expired(context).is_pending() {
                return Poll::Pending;
            }
            let halves = (up.shut, down.shut);
            let (fault, both) = clock.expired(
                (&mut up, &x.upload, &mut upstream.sink()),
                (&mut down, &x.download, &mut client.side.sink()),
            );
            clock.arm(client);
            late.get_or_insert(Late { fault, halves, both });
        }
    })
    .await;
    let outcome = late.as_ref().map_or(outcome, |late| Err(late.fault));
    let both_late = late.as_ref().is_some_and(|late| late.both);
    let halves = late.map_or((up.shut, down.shut), |late| late.halves);
    x.txn.bytes_in += x.upload.received;
    x.txn.bytes_out += x.download.sent;
    x.txn.ending.end = ending(x.txn.is_http, outcome, halves, server_first, both_late);
    x.txn.ending.server = sample::Link::Closed;
    // Who was silent for too long is told the end as usual.
    if !matches!(outcome, Ok(()) | Err(Fault::ClientTimeout | Fault::ServerTimeout)) {
        upstream.reset();
    }
    outcome
}

/// What the layers saw (`term_events`): of the `halves`, those towards the server and towards the
/// client, one may have ended before.
fn ending(
    is_http: bool,
    outcome: Result<(), Fault>,
    halves: (bool, bool),
    server_first: bool,
    both_late: bool,
) -> End {
    match (outcome, halves) {
        (Ok(()), _) if server_first => End::TunnelByServer,
        (Ok(()), _) => End::TunnelByClient,
        (Err(Fault::ClientTimeout), (_, true)) => End::HalfClientTimeout,
        (Err(Fault::ServerTimeout), (true, _)) => End::HalfServerTimeout,
        (Err(Fault::ClientTimeout | Fault::ServerTimeout), _) if both_late => End::TunnelTimeout,
        (Err(Fault::ClientTimeout), _) => End::TunnelClientTimeout,
        (Err(Fault::ServerTimeout), _) => End::TunnelServerTimeout,
        (Err(Fault::ClientAborted), _) if is_http => End::TunnelClientReset,
        (Err(Fault::ClientAborted), _) => End::RelayClientReset,
        (Err(Fault::Truncated), _) if is_http => End::TunnelServerReset,
        (Err(Fault::Truncated), _) => End::RelayServerReset,
        (Err(Fault::Killed(_)), _) => End::Killed,
        (Err(_), _) => End::Internal,
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
    /// Ends this direction: the receiver is told, and nothing more is taken from the other.
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

    /// Moves this direction on, as `pump` does, until it has ended.
    fn poll(&self, pump: impl FnOnce() -> Poll<Result<(), FlowError>>) -> Poll<Result<(), FlowError>> {
        if self.shut { Poll::Ready(Ok(())) } else { pump() }
    }

    /// Tells the receiver once all was sent.
    fn note(&mut self, pumped: &Poll<Result<(), FlowError>>, to: &mut Sink<'_>) {
        if matches!(pumped, Poll::Ready(Ok(()))) {
            self.cut(to);
        }
    }
}
