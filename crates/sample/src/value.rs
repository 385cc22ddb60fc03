//! The values of fetches and converters: types, and HAProxy's casts between them (manual, 7.1).
//!
//! Bytes are borrowed from the request wherever possible. New bytes are written to [`Scratch`] buffers from a per-thread free
//! list, so in the steady state an evaluation does not allocate.

use std::cell::RefCell;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::{Deref, DerefMut};

/// The type of a value, as declared in the tables of fetches and converters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// Unknown before evaluation (variables). As an input type, any type.
    Any,
    /// A converter's output type: the same as its input.
    Same,
    /// Boolean.
    Bool,
    /// Signed 64-bit integer.
    Int,
    /// IPv4 or IPv6 address.
    Addr,
    /// IPv4 address.
    Ip4,
    /// IPv6 address.
    Ip6,
    /// Text.
    Str,
    /// Bytes.
    Bin,
    /// HTTP method.
    Method,
}

impl Type {
    /// The name used in messages and in `-dKsmp`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Same => "same",
            Self::Bool => "bool",
            Self::Int => "sint",
            Self::Addr => "addr",
            Self::Ip4 => "ipv4",
            Self::Ip6 => "ipv6",
            Self::Str => "str",
            Self::Bin => "bin",
            Self::Method => "meth",
        }
    }

    /// Whether values of this type can be cast to `to`; the cast can still fail for a particular value (`"abc"` as an address).
    pub fn casts_to(self, to: Self) -> bool {
        use Type::{Addr, Any, Bin, Bool, Int, Ip4, Ip6, Method, Same, Str};
        match (self, to) {
            (Any | Same, _) | (_, Any | Same) => true,
            (from, to) if from == to => true,
            (Bool, Int | Str | Bin) => true,
            (Int, Bool | Addr | Ip4 | Ip6 | Str | Bin) => true,
            (Addr, Ip4 | Ip6 | Str | Bin | Int) => true,
            (Ip4, Int | Addr | Ip6 | Str | Bin) => true,
            (Ip6, Addr | Ip4 | Str | Bin) => true,
            (Str, Bool | Int | Addr | Ip4 | Ip6 | Bin | Method) => true,
            (Bin, Str | Method) => true,
            (Method, Str | Bin) => true,
            _ => false,
        }
    }
}

/// The number of buffers kept per thread, and the largest capacity that is kept.
const KEPT_BUFFERS: usize = 64;
const KEPT_CAPACITY: usize = 64 * 1024;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A byte buffer from the thread's free list. Dropping it returns the buffer to the list.
pub struct Scratch(Vec<u8>);

impl Scratch {
    /// An empty buffer.
    #[inline]
    pub fn new() -> Self {
        Self(FREE.with(|free| free.try_borrow_mut().ok().and_then(|mut free| free.pop())).unwrap_or_default())
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy(bytes: &[u8]) -> Self {
        let mut scratch = Self::new();
        scratch.0.extend_from_slice(bytes);
        scratch
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    // Short, so that it is inlined where values are dropped, most of which have no buffer.
    #[inline]
    fn drop(&mut self) {
        if self.0.capacity() > 0 {
            give_back(std::mem::take(&mut self.0));
        }
    }
}

#[inline(never)]
fn give_back(mut buffer: Vec<u8>) {
    if buffer.capacity() > KEPT_CAPACITY {
        return;
    }
    buffer.clear();
    // A thread that is exiting has no list; the buffer is freed then.
    let _ = FREE.try_with(|free| {
        if let Ok(mut free) = free.try_borrow_mut()
            && free.len() < KEPT_BUFFERS
        {
            free.push(buffer);
        }
    });
}

impl Deref for Scratch {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Clone for Scratch {
    fn clone(&self) -> Self {
        Self::copy(self)
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// Bytes borrowed from the request, the response or the configuration, or computed during evaluation.
#[derive(Clone, Debug)]
pub enum Bytes<'a> {
    /// Borrowed.
    Borrowed(&'a [u8]),
    /// Computed.
    Made(Scratch),
}

impl Deref for Bytes<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Made(scratch) => scratch,
        }
    }
}

impl<'a> Bytes<'a> {
    /// A slice of the bytes, without copying.
    pub fn slice(self, start: usize, end: usize) -> Self {
        match self {
            Self::Borrowed(bytes) => Self::Borrowed(&bytes[start..end]),
            Self::Made(mut scratch) => {
                scratch.truncate(end);
                scratch.drain(..start);
                Self::Made(scratch)
            }
        }
    }

    /// The bytes for modification. Borrowed bytes are copied first.
    pub fn into_scratch(self) -> Scratch {
        match self {
            Self::Borrowed(bytes) => Scratch::copy(bytes),
            Self::Made(scratch) => scratch,
        }
    }
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Borrowed(bytes)
    }
}

impl From<Scratch> for Bytes<'_> {
    fn from(scratch: Scratch) -> Self {
        Self::Made(scratch)
    }
}

