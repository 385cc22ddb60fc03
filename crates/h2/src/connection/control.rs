//! Frames that carry no message: SETTINGS, PING, GOAWAY, WINDOW_UPDATE, RST_STREAM and priorities (RFC 9113 sections 6.3 to 6.9,
//! RFC 9218 section 7).

use fields::Priority;

use super::receive::{ReadState, ReceiveOutcome, ReceiveStep};
use super::{Connection, Phase};
use crate::event::{By, Event};
use crate::fault::{self, Breach, Reason};
use crate::frame::WINDOW_MAX;
use crate::frame::{FrameHeader, HEADER, flag, kind, number};
use crate::limits;
use crate::settings::SETTING;
use crate::stream::{Gone, QUEUED, RESET, RESET_BY_PEER, StreamSlot, WAITING};
use crate::{Code, StreamKey};

/// The maximum number of bytes of a priority value that are read; longer frames are ignored.
const PRIORITY_VALUE_MAX: usize = 256;
/// The payloads of the PINGs that this side sends: those requested by the caller, those after an announcement, and those before
/// unfinished requests are reset.
pub(super) const PING_CALLER: [u8; 8] = *b"weirping";
pub(super) const PING_ANNOUNCE: [u8; 8] = *b"weirlast";
pub(super) const PING_STOP: [u8; 8] = *b"weirstop";

/// A payload of `N` bytes; `None` while it is incomplete.
fn fixed<const N: usize>(header: FrameHeader, payload: &[u8]) -> Result<Option<&[u8; N]>, Breach> {
    if header.length == N { Ok(payload.first_chunk()) } else { Err(Breach::FrameSize) }
}

fn of_stream(header: FrameHeader) -> Result<(), Breach> {
    if header.stream == 0 { Err(Breach::StreamZero) } else { Ok(()) }
}

fn of_connection(header: FrameHeader) -> Result<(), Breach> {
    if header.stream == 0 { Ok(()) } else { Err(Breach::NotStreamZero) }
}

impl<B: AsRef<[u8]>> Connection<B> {
    pub(super) fn settings_frame(&mut self, header: FrameHeader) -> ReceiveOutcome {
        of_connection(header)?;
        if header.has(flag::ACK) {
            if header.length > 0 {
                return Err(Breach::FrameSize);
            }
            if self.unacknowledged == u64::MAX {
                self.waste()?;
            }
            self.acknowledge();
            return Ok(ReceiveStep::Took(HEADER));
        }
        if !header.length.is_multiple_of(SETTING) {
            return Err(Breach::FrameSize);
        }
        self.counts.settings_received += 1;
        self.waste()?;
        self.reading = ReadState::Settings { left: header.length, window: self.peer.initial_window };
        Ok(ReceiveStep::Took(HEADER))
    }

    /// Applies the effects of a complete SETTINGS frame on open streams.
    pub(super) fn settings_end(&mut self, before: u32) -> Result<Event, Breach> {
        let change = i64::from(self.peer.initial_window) - i64::from(before);
        if change < 0 {
            fault::SHRUNK.note();
            self.glitch();
        }
        if change != 0 {
            for slot in 0..self.streams.places() {
                let stream = self.streams.at(slot);
                let window = i64::from(stream.sendable) + change;
                if stream.id == 0 {
                    continue;
                }
                if window > i64::from(WINDOW_MAX) {
                    return Err(Breach::WindowOverflow);
                }
                stream.sendable = window.max(i64::from(i32::MIN)) as i32;
                self.wake(slot);
            }
        }
        self.answer::<0>(kind::SETTINGS, flag::ACK, []);
        Ok(Event::Settings)
    }

    /// Lets a stream send after its window grew, if the stream was waiting for that.
    fn wake(&mut self, slot: u32) {
        let stream = self.streams.at(slot);
        if stream.sendable > 0 && stream.flags & (WAITING | QUEUED) == WAITING {
            self.ready.push(&mut self.streams, slot, false);
        }
    }

    pub(super) fn ping_frame(&mut self, header: FrameHeader, payload: &[u8]) -> ReceiveOutcome {
        of_connection(header)?;
        let Some(&payload) = fixed::<8>(header, payload)? else { return Ok(ReceiveStep::More) };
        let taken = HEADER + 8;
        if !header.has(flag::ACK) {
            self.waste()?;
            self.answer(kind::PING, flag::ACK, payload);
            return Ok(ReceiveStep::Took(taken));
        }
        if payload == PING_ANNOUNCE && self.going == super::Going::Announced {
            self.shutdown(Phase::Final);
            return Ok(ReceiveStep::Took(taken));
        }
        if payload == PING_STOP && self.is_stopping {
            self.stop_exhausted();
            return Ok(ReceiveStep::Took(taken));
        }
        if payload == PING_CALLER && std::mem::take(&mut self.is_pinging) {
            return Ok(ReceiveStep::Event(taken, Event::Pong));
        }
        self.waste()?;
        Ok(ReceiveStep::Took(taken))
    }

