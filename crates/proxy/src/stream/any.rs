//! A stream that carries an HTTP message, as one type for all engines. Above this module only the constructors depend on the
//! engine; a new protocol is a new variant of this type.

use std::io;
use std::os::fd::RawFd;
use std::task::{Context, Poll};

use http::Head;
use runtime::Buffer;
use sample::StreamFacts;

use super::{NoHead, Reset, Wish, fastcgi, h2, h3};

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireProtocol {
    /// HTTP/1, or no HTTP at all.
    Http1,
    Http2,
    Http3,
    FastCgi,
}

/// A stream of a multiplexed connection.
pub(crate) enum AnyStream {
    H2(h2::H2Stream),
    H3(h3::H3Stream),
    Qmux(h3::QmuxStream),
    Fcgi(fastcgi::FastcgiStream),
}

/// The incoming half of a stream.
pub(crate) enum AnyIncoming<'a> {
    H2(&'a mut h2::H2Incoming),
    H3(&'a mut h3::H3Incoming),
    Qmux(&'a mut h3::QmuxIncoming),
    Fcgi(&'a mut fastcgi::FastcgiIncoming),
}

/// Calls the same method on every variant.
macro_rules! each {
    ($any:expr, $stream:ident => $call:expr) => {
        match $any {
            Self::H2($stream) => $call,
            Self::H3($stream) => $call,
            Self::Qmux($stream) => $call,
            Self::Fcgi($stream) => $call,
        }
    };
}

impl AnyStream {
    /// The protocol of the connection.
    pub(crate) fn protocol(&self) -> WireProtocol {
        match self {
            Self::H2(_) => WireProtocol::Http2,
            Self::H3(_) | Self::Qmux(_) => WireProtocol::Http3,
            Self::Fcgi(_) => WireProtocol::FastCgi,
        }
    }

    /// Returns the received bytes of the body that were not taken yet.
    #[inline]
    pub(crate) fn received(&self) -> &[u8] {
        each!(self, stream => stream.received())
    }

    /// Whether all received bytes were taken.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        each!(self, stream => stream.is_drained())
    }

    /// Whether the message is complete, and the rest of its body is in [`received`](Self::received).
    pub(crate) fn is_ended(&self) -> bool {
        each!(self, stream => stream.is_ended())
    }

    /// Whether the message has ended without a body or trailers that were not taken yet.
    pub(crate) fn has_no_rest(&self) -> bool {
        each!(self, stream => stream.has_no_rest())
    }

    /// Returns the length of the rest of the body, if the message is complete.
    pub(crate) fn whole_length(&self) -> Option<u64> {
        each!(self, stream => stream.whole_length())
    }

    /// Returns the buffer of received bytes, or a small one if there was none.
    pub(crate) fn input(&mut self) -> &mut Buffer {
        each!(self, stream => stream.input())
    }

    /// Returns the slot of the receive buffer.
    #[inline]
    pub(crate) fn input_slot(&mut self) -> &mut Option<Buffer> {
        each!(self, stream => &mut stream.input)
    }

    /// Frees an empty buffer.
    #[inline]
    pub(crate) fn release(&mut self) {
        each!(self, stream => stream.release());
    }

    /// Returns the incoming half, and the slot of its buffer.
    #[inline]
    pub(crate) fn halves(&mut self) -> (AnyIncoming<'_>, &mut Option<Buffer>) {
        match self {
            Self::H2(stream) => {
                let (incoming, input) = stream.halves();
                (AnyIncoming::H2(incoming), input)
            }
            Self::H3(stream) => {
                let (incoming, input) = stream.halves();
                (AnyIncoming::H3(incoming), input)
            }
            Self::Qmux(stream) => {
                let (incoming, input) = stream.halves();
                (AnyIncoming::Qmux(incoming), input)
            }
            Self::Fcgi(stream) => {
                let (incoming, input) = stream.halves();
                (AnyIncoming::Fcgi(incoming), input)
            }
        }
    }

    /// Receives more of the body. Returns 0 at the end of the message.
    ///
    /// # Errors
    /// The stream was reset, or its connection has ended; `OutOfMemory` if the buffer is full.
    #[inline]
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_fill(context))
    }

    /// Takes the next head.
    ///
    /// # Errors
    /// No head will arrive.
    pub(crate) fn poll_head(&mut self, context: &Context<'_>, head: &mut Head) -> Poll<Result<(), NoHead>> {
        each!(self, stream => stream.poll_head(context, head))
    }

    /// Returns the number, limits, and reset code of the stream.
    pub(crate) fn facts(&self) -> StreamFacts {
        each!(self, stream => stream.facts())
    }

    /// Whether the peer reset the stream, or its connection has ended.
    #[inline]
    pub(crate) fn is_reset(&self) -> bool {
        each!(self, stream => stream.is_reset())
    }

    /// Like [`is_reset`](Self::is_reset), and wakes the task when that changes.
    pub(crate) fn poll_reset(&self, context: &Context<'_>) -> Option<Reset> {
        each!(self, stream => stream.poll_reset(context))
    }

    /// Sets the reason to give if the stream is dropped before its message is complete.
    pub(crate) fn set_reset(&mut self, reset: Reset) {
        each!(self, stream => stream.set_reset(reset));
    }

    /// Ready when the connection has room for a head. Must be called before each interim head, because the server decides how
    /// many there are.
    ///
    /// # Errors
    /// The stream was reset.
    pub(crate) fn poll_head_room(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_head_room(context))
    }

    /// Sends a head; with `ends` nothing follows it.
    pub(crate) fn send_head(&mut self, head: &Head, ends: bool) {
        each!(self, stream => stream.send_head(head, ends));
    }

    /// Queues as much of `first` and `second` as is accepted now. With `is_last`, the message ends after all of it.
    ///
    /// # Errors
    /// The stream was reset.
    #[inline]
    pub(crate) fn poll_write(
        &mut self,
        context: &Context<'_>,
        first: &[u8],
        second: &[u8],
        is_last: bool,
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write(context, first, second, is_last))
    }

    /// Like [`poll_write`](Self::poll_write), for payload in static memory, which is not copied.
    ///
    /// # Errors
    /// The stream was reset.
    pub(crate) fn poll_write_static(
        &mut self,
        context: &Context<'_>,
        payload: &'static [u8],
        is_last: bool,
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write_static(context, payload, is_last))
    }

    /// Whether payload is sent without a copy ([`poll_hand_over`](Self::poll_hand_over)).
    #[inline]
    pub(crate) fn gathers(&self) -> bool {
        each!(self, stream => stream.gathers())
    }

    /// Ready once the transport has taken all payload that was handed over.
    pub(crate) fn poll_handed_over(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_handed_over(context))
    }

    /// Like [`poll_write`](Self::poll_write), for all of `buffer`. If it is accepted, the buffer loses its memory.
    ///
    /// # Errors
    /// The stream was reset.
    #[inline]
    pub(crate) fn poll_hand_over(
        &mut self,
        context: &Context<'_>,
        buffer: &mut Buffer,
        is_last: bool,
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_hand_over(context, buffer, is_last))
    }

    /// Sends trailers, which end the message.
    pub(crate) fn send_trailers(&mut self, trailers: &Head) {
        each!(self, stream => stream.send_trailers(trailers));
    }

    /// Sends the end of the message, unless it was sent with the last payload.
    pub(crate) fn end(&mut self) {
        each!(self, stream => stream.end());
    }

    /// Whether the request is early data. Over TCP, streams are served only after the handshake (`serve::multiplexed`).
    #[inline]
    pub(crate) fn is_early(&self) -> bool {
        match self {
            Self::H3(stream) => stream.connection().engine.borrow().is_early(),
            Self::H2(_) | Self::Qmux(_) | Self::Fcgi(_) => false,
        }
    }

    /// Ready once the handshake of the connection is complete.
    ///
    /// # Errors
    /// The handshake has failed.
    pub(crate) fn poll_handshake(&self, context: &Context<'_>) -> Poll<Result<(), tls::Error>> {
        match self {
            Self::H3(stream) => stream.connection().engine.borrow_mut().poll_handshake(context),
            Self::H2(_) | Self::Qmux(_) | Self::Fcgi(_) => Poll::Ready(Ok(())),
        }
    }

    /// Returns the statistics of a QUIC connection, or `None` for other connections.
    pub(crate) fn quic_stats(&self) -> Option<quic::Stats> {
        match self {
            Self::H3(stream) => Some(stream.connection().engine.borrow().transport.connection.stats()),
            Self::H2(_) | Self::Qmux(_) | Self::Fcgi(_) => None,
        }
    }

    /// Requests a change to the socket of the connection.
    pub(crate) fn want(&self, change: impl FnOnce(&mut Wish)) {
        each!(self, stream => stream.connection().want(change));
    }

    /// Returns the descriptor of the connection.
    #[inline]
    pub(crate) fn descriptor(&self) -> RawFd {
        each!(self, stream => stream.connection().descriptor)
    }
}

