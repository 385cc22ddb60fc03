//! Parses input: the preface, frame headers, and payloads that arrive in pieces.
//!
//! `data`, `blocks` and `control` process the payloads.

use std::ops::Range;

use super::{Connection, Role};
use crate::event::{By, Event};
use crate::fault::{Breach, Closed};
use crate::frame::{FrameHeader, HEADER, PREFACE, flag, kind};
use crate::settings::SETTING;
use crate::stream::{RESET, RESET_BY_US};
use crate::{Code, StreamKey};

/// The kind of the next bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReadState {
    /// The client's preface, with the number of bytes received.
    Preface(usize),
    /// A frame header, or a whole frame if the payload is short and has a fixed format.
    Header,
    /// A body.
    Data(DataRest),
    /// Settings, with the initial window before this frame.
    Settings { left: usize, window: u32 },
    /// A piece of a header block, followed by padding. `last` marks the last frame of the block.
    Block { left: usize, padding: usize, last: bool },
    /// Bytes to ignore.
    Skip(usize),
}

/// The rest of a DATA frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataRest {
    pub(super) key: StreamKey,
    pub(super) left: usize,
    pub(super) padding: usize,
    pub(super) end: bool,
}

/// The result of one step.
pub(super) enum ReceiveStep {
    /// More input is needed.
    More,
    /// This number of bytes was consumed.
    Took(usize),
    /// Bytes were consumed, with an event for the caller.
    Event(usize, Event),
}

impl ReceiveStep {
    pub(super) fn with_event(taken: usize, event: Option<Event>) -> ReceiveStep {
        event.map_or(ReceiveStep::Took(taken), |event| ReceiveStep::Event(taken, event))
    }
}

pub(super) type ReceiveOutcome = Result<ReceiveStep, Breach>;

impl<B: AsRef<[u8]>> Connection<B> {
    /// Parses `input` up to the next event; returns the number of bytes consumed, and the event. Call this again with the rest
    /// until there is no event. The caller then keeps the remaining bytes (less than 300, unless [`Connection::must_drain`] or
    /// [`Connection::is_turn_over`] applies) and passes them again before the data of the next read. An empty input is allowed.
    ///
    /// # Errors
    /// The connection is over.
    pub fn receive(&mut self, input: &[u8]) -> Result<(usize, Option<Event>), Closed> {
        let mut at = 0;
        loop {
            if let Some(closed) = self.closed {
                return Err(closed);
            }
            match self.step(input, at) {
                Ok(ReceiveStep::More) => return Ok((at, None)),
                Ok(ReceiveStep::Took(taken)) => at += taken,
                Ok(ReceiveStep::Event(taken, event)) => {
                    at += taken;
                    if let Some(event) = self.without_unfinished(event) {
                        return Ok((at, Some(event)));
                    }
                }
                Err(breach) => return Err(self.fail(breach)),
            }
        }
    }

    fn step(&mut self, input: &[u8], at: usize) -> ReceiveOutcome {
        if let Some(event) = self.next_cut() {
            return Ok(ReceiveStep::Event(0, event));
        }
        let rest = &input[at..];
        match self.reading {
            ReadState::Header => self.take_frame(rest),
            ReadState::Data(body) => Ok(self.take_body(body, rest.len(), at)),
            ReadState::Skip(left) => Ok(self.take_skipped(left, rest.len())),
            ReadState::Block { left, padding, last } => self.take_piece(left, padding, last, rest),
            ReadState::Settings { left, window } => self.take_setting(left, window, rest),
            ReadState::Preface(seen) => self.take_preface(seen, rest),
        }
    }

    /// The next stream of this side that the peer's GOAWAY excludes and that was not reported yet.
    fn next_cut(&mut self) -> Option<Event> {
        let last = self.cut?;
        let alive = |key: &StreamKey| self.streams.get(*key).is_some_and(|stream| !stream.has(RESET));
        let key = self.streams.keys().rev().take_while(|key| key.id > last).find(alive);
        let Some(key) = key else {
            self.cut = None;
            return None;
        };
        self.end_stream(key.slot, RESET_BY_US);
        Some(Event::Reset { key, code: Code::RefusedStream, by: By::Goaway })
    }

    fn take_preface(&mut self, seen: usize, rest: &[u8]) -> ReceiveOutcome {
        let due = &PREFACE[seen..];
        let length = due.len().min(rest.len());
        if due[..length] != rest[..length] {
            return Err(Breach::Preface);
        }
        if length == 0 {
            return Ok(ReceiveStep::More);
        }
        let is_whole = length == due.len();
        self.reading = if is_whole { ReadState::Header } else { ReadState::Preface(seen + length) };
        Ok(ReceiveStep::Took(length))
    }

