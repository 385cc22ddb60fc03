//! Frames: encoding, and as much decoding as tests need (RFC 9000, 19).

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// ACK, with the largest acknowledged packet number.
    Ack(u64),
    /// RESET_STREAM, with the stream and its code.
    Reset(u64, u64),
    /// STOP_SENDING, with the stream and its code.
    Stop(u64, u64),
    /// CRYPTO, with its offset.
    Crypto(u64, Vec<u8>),
    /// STREAM.
    Stream {
        /// The stream.
        id: u64,
        /// The offset of the data.
        offset: u64,
        /// Whether the stream ends behind the data.
        fin: bool,
        /// The data.
        data: Vec<u8>,
    },
    /// CONNECTION_CLOSE.
    Close(Close),
    /// NEW_CONNECTION_ID, with its sequence number.
    NewId(u64, Vec<u8>),
    /// MAX_STREAMS for bidirectional streams.
    MaxStreams(u64),
    /// MAX_STREAMS for unidirectional streams.
    MaxUniStreams(u64),
    /// PATH_RESPONSE.
    PathResponse([u8; 8]),
    /// PATH_CHALLENGE.
    PathChallenge([u8; 8]),
    /// MAX_DATA, MAX_STREAM_DATA and others, with their type.
    Other(u64),
}

/// How a connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// By the transport, with a code of RFC 9000, 20.1.
    Transport(u64),
    /// By HTTP/3, with a code of RFC 9114, 8.1 or RFC 9204, 6.
    Http3(u64),
}

/// Appends a variable-length integer.
pub fn put(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Concatenates variable-length integers.
pub fn ints(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|value| put(&mut out, *value));
    out
}

/// Reads a variable-length integer.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let length = 1 << (bytes.first()? >> 6);
    let (number, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    let value = number.iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte));
    Some(value & (u64::MAX >> 2 >> (64 - 8 * length)))
}

fn slice<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(head)
}

/// A CRYPTO frame.
pub fn crypto(offset: u64, data: &[u8]) -> Vec<u8> {
    [&ints(&[0x06, offset, data.len() as u64])[..], data].concat()
}

/// A STREAM frame.
pub fn stream(id: u64, offset: u64, data: &[u8], fin: bool) -> Vec<u8> {
    [&ints(&[0x0e | u64::from(fin), id, offset, data.len() as u64])[..], data].concat()
}

/// An HTTP/3 frame.
pub fn http3(kind: u64, payload: &[u8]) -> Vec<u8> {
    [&ints(&[kind, payload.len() as u64])[..], payload].concat()
}

/// An ACK frame for ranges of packet numbers, the highest first.
pub fn ack(ranges: &[(u64, u64)]) -> Vec<u8> {
    let Some((low, high)) = ranges.first() else { return Vec::new() };
    let mut out = ints(&[0x02, *high, 0, ranges.len() as u64 - 1, high - low]);
    let mut above = *low;
    for (low, high) in &ranges[1..] {
        out.extend(ints(&[above - high - 2, high - low]));
        above = *low;
    }
    out
}

/// Reads the next frame of a packet, and skips padding; `None` at the end.
pub fn read(bytes: &mut &[u8]) -> Option<Frame> {
    while let Some(rest) = bytes.strip_prefix(&[0]) {
        *bytes = rest;
    }
    let kind = take(bytes)?;
    Some(match kind {
        0x02 | 0x03 => {
            let largest = take(bytes)?;
            take(bytes)?;
            let more = take(bytes)?;
            for _ in 0..=2 * more {
                take(bytes)?;
            }
            if kind == 0x03 {
                (0..3).try_for_each(|_| take(bytes).map(drop))?;
            }
            Frame::Ack(largest)
        }
        0x04 => {
            let frame = Frame::Reset(take(bytes)?, take(bytes)?);
            take(bytes)?;
            frame
        }
        0x05 => Frame::Stop(take(bytes)?, take(bytes)?),
        0x06 => {
            let (offset, length) = (take(bytes)?, take(bytes)?);
            Frame::Crypto(offset, slice(bytes, length)?.to_vec())
        }
        0x07 => {
            let length = take(bytes)?;
            slice(bytes, length)?;
            Frame::Other(kind)
        }
        0x08..=0x0f => {
            let id = take(bytes)?;
            let offset = if kind & 4 != 0 { take(bytes)? } else { 0 };
            let length = if kind & 2 != 0 { take(bytes)? } else { bytes.len() as u64 };
            Frame::Stream { id, offset, fin: kind & 1 != 0, data: slice(bytes, length)?.to_vec() }
        }
        0x11 | 0x15 => {
            take(bytes)?;
            take(bytes)?;
            Frame::Other(kind)
        }
        0x12 => Frame::MaxStreams(take(bytes)?),
        0x13 => Frame::MaxUniStreams(take(bytes)?),
        0x10 | 0x14 | 0x16 | 0x17 | 0x19 => {
            take(bytes)?;
            Frame::Other(kind)
        }
        0x18 => {
            let number = take(bytes)?;
            take(bytes)?;
            let length = take(bytes)?;
            let id = slice(bytes, length)?.to_vec();
            slice(bytes, 16)?;
            Frame::NewId(number, id)
        }
        0x1a | 0x1b => {
            let data = slice(bytes, 8)?.try_into().ok()?;
            if kind == 0x1a { Frame::PathChallenge(data) } else { Frame::PathResponse(data) }
        }
        0x1c | 0x1d => {
            let code = take(bytes)?;
            if kind == 0x1c {
                take(bytes)?;
            }
            let length = take(bytes)?;
            slice(bytes, length)?;
            Frame::Close(if kind == 0x1c { Close::Transport(code) } else { Close::Http3(code) })
        }
        _ => Frame::Other(kind),
    })
}

/// A field section (RFC 9204, 4.5) of literals.
pub fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in fields {
        length(&mut out, 0x20, 3, name.len());
        out.extend_from_slice(name.as_bytes());
        length(&mut out, 0, 7, value.len());
        out.extend_from_slice(value.as_bytes());
    }
    out
}

/// Appends an integer with a prefix of `bits` bits (RFC 7541, 5.1).
fn length(out: &mut Vec<u8>, first: u8, bits: u32, value: usize) {
    let most = (1 << bits) - 1;
    if value < most {
        return out.push(first | value as u8);
    }
    out.push(first | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// A HEADERS frame.
pub fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    http3(1, &section(fields))
}

/// The HEADERS frame of a request with this method, for `https://localhost/`.
pub fn request(method: &str) -> Vec<u8> {
    headers(&[(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", "/")])
}
