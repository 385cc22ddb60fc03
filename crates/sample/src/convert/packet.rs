//! Converters for the headers of Ethernet frames, IP packets and TCP segments, as captured by `fc_saved_syn`.

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, Spec, opt};
use crate::env::Env;
use crate::scope::Scope;
use crate::value::{Bytes, Scratch, Type, Value};

const FP: &[Spec] = &[opt(ArgKind::Int)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name                  arguments  takes       gives        description
    row("eth.data",           &[],       Type::Bin,  Type::Bin,   "returns the payload of an Ethernet frame", eth_data),
    row("eth.dst",            &[],       Type::Bin,  Type::Bin,   "returns the destination address of an Ethernet frame", eth_dst),
    row("eth.hdr",            &[],       Type::Bin,  Type::Bin,   "returns the Ethernet header with its VLAN tags", eth_hdr),
    row("eth.proto",          &[],       Type::Bin,  Type::Int,   "returns the EtherType of the payload",   eth_proto),
    row("eth.src",            &[],       Type::Bin,  Type::Bin,   "returns the source address of an Ethernet frame", eth_src),
    row("eth.vlan",           &[],       Type::Bin,  Type::Int,   "returns the ID of the innermost VLAN",   eth_vlan),
    row("ip.data",            &[],       Type::Bin,  Type::Bin,   "returns the payload of an IP packet",    ip_data),
    row("ip.df",              &[],       Type::Bin,  Type::Int,   "returns whether the Don't Fragment flag is set", ip_df),
    row("ip.dst",             &[],       Type::Bin,  Type::Addr,  "returns the destination address",        ip_dst),
    row("ip.fp",              FP,        Type::Bin,  Type::Bin,   "returns a fingerprint of the sender's system", ip_fp).prepared(prepare_fp),
    row("ip.hdr",             &[],       Type::Bin,  Type::Bin,   "returns the IP header",                  ip_hdr),
    row("ip.proto",           &[],       Type::Bin,  Type::Int,   "returns the protocol of the payload",    ip_proto),
    row("ip.src",             &[],       Type::Bin,  Type::Addr,  "returns the source address",             ip_src),
    row("ip.tos",             &[],       Type::Bin,  Type::Int,   "returns the type of service",            ip_tos),
    row("ip.ttl",             &[],       Type::Bin,  Type::Int,   "returns the time to live",               ip_ttl),
    row("ip.ver",             &[],       Type::Bin,  Type::Int,   "returns the IP version, 4 or 6",         ip_ver),
    row("tcp.dst",            &[],       Type::Bin,  Type::Int,   "returns the destination port",           tcp_dst),
    row("tcp.flags",          &[],       Type::Bin,  Type::Int,   "returns the TCP flags",                  tcp_flags),
    row("tcp.options.mss",    &[],       Type::Bin,  Type::Int,   "returns the MSS option",                 tcp_options_mss),
    row("tcp.options.sack",   &[],       Type::Bin,  Type::Int,   "returns 1 if the SACK option is present", tcp_options_sack),
    row("tcp.options.tsopt",  &[],       Type::Bin,  Type::Int,   "returns 1 if the timestamp option is present", tcp_options_tsopt),
    row("tcp.options.tsval",  &[],       Type::Bin,  Type::Int,   "returns the timestamp",                  tcp_options_tsval),
    row("tcp.options.wscale", &[],       Type::Bin,  Type::Int,   "returns the window scale",               tcp_options_wscale),
    row("tcp.options.wsopt",  &[],       Type::Bin,  Type::Int,   "returns 1 if the window scale option is present", tcp_options_wsopt),
    row("tcp.options_list",   &[],       Type::Bin,  Type::Bin,   "returns the option numbers, in order",   tcp_options_list),
    row("tcp.seq",            &[],       Type::Bin,  Type::Int,   "returns the sequence number",            tcp_seq),
    row("tcp.src",            &[],       Type::Bin,  Type::Int,   "returns the source port",                tcp_src),
    row("tcp.win",            &[],       Type::Bin,  Type::Int,   "returns the window size",                tcp_win),
];

/// Reads a big-endian number.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<i64> {
    let part = bytes.get(at..at + length)?;
    Some(part.iter().fold(0, |number, byte| number << 8 | i64::from(*byte)))
}

fn int<'a>(number: Option<i64>) -> Option<Value<'a>> {
    number.map(Value::Int)
}

/// A slice of the input, without copying.
fn part<'a>(value: Value<'a>, range: impl Fn(&[u8]) -> Option<(usize, usize)>) -> Option<Value<'a>> {
    let bytes: Bytes<'a> = value.into_bin()?;
    let (start, end) = range(&bytes)?;
    (start <= end && end <= bytes.len()).then(|| Value::Bin(bytes.slice(start, end)))
}

