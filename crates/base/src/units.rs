//! Time and size values in configurations (manual, sections 2.5 and 2.6).
//!
//! Both are unsigned integers with an optional suffix. This module does not know the keyword; the caller turns a [`UnitError`] into
//! a message.

use std::fmt;
use std::time::Duration;

/// The unit of a number without a suffix, which is also the resolution of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultUnit {
    /// Microseconds.
    Microseconds,
    /// Milliseconds: the default of nearly every keyword.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
    /// Days.
    Days,
}

impl DefaultUnit {
    const fn micros(self) -> u64 {
        match self {
            Self::Microseconds => 1,
            Self::Milliseconds => 1_000,
            Self::Seconds => 1_000_000,
            Self::Minutes => 60_000_000,
            Self::Hours => 3_600_000_000,
            Self::Days => 86_400_000_000,
        }
    }

    /// The suffix of the unit, for messages.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Minutes => "m",
            Self::Hours => "h",
            Self::Days => "d",
        }
    }
}

/// An error in a time or a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitError {
    /// The text is empty.
    Empty,
    /// The byte at this offset is neither a digit nor a known suffix.
    Unexpected {
        /// Byte offset of the offending character.
        at: usize,
        /// The character itself.
        found: char,
    },
    /// The value exceeds 2147483647 default units, or 64 bits for a size.
    Overflow,
    /// The value is not zero, but less than one default unit.
    Underflow,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("missing value"),
            Self::Unexpected { found, .. } => write!(f, "unexpected character '{found}'"),
            Self::Overflow => f.write_str("value too large"),
            Self::Underflow => f.write_str("value too small"),
        }
    }
}

impl std::error::Error for UnitError {}

/// The maximum time in default units: HAProxy stores times in 31 bits.
pub const TIME_MAX: u64 = i32::MAX as u64;

/// Parses a time such as `30s`, `1500`, `5m` or `200us` (section 2.5).
///
/// As in HAProxy, the result is truncated to whole default units: `1500us` is one millisecond if the default unit is the
/// millisecond.
pub fn parse_duration(text: &str, unit: DefaultUnit) -> Result<Duration, UnitError> {
    let (number, rest_at) = leading_number(text)?;
    let rest = &text[rest_at..];
    let multiplier = match rest {
        "" => unit.micros(),
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => {
            // The error position is after the longest known unit: at the x in `5mx`.
            let known = ["us", "ms", "s", "m", "h", "d"]
                .iter()
                .filter(|suffix| rest.starts_with(**suffix))
                .map(|suffix| suffix.len())
                .max()
                .unwrap_or(usize::from(rest == "u"));
            return Err(unexpected(text, rest_at + if known < rest.len() { known } else { 0 }));
        }
    };
    let micros = number.checked_mul(multiplier).ok_or(UnitError::Overflow)?;
    let units = micros / unit.micros();
    match units {
        0 if micros > 0 => Err(UnitError::Underflow),
        0..=TIME_MAX => Ok(Duration::from_micros(units * unit.micros())),
        _ => Err(UnitError::Overflow),
    }
}

/// Parses a size in bytes such as `16384`, `64k` or `1G` (section 2.6).
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, rest_at) = leading_number(text)?;
    let rest = &text[rest_at..];
    let shift = match rest.as_bytes() {
        [] => 0,
        [b'k' | b'K'] => 10,
        [b'm' | b'M'] => 20,
        [b'g' | b'G'] => 30,
        [b'k' | b'K' | b'm' | b'M' | b'g' | b'G', ..] => return Err(unexpected(text, rest_at + 1)),
        _ => return Err(unexpected(text, rest_at)),
    };
    number.checked_mul(1 << shift).ok_or(UnitError::Overflow)
}

fn leading_number(text: &str) -> Result<(u64, usize), UnitError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if text.is_empty() {
        return Err(UnitError::Empty);
    }
    if digits == 0 {
        return Err(unexpected(text, 0));
    }
    let number = text[..digits].parse().map_err(|_| UnitError::Overflow)?;
    Ok((number, digits))
}

fn unexpected(text: &str, at: usize) -> UnitError {
    UnitError::Unexpected { at, found: text[at..].chars().next().unwrap_or(' ') }
}

/// Formats a time in ns with four digits and the prefix of its unit: `(871.0, "n")`, `(1.176, "u")`, `(20.21, "m")`, or `""` for
/// seconds.
#[must_use]
pub fn four_digits(ns: u64) -> (String, &'static str) {
    let (value, prefix) = match ns {
        0..1_000 => (ns as f64, "n"),
        1_000..1_000_000 => (ns as f64 / 1e3, "u"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "m"),
        _ => (ns as f64 / 1e9, ""),
    };
    let digits = match value {
        ..10.0 => 3,
        ..100.0 => 2,
        ..1000.0 => 1,
        _ => 0,
    };
    (format!("{value:.digits$}"), prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use DefaultUnit::*;

    #[test]
    fn every_unit_of_section_2_5_is_parsed() {
        let cases: &[(&str, DefaultUnit, u64)] = &[
            ("0", Milliseconds, 0),
            ("1500", Milliseconds, 1_500_000),
            ("1500us", Milliseconds, 1_000),
            ("1500us", Microseconds, 1_500),
            ("3ms", Milliseconds, 3_000),
            ("30s", Milliseconds, 30_000_000),
            ("5m", Milliseconds, 300_000_000),
            ("2h", Milliseconds, 7_200_000_000),
            ("24d", Milliseconds, 24 * 86_400_000_000),
            ("10", Seconds, 10_000_000),
            ("2", Days, 2 * 86_400_000_000),
            ("0us", Days, 0),
        ];
        for (text, unit, micros) in cases {
            assert_eq!(parse_duration(text, *unit), Ok(Duration::from_micros(*micros)), "{text}");
        }
    }

    #[test]
    fn invalid_times_report_cause_and_position() {
        let cases: &[(&str, UnitError)] = &[
            ("", UnitError::Empty),
            ("x", UnitError::Unexpected { at: 0, found: 'x' }),
            ("-1", UnitError::Unexpected { at: 0, found: '-' }),
            ("1.5s", UnitError::Unexpected { at: 1, found: '.' }),
            ("5mx", UnitError::Unexpected { at: 2, found: 'x' }),
            ("5sm", UnitError::Unexpected { at: 2, found: 'm' }),
            ("5S", UnitError::Unexpected { at: 1, found: 'S' }),
            ("5é", UnitError::Unexpected { at: 1, found: 'é' }),
            ("25d", UnitError::Overflow),
            ("2147483648", UnitError::Overflow),
            ("99999999999999999999999", UnitError::Overflow),
            ("18446744073709551615d", UnitError::Overflow),
            ("999us", UnitError::Underflow),
        ];
        for (text, error) in cases {
            assert_eq!(parse_duration(text, Milliseconds), Err(*error), "{text}");
        }
        assert_eq!(parse_duration("999ms", Seconds), Err(UnitError::Underflow));
    }

    #[test]
    fn sizes_take_one_binary_suffix_in_either_case() {
        let cases: &[(&str, Result<u64, UnitError>)] = &[
            ("16384", Ok(16384)),
            ("64k", Ok(65536)),
            ("1M", Ok(1 << 20)),
            ("2g", Ok(2 << 30)),
            ("1kb", Err(UnitError::Unexpected { at: 2, found: 'b' })),
            ("1t", Err(UnitError::Unexpected { at: 1, found: 't' })),
            ("", Err(UnitError::Empty)),
            ("18446744073709551615k", Err(UnitError::Overflow)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_size(text), *expected, "{text}");
        }
    }
}
