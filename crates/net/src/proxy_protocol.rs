//! The PROXY protocol, versions 1 and 2: parsing and writing headers.
//!
//! This module does no I/O. It follows `doc/proxy-protocol.txt`, sections 2.1 and 2.2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The signature of version 2.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The maximum length of a version 1 line, including the CRLF.
const V1_MAX: usize = 108;

/// The types of TLVs (type-length-values) in version 2.
pub mod tlv {
    /// The TLS application protocol.
    pub const ALPN: u8 = 0x01;
    /// The host name that the client requested.
    pub const AUTHORITY: u8 = 0x02;
    /// CRC32c of the whole header.
    pub const CRC32C: u8 = 0x03;
    /// Padding.
    pub const NOOP: u8 = 0x04;
    /// An opaque connection ID, at most 128 bytes.
    pub const UNIQUE_ID: u8 = 0x05;
    /// TLS information, with nested TLVs.
    pub const SSL: u8 = 0x20;
    /// Nested TLV: the TLS version.
    pub const SSL_VERSION: u8 = 0x21;
    /// The common name of the client's certificate.
    pub const SSL_CN: u8 = 0x22;
    /// The cipher.
    pub const SSL_CIPHER: u8 = 0x23;
    /// The signature algorithm of the certificate presented to the client.
    pub const SSL_SIG_ALG: u8 = 0x24;
    /// The type and size of that certificate's key.
    pub const SSL_KEY_ALG: u8 = 0x25;
    /// The network namespace's name.
    pub const NETNS: u8 = 0x30;
}

/// TLVs: type and value of each.
pub type Tlvs = Vec<(u8, Box<[u8]>)>;

/// The contents of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Source and destination. `None` for `UNKNOWN`, `LOCAL` and UNIX sockets, for which the addresses of the connection itself
    /// apply.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The TLVs of version 2, in order.
    pub tlvs: Tlvs,
    /// The length of the header in bytes.
    pub length: usize,
}

/// The reason why bytes are not a PROXY header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// Neither version's signature, or an unknown version.
    Signature,
    /// A malformed line of version 1.
    Line,
    /// A version 1 line for an unknown protocol.
    Family,
    /// An unknown command or family of version 2.
    Command,
    /// The length is too small for the addresses, or a TLV extends beyond it.
    Length,
    /// The checksum does not match.
    Checksum,
}

/// Parses the header at the start of `bytes`, or `None` if more bytes are needed.
pub fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, Invalid> {
    let version_1 = b"PROXY ";
    let start = &bytes[..bytes.len().min(version_1.len())];
    if version_1.starts_with(start) {
        return if bytes.len() < version_1.len() { Ok(None) } else { parse_v1(bytes) };
    }
    let start = &bytes[..bytes.len().min(SIGNATURE.len())];
    if !SIGNATURE.starts_with(start) {
        return Err(Invalid::Signature);
    }
    if bytes.len() < 16 { Ok(None) } else { parse_v2(bytes) }
}

fn parse_v1(bytes: &[u8]) -> Result<Option<ProxyHeader>, Invalid> {
    let window = &bytes[..bytes.len().min(V1_MAX)];
    let Some(end) = window.iter().position(|&byte| byte == b'\n') else {
        return if bytes.len() >= V1_MAX { Err(Invalid::Line) } else { Ok(None) };
    };
    let line = window[..end].strip_suffix(b"\r").ok_or(Invalid::Line)?;
    let line = std::str::from_utf8(line).map_err(|_| Invalid::Line)?;
    let mut parts = line.split(' ').skip(1);
    let family = parts.next().ok_or(Invalid::Line)?;
    let length = end + 1;
    if family == "UNKNOWN" {
        return Ok(Some(ProxyHeader { addresses: None, tlvs: Vec::new(), length }));
    }
    if !matches!(family, "TCP4" | "TCP6") {
        return Err(Invalid::Family);
    }
    let mut part = || parts.next().ok_or(Invalid::Line);
    let (source, destination) = (part()?, part()?);
    let (source_port, destination_port) = (part()?, part()?);
    if parts.next().is_some() {
        return Err(Invalid::Line);
    }
    let ip = |text: &str| -> Result<IpAddr, Invalid> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::from).map_err(|_| Invalid::Line),
            _ => text.parse::<Ipv6Addr>().map(IpAddr::from).map_err(|_| Invalid::Line),
        }
    };
    let port = |text: &str| -> Result<u16, Invalid> {
        if text.len() > 1 && text.starts_with('0') || text.starts_with('+') {
            return Err(Invalid::Line);
        }
        text.parse().map_err(|_| Invalid::Line)
    };
    let source = SocketAddr::new(ip(source)?, port(source_port)?);
    let destination = SocketAddr::new(ip(destination)?, port(destination_port)?);
    Ok(Some(ProxyHeader { addresses: Some((source, destination)), tlvs: Vec::new(), length }))
}

