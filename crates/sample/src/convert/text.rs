//! Converters for text: case, parts, words, substitution, comparison.

use http::uri;

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg, opt, text_of};
use crate::auth::same;
use crate::env::Env;
use crate::regex::Regex;
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value};

const FIELD: &[Spec] = &[arg(ArgKind::Int), arg(ArgKind::Str), opt(ArgKind::Int)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    // name arguments takes gives description
    row("lower",        &[],                                                                   Type::Str,  Type::Str,  "converts to lower case",                           lower),
    row("upper",        &[],                                                                   Type::Str,  Type::Str,  "converts to upper case",                           upper),
    row("length",       &[],                                                                   Type::Str,  Type::Int,  "returns the length in bytes",                      length),
    row("reverse",      &[],                                                                   Type::Str,  Type::Str,  "reverses the bytes",                               reverse),
    row("reverse_dom",  &[],                                                                   Type::Str,  Type::Str,  "reverses the labels of a domain name",reverse_dom),
    row("bytes",        &[opt(ArgKind::StrOrVariable), opt(ArgKind::StrOrVariable)],                 Type::Bin,  Type::Bin,  "extracts bytes by offset and length",              bytes).prepared(prepare_bytes),
    row("field",        FIELD,                                                                 Type::Str,  Type::Str,  "extracts a field between delimiters, counting empty fields", field).prepared(prepare_field),
    row("word",         FIELD,                                                                 Type::Str,  Type::Str,  "extracts a word between delimiters, skipping empty words", word).prepared(prepare_field),
    row("concat",       &[opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str)],                     Type::Str,  Type::Str,  "appends text, a variable and more text",           concat).prepared(prepare_concat),
    row("add_item",     &[arg(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str)],                     Type::Str,  Type::Str,  "appends an item after a delimiter",                add_item).prepared(prepare_add_item),
    row("regsub",       &[arg(ArgKind::Str), arg(ArgKind::Str), opt(ArgKind::Str)],                     Type::Str,  Type::Str,  "replaces matches of a regular expression",         regsub).prepared(prepare_regsub),
    row("cut_crlf",     &[],                                                                   Type::Str,  Type::Str,  "truncates at the first line break",                cut_crlf),
    row("ltrim",        &[arg(ArgKind::Str)],                                                     Type::Str,  Type::Str,  "removes the given bytes from the start",           ltrim),
    row("rtrim",        &[arg(ArgKind::Str)],                                                     Type::Str,  Type::Str,  "removes the given bytes from the end",             rtrim),
    row("strcmp",       &[arg(ArgKind::Variable)],                                                Type::Str,  Type::Int,  "compares with a variable: negative, 0 or positive", strcmp),
    row("secure_memcmp",&[arg(ArgKind::Variable)],                                                Type::Bin,  Type::Bool, "compares with a variable in constant time",        secure_memcmp),
    row("host_only",    &[],                                                                   Type::Str,  Type::Str,  "extracts the host name of a Host header",          host_only),
    row("port_only",    &[],                                                                   Type::Str,  Type::Int,  "extracts the port of a Host header, 0 for none",   port_only),
    row("param",        &[arg(ArgKind::Str), opt(ArgKind::Str)],                                     Type::Str,  Type::Str,  "extracts a parameter of name=value pairs",         param).prepared(prepare_param),
    row("language",     &[arg(ArgKind::Str), opt(ArgKind::Str)],                                     Type::Str,  Type::Str,  "selects the client's preferred language from a list", language),
    row("has_ctl",      &[opt(ArgKind::Str)],                                                     Type::Bin,  Type::Bool, "checks whether there are control characters",      has_ctl).prepared(prepare_has_ctl),
];

fn lower<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.into_str()?;
    if !bytes.iter().any(u8::is_ascii_uppercase) {
        return Some(Value::Str(bytes));
    }
    let mut out = bytes.into_scratch();
    out.make_ascii_lowercase();
    Some(Value::made(out))
}

fn upper<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let mut out = value.into_str()?.into_scratch();
    out.make_ascii_uppercase();
    Some(Value::made(out))
}

fn length<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    Some(Value::Int(value.bytes()?.len() as i64))
}

