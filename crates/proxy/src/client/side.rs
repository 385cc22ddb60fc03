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
use crate::stream;

/// What a client speaks.
pub(crate) enum Downstream {
    /// HTTP/1, and TCP: one request, or one stream, at a time.
    H1(Socket),
    /// HTTP/2: one stream of a connection that has many.
    H2(stream::h2::Stream),
}

impl Downstream {
    /// What was received and nobody has taken yet: of TCP streams, and for what is told of a
    /// malformed request.
    #[inline]
    pub(crate) fn received(&self) -> &[u8] {
        match self {
            Self::H1(socket) => socket.received(),
            Self::H2(stream) => stream.received(),
        }
    }

    /// Puts other bytes in the place of what was received of a stream of TCP.
    pub(crate) fn replace_received(&mut self, bytes: &[u8]) {
        if let Self::H1(socket) = self {
            socket.replace(bytes);
        }
    }

    /// Whether nothing is left of what was received.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        match self {
            Self::H1(socket) => socket.is_drained(),
            Self::H2(stream) => stream.is_drained(),
        }
    }

    /// Reads more of what the client sends: 0 at its end.
    ///
    /// # Errors
    /// The connection's, or `OutOfMemory` where there is no room.
    #[inline]
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::H1(socket) => socket.poll_fill(context),
            Self::H2(stream) => stream.poll_fill(context),
        }
    }

    /// Receives the rest of what is here, in little memory while there is none.
    ///
    /// # Errors
    /// As [`poll_fill`](Self::poll_fill).
    pub(crate) fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::H1(socket) => socket.poll_rest(context),
            Self::H2(stream) => stream.poll_fill(context),
        }
    }

    /// Ready when there is something to receive, or the connection has ended. No memory is held
    /// meanwhile.
    #[inline]
    pub(crate) fn poll_arrival(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::H1(socket) => socket.stream.poll_read_ready(context),
            Self::H2(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether there is room for more of what the client sends.
    pub(crate) fn has_room(&mut self) -> bool {
        self.input().has_room()
    }

    /// The buffer of what was received, a small one if there is none.
    fn input(&mut self) -> &mut Buffer {
        match self {
            Self::H1(socket) => socket.input(),
            Self::H2(stream) => stream.input(),
        }
    }

    /// Whether the client has taken its request back: it has reset the stream.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        match self {
            Self::H1(_) => false,
            Self::H2(stream) => stream.is_reset(),
        }
    }

    /// Gives back memory that holds nothing.
    #[inline]
    pub(crate) fn release(&mut self) {
        match self {
            Self::H1(socket) => socket.release(),
            Self::H2(stream) => stream.release(),
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
            Self::H1(socket) => h1::read_head(socket, head, options),
            Self::H2(_) => Ok(Some(0)),
        }
    }

    /// Takes the head of so many bytes, of which [`read_head`](Self::read_head) told.
    #[inline]
    pub(crate) fn consume_head(&mut self, length: usize) {
        match self {
            Self::H1(socket) => socket.input().consume(length),
            Self::H2(_) => {}
        }
    }

    /// How the body of the request ends.
    ///
    /// # Errors
    /// What came of it together with the head is badly coded: it goes nowhere.
    #[inline]
    pub(crate) fn body_length(&self, head: &Head) -> Result<BodyLength, ParseError> {
        match self {
            Self::H1(socket) => h1::body_length(socket, head),
            Self::H2(stream) => Ok(h2::body_length(stream, head)),
        }
    }

    /// Takes what is between the client and us out of a request: rules and servers do not see it.
    /// Says whether the connection may take another request.
    #[inline]
    pub(crate) fn clean_request(&self, head: &mut Head) -> bool {
        match self {
            Self::H1(_) => h1::clean_request(head),
            Self::H2(_) => h2::clean_request(head),
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
            Self::H1(_) => h1::frame_response(head, framed, kept, may),
            Self::H2(_) => (h2::frame_response(head, framed), true),
        }
    }

    /// How the end of a body of this length shows in what is received, where each side has its own
    /// ways.
    #[inline]
    pub(crate) fn framing(&self, length: BodyLength) -> BodyLength {
        match (self, length) {
            (Self::H2(_), BodyLength::Chunked) => BodyLength::UntilClose,
            _ => length,
        }
    }

    /// How a body of this length is written for a server; to `bare` ones as payload alone, whose
    /// end its stream tells.
    #[inline]
    pub(crate) fn path(&self, length: BodyLength, bare: bool) -> Path {
        match (self, length) {
            (_, BodyLength::Chunked) if bare => Path::Payload(Coding::Bare),
            (Self::H2(_), BodyLength::Chunked) => Path::Payload(Coding::Chunked),
            _ => Path::Verbatim,
        }
    }

    /// Sends the head of a final response, in front of the body that goes through `flow`; how many
    /// bytes of it `flow` does not count.
    pub(crate) fn send_head(&mut self, head: &Head, flow: &mut Flow) -> u64 {
        match self {
            Self::H1(_) => {
                head.write_to(&mut flow.staged);
                0
            }
            Self::H2(stream) => {
                stream.send_head(head, flow.is_finished() || flow.sends_no_body());
                head.written_len() as u64
            }
        }
    }

    /// What its stream is known as, where its connection has many.
    #[inline]
    pub(crate) fn stream_facts(&self) -> Option<StreamFacts> {
        match self {
            Self::H1(_) => None,
            Self::H2(stream) => Some(stream.facts()),
        }
    }

    /// Whether bodies come as payload alone, whose end their stream tells.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        matches!(self, Self::H2(_))
    }

    /// Whether heads are text that leaves with the body.
    pub(crate) fn stages_heads(&self) -> bool {
        matches!(self, Self::H1(_))
    }

    /// What is here of a body that nothing was taken of yet.
    pub(crate) fn beginning(&self) -> Beginning<'_> {
        let is_all = match self {
            Self::H1(_) => None,
            Self::H2(stream) => Some(stream.is_ended()),
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
            Self::H1(socket) => h1::keep(socket, length, out),
            Self::H2(stream) => out.extend_from_slice(stream.received()),
        }
    }

    /// Puts `kept` back in the place of what `flow` has not sent of it, so that the body can be
    /// taken from its beginning.
    pub(crate) fn put_back(&mut self, kept: &[u8], flow: &Flow) {
        match self {
            Self::H1(socket) => h1::put_back(&mut socket.input, kept, flow),
            Self::H2(stream) => h1::put_back(&mut stream.input, kept, flow),
        }
    }

    /// Takes what `flow` had not taken yet of a body that nobody reads; says whether all of it was
    /// here.
    pub(crate) fn skip_body(&mut self, flow: &mut Flow) -> bool {
        match self {
            Self::H1(socket) => h1::skip_body(socket, flow),
            Self::H2(stream) => h2::skip_body(stream, flow),
        }
    }

    /// Takes what is here of the body, behind what `out` holds; says whether that was the end of it.
    ///
    /// # Errors
    /// It is badly coded.
    pub(crate) fn take_body(&mut self, flow: &mut Flow, out: &mut Vec<u8>) -> Result<bool, FlowError> {
        match self {
            Self::H1(socket) => match &mut socket.input {
                Some(input) => flow.take(input, out),
                None => Ok(flow.is_received()),
            },
            Self::H2(stream) => {
                let taken =
                    stream.input.as_mut().map_or(Ok(flow.is_received()), |input| flow.take(input, out))?;
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
            Self::H1(socket) => socket.input.as_mut().map_or(Ok(()), |input| flow.admit(input)),
            Self::H2(stream) => stream.input.as_mut().map_or(Ok(()), |input| flow.admit(input)),
        }
    }

    /// Where the body of the request comes from.
    #[inline]
    pub(crate) fn source(&mut self) -> Source<'_> {
        match self {
            Self::H1(socket) => Source::H1(socket),
            Self::H2(stream) => Source::H2(stream),
        }
    }

    /// Where the response goes.
    #[inline]
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        match self {
            Self::H1(socket) => Sink::H1(&mut socket.stream),
            Self::H2(stream) => Sink::H2(stream),
        }
    }

    /// The socket itself, of a connection that carries no requests (`log-forward`).
    pub(crate) fn socket(&mut self) -> Option<&mut Socket> {
        match self {
            Self::H1(socket) => Some(socket),
            Self::H2(_) => None,
        }
    }

    /// Begins TLS as its listener says; what was received is the beginning of it, `place` what was
    /// taken for it.
    pub(crate) fn begin_tls(
        &mut self,
        acceptor: &Arc<tls::Acceptor>,
        keep: tls::Keep,
        place: Option<tls::Place>,
    ) {
        let Self::H1(socket) = self else { return };
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
            Self::H1(socket) if early => socket.stream.poll_early_handshake(context),
            Self::H1(socket) => socket.stream.poll_handshake(context),
            // Its connection is beyond that.
            Self::H2(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether the client is served though its handshake is not over: what it sent may be sent once
    /// more by somebody else.
    #[inline]
    pub(crate) fn is_early(&self) -> bool {
        match self {
            Self::H1(socket) => socket.stream.is_early(),
            // Served once the handshake is over (`serve::multiplexed`).
            Self::H2(_) => false,
        }
    }

    /// The TLS session, where there is one.
    pub(crate) fn tls(&self) -> Option<&tls::Session> {
        match self {
            Self::H1(socket) => socket.stream.tls(),
            Self::H2(_) => None,
        }
    }

    /// Sends the end of our side: no more comes of the response, nor any other.
    pub(crate) fn finish(&mut self) {
        match self {
            // The end of the handshake is on its way: a reset would meet it (`Client::settle`).
            Self::H1(socket) if socket.stream.is_early() => {}
            Self::H1(socket) => {
                socket.stream.close();
                socket.stream.shutdown_write();
            }
            Self::H2(stream) => stream.end(),
        }
    }

    /// Has the end of the connection tell the client that what it has is not the whole.
    pub(crate) fn reset(&mut self) {
        match self {
            Self::H1(socket) => socket.stream.reset_on_close(),
            Self::H2(stream) => stream.set_reset(stream::Reset::Internal),
        }
    }

    /// Has the connection end without a word to the client (`silent-drop`).
    pub(crate) fn vanish(&self, rst_ttl: Option<u8>) {
        match self {
            Self::H1(socket) => socket.stream.vanish(rst_ttl),
            Self::H2(stream) => stream.connection().want(|wish| wish.vanish = Some(rst_ttl)),
        }
    }

    /// Sets the type of service of what is sent.
    pub(crate) fn set_tos(&self, tos: u32) {
        match self {
            Self::H1(socket) => socket.stream.set_tos(tos),
            Self::H2(stream) => stream.connection().want(|wish| wish.tos = Some(tos)),
        }
    }

    /// Sets the firewall mark of what is sent.
    pub(crate) fn set_mark(&self, mark: u32) {
        match self {
            Self::H1(socket) => socket.stream.set_mark(mark),
            Self::H2(stream) => stream.connection().want(|wish| wish.mark = Some(mark)),
        }
    }

    /// Throws away what came and nobody will read, so that closing is no reset; says how much that
    /// was.
    pub(crate) fn discard_received(&self) -> usize {
        match self {
            Self::H1(socket) => socket.received().len() + socket.stream.discard_received(),
            Self::H2(_) => 0,
        }
    }

    /// The kernel's number of the connection.
    #[inline]
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Self::H1(socket) => socket.stream.as_fd().as_raw_fd(),
            Self::H2(stream) => stream.connection().descriptor,
        }
    }
}
