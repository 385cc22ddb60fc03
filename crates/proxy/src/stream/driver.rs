//! Reads a multiplexed connection of any protocol: its driver passes received data to the mailboxes of the streams, and the owner
//! of the connection handles the other events. Called by `serve::multiplexed`, `serve::reverse`, `server::h2_pool`,
//! `server::fcgi`.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::task::Context;

use super::{EngineConnection, Messages, NoHead, Protocol, Reset};

/// An event on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionEvent<K> {
    /// A head in [`Messages::head_mut`], either of a response or of a request, which opens its stream. If `end` is set, the
    /// message is complete.
    Head { key: K, end: bool },
    /// Part of a body: a `range` of the received bytes, for [`Driver::put`]. If `end` is set, the message is complete.
    Data { key: K, range: Range<usize>, end: bool },
    /// Trailers, in [`Messages::head_mut`], and the end of the message.
    Trailers { key: K },
    /// The end of the message.
    End { key: K },
    /// The stream ended before its message. `why` is the error for a request that waits for a head.
    Reset { key: K, reset: Reset, why: NoHead },
    /// The engine refused a stream that the peer opened.
    Refused,
    /// The peer accepts no more streams.
    GoingAway,
    /// The peer's settings arrived: limits may have changed.
    Settings,
    /// The peer answered a ping.
    Pong,
    /// The peer sent a log message. Read it from the engine.
    Message,
}

/// An event that affects more than a single open stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice<K> {
    /// See [`ConnectionEvent::Head`].
    Head { key: K, end: bool },
    /// See [`ConnectionEvent::Refused`].
    Refused,
    /// See [`ConnectionEvent::GoingAway`].
    GoingAway,
    /// See [`ConnectionEvent::Settings`].
    Settings,
    /// See [`ConnectionEvent::Message`].
    Message,
}

/// The result of [`Driver::receive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// Nothing.
    Nothing,
    /// Bytes, for [`Driver::next`].
    Bytes,
    /// The end of the peer's data.
    End,
}

/// Why [`Driver::take_in`] ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriverFailure {
    /// The socket failed.
    Socket,
    /// The peer violated the protocol.
    Protocol,
}

/// Feeds an engine with the bytes of a socket.
pub(crate) trait Driver {
    /// The engine.
    type Engine: Messages;
    /// A violation of the protocol that ends the connection.
    type Broken: Debug;

    /// Reads once, unless bytes of the last read are left. If `busy` returns `true`, the worker is overloaded, and a connection
    /// with too many glitches is ended.
    ///
    /// # Errors
    /// The errors of the socket.
    fn receive(
        &mut self,
        connection: &EngineConnection<Self::Engine>,
        socket: &mut net::Stream,
        context: &mut Context<'_>,
        busy: impl FnOnce() -> bool,
    ) -> io::Result<Received>;

    /// Returns the next event of the received bytes, or `None` if this turn has no more.
    ///
    /// # Errors
    /// The connection has ended.
    fn next(
        &mut self,
        connection: &EngineConnection<Self::Engine>,
    ) -> Result<Option<EventOf<Self>>, Self::Broken>;

    /// Moves the payload of the last event to the mailbox of its stream.
    fn put(
        &mut self,
        connection: &EngineConnection<Self::Engine>,
        key: KeyOf<Self>,
        range: Range<usize>,
        is_last: bool,
    );

    /// Keeps the bytes after the last event for the next [`receive`](Self::receive).
    fn pause(&mut self);

    /// Whether the next [`receive`](Self::receive) can return something without a read.
    fn is_fresh(&self) -> bool;

    /// Passes stream events to mailboxes, up to the next event of the connection.
    ///
    /// # Errors
    /// The connection has ended.
    #[inline]
    fn advance(
        &mut self,
        connection: &EngineConnection<Self::Engine>,
    ) -> Result<Option<Notice<KeyOf<Self>>>, Self::Broken> {
        while let Some(event) = self.next(connection)? {
            let notice = match event {
                ConnectionEvent::Head { key, end } => Notice::Head { key, end },
                ConnectionEvent::Refused => Notice::Refused,
                ConnectionEvent::GoingAway => Notice::GoingAway,
                ConnectionEvent::Settings => Notice::Settings,
                ConnectionEvent::Message => Notice::Message,
                ConnectionEvent::Data { key, range, end } => {
                    self.put(connection, key, range, end);
                    continue;
                }
                ConnectionEvent::Trailers { key } => {
                    connection.put_end(key, Some(connection.engine.borrow_mut().head_mut()));
                    continue;
                }
                ConnectionEvent::End { key } => {
                    connection.put_end(key, None);
                    continue;
                }
                ConnectionEvent::Reset { key, reset, why } => {
                    connection.put_reset(key, reset, why);
                    continue;
                }
                ConnectionEvent::Pong => continue,
            };
            return Ok(Some(notice));
        }
        Ok(None)
    }

    /// Reads once and handles all events: events of streams are passed to the streams' mailboxes, and all others to `notice`.
    /// Stops early while a request has too many heads that it has not taken yet.
    ///
    /// # Errors
    /// The connection has ended.
    fn take_in(
        &mut self,
        connection: &EngineConnection<Self::Engine>,
        socket: &mut net::Stream,
        context: &mut Context<'_>,
        busy: impl FnOnce() -> bool,
        mut notice: impl FnMut(Notice<KeyOf<Self>>),
    ) -> Result<Received, DriverFailure> {
        let received = self.receive(connection, socket, context, busy).map_err(|_| DriverFailure::Socket)?;
        if received != Received::Bytes {
            return Ok(received);
        }
        while let Some(event) = self.advance(connection).map_err(|_| DriverFailure::Protocol)? {
            notice(event);
            if connection.is_crowded() {
                self.pause();
                break;
            }
        }
        Ok(Received::Bytes)
    }
}

/// The stream key type of a driver's engine.
pub(crate) type KeyOf<D> = <<D as Driver>::Engine as Protocol>::Key;
/// The event type of a driver.
pub(crate) type EventOf<D> = ConnectionEvent<KeyOf<D>>;