fn reverse<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let mut out = value.into_str()?.into_scratch();
    out.reverse();
    Some(Value::made(out))
}

fn reverse_dom<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.into_str()?;
    let mut out = Scratch::new();
    // A trailing root dot stays at the end, because nothing precedes it after the reversal.
    let bytes = bytes.strip_suffix(b".").unwrap_or(&bytes);
    for (at, label) in bytes.rsplit(|byte| *byte == b'.').enumerate() {
        if label.is_empty() {
            return None;
        }
        if at > 0 {
            out.push(b'.');
        }
        out.extend_from_slice(label);
    }
    Some(Value::made(out))
}

/// A numeric argument, or the value of its variable.
fn number(arg: &Arg, env: &Env<'_>) -> Option<i64> {
    match arg {
        Arg::Var(var) => var.get(env)?.to_int(),
        arg => crate::value::parse_int(text_of(arg)),
    }
}

fn prepare_bytes(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    for (arg, least, wanted) in
        [(&args[0], 0, "the offset must be at least 0"), (&args[1], 1, "the length must be at least 1")]
    {
        let fits = match arg {
            Arg::Missing | Arg::Var(_) => true,
            given => crate::value::parse_int(text_of(given)).is_some_and(|number| number >= least),
        };
        if !fits {
            return Err(format!("{wanted}, or a variable name"));
        }
    }
    Ok(())
}

fn bytes<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.into_bin()?;
    let offset = match args.get(0) {
        Arg::Missing => 0,
        given => usize::try_from(number(given, env)?).ok()?,
    };
    if offset >= bytes.len() {
        // Any length is accepted, even a missing variable.
        return Some(Value::Bin(bytes.slice(0, 0)));
    }
    let end = match args.get(1) {
        Arg::Missing => bytes.len(),
        given => offset.saturating_add(usize::try_from(number(given, env)?).ok()?).min(bytes.len()),
    };
    Some(Value::Bin(bytes.slice(offset, end)))
}

/// Returns the ranges of the fields. If `skip_empty` is set, the fields are words.
fn parts<'b>(
    bytes: &'b [u8],
    delimiters: &'b [u8],
    skip_empty: bool,
) -> impl DoubleEndedIterator<Item = (usize, usize)> + 'b {
    let base = bytes.as_ptr() as usize;
    bytes
        .split(move |byte| delimiters.contains(byte))
        .map(move |part| {
            let start = part.as_ptr() as usize - base;
            (start, start + part.len())
        })
        .filter(move |(start, end)| !skip_empty || start < end)
}

/// Returns `count` fields from `index` on (counted from the end if negative). A count of 0 returns all remaining fields. If
/// `count` is not given, one field is returned.
fn pick<'a>(value: Value<'a>, args: &'a Args, skip_empty: bool) -> Option<Value<'a>> {
    let bytes = value.into_str()?;
    let (index, delimiters) = (args.int(0)?, args.bytes(1)?);
    let count = args.int(2).unwrap_or(1);
    let nth = usize::try_from(index.unsigned_abs()).ok()?.checked_sub(1);
    let nth = nth?;
    // The number of further fields. `None` stands for all fields, for counts of 0 and below and if there are too few fields.
    let more = usize::try_from(count).ok().and_then(|count| count.checked_sub(1));
    let (start, end) = if index > 0 {
        let mut found = parts(&bytes, delimiters, skip_empty).skip(nth);
        let first = found.next()?;
        let last = match more {
            Some(0) => Some(first),
            Some(more) => found.nth(more - 1),
            None => None,
        };
        (first.0, last.map_or(bytes.len(), |last| last.1))
    } else {
        let mut found = parts(&bytes, delimiters, skip_empty).rev().skip(nth);
        let last = found.next()?;
        let first = match more {
            Some(0) => Some(last),
            Some(more) => found.nth(more - 1),
            None => None,
        };
        (first.map_or(0, |first| first.0), last.1)
    };
    Some(Value::Str(bytes.slice(start, end)))
}

fn prepare_field(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match (&args[0], text_of(&args[1])) {
        (Arg::Int(0), _) => Err("counts from 1, or from -1 at the end; 0 is not valid".into()),
        (_, b"") => Err("needs at least one delimiter".into()),
        _ => Ok(()),
    }
}

