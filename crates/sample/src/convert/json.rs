//! JSON: escaping text for it, and looking into it.

use super::{Convert, row};
use crate::args::{Arg, Args, Kind, arg, opt, text_of};
use crate::env::{Env, Scope};
use crate::value::{Scratch, Type, Value};

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name          arguments                          takes       gives       what it does
    row("json",       &[opt(Kind::Str)],                 Type::Str,  Type::Str,  "escaped for a JSON string",                json).prepared(prepare_json),
    row("json_query", &[arg(Kind::Str), opt(Kind::Str)], Type::Str,  Type::Any,  "what a JSON path finds",                   json_query).prepared(prepare_query),
];

fn prepare_json(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match text_of(&args[0]) {
        b"" | b"ascii" | b"utf8" | b"utf8s" | b"utf8p" | b"utf8ps" => Ok(()),
        other => Err(format!(
            "`{}` is no input code; they are ascii, utf8, utf8s, utf8p and utf8ps",
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
    // `s`: what is wrong is left out instead of ending it all; `p`: what is only too long is taken.
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

/// What is wrong with a sequence of UTF-8.
enum Wrong {
    /// It is none (a lone continuation, too few continuations), or its code is prohibited.
    Sequence,
    /// A code written with more bytes than it needs.
    Overlong(u32),
}

/// The first character of `bytes`, which are not empty, and how many bytes it takes.
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
        // Prohibited: half of a pair, or beyond what there is.
        None => Err(Wrong::Sequence),
    };
    (decoded, 1 + more)
}

/// Appends one character, escaped where JSON or plain ASCII asks for it.
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
    let path = String::from_utf8_lossy(text_of(&args[0])).into_owned();
    let Some(steps) = path.strip_prefix('$') else {
        return Err(format!("the JSON path `{path}` does not begin with `$`"));
    };
    // Kept as a JSON pointer: `$.a.b[0]` is `/a/b/0`.
    let mut pointer = String::new();
    // A dot behind a backslash belongs to the key; a NUL stands for it meanwhile, because no path has one.
    let steps = steps.replace("\\.", "\0").replace('[', ".").replace(']', "");
    for step in steps.split('.').filter(|step| !step.is_empty()) {
        if step.contains(['*', '?', '(', ':']) {
            return Err(format!("`{step}` in the JSON path `{path}` is not supported yet"));
        }
        let step = step.trim_matches(['\'', '"']).replace('\0', ".");
        pointer.push('/');
        pointer.push_str(&step.replace('~', "~0").replace('/', "~1"));
    }
    args[0] = Arg::Bytes(pointer.into_bytes().into());
    match text_of(&args[1]) {
        b"" | b"int" => Ok(()),
        _ => Err("the output type is `int`".into()),
    }
}

fn json_query<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    query(&value.into_str()?, args)
}

/// What the prepared path finds in `text`.
pub(super) fn query<'a>(text: &[u8], args: &Args) -> Option<Value<'a>> {
    let parsed: serde_json::Value = serde_json::from_slice(text).ok()?;
    let found = parsed.pointer(std::str::from_utf8(args.bytes(0)?).ok()?)?;
    let as_int = args.bytes(1) == Some(b"int");
    let text = |text: String| Some(Value::made(Scratch::copy(text.as_bytes())));
    match found {
        serde_json::Value::Bool(value) => Some(Value::Bool(*value)),
        serde_json::Value::String(value) if !as_int => text(value.clone()),
        serde_json::Value::String(value) => value.parse().ok().map(Value::Int),
        serde_json::Value::Number(number) if as_int => {
            number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)).map(Value::Int)
        }
        serde_json::Value::Number(number) => text(number.to_string()),
        // Arrays are given as they are written; objects and null are nothing.
        serde_json::Value::Array(_) if !as_int => text(found.to_string()),
        _ => None,
    }
}
