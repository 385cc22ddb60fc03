//! Field sections: collects them and applies them to their streams (RFC 9114 sections 4.1 to 4.4, RFC 9204 section 2.2).

use fields::{Priority, Refusal};
use http::Method;

use super::read::{ReadStep, StepOutcome};
use super::{Connection, Role};
use crate::RequestKey;
use crate::event::H3Event;
use crate::fault::{FaultReason, Violation};
use crate::limits;
use crate::priority;
use crate::qpack::{DecodeError, QpackDecoder};
use crate::stream::{
    ANY_LENGTH, BLOCKED, CONNECT, FramePosition, HEAD_METHOD, HEAD_RECEIVED, KNOWN, READ_DONE, REMOTE_ENDED,
    TRAILERS,
};
use crate::transport::Streams;

impl Connection {
    /// Collects a section that lacks `left` bytes.
    pub(super) fn take_section(&mut self, slot: u32, left: usize, streams: &mut impl Streams) -> StepOutcome {
        if left > 0
            && let Some(step) = self.fill_payload(slot, streams)?
        {
            return Ok(step);
        }
        let stream = self.requests.at(slot);
        if stream.section.is_empty() && stream.input.len() >= left {
            let bytes = stream.input.split_to(left);
            stream.reading = FramePosition::Header;
            return self.whole_section(slot, &bytes, streams);
        }
        let piece = stream.input.split_to(left.min(stream.input.len()));
        stream.section.extend_from_slice(&piece);
        stream.reading = FramePosition::Section(left - piece.len());
        self.sections += piece.len();
        if piece.len() < left {
            if self.sections > limits::SECTIONS {
                return Ok(self.stream_fault(slot, FaultReason::Violation(Violation::Sections), streams));
            }
            return Ok(ReadStep::Again);
        }
        stream.reading = FramePosition::Header;
        self.kept_section(slot, streams)
    }

    /// Processes a section that was collected, or that waited for the dynamic table.
    fn kept_section(&mut self, slot: u32, streams: &mut impl Streams) -> StepOutcome {
        let mut section = self.take_kept(slot);
        let step = self.whole_section(slot, &section, streams);
        let stream = self.requests.at(slot);
        if stream.section.is_empty() {
            // The memory is kept for the next one.
            section.clear();
            stream.section = section;
        }
        step
    }

    fn take_kept(&mut self, slot: u32) -> Vec<u8> {
        let section = std::mem::take(&mut self.requests.at(slot).section);
        self.sections -= section.len();
        section
    }

    /// Processes a complete section, unless it has to wait for insertions into the dynamic table.
    fn whole_section(&mut self, slot: u32, bytes: &[u8], streams: &mut impl Streams) -> StepOutcome {
        let is_dynamic = QpackDecoder::is_dynamic(bytes);
        if is_dynamic && self.decoder.is_blocked(bytes).map_err(|_| Violation::Decompression)? {
            if self.blocked >= self.config.blocked_streams {
                return Err(Violation::BlockedStreams);
            }
            self.blocked += 1;
            self.sections += bytes.len();
            let stream = self.requests.at(slot);
            stream.flags |= BLOCKED;
            stream.section.extend_from_slice(bytes);
            return Ok(ReadStep::More);
        }
        let key = self.requests.key(slot);
        let step = self.message(key, bytes, streams)?;
        if is_dynamic {
            QpackDecoder::acknowledge_section(key.id, &mut self.own.decoder.output);
            self.own.wake();
        }
        Ok(step)
    }

    /// Lets streams continue after insertions into the dynamic table.
    pub(super) fn unblock(&mut self) {
        if self.blocked == 0 {
            return;
        }
        let waiting = |key: &RequestKey| {
            let stream = self.requests.get(*key).filter(|stream| stream.has(BLOCKED));
            stream.is_some_and(|stream| self.decoder.is_blocked(&stream.section) != Ok(true))
        };
        let free: Vec<RequestKey> = self.requests.keys().filter(waiting).collect();
        for key in free {
            self.blocked -= 1;
            let stream = self.requests.at(key.slot);
            stream.flags &= !BLOCKED;
            // The section is complete: it is processed when the stream is read.
            stream.reading = FramePosition::Section(0);
            self.make_ready(key.slot);
        }
    }

    /// Notifies the peer's encoder that a section of this stream will not be decoded.
    pub(super) fn cancel_section(&mut self, slot: u32) {
        if self.config.table_capacity == 0 || self.requests.at(slot).has(READ_DONE) {
            return;
        }
        QpackDecoder::cancel_stream(self.requests.at(slot).id, &mut self.own.decoder.output);
        self.own.wake();
    }

    fn message(&mut self, key: RequestKey, bytes: &[u8], streams: &mut impl Streams) -> StepOutcome {
        let is_trailers = self.requests.at(key.slot).has(HEAD_RECEIVED);
        let end = self.is_at_end(key.slot, streams)?;
        if is_trailers {
            self.trailers(key, bytes, end, streams)
        } else if self.role == Role::Server {
            self.request(key, bytes, end, streams)
        } else {
            self.response(key, bytes, end, streams)
        }
    }

