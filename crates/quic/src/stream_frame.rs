//! Frames about streams and their flow control (RFC 9000, 19.4, 19.5 and 19.8 to 19.14), which QUIC and QMux have in common.

use crate::types::StreamDirection;
use crate::varint::{self, Reader};

pub(crate) const RESET_STREAM: u64 = 0x04;
pub(crate) const STOP_SENDING: u64 = 0x05;
pub(crate) const STREAM: u64 = 0x08;
pub(crate) const STREAM_LAST: u64 = 0x0f;
pub(crate) const MAX_DATA: u64 = 0x10;
pub(crate) const MAX_STREAM_DATA: u64 = 0x11;
pub(crate) const MAX_STREAMS_BIDI: u64 = 0x12;
pub(crate) const MAX_STREAMS_UNI: u64 = 0x13;
pub(crate) const DATA_BLOCKED: u64 = 0x14;
pub(crate) const STREAM_DATA_BLOCKED: u64 = 0x15;
pub(crate) const STREAMS_BLOCKED_BIDI: u64 = 0x16;
pub(crate) const STREAMS_BLOCKED_UNI: u64 = 0x17;

const FIN: u64 = 0x01;
const LENGTH: u64 = 0x02;
const OFFSET: u64 = 0x04;

/// The largest number of streams that can be counted.
const STREAMS_MAX: u64 = 1 << 60;

/// A received frame about streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamFrame<'a> {
    /// The peer aborts sending on a stream.
    ResetStream {
        /// The stream.
        id: u64,
        /// The application's error code.
        code: u64,
        /// The final size of the stream.
        size: u64,
    },
    /// The peer wants no more data.
    StopSending {
        /// The stream.
        id: u64,
        /// The application's error code.
        code: u64,
    },
    /// Data.
    Stream {
        /// The stream.
        id: u64,
        /// The position of the data in the stream.
        offset: u64,
        /// The data.
        data: &'a [u8],
        /// Whether the stream ends after the data.
        fin: bool,
    },
    /// The new limit for the data of all streams.
    MaxData(u64),
    /// The new limit for the data of one stream.
    MaxStreamData {
        /// The stream.
        id: u64,
        /// The limit.
        most: u64,
    },
    /// The new limit for the number of streams.
    MaxStreams(StreamDirection, u64),
    /// The peer has more data than the connection's limit permits.
    DataBlocked,
    /// The peer has more data than the limit of this stream permits.
    StreamDataBlocked(u64),
    /// The peer waits for permission to open streams.
    StreamsBlocked(StreamDirection),
}

impl<'a> StreamFrame<'a> {
    /// Whether frames of the type `kind` are about streams.
    pub fn has_kind(kind: u64) -> bool {
        matches!(kind, RESET_STREAM | STOP_SENDING | STREAM..=STREAMS_BLOCKED_UNI)
    }

    /// Reads the frame after its type, which is one of [these](Self::has_kind). Data without a length extends to the end of `reader`.
    /// Returns `None` if the frame is malformed.
    pub fn read(kind: u64, reader: &mut Reader<'a>) -> Option<Self> {
        Some(match kind {
            RESET_STREAM => {
                Self::ResetStream { id: reader.number()?, code: reader.number()?, size: reader.number()? }
            }
            STOP_SENDING => Self::StopSending { id: reader.number()?, code: reader.number()? },
            STREAM..=STREAM_LAST => {
                let id = reader.number()?;
                let offset = if kind & OFFSET != 0 { reader.number()? } else { 0 };
                let data = match kind & LENGTH != 0 {
                    true => reader.prefixed()?,
                    false => reader.rest(),
                };
                // The end of the data must be a valid offset too.
                offset.checked_add(data.len() as u64).filter(|end| *end <= varint::MAX)?;
                Self::Stream { id, offset, data, fin: kind & FIN != 0 }
            }
            MAX_DATA => Self::MaxData(reader.number()?),
            MAX_STREAM_DATA => Self::MaxStreamData { id: reader.number()?, most: reader.number()? },
            MAX_STREAMS_BIDI => Self::MaxStreams(StreamDirection::Both, streams(reader)?),
            MAX_STREAMS_UNI => Self::MaxStreams(StreamDirection::One, streams(reader)?),
            DATA_BLOCKED => reader.number().map(|_| Self::DataBlocked)?,
            STREAM_DATA_BLOCKED => {
                let id = reader.number()?;
                reader.number()?;
                Self::StreamDataBlocked(id)
            }
            STREAMS_BLOCKED_BIDI => streams(reader).map(|_| Self::StreamsBlocked(StreamDirection::Both))?,
            STREAMS_BLOCKED_UNI => streams(reader).map(|_| Self::StreamsBlocked(StreamDirection::One))?,
            _ => return None,
        })
    }
}

fn streams(reader: &mut Reader<'_>) -> Option<u64> {
    reader.number().filter(|count| *count <= STREAMS_MAX)
}

/// Appends the head of a STREAM frame. `length` is `None` if the data ends with the packet.
pub(crate) fn write_stream(out: &mut Vec<u8>, id: u64, offset: u64, length: Option<usize>, fin: bool) {
    let mut kind = STREAM;
    kind |= if fin { FIN } else { 0 };
    kind |= if length.is_some() { LENGTH } else { 0 };
    kind |= if offset > 0 { OFFSET } else { 0 };
    varint::write_all(out, &[kind, id]);
    if offset > 0 {
        varint::write(out, offset);
    }
    if let Some(length) = length {
        varint::write(out, length as u64);
    }
}