/// A value.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// Boolean.
    Bool(bool),
    /// Integer.
    Int(i64),
    /// IPv4 address.
    Ip4(Ipv4Addr),
    /// IPv6 address.
    Ip6(Ipv6Addr),
    /// Text, with arbitrary bytes.
    Str(Bytes<'a>),
    /// Bytes.
    Bin(Bytes<'a>),
    /// An HTTP method, as its token.
    Method(Bytes<'a>),
}

impl<'a> Value<'a> {
    /// A string that borrows its bytes.
    #[inline]
    pub fn str(bytes: &'a [u8]) -> Self {
        Self::Str(Bytes::Borrowed(bytes))
    }

    /// A binary value that borrows its bytes.
    #[inline]
    pub fn bin(bytes: &'a [u8]) -> Self {
        Self::Bin(Bytes::Borrowed(bytes))
    }

    /// A string from a computed buffer.
    pub fn made(scratch: Scratch) -> Self {
        Self::Str(Bytes::Made(scratch))
    }

    /// An address value.
    pub fn ip(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::Ip4(v4),
            IpAddr::V6(v6) => Self::Ip6(v6),
        }
    }

    /// The value's type.
    #[inline]
    pub fn kind(&self) -> Type {
        match self {
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Ip4(_) => Type::Ip4,
            Self::Ip6(_) => Type::Ip6,
            Self::Str(_) => Type::Str,
            Self::Bin(_) => Type::Bin,
            Self::Method(_) => Type::Method,
        }
    }

    /// The bytes, if the value is text, bytes or a method.
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Str(bytes) | Self::Bin(bytes) | Self::Method(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Casts the value to `to` by HAProxy's rules. `None` if this value cannot be cast.
    pub fn cast(self, to: Type) -> Option<Self> {
        match to {
            Type::Any | Type::Same => Some(self),
            Type::Bool => self.to_bool().map(Self::Bool),
            Type::Int => self.to_int().map(Self::Int),
            Type::Addr => self.to_addr().map(Self::ip),
            Type::Ip4 => self.to_ip4().map(Self::Ip4),
            Type::Ip6 => self.to_ip6().map(Self::Ip6),
            Type::Str => self.into_str().map(Self::Str),
            Type::Bin => self.into_bin().map(Self::Bin),
            Type::Method => match self {
                Self::Method(bytes) | Self::Str(bytes) | Self::Bin(bytes) => Some(Self::Method(bytes)),
                _ => None,
            },
        }
    }

    /// As a boolean: true for integers other than 0, and for text that begins with such a number.
    pub fn to_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => self.to_int().map(|value| value != 0),
        }
    }

    /// As an integer: the number at the start of a text (0 if there is none), or an IPv4 address in host order.
    pub fn to_int(&self) -> Option<i64> {
        match self {
            Self::Bool(value) => Some(i64::from(*value)),
            Self::Int(value) => Some(*value),
            Self::Ip4(address) => Some(i64::from(u32::from(*address))),
            Self::Str(bytes) => leading_int(bytes),
            Self::Ip6(_) | Self::Bin(_) | Self::Method(_) => None,
        }
    }

    /// As an address of either family.
    pub fn to_addr(&self) -> Option<IpAddr> {
        match self {
            Self::Int(value) => Some(Ipv4Addr::from(*value as u32).into()),
            Self::Ip4(address) => Some((*address).into()),
            Self::Ip6(address) => Some((*address).into()),
            Self::Str(bytes) => parse_ip(bytes).or_else(|| leading_ip4(bytes).map(IpAddr::V4)),
            _ => None,
        }
    }

    /// As an IPv4 address; also an IPv6 address that embeds one (`::ffff:1.2.3.4`, `::1.2.3.4`, `2002:…`).
    pub fn to_ip4(&self) -> Option<Ipv4Addr> {
        match self.to_addr()? {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(v6) => embedded_ip4(v6),
        }
    }

    /// As an IPv6 address. An IPv4 address is mapped.
    pub fn to_ip6(&self) -> Option<Ipv6Addr> {
        match self.to_addr()? {
            IpAddr::V4(v4) => Some(v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => Some(v6),
        }
    }

    /// As text. Bytes end at the first NUL.
    pub fn into_str(self) -> Option<Bytes<'a>> {
        match self {
            Self::Str(bytes) | Self::Method(bytes) => Some(bytes),
            Self::Bin(bytes) => match memchr::memchr(0, &bytes) {
                Some(end) => Some(bytes.slice(0, end)),
                None => Some(bytes),
            },
            other => {
                let mut scratch = Scratch::new();
                other.write_text(&mut scratch);
                Some(Bytes::Made(scratch))
            }
        }
    }

    /// As bytes: booleans and integers in 8 bytes, addresses in 4 or 16, all big endian.
    pub fn into_bin(self) -> Option<Bytes<'a>> {
        Some(match self {
            Self::Str(bytes) | Self::Bin(bytes) | Self::Method(bytes) => bytes,
            Self::Bool(value) => Bytes::Made(Scratch::copy(&i64::from(value).to_be_bytes())),
            Self::Int(value) => Bytes::Made(Scratch::copy(&value.to_be_bytes())),
            Self::Ip4(address) => Bytes::Made(Scratch::copy(&address.octets())),
            Self::Ip6(address) => Bytes::Made(Scratch::copy(&address.octets())),
        })
    }

    /// Appends the value as text. Binary values are appended unchanged.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        use std::io::Write;
        // Writing to a vector cannot fail.
        let _ = match self {
            Self::Bool(value) => {
                out.push(b'0' + u8::from(*value));
                Ok(())
            }
            Self::Int(value) => {
                write_int(out, *value);
                Ok(())
            }
            Self::Ip4(address) => {
                write_ip4(out, *address);
                Ok(())
            }
            Self::Ip6(address) => write!(out, "{address}"),
            Self::Str(bytes) | Self::Method(bytes) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            Self::Bin(bytes) => {
                // As in a cast to text, bytes end at the first NUL.
                out.extend_from_slice(&bytes[..memchr::memchr(0, bytes).unwrap_or(bytes.len())]);
                Ok(())
            }
        };
    }

    /// Copies the value, so that it can be kept in a variable.
    pub fn into_owned(self) -> Value<'static> {
        let own = |bytes: Bytes<'a>| Bytes::Made(bytes.into_scratch());
        match self {
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::Int(value),
            Self::Ip4(address) => Value::Ip4(address),
            Self::Ip6(address) => Value::Ip6(address),
            Self::Str(bytes) => Value::Str(own(bytes)),
            Self::Bin(bytes) => Value::Bin(own(bytes)),
            Self::Method(bytes) => Value::Method(own(bytes)),
        }
    }
}

