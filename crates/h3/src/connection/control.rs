//! The frames of the control stream (RFC 9114 section 7.2, RFC 9218 section 7.2).

use fields::Priority;

use super::{Connection, REQUEST_MAX, Role, is_request};
use crate::event::H3Event;
use crate::fault::Violation;
use crate::frame::{FrameHeader, kind};
use crate::limits;
use crate::priority;
use crate::settings::PeerSettings;
use crate::stream::HEAD_RECEIVED;
use crate::transport::Streams;
use crate::varint;

/// The position in the peer's control stream.
#[derive(Debug, Default)]
pub(super) struct ControlReader {
    /// An incomplete frame, or frames that follow one with an event.
    bytes: Vec<u8>,
    /// The number of bytes to ignore.
    skip: u64,
    /// Whether SETTINGS have arrived.
    pub(super) is_settled: bool,
    /// Whether `bytes` may contain a complete frame.
    is_due: bool,
}

impl ControlReader {
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    pub(super) fn heap(&self) -> usize {
        self.bytes.capacity()
    }
}

/// One step through the control stream.
enum ControlStep {
    /// More bytes are needed.
    More,
    /// That many bytes were used.
    Took(usize, Option<H3Event>),
}

impl Connection {
    /// Processes bytes of the control stream up to the next event; the rest is kept.
    pub(super) fn control_frames(
        &mut self,
        bytes: &[u8],
        streams: &mut impl Streams,
    ) -> Result<Option<H3Event>, Violation> {
        let control = &mut self.peers.control;
        let is_due = std::mem::take(&mut control.is_due);
        if bytes.is_empty() && !is_due {
            return Ok(None);
        }
        let skipped = control.skip.min(bytes.len() as u64);
        control.skip -= skipped;
        let mut input = std::mem::take(&mut control.bytes);
        input.extend_from_slice(&bytes[skipped as usize..]);
        self.skip(skipped as usize)?;
        let (mut at, mut event) = (0, None);
        while event.is_none() {
            match self.control_frame(&input[at..], streams)? {
                ControlStep::More => break,
                ControlStep::Took(taken, next) => {
                    at += taken;
                    event = next;
                }
            }
        }
        input.drain(..at);
        self.peers.control.bytes = input;
        self.peers.control.is_due = event.is_some();
        Ok(event)
    }

    fn control_frame(&mut self, input: &[u8], streams: &mut impl Streams) -> Result<ControlStep, Violation> {
        let mut rest = input;
        let Some(header) = FrameHeader::take(&mut rest) else { return Ok(ControlStep::More) };
        let start = input.len() - rest.len();
        if !self.peers.control.is_settled && header.kind != kind::SETTINGS {
            return Err(Violation::MissingSettings);
        }
        let Some(max) = self.judge_control(header)? else {
            self.waste(1)?;
            let skipped = header.length.min(rest.len() as u64);
            self.skip(skipped as usize)?;
            self.peers.control.skip = header.length - skipped;
            return Ok(ControlStep::Took(start + skipped as usize, None));
        };
        if header.length > max {
            return Err(match header.kind {
                kind::SETTINGS => Violation::SettingsTooLarge,
                _ => Violation::FrameSize,
            });
        }
        let Some(payload) = rest.get(..header.length as usize) else { return Ok(ControlStep::More) };
        let event = self.control_payload(header.kind, payload, streams)?;
        Ok(ControlStep::Took(start + payload.len(), event))
    }

    /// Decides whether a frame is allowed; returns the maximum length of its payload, or `None` if it is ignored.
    fn judge_control(&mut self, header: FrameHeader) -> Result<Option<u64>, Violation> {
        let is_server = self.role == Role::Server;
        Ok(Some(match header.kind {
            kind::SETTINGS if self.peers.control.is_settled => return Err(Violation::SecondSettings),
            kind::SETTINGS => limits::SETTINGS_MAX as u64,
            kind::GOAWAY | kind::CANCEL_PUSH => varint::LONGEST as u64,
            kind::MAX_PUSH_ID if is_server => varint::LONGEST as u64,
            kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_PUSH if is_server => {
                let max = (varint::LONGEST + limits::PRIORITY_VALUE_MAX) as u64;
                if header.length > max {
                    return Ok(None);
                }
                max
            }
            kind::MAX_PUSH_ID | kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_PUSH => {
                return Err(Violation::WrongSide);
            }
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => return Err(Violation::RequestFrame),
            reserved if kind::is_reserved(reserved) => return Err(Violation::ReservedFrame),
            _ => return Ok(None),
        }))
    }

    fn control_payload(
        &mut self,
        kind: u64,
        payload: &[u8],
        streams: &mut impl Streams,
    ) -> Result<Option<H3Event>, Violation> {
        if kind == kind::SETTINGS {
            self.counts.settings += 1;
            self.peer = PeerSettings::read(payload)?;
            self.peers.control.is_settled = true;
            let (max, ours) = (self.peer.table_capacity, self.config.encoder_capacity);
            self.encoder.set_capacity(max, ours, &mut self.own.encoder.output);
            self.own.wake();
            return Ok(Some(H3Event::Settings));
        }
        let mut rest = payload;
        let id = varint::take(&mut rest).ok_or(Violation::FrameSize)?;
        if kind == kind::PRIORITY_UPDATE {
            return self.priority_update(id, rest, streams).map(|()| None);
        }
        if kind == kind::PRIORITY_UPDATE_PUSH {
            // Nothing was pushed.
            return Err(Violation::PriorityId);
        }
        if !rest.is_empty() {
            return Err(Violation::FrameSize);
        }
        match kind {
            kind::GOAWAY => self.goaway(id).map(Some),
            kind::MAX_PUSH_ID => self.max_push_id(id).map(|()| None),
            _ => {
                self.counts.cancel_push += 1;
                // Nothing was pushed or promised.
                Err(Violation::Push)
            }
        }
    }

    fn goaway(&mut self, id: u64) -> Result<H3Event, Violation> {
        self.counts.goaway += 1;
        self.waste(1)?;
        let is_client = self.role == Role::Client;
        if is_client && !is_request(id) {
            return Err(Violation::GoawayId);
        }
        if self.peer_going.is_some_and(|before| id > before) {
            return Err(Violation::GoawayIncreased);
        }
        self.peer_going = Some(id);
        if is_client {
            self.cut = Some(id);
        }
        Ok(H3Event::Goaway { id })
    }

    fn max_push_id(&mut self, id: u64) -> Result<(), Violation> {
        self.counts.max_push_id += 1;
        self.waste(1)?;
        if self.max_push.is_some_and(|before| id < before) {
            return Err(Violation::PushIdReduced);
        }
        self.max_push = Some(id);
        Ok(())
    }

    fn priority_update(
        &mut self,
        id: u64,
        value: &[u8],
        streams: &mut impl Streams,
    ) -> Result<(), Violation> {
        self.waste(1)?;
        if !is_request(id) || id > REQUEST_MAX {
            return Err(Violation::PriorityId);
        }
        let priority = Priority::parse(value);
        match self.requests.find(id) {
            Some(slot) if self.requests.at(slot).has(HEAD_RECEIVED) => {
                streams.set_priority(id, priority::of_transport(priority));
            }
            None if id < self.next_id => {}
            // Applied with the head, and preferred to its `priority` field.
            _ => self.early.get_or_insert_default().keep(id, priority),
        }
        Ok(())
    }
}
