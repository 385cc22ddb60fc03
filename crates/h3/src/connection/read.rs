//! Reads request streams: frame headers, bodies, and the ends of streams (RFC 9114 sections 4.1, 7.1, 7.2).

use bytes::{Buf, Bytes};

use super::{Connection, Role, is_request};
use crate::event::{H3Event, ResetBy};
use crate::fault::{self, FaultReason, Violation};
use crate::frame::{FrameHeader, HEADER_MAX, kind};
use crate::limits;
use crate::stream::{
    ANY_LENGTH, BLOCKED, CONNECT, FramePosition, HEAD_RECEIVED, KNOWN, PAUSED, READ_DONE, REMOTE_ENDED,
    RESET, RESET_BY_PEER, SeenEnd, TRAILERS,
};
use crate::transport::{StreamChunk, Streams};
use crate::{Code, RequestKey};

/// The result of one step through a stream.
pub(super) enum ReadStep {
    /// More bytes are needed, or the caller must consume some.
    More,
    /// The next step may follow.
    Again,
    /// An event for the caller.
    Event(H3Event),
}

pub(super) type StepOutcome = Result<ReadStep, Violation>;

/// The next bytes of a stream.
enum Filled {
    /// The stream has input.
    Input,
    More,
    End(SeenEnd),
}

impl Connection {
    /// Accepts a bidirectional stream of the peer, or rejects it.
    pub(super) fn arrive(
        &mut self,
        id: u64,
        streams: &mut impl Streams,
    ) -> Result<Option<H3Event>, Violation> {
        if self.role == Role::Client || !is_request(id) {
            return Err(Violation::BidiByServer);
        }
        self.next_id = self.next_id.max(id + 4);
        if self.going.is_some_and(|going| id >= going) {
            self.reject(id, Violation::Ending, streams);
            self.waste(1)?;
            return Ok(None);
        }
        let limit = self.config.max_total_streams;
        if limit > 0 && self.total >= limit.saturating_add(self.config.max_concurrent_streams) {
            return Err(Violation::TotalStreams);
        }
        if self.requests.len() >= self.config.max_concurrent_streams.max(1) as usize {
            let (violation, code) = (Violation::TooManyStreams, Code::RequestRejected);
            self.reject(id, violation, streams);
            self.glitch();
            return Ok(Some(H3Event::Refused { id, code, reason: FaultReason::Violation(violation) }));
        }
        if self.requests.find(id).is_none() {
            let key = self.requests.open(id);
            self.make_ready(key.slot);
        }
        Ok(None)
    }

    /// Ends a stream that gets no slot.
    fn reject(&mut self, id: u64, violation: Violation, streams: &mut impl Streams) {
        violation.note();
        self.counts.note(violation.code());
        streams.stop(id, violation.code().number());
        streams.reset(id, violation.code().number());
    }

    /// Reads a stream up to the next event. A stream with an event is read on after the others.
    pub(super) fn read_request(
        &mut self,
        slot: u32,
        streams: &mut impl Streams,
    ) -> Result<Option<H3Event>, Violation> {
        loop {
            let stream = self.requests.at(slot);
            if stream.has(READ_DONE | RESET | PAUSED | BLOCKED) {
                return Ok(None);
            }
            let step = match stream.reading {
                FramePosition::Header if self.is_hq => self.take_line(slot, streams)?,
                FramePosition::Header => self.take_header(slot, streams)?,
                FramePosition::Section(left) => self.take_section(slot, left, streams)?,
                FramePosition::Data(left) => self.take_data(slot, left, streams)?,
                FramePosition::Skip(left) => self.take_skipped(slot, left, streams)?,
            };
            match step {
                ReadStep::More => return Ok(None),
                ReadStep::Again if self.must_wait() => {
                    self.make_ready(slot);
                    return Ok(None);
                }
                ReadStep::Again => {}
                ReadStep::Event(event) => {
                    self.make_ready(slot);
                    return Ok(Some(event));
                }
            }
        }
    }

