//! Chunked transfer coding (RFC 9112 section 7.1): a decoder over slices, and the lines of the encoder.
//!
//! The decoder copies no payload. It returns which range of the input is payload, so the bytes can be forwarded either decoded
//! ([`ChunkDecoder::decode`]) or still encoded, in a canonical form that every reader parses in the same way
//! ([`ChunkDecoder::normalize`]). The decoder is strict: hexadecimal sizes without sign or overflow, CRLF only, extensions and
//! trailers within limits.

use std::ops::Range;

use crate::head::Head;
use crate::scan::is_token_byte;

/// The maximum total length of chunk extensions in a message.
const MAX_EXTENSIONS: u32 = 4096;
/// The maximum number of digits of a chunk size, leading zeros included.
const MAX_DIGITS: u8 = 32;
/// The maximum length of trailers.
const MAX_TRAILERS: usize = 8192;

/// An error in a chunked body, and its position in the given slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkError {
    /// A short description.
    pub text: &'static str,
    /// The offset of the byte in the input at which the error is detected.
    pub offset: usize,
}

impl std::fmt::Display for ChunkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at offset {}", self.text, self.offset)
    }
}

impl std::error::Error for ChunkError {}

/// The result of a decoder step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkEvent {
    /// A range of the input is payload. Continue after its end.
    Data {
        /// The range of payload within the input.
        range: Range<usize>,
    },
    /// The whole input was consumed and the body continues.
    More,
    /// The body ended; `consumed` bytes of the input belonged to it. The trailers are in [`ChunkDecoder::trailers`].
    Done {
        /// The bytes of the input that belong to the body.
        consumed: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ChunkState {
    /// Before the first digit of a size.
    #[default]
    Size,
    /// Within the digits.
    Digits,
    /// Spaces after the digits.
    Blank,
    /// Within an extension.
    Extension,
    /// After the CR of a size line.
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a trailer line.
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerLf,
    /// After the CR of the last line.
    LastLf,
    Done,
}

/// Decodes one chunked body. Each message needs a new decoder. It allocates only for trailers.
#[derive(Debug, Clone, Default)]
pub struct ChunkDecoder {
    state: ChunkState,
    remaining: u64,
    extensions: u32,
    digits: u8,
    trailers: Vec<u8>,
}

impl ChunkDecoder {
    /// Creates a decoder at the start of a body.
    #[must_use]
    pub fn new() -> ChunkDecoder {
        ChunkDecoder::default()
    }

    /// Whether the body has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// The remaining payload bytes of the current chunk.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        if self.state == ChunkState::Data { self.remaining } else { 0 }
    }

    /// Skips `n` payload bytes of the current chunk that were forwarded in another way; at most [`ChunkDecoder::remaining`].
    pub fn skip(&mut self, n: u64) {
        debug_assert!(n <= self.remaining());
        if self.state == ChunkState::Data {
            self.remaining -= n.min(self.remaining);
            if self.remaining == 0 {
                self.state = ChunkState::DataCr;
            }
        }
    }

    /// The trailer lines as received, without the final empty line; empty if there are none.
    #[must_use]
    pub fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Returns the next event in `input`, starting at byte `from`. After `Data`, call this again with `from` at the end of the
    /// range.
    ///
    /// # Errors
    /// A syntax error or an exceeded limit. The message cannot be continued.
    pub fn decode(&mut self, input: &[u8], from: usize) -> Result<ChunkEvent, ChunkError> {
        let mut at = from;
        while let Some(&b) = input.get(at) {
            match self.state {
                ChunkState::Data => {
                    let available = (input.len() - at) as u64;
                    let n = available.min(self.remaining);
                    self.remaining -= n;
                    if self.remaining == 0 {
                        self.state = ChunkState::DataCr;
                    }
                    return Ok(ChunkEvent::Data { range: at..at + n as usize });
                }
                ChunkState::Done => return Ok(ChunkEvent::Done { consumed: at }),
                _ => self.state = self.framing_byte(b).map_err(|text| ChunkError { text, offset: at })?,
            }
            at += 1;
            if self.state == ChunkState::Done {
                return Ok(ChunkEvent::Done { consumed: at });
            }
        }
        Ok(ChunkEvent::More)
    }

    /// Follows the framing without decoding, to forward the encoded bytes unchanged. Returns how many bytes of `input` belong to
    /// the body; these are all bytes unless the body has ended ([`ChunkDecoder::is_done`]).
    ///
    /// # Errors
    /// The errors of [`ChunkDecoder::decode`].
    pub fn track(&mut self, input: &[u8]) -> Result<usize, ChunkError> {
        let mut at = 0;
        loop {
            match self.decode(input, at)? {
                ChunkEvent::Data { range } => at = range.end,
                ChunkEvent::More => return Ok(input.len()),
                ChunkEvent::Done { consumed } => return Ok(consumed),
            }
        }
    }

    /// Follows the framing and rewrites `input` in place to a canonical form, to forward it still encoded: sizes are in lower case
    /// without leading zeros, there are no blanks or extensions after them, and no trailers that affect framing or routing. The
    /// result is moved to the front of the input: `kept` bytes of the first `used`. A body that is already canonical is not written
    /// to.
    ///
    /// If `used` is less than the input and the body has not ended ([`ChunkDecoder::is_done`]), the rest must be passed again
    /// together with more input, because its meaning is not known yet.
    ///
    /// # Errors
    /// The errors of [`ChunkDecoder::decode`].
    pub fn normalize(&mut self, input: &mut [u8]) -> Result<Normalized, ChunkError> {
        let (mut at, mut kept) = (0, 0);
        while at < input.len() && self.state != ChunkState::Done {
            let length = match self.state {
                ChunkState::Data => {
                    let length = self.remaining.min((input.len() - at) as u64) as usize;
                    self.skip(length as u64);
                    length
                }
                ChunkState::Size if input[at] == b'0' => match self.zeros(input, at)? {
                    None => break,
                    Some((passed, length)) => {
                        at += passed;
                        length
                    }
                },
                ChunkState::Trailer if input[at] != b'\r' => match self.trailer_line(input, at)? {
                    None => break,
                    Some((length, true)) => length,
                    Some((length, false)) => {
                        at += length;
                        continue;
                    }
                },
                _ => {
                    let byte = input[at];
                    self.state = self.framing_byte(byte).map_err(|text| ChunkError { text, offset: at })?;
                    if matches!(self.state, ChunkState::Blank | ChunkState::Extension) {
                        at += 1;
                        continue;
                    }
                    if byte.is_ascii_uppercase() {
                        input[at] = byte.to_ascii_lowercase();
                    }
                    1
                }
            };
            if kept != at {
                input.copy_within(at..at + length, kept);
            }
            (at, kept) = (at + length, kept + length);
        }
        Ok(Normalized { used: at, kept })
    }

    /// The number of redundant zeros at the beginning of a size, and the number of those that stay. `None` if it is not known yet
    /// whether the size consists of zeros only.
    fn zeros(&mut self, input: &[u8], at: usize) -> Result<Option<(usize, usize)>, ChunkError> {
        let zeros = input[at..].iter().take_while(|byte| **byte == b'0').count();
        if zeros > usize::from(MAX_DIGITS) {
            return Err(ChunkError { text: "chunk size too large", offset: at });
        }
        let Some(next) = input.get(at + zeros) else { return Ok(None) };
        if next.is_ascii_hexdigit() {
            return Ok(Some((zeros, 0)));
        }
        self.state = ChunkState::Digits;
        Ok(Some((zeros - 1, 1)))
    }

    /// The length of the trailer line at `at`, and whether the line is kept. `None` while it is incomplete.
    fn trailer_line(&mut self, input: &[u8], at: usize) -> Result<Option<(usize, bool)>, ChunkError> {
        let Some(length) = memchr::memchr(b'\n', &input[at..]).map(|end| end + 1) else {
            let offset = at;
            let too_long = input.len() - at > MAX_TRAILERS;
            return if too_long { Err(ChunkError { text: "trailers too long", offset }) } else { Ok(None) };
        };
        let line = &input[at..at + length];
        for (index, byte) in line.iter().enumerate() {
            let fault = |text| ChunkError { text, offset: at + index };
            self.state = self.framing_byte(*byte).map_err(fault)?;
        }
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        Ok(Some((length, !is_forbidden_trailer(name))))
    }

    fn framing_byte(&mut self, b: u8) -> Result<ChunkState, &'static str> {
        let size_end = |b| match b {
            b'\r' => Ok(ChunkState::SizeLf),
            b';' => Ok(ChunkState::Extension),
            b' ' | b'\t' => Ok(ChunkState::Blank),
            _ => Err("invalid character in chunk size"),
        };
        match self.state {
            ChunkState::Size | ChunkState::Digits => {
                let Some(digit) = char::from(b).to_digit(16) else {
                    return if self.state == ChunkState::Digits {
                        size_end(b)
                    } else {
                        Err("missing chunk size")
                    };
                };
                // Sizes stay below 2^62, and leading zeros are bounded.
                self.digits = if self.state == ChunkState::Size { 1 } else { self.digits + 1 };
                if self.remaining >> 58 != 0 || self.digits > MAX_DIGITS {
                    return Err("chunk size too large");
                }
                self.remaining = self.remaining << 4 | u64::from(digit);
                Ok(ChunkState::Digits)
            }
            ChunkState::Blank => {
                self.count_extension()?;
                size_end(b)
            }
            ChunkState::Extension => {
                self.count_extension()?;
                match b {
                    b'\r' => Ok(ChunkState::SizeLf),
                    b'\t' | b' '..=b'~' | 0x80..=0xff => Ok(ChunkState::Extension),
                    _ => Err("invalid character in chunk extension"),
                }
            }
            ChunkState::SizeLf if b == b'\n' => {
                Ok(if self.remaining == 0 { ChunkState::Trailer } else { ChunkState::Data })
            }
            ChunkState::DataCr if b == b'\r' => Ok(ChunkState::DataLf),
            ChunkState::DataLf if b == b'\n' => {
                self.remaining = 0;
                Ok(ChunkState::Size)
            }
            ChunkState::SizeLf | ChunkState::DataCr | ChunkState::DataLf => {
                Err("missing CRLF in chunked body")
            }
            _ => self.trailer_byte(b),
        }
    }

    /// Extensions and spaces are limited per message, so that framing cannot exceed the payload indefinitely.
    fn count_extension(&mut self) -> Result<(), &'static str> {
        self.extensions += 1;
        if self.extensions > MAX_EXTENSIONS { Err("chunk extensions too long") } else { Ok(()) }
    }

    fn trailer_byte(&mut self, b: u8) -> Result<ChunkState, &'static str> {
        let next = match self.state {
            ChunkState::Trailer if b == b'\r' => return Ok(ChunkState::LastLf),
            ChunkState::Trailer | ChunkState::TrailerName if is_token_byte(b) => ChunkState::TrailerName,
            ChunkState::TrailerName if b == b':' => ChunkState::TrailerValue,
            ChunkState::TrailerValue if b == b'\r' => ChunkState::TrailerLf,
            ChunkState::TrailerValue if !matches!(b, b'\n' | 0) => ChunkState::TrailerValue,
            ChunkState::TrailerLf if b == b'\n' => ChunkState::Trailer,
            ChunkState::LastLf if b == b'\n' => return Ok(ChunkState::Done),
            _ => return Err("invalid character in trailers"),
        };
        if self.trailers.len() >= MAX_TRAILERS {
            return Err("trailers too long");
        }
        self.trailers.push(b);
        Ok(next)
    }

    /// Adds the trailers to `head` as header lines. Trailers that affect framing or routing (RFC 9110 section 6.5.1) are omitted.
    pub fn trailers_into(&self, head: &mut Head) {
        for line in self.trailers.split(|&b| b == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            if !is_forbidden_trailer(name) {
                head.append(name, crate::scan::trim(value));
            }
        }
    }
}

