//! `hedge`: sends the request to a second server if the first is slow to answer, and uses the first response
//! (docs/beyond-haproxy.md).
//!
//! A request is hedged only if it can be repeated: it is idempotent, has no body or one that was buffered as a whole, was sent
//! completely, and is not bound to a server. [`balance::hedge`] decides when and how often. Called by [`super::http`] instead of
//! the plain wait for a head. The request to the slower server is cancelled immediately, and that server is not blamed.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::http::{BodyLength, Head};
use balance::{Hedge, budget};
use runtime::timer::{NEVER, Timer, now_ms, now_us};
use sample::{Hedged, Phase};
use state::extra_attempts::BackendLoad;
use state::sessions::Activity;
use state::{AttemptOutcome, counters};

use crate::client::Client;
use crate::exchange::{Exchange, ExtraAttempt, sockets, tracing};
use crate::fault::Fault;
use crate::flow::Path;
use crate::message::response::{self, HeadWait};
use crate::message::upload;
use crate::routing::assign::{self, Lease};
use crate::routing::{attempt, connect, retry};
use crate::server::per_worker::LocalProxy;
use crate::server::{NoHead, Upstream};

/// The connection of an attempt, and its slot on the server.
type Attempt<'a> = (&'a mut Upstream, &'a mut Lease);

/// Like [`response::await_head`], but uses a second server if the first is slow. Afterwards, the attempt is that of the server
/// that answered.
///
/// # Errors
/// The error of the client, or of the attempt that failed last.
pub(super) async fn await_head(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
    (upstream, lease): Attempt<'_>,
    hedge: &Hedge,
) -> Result<(), Fault> {
    let mut waiting = HeadWait::new(client, x, backend);
    let alarm = alarm(client, x, backend, hedge);
    let in_time = poll_fn(|context| {
        if let Poll::Ready(outcome) = waiting.poll(client, x, upstream, context) {
            return Poll::Ready(outcome.map(|()| true));
        }
        if alarm.as_ref().is_some_and(|alarm| alarm.poll_expired(context).is_ready()) {
            if x.upload.is_finished() && upstream.received().is_empty() {
                return Poll::Ready(Ok(false));
            }
            // The request is still being sent, or the answer has begun.
            alarm.as_ref().into_iter().for_each(|alarm| alarm.set(NEVER));
        }
        Poll::Pending
    });
    if !in_time.await? {
        match second(x, backend, lease, hedge) {
            Some(second) => {
                race(client, x, backend, (&mut *upstream, &mut *lease), second, &mut waiting).await?
            }
            None => poll_fn(|context| waiting.poll(client, x, upstream, context)).await?,
        }
    }
    while !response::is_final(x) {
        waiting.pass_on(client, x, upstream).await?;
        poll_fn(|context| waiting.poll(client, x, upstream, context)).await?;
    }
    response::accept(client, x, backend, upstream)?;
    // If the second server answered, the first attempt was already counted when it was abandoned.
    if x.txn.hedged != Hedged::Second && attempt::answer(x.txn.server_status) == AttemptOutcome::Good {
        count_time(backend, lease);
    }
    Ok(())
}

/// Records how long the first attempt took until it was answered or abandoned. If it was abandoned, its answer would have taken
/// longer.
fn count_time(backend: &LocalProxy, lease: &Lease) {
    backend.state.keep_extra().counters.mine().times.add(lease.taken_us());
}

/// Returns a timer that expires when a second server should be used, or `None` for a request that must not be sent twice.
fn alarm(client: &Client, x: &Exchange, backend: &LocalProxy, hedge: &Hedge) -> Option<Timer> {
    let may_repeat = x.txn.request.method_id().is_idempotent()
        && x.is_kept()
        && !x.txn.no_replay
        && !x.txn.request.has_upgrade()
        && !client.side.is_early()
        && !x.choice.is_early;
    if !may_repeat || x.choice.bound.is_some() || x.txn.retries > 0 {
        return None;
    }
    let now = now_ms();
    let delay = hedge.delay_us(backend.state.keep_extra(), now)?;
    let alarm = Timer::new();
    alarm.set(now + delay.div_ceil(1000));
    Some(alarm)
}

