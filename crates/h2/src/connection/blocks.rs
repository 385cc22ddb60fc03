//! HEADERS and CONTINUATION: collects header blocks and applies them to their streams (RFC 9113 sections 4.3, 5.1, 6.2, 8.1).
//!
//! A block is decoded even if its stream is gone, because the header table must stay in sync with the peer's.

use fields::Refusal;
use http::Method;

use super::data::padding;
use super::receive::{ReadState, ReceiveOutcome, ReceiveStep};
use super::{Connection, Going, Phase};
use crate::event::Event;
use crate::fault::{self, Breach, Reason};
use crate::frame::{FrameHeader, HEADER, MAX_SIZE_DEFAULT, flag, kind, number};
use crate::limits;
use crate::settings::WINDOW_DEFAULT;
use crate::stream::{
    ANY_LENGTH, CONNECT, Gone, HEAD_METHOD, HEAD_RECEIVED, REMOTE_ENDED, RESET, RESET_BY_US, StreamSlot,
};
use crate::{Code, StreamKey, hpack};

/// A header block that is being received.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeaderBlock {
    id: u32,
    end: bool,
    depends_on_itself: bool,
    continuations: u32,
}

/// State for blocks that arrive in several pieces. The memory is reused.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// The current block; `None` between blocks.
    pub(super) block: Option<HeaderBlock>,
    pub(super) bytes: Vec<u8>,
}

impl<B: AsRef<[u8]>> Connection<B> {
    pub(super) fn headers_frame(&mut self, header: FrameHeader, payload: &[u8]) -> ReceiveOutcome {
        let id = header.stream;
        if id == 0 {
            return Err(Breach::StreamZero);
        }
        let Some((prefix, padding)) = padding(header, payload)? else { return Ok(ReceiveStep::More) };
        let mut prefix = prefix;
        let mut depends_on_itself = false;
        if header.has(flag::PRIORITY) {
            if prefix + 5 > header.length {
                return Err(Breach::FrameSize);
            }
            let Some(priority) = payload.get(prefix..prefix + 5) else { return Ok(ReceiveStep::More) };
            depends_on_itself = number(priority) & 0x7fff_ffff == id;
            prefix += 5;
        }
        let length = header.length.checked_sub(prefix + padding).ok_or(Breach::Padding)?;
        self.counts.headers_received += 1;
        let end = header.has(flag::END_STREAM);
        let block = HeaderBlock { id, end, depends_on_itself, continuations: 0 };
        let last = header.has(flag::END_HEADERS);
        if last && payload.len() >= header.length {
            let event = self.block_end(block, &payload[prefix..prefix + length])?;
            return Ok(ReceiveStep::with_event(HEADER + header.length, event));
        }
        let gathering = self.gathering.get_or_insert_default();
        gathering.block = Some(block);
        gathering.bytes.clear();
        self.reading = ReadState::Block { left: length, padding, last };
        Ok(ReceiveStep::Took(HEADER + prefix))
    }

    pub(super) fn continuation_frame(&mut self, header: FrameHeader) -> ReceiveOutcome {
        let block = self.gathering.as_mut().and_then(|gathering| gathering.block.as_mut());
        let Some(block) = block else { return Err(Breach::LoneContinuation) };
        if header.stream != block.id {
            return Err(Breach::NoContinuation);
        }
        block.continuations += 1;
        match block.continuations {
            n if n > limits::CONTINUATIONS => return Err(Breach::Continuations),
            n if n == limits::CONTINUATIONS_PLAIN + 1 => {
                fault::PIECES.note();
                self.glitch();
            }
            _ => {}
        }
        let last = header.has(flag::END_HEADERS);
        self.reading = ReadState::Block { left: header.length, padding: 0, last };
        Ok(ReceiveStep::Took(HEADER))
    }

    /// Collects a piece of a block, or skips the padding after it.
    pub(super) fn take_piece(
        &mut self,
        left: usize,
        padding: usize,
        last: bool,
        rest: &[u8],
    ) -> ReceiveOutcome {
        if left + padding > 0 && rest.is_empty() {
            return Ok(ReceiveStep::More);
        }
        let piece = left.min(rest.len());
        let gathering = self.gathering.get_or_insert_default();
        if gathering.bytes.len() + piece > self.config.max_block() {
            return Err(Breach::BlockTooLarge);
        }
        gathering.bytes.extend_from_slice(&rest[..piece]);
        let padded = padding.min(rest.len() - piece);
        let (left, padding) = (left - piece, padding - padded);
        if left + padding > 0 {
            self.reading = ReadState::Block { left, padding, last };
            return Ok(ReceiveStep::Took(piece + padded));
        }
        self.reading = ReadState::Header;
        if !last {
            return Ok(ReceiveStep::Took(piece + padded));
        }
        let Some(mut gathering) = self.gathering.take() else { return Err(Breach::LoneContinuation) };
        let Some(block) = gathering.block.take() else { return Err(Breach::LoneContinuation) };
        let event = self.block_end(block, &gathering.bytes)?;
        self.gathering = Some(gathering);
        Ok(ReceiveStep::with_event(piece + padded, event))
    }

