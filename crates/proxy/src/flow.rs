//! One direction of a message or of a TCP stream: bytes come into a buffer from one socket and leave through another.
//!
//! A [`Flow`] knows how the body ends and which of the buffered bytes belong to it, so that a pipelined
//! request behind it is left alone. Encoded bytes are forwarded as they came wherever both sides speak the
//! same framing; else they are taken apart ([`Recoding`]). Called by `exchange` and `tunnel`.

mod send;

use std::io::{self, Write};
use std::task::{Context, Poll};

use http::{BodyLength, ChunkDecoder, ChunkEvent, Normalized};
use net::Stream;
use net::splice::Pipe;
use runtime::{Buffer, buffer};
use sample::ConnectionError;

use crate::gate::Gate;

/// How the end of the body is found.
#[derive(Debug, Default)]
enum Framing {
    /// It has ended, or there was none.
    #[default]
    Done,
    /// So many bytes are still to come into the buffer.
    Length(u64),
    /// Chunked coding, strictly checked.
    Chunked(Box<ChunkDecoder>),
    /// The sender closes.
    UntilClose,
}

/// What happens to the framing on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Recoding {
    /// Nothing.
    #[default]
    None,
    /// Chunks in, bare bytes out: for HTTP/1.0 peers.
    Dechunk,
    /// Chunks in, chunks out, without the trailers behind the last one.
    DropTrailers,
    /// Bytes in, nothing out: the body of an answer to a HEAD that a rule had turned into a GET.
    Discard,
}

/// Bodies up to this size are copied behind their head: cheaper than two pieces for the kernel.
const COPY: usize = 2048;

/// No path has smaller segments than IPv6 promises (RFC 8200, 5), less headers with all their options.
const SEGMENT: usize = 1280 - 120;

/// Bodies from this length on go through a pipe where the options allow it.
const SPLICE_FROM: u64 = 64 * 1024;

/// Fewer bytes than this are not worth a pipe's two calls.
const SPLICE_LEAST: u64 = 4096;

/// Why a direction stopped before its end.
#[derive(Debug)]
pub(crate) enum FlowError {
    /// Reading failed, or the sender closed before the end; what the kernel said of it.
    Read(ConnectionError),
    /// Writing failed; likewise.
    Write(ConnectionError),
    /// The chunked coding is broken.
    Coding,
}

impl FlowError {
    #[cold]
    fn read(error: &io::Error) -> Self {
        Self::Read(ConnectionError::of_kernel(error))
    }

    #[cold]
    fn write(error: &io::Error) -> Self {
        Self::Write(ConnectionError::of_kernel(error))
    }

    /// Nothing was taken, for no reason that the kernel tells.
    #[cold]
    fn unwritten() -> Self {
        Self::Write(ConnectionError::default())
    }
}

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    framing: Framing,
    recoding: Recoding,
    /// Bytes to be sent before those of the buffer: the head, or recoded parts of the body.
    pub(crate) staged: Vec<u8>,
    staged_sent: usize,
    /// How many bytes at the start of the buffer belong to the body and may be sent as they are.
    ready: usize,
    /// Bytes written to the receiver, staged ones included.
    pub(crate) sent: u64,
    /// Bytes of the body taken in, its coding included, as the sender wrote them.
    pub(crate) received: u64,
    /// Those of them that were made ready, as they are sent on, or taken apart.
    admitted: u64,
    /// Bytes that went through a pipe.
    pub(crate) spliced: u64,
    /// What holds it back, where a filter does; most have none.
    pub(crate) gate: Option<Box<Gate>>,
    /// Whether the last call moved anything: the caller then moves its deadline.
    pub(crate) moved: bool,
    /// Whether the caller ends the receiver's connection as soon as all has been sent: the two then leave together.
    pub(crate) ends: bool,
    /// Whether the last read brought more than a small buffer takes: the next is worth a large one.
    bulk: bool,
    /// Whether the receiver had to be waited for since the last read: what it does not take yet is kept small.
    slow: bool,
    /// Whether the kernel holds the end of what was written last, less than a segment, for what comes next.
    held: bool,
}

impl Flow {
    /// Makes it as new, for a body that ends as `length` says; its memory stays.
    pub(crate) fn start(&mut self, length: BodyLength, recoding: Recoding) {
        self.staged.clear();
        self.staged_sent = 0;
        self.ready = 0;
        self.sent = 0;
        self.received = 0;
        self.admitted = 0;
        self.spliced = 0;
        self.recoding = recoding;
        self.gate = None;
        self.ends = false;
        self.held = false;
        self.bulk = false;
        self.slow = false;
        self.framing = match length {
            BodyLength::None | BodyLength::Length(0) => Framing::Done,
            BodyLength::Length(n) => Framing::Length(n),
            BodyLength::Chunked => Framing::Chunked(Box::default()),
            BodyLength::UntilClose => Framing::UntilClose,
        };
    }

