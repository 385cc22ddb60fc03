//! Outgoing messages: heads, bodies and trailers (RFC 9114 sections 4.1, 7.2.1, 7.2.2).
//!
//! The transport applies backpressure. The rest of a copied body stays with the caller until `next_writable` returns the stream; the
//! rest of a head, a frame header or a piece of payload that is not copied is queued here.

use bytes::{Buf, Bytes};
use fields::Scheme;
use http::{Head, Method};

use super::{Connection, OpenError};
use crate::RequestKey;
use crate::frame::{FrameHeader, HEADER_MAX, kind};
use crate::limits;
use crate::qpack::{PREFIX_MAX, SectionWriter};
use crate::stream::{
    CONNECT, FLUSHABLE, HEAD_METHOD, KNOWN, LOCAL_ENDED, RELEASED, RequestStream, STOPPED, WAITING, WRITABLE,
    WRITE_DONE,
};
use crate::transport::{Stopped, Streams};
use crate::varint;
use fields::Role;

/// Writes until the transport is blocked; returns how much it took.
pub(super) fn write_all(streams: &mut impl Streams, id: u64, data: &[u8]) -> Result<usize, Stopped> {
    let mut at = 0;
    while at < data.len() {
        match streams.write(id, &data[at..])? {
            0 => break,
            count => at += count,
        }
    }
    Ok(at)
}

/// Like [`write_all`], without copying the data.
fn write_all_bytes(streams: &mut impl Streams, id: u64, data: &Bytes) -> Result<usize, Stopped> {
    let mut at = 0;
    while at < data.len() {
        match streams.write_bytes(id, data.slice(at..))? {
            0 => break,
            count => at += count,
        }
    }
    Ok(at)
}

/// Writes queued bytes; returns how many the transport took, from the output and from the payload behind it.
fn write_queued(
    streams: &mut impl Streams,
    id: u64,
    stream: &mut RequestStream,
) -> Result<(usize, usize), Stopped> {
    let output = write_all(streams, id, &stream.output)?;
    stream.output.drain(..output);
    let mut payload = 0;
    if stream.output.is_empty() && !stream.payload.is_empty() {
        payload = write_all_bytes(streams, id, &stream.payload)?;
        stream.payload.advance(payload);
        if stream.payload.is_empty() {
            // Releases the memory.
            stream.payload = Bytes::new();
        }
    }
    Ok((output, payload))
}

impl Connection {
    /// The number of requests that may be opened now, as a client. The transport may permit less.
    #[must_use]
    pub fn free(&self) -> usize {
        if self.role == Role::Server || self.is_ending() || self.is_exhausted {
            return 0;
        }
        (self.config.max_concurrent_streams as usize).saturating_sub(self.requests.len())
    }

    /// The configured limit of concurrent requests.
    #[must_use]
    pub fn most_streams(&self) -> u32 {
        self.config.max_concurrent_streams
    }

    /// Opens a stream with a request; `ends` means that it has no body. A request for an upgrade ([`fields::is_extended_connect`])
    /// requires [`crate::PeerSettings::connect_protocol`].
    ///
    /// # Errors
    /// The limit is reached, or the connection is shutting down.
    pub fn open_request(
        &mut self,
        streams: &mut impl Streams,
        head: &Head,
        scheme: Scheme,
        ends: bool,
    ) -> Result<RequestKey, OpenError> {
        if self.role == Role::Server || self.is_ending() {
            return Err(OpenError::Ending);
        }
        if self.free() == 0 {
            return Err(OpenError::Full);
        }
        let Some(id) = streams.open_bi() else {
            self.is_exhausted = true;
            return Err(OpenError::Full);
        };
        let key = self.requests.open(id);
        let stream = self.requests.at(key.slot);
        stream.flags |= KNOWN;
        stream.flags |= match head.method_id() {
            Method::Head => HEAD_METHOD,
            Method::Connect => CONNECT,
            _ if fields::is_extended_connect(head) => CONNECT,
            _ => 0,
        };
        self.count_request();
        self.send_section(streams, key, ends, |writer| fields::write_request(writer, head, scheme));
        Ok(key)
    }

