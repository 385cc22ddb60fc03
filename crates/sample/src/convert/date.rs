//! Converters for dates.

use base::clock::{Date, local_offset};

use super::strftime::{Moment, Zone};
use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg, opt, text_of};
use crate::env::Env;
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value};

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
    Moment::new(seconds, (per_second > 1).then_some(micros as u32), zone).format(args.bytes(0)?, &mut out);
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
