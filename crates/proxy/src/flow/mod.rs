//! One direction of a message or of a TCP stream: bytes flow from a [`Source`] to a [`Sink`]. Called by the steps of an exchange,
//! by `tunnel` and by `respond`.
//!
//! A [`Flow`] is either verbatim or payload ([`Path`]). Verbatim bytes are sent from one HTTP/1 or TCP socket to another with
//! their coding unchanged, from the buffer into which they were received, or through a pipe. Payload is decoded and encoded
//! again, for any pair of protocols. In both cases, the flow knows how the body ends and which buffered bytes belong to it, so
//! that it leaves a pipelined request after the body in the buffer.

mod ahead;
mod filter;
mod filters;
mod gate;
mod lua;
mod pump;
mod rank;
mod repeated;
mod send;
mod sink;
mod socket;
mod source;
mod stored;
mod tap;
mod tracer;

use std::io;

use http::{BodyLength, Head};
use net::splice::Pipe;
use sample::ConnectionError;

pub(crate) use filter::Filter;
pub(crate) use filters::Filters;
pub(crate) use gate::{Gate, SharedRate, Throttle};
pub(crate) use rank::{EVERYWHERE, Rank, Stretch};
pub(crate) use repeated::{Repeated, RepeatedBytes};
pub(crate) use sink::{Coding, Following, Sink};
pub(crate) use socket::Socket;
pub(crate) use source::{Beginning, CachedBody, Decoding, MemoryBody, Source};
pub(crate) use tap::{Tap, Tapped, tap};
pub(crate) use tracer::{Analyser, Trace, Tracer, Watcher, bit};
pub use tracer::{Life, trace_process};

use source::Framing;

/// How bytes are processed on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Path {
    /// The bytes are forwarded unchanged, including their framing, because both sides use HTTP/1 or both use TCP.
    #[default]
    Verbatim,
    /// Only the payload is extracted. It is written with this coding.
    Payload(Coding),
    /// The payload passes through the filters, and their output is written with this coding.
    Filtered(Coding),
}

/// Bodies up to this size are copied after their head, because the kernel handles one piece faster than two.
const COPY: usize = 2048;

/// The smallest segment size that IPv6 guarantees (RFC 8200, 5), minus the headers with all their options.
const SEGMENT: usize = 1280 - 120;

/// Bodies of at least this length use a pipe if the options allow it.
const SPLICE_FROM: u64 = 64 * 1024;

/// Why a direction stopped before its end.
#[derive(Debug)]
pub(crate) enum FlowError {
    /// Reading failed, with this kernel error, or the sender closed early.
    Read(ConnectionError),
    /// Writing failed, with this kernel error.
    Write(ConnectionError),
    /// The chunked coding is malformed.
    Coding,
    /// A script filter failed.
    Filter,
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

    /// Returns the error for a write of zero bytes without a kernel error.
    #[cold]
    fn unwritten() -> Self {
        Self::Write(ConnectionError::default())
    }
}

/// One direction of a message or stream.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    framing: Framing,
    path: Path,
    /// Bytes to send before those in the buffer: the head, or encoded parts of the body.
    pub(crate) staged: Vec<u8>,
    staged_sent: usize,
    /// How many bytes at the start of the buffer belong to the body and may be sent unchanged.
    ready: usize,
    /// How many bytes were written to the receiver, including staged ones.
    pub(crate) sent: u64,
    /// How many bytes of the body were received, in the sender's coding.
    pub(crate) received: u64,
    /// How many received bytes were decoded or made ready (in the form in which they are sent).
    admitted: u64,
    /// How many bytes were spliced through a pipe.
    pub(crate) spliced: u64,
    /// The kernel pipe, if the options allow splicing.
    pub(crate) pipe: Option<Pipe>,
    /// Trailers that still have to be sent.
    trailers: Option<Box<Head>>,
    /// Whether trailers are dropped (`option http-drop-request-trailers`, `-response-`).
    pub(crate) drops_trailers: bool,
    /// The payload's filters, if its path has any.
    pub(crate) filters: Option<Box<Filters>>,
    /// The gate of a direction that has limits or traces but no filter that changes the payload. Usually `None`.
    pub(crate) gate: Option<Box<Gate>>,
    /// Whether the last call moved any bytes. If so, the caller extends its deadline.
    pub(crate) moved: bool,
    /// Whether the caller closes the receiver's connection after everything is sent. If so, the last bytes and the end are sent
    /// together.
    pub(crate) ends: bool,
    /// Whether the last read filled more than a small buffer. If so, the next read uses a large buffer.
    bulk: bool,
    /// Whether the receiver has blocked since the last read. If so, unsent bytes are kept in as little memory as possible.
    slow: bool,
    /// How many reads produced the filter output that is not staged yet.
    gathered: u8,
    /// Whether the kernel holds back the last partial segment until more data follows.
    held: bool,
    /// Whether a buffer was handed over to a stream that has not sent all of it yet.
    handed_over: bool,
}