    /// Sends an interim or final response head; `ends` means that it has no body. No effect if the stream is over.
    pub fn send_head(&mut self, streams: &mut impl Streams, key: RequestKey, head: &Head, ends: bool) {
        self.send_section(streams, key, ends, |writer| fields::write_response(writer, head));
    }

    /// Sends trailers and ends the message. The whole body must have been accepted before.
    pub fn send_trailers(&mut self, streams: &mut impl Streams, key: RequestKey, trailers: &Head) {
        self.send_section(streams, key, true, |writer| fields::write_trailers(writer, trailers));
    }

    fn send_section(
        &mut self,
        streams: &mut impl Streams,
        key: RequestKey,
        ends: bool,
        write: impl FnOnce(&mut SectionWriter<'_>),
    ) {
        let Some(stream) = self.requests.get(key).filter(|stream| stream.can_send()) else { return };
        debug_assert!(stream.frame_left == 0, "a body waits");
        if self.is_hq {
            // Only the body is sent.
            if ends {
                self.end_local(streams, key.slot);
            }
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        // The lengths of the frame header and the prefix are known only at the end.
        scratch.resize(FRONT, 0);
        let mut writer = self.encoder.section(key.id, &mut scratch, &mut self.own.encoder.output);
        write(&mut writer);
        let prefix = writer.finish();
        let start = put_front(&mut scratch, kind::HEADERS, prefix.bytes());
        if self.own.encoder.is_needed() {
            self.own.wake();
        }
        self.queue_by_copy(key.slot);
        self.write_or_queue(streams, key.slot, &scratch[start..]);
        self.scratch = scratch;
        if ends {
            self.end_local(streams, key.slot);
        }
    }

    /// Writes bytes, and queues those that the transport does not accept.
    fn write_or_queue(&mut self, streams: &mut impl Streams, slot: u32, data: &[u8]) {
        let stream = self.requests.at(slot);
        let taken = if stream.output.is_empty() { write_all(streams, stream.id, data) } else { Ok(0) };
        match taken {
            Ok(taken) => {
                stream.output.extend_from_slice(&data[taken..]);
                self.unsent += data.len() - taken;
            }
            Err(Stopped(code)) => {
                let id = stream.id;
                self.stopped(id, code);
            }
        }
    }

    /// Moves queued payload behind the queued bytes, so that more can follow it.
    fn queue_by_copy(&mut self, slot: u32) {
        let stream = self.requests.at(slot);
        if !stream.payload.is_empty() {
            let payload = std::mem::take(&mut stream.payload);
            stream.output.extend_from_slice(&payload);
            self.unsent_payload -= payload.len();
            self.unsent += payload.len();
        }
    }

    /// Discards the bytes that the transport did not take.
    pub(super) fn discard_output(&mut self, slot: u32) {
        let stream = self.requests.at(slot);
        self.unsent -= stream.output.len();
        self.unsent_payload -= stream.payload.len();
        stream.output.clear();
        stream.payload = Bytes::new();
    }

    /// Marks our message as complete.
    fn end_local(&mut self, streams: &mut impl Streams, slot: u32) {
        let stream = self.requests.at(slot);
        stream.flags |= LOCAL_ENDED;
        stream.flags &= !WAITING;
        if stream.queued() > 0 || stream.has(WRITE_DONE) {
            return;
        }
        stream.flags |= WRITE_DONE;
        let id = stream.id;
        match self.stops.iter().position(|stop| stop.0 == id).and_then(|at| self.stops.remove(at)) {
            // A write returned `Stopped`. QUIC expects RESET_STREAM as the answer.
            Some((_, code)) => {
                stream.flags |= STOPPED;
                streams.reset(id, code);
            }
            None => streams.finish(id),
        }
    }

    /// Sends as much of `data` as the transport takes, by copying it; returns the number of bytes accepted. If `ends` is set and all
    /// was accepted, which empty data always is, the message ends with it. Otherwise the stream waits, and `next_writable` returns
    /// it when it may continue. Since frames begin with their length, the rest must then follow, unless the stream is reset.
    ///
    /// If the stream is over, everything is accepted and discarded.
    pub fn send_data(
        &mut self,
        streams: &mut impl Streams,
        key: RequestKey,
        data: &[u8],
        ends: bool,
    ) -> usize {
        let mut at = 0;
        while at < data.len() {
            match self.send_some(streams, key, &data[at..]) {
                Some(0) => break,
                Some(count) => at += count,
                None => return data.len(),
            }
        }
        self.sent(streams, key, at == data.len(), ends);
        at
    }

    /// Sends the first bytes of `data`: those that the current frame still lacks, or those of a new frame. `None` if the stream is
    /// over.
    fn send_some(&mut self, streams: &mut impl Streams, key: RequestKey, data: &[u8]) -> Option<usize> {
        let stream = self.requests.get_mut(key).filter(|stream| stream.can_send())?;
        if stream.queued() > 0 {
            return Some(0);
        }
        if self.is_hq {
            stream.frame_left = data.len() as u64;
        } else if stream.frame_left == 0 {
            let copied = if data.len() <= limits::COPIED { data } else { &[] };
            let count = self.begin_frame(streams, key.slot, data.len(), copied)?;
            if count > 0 || !self.requests.at(key.slot).output.is_empty() {
                return Some(count);
            }
        }
        let stream = self.requests.at(key.slot);
        let length = stream.frame_left.min(data.len() as u64) as usize;
        match write_all(streams, key.id, &data[..length]) {
            Ok(count) => {
                stream.frame_left -= count as u64;
                Some(count)
            }
            Err(Stopped(code)) => self.discard(key, code),
        }
    }

    /// Writes the header of a DATA frame with `length` bytes, and the `copied` bytes behind it, which are the whole payload or
    /// nothing. Returns how many of them were taken; `None` if the stream is over.
    fn begin_frame(
        &mut self,
        streams: &mut impl Streams,
        slot: u32,
        length: usize,
        copied: &[u8],
    ) -> Option<usize> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        FrameHeader { kind: kind::DATA, length: length as u64 }.put(&mut scratch);
        let header = scratch.len();
        scratch.extend_from_slice(copied);
        let stream = self.requests.at(slot);
        let key = RequestKey { slot, id: stream.id };
        let written = write_all(streams, key.id, &scratch);
        let outcome = match written {
            Ok(0) => Some(0),
            Ok(written) => {
                let rest = header.saturating_sub(written);
                stream.output.extend_from_slice(&scratch[header - rest..header]);
                self.unsent += rest;
                let count = written.saturating_sub(header);
                stream.frame_left = (length - count) as u64;
                Some(count)
            }
            Err(Stopped(code)) => self.discard(key, code),
        };
        self.scratch = scratch;
        outcome
    }

    /// Records that the peer sent STOP_SENDING.
    fn discard(&mut self, key: RequestKey, code: u64) -> Option<usize> {
        self.requests.at(key.slot).frame_left = 0;
        self.stopped(key.id, code);
        None
    }

    /// Whether a stream has queued output, which must be sent before more payload. If so, the stream waits, and `next_writable` returns
    /// it when it may continue.
    pub fn is_blocked(&mut self, key: RequestKey) -> bool {
        let Some(stream) = self.requests.get_mut(key).filter(|stream| stream.can_send()) else {
            return false;
        };
        let is_blocked = stream.queued() > 0;
        if is_blocked {
            stream.flags |= WAITING;
        }
        is_blocked
    }

    /// Sends `data` without copying it. The part that the transport does not take yet is queued, so a caller that is not to queue more
    /// than one piece calls [`Connection::is_blocked`] before each. If `ends` is set, the message ends with it.
    ///
    /// If the stream is over, `data` is discarded.
    pub fn send_bytes(&mut self, streams: &mut impl Streams, key: RequestKey, data: Bytes, ends: bool) {
        if self.write_bytes(streams, key, data).is_some() {
            self.sent(streams, key, true, ends);
        }
    }

    /// Writes or queues `data` as a frame, or as the part of one that the caller still owed. `None` if the stream is over.
    fn write_bytes(&mut self, streams: &mut impl Streams, key: RequestKey, mut data: Bytes) -> Option<()> {
        while !data.is_empty() {
            self.queue_by_copy(key.slot);
            let stream = self.requests.get_mut(key).filter(|stream| stream.can_send())?;
            if self.is_hq {
                stream.frame_left = data.len() as u64;
            } else if stream.frame_left == 0 {
                self.put_frame_header(streams, key, data.len())?;
            }
            let stream = self.requests.at(key.slot);
            // Cannot truncate: it is at most the length of `data`.
            let mut piece = data.split_to(stream.frame_left.min(data.len() as u64) as usize);
            stream.frame_left -= piece.len() as u64;
            if stream.output.is_empty() {
                match write_all_bytes(streams, key.id, &piece) {
                    Ok(count) => piece.advance(count),
                    Err(Stopped(code)) => return self.discard(key, code).map(drop),
                }
            }
            if !piece.is_empty() {
                self.unsent_payload += piece.len();
                self.requests.at(key.slot).payload = piece;
            }
        }
        Some(())
    }

    /// Writes or queues the header of a DATA frame with `length` bytes. `None` if the stream is over.
    fn put_frame_header(&mut self, streams: &mut impl Streams, key: RequestKey, length: usize) -> Option<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        FrameHeader { kind: kind::DATA, length: length as u64 }.put(&mut scratch);
        self.write_or_queue(streams, key.slot, &scratch);
        self.scratch = scratch;
        let stream = self.requests.get_mut(key).filter(|stream| stream.can_send())?;
        stream.frame_left = length as u64;
        Some(())
    }