fn parse_v2(bytes: &[u8]) -> Result<Option<ProxyHeader>, Invalid> {
    let (version_command, family) = (bytes[12], bytes[13]);
    if version_command >> 4 != 2 {
        return Err(Invalid::Signature);
    }
    let length = 16 + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    if bytes.len() < length {
        return Ok(None);
    }
    let body = &bytes[16..length];
    let (addresses, used) = match (version_command & 0x0f, family) {
        (0, family) => {
            // The receiver must not rely on this data. TLVs without addresses are parsed, and kept if they are well-formed.
            let tlvs = if family == 0 { parse_tlvs(&bytes[..length], 16).ok() } else { None };
            return Ok(Some(ProxyHeader { addresses: None, tlvs: tlvs.unwrap_or_default(), length }));
        }
        (1, 0x11 | 0x12) => (Some(addresses_v4(body).ok_or(Invalid::Length)?), 12),
        (1, 0x21 | 0x22) => (Some(addresses_v6(body).ok_or(Invalid::Length)?), 36),
        (1, 0x31 | 0x32) if body.len() >= 216 => (None, 216),
        (1, 0x31 | 0x32) => return Err(Invalid::Length),
        (1, 0x00) => (None, 0),
        _ => return Err(Invalid::Command),
    };
    let tlvs = parse_tlvs(&bytes[..length], 16 + used)?;
    Ok(Some(ProxyHeader { addresses, tlvs, length }))
}

fn addresses_v4(body: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let body: &[u8; 12] = body.first_chunk()?;
    let ip = |at: usize| IpAddr::from([body[at], body[at + 1], body[at + 2], body[at + 3]]);
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    Some((SocketAddr::new(ip(0), port(8)), SocketAddr::new(ip(4), port(10))))
}

fn addresses_v6(body: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let body: &[u8; 36] = body.first_chunk()?;
    let ip = |bytes: &[u8]| -> Option<IpAddr> { Some(IpAddr::from(*bytes.first_chunk::<16>()?)) };
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    Some((SocketAddr::new(ip(&body[..16])?, port(32)), SocketAddr::new(ip(&body[16..32])?, port(34))))
}

fn parse_tlvs(header: &[u8], mut at: usize) -> Result<Tlvs, Invalid> {
    let mut tlvs = Vec::new();
    while at < header.len() {
        let Some(&[kind, high, low]) = header[at..].first_chunk() else { return Err(Invalid::Length) };
        let start = at + 3;
        let end = start + usize::from(u16::from_be_bytes([high, low]));
        let value = header.get(start..end).ok_or(Invalid::Length)?;
        match kind {
            tlv::CRC32C => {
                let sent: [u8; 4] = value.try_into().map_err(|_| Invalid::Length)?;
                if checksum(header, start) != u32::from_be_bytes(sent) {
                    return Err(Invalid::Checksum);
                }
            }
            tlv::UNIQUE_ID if value.len() > 128 => return Err(Invalid::Length),
            // The maximum length of a host name.
            tlv::AUTHORITY if value.len() > 255 => return Err(Invalid::Length),
            _ => {}
        }
        tlvs.push((kind, value.into()));
        at = end;
    }
    Ok(tlvs)
}

/// The CRC32c of a header, in which the checksum at `field` counts as zeros.
fn checksum(header: &[u8], field: usize) -> u32 {
    let mut copy = header.to_vec();
    copy[field..field + 4].fill(0);
    base::hash::crc32c(&copy)
}

