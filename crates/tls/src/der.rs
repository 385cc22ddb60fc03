//! Reads and writes DER (X.690) as a sequence of tagged values.

/// Supported tags.
pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const NULL: u8 = 0x05;
pub(crate) const OID: u8 = 0x06;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;

/// The remaining input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Der<'a>(pub(crate) &'a [u8]);

impl<'a> Der<'a> {
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns the tag of the next value.
    pub(crate) fn peek(self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Reads the next value, with any tag.
    pub(crate) fn any(&mut self) -> Option<(u8, Der<'a>)> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (length, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, Der(value)))
    }

    /// Reads the next value, which must have this `tag`.
    pub(crate) fn take(&mut self, tag: u8) -> Option<Der<'a>> {
        if self.peek() == Some(tag) { self.any().map(|(_, value)| value) } else { None }
    }

    /// Reads the next value, which must have this `tag`, including its tag and length.
    pub(crate) fn take_whole(&mut self, tag: u8) -> Option<&'a [u8]> {
        let before = self.0;
        self.take(tag)?;
        Some(&before[..before.len() - self.0.len()])
    }

    /// Reads the next value if it has this `tag`; otherwise reads nothing.
    pub(crate) fn option(&mut self, tag: u8) -> Option<Option<Der<'a>>> {
        if self.peek() == Some(tag) { self.take(tag).map(Some) } else { Some(None) }
    }
}

/// Appends `contents` with `tag` to `out`.
pub(crate) fn put(out: &mut Vec<u8>, tag: u8, contents: &[u8]) {
    out.push(tag);
    let length = contents.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
        out.push(0x80 | bytes.len() as u8);
        out.extend_from_slice(bytes);
    }
    out.extend_from_slice(contents);
}

/// Returns the seconds since 1970 of a GeneralizedTime, which must be in UTC: `20260131235959Z`.
pub(crate) fn time(text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    if digits.len() != 14 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        digits[range].iter().fold(0i64, |sum, digit| sum * 10 + i64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0..4), number(4..6), number(6..8));
    let (hour, minute, second) = (number(8..10), number(10..12), number(12..14));
    let fits =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    fits.then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar, using years that begin in March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        for (text, seconds) in [
            ("19700101000000Z", Some(0)),
            ("20000229120000Z", Some(951_825_600)),
            ("20261123132000Z", Some(1_795_440_000)),
            ("19691231235959Z", Some(-1)),
            ("20261323132000Z", None),
            ("20261123132000", None),
            ("2026112313200aZ", None),
        ] {
            assert_eq!(time(text.as_bytes()), seconds, "{text}");
        }
    }

    #[test]
    fn days_match_the_clock() {
        for day in (-200_000..200_000).step_by(7) {
            let date = base::clock::Date::utc(day * 86_400);
            assert_eq!(days(date.year.into(), date.month.into(), date.day.into()), day);
        }
    }

    #[test]
    fn truncated_values_are_rejected() {
        for bytes in [
            &[][..],
            &[0x30],
            &[0x30, 0x80, 0, 0],
            &[0x30, 2, 0],
            &[0x30, 0x85, 0, 0, 0, 0, 0],
            &[0x30, 0x84, 1],
        ] {
            assert!(Der(bytes).any().is_none(), "{bytes:?}");
        }
        let mut der = Der(&[0x30, 0x81, 1, 7, 4, 0]);
        assert_eq!(der.take(SEQUENCE).map(|value| value.0), Some(&[7][..]));
        assert!(der.take(SEQUENCE).is_none() && der.option(SEQUENCE).is_some_and(|none| none.is_none()));
        assert!(der.option(OCTET_STRING).flatten().is_some() && der.is_empty());
    }
}
