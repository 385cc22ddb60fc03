//! The task of one connection: it receives datagrams, passes events to the streams, and sends the output of all requests together.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use runtime::turns;

use super::transport::QuicTransport;
use super::{Http3Connection, QuicCarriers};
use crate::server::shared::Idle;
use crate::stream::{Notice, Ping, h3};
use crate::violation;

/// Maximum number of reads before the task yields.
const TURNS: usize = 16;

/// Why a connection ends.
enum CarrierEnd {
    /// The server or the network ended it.
    Transport,
    /// The server violated the protocol.
    Protocol,
    /// It is no longer needed.
    Agreed,
}

/// Serves a connection until it ends.
pub(super) async fn run(all: Rc<QuicCarriers>, shared: Rc<Http3Connection>, mut transport: QuicTransport) {
    let mut idle = Idle::default();
    let mut payload = Bytes::new();
    let mut ping = shared.open.server.idle_ping.map(|every| Box::new(Ping::new(every)));
    poll_fn(|context| {
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
            if turn == TURNS {
                // Lets other tasks of the worker run.
                turns::yield_turn(context);
                break;
            }
            if let Some(ping) = &mut ping {
                ping.note_life();
            }
        }
        if !shared.is_idle() {
            idle.end(&shared.open.server);
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
    shared.own.settling.wake();
    shared.connection.put_end_of_all();
    transport.abandon().await;
}

/// Receives once, passes the events to their streams, and sends; returns whether there were any datagrams.
fn take_turn(
    all: &QuicCarriers,
    shared: &Http3Connection,
    transport: &mut QuicTransport,
    payload: &mut Bytes,
    context: &mut Context<'_>,
) -> Result<bool, CarrierEnd> {
    let connection = &shared.connection;
    let received = transport.turn(context).map_err(|_| CarrierEnd::Transport)?;
    if shared.own.is_early.get() && transport.is_connected() {
        shared.note_connected();
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
    transport.flush(context).map_err(|_| CarrierEnd::Transport)?;
    // Sending has made room for waiting streams.
    connection.wake_writable();
    Ok(received)
}

fn heed(shared: &Http3Connection, notice: Notice<::h3::RequestKey>) {
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