    fn request(
        &mut self,
        key: RequestKey,
        bytes: &[u8],
        end: bool,
        streams: &mut impl Streams,
    ) -> StepOutcome {
        let (rules, head) = (&self.config.rules, self.head.get_or_insert_default());
        let request = match fields::read_request(self.decoder.section(bytes), end, rules, head) {
            Ok(request) => request,
            Err(Refusal::Coding(_)) => return Err(Violation::Decompression),
            Err(Refusal::Message(cause)) => {
                let reason = FaultReason::Message(cause);
                return Ok(match cause.answer() {
                    Some(status) => self.answer_request(key, status, end, reason, streams),
                    None => self.stream_fault(key.slot, reason, streams),
                });
            }
        };
        let length = head.content_length();
        let is_connect = request.protocol || head.method_id() == Method::Connect;
        let stream = self.requests.at(key.slot);
        stream.flags |= KNOWN | HEAD_RECEIVED | if is_connect { CONNECT } else { 0 };
        stream.due = length.filter(|_| !is_connect).unwrap_or(ANY_LENGTH);
        self.body_begins(key.slot, end);
        let early = self.early.as_mut().and_then(|early| early.take(key.id));
        let priority = early.or(request.priority).unwrap_or_default();
        if priority.urgency != Priority::default().urgency {
            streams.set_priority(key.id, priority::of_transport(priority));
        }
        self.count_request();
        if self.total == self.config.max_total_streams {
            self.shutdown(streams);
        }
        Ok(ReadStep::Event(H3Event::Head { key, end, protocol: request.protocol }))
    }

    pub(super) fn count_request(&mut self) {
        self.total = self.total.saturating_add(1);
        self.counts.streams += 1;
        self.used.progress();
    }

    /// Responds with a bare status to a request that is not passed to the caller.
    fn answer_request(
        &mut self,
        key: RequestKey,
        status: u16,
        end: bool,
        reason: FaultReason,
        streams: &mut impl Streams,
    ) -> ReadStep {
        reason.note();
        let mut head = self.head.take().unwrap_or_default();
        head.start_response(status, None);
        head.set_content_length(0);
        self.send_head(streams, key, &head, true);
        self.head = Some(head);
        self.requests.at(key.slot).flags |= if end { READ_DONE } else { 0 };
        // Not a glitch: the response concerns the request, not the connection.
        self.release(streams, key, None);
        ReadStep::Event(H3Event::Refused { id: key.id, code: reason.code(), reason })
    }

    fn body_begins(&mut self, slot: u32, end: bool) {
        if end {
            self.requests.at(slot).flags |= REMOTE_ENDED | READ_DONE;
        }
    }

    fn trailers(
        &mut self,
        key: RequestKey,
        bytes: &[u8],
        end: bool,
        streams: &mut impl Streams,
    ) -> StepOutcome {
        let (rules, head) = (&self.config.rules, self.head.get_or_insert_default());
        match fields::read_trailers(self.decoder.section(bytes), rules, head) {
            Ok(()) => {
                let stream = self.requests.at(key.slot);
                stream.flags |= TRAILERS | REMOTE_ENDED | if end { READ_DONE } else { 0 };
                Ok(ReadStep::Event(H3Event::Trailers { key }))
            }
            Err(refusal) => self.refused(key, refusal, streams),
        }
    }

    fn response(
        &mut self,
        key: RequestKey,
        bytes: &[u8],
        end: bool,
        streams: &mut impl Streams,
    ) -> StepOutcome {
        let (rules, head) = (&self.config.rules, self.head.get_or_insert_default());
        if let Err(refusal) = fields::read_response(self.decoder.section(bytes), end, rules, head) {
            return self.refused(key, refusal, streams);
        }
        let event = H3Event::Head { key, end, protocol: false };
        let status = head.status();
        if matches!(status, 100..=199) {
            self.waste(1)?;
            return Ok(ReadStep::Event(event));
        }
        let length = head.content_length();
        let stream = self.requests.at(key.slot);
        stream.flags |= HEAD_RECEIVED;
        let is_bare = stream.has(HEAD_METHOD) || matches!(status, 204 | 304);
        let is_tunnel = stream.has(CONNECT) && matches!(status, 200..=299);
        if !is_tunnel {
            stream.flags &= !CONNECT;
        }
        stream.due = match length {
            _ if is_tunnel => ANY_LENGTH,
            _ if is_bare => 0,
            length => length.unwrap_or(ANY_LENGTH),
        };
        if end && !matches!(stream.due, 0 | ANY_LENGTH) {
            return Ok(self.stream_fault(key.slot, FaultReason::Violation(Violation::Length), streams));
        }
        self.used.progress();
        self.body_begins(key.slot, end);
        Ok(ReadStep::Event(event))
    }

    /// Refuses a response or trailers.
    fn refused(
        &mut self,
        key: RequestKey,
        refusal: Refusal<DecodeError>,
        streams: &mut impl Streams,
    ) -> StepOutcome {
        match refusal {
            Refusal::Coding(_) => Err(Violation::Decompression),
            Refusal::Message(cause) => Ok(self.stream_fault(key.slot, FaultReason::Message(cause), streams)),
        }
    }
}
