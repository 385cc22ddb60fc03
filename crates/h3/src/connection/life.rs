//! The ends of streams and the connection: resets, refusals, glitches, GOAWAY (RFC 9114 sections 4.1.1, 5.2, 8).

use bytes::Bytes;

use super::read::ReadStep;
use super::{Connection, Role};
use crate::event::{H3Event, ResetBy};
use crate::fault::{FaultReason, Violation};
use crate::frame::{FrameHeader, kind};
use crate::stream::{
    BLOCKED, FLUSHABLE, FramePosition, KNOWN, LOCAL_ENDED, READ_DONE, READY, RELEASED, REMOTE_ENDED, RESET,
    RESET_BY_US, STOPPED, WAITING, WRITABLE, WRITE_DONE,
};
use crate::transport::Streams;
use crate::{Code, RequestKey, varint};

/// The largest ID of a request.
const LAST_REQUEST: u64 = (1 << 62) - 4;

impl Connection {
    /// Ends a stream in both directions; it causes no further events, but must still be released. No effect if the stream is over.
    pub fn reset(&mut self, streams: &mut impl Streams, key: RequestKey, code: Code) {
        if self.requests.get(key).is_some_and(|stream| !stream.has(RESET | RELEASED)) {
            self.end_stream(key.slot, RESET_BY_US, code, streams);
        }
    }

    /// Releases a stream: its slot becomes free, and its key invalid. Parts that are still open are ended with `code`. Without a
    /// code a message that was sent completely remains valid: the peer is asked with H3_NO_ERROR to send no more (RFC 9114 section
    /// 4.1). An incomplete exchange ends with H3_REQUEST_CANCELLED.
    pub fn release(&mut self, streams: &mut impl Streams, key: RequestKey, code: Option<Code>) {
        let Some(stream) = self.requests.get(key).filter(|stream| !stream.has(RELEASED)) else { return };
        let is_done = self.role == Role::Server || stream.has(REMOTE_ENDED);
        let is_complete = stream.has(LOCAL_ENDED) && is_done && !stream.has(RESET);
        if code.is_some() || !is_complete {
            self.end_stream(key.slot, RESET_BY_US, code.unwrap_or(Code::RequestCancelled), streams);
            return self.forget(key.slot);
        }
        // The end of the peer's message may have arrived after its last event.
        let is_between = stream.reading == FramePosition::Header && !stream.has(READ_DONE);
        if is_between && self.is_at_end(key.slot, streams) == Ok(true) {
            self.requests.at(key.slot).flags |= READ_DONE;
        }
        self.stop_reading(key.slot, Code::NoError, streams);
        let stream = self.requests.at(key.slot);
        if stream.has(WRITE_DONE) {
            self.forget(key.slot);
        } else {
            // The transport has yet to take the last bytes.
            stream.flags |= RELEASED;
        }
    }

    /// Ends the incoming half of a stream, if it is open.
    fn stop_reading(&mut self, slot: u32, code: Code, streams: &mut impl Streams) {
        self.cancel_section(slot);
        let stream = self.requests.at(slot);
        if !stream.has(READ_DONE) {
            streams.stop(stream.id, code.number());
            self.counts.note(code);
        }
        stream.flags |= READ_DONE;
        stream.input = Bytes::new();
        self.sections -= stream.section.len();
        stream.section.clear();
        self.blocked -= u32::from(stream.has(BLOCKED));
        stream.flags &= !BLOCKED;
    }

    /// Ends a stream in both directions.
    pub(super) fn end_stream(&mut self, slot: u32, how: u32, code: Code, streams: &mut impl Streams) {
        self.stop_reading(slot, code, streams);
        self.stop_writing(slot, code, streams);
        self.requests.at(slot).flags |= how;
        self.leave_queues(slot);
    }

    /// Ends the outgoing half of a stream, if it is open.
    fn stop_writing(&mut self, slot: u32, code: Code, streams: &mut impl Streams) {
        let stream = self.requests.at(slot);
        if !stream.has(WRITE_DONE) {
            streams.reset(stream.id, code.number());
            self.counts.note(code);
        }
        stream.flags |= WRITE_DONE;
        self.discard_output(slot);
    }

