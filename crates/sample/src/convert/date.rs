//! Converters for dates.

use base::clock::{Date, local_offset, write_local_zone};

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg, opt, text_of};
use crate::env::Env;
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value, write_int};

const FORMAT: &[Spec] = &[arg(ArgKind::Str), opt(ArgKind::Int)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name         arguments                          takes       gives       description
    row("ltime",     FORMAT,                            Type::Int,  Type::Str,  "formats seconds as a local date",             ltime),
    row("utime",     FORMAT,                            Type::Int,  Type::Str,  "formats seconds as a UTC date",               utime),
    row("ms_ltime",  FORMAT,                            Type::Int,  Type::Str,  "formats milliseconds as a local date",        ms_ltime),
    row("ms_utime",  FORMAT,                            Type::Int,  Type::Str,  "formats milliseconds as a UTC date",          ms_utime),
    row("us_ltime",  FORMAT,                            Type::Int,  Type::Str,  "formats microseconds as a local date",        us_ltime),
    row("us_utime",  FORMAT,                            Type::Int,  Type::Str,  "formats microseconds as a UTC date",          us_utime),
    row("http_date", &[opt(ArgKind::Int), opt(ArgKind::Str)], Type::Int,  Type::Str,  "formats a date for HTTP headers",             http_date).prepared(prepare_http_date),
    row("date",      &[],                               Type::Str,  Type::Int,  "parses an HTTP date as seconds since 1970",   date),
];

/// Formats `value`, which counts units of 1/`per_second` of a second.
fn formatted<'a>(value: &Value<'a>, args: &Args, per_second: i64, local: bool) -> Option<Value<'a>> {
    let number = value.to_int()?;
    let seconds = number.div_euclid(per_second).saturating_add(args.int(1).unwrap_or(0));
    let micros = number.rem_euclid(per_second) * (1_000_000 / per_second);
    let zone = if local { Zone::Local(local_offset(seconds)) } else { Zone::Utc };
    let mut out = Scratch::new();
    strftime(args.bytes(0)?, seconds, micros as u32, zone, &mut out);
    Some(Value::made(out))
}

fn ltime<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    formatted(&value, args, 1, true)
}

fn utime<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    formatted(&value, args, 1, false)
}

fn ms_ltime<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    formatted(&value, args, 1_000, true)
}

fn ms_utime<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    formatted(&value, args, 1_000, false)
}

fn us_ltime<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    formatted(&value, args, 1_000_000, true)
}

fn us_utime<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    formatted(&value, args, 1_000_000, false)
}

fn prepare_http_date(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match text_of(&args[1]) {
        b"" | b"s" | b"ms" | b"us" => Ok(()),
        _ => Err("the unit must be s, ms or us".into()),
    }
}

fn http_date<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let per_second = match args.bytes(1) {
        Some(b"ms") => 1_000,
        Some(b"us") => 1_000_000,
        _ => 1,
    };
    let number = value.to_int()?.saturating_add(args.int(0).unwrap_or(0));
    let (seconds, part) = (number.div_euclid(per_second), number.rem_euclid(per_second));
    let mut text = String::new();
    Date::utc(seconds).write_http(&mut text).ok()?;
    let mut out = Scratch::copy(text.as_bytes());
    // The fraction goes before the time zone, which is the last four bytes.
    let at = out.len().saturating_sub(4);
    match per_second {
        1_000 => drop(out.splice(at..at, format!(".{part:03}").into_bytes())),
        1_000_000 => drop(out.splice(at..at, format!(".{part:06}").into_bytes())),
        _ => {}
    }
    Some(Value::made(out))
}

fn date<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    http::date::parse(value.bytes()?).map(Value::Int)
}

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

/// Two digits, padded.
fn two(out: &mut Vec<u8>, number: i64, pad: u8) {
    if (0..10).contains(&number) {
        out.push(pad);
    }
    write_int(out, number);
}

/// The time zone of a date.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Zone {
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

    fn write_name(self, seconds: i64, out: &mut Vec<u8>) {
        let mut name = String::new();
        match self {
            Self::Utc => name.push_str("GMT"),
            // Writing to a string cannot fail.
            Self::Local(_) => drop(write_local_zone(seconds, &mut name)),
        }
        out.extend_from_slice(name.as_bytes());
    }
}

