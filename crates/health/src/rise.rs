//! `slowstart`: gradually raises the weight of a server that has come up for any reason.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::clock::now_ms;
use plan::ServerSettings;
use runtime::{shard, timer, worker};
use state::events;
use state::server::Operational;
use state::transition::{self, NOTICE};

use crate::{CheckContext, CheckedServer};

/// Whether [`prepare`] has an effect on a server.
pub(crate) fn applies(own: &ServerSettings) -> bool {
    own.slow_start.is_some()
}

/// Starts to raise the weight of `peer` slowly whenever it comes up.
pub(crate) fn prepare(peer: &CheckedServer, context: &Arc<CheckContext>) {
    let Some(duration) = peer.own().slow_start else { return };
    let index = peer.own().index;
    // The server owns the callback, so the callback must not own the server.
    let (proxy, server) = (Arc::downgrade(&peer.backend.state), Arc::downgrade(peer.server()));
    let context = Arc::downgrade(context);
    peer.server().on_rise(move || {
        let rise = Rise { proxy: proxy.clone(), server: server.clone(), context: context.clone(), duration };
        let spare = rise.clone();
        let posted =
            worker::post(index % shard::workers(), move || drop(tokio::task::spawn_local(rise.run())));
        if !posted && tokio::runtime::Handle::try_current().is_ok() {
            // There are no workers, so it runs on this thread.
            drop(tokio::task::spawn_local(spare.run()));
        }
    });
}

/// The gradual rise of one server.
#[derive(Clone)]
struct Rise {
    proxy: Weak<state::Proxy>,
    server: Weak<state::Server>,
    context: Weak<CheckContext>,
    duration: Duration,
}

impl Rise {
    /// Raises the weight step by step; ends early if the server's state changes.
    async fn run(self) {
        const STEPS: u32 = 100;
        let step = (self.duration / STEPS).max(Duration::from_millis(10));
        let start = now_ms();
        let total = self.duration.as_millis().max(1) as u64;
        let Some(begun) = self.server.upgrade().map(|server| server.came_up()) else { return };
        loop {
            timer::sleep(step).await;
            let (Some(server), Some(proxy)) = (self.server.upgrade(), self.proxy.upgrade()) else { return };
            if server.came_up() != begun {
                // The server is down again, or has come up again, with a new rise.
                return;
            }
            if server.operational() != Operational::Starting {
                return server.set_ramp(100);
            }
            let percent = (now_ms() - start) * 100 / total;
            server.set_ramp(percent.min(100) as u32);
            // The connection limit rises together with the weight.
            proxy.queue.wake_first();
            if percent < 100 {
                continue;
            }
            let shown = events::shown(&server);
            server.set_operational(Operational::Running, now_ms());
            events::moved(&proxy, &server, shown, 0, || events::StateCause::Other(String::new()));
            if let Some(context) = self.context.upgrade().filter(|_| !server.admin().in_maintenance()) {
                let text = transition::joined(&proxy, &server, "is UP", "", 0);
                server.record_change(&text);
                (context.notify)(&proxy, NOTICE, &text);
            }
            return;
        }
    }
}