fn field<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    pick(value, args, false)
}

fn word<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    pick(value, args, true)
}

fn append_arg(out: &mut Vec<u8>, arg: &Arg, env: &Env<'_>) -> bool {
    match arg {
        Arg::Bytes(bytes) => {
            out.extend_from_slice(bytes);
            true
        }
        Arg::Var(var) => match var.get(env) {
            Some(value) => {
                value.write_text(out);
                true
            }
            None => false,
        },
        _ => false,
    }
}

fn resolve_variable(arg: &mut Arg, scope: &Scope<'_>) -> Result<(), String> {
    if let Arg::Bytes(bytes) = arg {
        let name = String::from_utf8_lossy(bytes).into_owned();
        if !name.is_empty() {
            *arg = Arg::Var(scope.variables.borrow_mut().resolve(&name)?);
        }
    }
    Ok(())
}

fn prepare_concat(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    resolve_variable(&mut args[1], scope)
}

fn concat<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let mut out = value.into_str()?.into_scratch();
    for index in 0..3 {
        append_arg(&mut out, args.get(index), env);
    }
    Some(Value::made(out))
}

fn prepare_add_item(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    resolve_variable(&mut args[1], scope)?;
    match (&args[1], &args[2]) {
        (Arg::Missing, Arg::Missing) => Err("needs a variable or a suffix".into()),
        _ => Ok(()),
    }
}

fn add_item<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let mut out = value.into_str()?.into_scratch();
    let before = out.len();
    let delimiter = args.bytes(0).unwrap_or_default();
    if before > 0 {
        out.extend_from_slice(delimiter);
    }
    let delimited = out.len();
    append_arg(&mut out, args.get(1), env);
    append_arg(&mut out, args.get(2), env);
    // Missing or empty values add no item.
    if out.len() == delimited {
        out.truncate(before);
    }
    Some(Value::made(out))
}

/// Replaces the arguments with the expression, the template and the flag for replacing all matches.
fn prepare_regsub(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let flags = text_of(&args[2]);
    if let Some(other) = flags.iter().find(|flag| !b"ig".contains(flag)) {
        return Err(format!("unknown flag `{}`; use `i` or `g`", char::from(*other)));
    }
    let pattern = base::raw::text_of(text_of(&args[0])).into_owned();
    let (ignore_case, all) = (flags.contains(&b'i'), flags.contains(&b'g'));
    args[0] = Arg::Regex(Regex::new(&pattern, ignore_case)?);
    args[2] = Arg::Int(i64::from(all));
    Ok(())
}

fn regsub<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.into_str()?;
    let replaced = args.regex(0)?.replace(&bytes, args.bytes(1)?, args.int(2) == Some(1));
    Some(replaced.map_or(Value::Str(bytes), Value::made))
}

fn cut_crlf<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.into_str()?;
    let end = memchr::memchr2(b'\r', b'\n', &bytes).unwrap_or(bytes.len());
    Some(Value::Str(bytes.slice(0, end)))
}

fn ltrim<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let (bytes, cut) = (value.into_str()?, args.bytes(0)?);
    let start = bytes.iter().position(|byte| !cut.contains(byte)).unwrap_or(bytes.len());
    let end = bytes.len();
    Some(Value::Str(bytes.slice(start, end)))
}

fn rtrim<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let (bytes, cut) = (value.into_str()?, args.bytes(0)?);
    let end = bytes.iter().rposition(|byte| !cut.contains(byte)).map_or(0, |last| last + 1);
    Some(Value::Str(bytes.slice(0, end)))
}

fn variable<'a>(args: &Args, env: &Env<'_>) -> Option<Value<'a>> {
    match args.get(0) {
        Arg::Var(var) => var.get(env),
        _ => None,
    }
}

