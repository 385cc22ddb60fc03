//! Byte classes and word-at-a-time scans for the parser. This module handles characters, not messages; the other files of this
//! crate use it.

/// Which bytes are allowed in a `token` of RFC 9110.
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = matches!(b as u8,
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-'
            | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        b += 1;
    }
    table
};

/// Which bytes are allowed in a `Host` outside brackets: none that delimit an authority or host in a URI, no list separators and no
/// white space (RFC 9110 section 7.2). HAProxy accepts all other ASCII characters, although not all occur in names.
const HOST: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = matches!(b as u8, b'!'..=b'~')
            && !matches!(b as u8, b'#' | b',' | b'/' | b'?' | b'@' | b'[' | b'\\' | b']');
        b += 1;
    }
    table
};

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Whether the byte may occur in a method or field name.
#[inline(always)]
pub(crate) fn is_token_byte(b: u8) -> bool {
    TOKEN[b as usize]
}

/// Whether `bytes` are a `token` (RFC 9110 section 5.6.2): not empty, no separators, no control characters.
#[must_use]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&b| is_token_byte(b))
}

/// Whether `bytes` are a `token` without upper-case letters: a field name in HTTP/2.
#[inline]
pub(crate) fn is_lower_token(bytes: &[u8]) -> bool {
    // Without an early exit: names are short, and a branch per byte costs more.
    !bytes.is_empty()
        && bytes.iter().fold(true, |lower, &b| lower & TOKEN[b as usize] & !b.is_ascii_uppercase())
}

/// Whether the bytes are a valid `Host` value: a name or an address, an IPv6 address in brackets, optionally a port.
#[inline]
#[must_use]
pub fn is_host_value(value: &[u8]) -> bool {
    // Without an early exit: names are short, and a branch per byte costs more.
    let plain = |bytes: &[u8]| bytes.iter().fold(true, |plain, &b| plain & HOST[b as usize]);
    plain(value) || in_brackets(value).is_some_and(|(inner, rest)| plain(inner) && plain(rest))
}

/// Splits off the brackets at the beginning: their contents, and the rest, which is empty or a port with its colon.
#[cold]
fn in_brackets(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = value.strip_prefix(b"[")?;
    let end = memchr::memchr(b']', inner)?;
    let rest = &inner[end + 1..];
    matches!(rest, [] | [b':', ..]).then_some((&inner[..end], rest))
}

/// Compares ASCII case-insensitively.
#[must_use]
pub fn eq_ignore_case(a: &[u8], b: &[u8]) -> bool {
    a.eq_ignore_ascii_case(b)
}

/// Whether `text` begins with `with`, case-insensitively.
#[must_use]
pub fn begins_ignore_case(text: &[u8], with: &[u8]) -> bool {
    text.get(..with.len()).is_some_and(|own| own.eq_ignore_ascii_case(with))
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let chunk = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(chunk.try_into().ok()?))
}

/// The end of the run of token bytes that starts at `at`.
#[inline(always)]
pub(crate) fn token_end(buf: &[u8], mut at: usize) -> usize {
    while let Some(&b) = buf.get(at) {
        if !is_token_byte(b) {
            break;
        }
        at += 1;
    }
    at
}