    #[inline]
    fn take_frame(&mut self, rest: &[u8]) -> ReceiveOutcome {
        let Some(header) = FrameHeader::read(rest) else { return Ok(ReceiveStep::More) };
        if self.must_drain() || self.is_turn_over() {
            return Ok(ReceiveStep::More);
        }
        if header.length > self.config.max_frame_size() as usize {
            return Err(Breach::FrameTooLarge);
        }
        if !self.is_settled {
            if header.kind != kind::SETTINGS || header.has(flag::ACK) {
                return Err(Breach::NoSettings);
            }
            self.is_settled = true;
        }
        if self.is_gathering() && header.kind != kind::CONTINUATION {
            return Err(Breach::NoContinuation);
        }
        let step = self.take_kind(header, &rest[HEADER..])?;
        if !matches!(step, ReceiveStep::More) {
            self.used.frame();
            self.watch.note(header, false);
        }
        Ok(step)
    }

    fn take_kind(&mut self, header: FrameHeader, payload: &[u8]) -> ReceiveOutcome {
        match header.kind {
            kind::DATA => self.data_frame(header, payload),
            kind::HEADERS => self.headers_frame(header, payload),
            kind::CONTINUATION => self.continuation_frame(header),
            kind::WINDOW_UPDATE => self.window_update_frame(header, payload),
            kind::SETTINGS => self.settings_frame(header),
            kind::RST_STREAM => self.reset_frame(header, payload),
            kind::PING => self.ping_frame(header, payload),
            kind::PRIORITY => self.priority_frame(header, payload),
            kind::PRIORITY_UPDATE => self.priority_update_frame(header, payload),
            kind::GOAWAY => self.goaway_frame(header, payload),
            kind::PUSH_PROMISE => Err(Breach::Push),
            _ => {
                self.waste()?;
                Ok(self.skip(HEADER, header.length))
            }
        }
    }

    /// Ignores `left` bytes that follow the `taken` bytes.
    pub(super) fn skip(&mut self, taken: usize, left: usize) -> ReceiveStep {
        self.reading = if left == 0 { ReadState::Header } else { ReadState::Skip(left) };
        ReceiveStep::Took(taken)
    }

    fn take_skipped(&mut self, left: usize, there: usize) -> ReceiveStep {
        if there == 0 { ReceiveStep::More } else { self.skip(left.min(there), left.saturating_sub(there)) }
    }

    /// Passes on a piece of a body, or skips padding.
    fn take_body(&mut self, mut body: DataRest, there: usize, at: usize) -> ReceiveStep {
        if self.streams.get(body.key).is_none_or(|stream| stream.has(RESET)) {
            return self.skip(0, body.left + body.padding);
        }
        if body.left == 0 {
            let taken = body.padding.min(there);
            body.padding -= taken;
            if body.padding > 0 {
                self.reading = ReadState::Data(body);
                return if taken == 0 { ReceiveStep::More } else { ReceiveStep::Took(taken) };
            }
            self.reading = ReadState::Header;
            return ReceiveStep::with_event(taken, self.body_end(&body));
        }
        if there == 0 {
            return ReceiveStep::More;
        }
        let taken = body.left.min(there);
        let end = self.body_taken(body, taken);
        ReceiveStep::Event(
            taken,
            Event::Data { key: body.key, range: Range { start: at, end: at + taken }, end },
        )
    }

    /// Accounts for `taken` bytes passed to the caller; returns whether the message ends with them.
    fn body_taken(&mut self, mut body: DataRest, taken: usize) -> bool {
        body.left -= taken;
        let is_whole = body.left + body.padding == 0;
        self.reading = if is_whole { ReadState::Header } else { ReadState::Data(body) };
        is_whole && self.body_end(&body).is_some()
    }

    fn take_setting(&mut self, left: usize, window: u32, rest: &[u8]) -> ReceiveOutcome {
        if left == 0 {
            self.reading = ReadState::Header;
            return self.settings_end(window).map(|event| ReceiveStep::Event(0, event));
        }
        let Some(setting) = rest.first_chunk::<SETTING>() else { return Ok(ReceiveStep::More) };
        let table = self.peer.header_table_size;
        self.peer.take(setting, self.began)?;
        if self.peer.header_table_size != table {
            self.encoder.set_limit(self.peer.header_table_size, self.config.header_table_size);
        }
        self.reading = ReadState::Settings { left: left - SETTING, window };
        Ok(ReceiveStep::Took(SETTING))
    }

    /// Whether this side is the server.
    #[inline]
    pub(super) fn is_server(&self) -> bool {
        self.role == Role::Server
    }
}