    /// Whether all of the body has come into the buffer.
    pub(crate) fn is_received(&self) -> bool {
        matches!(self.framing, Framing::Done)
    }

    /// Whether all has been sent.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_received() && self.ready == 0 && self.staged_sent == self.staged.len()
    }

    /// Whether everything is here, and so little of it that it leaves in one write and one segment.
    pub(crate) fn is_one_write(&self) -> bool {
        self.is_received() && self.gate.is_none() && self.staged.len() + self.ready <= SEGMENT
    }

    /// How many staged bytes are still to be sent.
    pub(crate) fn staged_left(&self) -> usize {
        self.staged.len() - self.staged_sent
    }

    /// Whether something waits to be sent.
    pub(crate) fn is_blocked(&self) -> bool {
        self.ready > 0 || self.staged_sent < self.staged.len()
    }

    /// How many bytes at the start of the buffer may be sent as they are.
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// How many bytes of the body have left the buffer since it was [started](Self::start), as they are sent on, wherever they are
    /// now: sent, staged, or lost with a connection that broke.
    pub(crate) fn consumed(&self) -> u64 {
        self.admitted - self.ready as u64
    }

    /// How many of the next bytes may be moved without being looked at: of a known length, of the current chunk, or
    /// all until the close.
    fn spliceable(&self) -> u64 {
        match (&self.framing, self.recoding) {
            (Framing::Length(n), Recoding::None) => *n,
            (Framing::Chunked(decoder), Recoding::None) => decoder.remaining(),
            (Framing::UntilClose, Recoding::None) => u64::MAX,
            _ => 0,
        }
    }

    /// Whether the body is long enough, as far as can be told, for a pipe to be worth it.
    pub(crate) fn is_long(&self) -> bool {
        match self.framing {
            Framing::Length(n) => n >= SPLICE_FROM,
            Framing::Chunked(_) | Framing::UntilClose => true,
            Framing::Done => false,
        }
    }

    /// Whether the end is the sender's closing.
    pub(crate) fn is_until_close(&self) -> bool {
        matches!(self.framing, Framing::UntilClose)
    }

    /// Counts `n` bytes that went through a pipe.
    fn skip(&mut self, n: u64) {
        self.received += n;
        self.admitted += n;
        self.sent += n;
        self.spliced += n;
        match &mut self.framing {
            Framing::Length(left) => {
                *left -= n.min(*left);
                if *left == 0 {
                    self.framing = Framing::Done;
                }
            }
            Framing::Chunked(decoder) => decoder.skip(n),
            Framing::UntilClose | Framing::Done => {}
        }
    }

    /// Looks at the bytes of `buffer` that were not looked at yet, and makes those of the body ready to be sent.
    pub(crate) fn admit(&mut self, buffer: &mut Buffer) -> Result<(), FlowError> {
        let fresh = buffer.len() - self.ready;
        if fresh == 0 || self.is_received() {
            return Ok(());
        }
        match self.recoding {
            Recoding::None => self.admit_verbatim(buffer, fresh),
            Recoding::Dechunk | Recoding::DropTrailers => self.admit_decoded(buffer),
            Recoding::Discard => {
                self.admit_verbatim(buffer, fresh)?;
                buffer.consume(self.ready);
                self.ready = 0;
                Ok(())
            }
        }
    }

    fn admit_verbatim(&mut self, buffer: &mut Buffer, fresh: usize) -> Result<(), FlowError> {
        let (used, kept) = match &mut self.framing {
            Framing::Done => (0, 0),
            Framing::UntilClose => (fresh, fresh),
            Framing::Length(left) => {
                let taken = (fresh as u64).min(*left);
                *left -= taken;
                let ended = *left == 0;
                if ended {
                    self.framing = Framing::Done;
                }
                (taken as usize, taken as usize)
            }
            Framing::Chunked(decoder) => {
                // One spelling for all that read it after us: nobody finds the end of a chunk elsewhere.
                let Normalized { used, kept } = decoder
                    .normalize(&mut buffer.filled_mut()[self.ready..])
                    .map_err(|_| FlowError::Coding)?;
                if kept < used {
                    buffer.cut(self.ready + kept..self.ready + used);
                }
                if decoder.is_done() {
                    self.framing = Framing::Done;
                }
                (used, kept)
            }
        };
        self.ready += kept;
        self.received += used as u64;
        self.admitted += kept as u64;
        Ok(())
    }

    fn admit_decoded(&mut self, buffer: &mut Buffer) -> Result<(), FlowError> {
        let Framing::Chunked(decoder) = &mut self.framing else { return Ok(()) };
        let mut at = 0;
        let input = buffer.filled();
        let used = loop {
            match decoder.decode(input, at).map_err(|_| FlowError::Coding)? {
                ChunkEvent::Data { range } => {
                    at = range.end;
                    if self.recoding == Recoding::DropTrailers {
                        // Writing to a Vec cannot fail.
                        let _ = write!(self.staged, "{:x}\r\n", range.len());
                        self.staged.extend_from_slice(&input[range]);
                        self.staged.extend_from_slice(b"\r\n");
                    } else {
                        self.staged.extend_from_slice(&input[range]);
                    }
                }
                ChunkEvent::More => break input.len(),
                ChunkEvent::Done { consumed } => break consumed,
            }
        };
        if decoder.is_done() {
            self.framing = Framing::Done;
            if self.recoding == Recoding::DropTrailers {
                self.staged.extend_from_slice(b"0\r\n\r\n");
            }
        }
        self.received += used as u64;
        self.admitted += used as u64;
        buffer.consume(used);
        Ok(())
    }

    /// Moves the body on as far as the sockets allow; `Ready` once all of it has been sent.
    pub(crate) fn poll_pump(
        &mut self,
        context: &mut Context<'_>,
        from: &mut Stream,
        buffer: &mut Buffer,
        to: &mut Stream,
    ) -> Poll<Result<(), FlowError>> {
        // What came with the head leaves with it, in one call.
        self.admit(buffer)?;
        loop {
            match self.poll_send(context, buffer, to) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending => return self.wait_for_receiver(buffer),
                failed => return failed,
            }
            if self.is_received() {
                return self.finished(to);
            }
            match self.poll_receive(context, from, buffer) {
                Poll::Ready(Ok(())) => {}
                other => {
                    self.release(to);
                    return other;
                }
            }
        }
    }

    /// As [`poll_pump`](Self::poll_pump), but lets the kernel move what needs not be looked at, through `pipe`.
    pub(crate) fn poll_pump_through(
        &mut self,
        context: &mut Context<'_>,
        from: &mut Stream,
        buffer: &mut Buffer,
        to: &mut Stream,
        pipe: &mut Option<Pipe>,
    ) -> Poll<Result<(), FlowError>> {
        loop {
            let Some(through) = pipe else { return self.poll_pump(context, from, buffer, to) };
            self.admit(buffer)?;
            match self.poll_send(context, buffer, to) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending => return self.wait_for_receiver(buffer),
                failed => return failed,
            }
            while !through.is_empty() {
                match through.poll_drain(context, to, self.spliceable() > 0) {
                    Poll::Ready(Ok(_)) => self.moved = true,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(FlowError::write(&error))),
                    Poll::Pending => return Poll::Pending,
                }
            }
            if self.is_received() {
                return self.finished(to);
            }
            let limit = self.spliceable();
            if limit < SPLICE_LEAST || !buffer.is_empty() {
                match self.poll_receive(context, from, buffer) {
                    Poll::Ready(Ok(())) => continue,
                    other => {
                        self.release(to);
                        return other;
                    }
                }
            }
            match through.poll_fill(context, from, limit) {
                Poll::Ready(Ok(0)) => self.end_of_stream()?,
                Poll::Ready(Ok(n)) => {
                    self.skip(n as u64);
                    self.moved = true;
                }
                // A socket that cannot be spliced is read the usual way.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => *pipe = None,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(FlowError::read(&error))),
                Poll::Pending => {
                    self.release(to);
                    return Poll::Pending;
                }
            }
        }
    }

    /// Reads once into `buffer` and admits what came.
    pub(crate) fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        from: &mut Stream,
        buffer: &mut Buffer,
    ) -> Poll<Result<(), FlowError>> {
        if buffer.len() > self.ready {
            // Bytes that came with the head.
            let before = self.received;
            self.admit(buffer)?;
            if self.received > before {
                return Poll::Ready(Ok(()));
            }
        }
        if buffer.is_empty() {
            self.fit(buffer);
        } else if buffer.room_len() == 0 {
            buffer.compact();
        }
        let room = buffer.room_len();
        if room == 0 {
            // A line of the coding that no buffer holds has no end for us.
            return if self.is_blocked() { Poll::Pending } else { Poll::Ready(Err(FlowError::Coding)) };
        }
        match from.poll_read(context, buffer.room()) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(FlowError::read(&error))),
            Poll::Ready(Ok(0)) => Poll::Ready(self.end_of_stream()),
            Poll::Ready(Ok(n)) => {
                self.moved = true;
                self.slow = false;
                self.bulk = n == room || n >= buffer::small_size();
                buffer.fill(n);
                Poll::Ready(self.admit(buffer))
            }
        }
    }

    /// Gives the empty `buffer` the size that the next read is worth.
    #[inline]
    fn fit(&self, buffer: &mut Buffer) {
        if self.slow {
            buffer.shrink();
        } else if self.bulk && buffer.capacity() < buffer::LARGE {
            *buffer = Buffer::for_body();
        }
    }

    /// The receiver takes no more for now: what it may not take for long is kept in as little memory as holds it.
    #[cold]
    fn wait_for_receiver(&mut self, buffer: &mut Buffer) -> Poll<Result<(), FlowError>> {
        self.slow = true;
        buffer.shrink();
        Poll::Pending
    }

    fn end_of_stream(&mut self) -> Result<(), FlowError> {
        if !self.is_until_close() {
            return Err(FlowError::Read(ConnectionError::default()));
        }
        self.framing = Framing::Done;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (own, _) = listener.accept().unwrap();
        own.set_nonblocking(true).unwrap();
        (Stream::from_fd(own.into(), true), peer)
    }

    /// All that has arrived by now.
    fn arrived(peer: &mut TcpStream) -> usize {
        let mut all = Vec::new();
        peer.set_nonblocking(true).unwrap();
        let _ = peer.read_to_end(&mut all);
        all.len()
    }

    #[test]
    fn a_sender_that_pauses_behind_a_full_buffer_holds_nothing_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (length, ended) in [
            (BodyLength::Length(1 << 20), false),
            (BodyLength::UntilClose, false),
            (BodyLength::UntilClose, true),
        ] {
            let ((mut from, mut sender), (mut to, mut receiver)) = (pair(), pair());
            let (mut flow, mut buffer) = (Flow::default(), Buffer::large());
            flow.start(length, Recoding::None);
            sender.write_all(&vec![b'x'; 2 * buffer.capacity()]).unwrap();
            if ended {
                sender.shutdown(std::net::Shutdown::Write).unwrap();
            }
            let pumped = runtime.block_on(poll_fn(|context| {
                Poll::Ready(flow.poll_pump(context, &mut from, &mut buffer, &mut to).map(|sent| sent.is_ok()))
            }));
            assert_eq!(pumped, if ended { Poll::Ready(true) } else { Poll::Pending });
            assert_eq!(arrived(&mut receiver), 2 * buffer.capacity());
        }
    }

    fn admitted(length: BodyLength, recoding: Recoding, parts: &[&[u8]]) -> (Vec<u8>, usize, bool) {
        let mut flow = Flow::default();
        flow.start(length, recoding);
        let mut buffer = Buffer::sized(1024);
        for part in parts {
            buffer.push(part);
            flow.admit(&mut buffer).unwrap();
        }
        let mut out = flow.staged.clone();
        out.extend_from_slice(&buffer.filled()[..flow.ready]);
        (out, buffer.len() - flow.ready, flow.is_received())
    }

    #[test]
    fn bytes_behind_the_body_are_not_part_of_it() {
        let (out, rest, done) = admitted(BodyLength::Length(5), Recoding::None, &[b"hel", b"loGET /"]);
        assert_eq!((out.as_slice(), rest, done), (b"hello".as_slice(), 5, true));
        let chunked: &[u8] = b"3\r\nabc\r\n0\r\n\r\nGET";
        let (out, rest, done) = admitted(BodyLength::Chunked, Recoding::None, &[chunked]);
        assert_eq!((out.as_slice(), rest, done), (b"3\r\nabc\r\n0\r\n\r\n".as_slice(), 3, true));
    }

    #[test]
    fn chunks_are_taken_off_wherever_they_are_cut() {
        let chunked: &[u8] = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n";
        for cut in 0..chunked.len() {
            let (out, rest, done) =
                admitted(BodyLength::Chunked, Recoding::Dechunk, &[&chunked[..cut], &chunked[cut..]]);
            assert_eq!((out.as_slice(), rest, done), (b"abcde".as_slice(), 0, true), "cut at {cut}");
        }
    }

    #[test]
    fn trailers_are_dropped_wherever_the_body_is_cut() {
        let chunked: &[u8] = b"3;x=y\r\nabc\r\n0\r\nT: v\r\nU: w\r\n\r\nnext";
        for cut in 0..chunked.len() {
            let (out, rest, done) =
                admitted(BodyLength::Chunked, Recoding::DropTrailers, &[&chunked[..cut], &chunked[cut..]]);
            assert!(out.ends_with(b"\r\n0\r\n\r\n") && !out.contains(&b':'), "cut at {cut}");
            assert_eq!((rest, done), (4, true), "cut at {cut}");
        }
    }

    #[test]
    fn a_discarded_body_leaves_what_follows_it() {
        let (out, rest, done) = admitted(BodyLength::Length(5), Recoding::Discard, &[b"hel", b"lonext"]);
        assert_eq!((out.as_slice(), rest, done), (b"".as_slice(), 4, true));
    }
}
