//! Dates in the formats of `strftime(3)`, in the C locale.

use base::clock::{Date, write_local_zone};

/// The length of the longest result. A format with a longer result gives an empty one, as for `strftime(3)` with a buffer of
/// HAProxy's default size.
const LONGEST: usize = 16_383;

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The time zone of a date.
#[derive(Debug, Clone, Copy)]
pub(super) enum Zone {
    Utc,
    /// Local time, with its offset east of UTC in seconds.
    Local(i32),
}

impl Zone {
    fn offset(self) -> i32 {
        match self {
            Self::Utc => 0,
            Self::Local(offset) => offset,
        }
    }

    fn name(self, seconds: i64) -> String {
        let mut name = String::new();
        match self {
            Self::Utc => name.push_str("GMT"),
            // Writing to a string cannot fail.
            Self::Local(_) => drop(write_local_zone(seconds, &mut name)),
        }
        name
    }
}

/// A date to format.
pub(super) struct Moment {
    seconds: i64,
    /// The part of the second for `%N`. Without it, `%N` is not a directive.
    micros: Option<u32>,
    zone: Zone,
    date: Date,
}

/// A directive: `%`, flags, a width, a modifier and a letter.
#[derive(Debug, Default)]
struct Directive<'a> {
    text: &'a [u8],
    /// `_`, `-` or `0`; the last one applies.
    pad: Option<u8>,
    /// `^`
    upper: bool,
    /// `#`
    swap: bool,
    width: usize,
    /// `E` or `O`, which have no effect in the C locale.
    modifier: Option<u8>,
    letter: Option<u8>,
}

/// The value of a directive before padding.
enum DateField {
    Number {
        value: i64,
        digits: usize,
        pad: u8,
    },
    Text(String),
    /// Other directives.
    Parts(&'static [u8]),
    /// Hours and minutes east of UTC.
    Offset {
        is_west: bool,
        value: i64,
    },
    /// Digits after the decimal point.
    Fraction(String),
    Unknown,
}

/// The result is longer than [`LONGEST`].
struct DateTooLong;

impl<'a> Directive<'a> {
    /// Parses the directive at the start of `text`.
    fn parse(text: &'a [u8]) -> Self {
        let mut found = Self::default();
        let mut at = 1;
        while let Some(flag) = text.get(at).filter(|byte| b"_-0^#".contains(byte)) {
            match flag {
                b'^' => found.upper = true,
                b'#' => found.swap = true,
                pad => found.pad = Some(*pad),
            }
            at += 1;
        }
        while let Some(digit) = text.get(at).filter(|byte| byte.is_ascii_digit()) {
            found.width = found.width.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
            at += 1;
        }
        found.modifier = text.get(at).copied().filter(|byte| b"EO".contains(byte));
        at += usize::from(found.modifier.is_some());
        found.letter = text.get(at).copied();
        at += usize::from(found.letter.is_some());
        found.text = &text[..at];
        found
    }

    /// Whether the modifier may be combined with the letter.
    fn is_valid(&self) -> bool {
        let without: &[u8] = match self.modifier {
            Some(b'E') => b"aAbBdDeFgGhHIjklmMSUVwW",
            Some(_) => b"aAcDFxXY",
            None => b"",
        };
        self.letter.is_some_and(|letter| !without.contains(&letter))
    }

    /// The number of digits of `%N`, or `None` if it has flags or a modifier.
    fn fraction_digits(&self) -> Option<usize> {
        match &self.text[1..self.text.len() - 1] {
            [] => Some(9),
            digits => digits.iter().all(u8::is_ascii_digit).then_some(self.width.min(9)),
        }
    }

    /// Fills with zeros only if a flag requires it.
    fn filler(&self) -> u8 {
        if self.pad == Some(b'0') { b'0' } else { b' ' }
    }

    fn change_case(&self, text: &mut [u8]) {
        match self.letter {
            Some(b'p' | b'Z') if self.swap => text.make_ascii_lowercase(),
            Some(b'a' | b'A' | b'b' | b'B' | b'h') if self.swap => text.make_ascii_uppercase(),
            Some(b'P') => {}
            _ if self.upper => text.make_ascii_uppercase(),
            _ => {}
        }
    }

    fn write_number(
        &self,
        value: i64,
        digits: usize,
        default_pad: u8,
        out: &mut Vec<u8>,
    ) -> Result<(), DateTooLong> {
        let pad = self.pad.unwrap_or(default_pad);
        let sign: &[u8] = if value < 0 { b"-" } else { b"" };
        let number = value.unsigned_abs().to_string();
        let width = if pad == b'-' { self.width } else { self.width.max(digits) };
        let missing = width.saturating_sub(sign.len() + number.len());
        if pad == b'0' {
            out.extend_from_slice(sign);
            fill(missing, b'0', out)?;
        } else {
            fill(missing, b' ', out)?;
            out.extend_from_slice(sign);
        }
        out.extend_from_slice(number.as_bytes());
        Ok(())
    }
}

fn fill(count: usize, byte: u8, out: &mut Vec<u8>) -> Result<(), DateTooLong> {
    if count > LONGEST.saturating_sub(out.len()) {
        return Err(DateTooLong);
    }
    out.resize(out.len() + count, byte);
    Ok(())
}

impl Moment {
    /// Creates a date from seconds since 1970 and, for units smaller than a second, the remaining microseconds.
    pub(super) fn new(seconds: i64, micros: Option<u32>, zone: Zone) -> Self {
        Self { seconds, micros, zone, date: Date::at_offset(seconds, zone.offset()) }
    }