    fn leave_queues(&mut self, slot: u32) {
        let stream = self.requests.at(slot);
        let flags = stream.flags;
        stream.flags &= !(READY | FLUSHABLE | WRITABLE | WAITING);
        for (flag, queue) in
            [(READY, &mut self.ready), (FLUSHABLE, &mut self.flushable), (WRITABLE, &mut self.writable)]
        {
            if flags & flag != 0 {
                queue.retain(|queued| *queued != slot);
            }
        }
    }

    /// Frees the slot of a stream that is over.
    pub(super) fn forget(&mut self, slot: u32) {
        self.leave_queues(slot);
        self.requests.remove(slot);
    }

    /// Ends a stream after an error of the peer. One that the caller does not know is refused.
    pub(super) fn stream_fault(
        &mut self,
        slot: u32,
        reason: FaultReason,
        streams: &mut impl Streams,
    ) -> ReadStep {
        reason.note();
        let (key, code) = (self.requests.key(slot), reason.code());
        self.end_stream(slot, RESET_BY_US, code, streams);
        self.glitch();
        if self.requests.at(slot).has(KNOWN) {
            return ReadStep::Event(H3Event::Reset { key, code, by: ResetBy::Us(reason) });
        }
        self.forget(slot);
        ReadStep::Event(H3Event::Refused { id: key.id, code, reason })
    }

    /// Processes the peer's requests to stop sending, up to the next event.
    pub(super) fn next_stop(&mut self, streams: &mut impl Streams) -> Result<Option<H3Event>, Violation> {
        for _ in 0..self.stops.len() {
            let Some((id, number)) = self.stops.pop_front() else { break };
            if self.own.has(id) {
                return Err(Violation::CriticalClosed);
            }
            if self.has_arrived(id) {
                // Its turn comes once the request has a slot.
                self.stops.push_back((id, number));
                continue;
            }
            let Some(slot) = self.requests.find(id) else { continue };
            let code = Code::from_number(number);
            let stream = self.requests.at(slot);
            if stream.has(RESET | STOPPED) {
                continue;
            }
            self.counts.note(code);
            if self.role == Role::Server && !stream.has(LOCAL_ENDED) {
                if let ReadStep::Event(event) = self.peer_reset(slot, code, streams) {
                    return Ok(Some(event));
                }
                continue;
            }
            self.stop_own_message(slot, number, streams);
        }
        Ok(None)
    }

    /// Ends our message after STOP_SENDING. The rest of it is discarded when the caller sends it.
    fn stop_own_message(&mut self, slot: u32, number: u64, streams: &mut impl Streams) {
        let stream = self.requests.at(slot);
        streams.reset(stream.id, number);
        self.discard_output(slot);
        let stream = self.requests.at(slot);
        stream.flags |= LOCAL_ENDED | WRITE_DONE | STOPPED;
        if stream.has(RELEASED) {
            return self.forget(slot);
        }
        if stream.flags & (WAITING | WRITABLE) == WAITING {
            stream.flags |= WRITABLE;
            self.writable.push_back(slot);
        }
    }

    /// The next of our requests that the peer's GOAWAY excludes, if any is unreported.
    pub(super) fn next_cut(&mut self, streams: &mut impl Streams) -> Option<H3Event> {
        let id = self.cut?;
        let is_alive =
            |key: &RequestKey| self.requests.get(*key).is_some_and(|stream| !stream.has(RESET | RELEASED));
        let Some(key) = self.requests.keys().rev().take_while(|key| key.id >= id).find(is_alive) else {
            self.cut = None;
            return None;
        };
        self.end_stream(key.slot, RESET_BY_US, Code::RequestCancelled, streams);
        Some(H3Event::Reset { key, code: Code::RequestRejected, by: ResetBy::Goaway })
    }

