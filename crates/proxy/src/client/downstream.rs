//! The protocol layer between a client's connection and the request steps. Each method hides the differences between HTTP/1 and
//! HTTP/2 from its callers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{BodyLength, Head, ParseError, ParseOptions};
use runtime::Buffer;
use sample::StreamFacts;

use super::h1::Framed;
use super::{h1, h2};
use crate::flow::{Beginning, Coding, Flow, FlowError, Path, Sink, Socket, Source};
use crate::stream::h3::H3Connection;
use crate::stream::{self, WireProtocol};

/// A QUIC connection itself can be neither the source nor the sink of a flow.
const NO_MESSAGE: &str = "messages flow through the streams of a QUIC connection";

/// The client's side of a request.
pub(crate) enum Downstream {
    /// The connection itself: one HTTP/1 request at a time, or TCP.
    Socket(Socket),
    /// One stream of a multiplexed connection.
    Stream(stream::AnyStream),
    /// A QUIC connection, before its first stream and between streams. It carries no message itself.
    Quic(Rc<H3Connection>),
}

impl Downstream {
    /// Returns the bytes received but not consumed yet, for TCP streams and for the report of a malformed request.
    #[inline]
    pub(crate) fn received(&self) -> &[u8] {
        match self {
            Self::Socket(socket) => socket.received(),
            Self::Stream(stream) => stream.received(),
            Self::Quic(_) => &[],
        }
    }

    /// Replaces the bytes received on a TCP stream.
    pub(crate) fn replace_received(&mut self, bytes: &[u8]) {
        if let Self::Socket(socket) = self {
            socket.replace(bytes);
        }
    }

