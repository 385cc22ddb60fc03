//! Received records and their frames.

use std::time::Instant;

use quic::transport::{
    APPLICATION_CLOSE, CONNECTION_CLOSE, HANDSHAKE_DONE, PADDING, StreamFault, StreamFrame, TransportError,
};
use quic::varint::{self, Reader};
use quic::{LostReason, QuicEvent};

use crate::connection::QmuxConnection;
use crate::parameters::{self, QX_TRANSPORT_PARAMETERS};
use crate::ping::{QX_PING, QX_PING_ANSWER};
use crate::record::{self, RecordSpan};

impl QmuxConnection {
    /// Processes received bytes. The bytes of an incomplete record are kept. After the end of the connection, all bytes are dropped.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) {
        if let Err(error) = self.receive_all(now, bytes) {
            self.fail(error);
        }
        if self.is_closed() {
            self.partial = Vec::new();
        }
    }

    fn receive_all(&mut self, now: Instant, mut bytes: &[u8]) -> Result<(), TransportError> {
        while !bytes.is_empty() && !self.is_closed() {
            bytes = match self.partial.is_empty() {
                true => self.receive_first(now, bytes)?,
                false => self.receive_rest(now, bytes)?,
            };
        }
        Ok(())
    }

    /// Processes the record at the front of `bytes`, or keeps its beginning; returns the remaining bytes.
    fn receive_first<'a>(&mut self, now: Instant, bytes: &'a [u8]) -> Result<&'a [u8], TransportError> {
        let span = record::first(bytes)?;
        match span {
            Some(RecordSpan { start, end }) if end <= bytes.len() => {
                self.process_record(now, &bytes[start..end])?;
                return Ok(&bytes[end..]);
            }
            Some(RecordSpan { end, .. }) => self.partial.reserve_exact(end),
            None => {}
        }
        self.partial.extend_from_slice(bytes);
        self.check_beginning(span)?;
        Ok(&[])
    }

    /// Adds bytes to the record that has begun, and processes it once it is complete; returns the remaining bytes.
    fn receive_rest<'a>(&mut self, now: Instant, bytes: &'a [u8]) -> Result<&'a [u8], TransportError> {
        let span = record::first(&self.partial)?;
        // Until the size is known, its next byte is all that certainly belongs to the record.
        let missing = span.map_or(1, |span| span.end - self.partial.len());
        let (own, rest) = bytes.split_at(missing.min(bytes.len()));
        self.partial.extend_from_slice(own);
        match span {
            Some(RecordSpan { start, end }) if end == self.partial.len() => {
                let record = std::mem::take(&mut self.partial);
                self.process_record(now, &record[start..])?;
            }
            Some(_) => self.check_beginning(span)?,
            None => {
                let span = record::first(&self.partial)?;
                let room = span.map_or(0, |span| span.end - self.partial.len());
                self.partial.reserve_exact(room);
            }
        }
        Ok(rest)
    }

    /// Checks the beginning of the first record.
    fn check_beginning(&self, span: Option<RecordSpan>) -> Result<(), TransportError> {
        match span {
            Some(span) if !self.has_parameters() => parameters::check_beginning(&self.partial[span.start..]),
            _ => Ok(()),
        }
    }

    fn process_record(&mut self, now: Instant, frames: &[u8]) -> Result<(), TransportError> {
        self.records_received += 1;
        self.idle.restart(now);
        if !self.has_parameters() {
            parameters::check_beginning(frames)?;
        }
        let mut reader = Reader::new(frames);
        while !reader.is_empty() && !self.is_closed() {
            let before = reader.left();
            let kind = reader.number().ok_or(TransportError::encoding("the type of a frame is cut off"))?;
            if before - reader.left() != varint::length(kind) {
                return Err(TransportError::violation("the type of a frame is not in its shortest form"));
            }
            self.process_frame(kind, &mut reader).map_err(|error| error.in_frame(kind))?;
        }
        Ok(())
    }

    fn process_frame(&mut self, kind: u64, reader: &mut Reader<'_>) -> Result<(), TransportError> {
        const MALFORMED: TransportError = TransportError::encoding("a frame is malformed");
        match (kind, self.has_parameters()) {
            (QX_TRANSPORT_PARAMETERS, false) => {
                return self.set_parameters(reader.prefixed().ok_or(MALFORMED)?);
            }
            (QX_TRANSPORT_PARAMETERS, true) => return Err(parameters::REPEATED),
            (_, false) => return Err(parameters::NOT_FIRST),
            (_, true) => {}
        }
        match kind {
            PADDING => {
                self.control_frames += 1;
                let rest = reader.rest();
                let end = rest.iter().position(|byte| *byte != 0).unwrap_or(rest.len());
                *reader = Reader::new(&rest[end..]);
            }
            kind if StreamFrame::has_kind(kind) => {
                self.process_stream(&StreamFrame::read(kind, reader).ok_or(MALFORMED)?)?;
            }
            CONNECTION_CLOSE => {
                let code = close(reader, true).ok_or(MALFORMED)?;
                self.closed_by_peer(LostReason::Closed(code));
            }
            APPLICATION_CLOSE => {
                let code = close(reader, false).ok_or(MALFORMED)?;
                self.closed_by_peer(LostReason::Application(code));
            }
            QX_PING => {
                self.control_frames += 1;
                self.pings.received(reader.number().ok_or(MALFORMED)?)?;
            }
            QX_PING_ANSWER => {
                self.control_frames += 1;
                self.pings.answered(reader.number().ok_or(MALFORMED)?)?;
            }
            _ if kind <= HANDSHAKE_DONE => {
                return Err(TransportError::encoding("QMux does not permit this frame"));
            }
            _ => return Err(TransportError::encoding("a frame has an unknown type")),
        }
        Ok(())
    }

    fn set_parameters(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let peer = parameters::read(bytes)?;
        self.idle.set_peer(peer.max_idle);
        self.events.push_back(QuicEvent::Connected);
        self.streams.set_parameters(&peer);
        self.note_parameters();
        Ok(())
    }

    fn process_stream(&mut self, frame: &StreamFrame<'_>) -> Result<(), TransportError> {
        match frame {
            StreamFrame::Stream { id, offset, data, fin } => {
                if self.streams.next_offset(*id).is_some_and(|next| next != *offset) {
                    return Err(TransportError::violation("the data of a stream is not in order"));
                }
                self.control_frames += u64::from(data.is_empty() && !fin);
            }
            StreamFrame::ResetStream { .. } | StreamFrame::StopSending { .. } => self.control_frames += 1,
            StreamFrame::MaxData(_)
            | StreamFrame::MaxStreamData { .. }
            | StreamFrame::MaxStreams(..)
            | StreamFrame::DataBlocked
            | StreamFrame::StreamDataBlocked(_)
            | StreamFrame::StreamsBlocked(_) => {}
        }
        match self.streams.process(frame) {
            Ok(()) => Ok(()),
            Err(StreamFault::Violation(error)) => Err(error),
            Err(StreamFault::TooManyGaps) => unreachable!("data in order has no gaps"),
        }
    }
}

/// Reads a CONNECTION_CLOSE frame after its type; returns the code.
fn close(reader: &mut Reader<'_>, has_frame: bool) -> Option<u64> {
    let code = reader.number()?;
    if has_frame {
        reader.number()?;
    }
    reader.prefixed()?;
    Some(code)
}
