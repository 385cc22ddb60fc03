//! Parsing of records (FastCGI specification, 3.3, 5.3 to 5.5).

use http::{BodyLength, ChunkDecoder, ChunkEvent, ErrorKind};

use super::{Connection, HELD, MESSAGE};
use crate::record::{HEADER, RecordHeader, kind, status};
use crate::response;
use crate::stream::{BodyProgress, StreamKey};
use crate::{Broken, Event, Pairs};

/// The state of the record parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadState {
    /// The next bytes are the header of a record.
    Header,
    /// The next bytes are output of the request that used this slot when the record began, if there was one. `left` is the rest of
    /// the content and padding.
    Output { slot: u16, number: Option<u32>, left: usize, padding: usize },
    /// In a message.
    Message { left: usize, padding: usize },
    /// The next bytes are content that is ignored.
    Skip(usize),
}

/// Length of the content of END_REQUEST and UNKNOWN_TYPE.
const FIXED: usize = 8;
/// Maximum length of the GET_VALUES_RESULT content.
const VALUES: usize = 1024;

/// The connection is unusable, because the input is not FastCGI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

impl Connection {
    /// Parses `input`, which continues after the bytes that earlier calls consumed. Returns how many bytes were consumed, and an
    /// event. Without an event, the remaining bytes must be passed again, followed by more data.
    ///
    /// # Errors
    /// The input is not FastCGI.
    pub fn receive(&mut self, input: &[u8]) -> Result<(usize, Option<Event>), Closed> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.reading {
                ReadState::Header => {
                    let Some(header) = RecordHeader::read(rest) else { return Ok((at, None)) };
                    let Some((used, event)) = self.begin(header, &rest[HEADER..])? else {
                        return Ok((at, None));
                    };
                    at += HEADER + used;
                    if event.is_some() {
                        return Ok((at, event));
                    }
                }
                ReadState::Skip(left) => {
                    let taken = left.min(rest.len());
                    at += taken;
                    self.reading =
                        if taken == left { ReadState::Header } else { ReadState::Skip(left - taken) };
                    if taken < left {
                        return Ok((at, None));
                    }
                }
                ReadState::Message { left, padding } => {
                    let taken = left.min(rest.len());
                    let kept = taken.min(MESSAGE - self.message.len().min(MESSAGE));
                    self.message.extend_from_slice(&rest[..kept]);
                    at += taken;
                    if taken < left {
                        self.reading = ReadState::Message { left: left - taken, padding };
                        return Ok((at, None));
                    }
                    self.reading = ReadState::Skip(padding);
                    return Ok((at, Some(Event::Message)));
                }
                ReadState::Output { slot, number, left, padding } => {
                    if rest.is_empty() {
                        return Ok((at, None));
                    }
                    let piece = &rest[..left.min(rest.len())];
                    let (used, event) = self.output_piece(slot, number, piece, at);
                    at += used;
                    self.reading = match left - used {
                        0 => ReadState::Skip(padding),
                        left => ReadState::Output { slot, number, left, padding },
                    };
                    if event.is_some() {
                        return Ok((at, event));
                    }
                }
            }
        }
    }

    /// Handles the header of a record. Returns how many bytes after the header are consumed together with it, or `None` if these
    /// have not all arrived.
    fn begin(&mut self, header: RecordHeader, rest: &[u8]) -> Result<Option<(usize, Option<Event>)>, Closed> {
        let (length, padding) = (usize::from(header.length), usize::from(header.padding));
        let skip = ReadState::Skip(length + padding);
        let of_request = matches!(header.kind, kind::STDOUT | kind::STDERR | kind::END_REQUEST);
        if of_request && header.id == 0 {
            return Err(Closed);
        }
        let slot = header.id.wrapping_sub(1);
        match header.kind {
            kind::STDOUT if length == 0 => {
                self.reading = skip;
                Ok(Some((0, self.output_end(slot))))
            }
            kind::STDOUT => {
                let stream = self.streams.get(usize::from(slot)).and_then(Option::as_ref);
                let number = stream.map(|stream| stream.number);
                self.reading = ReadState::Output { slot, number, left: length, padding };
                Ok(Some((0, None)))
            }
            kind::STDERR if length > 0 && self.config.wants_messages => {
                self.message.clear();
                self.reading = ReadState::Message { left: length, padding };
                Ok(Some((0, None)))
            }
            kind::END_REQUEST => {
                if length != FIXED {
                    return Err(Closed);
                }
                let Some(&[_, _, _, _, how, ..]) = rest.first_chunk::<FIXED>() else { return Ok(None) };
                self.reading = ReadState::Skip(padding);
                Ok(Some((FIXED, self.request_end(slot, how))))
            }
            kind::GET_VALUES_RESULT | kind::UNKNOWN_TYPE if self.question.is_some() && header.id == 0 => {
                if length > VALUES {
                    return Err(Closed);
                }
                let Some(content) = rest.get(..length) else { return Ok(None) };
                let is_answer = header.kind == kind::GET_VALUES_RESULT;
                self.settle(Pairs::new(if is_answer { content } else { &[] }));
                self.reading = ReadState::Skip(padding);
                Ok(Some((length, None)))
            }
            _ => {
                self.reading = skip;
                Ok(Some((0, None)))
            }
        }
    }

    /// Handles output of a request, at offset `at` of the input. Returns how many bytes were consumed, and an event.
    fn output_piece(
        &mut self,
        slot: u16,
        number: Option<u32>,
        piece: &[u8],
        at: usize,
    ) -> (usize, Option<Event>) {
        let Some(stream) = self.streams.get_mut(usize::from(slot)).and_then(Option::as_mut) else {
            return (piece.len(), None);
        };
        if stream.is_deaf() || stream.is_ended || number != Some(stream.number) {
            return (piece.len(), None);
        }
        let key = StreamKey { slot, number: stream.number };
        match &mut stream.body {
            BodyProgress::Head(gathered) => {
                let gathered = gathered.get_or_insert_with(|| self.spare.take().unwrap_or_default());
                match gathered.take(piece, &self.config.head) {
                    Ok(None) => (piece.len(), None),
                    Ok(Some(behind)) => (piece.len() - behind, self.head_complete(key)),
                    Err(kind) => (piece.len(), self.break_off(key, Broken::Malformed(kind))),
                }
            }
            BodyProgress::Nothing => (piece.len(), None),
            BodyProgress::UntilEnd => self.data(key, at, piece.len()),
            BodyProgress::Length(left) if piece.len() as u64 <= *left => {
                *left -= piece.len() as u64;
                if *left == 0 {
                    stream.body = BodyProgress::Over;
                }
                self.data(key, at, piece.len())
            }
            BodyProgress::Length(_) | BodyProgress::Over => {
                (piece.len(), self.break_off(key, Broken::Malformed(ErrorKind::ContentLength)))
            }
            BodyProgress::Chunked(decoder) => match decoder.decode(piece, 0) {
                Err(_) => (piece.len(), self.break_off(key, Broken::Malformed(ErrorKind::Chunk))),
                Ok(ChunkEvent::More) => (piece.len(), None),
                Ok(ChunkEvent::Data { range }) => {
                    let (_, event) = self.data(key, at + range.start, range.len());
                    (range.end, event)
                }
                Ok(ChunkEvent::Done { consumed }) => {
                    self.head.clear();
                    decoder.trailers_into(&mut self.head);
                    let trailers = !self.head.is_empty();
                    stream.body = BodyProgress::Over;
                    (consumed, Some(Event::End { key, trailers }))
                }
            },
            BodyProgress::Broken => (piece.len(), None),
        }
    }

    fn data(&mut self, key: StreamKey, at: usize, length: usize) -> (usize, Option<Event>) {
        if let Some(stream) = super::find(&mut self.streams, key) {
            let was_choked = stream.held >= HELD;
            stream.held += length;
            self.choked += usize::from(!was_choked && stream.held >= HELD);
        }
        (length, Some(Event::Data { key, range: at..at + length }))
    }

    fn head_complete(&mut self, key: StreamKey) -> Option<Event> {
        let stream = super::find(&mut self.streams, key)?;
        let BodyProgress::Head(gathered) = &mut stream.body else { return None };
        let mut gathered = gathered.take()?;
        let method = stream.method;
        let length = match response::finish(&mut gathered.head, method) {
            Ok(length) => length,
            Err(kind) => return self.break_off(key, Broken::Malformed(kind)),
        };
        stream.body = match length {
            BodyLength::None => BodyProgress::Nothing,
            BodyLength::Length(0) => BodyProgress::Over,
            BodyLength::Length(length) => BodyProgress::Length(length),
            BodyLength::Chunked => BodyProgress::Chunked(Box::new(ChunkDecoder::new())),
            BodyLength::UntilClose => BodyProgress::UntilEnd,
        };
        std::mem::swap(&mut self.head, &mut gathered.head);
        gathered.clear();
        self.spare = Some(gathered);
        Some(Event::Head { key })
    }

    /// Handles the end of a request's output.
    fn output_end(&mut self, slot: u16) -> Option<Event> {
        let stream = self.streams.get_mut(usize::from(slot))?.as_mut()?;
        let key = StreamKey { slot, number: stream.number };
        if stream.is_deaf() || stream.is_ended {
            return None;
        }
        match stream.body {
            BodyProgress::UntilEnd | BodyProgress::Nothing => {
                stream.body = BodyProgress::Over;
                Some(Event::End { key, trailers: false })
            }
            BodyProgress::Over => None,
            _ => self.break_off(key, Broken::Cut),
        }
    }

    /// Handles the END_REQUEST record of a request.
    fn request_end(&mut self, slot: u16, how: u8) -> Option<Event> {
        let stream = self.streams.get(usize::from(slot))?.as_ref()?;
        if stream.is_released {
            self.free_place(slot);
            return None;
        }
        let key = StreamKey { slot, number: stream.number };
        let began = !matches!(stream.body, BodyProgress::Head(None));
        let event = match how {
            status::CANT_MPX_CONN | status::OVERLOADED if !began => self.break_off(key, Broken::Refused),
            _ => self.output_end(slot),
        };
        if let Some(stream) = super::find(&mut self.streams, key) {
            stream.is_ended = true;
        }
        event
    }

    fn break_off(&mut self, key: StreamKey, how: Broken) -> Option<Event> {
        let stream = super::find(&mut self.streams, key)?;
        stream.body = BodyProgress::Broken;
        Some(Event::Broken { key, how })
    }
}