/// Returns a slot on a second server, if one has room and the limits allow the hedge.
fn second(x: &mut Exchange, backend: &Rc<LocalProxy>, first: &Lease, hedge: &Hedge) -> Option<Lease> {
    let extra = backend.state.keep_extra();
    let counters = extra.counters.mine();
    let Some(second) = assign::another(x, backend, first.server()) else {
        counters.hedges_without_server.add(1);
        return None;
    };
    let requests = counters::total(&backend.state.backend, |own| own.traffic.sessions_total.get());
    if !hedge.take(extra, requests) {
        counters.hedges_refused.add(1);
        return None;
    }
    let now = now_ms();
    match backend.balance.budget {
        Some(budget) if !budget.take(extra, BackendLoad::of(&backend.state.backend, now), now) => {
            counters.hedges_over_budget.add(1);
            return None;
        }
        Some(_) => {}
        None => budget::take_unlimited(extra, now),
    }
    counters.hedges.add(1);
    x.extra = Some(ExtraAttempt::new(&backend.state, false));
    x.txn.hedged = Hedged::First;
    Some(second)
}

/// The result of a race.
enum HedgeOutcome {
    /// The first server sent a head of this many bytes.
    First(usize),
    /// The second server sent a head. It is in the transaction.
    Second,
    /// The second attempt failed, and the first server has not answered yet.
    FirstAlone,
}

/// The first attempt, while the second one is in progress.
struct First<'a> {
    upstream: &'a mut Upstream,
    options: &'a ::http::ParseOptions,
    /// The part of the head that the first attempt has received so far.
    head: Head,
    /// Why the first attempt failed.
    failed: Option<NoHead>,
}

impl First<'_> {
    /// Ready with the length of the head.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        if self.failed.is_some() {
            return Poll::Pending;
        }
        match self.upstream.poll_head(context, &mut self.head, self.options) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(length)) => Poll::Ready(length),
            Poll::Ready(Err(none)) => {
                self.failed = Some(none);
                Poll::Pending
            }
        }
    }
}

/// Why the first attempt failed.
struct AttemptFailure {
    fault: Fault,
    /// Whether an idle connection was closed just when it was used. The server is not blamed for that.
    is_stale: bool,
}

impl AttemptFailure {
    fn new(client: &Client, x: &mut Exchange, upstream: &Upstream, none: NoHead) -> Self {
        let is_stale = is_stale(upstream, &none);
        Self { fault: response::head_fault(client, x, upstream, none), is_stale }
    }

    fn count(&self, backend: &Rc<LocalProxy>, lease: &Lease) {
        if !self.is_stale {
            attempt::count_failure(backend, lease, self.fault, false);
        }
    }
}

/// The second attempt.
struct Second {
    lease: Lease,
    /// The connection of the second attempt and the wait for its head, once the request was sent.
    reached: Option<(Upstream, HeadWait)>,
}

impl Second {
    /// Counts the failure of the second attempt while the first one is still running.
    fn count_failure(&self, x: &Exchange, backend: &Rc<LocalProxy>, fault: Fault) {
        let reused = self.reached.as_ref().is_some_and(|(own, _)| own.uses() > 1);
        if !(retry::is_stale(x, fault) && reused) {
            attempt::count_failure(backend, &self.lease, fault, false);
        }
    }

    /// Makes the second attempt the attempt of the request.
    fn take_over(
        self,
        client: &mut Client,
        x: &mut Exchange,
        backend: &Rc<LocalProxy>,
        (upstream, lease): Attempt<'_>,
        waiting: &mut HeadWait,
    ) {
        if let Some((own, own_waiting)) = self.reached {
            (*upstream, *waiting) = (own, own_waiting);
        }
        let first = std::mem::replace(lease, self.lease);
        attempt::note_server(client, x, lease, backend, None);
        drop(first);
    }

    /// Ends the second attempt without an answer. If its server is not at fault, `gave_up` is set.
    fn end(self, gave_up: bool) {
        if let Some((mut own, _)) = self.reached {
            own.reset();
        }
        if gave_up {
            self.lease.gave_up();
        }
    }
}

/// The state of the first attempt that the second one replaces in the exchange.
struct Suspended {
    queued: u64,
    connected: u64,
}

impl Suspended {
    fn new(x: &mut Exchange) -> Self {
        let times = &mut x.txn.times;
        Self { queued: std::mem::replace(&mut times.queued, now_us()), connected: times.connected }
    }

    /// Continues with the first attempt, which is now the only one.
    fn resume(self, client: &mut Client, x: &mut Exchange, upstream: &Upstream, waiting: &HeadWait) {
        if !x.upload.is_received() {
            // The rest of the body in the client's buffer was sent to the first server.
            x.keep_alive = false;
        }
        x.upload.start(BodyLength::None, Path::Verbatim);
        sockets::take(client, x, upstream);
        (x.txn.times.queued, x.txn.times.connected) = (self.queued, self.connected);
        x.phase = Phase::Headers;
        client.entry.activity.set(Activity::Response);
        waiting.resume(client);
        x.txn.response.clear();
    }
}

