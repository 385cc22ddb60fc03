//! Typed values, and length-prefixed strings (SPOE, 3.1).

use std::net::{Ipv4Addr, Ipv6Addr};

use base::varint;

/// A value. All integer types are read as 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer; written as a 64-bit one.
    Int(i64),
    /// An IPv4 address.
    Ip4(Ipv4Addr),
    /// An IPv6 address.
    Ip6(Ipv6Addr),
    /// A string.
    Str(&'a [u8]),
    /// Bytes.
    Bin(&'a [u8]),
}

/// The types, in the lower half of the first byte. The upper half has flags.
mod kind {
    pub(super) const NULL: u8 = 0;
    pub(super) const BOOL: u8 = 1;
    pub(super) const INT32: u8 = 2;
    pub(super) const UINT32: u8 = 3;
    pub(super) const INT64: u8 = 4;
    pub(super) const UINT64: u8 = 5;
    pub(super) const IP4: u8 = 6;
    pub(super) const IP6: u8 = 7;
    pub(super) const STR: u8 = 8;
    pub(super) const BIN: u8 = 9;
}

/// The flag of a boolean that is true.
const TRUE: u8 = 0x10;

impl<'a> Data<'a> {
    /// Takes a value from the beginning of `bytes`; `None` if it is invalid or incomplete.
    pub fn read(bytes: &mut &'a [u8]) -> Option<Self> {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        Some(match first & 0x0f {
            kind::NULL => Self::Null,
            kind::BOOL => Self::Bool(first & TRUE != 0),
            kind::INT32 | kind::UINT32 | kind::INT64 | kind::UINT64 => {
                Self::Int(read_number(bytes)?.cast_signed())
            }
            kind::IP4 => Self::Ip4(Ipv4Addr::from(read_array::<4>(bytes)?)),
            kind::IP6 => Self::Ip6(Ipv6Addr::from(read_array::<16>(bytes)?)),
            kind::STR => Self::Str(read_text(bytes)?),
            kind::BIN => Self::Bin(read_text(bytes)?),
            _ => return None,
        })
    }

    /// Appends the value.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.push(kind::NULL),
            Self::Bool(value) => out.push(kind::BOOL | if *value { TRUE } else { 0 }),
            Self::Int(value) => {
                out.push(kind::INT64);
                varint::write(out, value.cast_unsigned());
            }
            Self::Ip4(address) => {
                out.push(kind::IP4);
                out.extend_from_slice(&address.octets());
            }
            Self::Ip6(address) => {
                out.push(kind::IP6);
                out.extend_from_slice(&address.octets());
            }
            Self::Str(text) => {
                out.push(kind::STR);
                write_text(out, text);
            }
            Self::Bin(bytes) => {
                out.push(kind::BIN);
                write_text(out, bytes);
            }
        }
    }
}

/// Appends a 32-bit unsigned integer, as handshakes use.
pub(crate) fn write_u32(out: &mut Vec<u8>, value: u32) {
    out.push(kind::UINT32);
    varint::write(out, value.into());
}

/// Appends a string with its length.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    varint::write(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Takes a string.
pub(crate) fn read_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(read_number(bytes)?).ok()?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(text)
}

/// Takes a variable-length integer.
pub(crate) fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let (value, length) = varint::read(bytes).ok()?;
    *bytes = &bytes[length..];
    Some(value)
}

fn read_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (array, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_the_protocol_and_round_trip() {
        let cases: [(Data<'_>, &[u8]); 10] = [
            (Data::Null, &[0]),
            (Data::Bool(false), &[1]),
            (Data::Bool(true), &[0x11]),
            (Data::Int(5), &[4, 5]),
            (Data::Int(-1), &[4, 0xff, 0xf0, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0x0e]),
            (Data::Ip4(Ipv4Addr::LOCALHOST), &[6, 127, 0, 0, 1]),
            (Data::Ip6(Ipv6Addr::LOCALHOST), &[7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            (Data::Str(b"abc"), b"\x08\x03abc"),
            (Data::Bin(b"\0\xff"), &[9, 2, 0, 0xff]),
            (Data::Str(b""), &[8, 0]),
        ];
        for (value, bytes) in cases {
            let mut out = Vec::new();
            value.write(&mut out);
            assert_eq!(out, bytes, "{value:?}");
            let mut rest = bytes;
            assert_eq!((Data::read(&mut rest), rest), (Some(value), &b""[..]));
            for cut in 0..bytes.len() {
                assert_eq!(Data::read(&mut &bytes[..cut]), None, "{value:?} cut to {cut}");
            }
        }
    }

    #[test]
    fn all_integer_types_are_read_and_unknown_types_refused() {
        for kind in 2..=5 {
            assert_eq!(Data::read(&mut &[kind, 0xf0, 0][..]), Some(Data::Int(240)));
        }
        for kind in 10..=15 {
            assert_eq!(Data::read(&mut &[kind, 0][..]), None);
        }
    }
}