fn strcmp<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let (left, right) = (value.into_str()?, variable(args, env)?.into_str()?);
    // As in strcmp(3): the difference between the first bytes that differ. If all are equal, the lengths are compared.
    let apart = left.iter().zip(right.iter()).map(|(left, right)| i64::from(*left) - i64::from(*right));
    let lengths = match left.len().cmp(&right.len()) {
        std::cmp::Ordering::Less => -1,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => 1,
    };
    Some(Value::Int(apart.into_iter().find(|apart| *apart != 0).unwrap_or(lengths)))
}

fn secure_memcmp<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    Some(Value::Bool(same(&value.into_bin()?, &variable(args, env)?.into_bin()?)))
}

fn host_only<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.into_str()?;
    let mut host = Scratch::copy(uri::split_port(&bytes).0);
    host.make_ascii_lowercase();
    Some(Value::made(host))
}

fn port_only<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let port = uri::split_port(value.bytes()?).1.and_then(crate::value::parse_int);
    Some(Value::Int(port.unwrap_or(0)))
}

/// The delimiter may be given in hexadecimal, such as `0x26`.
fn prepare_param(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    if let Some(digits) = text_of(&args[1]).strip_prefix(b"0x") {
        let byte = std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
        args[1] = Arg::Bytes([byte.ok_or("the delimiter is not a hexadecimal byte")?].into());
    }
    Ok(())
}

fn param<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.into_str()?;
    let (name, delimiter) = (args.bytes(0)?, args.bytes(1).and_then(<[u8]>::first).copied().unwrap_or(b'&'));
    let mut start = 0;
    for pair in bytes.split(|byte| *byte == delimiter) {
        let found = pair.strip_prefix(name).filter(|rest| matches!(rest, [] | [b'=', ..]));
        if let Some(rest) = found {
            let from = start + pair.len() - rest.len() + usize::from(!rest.is_empty());
            let to = start + pair.len();
            return Some(Value::Str(bytes.slice(from, to)));
        }
        start += pair.len() + 1;
    }
    None
}

/// The language in the argument that matches an `Accept-Language` value best; otherwise the default, or no value.
fn language<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let accepted = value.into_str()?;
    let wanted = args.bytes(0)?;
    let mut best: Option<(&[u8], u32)> = None;
    for item in accepted.split(|byte| *byte == b',') {
        let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let Some(name) = parts.next() else { continue };
        let weight = parts.find_map(|part| part.strip_prefix(b"q=")).map_or(1000, thousandths);
        // `de-DE` is matched exactly, otherwise by its primary language.
        let base = name.split(|byte| *byte == b'-').next().unwrap_or_default();
        let find =
            |wanted_name: &[u8]| wanted.split(|byte| *byte == b';').find(|offer| *offer == wanted_name);
        let offered = find(name).or_else(|| find(base));
        if let Some(offered) = offered
            && weight > best.map_or(0, |(_, weight)| weight)
        {
            best = Some((offered, weight));
        }
    }
    best.map(|(name, _)| name).or(args.bytes(1)).map(Value::str)
}

/// Parses a quality value such as `0.8` into thousandths.
fn thousandths(text: &[u8]) -> u32 {
    let number: Option<f32> = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
    number.map_or(0, |number| (number.clamp(0.0, 1.0) * 1000.0) as u32)
}

/// Parses the mask. It has one bit for each byte below 32, and bit 32 for DEL.
fn prepare_has_ctl(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let mask = match text_of(&args[0]) {
        // Every control character except the tab.
        b"" => 0x1_ffff_fdff,
        b"any" => 0x1_ffff_ffff,
        b"http" => 0x2401,
        text => {
            let text = String::from_utf8_lossy(text);
            let digits = text.strip_prefix("0x").map(|digits| i64::from_str_radix(digits, 16));
            let mask = digits.unwrap_or_else(|| text.parse()).ok().filter(|mask| (0..1 << 33).contains(mask));
            mask.ok_or_else(|| format!("`{text}` is neither a mask of 33 bits nor `any` or `http`"))?
        }
    };
    args[0] = Arg::Int(mask);
    Ok(())
}

fn has_ctl<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let mask = args.int(0)?;
    let listed = |byte: &u8| match byte {
        0..32 => mask >> byte & 1 == 1,
        127 => mask >> 32 & 1 == 1,
        _ => false,
    };
    Some(Value::Bool(value.bytes()?.iter().any(listed)))
}
