//! JSON: escaping text, and extracting values by a path.

use std::sync::Arc;

use super::json_path::{self, JsonValue, Path};
use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, arg, opt, text_of};
use crate::env::Env;
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value, leading_int};

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name          arguments                          takes       gives       description
    row("json",       &[opt(ArgKind::Str)],                 Type::Str,  Type::Str,  "escapes text for a JSON string",           json).prepared(prepare_json),
    row("json_query", &[arg(ArgKind::Str), opt(ArgKind::Str)], Type::Str,  Type::Any,  "extracts a value by JSON path",            json_query).prepared(prepare_query),
];

fn prepare_json(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match text_of(&args[0]) {
        b"" | b"ascii" | b"utf8" | b"utf8s" | b"utf8p" | b"utf8ps" => Ok(()),
        other => Err(format!(
            "unknown input code `{}`; use ascii, utf8, utf8s, utf8p or utf8ps",
            String::from_utf8_lossy(other)
        )),
    }
}

fn json<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.into_str()?;
    let code = args.bytes(0).unwrap_or(b"ascii");
    let mut out = Scratch::new();
    if code == b"ascii" {
        bytes.iter().for_each(|byte| escape(u32::from(*byte), &mut out));
        return Some(Value::made(out));
    }
    // `s` skips invalid input instead of failing; `p` accepts overlong encodings.
    let (silent, permissive) = (code.ends_with(b"s"), code[4..].starts_with(b"p"));
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (decoded, length) = decode(rest);
        rest = &rest[length..];
        match decoded {
            Ok(code) => escape(code, &mut out),
            Err(Wrong::Overlong(code)) if permissive => escape(code, &mut out),
            Err(_) if silent => {}
            Err(_) => return None,
        }
    }
    Some(Value::made(out))
}

/// A defect of a UTF-8 sequence.
enum Wrong {
    /// An invalid sequence (a continuation byte without a start, or too few continuation bytes) or a prohibited code point.
    Sequence,
    /// A code point encoded in more bytes than necessary.
    Overlong(u32),
}

/// Decodes the first character of `bytes`, which must not be empty, and returns its length in bytes.
fn decode(bytes: &[u8]) -> (Result<u32, Wrong>, usize) {
    let (more, bits) = match bytes[0] {
        byte @ 0..0x80 => return (Ok(u32::from(byte)), 1),
        byte @ 0xc0..0xe0 => (1, byte & 0x1f),
        byte @ 0xe0..0xf0 => (2, byte & 0x0f),
        byte @ 0xf0..0xf8 => (3, byte & 0x07),
        _ => return (Err(Wrong::Sequence), 1),
    };
    let continuation = |byte: &&u8| **byte & 0xc0 == 0x80;
    let tail = &bytes[1..1 + bytes[1..].iter().take(more).take_while(continuation).count()];
    if tail.len() < more {
        return (Err(Wrong::Sequence), 1 + tail.len());
    }
    let code = tail.iter().fold(u32::from(bits), |code, byte| code << 6 | u32::from(byte & 0x3f));
    let least = [0x80, 0x800, 0x1_0000][more - 1];
    let decoded = match char::from_u32(code) {
        Some(_) if code >= least => Ok(code),
        Some(_) => Err(Wrong::Overlong(code)),
        // Prohibited: a surrogate, or a number above the last code point.
        None => Err(Wrong::Sequence),
    };
    (decoded, 1 + more)
}

/// Appends one character, escaped as JSON or plain ASCII require.
fn escape(code: u32, out: &mut Vec<u8>) {
    match char::from_u32(code) {
        Some('"') => out.extend_from_slice(b"\\\""),
        Some('\\') => out.extend_from_slice(b"\\\\"),
        Some('/') => out.extend_from_slice(b"\\/"),
        Some('\u{8}') => out.extend_from_slice(b"\\b"),
        Some('\u{c}') => out.extend_from_slice(b"\\f"),
        Some('\r') => out.extend_from_slice(b"\\r"),
        Some('\n') => out.extend_from_slice(b"\\n"),
        Some('\t') => out.extend_from_slice(b"\\t"),
        Some(c @ ' '..='~') => out.push(c as u8),
        Some(c) => {
            let mut units = [0u16; 2];
            for unit in c.encode_utf16(&mut units) {
                out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        }
        None => {}
    }
}

pub(super) fn prepare_query(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let path = Path::parse(&String::from_utf8_lossy(text_of(&args[0])))?;
    args[0] = Arg::Prepared(Arc::new(path));
    match text_of(&args[1]) {
        b"" => args[1] = Arg::Missing,
        b"int" => {}
        _ => return Err("the output type must be `int`".into()),
    }
    Ok(())
}

fn json_query<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    query(&value.into_str()?, args)
}

/// The largest integer that is interoperable in JSON (RFC 8259, 6). Larger ones yield no value.
const LARGEST_INTEGER: i64 = (1 << 53) - 1;

/// The value at the prepared path in `text`. Only numbers become integers.
pub(super) fn query<'a>(text: &[u8], args: &Args) -> Option<Value<'a>> {
    let path: &Path = args.prepared(0)?;
    let mut out = Scratch::new();
    match path.find(text)? {
        JsonValue::Bool(value) => return Some(Value::Bool(value)),
        JsonValue::Number(number) if !matches!(args.get(1), Arg::Missing) => {
            let number = leading_int(number)?;
            let fits = (-LARGEST_INTEGER..=LARGEST_INTEGER).contains(&number);
            return fits.then_some(Value::Int(number));
        }
        JsonValue::Number(number) => write_float(std::str::from_utf8(number).ok()?.parse().ok()?, &mut out),
        JsonValue::Text(raw) => json_path::unescape(raw, &mut out)?,
        JsonValue::Array(raw) => out.extend_from_slice(raw),
    }
    Some(Value::made(out))
}

/// Appends a number with six significant digits, like `%g` in C.
fn write_float(number: f64, out: &mut Vec<u8>) {
    let scientific = format!("{number:.5e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return out.extend_from_slice(scientific.as_bytes());
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let small = (-4..6).contains(&exponent);
    let fixed = if small { format!("{number:.*}", (5 - exponent) as usize) } else { digits.to_owned() };
    let bare = if fixed.contains('.') { fixed.trim_end_matches('0').trim_end_matches('.') } else { &fixed };
    out.extend_from_slice(bare.as_bytes());
    if !small {
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_with_six_digits() {
        #[rustfmt::skip]
        let cases = [
            (0.0, "0"), (1.5, "1.5"), (-0.25, "-0.25"), (100_000.0, "100000"), (1_000_000.0, "1e+06"), (1_700_000_000.0, "1.7e+09"),
            (1_234_567.0, "1.23457e+06"), (999_999.5, "1e+06"), (0.0001, "0.0001"), (0.000_01, "1e-05"), (2.345_678_9, "2.34568"),
            (1e100, "1e+100"), (f64::INFINITY, "inf"),
        ];
        for (number, expected) in cases {
            let mut out = Vec::new();
            write_float(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
