//! The limits that a listener checks before it accepts a connection.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use runtime::shared::Shared as _;
use runtime::timer::{self, now_ms};
use state::proxy::Admission;

use crate::worker::Worker;

/// The conditions that a listener checks before it accepts a connection.
pub(super) struct Gate<'a> {
    pub(super) worker: &'a Worker,
    pub(super) proxy: &'a plan::Proxy,
    pub(super) listener: &'a Arc<state::Listener>,
    pub(super) is_tls: bool,
}

/// The slots of an accepted connection.
pub(super) struct Reserved {
    /// Only present if TLS connections are limited.
    pub(super) tls_place: Option<tls::ConnectionPermit>,
}

/// How long a listener waits between checks while the rate or TLS limits delay it.
const HELD: Duration = Duration::from_millis(5);

fn below(count: &AtomicU32, limit: u32) -> bool {
    limit == 0 || count.load(Relaxed) < limit
}

impl Gate<'_> {
    /// Waits until one more connection may be accepted. Returns `false` if the frontend has stopped for good.
    pub(super) async fn admitted(&self) -> bool {
        loop {
            match self.proxy.state.admission() {
                Admission::Stopped => return false,
                // Waiters that are queued proceed on their own. An empty queue means that all slots are taken.
                _ if self.worker.is_old() && !self.has_room() => return false,
                Admission::Open if self.has_room() => {
                    if !self.is_held() {
                        return true;
                    }
                    timer::sleep(HELD).await;
                }
                _ => self.wait(true).await,
            }
        }
    }

    /// Waits until there may be room. If `heeds_plan` is set, the wait also ends when another plan is in use.
    async fn wait(&self, heeds_plan: bool) {
        let mut waited = false;
        poll_fn(|context: &mut Context<'_>| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            self.listener.wait(context.waker().clone());
            // Catches a change between the check and the registration.
            let open = self.proxy.state.admission() != Admission::Paused;
            if (open && self.has_room()) || (heeds_plan && self.worker.is_old()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Whether the process, the frontend and the listener are below their connection limits.
    pub(super) fn has_room(&self) -> bool {
        let process = &self.worker.shared.process;
        let (of_proxy, listener) = (&self.proxy.state, self.listener);
        below(&process.connections, process.maxconn.load(Relaxed))
            && below(&of_proxy.connections, of_proxy.maxconn.load(Relaxed))
            && below(&listener.connections, listener.maxconn)
    }

    fn has_rate_limit(&self) -> bool {
        let process = &self.worker.shared.process;
        let limits = [&process.connection_limit, &process.session_limit, &self.proxy.state.session_limit];
        limits.iter().any(|limit| limit.load(Relaxed) > 0)
            || (self.is_tls && process.tls_limit.load(Relaxed) > 0)
    }

    /// Whether the rate limits (`maxconnrate`, `maxsessrate`, `rate-limit sessions`, `maxsslrate`) or the TLS limit
    /// (`maxsslconn`) delay the next accept. The end of the delay wakes no task, because server connections count towards the TLS
    /// limit too.
    pub(super) fn is_held(&self) -> bool {
        let (process, of_proxy) = (&self.worker.shared.process, &self.proxy.state);
        let now = now_ms();
        let over = |limit: u32, rate: &dyn Fn() -> u32| limit > 0 && rate() >= limit;
        let connections = || process.counters.all().map(|c| c.connection_rate.per_second(now)).sum();
        let sessions = || process.counters.all().map(|c| c.session_rate.per_second(now)).sum();
        let secured = || process.counters.all().map(|c| c.tls_rate.per_second(now)).sum();
        let frontend = || of_proxy.frontend.all().map(|c| c.traffic.session_rate.per_second(now)).sum();
        over(process.connection_limit.load(Relaxed), &connections)
            || over(process.session_limit.load(Relaxed), &sessions)
            || over(of_proxy.session_limit.load(Relaxed), &frontend)
            || (self.is_tls && (!tls::limit::has_room() || over(process.tls_limit.load(Relaxed), &secured)))
    }

    /// Takes the slots for a connection that was just accepted. If another listener has taken the last slot in the meantime,
    /// waits.
    pub(super) async fn reserve(&self) -> Option<Reserved> {
        let process = &self.worker.shared.process;
        if self.has_rate_limit() {
            // The previous connection must be counted first: its own wait may have begun before this connection arrived.
            tokio::task::yield_now().await;
            while self.is_held() {
                timer::sleep(HELD).await;
            }
        }
        loop {
            if let Some(tls_place) = self.take_tls_place() {
                let limit = process.maxconn.load(Relaxed);
                let taken = process.connections.take_below(if limit == 0 { u32::MAX } else { limit });
                if let Ok(before) = taken {
                    if limit > 0 && before + 1 == limit {
                        process.note_maxconn(limit);
                    }
                    if self.proxy.state.try_connect() {
                        self.listener.connections.add(1);
                        return Some(Reserved { tls_place });
                    }
                    process.connections.sub(1);
                }
            }
            // A connection that was already accepted waits, regardless of the plan in use.
            match self.proxy.state.admission() {
                Admission::Stopped => return None,
                Admission::Open if self.has_room() => {
                    if self.is_held() {
                        timer::sleep(HELD).await;
                    }
                }
                _ => self.wait(false).await,
            }
        }
    }

    /// Returns a TLS slot if one is needed and their number is limited. Returns `None` if none is free.
    fn take_tls_place(&self) -> Option<Option<tls::ConnectionPermit>> {
        if self.is_tls && tls::limit::limit() > 0 {
            tls::ConnectionPermit::take().map(Some)
        } else {
            Some(None)
        }
    }
}