/// The result of [`ChunkDecoder::normalize`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Normalized {
    /// The processed bytes of the input.
    pub used: usize,
    /// The number of these bytes that remain, at the front of the input.
    pub kept: usize,
}

/// Whether a field of this name affects framing, routing or the connection, and must not be a trailer (RFC 9110 section 6.5.1).
fn is_forbidden_trailer(name: &[u8]) -> bool {
    const FORBIDDEN: &[&[u8]] = &[
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    ];
    FORBIDDEN.iter().any(|forbidden| forbidden.eq_ignore_ascii_case(name))
}

/// The end of a body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// The bytes after the payload of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The size line of a chunk of `size` bytes. [`CHUNK_END`] must follow the payload. Size 0 would end the body.
pub fn chunk_size(size: usize) -> impl Iterator<Item = u8> {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    let digits = (0..digits).rev().map(move |at| b"0123456789abcdef"[(size >> (at * 4)) & 15]);
    digits.chain(*b"\r\n")
}

/// Appends the [size line](chunk_size) of a chunk of `size` bytes.
pub fn write_chunk_size(out: &mut Vec<u8>, size: usize) {
    out.extend(chunk_size(size));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a body in pieces of `step` bytes; returns payload and consumed bytes.
    fn decode(input: &[u8], step: usize) -> Result<(Vec<u8>, usize, ChunkDecoder), &'static str> {
        let mut decoder = ChunkDecoder::new();
        let (mut payload, mut consumed) = (Vec::new(), 0);
        for piece in input.chunks(step.max(1)) {
            let mut at = 0;
            loop {
                match decoder.decode(piece, at).map_err(|e| e.text)? {
                    ChunkEvent::Data { range } => {
                        payload.extend_from_slice(&piece[range.clone()]);
                        at = range.end;
                    }
                    ChunkEvent::More => break,
                    ChunkEvent::Done { consumed: n } => return Ok((payload, consumed + n, decoder)),
                }
            }
            consumed += piece.len();
        }
        Err("incomplete")
    }

    #[test]
    fn decoding_does_not_depend_on_fragmentation() {
        #[rustfmt::skip]
        let cases: &[(&[u8], &[u8], usize)] = &[
            (b"0\r\n\r\nGET /",                                  b"",        5),
            (b"1\r\n1\r\n1\r\n0\r\n1\r\n1\r\n0\r\n\r\n",          b"101",     0),
            (b"5;a=b;c=\"d\"\r\nhello\r\n000A \t\r\n0123456789\r\n0\r\n\r\n", b"hello0123456789", 0),
            (b"3\r\nabc\r\n0\r\nX-T: 1\r\nY:\r\n\r\nzz",          b"abc",     2),
        ];
        for (input, payload, left) in cases {
            for step in 1..=input.len() {
                let (found, consumed, _) = decode(input, step).unwrap();
                assert_eq!((&found[..], consumed), (*payload, input.len() - *left), "step {step}");
                let mut tracker = ChunkDecoder::new();
                let mut tracked = 0;
                for piece in input.chunks(step) {
                    tracked += tracker.track(piece).unwrap();
                    if tracker.is_done() {
                        break;
                    }
                }
                assert_eq!(tracked, consumed);
            }
        }
        let (_, _, decoder) = decode(cases[3].0, 7).unwrap();
        let mut head = Head::new();
        head.start_response(200, None);
        decoder.trailers_into(&mut head);
        assert_eq!(head.fields().collect::<Vec<_>>(), [(&b"X-T"[..], &b"1"[..]), (b"Y", b"")]);
    }

    /// Normalizes a body in pieces of `step` bytes; returns the result and the bytes after it.
    fn normalized(input: &[u8], step: usize) -> Result<(Vec<u8>, Vec<u8>), &'static str> {
        let mut decoder = ChunkDecoder::new();
        let (mut out, mut pending) = (Vec::new(), Vec::new());
        for piece in input.chunks(step) {
            pending.extend_from_slice(piece);
            let Normalized { used, kept } = decoder.normalize(&mut pending).map_err(|e| e.text)?;
            out.extend_from_slice(&pending[..kept]);
            pending.drain(..used);
        }
        if decoder.is_done() { Ok((out, pending)) } else { Err("incomplete") }
    }

    #[test]
    fn normalization_does_not_depend_on_fragmentation() {
        #[rustfmt::skip]
        let cases: &[(&[u8], &[u8])] = &[
            (b"0\r\n\r\n",                                           b"0\r\n\r\n"),
            (b"1\r\n1\r\n1\r\n0\r\na\r\n0123456789\r\n0\r\n\r\n",   b"1\r\n1\r\n1\r\n0\r\na\r\n0123456789\r\n0\r\n\r\n"),
            (b"0005 \t;a=b;c=\"d\"\r\nhello\r\n0000;x\r\n\r\n",      b"5\r\nhello\r\n0\r\n\r\n"),
            (b"00A\r\n0123456789\r\n0\r\n\r\n",                      b"a\r\n0123456789\r\n0\r\n\r\n"),
            (b"0\r\nX-T: 1\r\nContent-Length: 7\r\nhost:a\r\nY:\r\n\r\n", b"0\r\nX-T: 1\r\nY:\r\n\r\n"),
        ];
        for (input, wanted) in cases {
            let whole = [input, &b"next"[..]].concat();
            for step in 1..=whole.len() {
                let found = normalized(&whole, step);
                assert_eq!(found, Ok((wanted.to_vec(), b"next".to_vec())), "{input:?} by {step}");
            }
        }
        let long = [b"0\r\nx:", &[b'x'; 9000][..], b"\r\n\r\n"].concat();
        assert_eq!(normalized(&long, 100).err(), Some("trailers too long"));
        assert_eq!(normalized(&[b'0'; 40], 7).err(), Some("chunk size too large"));
    }

    #[test]
    fn loose_framing_is_refused() {
        for input in [
            &b"\r\n"[..],
            b"g\r\n",
            b"+5\r\n",
            b"-1\r\n",
            b"0x5\r\n",
            b" 5\r\n",
            b"5\n",
            b"5\rx",
            b"5 x\r\n",
            b"5;a\n",
            b"5;a\0\r\n",
            b"1\r\nab\r\n",
            b"1\r\na\n",
            b"ffffffffffffffff\r\n",
            b"4000000000000000\r\n",
            b"0\r\nX\r\n\r\n",
            b"0\r\nX : 1\r\n\r\n",
            b"0\r\n X: 1\r\n\r\n",
            b"0\r\nX: 1\n\r\n",
            b"0\r\n\n",
            b"000000000000000000000000000000000\r\n",
        ] {
            assert!(matches!(decode(input, 64), Err(e) if e != "incomplete"), "{input:?}");
            assert!(matches!(normalized(input, 1), Err(e) if e != "incomplete"), "{input:?}");
        }
        let long = [b"1;", &[b'x'; 5000][..], b"\r\na\r\n0\r\n\r\n"].concat();
        assert_eq!(decode(&long, 100).err(), Some("chunk extensions too long"));
        let long = [b"0\r\nx:", &[b'x'; 9000][..], b"\r\n\r\n"].concat();
        assert_eq!(decode(&long, 100).err(), Some("trailers too long"));
    }

    #[test]
    fn size_lines_round_trip() {
        for size in [1, 9, 10, 15, 16, 255, 4096, 65_537, 1 << 40] {
            let mut out = Vec::new();
            write_chunk_size(&mut out, size);
            let mut decoder = ChunkDecoder::new();
            assert_eq!(decoder.decode(&out, 0), Ok(ChunkEvent::More));
            assert_eq!(decoder.remaining(), size as u64);
        }
    }
}
