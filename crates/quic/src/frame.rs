//! Frames (RFC 9000, 19).

use std::ops::Range;

use crate::connection_id::{ConnectionId, LENGTH_MAX};
use crate::error::TransportError;
use crate::ranges::Ranges;
use crate::stream_frame::StreamFrame;
use crate::varint::{self, Reader};

/// The frame type PADDING.
pub const PADDING: u64 = 0x00;
pub(crate) const PING: u64 = 0x01;
pub(crate) const ACK: u64 = 0x02;
pub(crate) const ACK_ECN: u64 = 0x03;
pub(crate) const CRYPTO: u64 = 0x06;
pub(crate) const NEW_TOKEN: u64 = 0x07;
pub(crate) const NEW_CONNECTION_ID: u64 = 0x18;
pub(crate) const RETIRE_CONNECTION_ID: u64 = 0x19;
pub(crate) const PATH_CHALLENGE: u64 = 0x1a;
pub(crate) const PATH_RESPONSE: u64 = 0x1b;
/// The frame type CONNECTION_CLOSE.
pub const CONNECTION_CLOSE: u64 = 0x1c;
/// The frame type CONNECTION_CLOSE with an error of the application.
pub const APPLICATION_CLOSE: u64 = 0x1d;
/// The frame type HANDSHAKE_DONE.
pub const HANDSHAKE_DONE: u64 = 0x1e;

/// A received frame.
#[derive(Debug, Clone)]
pub(crate) enum Frame<'a> {
    Padding,
    Ping,
    Ack(AckFrame<'a>),
    Crypto { offset: u64, data: &'a [u8] },
    NewToken(&'a [u8]),
    Stream(StreamFrame<'a>),
    NewConnectionId(NewConnectionId),
    RetireConnectionId(u64),
    PathChallenge([u8; 8]),
    PathResponse([u8; 8]),
    Close { code: u64 },
    ApplicationClose { code: u64 },
    HandshakeDone,
}

/// A NEW_CONNECTION_ID frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewConnectionId {
    pub(crate) sequence: u64,
    pub(crate) retire_prior_to: u64,
    pub(crate) id: ConnectionId,
    pub(crate) reset_token: [u8; 16],
}

/// An ACK frame with well-formed ranges.
#[derive(Debug, Clone)]
pub(crate) struct AckFrame<'a> {
    pub(crate) largest: u64,
    /// In the unit of the sender's exponent.
    pub(crate) delay: u64,
    first: u64,
    gaps: Reader<'a>,
    count: u64,
    /// The counts of ECT(0), ECT(1) and CE marks.
    pub(crate) ecn: Option<[u64; 3]>,
}

impl<'a> AckFrame<'a> {
    fn read(reader: &mut Reader<'a>, has_ecn: bool) -> Option<Self> {
        let largest = reader.number()?;
        let delay = reader.number()?;
        let count = reader.number()?;
        let first = reader.number()?;
        let gaps = *reader;
        let mut smallest = largest.checked_sub(first)?;
        for _ in 0..count {
            let (gap, length) = (reader.number()?, reader.number()?);
            smallest = smallest.checked_sub(gap.checked_add(2)?)?.checked_sub(length)?;
        }
        let ecn = match has_ecn {
            true => Some([reader.number()?, reader.number()?, reader.number()?]),
            false => None,
        };
        Some(Self { largest, delay, first, gaps, count, ecn })
    }

    /// Returns the acknowledged packet numbers, the largest first.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> + use<'a> {
        let Self { largest, first, mut gaps, count, .. } = *self;
        let mut smallest = largest - first;
        let ranges = (0..count).map_while(move |_| {
            let (gap, length) = (gaps.number()?, gaps.number()?);
            let end = smallest - gap - 1;
            smallest = end - 1 - length;
            Some(smallest..end)
        });
        std::iter::once(smallest..largest + 1).chain(ranges)
    }
}

/// Reads the frames of a packet.
#[derive(Debug, Clone)]
pub(crate) struct Frames<'a>(Reader<'a>);

