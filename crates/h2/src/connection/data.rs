//! DATA: lengths, windows and the ends of bodies (RFC 9113 sections 5.2, 6.1, 8.1.1).

use super::Connection;
use super::receive::{DataRest, ReadState, ReceiveOutcome, ReceiveStep};
use crate::StreamKey;
use crate::event::Event;
use crate::fault::{Breach, Reason};
use crate::frame::WINDOW_MAX;
use crate::frame::{FrameHeader, HEADER, flag};
use crate::limits;
use crate::settings::WINDOW_DEFAULT;
use crate::stream::{
    ANY_LENGTH, Gone, HEAD_RECEIVED, LOCAL_ENDED, RECEIVING, REMOTE_ENDED, RESET, RESET_BY_US, StreamSlot,
    UNFINISHED,
};

/// The treatment of a DATA frame.
enum DataVerdict {
    /// Passed to the caller.
    Accepted,
    /// A stream error.
    Fault(Breach),
    /// The stream is over. If the frame is a breach, the peer is notified.
    Over(Option<Breach>),
}

impl<B: AsRef<[u8]>> Connection<B> {
    pub(super) fn data_frame(&mut self, header: FrameHeader, payload: &[u8]) -> ReceiveOutcome {
        let id = header.stream;
        if id == 0 {
            return Err(Breach::StreamZero);
        }
        let Some((prefix, padding)) = padding(header, payload)? else { return Ok(ReceiveStep::More) };
        let place = self.streams.find(id);
        if place == StreamSlot::Idle || place == StreamSlot::Gone(Gone::Skipped) {
            return Err(Breach::IdleStream);
        }
        self.counts.data_received += 1;
        self.charge(header.length)?;
        let left = header.length - prefix;
        let StreamSlot::Here(slot) = place else {
            if place != StreamSlot::Gone(Gone::ResetByUs) {
                self.answer_reset(id, Breach::EndedStream);
            } else if header.has(flag::END_STREAM) {
                self.streams.note_end(id, Gone::Ended);
            }
            self.waste()?;
            return Ok(self.skip(HEADER + prefix, left));
        };
        let body = DataRest {
            key: StreamKey { slot, id },
            left: left - padding,
            padding,
            end: header.has(flag::END_STREAM),
        };
        let verdict = self.judge_data(&body, header.length);
        let event = match verdict {
            DataVerdict::Accepted => {
                self.accept_data(&body, header.length)?;
                self.reading = ReadState::Data(body);
                return Ok(ReceiveStep::Took(HEADER + prefix));
            }
            DataVerdict::Fault(breach) => self.stream_fault(slot, breach.code(), Reason::Breach(breach)),
            DataVerdict::Over(breach) => {
                if let Some(breach) = breach {
                    self.answer_reset(id, breach);
                }
                self.waste()?;
                None
            }
        };
        let _ = self.skip(0, left);
        Ok(ReceiveStep::with_event(HEADER + prefix, event))
    }

    /// Deducts a frame from the connection window, and replenishes the window.
    fn charge(&mut self, length: usize) -> Result<(), Breach> {
        let length = length as u32;
        self.credit = self.credit.checked_sub(length).ok_or(Breach::WindowExceeded)?;
        let owed = WINDOW_MAX - self.credit;
        if length > 0 && owed >= limits::CREDIT_BATCH {
            self.credit = WINDOW_MAX;
            self.window_update(0, owed);
        }
        if self.unacknowledged < u64::MAX {
            self.unacknowledged += u64::from(length);
            if self.unacknowledged > limits::UNACKNOWLEDGED {
                self.acknowledge();
            }
        }
        Ok(())
    }

    /// Applies the SETTINGS of this side from here on: the peer acknowledged them, or must have seen them.
    pub(super) fn acknowledge(&mut self) {
        if self.unacknowledged == u64::MAX {
            return;
        }
        self.unacknowledged = u64::MAX;
        let change = self.config.initial_window() as i32 - WINDOW_DEFAULT as i32;
        let pool = &mut self.pool;
        for (_, stream) in self.streams.iter_mut() {
            pool.change(stream, |stream| stream.credit = stream.credit.saturating_add(change));
        }
        for slot in 0..self.streams.places() {
            self.refill(slot);
        }
        self.stop_if_exhausted();
    }

