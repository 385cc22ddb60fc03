//! The transport below a client's streams: HTTP/2 over a socket, or HTTP/3 over QUIC.

use std::fmt::Debug;
use std::io;
use std::rc::Rc;
use std::task::Context;

use state::counters::FrontendCounters;
use state::counters::Multiplexed;

use super::FrontEnd;
use crate::client::ClientConnection;
use crate::exchange::trace::events::ConnectionPoints;
use crate::stream::{AnyStream, EngineConnection, Lifecycle, Notice, Protocol, Received};

/// The key type of a carrier's streams.
pub(in crate::serve) type KeyOf<C> = <<C as ClientCarrier>::Engine as Protocol>::Key;

/// The transport of a client's multiplexed connection.
pub(in crate::serve) trait ClientCarrier {
    /// The engine.
    type Engine: Lifecycle;
    /// A protocol violation that ends the connection.
    type Broken: Debug;

    /// The major version of HTTP.
    const HTTP_MAJOR: u8;
    /// Whether a connection ends within a few seconds once its end was announced.
    const ENDS_BY_ITSELF: bool;

    /// The trace source, with its events for connections.
    const POINTS: ConnectionPoints;

    /// Returns the counters of this protocol.
    fn counters(counters: &FrontendCounters) -> &Multiplexed;

    /// Creates the stream of `key`.
    fn stream(connection: &Rc<EngineConnection<Self::Engine>>, key: KeyOf<Self>) -> AnyStream;

    /// Returns the stream's number in the protocol.
    fn stream_number(key: KeyOf<Self>) -> u64;

    /// Receives once. If `busy` returns `true`, the worker is overloaded, and a connection with too many glitches is ended.
    ///
    /// # Errors
    /// The transport's.
    fn receive(
        &mut self,
        root: &mut ClientConnection,
        connection: &EngineConnection<Self::Engine>,
        context: &mut Context<'_>,
        busy: impl FnOnce() -> bool,
    ) -> io::Result<Received>;

    /// Dispatches stream events to mailboxes, up to the next event of the connection.
    ///
    /// # Errors
    /// The connection is over.
    fn advance(
        &mut self,
        connection: &EngineConnection<Self::Engine>,
    ) -> Result<Option<Notice<KeyOf<Self>>>, Self::Broken>;

    /// Whether the next [`receive`](Self::receive) can return something without reading from the transport.
    fn is_fresh(&self) -> bool;

    /// Whether no part of a frame was received.
    fn is_empty(&self) -> bool;

    /// Writes as much of the output as the transport accepts. Returns whether anything was written.
    ///
    /// # Errors
    /// The transport's.
    fn send(
        &mut self,
        root: &mut ClientConnection,
        connection: &EngineConnection<Self::Engine>,
        context: &mut Context<'_>,
    ) -> io::Result<bool>;

    /// Applies the changes to the transport that rules of streams have requested.
    ///
    /// # Errors
    /// The connection must end.
    fn apply_changes(
        &mut self,
        root: &mut ClientConnection,
        connection: &EngineConnection<Self::Engine>,
    ) -> Result<(), FrontEnd>;

    /// Ends the connection in such a way that the client receives its last messages.
    async fn finish(
        &mut self,
        root: &mut ClientConnection,
        connection: &EngineConnection<Self::Engine>,
        end: FrontEnd,
    );

    /// Reports the frames of a turn to trace sources.
    fn trace(&self, root: &ClientConnection, connection: &EngineConnection<Self::Engine>);
}
