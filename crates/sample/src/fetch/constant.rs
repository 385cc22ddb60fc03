//! Fetches for constants, variables, the clock, random numbers and the environment.

use base::clock::WallTime;

use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, arg, default_value, opt};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value};

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    // name arguments gives where description
    row("always_false", &[],                                       Type::Bool,   Columns::ALWAYS,  "false",                                           always_false),
    row("always_true",  &[],                                       Type::Bool,   Columns::ALWAYS,  "true",                                            always_true),
    row("bool",         &[arg(ArgKind::Str)],                         Type::Bool,   Columns::ALWAYS,  "constant boolean",                                constant).prepared(prepare_bool),
    row("int",          &[arg(ArgKind::Int)],                         Type::Int,    Columns::ALWAYS,  "constant integer",                                constant),
    row("str",          &[arg(ArgKind::Str)],                         Type::Str,    Columns::ALWAYS,  "constant string",                                 constant),
    row("bin",          &[arg(ArgKind::Str)],                         Type::Bin,    Columns::ALWAYS,  "constant bytes, in hexadecimal",                  constant_bin).prepared(prepare_bin),
    row("ipv4",         &[arg(ArgKind::Ip4)],                         Type::Ip4,    Columns::ALWAYS,  "constant IPv4 address",                           constant),
    row("ipv6",         &[arg(ArgKind::Ip6)],                         Type::Ip6,    Columns::ALWAYS,  "constant IPv6 address",                           constant),
    row("meth",         &[arg(ArgKind::Str)],                         Type::Method, Columns::ALWAYS,  "constant HTTP method",                            constant_meth),
    row("var",          &[arg(ArgKind::Variable), default_value(ArgKind::Str)],    Type::Any,    Columns::ALWAYS,  "variable, or the default value",                  var),
    row("acl",          &[arg(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str)],
                                                                   Type::Bool,   Columns::ALWAYS,  "whether all named ACLs match",                    acl).prepared(prepare_acl),
    row("env",          &[arg(ArgKind::Str)],                         Type::Str,    Columns::ALWAYS,  "environment variable, as set after the configuration was read", env_value).prepared(prepare_env),
    row("date",         &[opt(ArgKind::Int), opt(ArgKind::Str)],         Type::Int,    Columns::ALWAYS,  "current date as seconds since 1970, with an offset", date).prepared(prepare_date),
    row("date_us",      &[],                                       Type::Int,    Columns::ALWAYS,  "microseconds within the current second",          date_us),
    row("rand",         &[opt(ArgKind::Int)],                         Type::Int,    Columns::ALWAYS,  "random number below the argument",                rand),
    row("uuid",         &[opt(ArgKind::Int)],                         Type::Str,    Columns::ALWAYS,  "random UUID, version 4 or 7",                     uuid).prepared(prepare_uuid),
];

fn always_false<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(false))
}

fn always_true<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(true))
}

fn constant<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    match args.get(0) {
        Arg::Int(value) => Some(Value::Int(*value)),
        Arg::Bytes(bytes) => Some(Value::str(bytes)),
        Arg::Ip4(address) => Some(Value::Ip4(*address)),
        Arg::Ip6(address) => Some(Value::Ip6(*address)),
        // A boolean; the row distinguishes it from a number.
        Arg::Missing => args.int(1).map(|value| Value::Bool(value != 0)),
        _ => None,
    }
}

fn prepare_bool(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let value = match crate::args::text_of(&args[0]) {
        b"true" | b"1" => 1,
        b"false" | b"0" => 0,
        _ => return Err("a boolean must be `true` or `false`".into()),
    };
    *args = vec![Arg::Missing, Arg::Int(value)];
    Ok(())
}

fn constant_bin<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    args.bytes(0).map(Value::bin)
}

fn prepare_bin(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let text = crate::args::text_of(&args[0]);
    if text.is_empty() {
        return Err("the byte string is empty".into());
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs: Option<Vec<u8>> =
        text.chunks(2).map(|pair| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8)).collect();
    let bytes = pairs.ok_or("an even number of hexadecimal digits is required")?;
    args[0] = Arg::Bytes(bytes.into());
    Ok(())
}

fn constant_meth<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    args.bytes(0).map(|bytes| Value::Method(bytes.into()))
}

fn var<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let Arg::Var(var) = args.get(0) else { return None };
    // A single slot for both sources, because moving a value costs more than reading the variable.
    let mut value = var.get(env);
    if value.is_none() {
        value = args.bytes(1).map(Value::str);
    }
    value
}

fn acl<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let Arg::Predicate(predicate) = args.get(0) else { return None };
    Some(Value::Bool(predicate.holds(env)))
}

fn prepare_acl(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    let names = args.iter().filter_map(|arg| match arg {
        Arg::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    });
    let predicate = scope.names.predicate(names.collect(), scope)?;
    *args = vec![Arg::Predicate(predicate)];
    Ok(())
}

fn env_value<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    args.bytes(1).map(Value::str)
}

fn prepare_env(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    let value = scope.names.variable(crate::args::text_of(&args[0]));
    args.push(value.map_or(Arg::Missing, |value| Arg::Bytes(value.into())));
    Ok(())
}

fn date<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let now = WallTime::now();
    let offset = args.int(0).unwrap_or(0);
    Some(Value::Int(match args.bytes(1) {
        Some(b"ms") => now.seconds * 1_000 + i64::from(now.millis()) + offset,
        Some(b"us") => now.seconds * 1_000_000 + i64::from(now.micros()) + offset,
        _ => now.seconds + offset,
    }))
}

fn prepare_date(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    time_unit(&args[1])
}

/// Checks that an optional argument names a unit of time.
pub(super) fn time_unit(arg: &Arg) -> Result<(), String> {
    match crate::args::text_of(arg) {
        b"" | b"s" | b"ms" | b"us" => Ok(()),
        _ => Err("the unit must be `s`, `ms` or `us`".into()),
    }
}

fn date_us<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(i64::from(WallTime::now().micros())))
}

fn rand<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(match args.int(0) {
        Some(limit) if limit > 0 => fastrand::i64(0..limit),
        _ => i64::from(fastrand::u32(..)),
    }))
}

fn uuid<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let mut bits = fastrand::u128(..);
    let version: u128 = if args.int(0) == Some(7) { 7 } else { 4 };
    if version == 7 {
        let now = WallTime::now();
        let ms = (now.seconds * 1_000 + i64::from(now.millis())) as u128;
        bits = bits & ((1 << 80) - 1) | ms << 80;
    }
    bits = bits & !(0xf << 76) | version << 76;
    bits = bits & !(0b11 << 62) | 0b10 << 62;
    let mut out = Scratch::new();
    for (at, nibble) in (0..32).rev().enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            out.push(b'-');
        }
        out.push(b"0123456789abcdef"[(bits >> (nibble * 4)) as usize & 15]);
    }
    Some(Value::made(out))
}

fn prepare_uuid(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match args[0] {
        Arg::Missing | Arg::Int(4 | 7) => Ok(()),
        _ => Err("the version must be 4 or 7".into()),
    }
}