/// The length of an Ethernet header: 12 bytes of addresses, 4 bytes per VLAN tag, 2 bytes of type.
fn eth_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 12;
    while matches!(number(bytes, at, 2)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    Some(at + 2)
}

fn eth_data<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    part(value, |bytes| Some((eth_length(bytes)?, bytes.len())))
}

fn eth_hdr<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    part(value, |bytes| Some((0, eth_length(bytes)?)))
}

fn eth_dst<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    part(value, |_| Some((0, 6)))
}

fn eth_src<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    part(value, |_| Some((6, 12)))
}

fn eth_proto<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.bytes()?;
    int(number(bytes, eth_length(bytes)? - 2, 2))
}

fn eth_vlan<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.bytes()?;
    let at = eth_length(bytes)?.checked_sub(18)?;
    int(number(bytes, at + 14, 2).map(|tag| tag & 0xfff))
}

/// The IP version and the length of the header, including extension headers for IPv6.
fn ip_length(bytes: &[u8]) -> Option<(u8, usize)> {
    match bytes.first()? >> 4 {
        4 => Some((4, usize::from(bytes[0] & 15) * 4)).filter(|(_, length)| *length >= 20),
        6 => {
            let (mut next, mut at) = (*bytes.get(6)?, 40);
            // Hop-by-hop options, routing and destination options.
            while matches!(next, 0 | 43 | 60) {
                next = *bytes.get(at)?;
                at += (usize::from(*bytes.get(at + 1)?) + 1) * 8;
            }
            Some((6, at))
        }
        _ => None,
    }
}

/// Reads a number with different offsets in IPv4 and IPv6 headers.
fn ip_number(bytes: &[u8], v4: fn(&[u8]) -> Option<i64>, v6: fn(&[u8]) -> Option<i64>) -> Option<i64> {
    match ip_length(bytes)?.0 {
        4 => v4(bytes),
        _ => v6(bytes),
    }
}

fn ip_data<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    part(value, |bytes| Some((ip_length(bytes)?.1, bytes.len())))
}

fn ip_hdr<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    part(value, |bytes| Some((0, ip_length(bytes)?.1)))
}

/// Optional parts of a fingerprint, one bit each.
const WITH_TTL: i64 = 1;
const WITH_OPTIONS: i64 = 2;
const WITH_SOURCE: i64 = 4;

fn prepare_fp(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match args[0] {
        Arg::Missing | Arg::Int(0..=7) => Ok(()),
        _ => Err("the mode must be a sum of 1, 2 and 4".into()),
    }
}

/// A fingerprint that distinguishes systems with the same address: eight bytes in the manual's layout, then the parts selected by
/// the mode.
fn ip_fp<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.bytes()?;
    let mode = args.int(0).unwrap_or(0);
    let (version, length) = ip_length(bytes)?;
    let tcp = bytes.get(length..).filter(|tcp| tcp.len() >= 20)?;
    let (tos, ttl) = (ip_tos_of(bytes)? as u8, ip_ttl_of(bytes)? as u8);
    let option =
        |wanted: u8| tcp_options(tcp).find(|(kind, _)| *kind == wanted).map(|(_, contents)| contents);
    let mut out = Scratch::new();
    out.push(tos);
    let (plain, source) = if version == 4 { (20, 12..16) } else { (40, 8..24) };
    let whole = version == 6 || bytes[6] & 0x40 != 0;
    let distance = [32, 64, 128].iter().take_while(|limit| ttl > **limit).count() as u8;
    let header = tcp[12] >> 4;
    out.push(
        u8::from(version == 6) << 7
            | u8::from(whole) << 6
            | distance << 4
            | u8::from(length > plain) << 3
            | u8::from(tcp.len() > usize::from(header) * 4) << 2
            // CWR and ECE.
            | tcp[13] >> 6,
    );
    let scale =
        option(3).and_then(|contents| contents.first()).map_or(0, |scale| scale.saturating_add(1).min(15));
    out.push(header << 4 | scale);
    out.extend_from_slice(&tcp[14..16]);
    out.extend_from_slice(option(2).and_then(|contents| contents.get(..2)).unwrap_or(&[0, 0]));
    let kinds = tcp_options(tcp).filter(|(kind, _)| *kind >= 2);
    out.push(kinds.fold(0, |bits, (kind, _)| bits | 1 << (kind - 2).min(7)));
    if mode & WITH_TTL != 0 {
        out.push(ttl);
    }
    if mode & WITH_OPTIONS != 0 {
        out.extend(tcp_options(tcp).map(|(kind, _)| kind));
    }
    if mode & WITH_SOURCE != 0 {
        out.extend_from_slice(bytes.get(source)?);
    }
    Some(Value::Bin(out.into()))
}

