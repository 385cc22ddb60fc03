//! The start of a session (doc/peers.txt, "Handshake"): the connecting side sends its version, the name of the peer that it wants,
//! and its own name; the other side answers with a three-digit number.

use crate::message::Breach;

/// The maximum length of a greeting.
const LONGEST: usize = 2048;

/// The listening side's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeStatus {
    /// Accepted.
    Success,
    /// Try again later.
    TryAgain,
    /// Not a valid greeting.
    Protocol,
    /// An unsupported version.
    Version,
    /// The greeting is meant for another peer.
    LocalName,
    /// An unknown sender.
    RemoteName,
}

const STATUSES: [(HandshakeStatus, &str); 6] = [
    (HandshakeStatus::Success, "200"),
    (HandshakeStatus::TryAgain, "300"),
    (HandshakeStatus::Protocol, "501"),
    (HandshakeStatus::Version, "502"),
    (HandshakeStatus::LocalName, "503"),
    (HandshakeStatus::RemoteName, "504"),
];

impl HandshakeStatus {
    /// Returns the three digits of the status.
    pub fn code(self) -> &'static str {
        STATUSES[self as usize].1
    }
}

/// A greeting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PeerHello {
    /// The index of the greeting's sender.
    pub(crate) peer: usize,
    /// The minor version, 0 or 1: the version is 2.0 or 2.1.
    pub(crate) minor: u8,
    /// The sender's process number.
    pub(crate) process: u32,
    /// The length of the greeting in bytes.
    pub(crate) length: usize,
}

/// Appends a greeting.
pub(crate) fn greet(minor: u8, remote: &[u8], local: &[u8], process: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("HAProxyS 2.{minor}\n").as_bytes());
    out.extend_from_slice(remote);
    out.push(b'\n');
    out.extend_from_slice(local);
    out.extend_from_slice(format!(" {process} 1\n").as_bytes());
}

/// Appends the answer to a greeting.
pub(crate) fn answer(status: HandshakeStatus, out: &mut Vec<u8>) {
    out.extend_from_slice(status.code().as_bytes());
    out.push(b'\n');
}

/// Returns a line without its end, and the start of the next.
fn line(bytes: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(from..)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let line = &rest[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), from + end + 1))
}

/// Parses a greeting, which must be for `local` and from one of `peers`. An error is reported as soon as its line has arrived.
/// Returns `None` if the greeting is incomplete.
pub(crate) fn read_hello(
    bytes: &[u8],
    local: &[u8],
    peers: &[Box<[u8]>],
) -> Result<Option<PeerHello>, HandshakeStatus> {
    // Bytes after the maximum length of a greeting are ignored.
    let whole = bytes.len() >= LONGEST;
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    let missing = if whole { Err(HandshakeStatus::Protocol) } else { Ok(None) };
    let Some((version, next)) = line(bytes, 0) else { return missing };
    let minor = match version.strip_prefix(b"HAProxyS ") {
        None => return Err(HandshakeStatus::Protocol),
        Some(b"2.1") => 1,
        Some(b"2.0") => 0,
        Some(_) => return Err(HandshakeStatus::Version),
    };
    let Some((wanted, next)) = line(bytes, next) else { return missing };
    if wanted != local {
        return Err(HandshakeStatus::LocalName);
    }
    let Some((from, length)) = line(bytes, next) else { return missing };
    let mut words = from.split(|byte| *byte == b' ');
    let (Some(name), Some(process)) = (words.next(), words.next()) else {
        return Err(HandshakeStatus::Protocol);
    };
    let Some(peer) = peers.iter().position(|peer| !peer.is_empty() && **peer == *name) else {
        return Err(HandshakeStatus::RemoteName);
    };
    let process = std::str::from_utf8(process).ok().and_then(|process| process.parse().ok()).unwrap_or(0);
    Ok(Some(PeerHello { peer, minor, process, length }))
}

