//! Time: a monotonic millisecond clock for deadlines, the wall clock for logs, and the date formats used in logs (manual, section
//! 8.2.6: `%t`, `%T`, `%Tl`, `%tr`, `%trg`, `%trl`; RFC 3164 and RFC 5424 headers).
//!
//! This module has no timers. The local time zone is read once, from `TZ` or `/etc/localtime`.

use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

static START: OnceLock<Start> = OnceLock::new();
static ZONE: OnceLock<jiff::tz::TimeZone> = OnceLock::new();

/// The time at which the clock was first used.
struct Start {
    instant: Instant,
    /// `instant` in nanoseconds of the kernel's monotonic clock.
    ns: u64,
}

#[inline]
fn origin() -> &'static Start {
    // In this order, so that anything due by `instant` is also due by the nanosecond clock.
    START.get_or_init(|| {
        let ns = monotonic();
        Start { instant: Instant::now(), ns }
    })
}

/// Nanoseconds of the kernel's monotonic clock. Reading it directly is cheaper than subtracting two `Instant`s.
#[inline]
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The instant at which the clock was first used. Call this early at startup.
#[inline]
pub fn start() -> Instant {
    origin().instant
}

/// Milliseconds since [`start`]; never decreases.
#[inline]
pub fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// Microseconds since [`start`]; never decreases.
#[inline]
pub fn now_us() -> u64 {
    now_ns() / 1_000
}

/// Nanoseconds since [`start`]; never decreases.
#[inline]
pub fn now_ns() -> u64 {
    let from = origin().ns;
    monotonic().saturating_sub(from)
}

/// A moment of the wall clock, as seconds and nanoseconds since 1970 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Nanoseconds within the second, below 1,000,000,000.
    pub nanos: u32,
}

impl WallTime {
    /// The current time.
    pub fn now() -> Self {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Self { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() },
            Err(_) => Self::default(),
        }
    }

    /// The moment that is `earlier` before this one. Converts timestamps of the monotonic clock to dates.
    pub fn minus(self, earlier: Duration) -> Self {
        let nanos = i64::from(self.nanos) - i64::from(earlier.subsec_nanos());
        Self {
            seconds: self.seconds - earlier.as_secs() as i64 - i64::from(nanos < 0),
            nanos: nanos.rem_euclid(1_000_000_000) as u32,
        }
    }

    /// Microseconds since 1970.
    pub fn since_1970_us(self) -> u64 {
        self.seconds as u64 * 1_000_000 + u64::from(self.micros())
    }

    /// Milliseconds within the second.
    pub fn millis(self) -> u32 {
        self.nanos / 1_000_000
    }

    /// Microseconds within the second.
    pub fn micros(self) -> u32 {
        self.nanos / 1_000
    }
}

/// A date and time of day, at an offset from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    /// Year, such as 2009.
    pub year: i32,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59.
    pub second: u8,
    /// Day of the week, 0 for Sunday.
    pub weekday: u8,
    /// The offset in seconds east of UTC.
    pub offset: i32,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

impl Date {
    /// The date of `seconds` since 1970, in UTC.
    pub fn utc(seconds: i64) -> Self {
        Self::at_offset(seconds, 0)
    }

    /// The date of `seconds` since 1970, in the local time zone.
    pub fn local(seconds: i64) -> Self {
        Self::at_offset(seconds, local_offset(seconds))
    }

    /// The date of `seconds` since 1970, `offset` seconds east of UTC.
    pub fn at_offset(seconds: i64, offset: i32) -> Self {
        let local = seconds.saturating_add(i64::from(offset));
        let (days, time) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        // Howard Hinnant's algorithm `civil_from_days`, with eras of 400 years that begin in March.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Self {
            year: (year_of_era + era * 400 + i64::from(month <= 2)) as i32,
            month: month as u8,
            day: (day_of_year - (153 * from_march + 2) / 5 + 1) as u8,
            hour: (time / 3_600) as u8,
            minute: (time / 60 % 60) as u8,
            second: (time % 60) as u8,
            weekday: (days + 4).rem_euclid(7) as u8,
            offset,
        }
    }

    /// The English three-letter name of the month.
    pub fn month_name(&self) -> &'static str {
        MONTHS[usize::from(self.month - 1)]
    }

    /// Formats as `06/Feb/2009:12:14:14.655`: `%t` and `%tr`.
    pub fn write_log(&self, millis: u32, out: &mut impl Write) -> fmt::Result {
        self.write_clf_core(out)?;
        write!(out, ".{millis:03}")
    }

    /// Formats as `06/Feb/2009:12:14:14 +0000`: `%T`, `%Tl`, `%trg`, `%trl`.
    pub fn write_clf(&self, out: &mut impl Write) -> fmt::Result {
        self.write_clf_core(out)?;
        let (sign, hours, minutes) = self.offset_parts();
        write!(out, " {sign}{hours:02}{minutes:02}")
    }

    fn write_clf_core(&self, out: &mut impl Write) -> fmt::Result {
        let Self { year, day, hour, minute, second, .. } = self;
        write!(out, "{day:02}/{}/{year:04}:{hour:02}:{minute:02}:{second:02}", self.month_name())
    }

    /// Formats as `Feb  6 12:14:14`: the header of RFC 3164.
    pub fn write_rfc3164(&self, out: &mut impl Write) -> fmt::Result {
        let Self { day, hour, minute, second, .. } = self;
        write!(out, "{} {day:2} {hour:02}:{minute:02}:{second:02}", self.month_name())
    }

    /// Formats as `2009-02-06T12:14:14+00:00`, or with `.655000` if microseconds are given: RFC 5424 and `timed` formats.
    pub fn write_iso(&self, micros: Option<u32>, out: &mut impl Write) -> fmt::Result {
        let Self { year, month, day, hour, minute, second, .. } = self;
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if let Some(micros) = micros {
            write!(out, ".{micros:06}")?;
        }
        let (sign, hours, minutes) = self.offset_parts();
        write!(out, "{sign}{hours:02}:{minutes:02}")
    }

    /// Formats as `Fri, 06 Feb 2009 12:14:14 GMT`: an HTTP date (RFC 9110 section 5.6.7). The date must be in UTC.
    pub fn write_http(&self, out: &mut impl Write) -> fmt::Result {
        let Self { year, day, hour, minute, second, .. } = self;
        let (weekday, month) = (DAYS[usize::from(self.weekday)], self.month_name());
        write!(out, "{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
    }

    fn offset_parts(&self) -> (char, i32, i32) {
        let minutes = self.offset.abs() / 60;
        (if self.offset < 0 { '-' } else { '+' }, minutes / 60, minutes % 60)
    }
}