/// Appends a header of version 1.
pub fn write_v1(addresses: Option<(SocketAddr, SocketAddr)>, out: &mut Vec<u8>) {
    use std::io::Write;
    // Writing to a Vec cannot fail.
    let _ = match addresses.map(same_family) {
        Some((source, destination)) => write!(
            out,
            "PROXY {} {} {} {} {}\r\n",
            if source.is_ipv4() { "TCP4" } else { "TCP6" },
            source.ip(),
            destination.ip(),
            source.port(),
            destination.port()
        ),
        None => write!(out, "PROXY UNKNOWN\r\n"),
    };
}

/// Appends a header of version 2. If no addresses are given, the command is `LOCAL`: either the proxy itself made the connection
/// (health checks), or the client's address cannot be represented. If `checksum` is given, a checksum is added after that number
/// of TLVs.
pub fn write_v2<'a>(
    addresses: Option<(SocketAddr, SocketAddr)>,
    tlvs: impl IntoIterator<Item = (u8, &'a [u8])>,
    checksum: Option<usize>,
    out: &mut Vec<u8>,
) {
    let begin = out.len();
    out.extend_from_slice(&SIGNATURE);
    out.push(if addresses.is_none() { 0x20 } else { 0x21 });
    match addresses.map(same_family) {
        Some((SocketAddr::V4(source), SocketAddr::V4(destination))) => {
            out.extend_from_slice(&[0x11, 0, 0]);
            out.extend_from_slice(&source.ip().octets());
            out.extend_from_slice(&destination.ip().octets());
            out.extend_from_slice(&source.port().to_be_bytes());
            out.extend_from_slice(&destination.port().to_be_bytes());
        }
        Some((source, destination)) => {
            out.extend_from_slice(&[0x21, 0, 0]);
            for address in [source, destination] {
                if let IpAddr::V6(ip) = address.ip() {
                    out.extend_from_slice(&ip.octets());
                }
            }
            out.extend_from_slice(&source.port().to_be_bytes());
            out.extend_from_slice(&destination.port().to_be_bytes());
        }
        None => out.extend_from_slice(&[0, 0, 0]),
    }
    let mut tlvs = tlvs.into_iter();
    for (kind, value) in tlvs.by_ref().take(checksum.unwrap_or_default()) {
        write_tlv(kind, value, out);
    }
    let field = checksum.map(|_| {
        write_tlv(tlv::CRC32C, &[0; 4], out);
        out.len() - 4 - begin
    });
    for (kind, value) in tlvs {
        write_tlv(kind, value, out);
    }
    let length = (out.len() - begin - 16) as u16;
    out[begin + 14..begin + 16].copy_from_slice(&length.to_be_bytes());
    if let Some(field) = field {
        let sum = base::hash::crc32c(&out[begin..]);
        out[begin + field..begin + field + 4].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Appends a header of version 2 like [`write_v2`], for a session of datagrams.
pub fn write_v2_datagram<'a>(
    addresses: (SocketAddr, SocketAddr),
    tlvs: impl IntoIterator<Item = (u8, &'a [u8])>,
    out: &mut Vec<u8>,
) {
    /// The position of the address family and the transport, of which 1 is a stream and 2 is a datagram.
    const TRANSPORT: usize = SIGNATURE.len() + 1;
    let begin = out.len();
    write_v2(Some(addresses), tlvs, None, out);
    out[begin + TRANSPORT] += 1;
}

/// Appends a TLV. Values are truncated to 65,535 bytes.
pub fn write_tlv(kind: u8, value: &[u8], out: &mut Vec<u8>) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.push(kind);
    out.extend_from_slice(&(value.len() as u16).to_be_bytes());
    out.extend_from_slice(value);
}

/// Converts both addresses to one family: if one is IPv4 and the other IPv6, the IPv4 address is mapped.
fn same_family((source, destination): (SocketAddr, SocketAddr)) -> (SocketAddr, SocketAddr) {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (source, destination) = (canonical(source), canonical(destination));
    if source.is_ipv4() == destination.is_ipv4() {
        return (source, destination);
    }
    let mapped = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    (mapped(source), mapped(destination))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Addresses = Option<(SocketAddr, SocketAddr)>;
    type Parsed = Result<Option<Addresses>, Invalid>;

    fn pair(source: &str, destination: &str) -> Addresses {
        Some((source.parse().unwrap(), destination.parse().unwrap()))
    }

    #[test]
    fn version_1_lines_are_read_or_refused() {
        let cases: &[(&[u8], Parsed)] = &[
            (b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\nGET", Ok(Some(pair("1.2.3.4:9", "5.6.7.8:10")))),
            (b"PROXY TCP6 ::1 ::2 9 10\r\n", Ok(Some(pair("[::1]:9", "[::2]:10")))),
            (b"PROXY UNKNOWN\r\n", Ok(Some(None))),
            (b"PROXY UNKNOWN ff ff 1 2\r\n", Ok(Some(None))),
            (b"PROXY TCP4 1.2.3.4", Ok(None)),
            (b"PRO", Ok(None)),
            (b"", Ok(None)),
            (b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10\n", Err(Invalid::Line)),
            (b"PROXY TCP4 ::1 5.6.7.8 9 10\r\n", Err(Invalid::Line)),
            (b"PROXY TCP4 1.2.3.4 5.6.7.8 9 70000\r\n", Err(Invalid::Line)),
            (b"PROXY TCP4 1.2.3.4 5.6.7.8 09 10\r\n", Err(Invalid::Line)),
            (b"PROXY TCP4 1.2.3.4 5.6.7.8 9\r\n", Err(Invalid::Line)),
            (b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10 11\r\n", Err(Invalid::Line)),
            (b"PROXY UDP4 1.2.3.4 5.6.7.8 9 10\r\n", Err(Invalid::Family)),
            (b"GET / HTTP/1.1\r\n", Err(Invalid::Signature)),
        ];
        for (bytes, wanted) in cases {
            let got = parse(bytes).map(|header| header.map(|header| header.addresses));
            assert_eq!(&got, wanted, "{}", bytes.escape_ascii());
        }
        assert_eq!(parse(&[b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat()), Err(Invalid::Line));
    }

    #[test]
    fn version_2_headers_round_trip_at_every_length() {
        let addresses = [pair("1.2.3.4:5", "6.7.8.9:10"), pair("[::1]:5", "[2001:db8::1]:10"), None];
        for addresses in addresses {
            for checksum in [None, Some(0), Some(2), Some(3)] {
                let mut bytes = Vec::new();
                let tlvs = [(tlv::UNIQUE_ID, b"id".as_slice()), (tlv::NOOP, b"xx"), (0xe0, b"")];
                write_v2(addresses, tlvs, checksum, &mut bytes);
                for cut in 0..bytes.len() {
                    assert_eq!(parse(&bytes[..cut]), Ok(None), "cut at {cut}");
                }
                let header = parse(&bytes).unwrap().unwrap();
                assert_eq!(header.addresses, addresses);
                assert_eq!(header.length, bytes.len());
                assert_eq!(bytes[12], if addresses.is_none() { 0x20 } else { 0x21 });
                let mut kinds = vec![tlv::UNIQUE_ID, tlv::NOOP, 0xe0];
                if let Some(at) = checksum {
                    kinds.insert(at, tlv::CRC32C);
                }
                assert_eq!(header.tlvs.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), kinds);
            }
        }
    }

    #[test]
    fn a_changed_byte_fails_the_checksum() {
        let mut bytes = Vec::new();
        write_v2(pair("1.2.3.4:5", "6.7.8.9:10"), [], Some(0), &mut bytes);
        bytes[17] ^= 1;
        assert_eq!(parse(&bytes), Err(Invalid::Checksum));
    }

    #[test]
    fn a_tlv_longer_than_its_header_is_refused() {
        let mut bytes = Vec::new();
        write_v2(pair("1.2.3.4:5", "6.7.8.9:10"), [(0xe0, b"abc".as_slice())], None, &mut bytes);
        let at = bytes.len() - 4;
        bytes[at] = 200;
        assert_eq!(parse(&bytes), Err(Invalid::Length));
    }

    #[test]
    fn mixed_families_are_written_as_ipv6() {
        let mut line = Vec::new();
        write_v1(pair("1.2.3.4:5", "[2001:db8::1]:6"), &mut line);
        assert_eq!(line, b"PROXY TCP6 ::ffff:1.2.3.4 2001:db8::1 5 6\r\n");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, signed: bool) {
            let bytes = if signed { [&SIGNATURE, bytes.as_slice()].concat() } else { bytes };
            let _ = parse(&bytes);
        }
    }
}
