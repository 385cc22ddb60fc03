//! A client's QUIC connection from its first datagram to its last.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use runtime::timer;
use sample::ConnectionError;
use state::quic_connections;

use super::carrier::{HandshakeProgress, QuicCarrier};
use crate::client::{ClientConnection, Downstream, handshake};
use crate::exchange::trace;
use crate::points;
use crate::serve::exchange_pool::{Exchanges, ServeExchange};
use crate::serve::handoff::QuicNewcomer;
use crate::serve::{multiplexed, opening, shutdown_wakers};
use crate::stream::h3::H3Connection;
use crate::stream::{Lifecycle as _, QuicEntry, QuicTracer, quic};
use crate::worker::Worker;

/// How long a handshake may continue once the process stops, in ms. The client repeats lost packets within this time.
const STOPPING_MS: u64 = 10_000;

/// The number of connections, including those that only answer late packets with their close. Changed by the workers for each
/// connection.
static SERVED: AtomicUsize = AtomicUsize::new(0);

/// Whether there are connections. A stopping process waits until this is false.
pub(super) fn is_serving() -> bool {
    SERVED.load(Relaxed) > 0
}

/// Counts a connection.
struct Served;

impl Served {
    fn begin() -> Self {
        SERVED.fetch_add(1, Relaxed);
        Self
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        SERVED.fetch_sub(1, Relaxed);
    }
}

/// Serves a connection until its end.
pub(in crate::serve) async fn run<S: ServeExchange>(
    worker: Rc<Worker>,
    newcomer: Box<QuicNewcomer>,
    exchanges: Rc<Exchanges<S>>,
) {
    let QuicNewcomer { listener, connection, handle, ends, frontend, bind, load, accepted_us, .. } =
        *newcomer;
    let _served = Served::begin();
    let proxy = worker.local(frontend);
    opening::count_connection(&worker, &proxy, &proxy.binds[bind], accepted_us / 1000);
    let side = Downstream::Quic(connection.clone());
    let mut root = opening::new_connection(worker, (frontend, bind), side, ends, accepted_us, load, None);
    root.entry.is_quic.set(true);
    trace::events::session_begins(&root);
    let remote = connection.engine.borrow().transport.connection.remote();
    let tracer = QuicTracer::new(points::of_session(&root.session));
    tracer.begins(&connection.engine.borrow());
    let registered = quic_connections::register(Rc::new(QuicEntry {
        connection: connection.clone(),
        proxy: proxy.state.clone(),
        is_to_server: false,
        local: ends[1].unwrap_or(remote),
    }));
    let mut carrier = QuicCarrier::new(listener, handle, remote, proxy.state.clone(), tracer);
    if Box::pin(open(&mut root, &mut carrier, &connection)).await {
        opening::count_session(&root);
        connection.engine.borrow_mut().start();
        carrier = Box::pin(multiplexed::go_on(root, exchanges, connection.clone(), carrier)).await;
    } else {
        trace::events::session_fails(&root);
        drop(root);
    }
    let tracer = Box::pin(carrier.drain(&connection)).await;
    drop(registered);
    quic::count(&proxy.state.frontend.mine().quic, &connection);
    tracer.ends(&connection.engine.borrow().transport.connection.stats());
}

/// The handshake, and the rules that run before the first request; `false` if the connection is to end.
async fn open(root: &mut ClientConnection, carrier: &mut QuicCarrier, connection: &H3Connection) -> bool {
    let timeouts = &root.frontend.timeouts;
    let allowed = timeouts.client_handshake.or(timeouts.client);
    root.timer.set_after(timer::now_ms(), allowed);
    let counters = &root.frontend.state.clone();
    let counters = &counters.frontend.mine().quic;
    let (mut shutdown_waker, mut is_stopping) = (None, false);
    let outcome = poll_fn(|context: &mut Context<'_>| {
        carrier.turn(connection, context);
        carrier.flush(connection, context);
        match carrier.progress() {
            // Requests in early data are served before the end of the handshake.
            HandshakeProgress::Early | HandshakeProgress::Connected => return Poll::Ready(Ok(())),
            HandshakeProgress::Lost(_) => return Poll::Ready(Err(ConnectionError::TLS_ABORT)),
            HandshakeProgress::Begun => {}
        }
        if root.poll_killed(context).is_ready() {
            return Poll::Ready(Err(ConnectionError::TLS_ABORT));
        }
        // The client may go on with the successor, which has received the rest of its ClientHello.
        shutdown_waker.get_or_insert_with(|| shutdown_wakers::register(context.waker()));
        if root.worker.shared.process.closing.load(Relaxed) && !std::mem::replace(&mut is_stopping, true) {
            root.timer.set((timer::now_ms() + STOPPING_MS).min(root.timer.deadline()));
        }
        root.timer.poll_expired(context).map(|()| Err(ConnectionError::TLS_TIMEOUT))
    })
    .await;
    counters.half_open.down();
    if outcome.is_err() {
        counters.quic.hdshk_fail.add(1);
    }
    let details = connection.engine.borrow().transport.connection.details();
    let failure = details.failure;
    let is_challenge = details.is_challenge;
    let is_resumed = details.is_resumed;
    root.session.set_tls(details);
    trace::events::client_tls(root, outcome.err());
    if let Err(why) = outcome {
        let why = failure.map_or(why, |error| ConnectionError(error.kind.facts().0));
        root.session.error.set(why);
        if !handshake::is_silent(why) || !root.frontend.options.dontlognull {
            let text = root.session.tls().and_then(|details| handshake::failure_text(details));
            crate::exchange::report::session_error(root, text.as_deref().unwrap_or(why.message()));
        }
        return false;
    }
    if is_challenge {
        return false;
    }
    if !is_resumed {
        let counters = root.worker.shared.process.counters.mine();
        counters.client_key_rate.tick(timer::now_ms());
    }
    root.session.ready_us.set(timer::now_us());
    root.idle_from = root.session.ready_us.get();
    let passes = opening::is_plain(root) || Box::pin(opening::follow_rules(root)).await;
    if !passes {
        connection.engine.borrow_mut().close(None);
    }
    passes
}