    /// Decides whether a frame of `length` bytes is passed to the caller, and how to react otherwise.
    fn judge_data(&mut self, body: &DataRest, length: usize) -> DataVerdict {
        let stream = self.streams.at(body.key.slot);
        let (due, left) = (stream.due, body.left as u64);
        if stream.has(RESET_BY_US) {
            DataVerdict::Over(None)
        } else if stream.has(RESET) {
            DataVerdict::Over(Some(Breach::ResetStream))
        } else if stream.is_ended() {
            DataVerdict::Over(Some(Breach::EndedStream))
        } else if stream.has(REMOTE_ENDED) {
            DataVerdict::Fault(Breach::EndedStream)
        } else if !stream.has(HEAD_RECEIVED) {
            DataVerdict::Fault(Breach::DataBeforeHead)
        } else if length as i64 > i64::from(stream.credit) {
            DataVerdict::Fault(Breach::WindowExceeded)
        } else if due != ANY_LENGTH && (left > due || (body.end && left < due)) {
            DataVerdict::Fault(Breach::Length)
        } else {
            DataVerdict::Accepted
        }
    }

    fn accept_data(&mut self, body: &DataRest, length: usize) -> Result<(), Breach> {
        let stream = self.streams.at(body.key.slot);
        if stream.due != ANY_LENGTH {
            stream.due -= body.left as u64;
        }
        self.pool.change(stream, |stream| {
            stream.credit -= length as i32;
            stream.held += body.left as u32;
        });
        if body.left == 0 && !body.end {
            self.waste()?;
        } else {
            self.used.progress();
        }
        if !body.end {
            self.receives(body.key.slot);
        }
        Ok(())
    }

    /// Processes the end of a DATA frame; returns the event if the message ends with it.
    pub(super) fn body_end(&mut self, body: &DataRest) -> Option<Event> {
        if !body.end {
            return None;
        }
        self.end_remote(body.key.slot);
        Some(Event::End { key: body.key })
    }

    /// Marks the peer's message as complete.
    pub(super) fn end_remote(&mut self, slot: u32) {
        self.streams.at(slot).flags |= REMOTE_ENDED;
        self.stop_receiving(slot);
    }

    /// Registers the start of a body, for which the stream may need more credit.
    pub(super) fn receives(&mut self, slot: u32) {
        let stream = self.streams.at(slot);
        if !stream.has(RECEIVING | UNFINISHED) && stream.due as i128 > i128::from(stream.credit) {
            stream.flags |= RECEIVING;
            self.pool.receivers += 1;
        }
        self.refill(slot);
    }

    pub(super) fn stop_receiving(&mut self, slot: u32) {
        let stream = self.streams.at(slot);
        if stream.has(RECEIVING) {
            stream.flags &= !RECEIVING;
            self.pool.receivers -= 1;
        }
    }

    /// Grants credit to a stream if the stream needs any and the amount is large enough.
    fn refill(&mut self, slot: u32) {
        let open = self.streams.len();
        let stream = self.streams.at(slot);
        let is_over = stream.id == 0 || stream.has(REMOTE_ENDED | RESET | UNFINISHED);
        if is_over || i128::from(stream.credit) >= i128::from(stream.due) {
            return;
        }
        let credit = self.pool.due(stream, open);
        if credit > 0 {
            self.pool.grant(stream, credit);
            let id = stream.id;
            self.window_update(id, credit);
        }
    }

    /// Informs the connection that the caller has processed `count` bytes of the stream's body, so that the peer may send more. No
    /// effect if the stream is over.
    pub fn consume(&mut self, key: StreamKey, count: usize) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        let count = stream.held.min(u32::try_from(count).unwrap_or(u32::MAX));
        self.pool.change(stream, |stream| stream.held -= count);
        self.refill(key.slot);
    }

    /// The number of body bytes that the caller has not consumed yet.
    #[must_use]
    pub fn held(&self, key: StreamKey) -> usize {
        self.streams.get(key).map_or(0, |stream| stream.held as usize)
    }

    /// Whether the message of this side on that stream is complete, or can no longer be completed.
    #[must_use]
    pub fn is_sent(&self, key: StreamKey) -> bool {
        self.streams.get(key).is_none_or(|stream| stream.has(LOCAL_ENDED | RESET))
    }
}

/// The length of the pad length field, and of the padding; `None` until the pad length has arrived.
pub(super) fn padding(header: FrameHeader, payload: &[u8]) -> Result<Option<(usize, usize)>, Breach> {
    if !header.has(flag::PADDED) {
        return Ok(Some((0, 0)));
    }
    if header.length == 0 {
        return Err(Breach::FrameSize);
    }
    let Some(&padding) = payload.first() else { return Ok(None) };
    let padding = usize::from(padding);
    if padding >= header.length { Err(Breach::Padding) } else { Ok(Some((1, padding))) }
}
