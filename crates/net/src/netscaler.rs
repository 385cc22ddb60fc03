//! The NetScaler Client IP insertion protocol: a header before the first byte of a TCP connection, which contains the IP and TCP
//! headers of the last packet of the client's handshake.
//!
//! This module does no I/O. It follows `doc/netscaler-client-ip-insertion-protocol.txt` and supports both the layout before
//! NetScaler 10.5 (magic, length) and the newer one (magic, total length, type, length).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The size of the magic number and the length, with which both layouts start.
const START: usize = 8;
/// The size of the type and the length, which the newer layout adds.
const EXTENSION: usize = 4;
/// The size of a TCP header without options.
const TCP: usize = 20;
/// The maximum header length. Real IP and TCP headers take at most 120 bytes. The limit keeps a larger length from making a
/// connection buffer arbitrary amounts.
const LONGEST: usize = 1024;

/// The contents of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetscalerHeader {
    /// The source of the client's connection.
    pub source: SocketAddr,
    /// The destination of the client's connection.
    pub destination: SocketAddr,
    /// The length of the header in bytes.
    pub length: usize,
}

/// The reason why bytes are not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// The magic number differs from the configured one.
    Magic,
    /// Neither IPv4 nor IPv6, or not TCP.
    Protocol,
    /// The length is too small for the headers it should hold, or implausibly large.
    Length,
}

/// Parses the header at the start of `bytes`, which begins with the number `magic`. Returns `None` if more bytes are needed.
///
/// # Errors
/// The reason why the bytes are not a header.
pub fn parse(bytes: &[u8], magic: u32) -> Result<Option<NetscalerHeader>, Invalid> {
    let known = bytes.len().min(4);
    if magic.to_be_bytes()[..known] != bytes[..known] {
        return Err(Invalid::Magic);
    }
    let (Some(length), Some(&first)) = (number_32(bytes, 4), bytes.get(START)) else { return Ok(None) };
    // The newer layout continues with type 1, whose first byte cannot begin an IP header.
    let (start, length) = if first == 0 {
        let Some(length) = number_16(bytes, START + 2) else { return Ok(None) };
        (START + EXTENSION, usize::from(length))
    } else {
        (START, usize::try_from(length).unwrap_or(usize::MAX))
    };
    if length > LONGEST {
        return Err(Invalid::Length);
    }
    let Some(body) = bytes.get(start..start + length) else { return Ok(None) };
    let (source, destination) = addresses(body)?;
    Ok(Some(NetscalerHeader { source, destination, length: start + length }))
}

/// The addresses in an IP header and the following TCP header.
fn addresses(body: &[u8]) -> Result<(SocketAddr, SocketAddr), Invalid> {
    let (source, destination, protocol, ip_length) = match body.first().ok_or(Invalid::Length)? >> 4 {
        4 => {
            let header: &[u8; 20] = body.first_chunk().ok_or(Invalid::Length)?;
            let ip = |at: usize| IpAddr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            (ip(12), ip(16), header[9], usize::from(header[0] & 0x0f) * 4)
        }
        6 => {
            let header: &[u8; 40] = body.first_chunk().ok_or(Invalid::Length)?;
            let ip = |half: Option<&[u8; 16]>| half.map(|octets| IpAddr::from(Ipv6Addr::from(*octets)));
            let source = ip(header[8..].first_chunk()).ok_or(Invalid::Length)?;
            (source, ip(header[24..].first_chunk()).ok_or(Invalid::Length)?, header[6], 40)
        }
        _ => return Err(Invalid::Protocol),
    };
    if protocol != 6 || ip_length < 20 {
        return Err(Invalid::Protocol);
    }
    let tcp: &[u8; TCP] = body.get(ip_length..).and_then(<[u8]>::first_chunk).ok_or(Invalid::Length)?;
    let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    Ok((SocketAddr::new(source, port(0)), SocketAddr::new(destination, port(2))))
}

fn number_32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_be_bytes(*four))
}