    /// Appends the date in the given format. Extends `strftime(3)` by `%N` for parts of the second, optionally with a number of
    /// digits (`%3N`).
    pub(super) fn format(&self, format: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        if self.write(format, out).is_err() {
            out.truncate(start);
        }
    }

    fn write(&self, format: &[u8], out: &mut Vec<u8>) -> Result<(), DateTooLong> {
        let mut rest = format;
        while let Some(&byte) = rest.first() {
            if byte == b'%' {
                let directive = Directive::parse(rest);
                self.write_directive(&directive, out)?;
                rest = &rest[directive.text.len()..];
            } else {
                out.push(byte);
                rest = &rest[1..];
            }
            if out.len() > LONGEST {
                return Err(DateTooLong);
            }
        }
        Ok(())
    }

    fn write_directive(&self, directive: &Directive<'_>, out: &mut Vec<u8>) -> Result<(), DateTooLong> {
        let mut text = Vec::new();
        match self.field(directive) {
            DateField::Number { value, digits, pad } => {
                return directive.write_number(value, digits, pad, out);
            }
            // The width applies to the sign and to the number separately.
            DateField::Offset { is_west, value } => {
                fill(directive.width.saturating_sub(1), directive.filler(), out)?;
                out.push(if is_west { b'-' } else { b'+' });
                return directive.write_number(value, 4, b'0', out);
            }
            // The number of digits is not a width.
            DateField::Fraction(digits) => {
                out.extend_from_slice(digits.as_bytes());
                return Ok(());
            }
            DateField::Unknown => text.extend_from_slice(directive.text),
            DateField::Text(value) => {
                text.extend_from_slice(value.as_bytes());
                directive.change_case(&mut text);
            }
            DateField::Parts(parts) => {
                self.write(parts, &mut text)?;
                directive.change_case(&mut text);
            }
        }
        fill(directive.width.saturating_sub(text.len()), directive.filler(), out)?;
        out.append(&mut text);
        Ok(())
    }

    fn field(&self, directive: &Directive<'_>) -> DateField {
        let Some(letter) = directive.letter.filter(|_| directive.is_valid()) else {
            return DateField::Unknown;
        };
        let date = &self.date;
        let padded = |value, digits, pad| DateField::Number { value, digits, pad };
        let number = |value, digits| padded(value, digits, b'0');
        let text = |text: &str| DateField::Text(text.to_owned());
        let (year, month, day) = (i64::from(date.year), i64::from(date.month), i64::from(date.day));
        let hour = i64::from(date.hour);
        let weekday = i64::from(date.weekday);
        let year_day = day_of_year(year, month, day);
        let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
        let day_name = DAYS[usize::from(date.weekday) % 7];
        let month_name = MONTHS[(usize::from(date.month) + 11) % 12];
        match letter {
            b'Y' => number(year, 1),
            b'C' => number(year.div_euclid(100), 2),
            b'y' => number(year.rem_euclid(100), 2),
            b'm' => number(month, 2),
            b'd' => number(day, 2),
            b'e' => padded(day, 2, b'_'),
            b'H' => number(hour, 2),
            b'k' => padded(hour, 2, b'_'),
            b'I' => number(hour12, 2),
            b'l' => padded(hour12, 2, b'_'),
            b'M' => number(i64::from(date.minute), 2),
            b'S' => number(i64::from(date.second), 2),
            b'p' => text(if hour < 12 { "AM" } else { "PM" }),
            b'P' => text(if hour < 12 { "am" } else { "pm" }),
            b'a' => text(&day_name[..3]),
            b'A' => text(day_name),
            b'b' | b'h' => text(&month_name[..3]),
            b'B' => text(month_name),
            b'j' => number(year_day, 3),
            b'u' => number(if weekday == 0 { 7 } else { weekday }, 1),
            b'w' => number(weekday, 1),
            b'U' => number((year_day + 6 - weekday) / 7, 2),
            b'W' => number((year_day + 6 - (weekday + 6) % 7) / 7, 2),
            b'V' => number(iso_week(year, year_day, weekday).1, 2),
            b'G' => number(iso_week(year, year_day, weekday).0, 1),
            b'g' => number(iso_week(year, year_day, weekday).0.rem_euclid(100), 2),
            b's' => padded(self.seconds, 1, b'_'),
            b'n' => text("\n"),
            b't' => text("\t"),
            b'%' => text("%"),
            b'D' | b'x' => DateField::Parts(b"%m/%d/%y"),
            b'F' => DateField::Parts(b"%Y-%m-%d"),
            b'T' | b'X' => DateField::Parts(b"%H:%M:%S"),
            b'R' => DateField::Parts(b"%H:%M"),
            b'r' => DateField::Parts(b"%I:%M:%S %p"),
            b'c' => DateField::Parts(b"%a %b %e %H:%M:%S %Y"),
            b'Z' => DateField::Text(self.zone.name(self.seconds)),
            b'z' => self.offset(),
            b'N' => self.fraction(directive),
            _ => DateField::Unknown,
        }
    }