/// Appends `value` in decimal.
pub fn write_int(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends an IPv4 address in dotted form.
pub fn write_ip4(out: &mut Vec<u8>, address: Ipv4Addr) {
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        write_int(out, i64::from(octet));
    }
}

/// The number at the start of `bytes`, with an optional sign; 0 if there is none, `None` for empty text.
pub fn leading_int(bytes: &[u8]) -> Option<i64> {
    if bytes.is_empty() {
        return None;
    }
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let mut value: i64 = 0;
    for digit in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        let digit = i64::from(digit - b'0');
        value = value.saturating_mul(10);
        value = if negative { value.saturating_sub(digit) } else { value.saturating_add(digit) };
    }
    Some(value)
}

/// Parses all of `bytes` as a number.
pub fn parse_int(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Parses an address, with or without brackets.
pub fn parse_ip(bytes: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(bytes).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bare {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

/// The IPv4 address at the start of a text: digits and dots up to any other byte (`10.0.0.1:80`, `10.0.0.1, 10.0.0.2`).
fn leading_ip4(bytes: &[u8]) -> Option<Ipv4Addr> {
    let length = bytes.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.').unwrap_or(bytes.len());
    let mut octets = [0; 4];
    let mut parts = std::str::from_utf8(&bytes[..length]).ok()?.split('.');
    for octet in &mut octets {
        *octet = parts.next()?.parse().ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

/// The IPv4 address embedded in an IPv6 address: mapped, compatible or 6to4.
pub fn embedded_ip4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = address.octets();
    let tail = Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]);
    match octets {
        [0x20, 0x02, a, b, c, d, ..] => Some(Ipv4Addr::new(a, b, c, d)),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => Some(tail),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ..] => Some(tail),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: Option<Value<'_>>) -> String {
        value.map_or("none".into(), |value| {
            let mut out = Vec::new();
            value.write_text(&mut out);
            format!("{}:{}", value.kind().name(), String::from_utf8_lossy(&out))
        })
    }

    #[test]
    fn casts_follow_the_table_of_the_manual() {
        let s = |text: &'static str| Value::str(text.as_bytes());
        let cases = [
            (s("12abc"), Type::Int, "sint:12"),
            (s("-7"), Type::Int, "sint:-7"),
            (s("abc"), Type::Int, "sint:0"),
            (s(""), Type::Int, "none"),
            (s("1"), Type::Bool, "bool:1"),
            (s("10.0.0.1"), Type::Addr, "ipv4:10.0.0.1"),
            (s("::1"), Type::Addr, "ipv6:::1"),
            (s("nowhere"), Type::Addr, "none"),
            (s("::ffff:10.0.0.1"), Type::Ip4, "ipv4:10.0.0.1"),
            (s("2001:db8::1"), Type::Ip4, "none"),
            (Value::Ip4(Ipv4Addr::LOCALHOST), Type::Ip6, "ipv6:::ffff:127.0.0.1"),
            (Value::Ip4(Ipv4Addr::LOCALHOST), Type::Int, "sint:2130706433"),
            (Value::Int(2_130_706_433), Type::Ip4, "ipv4:127.0.0.1"),
            (Value::Int(i64::MIN), Type::Str, "str:-9223372036854775808"),
            (Value::Bool(true), Type::Str, "str:1"),
            (Value::bin(b"ab\0cd"), Type::Str, "str:ab"),
            (Value::bin(b"12"), Type::Int, "none"),
        ];
        for (value, to, expected) in cases {
            let shown = format!("{value:?} to {}", to.name());
            assert_eq!(text(value.cast(to)), expected, "{shown}");
        }
    }

    #[test]
    fn dropped_buffers_are_reused() {
        let mut first = Scratch::new();
        first.extend_from_slice(&[b'x'; 300]);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(Scratch::copy(b"y").as_ptr(), address);
    }
}