impl<'a> Frames<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        Self(Reader(payload))
    }

    /// Returns the next frame with its type.
    pub(crate) fn next(&mut self) -> Option<Result<(u64, Frame<'a>), TransportError>> {
        if self.0.is_empty() {
            return None;
        }
        let before = self.0.0.len();
        let Some(kind) = self.0.number() else {
            return Some(Err(TransportError::encoding("the type of a frame is cut off")));
        };
        if before - self.0.0.len() != varint::length(kind) {
            return Some(Err(TransportError::violation("the type of a frame is not in its shortest form")));
        }
        let frame = self.frame(kind).ok_or(match kind {
            PADDING..=HANDSHAKE_DONE => TransportError::encoding("a frame is malformed"),
            _ => TransportError::encoding("a frame has an unknown type"),
        });
        Some(frame.map(|frame| (kind, frame)).map_err(|error| error.in_frame(kind)))
    }

    fn frame(&mut self, kind: u64) -> Option<Frame<'a>> {
        let reader = &mut self.0;
        if StreamFrame::has_kind(kind) {
            return StreamFrame::read(kind, reader).map(Frame::Stream);
        }
        Some(match kind {
            PADDING => {
                let rest = reader.0.iter().position(|byte| *byte != 0).unwrap_or(reader.0.len());
                reader.0 = &reader.0[rest..];
                Frame::Padding
            }
            PING => Frame::Ping,
            ACK | ACK_ECN => Frame::Ack(AckFrame::read(reader, kind == ACK_ECN)?),
            CRYPTO => Frame::Crypto { offset: reader.number()?, data: reader.prefixed()? },
            NEW_TOKEN => Frame::NewToken(reader.prefixed().filter(|token| !token.is_empty())?),
            NEW_CONNECTION_ID => Frame::NewConnectionId(new_connection_id(reader)?),
            RETIRE_CONNECTION_ID => Frame::RetireConnectionId(reader.number()?),
            PATH_CHALLENGE => Frame::PathChallenge(reader.array()?),
            PATH_RESPONSE => Frame::PathResponse(reader.array()?),
            CONNECTION_CLOSE => {
                let code = reader.number()?;
                reader.number()?;
                reader.prefixed()?;
                Frame::Close { code }
            }
            APPLICATION_CLOSE => {
                let code = reader.number()?;
                reader.prefixed()?;
                Frame::ApplicationClose { code }
            }
            HANDSHAKE_DONE => Frame::HandshakeDone,
            _ => return None,
        })
    }
}

fn new_connection_id(reader: &mut Reader<'_>) -> Option<NewConnectionId> {
    let (sequence, retire_prior_to) = (reader.number()?, reader.number()?);
    let length = usize::from(reader.byte()?);
    let id = reader.bytes(length).filter(|id| (1..=LENGTH_MAX).contains(&id.len()))?;
    let id = ConnectionId::new(id)?;
    let reset_token = reader.array()?;
    (retire_prior_to <= sequence).then_some(NewConnectionId { sequence, retire_prior_to, id, reset_token })
}

/// Appends an ACK frame for `ranges` that fits into `room` bytes. The oldest ranges are omitted if they do not fit. Returns
/// whether there was room.
pub(crate) fn write_ack(
    out: &mut Vec<u8>,
    ranges: &Ranges,
    delay: u64,
    ecn: Option<[u64; 3]>,
    room: usize,
) -> bool {
    /// Type, and three numbers of the longest form; the count of ranges fits into two bytes.
    const HEAD_MAX: usize = 1 + 8 + 8 + 2 + 8;
    const RANGE_MAX: usize = 16;
    let ecn_length = ecn.map_or(0, |ecn| ecn.iter().map(|count| varint::length(*count)).sum());
    let Some(left) = room.checked_sub(HEAD_MAX + ecn_length) else { return false };
    let mut all = ranges.iter().rev();
    let Some(last) = all.next() else { return false };
    let count = (ranges.len() - 1).min(left / RANGE_MAX);
    let kind = if ecn.is_some() { ACK_ECN } else { ACK };
    varint::write_all(out, &[kind, last.end - 1, delay, count as u64, last.end - 1 - last.start]);
    let mut smallest = last.start;
    for range in all.take(count) {
        varint::write_all(out, &[smallest - range.end - 1, range.end - 1 - range.start]);
        smallest = range.start;
    }
    varint::write_all(out, ecn.as_ref().map_or(&[], |ecn| &ecn[..]));
    true
}