fn number_16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_be_bytes(*two))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: u32 = 0x0bad_f00d;

    fn ip4(protocol: u8, options: usize) -> Vec<u8> {
        let mut header = vec![0; 20 + options];
        header[0] = 0x40 | (5 + options as u8 / 4);
        header[9] = protocol;
        header[12..20].copy_from_slice(&[10, 1, 2, 3, 10, 9, 8, 7]);
        header
    }

    fn ip6(next: u8) -> Vec<u8> {
        let mut header = vec![0; 40];
        (header[0], header[6], header[23], header[39]) = (0x60, next, 1, 2);
        header
    }

    fn tcp() -> Vec<u8> {
        let mut header = vec![0; 24];
        header[..4].copy_from_slice(&[0x04, 0x57, 0x08, 0xae]);
        header[12] = 0x60;
        header
    }

    fn early(body: &[u8]) -> Vec<u8> {
        [&MAGIC.to_be_bytes()[..], &(body.len() as u32).to_be_bytes(), body].concat()
    }

    fn later(body: &[u8]) -> Vec<u8> {
        let (all, own) = (body.len() as u32 + 12, body.len() as u16);
        [&MAGIC.to_be_bytes()[..], &all.to_be_bytes(), &[0, 1], &own.to_be_bytes(), body].concat()
    }

    #[test]
    fn both_layouts_yield_the_addresses() {
        for options in [0, 4, 40] {
            let body = [ip4(6, options), tcp()].concat();
            for bytes in [early(&body), later(&body)] {
                let header = parse(&bytes, MAGIC).expect("sound").expect("whole");
                assert_eq!(header.source, "10.1.2.3:1111".parse().unwrap());
                assert_eq!(header.destination, "10.9.8.7:2222".parse().unwrap());
                assert_eq!(header.length, bytes.len());
            }
        }
        let header = parse(&later(&[ip6(6), tcp()].concat()), MAGIC).expect("sound").expect("whole");
        assert_eq!(header.source, "[::1]:1111".parse().unwrap());
        assert_eq!(header.destination, "[::2]:2222".parse().unwrap());
    }

    #[test]
    fn incomplete_headers_wait_for_the_rest() {
        for bytes in [early(&[ip4(6, 0), tcp()].concat()), later(&[ip6(6), tcp()].concat())] {
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes[..end], MAGIC), Ok(None), "{end} of {}", bytes.len());
            }
            let more = [&bytes[..], b"GET"].concat();
            assert_eq!(parse(&more, MAGIC).map(|header| header.map(|h| h.length)), Ok(Some(bytes.len())));
        }
    }

    #[test]
    fn other_data_is_distinguished() {
        assert_eq!(parse(b"GET / HTTP/1.1\r\n", MAGIC), Err(Invalid::Magic));
        assert_eq!(parse(b"\x0b\xad\xf0\x0c", MAGIC), Err(Invalid::Magic));
        assert_eq!(parse(&later(&[ip4(17, 0), tcp()].concat()), MAGIC), Err(Invalid::Protocol));
        assert_eq!(parse(&later(&[ip6(17), tcp()].concat()), MAGIC), Err(Invalid::Protocol));
        assert_eq!(parse(&early(&[0x50; 44]), MAGIC), Err(Invalid::Protocol));
        assert_eq!(
            parse(&later(&[&[0x44], &ip4(6, 0)[1..], &tcp()].concat()), MAGIC),
            Err(Invalid::Protocol)
        );
        assert_eq!(parse(&later(&ip4(6, 0)), MAGIC), Err(Invalid::Length));
        assert_eq!(parse(&later(&[]), MAGIC), Err(Invalid::Length));
        assert_eq!(parse(&early(&[ip6(6), vec![0; 19]].concat()), MAGIC), Err(Invalid::Length));
        let endless = [&MAGIC.to_be_bytes()[..], &u32::MAX.to_be_bytes(), &ip4(6, 0)].concat();
        assert_eq!(parse(&endless, MAGIC), Err(Invalid::Length));
    }
}