/// The index of the first colon, space or control character at or after `at`, or the length. The bytes before it need not be token
/// bytes.
#[inline(always)]
pub(crate) fn name_stop(buf: &[u8], mut at: usize) -> usize {
    while let Some(w) = word(buf, at) {
        let colon = w ^ (ONES * b':' as u64);
        // The lowest flagged byte is exact: borrows only propagate upwards.
        let stop = ((w.wrapping_sub(ONES * 0x21) & !w) | (colon.wrapping_sub(ONES) & !colon)) & HIGHS;
        if stop != 0 {
            return at + (stop.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while let Some(&b) = buf.get(at) {
        if b < 0x21 || b == b':' {
            break;
        }
        at += 1;
    }
    at
}

/// The index of the first NUL, LF or CR at or after `at`, or the length. Other control characters are accepted, as in HAProxy.
#[inline(always)]
pub(crate) fn line_break(buf: &[u8], mut at: usize) -> usize {
    while let Some(w) = word(buf, at) {
        // The lowest flagged byte is exact: borrows only propagate upwards.
        let mut low = w.wrapping_sub(ONES * 0x0e) & !w & HIGHS;
        while low != 0 {
            let i = at + (low.trailing_zeros() / 8) as usize;
            if matches!(buf[i], 0 | b'\n' | b'\r') {
                return i;
            }
            low &= low - 1;
        }
        at += 8;
    }
    while let Some(&b) = buf.get(at) {
        if matches!(b, 0 | b'\n' | b'\r') {
            break;
        }
        at += 1;
    }
    at
}

/// The index of the first byte at or after `at` that ends a request target or is invalid in it: below `!`, above `~`, or `#`.
#[inline(always)]
#[must_use]
pub fn target_stop(buf: &[u8], mut at: usize) -> usize {
    while let Some(w) = word(buf, at) {
        let hash = w ^ (ONES * b'#' as u64);
        let stop =
            (w.wrapping_sub(ONES * 0x21) & !w) | w.wrapping_add(ONES) | w | (hash.wrapping_sub(ONES) & !hash);
        let stop = stop & HIGHS;
        if stop != 0 {
            return at + (stop.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while let Some(&b) = buf.get(at) {
        if !(0x21..=0x7e).contains(&b) || b == b'#' {
            break;
        }
        at += 1;
    }
    at
}

/// Whether two tokens without `^` and `~` are equal ignoring case. For all other token bytes, setting bit 5 only merges the two
/// cases of a letter.
#[inline(always)]
pub(crate) fn same_token(a: &[u8], b: &[u8]) -> bool {
    const CASE: u64 = ONES * 0x20;
    let n = b.len();
    if a.len() != n {
        return false;
    }
    if n < 8 {
        return a.iter().zip(b).all(|(a, b)| a | 0x20 == b | 0x20);
    }
    let same = |at| matches!((word(a, at), word(b, at)), (Some(a), Some(b)) if a | CASE == b | CASE);
    let mut at = 0;
    while at + 8 < n {
        if !same(at) {
            return false;
        }
        at += 8;
    }
    same(n - 8)
}

/// The index of the first comma or double quote, or the length. Values are short, so whole words are scanned first, then bytes.
#[inline(always)]
pub(crate) fn list_stop(value: &[u8]) -> usize {
    let mut at = 0;
    while let Some(w) = word(value, at) {
        let (comma, quote) = (w ^ (ONES * b',' as u64), w ^ (ONES * b'"' as u64));
        // The lowest flagged byte is exact: borrows only propagate upwards.
        let stop = ((comma.wrapping_sub(ONES) & !comma) | (quote.wrapping_sub(ONES) & !quote)) & HIGHS;
        if stop != 0 {
            return at + (stop.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while let Some(&b) = value.get(at) {
        if matches!(b, b',' | b'"') {
            break;
        }
        at += 1;
    }
    at
}

/// Trims spaces and tabs at both ends.
#[inline]
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Parses a decimal number of digits only, below 2^63.
#[inline]
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    // A number with this many digits cannot overflow.
    const SURE: usize = 19;
    let sound = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if !sound || digits.len() > SURE && !digits[..digits.len() - SURE].iter().all(|b| *b == b'0') {
        return None;
    }
    let n = digits.iter().fold(0, |n: u64, b| n.wrapping_mul(10).wrapping_add(u64::from(b - b'0')));
    (n <= i64::MAX as u64).then_some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_scans_agree_with_plain_loops() {
        // Every byte value is tested at every position of a word, after bytes that cause borrows and carries.
        for filler in [b'a', b'!', b'~', 0x22, 0x0e] {
            for at in 0..20 {
                for b in 0..=255u8 {
                    let mut buf = [filler; 24];
                    buf[at] = b;
                    let plain = buf.iter().position(|c| matches!(c, 0 | b'\n' | b'\r')).unwrap_or(24);
                    assert_eq!(line_break(&buf, 0), plain, "{b} at {at}");
                    let plain =
                        buf.iter().position(|c| !(0x21..=0x7e).contains(c) || *c == b'#').unwrap_or(24);
                    assert_eq!(target_stop(&buf, 0), plain, "{b} at {at}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_digits_below_two_to_the_63() {
        for (digits, number) in [
            ("0", Some(0)),
            ("100", Some(100)),
            ("9223372036854775807", Some(i64::MAX as u64)),
            ("00000000000000000000009223372036854775807", Some(i64::MAX as u64)),
            ("9223372036854775808", None),
            ("9999999999999999999", None),
            ("18446744073709551617", None),
            ("10000000000000000000000", None),
            ("", None),
            ("+1", None),
            ("1 ", None),
        ] {
            assert_eq!(decimal(digits.as_bytes()), number, "{digits}");
        }
    }

    #[test]
    fn name_scans_agree_with_a_plain_loop() {
        for filler in [b'a', b'9', b';', 0x22, 0xff] {
            for at in 0..20 {
                for b in 0..=255u8 {
                    let mut buf = [filler; 20];
                    buf[at] = b;
                    let plain = buf.iter().position(|c| *c < 0x21 || *c == b':').unwrap_or(20);
                    assert_eq!(name_stop(&buf, 0), plain, "{b} at {at} among {filler}");
                }
            }
        }
    }

    #[test]
    fn list_scans_agree_with_a_plain_loop() {
        for filler in [b'a', b'+', b'-', b'!', b'#', b' ', 0xff] {
            for at in 0..20 {
                for b in 0..=255u8 {
                    let mut buf = [filler; 20];
                    buf[at] = b;
                    let plain = buf.iter().position(|c| matches!(c, b',' | b'"')).unwrap_or(20);
                    assert_eq!(list_stop(&buf), plain, "{b} at {at} among {filler}");
                }
            }
        }
    }

    #[test]
    fn folded_tokens_are_equal_only_ignoring_case() {
        let tokens = || (0..=255u8).filter(|b| is_token_byte(*b) && !matches!(b, b'^' | b'~'));
        for a in tokens() {
            for b in tokens() {
                for length in [1, 5, 8, 11] {
                    let (mut one, mut two) = (vec![b'x'; length], vec![b'X'; length]);
                    (one[length / 2], two[length / 2]) = (a, b);
                    assert_eq!(same_token(&one, &two), a.eq_ignore_ascii_case(&b), "{a} and {b}");
                }
            }
        }
        assert!(!same_token(b"x-test", b"x-tests"));
    }

    #[test]
    fn token_comparison_ignores_case_and_nothing_else() {
        assert!(same_token(b"Content-LENGTH", b"content-length"));
        assert!(same_token(b"TE", b"te"));
        for wrong in [&b"content_length"[..], b"content-lengti", b"content-lengt", b"bontent-length"] {
            assert!(!same_token(wrong, b"content-length"));
        }
    }
}
