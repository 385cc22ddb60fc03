//! The task of one connection that speaks FastCGI: it owns the socket, reads, puts what came into
//! the places of the requests, and sends what these left once after all of them.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use net::Stream as Socket;
use runtime::timer::{Timer, now_ms};

use super::{Applications, FcgiConnection, Say};
use crate::server::shared::{Idle, send, take_turn};
use crate::stream::fastcgi::Reader;
use crate::stream::{Driver as _, DriverFailure, Notice, Received};

/// How long the end of a request is waited for whose response was whole.
const PATIENCE: Duration = Duration::from_secs(1);

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
    shared: Rc<FcgiConnection>,
    mut socket: Socket,
    mut preamble: Vec<u8>,
    say: Say,
) {
    let (mut rest, mut reader) = (Rest::default(), Reader::default());
    let end = poll_fn(|context| {
        shared.connection.set_owner(context.waker());
        let turn = take_turn(context, |context| {
            shared.connection.take_touched();
            let received = receive(&shared, &mut socket, &mut reader, &say, context);
            send(&shared.connection, &mut socket, &mut preamble, context).map_err(|_| End::Socket)?;
            // What was sent makes room for those that wait.
            shared.connection.wake_writable();
            received
        });
        if let Err(end) = turn {
            return Poll::Ready(end);
        }
        rest.poll(&all, &shared, context)
    })
    .await;
    shared.is_leaving.set(true);
    rest.idle.end(&shared.open.server);
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
    shared: &FcgiConnection,
    socket: &mut Socket,
    reader: &mut Reader,
    say: &Say,
    context: &mut Context<'_>,
) -> Result<bool, End> {
    let connection = &shared.connection;
    let taken = reader.take_in(
        connection,
        socket,
        context,
        || false,
        |notice| match notice {
            Notice::Head { key, .. } => connection.put_head(key),
            Notice::Message => say(connection.engine.borrow().message()),
            // FastCGI has none of these.
            Notice::Refused | Notice::GoingAway | Notice::Settings => {}
        },
    );
    match taken {
        Ok(Received::Nothing) => Ok(false),
        Ok(Received::Bytes) => Ok(true),
        Ok(Received::End) | Err(DriverFailure::Socket) => Err(End::Socket),
        Err(DriverFailure::Protocol) => Err(End::Protocol),
    }
}

/// What becomes of a connection that no request has.
#[derive(Default)]
struct Rest {
    idle: Idle,
    /// Runs while the end of a request is waited for.
    patience: Timer,
    is_waiting: bool,
}

impl Rest {
    /// Whether the connection is of no more use.
    fn poll(&mut self, all: &Applications, shared: &FcgiConnection, context: &mut Context<'_>) -> Poll<End> {
        let engine = shared.connection.engine.borrow();
        let is_free = shared.waiting.get() == 0 && engine.is_forgotten();
        let (forgotten, aborted) = (engine.streams() > 0, engine.has_aborted());
        drop(engine);
        let was_waiting = std::mem::replace(&mut self.is_waiting, is_free && forgotten);
        if !is_free || forgotten {
            self.idle.end(&shared.open.server);
        }
        if !is_free {
            return Poll::Pending;
        }
        if !forgotten {
            return self.idle.poll(shared, &all.0, context).map(|()| End::Agreed);
        }
        // Nobody waits for what the application does for a request that was broken off.
        if aborted {
            return Poll::Ready(End::Agreed);
        }
        if !was_waiting {
            self.patience.set_after(now_ms(), Some(PATIENCE));
        }
        self.patience.poll_expired(context).map(|()| End::Agreed)
    }
}