fn ip_ver<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(value.bytes()?.first().map(|byte| i64::from(byte >> 4)))
}

fn ip_df<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    // IPv6 routers never fragment.
    int(ip_number(value.bytes()?, |bytes| number(bytes, 6, 1).map(|flags| flags >> 6 & 1), |_| Some(1)))
}

fn ip_proto<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(ip_number(
        value.bytes()?,
        |bytes| number(bytes, 9, 1),
        |bytes| {
            let (mut next, mut at) = (*bytes.get(6)?, 40);
            while matches!(next, 0 | 43 | 60) {
                next = *bytes.get(at)?;
                at += (usize::from(*bytes.get(at + 1)?) + 1) * 8;
            }
            Some(i64::from(next))
        },
    ))
}

fn ip_tos<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(ip_tos_of(value.bytes()?))
}

fn ip_tos_of(bytes: &[u8]) -> Option<i64> {
    ip_number(bytes, |bytes| number(bytes, 1, 1), |bytes| number(bytes, 0, 2).map(|start| start >> 4 & 0xff))
}

fn ip_ttl<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(ip_ttl_of(value.bytes()?))
}

fn ip_ttl_of(bytes: &[u8]) -> Option<i64> {
    ip_number(bytes, |bytes| number(bytes, 8, 1), |bytes| number(bytes, 7, 1))
}

/// The source or destination address of the header.
fn ip_address<'a>(value: &Value<'a>, of_source: bool) -> Option<Value<'a>> {
    let bytes = value.bytes()?;
    match ip_length(bytes)?.0 {
        4 => {
            let at = if of_source { 12 } else { 16 };
            let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(Value::Ip4(octets.into()))
        }
        _ => {
            let at = if of_source { 8 } else { 24 };
            let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
            Some(Value::Ip6(octets.into()))
        }
    }
}

fn ip_src<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    ip_address(&value, true)
}

fn ip_dst<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    ip_address(&value, false)
}

fn tcp_src<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(number(value.bytes()?, 0, 2))
}

fn tcp_dst<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(number(value.bytes()?, 2, 2))
}

fn tcp_seq<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(number(value.bytes()?, 4, 4))
}

fn tcp_flags<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(number(value.bytes()?, 13, 1))
}

fn tcp_win<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(number(value.bytes()?, 14, 2))
}

/// The options of a TCP header: kind and contents.
fn tcp_options(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let end = bytes.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4).min(bytes.len());
    let mut rest = bytes.get(20..end).unwrap_or_default();
    std::iter::from_fn(move || match rest {
        // End of the option list.
        [] | [0, ..] => None,
        [1, after @ ..] => {
            rest = after;
            Some((1, &[][..]))
        }
        [kind, length, ..] => {
            let length = usize::from(*length);
            let contents = rest.get(2..length)?;
            let kind = *kind;
            rest = &rest[length..];
            Some((kind, contents))
        }
        _ => None,
    })
}

/// A TCP header, if it is complete.
fn whole_tcp(bytes: &[u8]) -> Option<&[u8]> {
    let length = usize::from(*bytes.get(12)? >> 4) * 4;
    (20..=bytes.len()).contains(&length).then_some(bytes)
}

/// The number in an optional TCP option, or `None` if the header is truncated.
fn tcp_option(value: &Value<'_>, wanted: u8) -> Option<Option<i64>> {
    let mut found = tcp_options(whole_tcp(value.bytes()?)?);
    Some(
        found
            .find(|(kind, _)| *kind == wanted)
            .map(|(_, contents)| number(contents, 0, contents.len().min(4)).unwrap_or(0)),
    )
}

fn tcp_options_mss<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(Some(tcp_option(&value, 2)?.unwrap_or(0)))
}

fn tcp_options_wscale<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(Some(tcp_option(&value, 3)?.unwrap_or(0)))
}

fn tcp_options_tsval<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(tcp_option(&value, 8)?)
}

fn tcp_options_wsopt<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(Some(i64::from(tcp_option(&value, 3)?.is_some())))
}

fn tcp_options_sack<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(Some(i64::from(tcp_option(&value, 4)?.is_some())))
}

fn tcp_options_tsopt<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    int(Some(i64::from(tcp_option(&value, 8)?.is_some())))
}

fn tcp_options_list<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let mut out = Scratch::new();
    out.extend(tcp_options(whole_tcp(value.bytes()?)?).map(|(kind, _)| kind));
    Some(Value::Bin(out.into()))
}