impl Flow {
    /// Resets the flow for a body with an end marked as `length` specifies. Its memory is reused.
    pub(crate) fn start(&mut self, length: BodyLength, path: Path) {
        self.staged.clear();
        self.staged_sent = 0;
        self.ready = 0;
        self.sent = 0;
        self.received = 0;
        self.admitted = 0;
        self.spliced = 0;
        self.path = path;
        self.trailers = None;
        self.drops_trailers = false;
        self.pipe = None;
        self.gate = None;
        self.filters = None;
        self.ends = false;
        self.held = false;
        self.bulk = false;
        self.slow = false;
        self.gathered = 0;
        self.handed_over = false;
        self.framing = Framing::new(length);
    }

    /// Like [`start`](Self::start), for a body that passes through `filters`.
    pub(crate) fn start_filtered(&mut self, length: BodyLength, path: Path, mut filters: Box<Filters>) {
        let coding = match path {
            Path::Verbatim => Coding::Chunked,
            Path::Payload(coding) | Path::Filtered(coding) => coding,
        };
        self.start(length, Path::Filtered(coding));
        filters.start(coding);
        self.filters = Some(filters);
    }

    /// Whether the whole body has been received.
    pub(crate) fn is_received(&self) -> bool {
        matches!(self.framing, Framing::Done)
    }

    /// Whether the sender's payload has ended, even if filters still hold some of it.
    fn has_ended(&self) -> bool {
        matches!(self.framing, Framing::Done | Framing::Held)
    }