/// Parses the answer to a greeting and returns its length, or `None` if it is incomplete.
pub(crate) fn read_status(bytes: &[u8]) -> Result<Option<(HandshakeStatus, usize)>, Breach> {
    let strange = Breach::Protocol("no answer to the greeting");
    let Some((digits, length)) = line(bytes, 0) else {
        return if bytes.len() > 5 { Err(strange) } else { Ok(None) };
    };
    let known = STATUSES.iter().find(|(_, code)| code.as_bytes() == digits);
    known.map(|(status, _)| Some((*status, length))).ok_or(strange)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = Result<Option<PeerHello>, HandshakeStatus>;

    fn read(bytes: &[u8]) -> Read {
        read_hello(bytes, b"A", &[(*b"A").into(), (*b"B").into()])
    }

    #[test]
    fn greetings_are_answered_like_haproxy() {
        let hello = |minor, process, length| Ok(Some(PeerHello { peer: 1, minor, process, length }));
        let cases: [(&[u8], Read); 19] = [
            (b"HAProxyS 2.1\nA\nB 31162 1\n", hello(1, 31162, 25)),
            (b"HAProxyS 2.0\nA\nB 1 1\n", hello(0, 1, 21)),
            (b"HAProxyS 2.1\r\nA\r\nB 1 1\r\n", hello(1, 1, 24)),
            (b"HAProxyS 2.1\nA\nB 1\n", hello(1, 1, 19)),
            (b"HAProxyS 2.1\nA\nB x y\n", hello(1, 0, 21)),
            (b"HAProxyS 2.1\nA\nB 1 1\nmore", hello(1, 1, 21)),
            (b"HAProxyS 2.2\n", Err(HandshakeStatus::Version)),
            (b"HAProxyS 3.0\n", Err(HandshakeStatus::Version)),
            (b"HAProxyS 2\n", Err(HandshakeStatus::Version)),
            (b"HAProxyS 2.10\n", Err(HandshakeStatus::Version)),
            (b"HAProxyS 2.1 more\n", Err(HandshakeStatus::Version)),
            (b"HAProxyS x.1\n", Err(HandshakeStatus::Version)),
            (b"GET / HTTP/1.0\n", Err(HandshakeStatus::Protocol)),
            (b"\n", Err(HandshakeStatus::Protocol)),
            (b"HAProxyS 2.1\nX\n", Err(HandshakeStatus::LocalName)),
            (b"HAProxyS 2.1\nA\nX 1 1\n", Err(HandshakeStatus::RemoteName)),
            (b"HAProxyS 2.1\nA\nB\n", Err(HandshakeStatus::Protocol)),
            (b"HAProxyS 2.1\nA\nB 1 1", Ok(None)),
            (b"", Ok(None)),
        ];
        for (bytes, expected) in cases {
            assert_eq!(read(bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn an_endless_greeting_is_rejected() {
        assert_eq!(read(&[b'H'; LONGEST - 1]), Ok(None));
        assert_eq!(read(&[b'H'; LONGEST]), Err(HandshakeStatus::Protocol));
    }

    #[test]
    fn answers_are_read_completely_and_others_rejected() {
        for (status, code) in STATUSES {
            let mut out = Vec::new();
            answer(status, &mut out);
            assert_eq!(out, format!("{code}\n").as_bytes());
            out.extend_from_slice(&[0, 0]);
            assert_eq!(read_status(&out), Ok(Some((status, 4))));
            assert_eq!(read_status(&out[..3]), Ok(None));
        }
        for strange in [&b"201\n"[..], b"200 OK\n", b"\n", b"HTTP/1.1 200"] {
            assert!(read_status(strange).is_err(), "{}", strange.escape_ascii());
        }
    }

    #[test]
    fn a_greeting_is_read_by_the_other_side() {
        let mut out = Vec::new();
        greet(1, b"A", b"B", 77, &mut out);
        let length = out.len();
        assert_eq!(read(&out), Ok(Some(PeerHello { peer: 1, minor: 1, process: 77, length })));
    }
}
