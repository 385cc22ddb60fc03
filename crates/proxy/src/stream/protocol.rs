//! The traits of engines that connections and streams use: [`Protocol`] for every engine, [`SocketOutput`] for those
//! on a socket, [`Messages`] for HTTP messages, [`Lifecycle`] for the connection itself,
//! [`RequestEngine`] for connections to servers. Implemented by the engines in [`h2`](super::h2) and [`engines`](super::engines).

use std::io;
use std::task::Context;

use fields::Scheme;
use http::Head;
use runtime::Buffer;
use sample::StreamFacts;
use state::counters::Multiplexed;

use super::Reset;

/// The engine of a multiplexed connection.
pub(crate) trait Protocol {
    /// Identifies a stream.
    type Key: Copy;

    /// The major version of HTTP; 1 for other protocols.
    const HTTP_MAJOR: u8 = 1;

    /// Returns the index of a stream: small, dense, and reused.
    fn place(key: Self::Key) -> usize;

    /// Returns how many more streams may be opened; 0 if the peer is probably gone.
    fn free(&self) -> usize;

    /// Marks `count` received bytes as used.
    fn consume(&mut self, key: Self::Key, count: usize) {
        let _ = (key, count);
    }

    /// Removes the stream. If it has not ended, a reset is sent to the peer, with `reset` as the reason if the protocol has
    /// reasons.
    fn release(&mut self, key: Self::Key, reset: Option<Reset>);

    /// Returns the number of a stream, the limits of its connection, and the code of its `reset`.
    fn facts(&self, key: Self::Key, reset: Option<Reset>) -> StreamFacts;

    /// Frees memory that an idle connection does not need.
    fn shrink(&mut self);
}

/// An engine whose output is a sequence of bytes on a socket.
pub(crate) trait SocketOutput: Protocol {
    /// Writes as much of the output as the socket accepts. Returns whether anything was written.
    ///
    /// # Errors
    /// The errors of the socket. Instead of returning an error, an engine may drop output that cannot be written; the next read
    /// then returns the error, after the data that the peer had sent before.
    fn send(&mut self, socket: &mut net::Stream, context: &mut Context<'_>) -> io::Result<bool>;
}

/// An engine for HTTP messages.
pub(crate) trait Messages: Protocol {
    /// Whether [`send_owned`](Self::send_owned) sends payload without copying it.
    const SENDS_OWNED: bool = false;

    /// Returns the message of the last event.
    fn head_mut(&mut self) -> &mut Head;

    /// Sends a head on an open stream. If `ends` is set, nothing follows it. FastCGI opens a stream with the head, and does
    /// nothing here.
    fn send_head(&mut self, key: Self::Key, head: &Head, ends: bool) {
        let _ = (key, head, ends);
    }

    /// Queues payload for sending. Returns how much was accepted. If `ends` is set, nothing follows it.
    fn send_data(&mut self, key: Self::Key, data: &[u8], ends: bool) -> usize;

    /// Queues the content of `buffer` for sending without a copy. If `ends` is set, nothing follows it.
    ///
    /// # Errors
    /// A buffer with the rest that was not accepted, and how many bytes were.
    fn send_owned(&mut self, key: Self::Key, buffer: Buffer, ends: bool) -> Result<(), (Buffer, usize)> {
        let taken = self.send_data(key, buffer.filled(), ends);
        unsent(buffer, taken)
    }

    /// Whether a stream has queued payload that must be sent before more is accepted. If so, the stream waits.
    fn is_blocked(&mut self, key: Self::Key) -> bool {
        let _ = key;
        false
    }

    /// Queues payload in static memory, without a copy if [`SENDS_OWNED`](Self::SENDS_OWNED). Returns how much was accepted. If
    /// `ends` is set, nothing follows it.
    fn send_static(&mut self, key: Self::Key, data: &'static [u8], ends: bool) -> usize {
        self.send_data(key, data, ends)
    }

    /// Sends trailers, which end the message. A protocol without trailers sends only the end.
    fn send_trailers(&mut self, key: Self::Key, trailers: &Head) {
        let _ = trailers;
        self.send_data(key, &[], true);
    }

    /// Returns the next stream that waited for room and now has it.
    fn next_writable(&mut self) -> Option<Self::Key>;

    /// Whether the output has room for heads.
    fn takes_heads(&self) -> bool;
}

/// The result of [`Messages::send_owned`] if the first `taken` bytes of `buffer` were accepted.
pub(crate) fn unsent(mut buffer: Buffer, taken: usize) -> Result<(), (Buffer, usize)> {
    if taken == buffer.len() {
        return Ok(());
    }
    buffer.consume(taken);
    Err((buffer, taken))
}

/// An engine that pings its peer, announces the end of its connection, and counts events.
pub(crate) trait Lifecycle: Messages {
    /// Sends a ping.
    fn ping(&mut self);

    /// Announces the end of the connection: the peer opens no more streams, and open ones continue.
    fn shutdown(&mut self);

    /// Ends the connection at once, without an error if `reset` is `None`.
    fn close(&mut self, reset: Option<Reset>);

    /// Returns the number of protocol violations that were tolerated.
    fn glitches(&self) -> u32;

    /// Whether a header block has been received in part.
    fn is_within_head(&self) -> bool;

    /// Returns how much output the peer has not taken yet: bytes that wait for the transport, and messages that the transport
    /// would discard if the connection were closed.
    fn pending(&self) -> usize;

    /// Whether both sides have announced the end, so that Weir must close the connection.
    fn is_ours_to_close(&self) -> bool;

    /// Adds the counts since the last call to `counters`.
    fn count(&mut self, counters: &Multiplexed);
}

/// An engine that sends requests to a server.
pub(crate) trait RequestEngine: Lifecycle {
    /// Opens a stream with the head of a request. If `ends` is set, nothing follows it. Returns `None` if the connection accepts
    /// no more streams.
    fn open(&mut self, head: &Head, scheme: Scheme, ends: bool) -> Option<Self::Key>;

    /// Whether the server announces support for upgrades (RFC 8441, RFC 9220).
    fn takes_upgrades(&self) -> bool;

    /// Returns the number of open streams.
    fn streams(&self) -> usize;
}
