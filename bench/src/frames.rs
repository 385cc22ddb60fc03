//! Frames of HTTP/2 as bytes, for those who send what they like.

/// What a client says first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113, 6).
pub const DATA: u8 = 0;
/// A head, or trailers.
pub const HEADERS: u8 = 1;
/// What was once said of the order of streams.
pub const PRIORITY: u8 = 2;
/// The end of a stream before its time.
pub const RST_STREAM: u8 = 3;
/// Settings, or with [`ACK`] their acknowledgement.
pub const SETTINGS: u8 = 4;
/// A question whether the peer lives.
pub const PING: u8 = 6;
/// The announcement of the connection's end.
pub const GOAWAY: u8 = 7;
/// Room for more payload.
pub const WINDOW_UPDATE: u8 = 8;
/// More of a head.
pub const CONTINUATION: u8 = 9;

/// Nothing follows on the stream.
pub const END_STREAM: u8 = 1;
/// The answer to SETTINGS and PING.
pub const ACK: u8 = 1;
/// The whole of a head.
pub const END_HEADERS: u8 = 4;
/// Padding surrounds the payload.
pub const PADDED: u8 = 8;

/// Settings by their numbers (RFC 9113, 6.5.2; RFC 8441, 3).
pub const HEADER_TABLE_SIZE: u16 = 1;
/// How many streams there may be at once.
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
/// What may be sent on a stream at first, in bytes.
pub const INITIAL_WINDOW_SIZE: u16 = 4;
/// The largest payload of a frame, in bytes.
pub const MAX_FRAME_SIZE: u16 = 5;
/// Whether an extended CONNECT is understood.
pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// Codes of resets and ends (RFC 9113, 7).
pub const NO_ERROR: u32 = 0;
/// The protocol was broken.
pub const PROTOCOL_ERROR: u32 = 1;
/// A block of fields is none.
pub const COMPRESSION_ERROR: u32 = 9;
/// It was not looked at.
pub const REFUSED_STREAM: u32 = 7;
/// Nobody wants it any more.
pub const CANCEL: u32 = 8;
/// The peer does too much.
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small frame").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A block of fields, all of them as they are (RFC 7541, 6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            let length = text.len();
            if length < 127 {
                bytes.push(length as u8);
            } else {
                bytes.extend_from_slice(&[
                    127,
                    ((length - 127) % 128) as u8 | 128,
                    ((length - 127) / 128) as u8,
                ]);
            }
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}
