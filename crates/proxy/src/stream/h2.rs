//! The HTTP/2 engine behind the traits of [`stream`](super): reset codes, counters, and output in several pieces.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use fields::Scheme;
use h2::{Code, Counts, Phase, StreamKey};
use http::Head;
use runtime::Buffer;
use sample::StreamFacts;
use state::counters::Multiplexed;

use super::protocol::unsent;
use super::{Lifecycle, Messages, Protocol, RequestEngine, Reset, SocketOutput};

/// The maximum number of output pieces per call: four frames of 16 KiB, and the frame headers between them.
const PARTS: usize = 16;

/// Payload that is sent without a copy.
#[derive(Debug)]
pub(crate) enum Payload {
    /// A buffer, which is returned to its pool when its bytes were sent.
    Pooled(Buffer),
    /// Bytes in static memory.
    Static(&'static [u8]),
}

// The static variant does not enlarge a payload.
const _: () = assert!(size_of::<Payload>() == size_of::<Buffer>());

impl AsRef<[u8]> for Payload {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Pooled(buffer) => buffer.filled(),
            Self::Static(bytes) => bytes,
        }
    }
}

/// The HTTP/2 engine over the worker's buffers.
pub(crate) type H2Engine = h2::Connection<Payload>;
/// The streams of one connection.
pub(crate) type H2Connection = super::EngineConnection<H2Engine>;
/// The incoming half of a stream.
pub(crate) type H2Incoming = super::IncomingHalf<H2Engine>;
/// A request. Dropping it resets the stream unless it has ended.
pub(crate) type H2Stream = super::EngineStream<H2Engine>;

/// The codes of RFC 9113, 7.
impl From<Code> for Reset {
    fn from(code: Code) -> Self {
        match code {
            Code::Cancel => Self::Cancelled,
            Code::RefusedStream => Self::Refused,
            Code::InternalError => Self::Internal,
            other => Self::Code(other.number().into()),
        }
    }
}

impl From<Reset> for Code {
    fn from(reset: Reset) -> Self {
        match reset {
            Reset::Cancelled => Self::Cancel,
            Reset::Refused => Self::RefusedStream,
            Reset::Internal => Self::InternalError,
            // HTTP/2 codes have 32 bits.
            Reset::Code(number) => u32::try_from(number).map_or(Self::InternalError, Self::from_number),
        }
    }
}

impl Protocol for H2Engine {
    type Key = StreamKey;

    const HTTP_MAJOR: u8 = 2;

    #[inline]
    fn place(key: StreamKey) -> usize {
        key.index()
    }

    #[inline]
    fn free(&self) -> usize {
        self.free()
    }

    #[inline]
    fn consume(&mut self, key: StreamKey, count: usize) {
        self.consume(key, count);
    }

    #[inline]
    fn release(&mut self, key: StreamKey, reset: Option<Reset>) {
        if let Some(reset) = reset {
            self.reset(key, reset.into());
        }
        self.release(key);
    }

    fn facts(&self, key: StreamKey, reset: Option<Reset>) -> StreamFacts {
        let open = u32::try_from(self.streams()).unwrap_or(u32::MAX);
        let reset = reset.map(|reset| Code::from(reset).number().into());
        StreamFacts { major: Self::HTTP_MAJOR, id: key.id().into(), open, most: self.most_streams(), reset }
    }

    fn shrink(&mut self) {
        self.shrink();
    }
}