    fn offset(&self) -> DateField {
        let offset = self.zone.offset();
        let minutes = i64::from(offset.unsigned_abs() / 60);
        DateField::Offset { is_west: offset < 0, value: minutes / 60 * 100 + minutes % 60 }
    }

    fn fraction(&self, directive: &Directive<'_>) -> DateField {
        match (self.micros, directive.fraction_digits()) {
            (Some(micros), Some(digits)) => {
                let mut text = format!("{micros:06}000");
                text.truncate(digits);
                DateField::Fraction(text)
            }
            _ => DateField::Unknown,
        }
    }
}

/// The ISO 8601 year and week; weeks begin on Monday and belong to the year of their Thursday.
fn iso_week(year: i64, year_day: i64, weekday: i64) -> (i64, i64) {
    let days_of = |year: i64| day_of_year(year, 12, 31);
    let thursday = year_day + 3 - (weekday + 6) % 7;
    match thursday {
        ..1 => (year - 1, (thursday + days_of(year - 1) - 1) / 7 + 1),
        _ if thursday > days_of(year) => (year + 1, 1),
        _ => (year, (thursday - 1) / 7 + 1),
    }
}

/// The day of the year, from 1.
fn day_of_year(year: i64, month: i64, day: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    BEFORE[(month as usize + 11) % 12] + day + i64::from(leap && month > 2)
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Moment, Zone};

    fn text(seconds: i64, micros: Option<u32>, zone: Zone, format: &str) -> String {
        let mut out = Vec::new();
        Moment::new(seconds, micros, zone).format(format.as_bytes(), &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn flags_widths_and_modifiers_apply_as_in_the_c_library() {
        #[rustfmt::skip]
        let cases = [
            ("%-d|%_d|%0e|%-e|%e|%3e", "3| 3|03|3| 3|  3"),
            ("%5d|%_5d|%-5d|%-05d|%05d", "00003|    3|    3|00003|00003"),
            ("%j|%-j|%_j|%6j|%-6j", "034|34| 34|000034|    34"),
            ("%10Y|%_6Y|%-6Y|%3w|%_3w", "0000002001|  2001|  2001|006|  6"),
            ("%-5s|%15s|%015s", "981173106|      981173106|000000981173106"),
            ("%^a|%#a|%5a|%05a|%-5a|%^10b", "SAT|SAT|  Sat|00Sat|  Sat|       FEB"),
            ("%#p|%^P|%#Z|%#B|%10Z", "am|am|gmt|FEBRUARY|       GMT"),
            ("%-F|%12F|%012F|%^c|%#c", "2001-02-03|  2001-02-03|002001-02-03|SAT FEB  3 04:05:06 2001|Sat Feb  3 04:05:06 2001"),
            ("%5%|%-%|%3n|", "    %|%|  \n|"),
            ("%z|%-z|%_z|%5z", "+0000|+0|+   0|    +00000"),
            ("%Ey|%EY|%Od|%Oe|%5OH|%Ec|%EZ", "01|2001|03| 3|00004|Sat Feb  3 04:05:06 2001|GMT"),
            ("%EH|%OY|%EEy|%+d|%E3d|%5Q|%-Q", "%EH|%OY|%EEy|%+d|%E3d|  %5Q|%-Q"),
            ("%N|%3N", "%N|%3N"),
            ("%5", "   %5"),
            ("%-", "%-"),
        ];
        for (format, expected) in cases {
            assert_eq!(text(981_173_106, None, Zone::Utc, format), expected, "{format}");
        }
    }

    #[test]
    fn fractions_have_up_to_nine_digits() {
        for (format, expected) in [
            ("%N", "012345000"),
            ("%12N", "012345000"),
            ("%3N", "012"),
            ("%03N", "012"),
            ("%0N", ""),
            ("%-3N", "%-3N"),
        ] {
            assert_eq!(text(0, Some(12_345), Zone::Utc, format), expected, "{format}");
        }
    }

    #[test]
    fn offsets_have_hours_and_minutes() {
        assert_eq!(text(0, None, Zone::Local(-(3 * 3600 + 30 * 60)), "%z %H:%M"), "-0330 20:30");
        assert_eq!(text(0, None, Zone::Local(3600), "%-z"), "+100");
    }

    #[test]
    fn results_are_bounded() {
        let length = |format: &str| text(0, None, Zone::Utc, format).len();
        assert_eq!(length(&format!("%{LONGEST}d")), LONGEST);
        assert_eq!(length(&format!("%{}d", LONGEST + 1)), 0);
        assert_eq!(length("%9000d%9000a"), 0);
        assert_eq!(length("%99999999999999999999d"), 0);
    }
}
