//! HTTP/2 over a socket, as the carrier of a client's streams.

use std::io;
use std::rc::Rc;
use std::task::Context;

use h2::StreamKey;
use state::counters::{FrontendCounters, Multiplexed};

use super::FrontEnd;
use super::carrier::ClientCarrier;
use crate::client::ClientConnection;
use crate::exchange::trace;
use crate::exchange::trace::events::ConnectionPoints;
use crate::stream::h2::{H2Connection, H2Engine, H2Stream};
use crate::stream::{AnyStream, Driver, Notice, Received, ReceivedBytes, Wish};

impl ClientCarrier for ReceivedBytes {
    type Engine = H2Engine;
    type Broken = <Self as Driver>::Broken;

    const HTTP_MAJOR: u8 = 2;
    const ENDS_BY_ITSELF: bool = false;
    const POINTS: ConnectionPoints = ConnectionPoints::HTTP2;

    fn counters(counters: &FrontendCounters) -> &Multiplexed {
        &counters.h2
    }

    fn stream(connection: &Rc<H2Connection>, key: StreamKey) -> AnyStream {
        H2Stream::new(connection.clone(), key).into()
    }

    fn stream_number(key: StreamKey) -> u64 {
        key.id().into()
    }

    fn receive(
        &mut self,
        root: &mut ClientConnection,
        connection: &H2Connection,
        context: &mut Context<'_>,
        busy: impl FnOnce() -> bool,
    ) -> io::Result<Received> {
        Driver::receive(self, connection, &mut root.socket().stream, context, busy)
    }

    fn advance(&mut self, connection: &H2Connection) -> Result<Option<Notice<StreamKey>>, Self::Broken> {
        Driver::advance(self, connection)
    }

    fn is_fresh(&self) -> bool {
        Driver::is_fresh(self)
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn send(
        &mut self,
        root: &mut ClientConnection,
        connection: &H2Connection,
        context: &mut Context<'_>,
    ) -> io::Result<bool> {
        connection.send(&mut root.socket().stream, context)
    }

    fn apply_changes(
        &mut self,
        root: &mut ClientConnection,
        connection: &H2Connection,
    ) -> Result<(), FrontEnd> {
        apply_wish(root, connection.take_wish())
    }

    async fn finish(&mut self, root: &mut ClientConnection, _: &H2Connection, _: FrontEnd) {
        // A reset must not overtake the last message to the client.
        root.linger().await;
    }

    fn trace(&self, root: &ClientConnection, connection: &H2Connection) {
        trace::events::frames_of_client(root, &connection.engine);
    }
}

/// Applies the change to the socket that a rule requested.
///
/// # Errors
/// The connection must end.
pub(super) fn apply_wish(root: &mut ClientConnection, wish: Wish) -> Result<(), FrontEnd> {
    if wish == Wish::default() {
        return Ok(());
    }
    let socket = &mut root.socket().stream;
    if let Some(tos) = wish.tos {
        socket.set_tos(tos);
    }
    if let Some(mark) = wish.mark {
        socket.set_mark(mark);
    }
    match wish.vanish {
        Some(rst_ttl) => {
            socket.vanish(rst_ttl);
            Err(FrontEnd::Vanished)
        }
        None => Ok(()),
    }
}