    pub(super) fn goaway_frame(&mut self, header: FrameHeader, payload: &[u8]) -> ReceiveOutcome {
        of_connection(header)?;
        if header.length < 8 {
            return Err(Breach::FrameSize);
        }
        let Some(fields) = payload.first_chunk::<8>() else { return Ok(ReceiveStep::More) };
        self.counts.goaways_received += 1;
        self.waste()?;
        let code = Code::from_number(number(&fields[4..]));
        let last = (number(fields) & 0x7fff_ffff).min(self.peer_last.unwrap_or(u32::MAX));
        self.stop_all_unfinished();
        self.peer_last = Some(last);
        if !self.is_server() {
            self.cut = Some(last);
        }
        let _ = self.skip(0, header.length - 8);
        Ok(ReceiveStep::Event(HEADER + 8, Event::Goaway { last, code }))
    }

    pub(super) fn window_update_frame(&mut self, header: FrameHeader, payload: &[u8]) -> ReceiveOutcome {
        let Some(payload) = fixed::<4>(header, payload)? else { return Ok(ReceiveStep::More) };
        let increment = number(payload) & 0x7fff_ffff;
        let taken = ReceiveStep::Took(HEADER + 4);
        if increment < limits::INCREMENT_SMALL {
            self.waste()?;
        }
        if header.stream == 0 {
            if increment == 0 {
                return Err(Breach::ZeroIncrement);
            }
            self.sendable = self.sendable.checked_add_unsigned(increment).ok_or(Breach::WindowOverflow)?;
            return Ok(taken);
        }
        let slot = match self.streams.find(header.stream) {
            StreamSlot::Idle => return Err(Breach::IdleStream),
            StreamSlot::Here(slot) if !self.streams.at(slot).has(RESET) => slot,
            _ => return self.waste().map(|()| taken),
        };
        let stream = self.streams.at(slot);
        let breach = match stream.sendable.checked_add_unsigned(increment) {
            Some(_) if increment == 0 => Breach::ZeroIncrement,
            None => Breach::WindowOverflow,
            Some(window) => {
                stream.sendable = window;
                self.wake(slot);
                return Ok(taken);
            }
        };
        Ok(ReceiveStep::with_event(
            HEADER + 4,
            self.stream_fault(slot, breach.code(), Reason::Breach(breach)),
        ))
    }

    pub(super) fn reset_frame(&mut self, header: FrameHeader, payload: &[u8]) -> ReceiveOutcome {
        of_stream(header)?;
        let Some(payload) = fixed::<4>(header, payload)? else { return Ok(ReceiveStep::More) };
        let code = Code::from_number(number(payload));
        let id = header.stream;
        let place = self.streams.find(id);
        if place == StreamSlot::Idle {
            return Err(Breach::IdleStream);
        }
        self.counts.resets_received += 1;
        self.used.reset();
        if place == StreamSlot::Gone(Gone::ResetByUs) {
            self.streams.note_end(id, Gone::ResetByPeer);
        }
        let slot = match place {
            StreamSlot::Here(slot) if !self.streams.at(slot).has(RESET) => slot,
            _ => return self.waste().map(|()| ReceiveStep::Took(HEADER + 4)),
        };
        if self.streams.at(slot).is_ended() {
            return self.waste().map(|()| ReceiveStep::Took(HEADER + 4));
        }
        if self.is_server() {
            fault::GIVEN_UP.note();
            self.glitch();
        }
        self.end_stream(slot, RESET_BY_PEER);
        Ok(ReceiveStep::Event(HEADER + 4, Event::Reset { key: StreamKey { slot, id }, code, by: By::Peer }))
    }

    /// RFC 7540 priorities are validated but not used (RFC 9113 section 5.3).
    pub(super) fn priority_frame(&mut self, header: FrameHeader, payload: &[u8]) -> ReceiveOutcome {
        of_stream(header)?;
        let breach = if header.length != 5 {
            Breach::FrameSize
        } else {
            let Some(payload) = payload.first_chunk::<5>() else { return Ok(ReceiveStep::More) };
            self.waste()?;
            if number(payload) & 0x7fff_ffff != header.stream {
                return Ok(ReceiveStep::Took(HEADER + 5));
            }
            Breach::SelfDependency
        };
        // A stream error, or without a stream to reset, a connection error.
        let slot = match self.streams.find(header.stream) {
            StreamSlot::Here(slot) if !self.streams.at(slot).has(RESET) => slot,
            _ => return Err(breach),
        };
        let event = self.stream_fault(slot, breach.code(), Reason::Breach(breach));
        let _ = self.skip(0, header.length);
        Ok(ReceiveStep::with_event(HEADER, event))
    }

    pub(super) fn priority_update_frame(&mut self, header: FrameHeader, payload: &[u8]) -> ReceiveOutcome {
        of_connection(header)?;
        if !self.is_server() {
            return Err(Breach::PriorityUpdate);
        }
        if header.length < 4 {
            return Err(Breach::FrameSize);
        }
        if header.length > 4 + PRIORITY_VALUE_MAX {
            self.waste()?;
            return Ok(self.skip(HEADER, header.length));
        }
        let Some(payload) = payload.get(..header.length) else { return Ok(ReceiveStep::More) };
        let id = number(payload) & 0x7fff_ffff;
        if id.is_multiple_of(2) {
            return Err(Breach::PriorityUpdate);
        }
        self.waste()?;
        let priority = Priority::parse(&payload[4..]);
        match self.streams.find(id) {
            StreamSlot::Here(slot) => self.ready.set(&mut self.streams, slot, priority),
            StreamSlot::Idle => self.early.get_or_insert_default().keep(id, priority),
            StreamSlot::Gone(_) => {}
        }
        Ok(ReceiveStep::Took(HEADER + header.length))
    }
}
