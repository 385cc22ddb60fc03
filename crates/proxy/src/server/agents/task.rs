//! The task of one connection to an agent. It owns the socket, reads from it, passes answers to their queries, and sends the output
//! of all queries together.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::spop::Event;
use net::Stream as Socket;
use runtime::Buffer;
use runtime::trace::{TraceLevel, spop};

use super::{AgentConnection, Agents, trace};
use crate::server::shared::{Idle, send, take_turn};

/// Why a connection ends.
enum AgentEnd {
    /// The agent closed the connection, or it broke.
    Socket,
    /// Weir ends the connection with a final frame.
    Word,
}

/// Serves the socket of a connection until it ends.
pub(super) async fn run(
    all: Rc<Agents>,
    shared: Rc<AgentConnection>,
    mut socket: Socket,
    mut preamble: Vec<u8>,
) {
    let (mut idle, mut input) = (Idle::default(), None);
    let end = poll_fn(|context| {
        shared.connection.set_owner(context.waker());
        let turn = take_turn(context, |context| {
            shared.connection.take_touched();
            let received = receive(&shared, &mut socket, &mut input, context);
            send(&shared.connection, &mut socket, &mut preamble, context).map_err(|_| AgentEnd::Socket)?;
            received
        });
        if let Err(end) = turn {
            return Poll::Ready(end);
        }
        rest(&all, &shared, &mut idle, context)
    })
    .await;
    shared.is_leaving.set(true);
    idle.end(&shared.open.server);
    shared.connection.put_end_of_all();
    if matches!(end, AgentEnd::Word) {
        shared.connection.engine.borrow_mut().finish();
        trace(&shared, 0, (spop::TX_DISCONNECT, TraceLevel::User), "disconnecting from an agent");
        // Skipped if the socket blocks.
        poll_fn(|context| {
            let _ = send(&shared.connection, &mut socket, &mut preamble, context);
            Poll::Ready(())
        })
        .await;
    }
    socket.close();
}

/// Whether the connection can be closed, because it is idle and not kept or because the agent does not respond.
fn rest(
    all: &Agents,
    shared: &AgentConnection,
    idle: &mut Idle,
    context: &mut Context<'_>,
) -> Poll<AgentEnd> {
    let engine = shared.connection.engine.borrow();
    // A query holds an answer that it has not read yet.
    let (held, is_stuck) = (engine.held(), engine.is_stuck());
    drop(engine);
    if held > 0 || shared.waiting.get() > 0 {
        idle.end(&shared.open.server);
        return Poll::Pending;
    }
    if is_stuck {
        return Poll::Ready(AgentEnd::Word);
    }
    idle.poll(shared, &all.0, context).map(|()| AgentEnd::Word)
}

/// Reads once, and passes the frames to their queries. Returns whether there were any.
fn receive(
    shared: &Rc<AgentConnection>,
    socket: &mut Socket,
    input: &mut Option<Buffer>,
    context: &mut Context<'_>,
) -> Result<bool, AgentEnd> {
    if input.is_none() && socket.poll_read_ready(context).is_pending() {
        return Ok(false);
    }
    let buffer = input.get_or_insert_with(Buffer::small);
    let read = socket.poll_read(context, buffer.room());
    let outcome = match read {
        Poll::Ready(Ok(n)) if n > 0 => {
            buffer.fill(n);
            take_in(shared, buffer.filled()).map(|()| true)
        }
        Poll::Ready(_) => Err(AgentEnd::Socket),
        Poll::Pending => Ok(false),
    };
    // Partial frames are kept in the engine.
    *input = None;
    outcome
}

fn take_in(shared: &Rc<AgentConnection>, mut bytes: &[u8]) -> Result<(), AgentEnd> {
    let connection = &shared.connection;
    loop {
        let received = connection.engine.borrow_mut().receive(bytes).map_err(|_| AgentEnd::Word);
        if received.is_err() {
            trace(shared, 0, (spop::CONNECTION_ERROR, TraceLevel::Error), "agent connection closing");
        }
        let (used, event) = received?;
        bytes = &bytes[used..];
        match event {
            None => return Ok(()),
            Some(Event::Ready) => trace(shared, 0, (spop::RX_HELLO, TraceLevel::Proto), "agent ready"),
            Some(Event::Ack { key }) => {
                trace(shared, key.stream().into(), (spop::RX_ACK, TraceLevel::Proto), "response received");
                connection.put(key, connection.engine.borrow().payload(), true);
            }
            Some(Event::TooBig { key }) => connection.put_refused(key),
        }
    }
}