    /// Reads from the transport if the input is empty.
    fn fill(&mut self, slot: u32, streams: &mut impl Streams) -> Filled {
        let stream = self.requests.at(slot);
        if !stream.input.is_empty() {
            return Filled::Input;
        }
        if let Some(end) = stream.seen_end {
            return Filled::End(end);
        }
        match streams.read(stream.id, limits::READ) {
            StreamChunk::Bytes(bytes) => {
                stream.input = bytes;
                Filled::Input
            }
            StreamChunk::Blocked => Filled::More,
            StreamChunk::Finished => {
                stream.seen_end = Some(SeenEnd::Finished);
                Filled::End(SeenEnd::Finished)
            }
            StreamChunk::Reset(code) => {
                stream.seen_end = Some(SeenEnd::Reset(code));
                Filled::End(SeenEnd::Reset(code))
            }
        }
    }

    /// Reads a frame header.
    fn take_header(&mut self, slot: u32, streams: &mut impl Streams) -> StepOutcome {
        match self.fill(slot, streams) {
            Filled::Input => {}
            Filled::More => return Ok(ReadStep::More),
            Filled::End(SeenEnd::Reset(code)) => return Ok(self.take_reset(slot, code, streams)),
            Filled::End(SeenEnd::Finished) => return self.take_end(slot, streams),
        }
        let stream = self.requests.at(slot);
        if stream.header.length == 0 {
            let mut rest = &stream.input[..];
            if let Some(header) = FrameHeader::take(&mut rest) {
                let taken = stream.input.len() - rest.len();
                stream.input.advance(taken);
                return self.frame(slot, header, streams);
            }
        }
        // The header arrives in pieces.
        let before = usize::from(stream.header.length);
        let more = stream.input.len().min(HEADER_MAX - before);
        stream.header.bytes[before..before + more].copy_from_slice(&stream.input[..more]);
        let mut rest = &stream.header.bytes[..before + more];
        let Some(header) = FrameHeader::take(&mut rest) else {
            stream.header.length += more as u8;
            stream.input.clear();
            return Ok(ReadStep::Again);
        };
        let unused = rest.len();
        stream.header.length = 0;
        stream.input.advance(more - unused);
        self.frame(slot, header, streams)
    }

    /// Begins a frame.
    fn frame(&mut self, slot: u32, header: FrameHeader, streams: &mut impl Streams) -> StepOutcome {
        match header.kind {
            kind::DATA => self.data_frame(slot, header.length, streams),
            kind::HEADERS => self.headers_frame(slot, header.length, streams),
            kind::PUSH_PROMISE => {
                self.counts.push_promise += 1;
                Err(if self.role == Role::Server { Violation::WrongSide } else { Violation::Push })
            }
            kind::CANCEL_PUSH
            | kind::SETTINGS
            | kind::GOAWAY
            | kind::MAX_PUSH_ID
            | kind::PRIORITY_UPDATE
            | kind::PRIORITY_UPDATE_PUSH => Err(Violation::ControlFrame),
            reserved if kind::is_reserved(reserved) => Err(Violation::ReservedFrame),
            _ => {
                self.waste(1)?;
                self.requests.at(slot).reading = skip(header.length);
                Ok(ReadStep::Again)
            }
        }
    }

    fn data_frame(&mut self, slot: u32, length: u64, streams: &mut impl Streams) -> StepOutcome {
        self.counts.data += 1;
        let stream = self.requests.at(slot);
        if !stream.has(HEAD_RECEIVED) {
            return Err(Violation::DataBeforeHead);
        }
        if stream.has(TRAILERS) {
            return Err(Violation::AfterTrailers);
        }
        if stream.due != ANY_LENGTH && length > stream.due {
            return Ok(self.stream_fault(slot, FaultReason::Violation(Violation::Length), streams));
        }
        if length == 0 {
            self.waste(1)?;
            return Ok(ReadStep::Again);
        }
        stream.reading = FramePosition::Data(length);
        Ok(ReadStep::Again)
    }

