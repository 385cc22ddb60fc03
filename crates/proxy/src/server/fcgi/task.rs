//! The task of one connection that speaks FastCGI: it owns the socket, reads, puts what came into
//! the places of the requests, and sends what these left once after all of them.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::fcgi::Event;
use net::Stream as Socket;
use runtime::Buffer;
use runtime::timer::{Timer, now_ms};

use super::{Applications, Say, Shared};

/// How long the end of a request is waited for whose response was whole.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reads in a row before others of the worker have their turn.
const TURN: u32 = 8;

/// Why a connection ends.
enum End {
    /// The server's end of it is gone.
    Socket,
    /// What came is not FastCGI.
    Protocol,
    /// It is of no more use.
    Agreed,
}

/// Serves the socket of a connection until it ends.
pub(super) async fn run(
    all: Rc<Applications>,
    shared: Rc<Shared>,
    mut socket: Socket,
    mut preamble: Vec<u8>,
    say: Say,
) {
    let (idle, mut input) = (Idle::default(), None);
    let end = poll_fn(|context| {
        shared.connection.set_owner(context.waker());
        let mut reads = 0;
        loop {
            shared.connection.take_touched();
            let received = receive(&shared, &mut socket, &mut input, &say, context);
            // What was sent makes room for those that wait.
            if let Err(end) = send(&shared, &mut socket, &mut preamble, context) {
                return Poll::Ready(end);
            }
            shared.connection.wake_writable();
            match received {
                Err(end) => return Poll::Ready(end),
                Ok(false) => break,
                Ok(true) => reads += 1,
            }
            if reads == TURN {
                context.waker().wake_by_ref();
                break;
            }
        }
        idle.poll(&all, &shared, context)
    })
    .await;
    shared.is_leaving.set(true);
    shared.is_over.set(true);
    idle.leave(&shared);
    shared.connection.put_end_of_all();
    match end {
        // The application may be at work for nobody still.
        End::Protocol | End::Agreed => socket.reset_on_close(),
        End::Socket => {}
    }
    socket.close();
}

/// Reads once, and puts what came where it belongs; whether there was anything.
fn receive(
    shared: &Shared,
    socket: &mut Socket,
    input: &mut Option<Buffer>,
    say: &Say,
    context: &mut Context<'_>,
) -> Result<bool, End> {
    let connection = &shared.connection;
    if connection.engine.borrow().must_drain() {
        return Ok(false);
    }
    if input.is_none() && socket.poll_read_ready(context).is_pending() {
        return Ok(false);
    }
    let buffer = input.get_or_insert_with(Buffer::for_body);
    buffer.compact();
    let read = socket.poll_read(context, buffer.room());
    let n = match read {
        Poll::Ready(Ok(n)) if n > 0 => n,
        Poll::Ready(_) => return Err(End::Socket),
        Poll::Pending => {
            if buffer.is_empty() {
                *input = None;
            }
            return Ok(false);
        }
    };
    buffer.fill(n);
    let mut used = 0;
    loop {
        let bytes = &buffer.filled()[used..];
        let (taken, event) = connection.engine.borrow_mut().receive(bytes).map_err(|_| End::Protocol)?;
        match event {
            None => {
                buffer.consume(used + taken);
                break;
            }
            Some(event) => happen(shared, event, bytes, say),
        }
        used += taken;
    }
    if buffer.is_empty() {
        *input = None;
    }
    Ok(true)
}

fn happen(shared: &Shared, event: Event, bytes: &[u8], say: &Say) {
    let connection = &shared.connection;
    match event {
        Event::Head { key } => connection.put_head(key),
        Event::Data { key, range } => connection.put(key, bytes.get(range).unwrap_or_default()),
        Event::End { key, trailers } => connection.put_end(key, trailers),
        Event::Broken { key, how } => connection.put_broken(key, how),
        Event::Message => say(connection.engine.borrow().message()),
        Event::Settled => {}
    }
}

/// Sends what is in the output, as much as the socket takes.
fn send(
    shared: &Shared,
    socket: &mut Socket,
    preamble: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Result<(), End> {
    while !preamble.is_empty() {
        match socket.poll_write(context, preamble) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(n)) if n > 0 => drop(preamble.drain(..n)),
            Poll::Ready(_) => return Err(End::Socket),
        }
    }
    let mut engine = shared.connection.engine.borrow_mut();
    while !engine.output().is_empty() {
        match socket.poll_write(context, engine.output()) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(n)) if n > 0 => engine.sent(n),
            // What the server said before it closed is read first.
            Poll::Ready(_) => {
                let left = engine.pending();
                engine.sent(left);
                return Ok(());
            }
        }
    }
    match socket.poll_flush(context) {
        Poll::Ready(Err(_)) => Err(End::Socket),
        _ => Ok(()),
    }
}

/// When a connection has nothing to do, and how long that may last.
#[derive(Default)]
struct Idle {
    timer: Timer,
    is_idle: std::cell::Cell<bool>,
    /// Whether the end of a request is waited for.
    is_waiting: std::cell::Cell<bool>,
}

impl Idle {
    /// Whether the connection is of no more use.
    fn poll(&self, all: &Applications, shared: &Shared, context: &mut Context<'_>) -> Poll<End> {
        let server = &shared.open.server;
        if !shared.is_free() {
            self.leave(shared);
            self.is_waiting.set(false);
            return Poll::Pending;
        }
        let (forgotten, aborted) = {
            let engine = shared.connection.engine.borrow();
            (engine.streams() > 0, engine.has_aborted())
        };
        if forgotten {
            // Nobody waits for what the application does for a request that was broken off.
            if aborted {
                return Poll::Ready(End::Agreed);
            }
            if !self.is_waiting.replace(true) {
                self.timer.set_after(now_ms(), Some(PATIENCE));
            }
            return self.timer.poll_expired(context).map(|()| End::Agreed);
        }
        self.is_waiting.set(false);
        if !shared.has_room() || !server.state.is_up() || server.pool_purge_delay.is_zero() {
            return Poll::Ready(End::Agreed);
        }
        if !self.is_idle.get() {
            let counters = &server.state.counters;
            let most = server.pool_max_conn;
            if most >= 0 && state::counters::current(counters, |shard| shard.idle.get()) as i64 >= most {
                return Poll::Ready(End::Agreed);
            }
            self.is_idle.set(true);
            counters.mine().idle.up();
            self.timer.set_after(now_ms(), Some(server.pool_purge_delay));
        }
        while self.timer.poll_expired(context).is_ready() {
            // One is always kept.
            if all.count(server) > 1 {
                return Poll::Ready(End::Agreed);
            }
            shared.connection.shrink();
            self.timer.set_after(now_ms(), Some(server.pool_purge_delay));
        }
        Poll::Pending
    }

    /// It has something to do again, or has ended.
    fn leave(&self, shared: &Shared) {
        if self.is_idle.replace(false) {
            shared.open.server.state.counters.mine().idle.down();
        }
    }
}