impl AnyIncoming<'_> {
    /// Receives payload into `buffer`. Returns 0 at the end of the message.
    ///
    /// # Errors
    /// The stream was reset, or its connection has ended.
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<usize>> {
        each!(self, incoming => incoming.poll_read(context, buffer))
    }

    /// Whether there is payload to read.
    #[inline]
    pub(crate) fn has_payload(&self) -> bool {
        each!(self, incoming => incoming.has_payload())
    }

    /// Whether the whole message was read.
    #[inline]
    pub(crate) fn is_at_end(&self) -> bool {
        each!(self, incoming => incoming.is_at_end())
    }

    /// Takes the trailers of the message.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Head>> {
        each!(self, incoming => incoming.take_trailers())
    }
}

impl From<h2::H2Stream> for AnyStream {
    fn from(stream: h2::H2Stream) -> Self {
        Self::H2(stream)
    }
}

impl From<fastcgi::FastcgiStream> for AnyStream {
    fn from(stream: fastcgi::FastcgiStream) -> Self {
        Self::Fcgi(stream)
    }
}

impl From<h3::H3Stream> for AnyStream {
    fn from(stream: h3::H3Stream) -> Self {
        Self::H3(stream)
    }
}

impl From<h3::QmuxStream> for AnyStream {
    fn from(stream: h3::QmuxStream) -> Self {
        Self::Qmux(stream)
    }
}