    /// Processes a complete block.
    fn block_end(&mut self, block: HeaderBlock, bytes: &[u8]) -> Result<Option<Event>, Breach> {
        match self.streams.find(block.id) {
            StreamSlot::Here(slot) => self.next_block(slot, block, bytes),
            StreamSlot::Idle if !self.is_server() => Err(Breach::IdleStream),
            StreamSlot::Idle if block.id.is_multiple_of(2) => Err(Breach::EvenStream),
            StreamSlot::Idle => self.request(block, bytes),
            StreamSlot::Gone(Gone::Ended) => Err(Breach::EndedStream),
            StreamSlot::Gone(Gone::Skipped) => Err(Breach::OldStream),
            StreamSlot::Gone(gone) => {
                self.ignore(bytes)?;
                if gone != Gone::ResetByUs {
                    self.answer_reset(block.id, Breach::ResetStream);
                } else if block.end {
                    self.streams.note_end(block.id, Gone::Ended);
                }
                self.waste()?;
                Ok(None)
            }
        }
    }

    /// Decodes a block with unused fields, to keep the header table in sync.
    fn ignore(&mut self, bytes: &[u8]) -> Result<(), Breach> {
        self.decoder.decode(bytes, &mut |_| false).map_err(|_| Breach::Compression)
    }

    /// Opens a stream for a request.
    fn request(&mut self, block: HeaderBlock, bytes: &[u8]) -> Result<Option<Event>, Breach> {
        if matches!(self.going, Going::Final(last) if block.id > last) {
            self.ignore(bytes)?;
            self.streams.refuse(block.id);
            return self.waste().map(|()| None);
        }
        let limit = self.config.max_total_streams;
        if limit > 0 && self.total >= limit.saturating_add(self.config.max_streams()) {
            return Err(Breach::TotalStreams);
        }
        let is_full = self.streams.len() as u64 >= u64::from(self.config.max_streams());
        let breach = if block.depends_on_itself {
            Some(Breach::SelfDependency)
        } else {
            (is_full && !self.evict_unfinished()).then_some(Breach::TooManyStreams)
        };
        if let Some(breach) = breach {
            self.ignore(bytes)?;
            return Ok(Some(self.refuse(block.id, breach.code(), Reason::Breach(breach))));
        }
        let (rules, head) = (&self.config.rules, self.head.get_or_insert_default());
        let request = match fields::read_request(self.decoder.block(bytes), block.end, rules, head) {
            Ok(request) => request,
            Err(Refusal::Coding(_)) => return Err(Breach::Compression),
            Err(Refusal::Message(cause)) => {
                let reason = Reason::Message(cause);
                return Ok(Some(match cause.answer() {
                    Some(status) => self.answer_request(&block, status, reason),
                    None => self.refuse(block.id, reason.code(), reason),
                }));
            }
        };
        let length = head.content_length();
        let is_connect = request.protocol || head.method_id() == Method::Connect;
        let key = self.open_stream(block.id);
        let stream = self.streams.at(key.slot);
        stream.flags |= HEAD_RECEIVED | if is_connect { CONNECT } else { 0 };
        stream.due = length.filter(|_| !is_connect).unwrap_or(ANY_LENGTH);
        let early = self.early.as_mut().and_then(|early| early.take(block.id));
        if let Some(priority) = early.or(request.priority) {
            stream.set_priority(priority);
        }
        self.body_begins(key.slot, block.end);
        if self.total == limit {
            self.shutdown(Phase::Announce);
        }
        Ok(Some(Event::Head { key, end: block.end, protocol: request.protocol }))
    }

    /// Sends a response that only has a status, to a request that gets no stream.
    fn answer_request(&mut self, block: &HeaderBlock, status: u16, reason: Reason) -> Event {
        self.streams.refuse(block.id);
        let (encoder, head) = (&mut self.encoder, self.head.get_or_insert_default());
        head.start_response(status, None);
        head.set_content_length(0);
        self.output.headers(block.id, true, MAX_SIZE_DEFAULT as usize, |out| {
            fields::write_response(&mut encoder.writer(out), head);
        });
        if !block.end {
            // The rest of the request is not wanted.
            self.output.answer(kind::RST_STREAM, 0, block.id, Code::NoError.number().to_be_bytes());
        }
        // Not a glitch: the response concerns the request, not the connection.
        self.counts.stream_errors += 1;
        Event::Refused { id: block.id, code: reason.code(), reason }
    }