    fn headers_frame(&mut self, slot: u32, length: u64, streams: &mut impl Streams) -> StepOutcome {
        self.counts.headers += 1;
        let max = self.config.max_section() as u64;
        let stream = self.requests.at(slot);
        if stream.has(TRAILERS) {
            return Err(Violation::AfterTrailers);
        }
        if stream.has(HEAD_RECEIVED) && stream.has(CONNECT) {
            return Err(Violation::Tunnel);
        }
        if stream.has(HEAD_RECEIVED) && !matches!(stream.due, 0 | ANY_LENGTH) {
            return Ok(self.stream_fault(slot, FaultReason::Violation(Violation::Length), streams));
        }
        if length > max {
            return Ok(self.stream_fault(slot, FaultReason::Violation(Violation::SectionTooLarge), streams));
        }
        stream.reading = FramePosition::Section(length as usize);
        Ok(ReadStep::Again)
    }

    /// Ignores bytes of an unknown frame.
    fn take_skipped(&mut self, slot: u32, left: u64, streams: &mut impl Streams) -> StepOutcome {
        if let Some(step) = self.fill_payload(slot, streams)? {
            return Ok(step);
        }
        let stream = self.requests.at(slot);
        let taken = left.min(stream.input.len() as u64);
        stream.input.advance(taken as usize);
        stream.reading = skip(left - taken);
        self.skip(taken as usize)?;
        Ok(ReadStep::Again)
    }

    /// Like [`Connection::fill`], within a frame: the end of the stream is a violation. Returns a step if there is no input.
    pub(super) fn fill_payload(
        &mut self,
        slot: u32,
        streams: &mut impl Streams,
    ) -> Result<Option<ReadStep>, Violation> {
        match self.fill(slot, streams) {
            Filled::Input => Ok(None),
            Filled::More => Ok(Some(ReadStep::More)),
            Filled::End(SeenEnd::Reset(code)) => Ok(Some(self.take_reset(slot, code, streams))),
            Filled::End(SeenEnd::Finished) => Err(Violation::FrameCut),
        }
    }

    /// Passes on a piece of a body.
    fn take_data(&mut self, slot: u32, left: u64, streams: &mut impl Streams) -> StepOutcome {
        let window = self.config.window.max(1);
        let stream = self.requests.at(slot);
        if stream.held >= window {
            stream.flags |= PAUSED;
            return Ok(ReadStep::More);
        }
        if let Some(step) = self.fill_payload(slot, streams)? {
            return Ok(step);
        }
        let stream = self.requests.at(slot);
        let most = stream.input.len().min(window - stream.held);
        let taken = left.min(most as u64) as usize;
        let bytes = stream.input.split_to(taken);
        stream.held += taken;
        if stream.due != ANY_LENGTH {
            stream.due -= taken as u64;
        }
        let left = left - taken as u64;
        stream.reading = if left == 0 { FramePosition::Header } else { FramePosition::Data(left) };
        let due = stream.due;
        self.used.progress();
        let end = left == 0 && self.is_at_end(slot, streams)?;
        if end && !matches!(due, 0 | ANY_LENGTH) {
            return Ok(self.stream_fault(slot, FaultReason::Violation(Violation::Length), streams));
        }
        if end {
            self.requests.at(slot).flags |= REMOTE_ENDED | READ_DONE;
        }
        Ok(ReadStep::Event(H3Event::Data { key: self.requests.key(slot), bytes, end }))
    }

