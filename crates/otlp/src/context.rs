//! W3C trace context: identifiers, the header `traceparent` and the checks of `tracestate`.

use std::fmt;

/// The identifier of a trace; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// The identifier of a span; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// The length of a `traceparent` header in version 00.
pub const TRACEPARENT_LENGTH: usize = 55;

/// The number of members that a `tracestate` may have.
const MOST_MEMBERS: usize = 32;

/// The number of bytes of a `tracestate` that are recorded.
const STATE_RECORDED: usize = 512;

impl TraceId {
    /// Returns a new random identifier.
    pub fn random() -> Self {
        // Faster than a range that excludes 0.
        loop {
            let halves = [fastrand::u64(..), fastrand::u64(..)];
            if halves != [0; 2] {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&halves[0].to_be_bytes());
                bytes[8..].copy_from_slice(&halves[1].to_be_bytes());
                return Self(bytes);
            }
        }
    }

    /// The identifier as bytes.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The identifier as 32 lowercase hexadecimal digits.
    pub fn hex(&self) -> [u8; 32] {
        let [a, b, c, d, e, f, g, h, rest @ ..] = self.0;
        let mut out = [0; 32];
        out[..16].copy_from_slice(&digits_of_eight([a, b, c, d, e, f, g, h]));
        out[16..].copy_from_slice(&digits_of_eight(rest));
        out
    }

    /// The part that ratio sampling compares: 63 bits, as in the OpenTelemetry SDKs.
    fn sampling_value(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1
    }
}

impl SpanId {
    /// Returns a new random identifier.
    pub fn random() -> Self {
        loop {
            let bytes = fastrand::u64(..).to_be_bytes();
            if bytes != [0; 8] {
                return Self(bytes);
            }
        }
    }

    /// The identifier as bytes.
    pub fn bytes(&self) -> &[u8; 8] {
        &self.0
    }

    /// The identifier as 16 lowercase hexadecimal digits.
    pub fn hex(&self) -> [u8; 16] {
        digits_of_eight(self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.hex()))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.hex()))
    }
}

/// A received or sent `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The span of the sender.
    pub span: SpanId,
    /// Whether the sender may have recorded the trace.
    pub sampled: bool,
}

impl TraceParent {
    /// Parses a header value. Versions above 00 are accepted if they begin with the fields of version 00, as the recommendation
    /// demands. Returns `None` for anything else.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (fields, rest) = value.split_at_checked(TRACEPARENT_LENGTH)?;
        let [version] = read_hex(&fields[..2])?;
        let dashes = [fields[2], fields[35], fields[52]];
        let is_later = version != 0 && version != 0xff;
        if dashes != *b"---" || version == 0xff || !(rest.is_empty() || is_later && rest[0] == b'-') {
            return None;
        }
        let trace = TraceId(read_hex(&fields[3..35])?);
        let span = SpanId(read_hex(&fields[36..52])?);
        let [flags] = read_hex(&fields[53..])?;
        (trace.0 != [0; 16] && span.0 != [0; 8]).then_some(Self { trace, span, sampled: flags & 1 != 0 })
    }

    /// The header value in version 00.
    pub fn write(&self) -> [u8; TRACEPARENT_LENGTH] {
        let mut out = *b"00-00000000000000000000000000000000-0000000000000000-00";
        out[3..35].copy_from_slice(&self.trace.hex());
        out[36..52].copy_from_slice(&self.span.hex());
        out[54] = b'0' + u8::from(self.sampled);
        out
    }
}

/// Checks the `tracestate` headers of a request and appends them to `out` as one list, up to 512 bytes of whole members. Returns
/// `false` if they are malformed or have too many members, so that they must not be passed on.
pub fn read_tracestate<'a>(values: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) -> bool {
    let (begin, mut count, mut is_full) = (out.len(), 0, false);
    for value in values {
        for member in value.split(|byte| *byte == b',') {
            let member = member.trim_ascii();
            if member.is_empty() {
                continue;
            }
            count += 1;
            if count > MOST_MEMBERS || !is_member(member) {
                out.truncate(begin);
                return false;
            }
            let comma = usize::from(out.len() > begin);
            is_full |= out.len() - begin + comma + member.len() > STATE_RECORDED;
            if !is_full {
                out.extend_from_slice(&b","[..comma]);
                out.extend_from_slice(member);
            }
        }
    }
    true
}

