//! The task of one FastCGI connection. It owns the socket, reads from it, passes records to their requests, and sends the output of
//! all requests together.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use net::Stream as Socket;
use runtime::timer::{Timer, now_ms};

use super::{Applications, ErrorLog, FcgiConnection};
use crate::server::shared::{Idle, send, take_turn};
use crate::stream::fastcgi::FastcgiReader;
use crate::stream::{Driver as _, DriverFailure, Notice, Received};

/// How long to wait for the end of a request after its response is complete.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why a connection ends.
enum ApplicationEnd {
    /// The server closed the connection, or it broke.
    Socket,
    /// The server's bytes are not valid FastCGI.
    Protocol,
    /// The connection is no longer needed.
    Agreed,
}

/// Serves the socket of a connection until it ends.
pub(super) async fn run(
    all: Rc<Applications>,
    shared: Rc<FcgiConnection>,
    mut socket: Socket,
    mut preamble: Vec<u8>,
    error_log: ErrorLog,
) {
    let (mut rest, mut reader) = (Rest::default(), FastcgiReader::default());
    let end = poll_fn(|context| {
        shared.connection.set_owner(context.waker());
        let turn = take_turn(context, |context| {
            shared.connection.take_touched();
            let received = receive(&shared, &mut socket, &mut reader, &error_log, context);
            send(&shared.connection, &mut socket, &mut preamble, context)
                .map_err(|_| ApplicationEnd::Socket)?;
            // Sending has made room for waiting requests.
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
        // The application may still be working on abandoned requests.
        ApplicationEnd::Protocol | ApplicationEnd::Agreed => socket.reset_on_close(),
        ApplicationEnd::Socket => {}
    }
    socket.close();
}

/// Reads once, and passes the records to their requests. Returns whether there were any.
fn receive(
    shared: &FcgiConnection,
    socket: &mut Socket,
    reader: &mut FastcgiReader,
    error_log: &ErrorLog,
    context: &mut Context<'_>,
) -> Result<bool, ApplicationEnd> {
    let connection = &shared.connection;
    let taken = reader.take_in(
        connection,
        socket,
        context,
        || false,
        |notice| match notice {
            Notice::Head { key, .. } => connection.put_head(key),
            Notice::Message => error_log(connection.engine.borrow().message()),
            // FastCGI has no equivalent of these notices.
            Notice::Refused | Notice::GoingAway | Notice::Settings => {}
        },
    );
    match taken {
        Ok(Received::Nothing) => Ok(false),
        Ok(Received::Bytes) => Ok(true),
        Ok(Received::End) | Err(DriverFailure::Socket) => Err(ApplicationEnd::Socket),
        Err(DriverFailure::Protocol) => Err(ApplicationEnd::Protocol),
    }
}

/// The state of a connection without requests.
#[derive(Default)]
struct Rest {
    idle: Idle,
    /// Runs during the wait for the end of a request.
    patience: Timer,
    is_waiting: bool,
}

impl Rest {
    /// Whether the connection can be closed.
    fn poll(
        &mut self,
        all: &Applications,
        shared: &FcgiConnection,
        context: &mut Context<'_>,
    ) -> Poll<ApplicationEnd> {
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
            return self.idle.poll(shared, &all.0, context).map(|()| ApplicationEnd::Agreed);
        }
        // The result of an aborted request is not needed.
        if aborted {
            return Poll::Ready(ApplicationEnd::Agreed);
        }
        if !was_waiting {
            self.patience.set_after(now_ms(), Some(PATIENCE));
        }
        self.patience.poll_expired(context).map(|()| ApplicationEnd::Agreed)
    }
}
