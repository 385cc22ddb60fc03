//! Input taken apart: the preface, frame headers, and payloads that come in pieces.
//!
//! Which payload means what is in `data`, `blocks` and `control`.

use std::ops::Range;

use super::{Connection, Role};
use crate::event::{By, Event};
use crate::fault::{Breach, Closed};
use crate::frame::{HEADER, Header, PREFACE, flag, kind};
use crate::settings::SETTING;
use crate::stream::{RESET, RESET_BY_US};
use crate::{Code, Key};

/// What the next bytes are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reading {
    /// The client's preface, of which so many bytes came.
    Preface(usize),
    /// A frame's header, and the whole frame if its payload is short and of a fixed form.
    Header,
    /// A body.
    Data(Body),
    /// Settings; the initial window before them.
    Settings { left: usize, window: u32 },
    /// A piece of a header block, then padding; whether it is the block's last frame.
    Block { left: usize, padding: usize, last: bool },
    /// What is ignored.
    Skip(usize),
}

/// What is left of a DATA frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body {
    pub(super) key: Key,
    pub(super) left: usize,
    pub(super) padding: usize,
    pub(super) end: bool,
}

/// What came of one step.
pub(super) enum Step {
    /// More input is needed.
    More,
    /// So many bytes were taken.
    Took(usize),
    /// The same, and the caller is to be told.
    Told(usize, Event),
}

impl Step {
    pub(super) fn told(taken: usize, event: Option<Event>) -> Step {
        event.map_or(Step::Took(taken), |event| Step::Told(taken, event))
    }
}

pub(super) type Outcome = Result<Step, Breach>;

impl<B: AsRef<[u8]>> Connection<B> {
    /// Takes `input` apart up to the next event: how many bytes were taken, and the event. To be
    /// called again with the rest until there is none; then what was not taken (less than 300 bytes,
    /// unless [`Connection::must_drain`] or [`Connection::is_turn_over`] say why) stays with the
    /// caller, in front of what it reads next. An empty input is fine.
    ///
    /// # Errors
    /// The connection is over, from now on.
    pub fn receive(&mut self, input: &[u8]) -> Result<(usize, Option<Event>), Closed> {
        let mut at = 0;
        loop {
            if let Some(closed) = self.closed {
                return Err(closed);
            }
            match self.step(input, at) {
                Ok(Step::More) => return Ok((at, None)),
                Ok(Step::Took(taken)) => at += taken,
                Ok(Step::Told(taken, event)) => {
                    at += taken;
                    if let Some(event) = self.without_unfinished(event) {
                        return Ok((at, Some(event)));
                    }
                }
                Err(breach) => return Err(self.fail(breach)),
            }
        }
    }

    fn step(&mut self, input: &[u8], at: usize) -> Outcome {
        if let Some(event) = self.next_cut() {
            return Ok(Step::Told(0, event));
        }
        let rest = &input[at..];
        match self.reading {
            Reading::Header => self.take_frame(rest),
            Reading::Data(body) => Ok(self.take_body(body, rest.len(), at)),
            Reading::Skip(left) => Ok(self.take_skipped(left, rest.len())),
            Reading::Block { left, padding, last } => self.take_piece(left, padding, last, rest),
            Reading::Settings { left, window } => self.take_setting(left, window, rest),
            Reading::Preface(seen) => self.take_preface(seen, rest),
        }
    }

    /// One stream of ours that the peer's GOAWAY leaves out, if any is to be told of.
    fn next_cut(&mut self) -> Option<Event> {
        let last = self.cut?;
        let alive = |key: &Key| self.streams.get(*key).is_some_and(|stream| !stream.has(RESET));
        let key = self.streams.keys().rev().take_while(|key| key.id > last).find(alive);
        let Some(key) = key else {
            self.cut = None;
            return None;
        };
        self.end_stream(key.slot, RESET_BY_US);
        Some(Event::Reset { key, code: Code::RefusedStream, by: By::Goaway })
    }

    fn take_preface(&mut self, seen: usize, rest: &[u8]) -> Outcome {
        let due = &PREFACE[seen..];
        let length = due.len().min(rest.len());
        if due[..length] != rest[..length] {
            return Err(Breach::Preface);
        }
        if length == 0 {
            return Ok(Step::More);
        }
        let is_whole = length == due.len();
        self.reading = if is_whole { Reading::Header } else { Reading::Preface(seen + length) };
        Ok(Step::Took(length))
    }

    #[inline]
    fn take_frame(&mut self, rest: &[u8]) -> Outcome {
        let Some(header) = Header::read(rest) else { return Ok(Step::More) };
        if self.must_drain() || self.is_turn_over() {
            return Ok(Step::More);
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
        if !matches!(step, Step::More) {
            self.used.frame();
            self.watch.note(header, false);
        }
        Ok(step)
    }

    fn take_kind(&mut self, header: Header, payload: &[u8]) -> Outcome {
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

    /// Ignores `left` bytes after the `taken` ones.
    pub(super) fn skip(&mut self, taken: usize, left: usize) -> Step {
        self.reading = if left == 0 { Reading::Header } else { Reading::Skip(left) };
        Step::Took(taken)
    }

    fn take_skipped(&mut self, left: usize, there: usize) -> Step {
        if there == 0 { Step::More } else { self.skip(left.min(there), left.saturating_sub(there)) }
    }

    /// Passes a piece of a body on, or takes padding.
    fn take_body(&mut self, mut body: Body, there: usize, at: usize) -> Step {
        if self.streams.get(body.key).is_none_or(|stream| stream.has(RESET)) {
            return self.skip(0, body.left + body.padding);
        }
        if body.left == 0 {
            let taken = body.padding.min(there);
            body.padding -= taken;
            if body.padding > 0 {
                self.reading = Reading::Data(body);
                return if taken == 0 { Step::More } else { Step::Took(taken) };
            }
            self.reading = Reading::Header;
            return Step::told(taken, self.body_end(&body));
        }
        if there == 0 {
            return Step::More;
        }
        let taken = body.left.min(there);
        let end = self.body_taken(body, taken);
        Step::Told(taken, Event::Data { key: body.key, range: Range { start: at, end: at + taken }, end })
    }

    /// `taken` bytes of the body went to the caller; whether the message ends with them.
    fn body_taken(&mut self, mut body: Body, taken: usize) -> bool {
        body.left -= taken;
        let is_whole = body.left + body.padding == 0;
        self.reading = if is_whole { Reading::Header } else { Reading::Data(body) };
        is_whole && self.body_end(&body).is_some()
    }

    fn take_setting(&mut self, left: usize, window: u32, rest: &[u8]) -> Outcome {
        if left == 0 {
            self.reading = Reading::Header;
            return self.settings_end(window).map(|event| Step::Told(0, event));
        }
        let Some(setting) = rest.first_chunk::<SETTING>() else { return Ok(Step::More) };
        let table = self.peer.header_table_size;
        self.peer.take(setting, self.began)?;
        if self.peer.header_table_size != table {
            self.encoder.set_limit(self.peer.header_table_size, self.config.header_table_size);
        }
        self.reading = Reading::Settings { left: left - SETTING, window };
        Ok(Step::Took(SETTING))
    }

    /// Whether this side serves requests.
    #[inline]
    pub(super) fn is_server(&self) -> bool {
        self.role == Role::Server
    }
}