    /// Counts frames without effect.
    pub(super) fn waste(&mut self, count: u32) -> Result<(), Violation> {
        if self.used.waste(count) { Err(Violation::Flood) } else { Ok(()) }
    }

    /// Counts skipped bytes as frames without effect ([`SKIPPED`](crate::limits::SKIPPED)).
    pub(super) fn skip(&mut self, bytes: usize) -> Result<(), Violation> {
        if self.used.skip(bytes) { Err(Violation::Flood) } else { Ok(()) }
    }

    /// Counts a glitch (`fc_glitches`): a stream refused or reset because of an error, a request reset by its client, or one of
    /// many streams of unknown types.
    pub(super) fn glitch(&mut self) {
        self.used.glitches = self.used.glitches.saturating_add(1);
    }

    /// At three quarters of the threshold the peer is asked to leave; at the threshold the connection is closed.
    pub(super) fn judge_glitches(&mut self, streams: &mut impl Streams) -> Result<(), Violation> {
        let threshold = self.config.glitches_threshold;
        if threshold == 0 {
            return Ok(());
        }
        let glitches = self.used.glitches;
        if glitches >= threshold && self.is_busy {
            return Err(Violation::Glitches);
        }
        if u64::from(glitches) * 4 >= u64::from(threshold) * 3 {
            self.shutdown(streams);
        }
        Ok(())
    }

    /// Ends the connection after a connection error of the peer.
    pub(super) fn fail(&mut self, violation: Violation) -> Violation {
        violation.note();
        self.counts.note(violation.code());
        self.closed = Some(violation);
        violation
    }

    /// Announces a shutdown with a GOAWAY that excludes no request, as some may be on their way (RFC 9114, 5.2). The caller calls
    /// [`shutdown`](Self::shutdown) once the peer has had time to receive it. Connections without GOAWAY shut down at once.
    pub fn announce_shutdown(&mut self, streams: &mut impl Streams) {
        if self.role == Role::Client || self.is_hq {
            return self.shutdown(streams);
        }
        if !self.is_ending() {
            self.is_announced = true;
            self.send_goaway(LAST_REQUEST, streams);
        }
    }

    /// Starts a shutdown with GOAWAY: open requests continue, and later ones are rejected with H3_REQUEST_REJECTED, so that the peer
    /// may repeat them elsewhere.
    pub fn shutdown(&mut self, streams: &mut impl Streams) {
        if self.going.is_some() || self.closed.is_some() {
            return;
        }
        let id = match self.role {
            // Streams that arrived are served even if they were not looked at yet.
            Role::Server => self.arrivals.iter().map(|id| id + 4).max().unwrap_or(0).max(self.next_id),
            // A push ID. We accept no push.
            Role::Client => 0,
        };
        self.going = Some(id);
        if !self.is_hq {
            self.send_goaway(id, streams);
        }
    }

    fn send_goaway(&mut self, id: u64, streams: &mut impl Streams) {
        let out = &mut self.own.control.output;
        FrameHeader { kind: kind::GOAWAY, length: varint::size(id) as u64 }.put(out);
        varint::put(id, out);
        self.own.wake();
        if let Err(violation) = self.own.flush(streams) {
            self.fail(violation);
        }
    }

    /// Whether the connection is closed or shutting down: no requests may be opened on it.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.closed.is_some() || self.is_announced || self.going.is_some() || self.peer_going.is_some()
    }

    /// Whether a shutdown is complete, so that the caller may close the transport with H3_NO_ERROR.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let is_idle = self.requests.len() == 0 && self.arrivals.is_empty();
        self.closed.is_some() || ((self.going.is_some() || self.peer_going.is_some()) && is_idle)
    }

    /// Like [`Connection::is_finished`], but only if this side started the shutdown: otherwise closing is up to the peer.
    #[must_use]
    pub fn is_ours_to_close(&self) -> bool {
        self.closed.is_some() || (self.going.is_some() && self.is_finished())
    }

    /// The violation that ended the connection, if any.
    #[must_use]
    pub fn closed(&self) -> Option<Violation> {
        self.closed
    }
}
