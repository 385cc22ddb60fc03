//! Protocol buffers: extracts a field of a message by its path, also from a gRPC frame.

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, arg, opt, text_of};
use crate::env::Env;
use crate::scope::Scope;
use crate::value::{Bytes, Scratch, Type, Value};

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name          arguments                          takes       gives       description
    row("protobuf",   &[arg(ArgKind::Str), opt(ArgKind::Str)], Type::Bin,  Type::Any,  "extracts a field of a protobuf message by its path of field numbers", protobuf).prepared(prepare),
    row("ungrpc",     &[arg(ArgKind::Str), opt(ArgKind::Str)], Type::Bin,  Type::Any,  "extracts a field of the first message in a gRPC body", ungrpc).prepared(prepare),
];

/// The field types, which determine how the bytes are decoded.
const TYPES: &[&str] = &[
    "int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "enum", "fixed32", "sfixed32", "float",
    "fixed64", "sfixed64", "double", "string", "bytes",
];

/// Stores the path as four bytes per step, and the index of the type.
fn prepare(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let text = String::from_utf8_lossy(text_of(&args[0])).into_owned();
    let numbers: Option<Vec<u32>> =
        text.split('.').map(|part| part.parse().ok().filter(|number| *number > 0)).collect();
    let numbers = numbers.ok_or_else(|| format!("`{text}` is not a path of field numbers, such as `1.3`"))?;
    args[0] = Arg::Bytes(numbers.iter().flat_map(|number| number.to_be_bytes()).collect());
    args[1] = match &args[1] {
        Arg::Missing => Arg::Missing,
        given => {
            let name = String::from_utf8_lossy(text_of(given)).into_owned();
            let number = TYPES.iter().position(|known| *known == name);
            Arg::Int(
                number.ok_or_else(|| format!("unknown type `{name}`; use one of: {}", TYPES.join(", ")))?
                    as i64,
            )
        }
    };
    Ok(())
}

/// Decodes a varint; also returns the remaining bytes.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f).checked_shl(at as u32 * 7)?;
        if byte & 0x80 == 0 {
            return Some((number, &bytes[at + 1..]));
        }
    }
    None
}

/// The first field numbered `wanted`: its wire type and bytes.
fn field(mut message: &[u8], wanted: u32) -> Option<(u8, &[u8])> {
    while !message.is_empty() {
        let (key, rest) = varint(message)?;
        let (wire, number) = ((key & 7) as u8, key >> 3);
        let length = match wire {
            0 => rest.len() - varint(rest)?.1.len(),
            1 => 8,
            5 => 4,
            2 => {
                let (length, contents) = varint(rest)?;
                let (value, after) = contents.split_at_checked(usize::try_from(length).ok()?)?;
                if number == u64::from(wanted) {
                    return Some((wire, value));
                }
                message = after;
                continue;
            }
            _ => return None,
        };
        let (value, after) = rest.split_at_checked(length)?;
        if number == u64::from(wanted) {
            return Some((wire, value));
        }
        message = after;
    }
    None
}

fn find<'b>(message: &'b [u8], path: &[u8]) -> Option<(u8, &'b [u8])> {
    let mut found = (2, message);
    for number in path.chunks_exact(4) {
        if found.0 != 2 {
            return None;
        }
        found = field(found.1, number.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))?;
    }
    Some(found)
}

/// Decodes the bytes according to their type. If no type is given, they are returned unchanged.
fn typed<'a>(wire: u8, bytes: &[u8], kind: Option<i64>) -> Option<Value<'a>> {
    let Some(kind) = kind else { return Some(Value::Bin(Bytes::Made(Scratch::copy(bytes)))) };
    let fixed = || bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let real = |text: String| Some(Value::made(Scratch::copy(text.as_bytes())));
    match (TYPES[kind as usize], wire) {
        ("int32" | "enum", 0) => Some(Value::Int(i64::from(varint(bytes)?.0 as i32))),
        ("int64" | "uint64", 0) => Some(Value::Int(varint(bytes)?.0 as i64)),
        ("uint32", 0) => Some(Value::Int(i64::from(varint(bytes)?.0 as u32))),
        ("sint32" | "sint64", 0) => {
            let number = varint(bytes)?.0;
            Some(Value::Int((number >> 1) as i64 ^ -((number & 1) as i64)))
        }
        ("bool", 0) => Some(Value::Bool(varint(bytes)?.0 != 0)),
        ("fixed32", 5) => Some(Value::Int(fixed() as i64)),
        ("sfixed32", 5) => Some(Value::Int(i64::from(fixed() as u32 as i32))),
        ("float", 5) => real(f32::from_bits(fixed() as u32).to_string()),
        ("fixed64" | "sfixed64", 1) => Some(Value::Int(fixed() as i64)),
        ("double", 1) => real(f64::from_bits(fixed()).to_string()),
        ("string", 2) => Some(Value::made(Scratch::copy(bytes))),
        ("bytes", 2) => Some(Value::Bin(Bytes::Made(Scratch::copy(bytes)))),
        _ => None,
    }
}

fn protobuf<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let (wire, bytes) = find(value.bytes()?, args.bytes(0)?)?;
    typed(wire, bytes, args.int(1))
}

fn ungrpc<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    // A gRPC frame starts with a compression flag and the length in four bytes.
    let (head, rest) = value.bytes()?.split_at_checked(5)?;
    let length = head[1..].iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte));
    let message = rest.get(..length).filter(|_| head[0] == 0)?;
    let (wire, bytes) = find(message, args.bytes(0)?)?;
    typed(wire, bytes, args.int(1))
}
