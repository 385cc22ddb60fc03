//! A single byte range of a stored response (RFC 9110, 14). Requests with several ranges, other units or malformed ranges get the
//! whole response.

use http::{Head, KnownName};

/// The part of a body that a request gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ranged {
    /// The whole body.
    Whole,
    /// These bytes of the body.
    Part(std::ops::Range<usize>),
    /// Nothing, because the range starts after the end.
    Outside,
}

/// Returns the part that `request` asks for, of a stored response with this head and a body of `length` bytes.
pub fn ranged(request: &Head, kept: &Head, length: usize) -> Ranged {
    let Some(asked) = request.get_known(KnownName::Range) else { return Ranged::Whole };
    if request.method_id() != http::Method::Get || !is_meant(request, kept) {
        return Ranged::Whole;
    }
    part(asked, length)
}

/// Whether the range applies to this response (`If-Range`; RFC 9110, 13.1.5).
fn is_meant(request: &Head, kept: &Head) -> bool {
    let Some(condition) = request.get_known(KnownName::IfRange) else { return true };
    let own = |name| kept.get_known(name);
    if condition.starts_with(b"\"") {
        return own(KnownName::Etag) == Some(condition);
    }
    // A weak tag never matches, and a date matches only if it is equal.
    own(KnownName::LastModified).is_some_and(|date| date == condition)
}

fn part(asked: &[u8], length: usize) -> Ranged {
    let unit = asked.split_at_checked(6).filter(|(unit, _)| unit.eq_ignore_ascii_case(b"bytes="));
    let Some((_, set)) = unit else { return Ranged::Whole };
    if set.contains(&b',') {
        return Ranged::Whole;
    }
    let set = set.trim_ascii();
    let Some(dash) = set.iter().position(|byte| *byte == b'-') else { return Ranged::Whole };
    let (first, last) = (number(&set[..dash]), number(&set[dash + 1..]));
    match (first, last, &set[..dash], &set[dash + 1..]) {
        (Some(first), _, _, b"") if first < length => Ranged::Part(first..length),
        (Some(first), Some(last), ..) if first <= last && first < length => {
            Ranged::Part(first..last.saturating_add(1).min(length))
        }
        (None, Some(last), b"", _) if last > 0 && length > 0 => {
            Ranged::Part(length - last.min(length)..length)
        }
        (Some(first), None, _, b"") if first >= length => Ranged::Outside,
        (Some(first), Some(last), ..) if first <= last => Ranged::Outside,
        (None, Some(_), b"", _) => Ranged::Outside,
        _ => Ranged::Whole,
    }
}

/// Parses a number; after an overflow it is the maximum.
fn number(text: &[u8]) -> Option<usize> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let longer = |all: usize, digit: &u8| all.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
    Some(text.iter().fold(0, longer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_within_the_body_or_outside() {
        let cases: &[(&str, Ranged)] = &[
            ("bytes=0-0", Ranged::Part(0..1)),
            ("bytes=2-4", Ranged::Part(2..5)),
            ("Bytes=8-", Ranged::Part(8..10)),
            ("bytes=8-99999999999999999999999", Ranged::Part(8..10)),
            ("bytes=-3", Ranged::Part(7..10)),
            ("bytes=-30", Ranged::Part(0..10)),
            ("bytes=10-", Ranged::Outside),
            ("bytes=10-12", Ranged::Outside),
            ("bytes=-0", Ranged::Outside),
            ("bytes=4-2", Ranged::Whole),
            ("bytes=1-2,4-5", Ranged::Whole),
            ("bytes=", Ranged::Whole),
            ("bytes=-", Ranged::Whole),
            ("bytes=a-b", Ranged::Whole),
            ("lines=1-2", Ranged::Whole),
        ];
        for (asked, wanted) in cases {
            assert_eq!(part(asked.as_bytes(), 10), *wanted, "{asked}");
        }
        assert_eq!(part(b"bytes=0-", 0), Ranged::Outside);
    }
}