    /// Whether all received bytes have been consumed.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.is_drained(),
            Self::Stream(stream) => stream.is_drained(),
            Self::Quic(_) => true,
        }
    }

    /// Reads more data from the client. Returns 0 at the end of the data.
    ///
    /// # Errors
    /// The connection's error, or `OutOfMemory` if there is no room.
    #[inline]
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(socket) => socket.poll_fill(context),
            Self::Stream(stream) => stream.poll_fill(context),
            Self::Quic(_) => Poll::Ready(Ok(0)),
        }
    }

    /// Receives the remaining data that is available. Uses little memory if nothing is available.
    ///
    /// # Errors
    /// The errors of [`poll_fill`](Self::poll_fill).
    pub(crate) fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(socket) => socket.poll_rest(context),
            Self::Stream(stream) => stream.poll_fill(context),
            Self::Quic(_) => Poll::Ready(Ok(0)),
        }
    }

    /// Ready when there is data to receive, or the connection has ended. Holds no memory while waiting.
    #[inline]
    pub(crate) fn poll_arrival(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(socket) => socket.stream.poll_read_ready(context),
            Self::Stream(_) => Poll::Ready(Ok(())),
            Self::Quic(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether there is room for more data from the client.
    pub(crate) fn has_room(&mut self) -> bool {
        self.input().is_some_and(|input| input.has_room())
    }

    /// Returns the receive buffer, allocating a small one if there is none.
    fn input(&mut self) -> Option<&mut Buffer> {
        match self {
            Self::Socket(socket) => Some(socket.input()),
            Self::Stream(stream) => Some(stream.input()),
            Self::Quic(_) => None,
        }
    }

    /// Whether the client has cancelled its request by resetting the stream.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Stream(stream) => stream.is_reset(),
            Self::Quic(_) => false,
        }
    }

    /// Releases empty buffers.
    #[inline]
    pub(crate) fn release(&mut self) {
        match self {
            Self::Socket(socket) => socket.release(),
            Self::Stream(stream) => stream.release(),
            Self::Quic(_) => {}
        }
    }

    /// Frees memory that an idle TLS connection does not need.
    pub(crate) fn rest(&mut self) {
        if let Self::Socket(socket) = self {
            socket.stream.rest();
        }
    }

    /// Parses the head of the next request from the received bytes. Returns its length, or `None` if it is incomplete.
    ///
    /// # Errors
    /// The received bytes are not a valid request.
    #[inline]
    pub(crate) fn read_head(
        &mut self,
        head: &mut Head,
        options: &ParseOptions,
    ) -> Result<Option<usize>, ParseError> {
        match self {
            Self::Socket(socket) => h1::read_head(socket, head, options),
            Self::Stream(_) => Ok(Some(0)),
            Self::Quic(_) => Ok(None),
        }
    }

    /// Consumes a head of `length` bytes, as returned by [`read_head`](Self::read_head).
    #[inline]
    pub(crate) fn consume_head(&mut self, length: usize) {
        match self {
            Self::Socket(socket) => socket.input().consume(length),
            Self::Stream(_) => {}
            Self::Quic(_) => {}
        }
    }

    /// Returns how the end of the request's body is marked.
    ///
    /// # Errors
    /// The part of the body that arrived with the head is malformed, so the request is not forwarded.
    #[inline]
    pub(crate) fn body_length(&self, head: &Head) -> Result<BodyLength, ParseError> {
        match self {
            Self::Socket(socket) => h1::body_length(socket, head),
            Self::Stream(stream) => Ok(h2::body_length(stream, head)),
            Self::Quic(_) => Ok(BodyLength::None),
        }
    }

    /// Removes hop-by-hop fields from a request, so that rules and servers do not see them. Returns whether the connection may
    /// carry another request.
    #[inline]
    pub(crate) fn clean_request(&self, head: &mut Head) -> bool {
        match self {
            Self::Socket(_) => h1::clean_request(head),
            Self::Stream(_) => h2::clean_request(head),
            Self::Quic(_) => false,
        }
    }

    /// Sets the connection fields of the response, and chooses how its body is transferred if the client does not support the
    /// server's framing. A `kept` connection stays open if possible.
    #[inline]
    pub(crate) fn frame_response(
        &self,
        head: &mut Head,
        framed: Framed,
        kept: bool,
        may: impl FnOnce() -> bool,
    ) -> (Path, bool) {
        match self {
            Self::Socket(_) => h1::frame_response(head, framed, kept, may),
            Self::Stream(_) => (h2::frame_response(head, framed), true),
            Self::Quic(_) => (Path::Verbatim, false),
        }
    }

    /// Returns how the end of a body of this length is recognized in the received bytes. This depends on the protocol.
    #[inline]
    pub(crate) fn framing(&self, length: BodyLength) -> BodyLength {
        match (self, length) {
            (Self::Socket(_), _) => length,
            (Self::Stream(_), BodyLength::Chunked) => BodyLength::UntilClose,
            (Self::Stream(_) | Self::Quic(_), _) => length,
        }
    }

    /// Returns how a body of this length is written to a server. `bare` servers receive only the payload, because the end of the
    /// stream marks the end of the body.
    #[inline]
    pub(crate) fn path(&self, length: BodyLength, bare: bool) -> Path {
        if length != BodyLength::Chunked {
            return Path::Verbatim;
        }
        match self {
            _ if bare => Path::Payload(Coding::Bare),
            Self::Socket(_) => Path::Verbatim,
            Self::Stream(_) => Path::Payload(Coding::Chunked),
            Self::Quic(_) => Path::Verbatim,
        }
    }

    /// Sends the head of a final response; the body is then sent through `flow`. Returns the number of bytes of the head that
    /// `flow` does not count.
    pub(crate) fn send_head(&mut self, head: &Head, flow: &mut Flow) -> u64 {
        match self {
            Self::Socket(_) => {
                head.write_to(&mut flow.staged);
                0
            }
            Self::Stream(stream) => {
                stream.send_head(head, flow.is_finished() || flow.sends_no_body());
                head.written_len() as u64
            }
            Self::Quic(_) => 0,
        }
    }

    /// The protocol of the client's connection.
    pub(crate) fn protocol(&self) -> WireProtocol {
        match self {
            Self::Socket(_) => WireProtocol::Http1,
            Self::Stream(stream) => stream.protocol(),
            Self::Quic(_) => WireProtocol::Http3,
        }
    }

    /// Returns the details of the stream if the connection is multiplexed.
    #[inline]
    pub(crate) fn stream_facts(&self) -> Option<StreamFacts> {
        match self {
            Self::Socket(_) => None,
            Self::Stream(stream) => Some(stream.facts()),
            Self::Quic(_) => None,
        }
    }

    /// Whether bodies arrive as bare payload, with their end marked by the stream.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Stream(_) => true,
            Self::Quic(_) => true,
        }
    }

    /// Whether heads are serialized as text and sent together with the body.
    pub(crate) fn stages_heads(&self) -> bool {
        match self {
            Self::Socket(_) => true,
            Self::Stream(_) => false,
            Self::Quic(_) => false,
        }
    }

    /// Returns the received but unread part of a body.
    pub(crate) fn beginning(&self) -> Beginning<'_> {
        let is_all = match self {
            Self::Socket(_) => None,
            Self::Stream(stream) => Some(stream.is_ended()),
            Self::Quic(_) => Some(true),
        };
        Beginning { bytes: self.received(), is_all }
    }

    /// Grows the buffer to at least `bytes`. Returns whether this was possible.
    pub(crate) fn enlarge(&mut self, bytes: usize) -> bool {
        self.input().is_some_and(|input| input.enlarge(bytes))
    }

    /// Copies the received part of an unread body to `out`, so that [`put_back`](Self::put_back) can replay it.
    pub(crate) fn keep(&self, length: BodyLength, out: &mut Vec<u8>) {
        match self {
            Self::Socket(socket) => h1::keep(socket, length, out),
            Self::Stream(stream) => out.extend_from_slice(stream.received()),
            Self::Quic(_) => {}
        }
    }

    /// Replaces the bytes that `flow` has not sent with `kept`, so that the body can be read from the beginning again.
    pub(crate) fn put_back(&mut self, kept: &[u8], flow: &Flow) {
        match self {
            Self::Socket(socket) => h1::put_back(&mut socket.input, kept, flow),
            Self::Stream(stream) => h1::put_back(stream.input_slot(), kept, flow),
            Self::Quic(_) => {}
        }
    }

    /// Discards the rest of an unread body. Returns whether the whole body had been received.
    pub(crate) fn skip_body(&mut self, flow: &mut Flow) -> bool {
        match self {
            Self::Socket(socket) => h1::skip_body(socket, flow),
            Self::Stream(stream) => h2::skip_body(stream, flow),
            Self::Quic(_) => true,
        }
    }

    /// Appends the received part of the body to `out`. Returns whether this was the end of the body.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) fn take_body(&mut self, flow: &mut Flow, out: &mut Vec<u8>) -> Result<bool, FlowError> {
        match self {
            Self::Socket(socket) => match &mut socket.input {
                Some(input) => flow.take(input, out),
                None => Ok(flow.is_received()),
            },
            Self::Stream(stream) => {
                let input = stream.input_slot();
                let taken = input.as_mut().map_or(Ok(flow.is_received()), |input| flow.take(input, out))?;
                stream.release();
                Ok(taken || stream.is_ended())
            }
            Self::Quic(_) => Ok(true),
        }
    }

    /// Passes the received part of the body to `flow`.
    ///
    /// # Errors
    /// The body is malformed.
    #[inline]
    pub(crate) fn admit(&mut self, flow: &mut Flow) -> Result<(), FlowError> {
        match self {
            Self::Socket(socket) => socket.input.as_mut().map_or(Ok(()), |input| flow.admit(input)),
            Self::Stream(stream) => stream.input_slot().as_mut().map_or(Ok(()), |input| flow.admit(input)),
            Self::Quic(_) => Ok(()),
        }
    }

    /// Returns the source of the request's body.
    #[inline]
    pub(crate) fn source(&mut self) -> Source<'_> {
        match self {
            Self::Socket(socket) => Source::Socket(socket),
            Self::Stream(stream) => Source::Stream(stream),
            Self::Quic(_) => unreachable!("{NO_MESSAGE}"),
        }
    }

    /// Returns the sink for the response.
    #[inline]
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        match self {
            Self::Socket(socket) => Sink::Socket(&mut socket.stream),
            Self::Stream(stream) => Sink::Stream(stream),
            Self::Quic(_) => unreachable!("{NO_MESSAGE}"),
        }
    }

    /// Starts TLS with the listener's settings. The bytes received so far are the beginning of the handshake. `place` is the slot
    /// reserved for the handshake.
    pub(crate) fn begin_tls(
        &mut self,
        acceptor: &Arc<tls::Acceptor>,
        keep: tls::Keep,
        place: Option<tls::ConnectionPermit>,
    ) {
        let Self::Socket(socket) = self else { return };
        let received = socket.input.take();
        socket.stream.accept_tls(acceptor, received.as_ref().map_or(&[][..], Buffer::filled), keep, place);
    }

    /// Ready once the TLS handshake is complete. If the request may be `early`, also ready once early data has arrived.
    ///
    /// # Errors
    /// The handshake failed.
    pub(crate) fn poll_handshake(
        &mut self,
        context: &mut Context<'_>,
        early: bool,
    ) -> Poll<Result<(), tls::Error>> {
        match self {
            Self::Socket(socket) if early => socket.stream.poll_early_handshake(context),
            Self::Socket(socket) => socket.stream.poll_handshake(context),
            Self::Stream(stream) => stream.poll_handshake(context),
            Self::Quic(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether the client is served before its handshake is complete. Its early data might be replayed by an attacker.
    #[inline]
    pub(crate) fn is_early(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.stream.is_early(),
            Self::Stream(stream) => stream.is_early(),
            Self::Quic(_) => false,
        }
    }

    /// Returns the statistics of the connection if it uses QUIC.
    pub(crate) fn quic_stats(&self) -> Option<quic::Stats> {
        match self {
            Self::Socket(_) => None,
            Self::Stream(stream) => stream.quic_stats(),
            Self::Quic(connection) => Some(connection.engine.borrow().transport.connection.stats()),
        }
    }

    /// Returns the TLS session, if there is one.
    pub(crate) fn tls(&self) -> Option<&tls::Session> {
        match self {
            Self::Socket(socket) => socket.stream.tls(),
            Self::Stream(_) => None,
            Self::Quic(_) => None,
        }
    }

    /// Closes the write side: no more response data is sent.
    pub(crate) fn finish(&mut self) {
        match self {
            // The client's part of the handshake has not fully arrived yet, and closing could answer it with a reset
            // (`Client::settle`).
            Self::Socket(socket) if socket.stream.is_early() => {}
            Self::Socket(socket) => {
                socket.stream.close();
                socket.stream.shutdown_write();
            }
            Self::Stream(stream) => stream.end(),
            Self::Quic(_) => {}
        }
    }

    /// Aborts the connection or stream, so that the client sees a truncated response.
    pub(crate) fn reset(&mut self) {
        match self {
            Self::Socket(socket) => socket.stream.reset_on_close(),
            Self::Stream(stream) => stream.set_reset(stream::Reset::Internal),
            Self::Quic(connection) => connection.close(Some(stream::Reset::Internal)),
        }
    }

    /// Ends the connection without notifying the client (`silent-drop`).
    pub(crate) fn vanish(&self, rst_ttl: Option<u8>) {
        match self {
            Self::Socket(socket) => socket.stream.vanish(rst_ttl),
            Self::Stream(stream) => stream.want(|wish| wish.vanish = Some(rst_ttl)),
            Self::Quic(connection) => connection.want(|wish| wish.vanish = Some(rst_ttl)),
        }
    }

    /// Sets the type of service of outgoing packets.
    pub(crate) fn set_tos(&self, tos: u32) {
        match self {
            Self::Socket(socket) => socket.stream.set_tos(tos),
            Self::Stream(stream) => stream.want(|wish| wish.tos = Some(tos)),
            Self::Quic(connection) => connection.want(|wish| wish.tos = Some(tos)),
        }
    }

    /// Sets the firewall mark of outgoing packets.
    pub(crate) fn set_mark(&self, mark: u32) {
        match self {
            Self::Socket(socket) => socket.stream.set_mark(mark),
            Self::Stream(stream) => stream.want(|wish| wish.mark = Some(mark)),
            Self::Quic(connection) => connection.want(|wish| wish.mark = Some(mark)),
        }
    }

    /// Discards received but unread bytes, so that closing does not send a reset. Returns their number.
    pub(crate) fn discard_received(&self) -> usize {
        match self {
            Self::Socket(socket) => socket.received().len() + socket.stream.discard_received(),
            Self::Stream(_) => 0,
            Self::Quic(_) => 0,
        }
    }

    /// Returns the connection's file descriptor.
    #[inline]
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Self::Socket(socket) => socket.stream.as_fd().as_raw_fd(),
            Self::Stream(stream) => stream.descriptor(),
            Self::Quic(connection) => connection.descriptor,
        }
    }
}