    /// Called after the caller passed payload: ends the message, or lets the stream wait.
    fn sent(&mut self, streams: &mut impl Streams, key: RequestKey, is_whole: bool, ends: bool) {
        let Some(stream) = self.requests.get_mut(key).filter(|stream| stream.can_send()) else { return };
        if is_whole {
            stream.flags &= !WAITING;
            if ends {
                self.end_local(streams, key.slot);
            }
        } else {
            stream.flags |= WAITING;
        }
    }

    /// Flushes queued output to the streams that the transport reported as writable.
    pub(super) fn flush_requests(&mut self, streams: &mut impl Streams) {
        while let Some(slot) = self.flushable.pop_front() {
            let stream = self.requests.at(slot);
            stream.flags &= !FLUSHABLE;
            let id = stream.id;
            match write_queued(streams, id, stream) {
                Ok((output, payload)) => {
                    self.unsent -= output;
                    self.unsent_payload -= payload;
                }
                Err(Stopped(code)) => {
                    self.stopped(id, code);
                    continue;
                }
            }
            if stream.queued() > 0 {
                continue;
            }
            if stream.has(LOCAL_ENDED) {
                self.end_local(streams, slot);
                if self.requests.at(slot).has(RELEASED) {
                    self.forget(slot);
                }
            } else if stream.flags & (WAITING | WRITABLE) == WAITING {
                stream.flags |= WRITABLE;
                self.writable.push_back(slot);
            }
        }
    }

    /// The next waiting stream that may send. It no longer waits: the caller sends its data (and waits again if there is more than
    /// the transport takes), or has nothing to send any more. Call until it returns `None`, after [`Connection::next`].
    pub fn next_writable(&mut self) -> Option<RequestKey> {
        let slot = self.writable.pop_front()?;
        self.requests.at(slot).flags &= !(WRITABLE | WAITING);
        Some(self.requests.key(slot))
    }

    /// Whether a stream may continue to send.
    #[must_use]
    pub fn has_writable(&self) -> bool {
        !self.writable.is_empty()
    }
}

/// The room before the lines of a field section.
const FRONT: usize = HEADER_MAX + PREFIX_MAX;

/// Writes the header of a frame and the prefix of its field section into the room before the lines; returns where it starts.
fn put_front(bytes: &mut [u8], kind: u64, prefix: &[u8]) -> usize {
    let payload = FRONT - prefix.len();
    bytes[payload..FRONT].copy_from_slice(prefix);
    let length = (bytes.len() - payload) as u64;
    let start = payload - varint::size(kind) - varint::size(length);
    let middle = start + varint::write(kind, &mut bytes[start..]);
    varint::write(length, &mut bytes[middle..]);
    start
}
