//! Retries (configuration manual, 4.2 `retries`, `retry-on`, `option redispatch`): decides whether, where and when to retry.
//! Called by the code that makes attempts: `exchange` and `relay`.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use balance::Budget;
use plan::Proxy;
use runtime::timer::now_ms;
use state::extra_attempts::BackendLoad;
use state::server::Operational;
use state::transition;

use crate::client::Client;
use crate::exchange::view;
use crate::exchange::{BoundServer, Exchange, ExtraAttempt};
use crate::fault::{Fault, RetryKind};
use crate::routing::assign::{Lease, left};
use crate::routing::connect_wait;
use crate::server::per_worker::LocalServer;

/// Whether a request failed because its idle connection was being closed, and may be sent again. This requires that no response
/// arrived and that the method is idempotent (RFC 9110, 9.2.2).
pub(crate) fn is_stale(x: &Exchange, fault: Fault) -> bool {
    // An unprocessed request can be treated as never sent, regardless of its method.
    if fault == Fault::Unprocessed {
        return x.can_rewind();
    }
    matches!(fault, Fault::EmptyResponse | Fault::SendFailed)
        && x.txn.request.method_id().is_idempotent()
        && x.can_rewind()
}

/// Whether the fault may be retried (`retry-on`).
pub(crate) fn may_retry(x: &Exchange, backend: &Proxy, fault: Fault) -> bool {
    let wanted = match fault.retry_kind() {
        None => false,
        Some(RetryKind::Connection) => backend.retry_on.conn_failure,
        // A request that was already sent is not sent again if `disable-l7-retry` applies or its body was not buffered as a
        // whole.
        Some(_) if x.txn.no_replay || !x.is_kept() => false,
        Some(RetryKind::Empty) => backend.retry_on.empty_response,
        Some(RetryKind::Junk) => backend.retry_on.junk_response,
        Some(RetryKind::Timeout) => backend.retry_on.response_timeout,
        Some(RetryKind::Early) => backend.retry_on.zero_rtt_rejected,
        Some(RetryKind::Unavailable) => backend.retry_on.grpc_unavailable,
        Some(RetryKind::Status(status)) => backend.retry_on.statuses.contains(&status),
    };
    wanted && x.can_rewind()
}

/// Whether the backend's budget allows one more retry (`retry-budget`). A granted retry stays granted until it is used, so
/// further calls before the retry begins have no effect.
#[inline]
pub(crate) fn is_affordable(x: &mut Exchange, backend: &Proxy) -> bool {
    backend.balance.budget.is_none_or(|budget| grant(x, backend, budget))
}

#[cold]
fn grant(x: &mut Exchange, backend: &Proxy, budget: Budget) -> bool {
    if x.extra.as_ref().is_some_and(|extra| extra.is_granted) {
        return true;
    }
    // The failed attempt is over.
    x.extra = None;
    let extra = backend.state.keep_extra();
    let counters = extra.counters.mine();
    let now = now_ms();
    if budget.take(extra, BackendLoad::of(&backend.state.backend, now), now) {
        counters.retries.add(1);
        x.extra = Some(ExtraAttempt::new(&backend.state, true));
        return true;
    }
    counters.retries_refused.add(1);
    false
}

/// Returns how many times the request may be resent.
pub(crate) fn most(x: &Exchange, backend: &Proxy) -> u32 {
    x.txn.max_retries.unwrap_or(backend.retries)
}

/// The target of the next attempt.
pub(crate) enum RetryTarget {
    /// The server of the last attempt. Its slot is kept, so that requests in its queue wait for this request too.
    Same(Lease),
    /// Any other server, if there is one.
    Other(Rc<LocalServer>),
}

impl RetryTarget {
    /// Returns the slot if it is kept, and the server that should be avoided.
    pub(crate) fn parts(self) -> (Option<Lease>, Option<Rc<LocalServer>>) {
        match self {
            Self::Same(lease) => (Some(lease), None),
            Self::Other(server) => (None, Some(server)),
        }
    }
}