/// Whether this is `key=value` with a valid key and value.
fn is_member(member: &[u8]) -> bool {
    let Some(at) = member.iter().position(|byte| *byte == b'=') else { return false };
    let (key, value) = (&member[..at], &member[at + 1..]);
    let in_key = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let key_fits = (1..=256).contains(&key.len())
        && matches!(key[0], b'a'..=b'z' | b'0'..=b'9')
        && key.iter().all(in_key)
        && key.iter().filter(|byte| **byte == b'@').count() <= 1;
    let in_value = |byte: &u8| matches!(byte, 0x20..=0x7e) && !matches!(byte, b',' | b'=');
    key_fits && (1..=256).contains(&value.len()) && value.iter().all(in_value)
}

/// Returns eight hexadecimal digits for four bytes.
#[inline(always)]
fn digits(four: [u8; 4]) -> [u8; 8] {
    let four = u64::from(u32::from_be_bytes(four));
    // Moves each half of a byte to a separate byte.
    let halves = (four << 16 | four) & 0x0000_ffff_0000_ffff;
    let halves = (halves << 8 | halves) & 0x00ff_00ff_00ff_00ff;
    let halves = (halves << 4 | halves) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((halves + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    let text = halves + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'0' - 10);
    text.to_be_bytes()
}

/// Returns 16 hexadecimal digits for eight bytes.
#[inline(always)]
fn digits_of_eight([a, b, c, d, e, f, g, h]: [u8; 8]) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&digits([a, b, c, d]));
    out[8..].copy_from_slice(&digits([e, f, g, h]));
    out
}

/// Reads lowercase hexadecimal digits, two for each byte.
fn read_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut out = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

/// The share of traces that are sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleRatio {
    /// Traces with a lower value are sampled.
    bound: u64,
}

impl SampleRatio {
    /// Returns a ratio between 0 (no trace) and 1 (every trace); other values are clamped.
    pub fn new(ratio: f64) -> Self {
        Self { bound: (ratio.clamp(0.0, 1.0) * (1u64 << 63) as f64) as u64 }
    }

    /// Whether a trace is sampled. All services with the same ratio decide alike.
    pub fn takes(self, trace: &TraceId) -> bool {
        trace.sampling_value() < self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_parent_is_read_and_written_alike() {
        let parent = TraceParent::parse(VALID.as_bytes()).expect("the example of the recommendation");
        assert!(parent.sampled);
        assert_eq!(&parent.write()[..], VALID.as_bytes());
        let later = TraceParent::parse(format!("cc{}-what-the-future-holds", &VALID[2..]).as_bytes());
        assert_eq!(later, Some(parent), "a later version");
        let other_flags = TraceParent::parse(VALID.replace("-01", "-fe").as_bytes());
        assert_eq!(other_flags.map(|parent| parent.sampled), Some(false));
    }

    #[test]
    fn malformed_parents_are_refused() {
        let wrong = [
            "".to_owned(),
            VALID[..54].to_owned(),
            format!("{VALID}-00"),
            format!("{VALID}x"),
            format!("cc{}x", &VALID[2..]),
            format!("ff{}", &VALID[2..]),
            VALID.to_ascii_uppercase(),
            VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            VALID.replace("00f067aa0ba902b7", &"0".repeat(16)),
            VALID.replace("-01", "_01"),
            VALID.replace("-01", "-0x"),
        ];
        for text in wrong {
            assert_eq!(TraceParent::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn tracestate_is_checked_and_joined() {
        let read = |values: &[&str]| {
            let mut out = Vec::new();
            let valid = read_tracestate(values.iter().map(|value| value.as_bytes()), &mut out);
            (valid, String::from_utf8(out).expect("members are ASCII"))
        };
        assert_eq!(read(&["a=1, b@c=2", "d=3"]), (true, "a=1,b@c=2,d=3".to_owned()));
        assert_eq!(read(&["a=1,,"]), (true, "a=1".to_owned()), "empty members are allowed");
        for wrong in ["a", "=1", "A=1", "a=", "a=1=2", "a@b@c=1", "a=\u{7f}"] {
            assert_eq!(read(&[wrong]), (false, String::new()), "{wrong}");
        }
        let many: Vec<String> = (0..33).map(|index| format!("k{index}=v")).collect();
        assert!(read(&[&many[..32].join(",")]).0);
        assert_eq!(read(&[&many.join(",")]), (false, String::new()));
        let long = format!("a={},b={},c=1", "x".repeat(254), "y".repeat(256));
        let (valid, kept) = read(&[&long]);
        assert!(valid && kept.len() == 256, "whole members up to 512 bytes: {}", kept.len());
    }

    #[test]
    fn the_ratio_selects_its_share() {
        let taken = |ratio: f64| {
            let ratio = SampleRatio::new(ratio);
            (0..10_000).filter(|_| ratio.takes(&TraceId::random())).count()
        };
        assert_eq!((taken(0.0), taken(1.0)), (0, 10_000));
        assert!((2_000..3_000).contains(&taken(0.25)));
    }
}
