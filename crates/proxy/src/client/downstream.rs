//! The protocol between a client's connection and the steps of a request: each method says what it
//! means in HTTP/1 and in HTTP/2. Called by the steps, which do not know which one it is.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{BodyLength, Head, ParseError, ParseOptions};
use runtime::Buffer;
use sample::StreamFacts;

use super::h1::Framed;
use super::{h1, h2};
use crate::flow::{Beginning, Coding, Flow, FlowError, Path, Sink, Socket, Source};
use crate::stream::{self, WireProtocol};

/// What a client speaks.
pub(crate) enum Downstream {
    /// The connection itself: one HTTP/1 request at a time, or TCP.
    Socket(Socket),
    /// A stream of a connection that carries many.
    Stream(stream::AnyStream),
}

impl Downstream {
    /// What was received and nobody has taken yet: of TCP streams, and for what is told of a
    /// malformed request.
    #[inline]
    pub(crate) fn received(&self) -> &[u8] {
        match self {
            Self::Socket(socket) => socket.received(),
            Self::Stream(stream) => stream.received(),
        }
    }

    /// Puts other bytes in the place of what was received of a stream of TCP.
    pub(crate) fn replace_received(&mut self, bytes: &[u8]) {
        if let Self::Socket(socket) = self {
            socket.replace(bytes);
        }
    }