/// Appends a CONNECTION_CLOSE frame; `frame` is the frame at fault, `None` for errors of the application. The reason is cut to `room`.
pub fn write_close(out: &mut Vec<u8>, code: u64, frame: Option<u64>, reason: &[u8], room: usize) {
    match frame {
        Some(frame) => varint::write_all(out, &[CONNECTION_CLOSE, code, frame]),
        None => varint::write_all(out, &[APPLICATION_CLOSE, code]),
    }
    let reason = &reason[..reason.len().min(room.saturating_sub(20))];
    varint::write(out, reason.len() as u64);
    out.extend_from_slice(reason);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(bytes: &[u8]) -> Result<Frame<'_>, TransportError> {
        Frames::new(bytes).next().expect("a frame").map(|(_, frame)| frame)
    }

    #[test]
    fn acknowledgements_are_read_as_written() {
        let mut ranges = Ranges::default();
        for range in [0..3, 5..6, 1000..2000, 70_000..70_001] {
            ranges.insert(range);
        }
        for ecn in [None, Some([5, 0, 70_000])] {
            let mut out = Vec::new();
            assert!(write_ack(&mut out, &ranges, 77, ecn, 200));
            let Ok(Frame::Ack(ack)) = first(&out) else { panic!("{out:x?}") };
            assert_eq!((ack.largest, ack.delay, ack.ecn), (70_000, 77, ecn));
            assert!(ack.ranges().eq([70_000..70_001, 1000..2000, 5..6, 0..3]));
        }
        let mut out = Vec::new();
        assert!(write_ack(&mut out, &ranges, 77, None, 60));
        let Ok(Frame::Ack(ack)) = first(&out) else { panic!("{out:x?}") };
        assert!(ack.ranges().eq([70_000..70_001, 1000..2000, 5..6]), "the oldest has no room");
        assert!(!write_ack(&mut out, &ranges, 77, None, 20));
    }

    #[test]
    fn stream_frames_are_read_as_written() {
        for (offset, fin) in [(0, false), (5, true)] {
            let mut out = Vec::new();
            crate::stream_frame::write_stream(&mut out, 4, offset, Some(3), fin);
            out.extend_from_slice(b"abc");
            crate::stream_frame::write_stream(&mut out, 8, offset, None, fin);
            out.extend_from_slice(b"rest");
            let mut frames = Frames::new(&out);
            for (expected, content) in [(4, &b"abc"[..]), (8, b"rest")] {
                let Some(Ok((_, Frame::Stream(StreamFrame::Stream { id, offset: at, data, fin: end })))) =
                    frames.next()
                else {
                    panic!("{out:x?}")
                };
                assert_eq!((id, at, data, end), (expected, offset, content, fin));
            }
            assert!(frames.next().is_none());
        }
    }

    #[test]
    fn malformed_frames_are_encoding_errors() {
        for bytes in [
            &[0x02, 3, 0, 0, 4][..],
            &[0x02, 9, 0, 1, 2, 6, 0],
            &[0x02, 9, 0, 1],
            &[0x06, 0, 5, 1],
            &[0x07, 0],
            &[0x0e, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1],
            &[0x12, 0xd0, 0, 0, 0, 0, 0, 0, 1],
            &[0x18, 1, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x18, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x1a, 1, 2, 3],
            &[0x1f],
            &[0x40],
        ] {
            let error = first(bytes).expect_err("it is malformed");
            assert_eq!(error.code, crate::error::FRAME_ENCODING_ERROR, "{bytes:x?}");
        }
        let error = first(&[0x40, 0x01]).expect_err("not the shortest form");
        assert_eq!(error.code, crate::error::PROTOCOL_VIOLATION);
    }

    #[test]
    fn padding_is_skipped_at_once() {
        let mut frames = Frames::new(&[0, 0, 0, 1, 0]);
        let kinds = std::iter::from_fn(|| frames.next()).map(|frame| frame.map(|(kind, _)| kind));
        assert_eq!(kinds.collect::<Vec<_>>(), [Ok(PADDING), Ok(PING), Ok(PADDING)]);
    }
}