    pub(super) fn open_stream(&mut self, id: u32) -> StreamKey {
        let is_known = self.unacknowledged == u64::MAX;
        let credit = if is_known { self.config.initial_window() } else { WINDOW_DEFAULT };
        self.total = self.total.saturating_add(1);
        self.counts.streams += 1;
        self.used.progress();
        let key = self.streams.open(id, self.peer.initial_window as i32, credit as i32);
        self.pool.opened(self.streams.at(key.slot));
        key
    }

    fn body_begins(&mut self, slot: u32, end: bool) {
        if end {
            self.end_remote(slot);
        } else {
            self.receives(slot);
        }
    }

    /// Processes a block for an existing stream: a response, or trailers.
    fn next_block(&mut self, slot: u32, block: HeaderBlock, bytes: &[u8]) -> Result<Option<Event>, Breach> {
        let stream = self.streams.at(slot);
        let is_trailers = stream.has(HEAD_RECEIVED);
        let breach = if stream.has(RESET_BY_US) {
            self.ignore(bytes)?;
            return self.waste().map(|()| None);
        } else if stream.has(RESET) {
            self.ignore(bytes)?;
            self.answer_reset(block.id, Breach::ResetStream);
            return self.waste().map(|()| None);
        } else if stream.is_ended() {
            return Err(Breach::EndedStream);
        } else if stream.has(REMOTE_ENDED) {
            Breach::EndedStream
        } else if block.depends_on_itself {
            Breach::SelfDependency
        } else if is_trailers && !block.end {
            Breach::TrailersWithoutEnd
        } else if is_trailers && !matches!(stream.due, 0 | ANY_LENGTH) {
            Breach::Length
        } else if is_trailers {
            return self.trailers(StreamKey { slot, id: block.id }, bytes);
        } else {
            return self.response(StreamKey { slot, id: block.id }, block.end, bytes);
        };
        self.ignore(bytes)?;
        Ok(self.stream_fault(slot, breach.code(), Reason::Breach(breach)))
    }

    fn trailers(&mut self, key: StreamKey, bytes: &[u8]) -> Result<Option<Event>, Breach> {
        let (rules, head) = (&self.config.rules, self.head.get_or_insert_default());
        match fields::read_trailers(self.decoder.block(bytes), rules, head) {
            Ok(()) => {
                self.end_remote(key.slot);
                Ok(Some(Event::Trailers { key }))
            }
            Err(refusal) => self.refused(key, refusal),
        }
    }

    fn response(&mut self, key: StreamKey, end: bool, bytes: &[u8]) -> Result<Option<Event>, Breach> {
        let (rules, head) = (&self.config.rules, self.head.get_or_insert_default());
        if let Err(refusal) = fields::read_response(self.decoder.block(bytes), end, rules, head) {
            return self.refused(key, refusal);
        }
        let event = Event::Head { key, end, protocol: false };
        let status = head.status();
        if matches!(status, 100..=199) {
            return Ok(Some(event));
        }
        let length = head.content_length();
        let stream = self.streams.at(key.slot);
        stream.flags |= HEAD_RECEIVED;
        let is_bare = stream.has(HEAD_METHOD) || matches!(status, 204 | 304);
        let is_tunnel = stream.has(CONNECT) && matches!(status, 200..=299);
        stream.due = match length {
            _ if is_tunnel => ANY_LENGTH,
            _ if is_bare => 0,
            length => length.unwrap_or(ANY_LENGTH),
        };
        if end && !matches!(stream.due, 0 | ANY_LENGTH) {
            return Ok(self.stream_fault(key.slot, Code::ProtocolError, Reason::Breach(Breach::Length)));
        }
        self.body_begins(key.slot, end);
        Ok(Some(event))
    }

    /// Refuses a response or trailers.
    fn refused(
        &mut self,
        key: StreamKey,
        refusal: Refusal<hpack::DecodeError>,
    ) -> Result<Option<Event>, Breach> {
        match refusal {
            Refusal::Coding(_) => Err(Breach::Compression),
            Refusal::Message(cause) => {
                let reason = Reason::Message(cause);
                Ok(self.stream_fault(key.slot, reason.code(), reason))
            }
        }
    }
}