/// Parses an HTTP date (RFC 9110, 5.6.7) in its current form to seconds since 1970.
pub fn parse_http_date(text: &str) -> Option<i64> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok().map(jiff::Timestamp::as_second)
}

/// Parses a date such as `2009-02-06T12:14:14Z` or `2009-02-06T12:14:14.5+01:00` (RFC 3339) to whole seconds since 1970.
pub fn parse_iso_date(text: &str) -> Option<i64> {
    text.parse().ok().map(jiff::Timestamp::as_second)
}

/// The local time zone.
fn zone() -> &'static jiff::tz::TimeZone {
    ZONE.get_or_init(jiff::tz::TimeZone::system)
}

/// The offset of the local time zone at a moment, in seconds east of UTC.
pub fn local_offset(seconds: i64) -> i32 {
    jiff::Timestamp::from_second(seconds).map_or(0, |moment| zone().to_offset(moment).seconds())
}

/// Appends the name of the local time zone at a moment: `UTC`, `CEST`.
pub fn write_local_zone(seconds: i64, out: &mut impl Write) -> fmt::Result {
    let Ok(moment) = jiff::Timestamp::from_second(seconds) else { return out.write_str("UTC") };
    out.write_str(zone().to_offset_info(moment).abbreviation())
}

/// Caches the last date, so that a worker logging thousands of lines per second computes it once per second.
#[derive(Debug, Clone, Default)]
pub struct DateCache {
    local: Option<(i64, Date)>,
    utc: Option<(i64, Date)>,
}

impl DateCache {
    /// [`Date::local`], cached.
    pub fn local(&mut self, seconds: i64) -> Date {
        match self.local {
            Some((cached, date)) if cached == seconds => date,
            _ => self.local.insert((seconds, Date::local(seconds))).1,
        }
    }

    /// [`Date::utc`], cached.
    pub fn utc(&mut self, seconds: i64) -> Date {
        match self.utc {
            Some((cached, date)) if cached == seconds => date,
            _ => self.utc.insert((seconds, Date::utc(seconds))).1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
        let mut out = String::new();
        write(&mut out).unwrap();
        out
    }

    #[test]
    fn http_dates_round_trip() {
        let mut text = String::new();
        Date::utc(1_233_922_454).write_http(&mut text).expect("a string takes it");
        assert_eq!(parse_http_date(&text), Some(1_233_922_454));
        assert_eq!(parse_http_date("soon"), None);
    }

    #[test]
    fn log_dates_have_the_expected_formats() {
        let date = Date::utc(1_233_922_454);
        assert_eq!(text(|out| date.write_log(655, out)), "06/Feb/2009:12:14:14.655");
        assert_eq!(text(|out| date.write_clf(out)), "06/Feb/2009:12:14:14 +0000");
        assert_eq!(text(|out| date.write_rfc3164(out)), "Feb  6 12:14:14");
        assert_eq!(text(|out| date.write_iso(Some(655_000), out)), "2009-02-06T12:14:14.655000+00:00");
        assert_eq!(text(|out| date.write_iso(None, out)), "2009-02-06T12:14:14+00:00");
        assert_eq!(text(|out| date.write_http(out)), "Fri, 06 Feb 2009 12:14:14 GMT");
        let west = Date::at_offset(1_233_922_454, -(3 * 3600 + 1800));
        assert_eq!(text(|out| west.write_clf(out)), "06/Feb/2009:08:44:14 -0330");
        assert_eq!(text(|out| west.write_iso(None, out)), "2009-02-06T08:44:14-03:30");
    }

    #[test]
    fn dates_agree_with_the_calendar_over_four_centuries() {
        for day in (-150_000i64..150_000).step_by(37) {
            let seconds = day * 86_400 + 3_661;
            let expected = jiff::Timestamp::from_second(seconds).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
            let date = Date::utc(seconds);
            assert_eq!(
                (date.year, date.month as i8, date.day as i8),
                (i32::from(expected.year()), expected.month(), expected.day())
            );
            assert_eq!(date.weekday as i8, expected.weekday().to_sunday_zero_offset());
            assert_eq!((date.hour, date.minute, date.second), (1, 1, 1));
        }
    }

    #[test]
    fn subtraction_across_a_second_borrows() {
        let now = WallTime { seconds: 10, nanos: 100 };
        assert_eq!(now.minus(Duration::new(2, 200)), WallTime { seconds: 7, nanos: 999_999_900 });
        assert_eq!(now.minus(Duration::new(2, 50)), WallTime { seconds: 8, nanos: 50 });
    }

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let first = now_ns();
        assert!(now_ns() >= first && now_us() >= first / 1_000 && now_ms() >= first / 1_000_000);
    }
}