    /// Whether filters hold any payload, so that nothing more may be read.
    pub(crate) fn is_held(&self) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.holds())
    }

    /// Whether the flow has limits or traces.
    pub(crate) fn is_gated(&self) -> bool {
        self.gate.is_some() || self.filters.as_ref().is_some_and(|filters| filters.has_gates())
    }

    /// Removes limits and traces, once all bytes have passed.
    #[cold]
    pub(crate) fn remove_gates(&mut self) {
        self.gate = None;
        if let Some(filters) = &mut self.filters {
            filters.remove_gates();
        }
    }

    /// Whether everything has been sent, including trailers.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_received() && !self.is_blocked() && self.trailers.is_none()
    }

    /// Whether the receiver gets no body at all.
    pub(crate) fn sends_no_body(&self) -> bool {
        self.path == Path::Payload(Coding::Nothing)
    }

    /// Whether everything was received and fits in one write and one segment.
    pub(crate) fn is_one_write(&self) -> bool {
        self.is_received() && self.gate.is_none() && self.staged.len() + self.ready <= SEGMENT
    }

    /// Returns how many staged bytes remain to be sent.
    pub(crate) fn staged_left(&self) -> usize {
        self.staged.len() - self.staged_sent
    }

    /// Whether any bytes are waiting to be sent.
    pub(crate) fn is_blocked(&self) -> bool {
        self.has_unsent() || self.handed_over || !self.pipe.as_ref().is_none_or(Pipe::is_empty)
    }

    /// Whether any bytes are waiting to be sent, not counting those in the pipe.
    #[inline]
    fn has_unsent(&self) -> bool {
        self.ready > 0 || self.staged_sent < self.staged.len()
    }

    /// Returns how many bytes at the start of the buffer may be sent unchanged.
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// Returns how many bytes of the body have left the buffer since [`start`](Self::start), in the form in which they are sent.
    /// They were sent, staged, or lost with a broken connection.
    pub(crate) fn consumed(&self) -> u64 {
        self.admitted - self.ready as u64
    }

    /// Whether the body, according to its framing, is long enough for a pipe to be worthwhile.
    pub(crate) fn is_long(&self) -> bool {
        match self.framing {
            // Bytes that pass through filters cannot be spliced.
            _ if self.filters.is_some() => false,
            Framing::Length(n) => n >= SPLICE_FROM,
            Framing::Chunked(_) | Framing::UntilClose => true,
            Framing::Done | Framing::Held => false,
        }
    }

    /// Whether closing the connection ends the body.
    pub(crate) fn is_until_close(&self) -> bool {
        matches!(self.framing, Framing::UntilClose)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::Stream;
    use runtime::Buffer;
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::task::Poll;

    fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (own, _) = listener.accept().unwrap();
        own.set_nonblocking(true).unwrap();
        (Stream::from_fd(own.into(), true), peer)
    }

    /// Reads everything that has arrived so far.
    fn read_arrived(peer: &mut TcpStream) -> Vec<u8> {
        let mut all = Vec::new();
        peer.set_nonblocking(true).unwrap();
        let _ = peer.read_to_end(&mut all);
        all
    }

    fn arrived(peer: &mut TcpStream) -> usize {
        read_arrived(peer).len()
    }

    #[test]
    fn a_pause_after_a_full_buffer_sends_everything() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        for (length, ended) in [
            (BodyLength::Length(1 << 20), false),
            (BodyLength::UntilClose, false),
            (BodyLength::UntilClose, true),
        ] {
            let ((from, mut sender), (mut to, mut receiver)) = (pair(), pair());
            let (mut flow, buffer) = (Flow::default(), Buffer::large());
            let room = buffer.capacity();
            let mut from = Socket { stream: from, input: Some(buffer) };
            flow.start(length, Path::Verbatim);
            sender.write_all(&vec![b'x'; 2 * room]).unwrap();
            if ended {
                sender.shutdown(std::net::Shutdown::Write).unwrap();
            }
            let pumped = runtime.block_on(poll_fn(|context| {
                let sent = flow.poll_pump(context, Source::Socket(&mut from), &mut Sink::Socket(&mut to));
                Poll::Ready(sent.map(|sent| sent.is_ok()))
            }));
            assert_eq!(pumped, if ended { Poll::Ready(true) } else { Poll::Pending });
            assert_eq!(arrived(&mut receiver), 2 * room);
        }
    }

    /// Returns the sizes of the chunks into which `count` compressed zeros are packed.
    fn chunks_of_zeros(count: usize) -> Vec<usize> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let ((from, mut sender), (mut to, mut receiver)) = (pair(), pair());
        let settings = compress::CoderSettings { level: 1, window_bits: 15, memory_level: 8, most_memory: 0 };
        let encoder = compress::Encoder::new(compress::Algorithm::Gzip, &settings).unwrap();
        let rank = Rank { of_backend: true, place: 0 };
        let filters = Filters::of([(rank, Filter::compress(encoder))]).unwrap();
        let mut flow = Flow::default();
        flow.start_filtered(BodyLength::UntilClose, Path::Payload(Coding::Chunked), filters);
        let mut from = Socket { stream: from, input: Some(Buffer::large()) };
        let sending = std::thread::spawn(move || sender.write_all(&vec![0; count]).unwrap());
        if count < Buffer::large().capacity() * 2 {
            sending.join().unwrap();
        }
        runtime
            .block_on(poll_fn(|context| {
                flow.poll_pump(context, Source::Socket(&mut from), &mut Sink::Socket(&mut to))
            }))
            .unwrap();
        let (mut bytes, mut sizes) = (&read_arrived(&mut receiver)[..], Vec::new());
        while !bytes.is_empty() {
            let line = bytes.iter().position(|byte| *byte == b'\r').unwrap();
            let size = std::str::from_utf8(&bytes[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            sizes.push(size);
            bytes = &bytes[line + 2 + size + 2..];
        }
        sizes
    }

    #[test]
    fn small_compressed_output_is_sent_together() {
        // The output of two reads, then the end of the body, then the last chunk.
        let sizes = chunks_of_zeros(100_000);
        assert!(sizes.len() <= 3, "{sizes:?}");
        assert_eq!(sizes.last(), Some(&0));
        // No output is held back for more than four reads.
        let sizes = chunks_of_zeros(4 << 20);
        assert!(sizes.len() > (4 << 20) / (4 * Buffer::large().capacity()), "{sizes:?}");
    }

    fn admitted(length: BodyLength, path: Path, parts: &[&[u8]]) -> (Vec<u8>, usize, bool) {
        let mut flow = Flow::default();
        flow.start(length, path);
        flow.drops_trailers = true;
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
    fn bytes_after_the_body_are_not_part_of_it() {
        let (out, rest, done) = admitted(BodyLength::Length(5), Path::Verbatim, &[b"hel", b"loGET /"]);
        assert_eq!((out.as_slice(), rest, done), (b"hello".as_slice(), 5, true));
        let chunked: &[u8] = b"3\r\nabc\r\n0\r\n\r\nGET";
        let (out, rest, done) = admitted(BodyLength::Chunked, Path::Verbatim, &[chunked]);
        assert_eq!((out.as_slice(), rest, done), (b"3\r\nabc\r\n0\r\n\r\n".as_slice(), 3, true));
    }

    #[test]
    fn chunks_are_decoded_wherever_they_are_cut() {
        let chunked: &[u8] = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n";
        for cut in 0..chunked.len() {
            let (out, rest, done) = admitted(
                BodyLength::Chunked,
                Path::Payload(Coding::Bare),
                &[&chunked[..cut], &chunked[cut..]],
            );
            assert_eq!((out.as_slice(), rest, done), (b"abcde".as_slice(), 0, true), "cut at {cut}");
        }
    }

    #[test]
    fn trailers_are_dropped_wherever_the_body_is_cut() {
        let chunked: &[u8] = b"3;x=y\r\nabc\r\n0\r\nT: v\r\nU: w\r\n\r\nnext";
        for cut in 0..chunked.len() {
            let (out, rest, done) = admitted(
                BodyLength::Chunked,
                Path::Payload(Coding::Chunked),
                &[&chunked[..cut], &chunked[cut..]],
            );
            assert!(out.ends_with(b"\r\n0\r\n\r\n") && !out.contains(&b':'), "cut at {cut}");
            assert_eq!((rest, done), (4, true), "cut at {cut}");
        }
    }

    #[test]
    fn a_discarded_body_leaves_the_bytes_after_it() {
        let (out, rest, done) =
            admitted(BodyLength::Length(5), Path::Payload(Coding::Nothing), &[b"hel", b"lonext"]);
        assert_eq!((out.as_slice(), rest, done), (b"".as_slice(), 4, true));
    }
}
