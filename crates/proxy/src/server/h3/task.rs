//! The task of one connection: it receives, passes events to the streams, and sends the output of all requests together.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use runtime::timer::{Timer, now_ms};
use runtime::turns;

use super::{Http3Carriers, Http3Connection, ServerTransport, TransportTurn, is_idle, note_connected};
use crate::server::shared::Idle;
use crate::stream::{Lifecycle as _, Notice, Ping, h3};
use crate::violation;

/// The maximum number of reads before the task yields.
const TURNS: usize = 16;

/// Why a connection ends.
enum CarrierEnd {
    /// The server or the network ended it.
    Transport,
    /// The server violated the protocol.
    Protocol,
    /// No request needs it any more.
    Agreed,
    /// Another worker has requested it.
    Left,
}

/// Keeps a connection alive while a server works on its requests in silence (RFC 9000, 10.1.2).
#[derive(Default)]
struct KeepAlive {
    timer: Timer,
    /// Half of the time after which the connection would end, or `None` without a limit.
    every: Option<Duration>,
}

impl KeepAlive {
    /// The server has sent something.
    fn note_life(&self) {
        self.timer.set_after(now_ms(), self.every);
    }

    /// Sends a PING if the server has been silent for long.
    fn poll<T: ServerTransport>(&self, shared: &Http3Connection<T>, context: &mut Context<'_>) {
        while self.timer.poll_expired(context).is_ready() {
            shared.connection.engine.borrow_mut().ping();
            shared.connection.touch();
            self.note_life();
        }
    }
}

/// Serves a connection until it ends. If the connection must move to another worker, it is returned.
pub(super) async fn run<T: ServerTransport>(
    all: Rc<Http3Carriers<T>>,
    shared: Rc<Http3Connection<T>>,
    mut transport: T,
) -> Option<(Rc<Http3Connection<T>>, T)> {
    let mut idle = Idle::default();
    let mut payload = Bytes::new();
    let keep_alive = KeepAlive { every: transport.keep_alive(), ..KeepAlive::default() };
    keep_alive.note_life();
    let mut ping = shared.open.server.idle_ping.map(|every| Box::new(Ping::new(every)));
    let end = poll_fn(|context| {
        shared.connection.set_owner(context.waker());
        for turn in 1.. {
            shared.connection.take_touched();
            let received = match take_turn(&all, &shared, &mut transport, &mut payload, context) {
                Ok(received) => received,
                Err(end) => return Poll::Ready(end),
            };
            if !received {
                break;
            }
            keep_alive.note_life();
            if turn == TURNS {
                // Lets other tasks of the worker run.
                turns::yield_turn(context);
                break;
            }
            if let Some(ping) = &mut ping {
                ping.note_life();
            }
        }
        if shared.own.leaves_to.borrow().is_some() {
            if may_leave(&shared, &transport) {
                return Poll::Ready(CarrierEnd::Left);
            }
            // The worker that requested the connection no longer waits for this one.
            shared.own.leaves_to.take();
        }
        if !is_idle(&shared) {
            idle.end(&shared.open.server);
            keep_alive.poll(&shared, context);
            return Poll::Pending;
        }
        if let Some(ping) = &mut ping {
            if ping.poll_silence(&shared.connection, context).is_ready() {
                return Poll::Ready(CarrierEnd::Transport);
            }
            if transport.flush(context).is_err() {
                return Poll::Ready(CarrierEnd::Transport);
            }
        }
        idle.poll(&shared, &all.all, context).map(|()| CarrierEnd::Agreed)
    })
    .await;
    shared.is_leaving.set(true);
    idle.end(&shared.open.server);
    if matches!(end, CarrierEnd::Left) {
        return Some((shared, transport));
    }
    shared.own.settling.wake();
    shared.connection.put_end_of_all();
    transport.abandon().await;
    None
}

/// Whether the connection is completely idle, and nothing else refers to it.
fn may_leave<T: ServerTransport>(shared: &Rc<Http3Connection<T>>, transport: &T) -> bool {
    let is_unused = Rc::strong_count(shared) == 1 && Rc::strong_count(&shared.connection) == T::REFERENCES;
    is_unused
        && transport.is_quiet()
        && !shared.is_leaving.get()
        && is_idle(shared)
        && shared.connection.engine.borrow().pending() == 0
}

/// Receives once, passes the events to their streams, and sends the output. Returns whether anything was received.
fn take_turn<T: ServerTransport>(
    all: &Http3Carriers<T>,
    shared: &Http3Connection<T>,
    transport: &mut T,
    payload: &mut Bytes,
    context: &mut Context<'_>,
) -> Result<bool, CarrierEnd> {
    let connection = &shared.connection;
    let TransportTurn { received, end } = transport.turn(context);
    if shared.own.is_early.get() && transport.is_connected() {
        note_connected(shared, transport);
        if shared.own.refused_early.get() {
            return Err(CarrierEnd::Agreed);
        }
    }
    let busy = violation::is_busy(all.busy_from);
    let has_work = connection.engine.borrow_mut().begin_turn(busy);
    while has_work && !connection.is_crowded() {
        match h3::advance(connection, payload) {
            Ok(Some(notice)) => heed(shared, notice),
            Ok(None) => break,
            Err(_) => return Err(CarrierEnd::Protocol),
        }
    }
    if end.is_some() {
        return Err(CarrierEnd::Transport);
    }
    transport.flush(context).map_err(|_| CarrierEnd::Transport)?;
    // Sending has made room for waiting streams.
    connection.wake_writable();
    Ok(received)
}

fn heed<T: ServerTransport>(shared: &Http3Connection<T>, notice: Notice<::h3::RequestKey>) {
    match notice {
        Notice::Head { key, end } => {
            shared.connection.put_head(key);
            if end {
                shared.connection.put_end(key, None);
            }
        }
        Notice::GoingAway => shared.is_leaving.set(true),
        Notice::Settings => shared.own.settling.settle(),
        // Servers open no streams, and send no log output.
        Notice::Refused | Notice::Message => {}
    }
}