    /// Whether nothing is left of what was received.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.is_drained(),
            Self::Stream(stream) => stream.is_drained(),
        }
    }

    /// Reads more of what the client sends: 0 at its end.
    ///
    /// # Errors
    /// The connection's, or `OutOfMemory` where there is no room.
    #[inline]
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(socket) => socket.poll_fill(context),
            Self::Stream(stream) => stream.poll_fill(context),
        }
    }

    /// Receives the rest of what is here, in little memory while there is none.
    ///
    /// # Errors
    /// As [`poll_fill`](Self::poll_fill).
    pub(crate) fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(socket) => socket.poll_rest(context),
            Self::Stream(stream) => stream.poll_fill(context),
        }
    }

    /// Ready when there is something to receive, or the connection has ended. No memory is held
    /// meanwhile.
    #[inline]
    pub(crate) fn poll_arrival(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(socket) => socket.stream.poll_read_ready(context),
            Self::Stream(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether there is room for more of what the client sends.
    pub(crate) fn has_room(&mut self) -> bool {
        self.input().has_room()
    }

    /// The buffer of what was received, a small one if there is none.
    fn input(&mut self) -> &mut Buffer {
        match self {
            Self::Socket(socket) => socket.input(),
            Self::Stream(stream) => stream.input(),
        }
    }

    /// Whether the client has taken its request back: it has reset the stream.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Stream(stream) => stream.is_reset(),
        }
    }

    /// Gives back memory that holds nothing.
    #[inline]
    pub(crate) fn release(&mut self) {
        match self {
            Self::Socket(socket) => socket.release(),
            Self::Stream(stream) => stream.release(),
        }
    }

    /// Reads the head of the next request in what was received: its length, or `None` if it is not
    /// complete.
    ///
    /// # Errors
    /// What was received is no request.
    #[inline]
    pub(crate) fn read_head(
        &mut self,
        head: &mut Head,
        options: &ParseOptions,
    ) -> Result<Option<usize>, ParseError> {
        match self {
            Self::Socket(socket) => h1::read_head(socket, head, options),
            Self::Stream(_) => Ok(Some(0)),
        }
    }

    /// Takes the head of so many bytes, of which [`read_head`](Self::read_head) told.
    #[inline]
    pub(crate) fn consume_head(&mut self, length: usize) {
        match self {
            Self::Socket(socket) => socket.input().consume(length),
            Self::Stream(_) => {}
        }
    }

    /// How the body of the request ends.
    ///
    /// # Errors
    /// What came of it together with the head is badly coded: it goes nowhere.
    #[inline]
    pub(crate) fn body_length(&self, head: &Head) -> Result<BodyLength, ParseError> {
        match self {
            Self::Socket(socket) => h1::body_length(socket, head),
            Self::Stream(stream) => Ok(h2::body_length(stream, head)),
        }
    }

    /// Takes what is between the client and us out of a request: rules and servers do not see it.
    /// Says whether the connection may take another request.
    #[inline]
    pub(crate) fn clean_request(&self, head: &mut Head) -> bool {
        match self {
            Self::Socket(_) => h1::clean_request(head),
            Self::Stream(_) => h2::clean_request(head),
        }
    }

    /// Says in the response whether its connection stays, and how its body goes where the client
    /// could not read it as it comes. A connection that was to be `kept` may stay so if it `may`
    /// be.
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
        }
    }

    /// How the end of a body of this length shows in what is received, where each side has its own
    /// ways.
    #[inline]
    pub(crate) fn framing(&self, length: BodyLength) -> BodyLength {
        match (self, length) {
            (Self::Socket(_), _) => length,
            (Self::Stream(_), BodyLength::Chunked) => BodyLength::UntilClose,
            (Self::Stream(_), BodyLength::None | BodyLength::Length(_) | BodyLength::UntilClose) => length,
        }
    }

    /// How a body of this length is written for a server; to `bare` ones as payload alone, whose
    /// end its stream tells.
    #[inline]
    pub(crate) fn path(&self, length: BodyLength, bare: bool) -> Path {
        if length != BodyLength::Chunked {
            return Path::Verbatim;
        }
        match self {
            _ if bare => Path::Payload(Coding::Bare),
            Self::Socket(_) => Path::Verbatim,
            Self::Stream(_) => Path::Payload(Coding::Chunked),
        }
    }

    /// Sends the head of a final response, in front of the body that goes through `flow`; how many
    /// bytes of it `flow` does not count.
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
        }
    }

    /// The protocol of the client's connection.
    pub(crate) fn protocol(&self) -> WireProtocol {
        match self {
            Self::Socket(_) => WireProtocol::Http1,
            Self::Stream(stream) => stream.protocol(),
        }
    }

    /// What its stream is known as, where its connection has many.
    #[inline]
    pub(crate) fn stream_facts(&self) -> Option<StreamFacts> {
        match self {
            Self::Socket(_) => None,
            Self::Stream(stream) => Some(stream.facts()),
        }
    }

    /// Whether bodies come as payload alone, whose end their stream tells.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Stream(_) => true,
        }
    }

    /// Whether heads are text that leaves with the body.
    pub(crate) fn stages_heads(&self) -> bool {
        match self {
            Self::Socket(_) => true,
            Self::Stream(_) => false,
        }
    }

    /// What is here of a body that nothing was taken of yet.
    pub(crate) fn beginning(&self) -> Beginning<'_> {
        let is_all = match self {
            Self::Socket(_) => None,
            Self::Stream(stream) => Some(stream.is_ended()),
        };
        Beginning { bytes: self.received(), is_all }
    }

    /// Has the buffer hold so many bytes, where it holds less; whether it did.
    pub(crate) fn enlarge(&mut self, bytes: usize) -> bool {
        self.input().enlarge(bytes)
    }

    /// What is here of a body that nothing was taken of yet, so that [`put_back`](Self::put_back)
    /// can bring it again.
    pub(crate) fn keep(&self, length: BodyLength, out: &mut Vec<u8>) {
        match self {
            Self::Socket(socket) => h1::keep(socket, length, out),
            Self::Stream(stream) => out.extend_from_slice(stream.received()),
        }
    }

    /// Puts `kept` back in the place of what `flow` has not sent of it, so that the body can be
    /// taken from its beginning.
    pub(crate) fn put_back(&mut self, kept: &[u8], flow: &Flow) {
        match self {
            Self::Socket(socket) => h1::put_back(&mut socket.input, kept, flow),
            Self::Stream(stream) => h1::put_back(stream.input_slot(), kept, flow),
        }
    }

    /// Takes what `flow` had not taken yet of a body that nobody reads; says whether all of it was
    /// here.
    pub(crate) fn skip_body(&mut self, flow: &mut Flow) -> bool {
        match self {
            Self::Socket(socket) => h1::skip_body(socket, flow),
            Self::Stream(stream) => h2::skip_body(stream, flow),
        }
    }

    /// Takes what is here of the body, behind what `out` holds; says whether that was the end of it.
    ///
    /// # Errors
    /// It is badly coded.
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
        }
    }

    /// Has `flow` take in what is here of the body.
    ///
    /// # Errors
    /// It is badly coded.
    #[inline]
    pub(crate) fn admit(&mut self, flow: &mut Flow) -> Result<(), FlowError> {
        match self {
            Self::Socket(socket) => socket.input.as_mut().map_or(Ok(()), |input| flow.admit(input)),
            Self::Stream(stream) => stream.input_slot().as_mut().map_or(Ok(()), |input| flow.admit(input)),
        }
    }

    /// Where the body of the request comes from.
    #[inline]
    pub(crate) fn source(&mut self) -> Source<'_> {
        match self {
            Self::Socket(socket) => Source::Socket(socket),
            Self::Stream(stream) => Source::Stream(stream),
        }
    }

    /// Where the response goes.
    #[inline]
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        match self {
            Self::Socket(socket) => Sink::Socket(&mut socket.stream),
            Self::Stream(stream) => Sink::Stream(stream),
        }
    }

    /// Begins TLS as its listener says; what was received is the beginning of it, `place` what was
    /// taken for it.
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

    /// Ready once TLS is spoken; where the client's request may be `early`, also before the end of
    /// the handshake, once it has come.
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
            // Its connection is beyond that.
            Self::Stream(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether the client is served though its handshake is not over: what it sent may be sent once
    /// more by somebody else.
    #[inline]
    pub(crate) fn is_early(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.stream.is_early(),
            // Served once the handshake is over (`serve::multiplexed`).
            Self::Stream(_) => false,
        }
    }

    /// The TLS session, where there is one.
    pub(crate) fn tls(&self) -> Option<&tls::Session> {
        match self {
            Self::Socket(socket) => socket.stream.tls(),
            Self::Stream(_) => None,
        }
    }

    /// Sends the end of our side: no more comes of the response, nor any other.
    pub(crate) fn finish(&mut self) {
        match self {
            // The end of the handshake is on its way: a reset would meet it (`Client::settle`).
            Self::Socket(socket) if socket.stream.is_early() => {}
            Self::Socket(socket) => {
                socket.stream.close();
                socket.stream.shutdown_write();
            }
            Self::Stream(stream) => stream.end(),
        }
    }

    /// Has the end of the connection tell the client that what it has is not the whole.
    pub(crate) fn reset(&mut self) {
        match self {
            Self::Socket(socket) => socket.stream.reset_on_close(),
            Self::Stream(stream) => stream.set_reset(stream::Reset::Internal),
        }
    }

    /// Has the connection end without a word to the client (`silent-drop`).
    pub(crate) fn vanish(&self, rst_ttl: Option<u8>) {
        match self {
            Self::Socket(socket) => socket.stream.vanish(rst_ttl),
            Self::Stream(stream) => stream.want(|wish| wish.vanish = Some(rst_ttl)),
        }
    }

    /// Sets the type of service of what is sent.
    pub(crate) fn set_tos(&self, tos: u32) {
        match self {
            Self::Socket(socket) => socket.stream.set_tos(tos),
            Self::Stream(stream) => stream.want(|wish| wish.tos = Some(tos)),
        }
    }

    /// Sets the firewall mark of what is sent.
    pub(crate) fn set_mark(&self, mark: u32) {
        match self {
            Self::Socket(socket) => socket.stream.set_mark(mark),
            Self::Stream(stream) => stream.want(|wish| wish.mark = Some(mark)),
        }
    }

    /// Throws away what came and nobody will read, so that closing is no reset; says how much that
    /// was.
    pub(crate) fn discard_received(&self) -> usize {
        match self {
            Self::Socket(socket) => socket.received().len() + socket.stream.discard_received(),
            Self::Stream(_) => 0,
        }
    }

    /// The kernel's number of the connection.
    #[inline]
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Self::Socket(socket) => socket.stream.as_fd().as_raw_fd(),
            Self::Stream(stream) => stream.descriptor(),
        }
    }
}