impl SocketOutput for H2Engine {
    fn send(&mut self, socket: &mut net::Stream, context: &mut Context<'_>) -> io::Result<bool> {
        let mut wrote = false;
        loop {
            let mut parts = [IoSlice::new(&[]); PARTS];
            let count = self.output(&mut parts);
            if count == 0 {
                break;
            }
            match socket.poll_write_parts(context, &parts[..count]) {
                Poll::Pending => return Ok(wrote),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => {
                    self.sent(n);
                    wrote = true;
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        match socket.poll_flush(context) {
            Poll::Ready(flushed) => flushed.map(|()| wrote),
            Poll::Pending => Ok(wrote),
        }
    }
}

impl Messages for H2Engine {
    const SENDS_OWNED: bool = true;

    #[inline]
    fn head_mut(&mut self) -> &mut Head {
        self.head_mut()
    }

    fn send_head(&mut self, key: StreamKey, head: &Head, ends: bool) {
        self.send_head(key, head, ends);
    }

    #[inline]
    fn send_data(&mut self, key: StreamKey, data: &[u8], ends: bool) -> usize {
        self.send_data(key, data, ends)
    }

    #[inline]
    fn send_owned(&mut self, key: StreamKey, buffer: Buffer, ends: bool) -> Result<(), (Buffer, usize)> {
        let range = 0..buffer.len();
        match self.send_owned(key, Payload::Pooled(buffer), range, ends) {
            Err((Payload::Pooled(buffer), rest)) => unsent(buffer, rest.start),
            Ok(()) | Err((Payload::Static(_), _)) => Ok(()),
        }
    }

    fn send_static(&mut self, key: StreamKey, data: &'static [u8], ends: bool) -> usize {
        // The engine copies a payload that exceeds a window, so it gets exactly the part that fits.
        let fitting = data.len().min(self.sendable(key));
        let is_whole = fitting == data.len();
        match self.send_owned(key, Payload::Static(data), 0..fitting, ends && is_whole) {
            Err((_, rest)) => rest.start,
            // The stream waits for a larger window.
            Ok(()) if !is_whole => fitting + self.send_data(key, &data[fitting..], ends),
            Ok(()) => data.len(),
        }
    }

    fn send_trailers(&mut self, key: StreamKey, trailers: &Head) {
        self.send_trailers(key, trailers);
    }

    #[inline]
    fn next_writable(&mut self) -> Option<StreamKey> {
        self.next_writable()
    }

    #[inline]
    fn takes_heads(&self) -> bool {
        self.takes_heads()
    }
}

impl RequestEngine for H2Engine {
    fn open(&mut self, head: &Head, scheme: Scheme, ends: bool) -> Option<StreamKey> {
        self.open(head, scheme, ends).ok()
    }

    fn takes_upgrades(&self) -> bool {
        self.peer().connect_protocol
    }

    fn streams(&self) -> usize {
        self.streams()
    }
}

impl Lifecycle for H2Engine {
    fn ping(&mut self) {
        self.ping();
    }

    fn shutdown(&mut self) {
        self.shutdown(Phase::Announce);
    }

    fn close(&mut self, reset: Option<Reset>) {
        self.close(reset.map_or(Code::NoError, Code::from));
    }

    fn glitches(&self) -> u32 {
        self.glitches()
    }

    fn is_within_head(&self) -> bool {
        self.is_within_head()
    }

    fn pending(&self) -> usize {
        self.pending()
    }

    fn is_ours_to_close(&self) -> bool {
        self.is_ours_to_close()
    }

    fn count(&mut self, counters: &Multiplexed) {
        let counts = self.take_counts();
        if counts == Counts::default() {
            return;
        }
        let each = [
            (&counters.headers, counts.headers_received),
            (&counters.data, counts.data_received),
            (&counters.settings, counts.settings_received),
            (&counters.resets, counts.resets_received),
            (&counters.goaways, counts.goaways_received),
            (&counters.connection_errors, counts.connection_errors),
            (&counters.stream_errors, counts.stream_errors),
            (&counters.resets_answered, counts.resets_answered),
            (&counters.goaways_answered, counts.goaways_answered),
            (&counters.streams_total, counts.streams),
        ];
        for (counter, count) in each.into_iter().filter(|(_, count)| *count > 0) {
            counter.add(count.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reset_codes_round_trip() {
        for number in (0..16).chain([u32::MAX]) {
            let code = Code::from_number(number);
            assert_eq!(Code::from(Reset::from(code)), code);
        }
        assert_eq!(Code::from(Reset::Code(u64::MAX)), Code::InternalError);
    }
}