/// Sends the request to the second server while the first may still answer. Afterwards, the transaction contains a head, and the
/// attempt is that of the server that sent it.
async fn race(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
    (upstream, lease): Attempt<'_>,
    second: Lease,
    waiting: &mut HeadWait,
) -> Result<(), Fault> {
    let worker = client.worker.clone();
    let options = &worker.proxy(lease.server().backend).response_options;
    let suspended = Suspended::new(x);
    attempt::count_attempt(x, &second);
    tracing::attempt(x, second.server());
    let mut second = Second { lease: second, reached: None };
    let mut first = First { upstream, options, head: Head::new(), failed: None };
    let asked = ask(client, x, backend, &mut first, &mut second).await;
    let First { upstream, head, failed, .. } = first;
    let failed = failed.map(|none| AttemptFailure::new(client, x, upstream, none));
    let outcome = match asked {
        Ok(outcome) => outcome,
        // The first server may still answer.
        Err(fault) if failed.is_none() && is_of_server(fault) => {
            second.count_failure(x, backend, fault);
            HedgeOutcome::FirstAlone
        }
        // Both attempts failed, or the request has ended.
        Err(fault) => {
            x.txn.response.clear();
            if let Some(failed) = failed {
                failed.count(backend, lease);
                second.take_over(client, x, backend, (upstream, lease), waiting);
            }
            return Err(fault);
        }
    };
    match outcome {
        HedgeOutcome::Second => {
            match failed {
                Some(failed) => failed.count(backend, lease),
                None => {
                    lease.gave_up();
                    count_time(backend, lease);
                }
            }
            upstream.reset();
            tracing::hedge_won(x);
            second.take_over(client, x, backend, (upstream, lease), waiting);
            x.txn.hedged = Hedged::Second;
            backend.state.keep_extra().counters.mine().hedges_won.add(1);
            Ok(())
        }
        HedgeOutcome::First(length) => {
            second.end(true);
            tracing::hedge_lost(x, "cancelled");
            suspended.resume(client, x, upstream, waiting);
            x.txn.response = head;
            response::take_head(client, x, upstream, length)
        }
        HedgeOutcome::FirstAlone => {
            second.end(false);
            tracing::hedge_lost(x, "hedge_failed");
            suspended.resume(client, x, upstream, waiting);
            poll_fn(|context| waiting.poll(client, x, upstream, context)).await
        }
    }
}

/// Connects to the second server and sends it the request, while the first attempt is polled.
///
/// # Errors
/// The second attempt failed, or the request has ended.
async fn ask(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
    first: &mut First<'_>,
    second: &mut Second,
) -> Result<HedgeOutcome, Fault> {
    let mut own = {
        let mut obtain = pin!(connect::obtain(client, x, backend, &second.lease));
        let earlier = poll_fn(|context| {
            if let Poll::Ready(length) = first.poll(context) {
                return Poll::Ready(Ok(Err(length)));
            }
            obtain.as_mut().poll(context).map(|own| own.map(Ok))
        });
        match earlier.await? {
            Ok(own) => own,
            Err(length) => return Ok(HedgeOutcome::First(length)),
        }
    };
    sockets::take(client, x, &own);
    client.entry.activity.set(Activity::Response);
    upload::rewind(client, x);
    upload::start(client, x, backend, &mut own);
    if !x.upload.is_one_write() {
        own.send_at_once();
    }
    let waiting = HeadWait::new(client, x, backend);
    let (own, waiting) = second.reached.insert((own, waiting));
    poll_fn(|context| {
        if let Poll::Ready(length) = first.poll(context) {
            return Poll::Ready(Ok(HedgeOutcome::First(length)));
        }
        waiting.poll(client, x, own, context).map_ok(|()| HedgeOutcome::Second)
    })
    .await
}

/// Whether a fault ends only the attempt, not the request.
fn is_of_server(fault: Fault) -> bool {
    fault.blames_server() || matches!(fault, Fault::NoConnection | Fault::Resource(_) | Fault::EarlyRefused)
}

/// Whether an idle connection was closed just when it was used, for which the server is not to blame.
fn is_stale(upstream: &Upstream, none: &NoHead) -> bool {
    matches!(none, NoHead::Nothing(_) | NoHead::Refused) && upstream.uses() > 1
}