/// `strftime(3)` in the C locale, extended by `%N` for parts of the second, optionally with a number of digits (`%3N`).
pub(crate) fn strftime(format: &[u8], seconds: i64, micros: u32, zone: Zone, out: &mut Vec<u8>) {
    let date = Date::at_offset(seconds, zone.offset());
    let mut rest = format.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digits = None;
        let mut directive = rest.next().copied();
        if let Some(digit @ b'1'..=b'9') = directive {
            digits = Some(usize::from(digit - b'0'));
            directive = rest.next().copied();
        }
        match directive {
            Some(b'N') => {
                let text = format!("{micros:06}000");
                out.extend_from_slice(&text.as_bytes()[..digits.unwrap_or(9).min(9)]);
            }
            Some(other) => directive_of(other, &date, seconds, zone, out),
            None => out.push(b'%'),
        }
    }
}

/// One directive.
fn directive_of(directive: u8, date: &Date, seconds: i64, zone: Zone, out: &mut Vec<u8>) {
    let part = |format: &[u8], out: &mut Vec<u8>| strftime(format, seconds, 0, zone, out);
    let (year, month, day) = (i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let (hour, minute, second) = (i64::from(date.hour), i64::from(date.minute), i64::from(date.second));
    let weekday = i64::from(date.weekday);
    let year_day = day_of_year(year, month, day);
    let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let day_name = DAYS[usize::from(date.weekday) % 7];
    let month_name = MONTHS[(usize::from(date.month) + 11) % 12];
    match directive {
        b'Y' => write_int(out, year),
        b'C' => two(out, year / 100, b'0'),
        b'y' => two(out, year % 100, b'0'),
        b'm' => two(out, month, b'0'),
        b'd' => two(out, day, b'0'),
        b'e' => two(out, day, b' '),
        b'H' => two(out, hour, b'0'),
        b'k' => two(out, hour, b' '),
        b'I' => two(out, hour12, b'0'),
        b'l' => two(out, hour12, b' '),
        b'M' => two(out, minute, b'0'),
        b'S' => two(out, second, b'0'),
        b'p' => out.extend_from_slice(if hour < 12 { b"AM" } else { b"PM" }),
        b'P' => out.extend_from_slice(if hour < 12 { b"am" } else { b"pm" }),
        b'a' => out.extend_from_slice(&day_name.as_bytes()[..3]),
        b'A' => out.extend_from_slice(day_name.as_bytes()),
        b'b' | b'h' => out.extend_from_slice(&month_name.as_bytes()[..3]),
        b'B' => out.extend_from_slice(month_name.as_bytes()),
        b'j' => out.extend_from_slice(format!("{year_day:03}").as_bytes()),
        b'u' => write_int(out, if weekday == 0 { 7 } else { weekday }),
        b'w' => write_int(out, weekday),
        b'U' => two(out, (year_day + 6 - weekday) / 7, b'0'),
        b'W' => two(out, (year_day + 6 - (weekday + 6) % 7) / 7, b'0'),
        b'V' => two(out, iso_week(year, year_day, weekday).1, b'0'),
        b'G' => write_int(out, iso_week(year, year_day, weekday).0),
        b'g' => two(out, iso_week(year, year_day, weekday).0 % 100, b'0'),
        b's' => write_int(out, seconds),
        b'n' => out.push(b'\n'),
        b't' => out.push(b'\t'),
        b'%' => out.push(b'%'),
        b'D' | b'x' => part(b"%m/%d/%y", out),
        b'F' => part(b"%Y-%m-%d", out),
        b'T' | b'X' => part(b"%H:%M:%S", out),
        b'R' => part(b"%H:%M", out),
        b'r' => part(b"%I:%M:%S %p", out),
        b'c' => part(b"%a %b %e %H:%M:%S %Y", out),
        b'Z' => zone.write_name(seconds, out),
        b'z' => {
            let offset = zone.offset();
            out.push(if offset < 0 { b'-' } else { b'+' });
            two(out, i64::from(offset.abs() / 3600), b'0');
            two(out, i64::from(offset.abs() / 60 % 60), b'0');
        }
        other => out.extend_from_slice(&[b'%', other]),
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