    /// Whether the stream ends here, between two frames. Unknown frames before its end are skipped if they have arrived.
    pub(super) fn is_at_end(&mut self, slot: u32, streams: &mut impl Streams) -> Result<bool, Violation> {
        loop {
            match self.fill(slot, streams) {
                Filled::Input => {}
                Filled::More => return Ok(false),
                Filled::End(end) => return Ok(end == SeenEnd::Finished),
            }
            let stream = self.requests.at(slot);
            let mut rest = &stream.input[..];
            let Some(header) = FrameHeader::take(&mut rest) else { return Ok(false) };
            let start = stream.input.len() - rest.len();
            if !is_unknown(header.kind) || header.length > rest.len() as u64 {
                return Ok(false);
            }
            stream.input.advance(start + header.length as usize);
            self.waste(1)?;
            self.skip(header.length as usize)?;
        }
    }

    /// Handles the end of a stream between two frames.
    fn take_end(&mut self, slot: u32, streams: &mut impl Streams) -> StepOutcome {
        let key = self.requests.key(slot);
        let stream = self.requests.at(slot);
        if stream.header.length > 0 {
            return Err(Violation::FrameCut);
        }
        stream.flags |= READ_DONE;
        let violation = if !stream.has(HEAD_RECEIVED) {
            if self.role == Role::Server { Violation::Incomplete } else { Violation::NoResponse }
        } else if stream.has(REMOTE_ENDED) {
            return Ok(ReadStep::More);
        } else if !matches!(stream.due, 0 | ANY_LENGTH) {
            Violation::Length
        } else {
            stream.flags |= REMOTE_ENDED;
            return Ok(ReadStep::Event(H3Event::End { key }));
        };
        Ok(self.stream_fault(slot, FaultReason::Violation(violation), streams))
    }

    /// Handles a reset by the peer. A message that was complete before remains valid.
    fn take_reset(&mut self, slot: u32, number: u64, streams: &mut impl Streams) -> ReadStep {
        let code = Code::from_number(number);
        self.counts.note(code);
        self.cancel_section(slot);
        let stream = self.requests.at(slot);
        stream.flags |= READ_DONE;
        stream.input = Bytes::new();
        if stream.has(REMOTE_ENDED) {
            return ReadStep::More;
        }
        self.peer_reset(slot, code, streams)
    }

    /// Ends a stream that the peer cancelled.
    pub(super) fn peer_reset(&mut self, slot: u32, code: Code, streams: &mut impl Streams) -> ReadStep {
        if self.role == Role::Server {
            fault::GIVEN_UP.note();
            self.glitch();
        }
        let key: RequestKey = self.requests.key(slot);
        self.end_stream(slot, RESET_BY_PEER, Code::RequestCancelled, streams);
        if self.requests.at(slot).has(KNOWN) {
            return ReadStep::Event(H3Event::Reset { key, code, by: ResetBy::Peer });
        }
        self.forget(slot);
        ReadStep::More
    }

    /// Called after the caller processed `count` bytes of the stream's body: more of it is read. No effect if the stream is over.
    pub fn consume(&mut self, key: RequestKey, count: usize) {
        let window = self.config.window.max(1);
        let Some(stream) = self.requests.get_mut(key) else { return };
        stream.held = stream.held.saturating_sub(count);
        if stream.has(PAUSED) && stream.held < window {
            stream.flags &= !PAUSED;
            self.make_ready(key.slot);
        }
    }
}

/// Whether frames of this type are ignored.
fn is_unknown(kind: u64) -> bool {
    let is_known = matches!(
        kind,
        kind::DATA
            | kind::HEADERS
            | kind::PUSH_PROMISE
            | kind::CANCEL_PUSH
            | kind::SETTINGS
            | kind::GOAWAY
            | kind::MAX_PUSH_ID
            | kind::PRIORITY_UPDATE
            | kind::PRIORITY_UPDATE_PUSH
    );
    !is_known && !kind::is_reserved(kind)
}

fn skip(left: u64) -> FramePosition {
    if left == 0 { FramePosition::Header } else { FramePosition::Skip(left) }
}
