//! FIX messages (Financial Information eXchange): validates the first message, and extracts a field.

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, arg, text_of};
use crate::env::Env;
use crate::scope::Scope;
use crate::value::{Type, Value, parse_int};

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name              arguments          takes       gives       description
    row("fix_is_valid",   &[],               Type::Bin,  Type::Bool, "checks whether a FIX message is valid", fix_is_valid),
    row("fix_tag_value",  &[arg(ArgKind::Str)], Type::Bin,  Type::Bin,  "extracts the value of a tag from a FIX message", fix_tag_value).prepared(prepare_tag),
];

const TAGS: &[(&str, i64)] = &[
    ("BeginString", 8),
    ("BodyLength", 9),
    ("CheckSum", 10),
    ("MsgType", 35),
    ("SenderCompID", 49),
    ("TargetCompID", 56),
];
const VERSIONS: &[&[u8]] = &[b"FIX.4.0", b"FIX.4.1", b"FIX.4.2", b"FIX.4.3", b"FIX.4.4", b"FIXT.1.1"];

/// The fields of a message: the tag, the range of the value, and the start of the field.
fn fields(bytes: &[u8]) -> impl Iterator<Item = Option<(i64, usize, usize, usize)>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let rest = bytes.get(start..).filter(|rest| !rest.is_empty())?;
        let end = rest.iter().position(|byte| *byte == 1).map_or(bytes.len(), |length| start + length);
        at = end + 1;
        let field = &bytes[start..end];
        let equals = field.iter().position(|byte| *byte == b'=');
        let parsed = equals.and_then(|equals| {
            let tag = parse_int(&field[..equals]).filter(|tag| *tag > 0)?;
            (equals + 1 < field.len()).then_some((tag, start + equals + 1, end, start))
        });
        Some(parsed)
    })
}

/// The shortest message: begin string, length, type and checksum.
const SHORTEST: usize = 26;

/// Whether the message has a valid head, length and checksum, or `None` if bytes are missing.
fn check(bytes: &[u8]) -> Option<bool> {
    if bytes.len() < SHORTEST {
        return None;
    }
    let mut body = None;
    for (at, field) in fields(bytes).enumerate() {
        let Some((tag, start, end, field_start)) = field else { return Some(false) };
        let ended = bytes.get(end) == Some(&1);
        if !ended {
            return None;
        }
        let value = &bytes[start..end];
        match (at, tag) {
            (0, 8) if VERSIONS.contains(&value) => {}
            (1, 9) => {
                let Some(length) = parse_int(value).and_then(|length| usize::try_from(length).ok()) else {
                    return Some(false);
                };
                body = Some((end + 1).checked_add(length)?);
            }
            (2, 35) => {}
            (0..=2, _) => return Some(false),
            (_, 10) => {
                let sum = bytes[..field_start].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
                let announced = parse_int(value).filter(|_| value.len() == 3);
                return Some(body == Some(field_start) && announced == Some(i64::from(sum)));
            }
            _ => {}
        }
    }
    None
}

fn fix_is_valid<'a>(value: Value<'a>, _: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    match check(value.bytes()?) {
        Some(valid) => Some(Value::Bool(valid)),
        // An incomplete message has no result, whether or not more bytes follow.
        None => {
            env.want_bytes(true);
            None
        }
    }
}

fn prepare_tag(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let text = String::from_utf8_lossy(text_of(&args[0])).into_owned();
    let named = TAGS.iter().find(|(name, _)| *name == text).map(|(_, tag)| *tag);
    let tag = named.or_else(|| text.parse().ok()).filter(|tag| *tag > 0);
    args[0] = Arg::Int(tag.ok_or_else(|| format!("`{text}` is neither a tag number nor a known tag name"))?);
    Ok(())
}

fn fix_tag_value<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let Value::Bin(bytes) = value else { return None };
    let tag = args.int(0)?;
    let found = fields(&bytes).map_while(|field| field).find(|field| field.0 == tag);
    match found {
        Some((_, start, end, _)) if end < bytes.len() => Some(Value::Bin(bytes.slice(start, end))),
        _ => {
            env.want_bytes(true);
            None
        }
    }
}