/// Counts a retry after `fault`, and decides whether it uses the same server or another one. Waits before the retry if required.
///
/// # Errors
/// The client left, or an operator ended the connection.
pub(crate) async fn before_retry(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    lease: Lease,
    fault: Fault,
) -> Result<RetryTarget, Fault> {
    if x.is_overdue() {
        return Err(Fault::ResponseTimeout);
    }
    if matches!(fault, Fault::EarlyRefused | Fault::RetryStatus(425)) {
        not_early(client, x).await?;
    }
    let retries = most(x, backend);
    // Nothing was sent yet, so this also applies to tunnel requests.
    let watch = client.aborts_on_close(backend);
    let looks = looks_at(client, x).await;
    if looks && let Some(fault) = poll_fn(|context| Poll::Ready(left(client, x, context, watch))).await {
        return Err(fault);
    }
    x.txn.retries += 1;
    if let Some(extra) = &mut x.extra {
        extra.is_granted = false;
    }
    let failed = lease.server().clone();
    let refused = fault.retry_kind() == Some(RetryKind::Connection) && fault != Fault::ConnectTimeout;
    let others = transition::online(&backend.state).0 > 1;
    let redispatches = may_redispatch(client, x, backend, &failed, retries, others);
    let target = if redispatches {
        x.choice.bound = None;
        // Until the next server is chosen, the request has none.
        x.txn.server = None;
        drop(lease);
        RetryTarget::Other(failed)
    } else {
        count_retry(backend, &failed);
        lease.begin_again();
        x.choice.bound.get_or_insert(BoundServer { server: failed, even_down: false, again: true });
        RetryTarget::Same(lease)
    };
    if let Some(pause) = backend.retry_delay {
        connect_wait::pause(client, x, pause, watch, looks).await?;
    } else if refused && !(redispatches && others) {
        // A retry at the same server waits for one second, or for `timeout connect` if that is shorter (manual, `retries`).
        let second = Duration::from_secs(1);
        let pause = backend.timeouts.connect.unwrap_or(second).min(second);
        connect_wait::pause(client, x, pause, watch, looks).await?;
    }
    Ok(target)
}

/// Ensures that the next attempt does not use early data (RFC 8470, 5.2): the handshake with the client must be complete, and the
/// handshake with the server must complete before anything is sent.
async fn not_early(client: &mut Client, x: &mut Exchange) -> Result<(), Fault> {
    if client.side.is_early() && !client.settle().await {
        return Err(Fault::ClientAborted);
    }
    x.choice.never_early = true;
    if std::mem::take(&mut x.choice.said_early) {
        x.txn.request.remove_known(http::KnownName::EarlyData);
    }
    Ok(())
}

/// Whether the client is checked while the request has no server. A TCP client may have sent all its data. As in HAProxy, no more
/// data is read from it at this stage, unless rules have already read some.
async fn looks_at(client: &mut Client, x: &Exchange) -> bool {
    if !x.txn.is_http && client.side.is_drained() {
        // The client's data may not have been read yet, because there was no server to send it to.
        let _ = poll_fn(|context| Poll::Ready(client.poll_fill(context))).await;
    }
    x.txn.is_http || client.side.is_drained() || x.request_body.heard_ms > 0
}

/// Counts a retry at the server that failed.
pub(crate) fn count_retry(backend: &Proxy, failed: &LocalServer) {
    failed.state.counters.mine().retries.add(1);
    backend.state.backend.mine().retries.add(1);
}

/// Whether this retry may use a server other than `failed` (`option redispatch`): when the interval is reached, when the server
/// is down, or immediately if the request is not bound to the server and there are `others`.
fn may_redispatch(
    client: &Client,
    x: &Exchange,
    backend: &Proxy,
    failed: &LocalServer,
    retries: u32,
    others: bool,
) -> bool {
    let interval = backend.redispatch;
    let forced = || {
        let force = &backend.force_persist;
        !force.is_empty()
            && view::with(client, x, |env| force.iter().any(|when| view::holds(Some(when), env)))
    };
    if interval == 0 || forced() {
        return false;
    }
    // A negative interval `-n` counts from the n-th retry before the last one, and applies at each multiple of that. As in
    // HAProxy, the sign is ignored if n exceeds the number of retries. If the result is 0, every retry may be redispatched.
    let every = if interval > 0 { interval.into() } else { i64::from(retries) + 1 + i64::from(interval) };
    let its_turn = i64::from(x.txn.retries) % every.abs().max(1) == 0;
    let down = matches!(failed.state.operational(), Operational::Stopped | Operational::Starting);
    let unbound =
        x.choice.bound.as_ref().is_none_or(|bound| bound.again) && !backend.balance.algorithm.hashes();
    its_turn || down || unbound && others
}
