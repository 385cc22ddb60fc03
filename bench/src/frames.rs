//! Raw HTTP/2 frames.

/// The client connection preface.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113, 6).
pub const DATA: u8 = 0;
/// A head, or trailers.
pub const HEADERS: u8 = 1;
/// The deprecated stream priority.
pub const PRIORITY: u8 = 2;
/// Resets a stream.
pub const RST_STREAM: u8 = 3;
/// Settings, or with [`ACK`] their acknowledgement.
pub const SETTINGS: u8 = 4;
/// A liveness check.
pub const PING: u8 = 6;
/// Announces the connection's end.
pub const GOAWAY: u8 = 7;
/// Grants more payload.
pub const WINDOW_UPDATE: u8 = 8;
/// Continues a head.
pub const CONTINUATION: u8 = 9;

/// The last frame of the stream.
pub const END_STREAM: u8 = 1;
/// The answer to SETTINGS and PING.
pub const ACK: u8 = 1;
/// The head is complete.
pub const END_HEADERS: u8 = 4;
/// The payload is padded.
pub const PADDED: u8 = 8;

/// Settings by their ids (RFC 9113, 6.5.2; RFC 8441, 3).
pub const HEADER_TABLE_SIZE: u16 = 1;
/// Maximum number of concurrent streams.
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
/// Initial flow-control window of a stream, in bytes.
pub const INITIAL_WINDOW_SIZE: u16 = 4;
/// The largest payload of a frame, in bytes.
pub const MAX_FRAME_SIZE: u16 = 5;
/// Whether extended CONNECT is supported.
pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// Error codes (RFC 9113, 7).
pub const NO_ERROR: u32 = 0;
/// Protocol violation.
pub const PROTOCOL_ERROR: u32 = 1;
/// Invalid field block.
pub const COMPRESSION_ERROR: u32 = 9;
/// The stream was not processed.
pub const REFUSED_STREAM: u32 = 7;
/// The stream is no longer needed.
pub const CANCEL: u32 = 8;
/// The peer causes too much load.
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small frame").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Encodes fields literally, without indexing (RFC 7541, 6.2.2).
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
