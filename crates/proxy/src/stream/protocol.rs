//! The traits of engines that connections and streams use: [`Protocol`] for every engine, [`Messages`]
//! for HTTP messages, [`Lifecycle`] for the connection itself. Implemented by the engines in [`h2`](super::h2) and
//! [`engines`](super::engines).

use std::io;
use std::ops::Range;
use std::task::Context;

use http::Head;
use runtime::Buffer;
use sample::StreamFacts;
use state::counters::Multiplexed;

use super::Reset;

/// The engine of a multiplexed connection.
pub(crate) trait Protocol {
    /// Identifies a stream.
    type Key: Copy;

    /// Returns the index of a stream: small, dense, and reused.
    fn place(key: Self::Key) -> usize;

    /// Returns how many more streams may be opened.
    fn free(&self) -> usize;

    /// Marks `count` received bytes as used.
    fn consume(&mut self, key: Self::Key, count: usize) {
        let _ = (key, count);
    }

    /// Forgets the stream. If the stream has not ended, a reset is sent to the peer, with `reset` as the reason if the protocol has
    /// reasons.
    fn release(&mut self, key: Self::Key, reset: Option<Reset>);

    /// Returns the number of a stream, the limits of its connection, and the code of its `reset`.
    fn facts(&self, key: Self::Key, reset: Option<Reset>) -> StreamFacts;

    /// Frees memory that an idle connection does not need.
    fn shrink(&mut self);

    /// Writes as much of the output as the socket accepts; returns whether any was written.
    ///
    /// # Errors
    /// The errors of the socket. An engine may instead drop output that cannot be written; the error is then returned by the next
    /// read, after the data that the peer sent before.
    fn send(&mut self, socket: &mut net::Stream, context: &mut Context<'_>) -> io::Result<bool>;
}

/// An engine for HTTP messages.
pub(crate) trait Messages: Protocol {
    /// Whether [`send_owned`](Self::send_owned) sends payload without copying it.
    const SENDS_OWNED: bool = false;

    /// Returns the message of the last event.
    fn head_mut(&mut self) -> &mut Head;

    /// Sends a head on an open stream; with `ends` nothing follows it. FastCGI opens a stream with the head and does nothing here.
    fn send_head(&mut self, key: Self::Key, head: &Head, ends: bool) {
        let _ = (key, head, ends);
    }

    /// Queues payload to be sent; returns how much was accepted. With `ends`, nothing follows it.
    fn send_data(&mut self, key: Self::Key, data: &[u8], ends: bool) -> usize;

    /// Queues the `range` of `buffer` to be sent without a copy; with `ends` nothing follows it.
    ///
    /// # Errors
    /// The buffer and the range that was not accepted.
    fn send_owned(
        &mut self,
        key: Self::Key,
        buffer: Buffer,
        range: Range<usize>,
        ends: bool,
    ) -> Result<(), (Buffer, Range<usize>)> {
        let taken = self.send_data(key, &buffer.filled()[range.clone()], ends);
        if taken == range.len() { Ok(()) } else { Err((buffer, range.start + taken..range.end)) }
    }

    /// Sends trailers, which end the message. A protocol without trailers only sends the end.
    fn send_trailers(&mut self, key: Self::Key, trailers: &Head) {
        let _ = trailers;
        self.send_data(key, &[], true);
    }

    /// Returns the next stream that waited for room and now has it.
    fn next_writable(&mut self) -> Option<Self::Key>;

    /// Whether the output has room for heads.
    fn takes_heads(&self) -> bool;
}

/// An engine that pings its peer, announces the end of its connection, and counts events.
pub(crate) trait Lifecycle: Messages {
    /// Sends a ping.
    fn ping(&mut self);

    /// Announces the end of the connection: the peer opens no more streams, and open ones continue.
    fn shutdown(&mut self);

    /// Ends the connection at once, without an error if `reset` is `None`.
    fn close(&mut self, reset: Option<Reset>);

    /// Adds the counts since the last call to `counters`.
    fn count(&mut self, counters: &Multiplexed);
}
