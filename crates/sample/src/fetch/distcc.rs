//! Messages of the distributed compiler distcc. According to its protocol documentation, a message consists of tokens of four
//! letters, each with a number of eight hexadecimal digits. For some tokens, the number is the length of the data that follows.

use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg, opt, text_of};
use crate::env::Env;
use crate::place::{Columns, is_response};
use crate::scope::Scope;
use crate::value::{Type, Value};

const TOKEN: &[Spec] = &[arg(ArgKind::Str), opt(ArgKind::Int)];

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name          arguments  gives      where            description
    row("distcc_param", TOKEN,   Type::Int, Columns::EITHER, "number in a distcc token",                  distcc_param).prepared(prepare),
    row("distcc_body",  TOKEN,   Type::Bin, Columns::EITHER, "payload of a distcc token",                 distcc_body).prepared(prepare),
];

/// Tokens with a number that is not a length.
const WITHOUT_BODY: &[&[u8]] = &[b"DIST", b"ARGC", b"NFIL", b"STAT", b"DONE"];

fn prepare(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    let token = text_of(&args[0]);
    if token.len() != 4 || !token.is_ascii() {
        return Err(format!("`{}` is not a four-letter token", String::from_utf8_lossy(token)));
    }
    if matches!(args[1], Arg::Int(..=0)) {
        return Err("occurrences are numbered from 1".into());
    }
    args.push(Arg::Int(i64::from(is_response(scope.place))));
    Ok(())
}

/// Finds the wanted token in the selected direction. Returns its number and the bytes after it.
fn find<'a>(env: &Env<'a>, args: &Args) -> Option<(usize, &'a [u8])> {
    let bytes = super::payload::raw(env, args.int(2) == Some(1))?;
    let (token, mut occurrence) = (args.bytes(0)?, args.int(1).unwrap_or(1));
    let mut rest = bytes;
    loop {
        let Some((head, after)) = rest.split_at_checked(12) else {
            env.want_bytes(true);
            return None;
        };
        let number = usize::from_str_radix(std::str::from_utf8(&head[4..]).ok()?, 16).ok()?;
        if head[..4] == *token {
            occurrence -= 1;
            if occurrence == 0 {
                return Some((number, after));
            }
        }
        let body = if WITHOUT_BODY.contains(&&head[..4]) { 0 } else { number };
        let Some(next) = after.get(body..) else {
            env.want_bytes(true);
            return None;
        };
        rest = next;
    }
}

fn distcc_param<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    find(env, args).map(|(number, _)| Value::Int(number as i64))
}

/// The available part of the body.
fn distcc_body<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let (length, after) = find(env, args)?;
    if WITHOUT_BODY.contains(&args.bytes(0)?) {
        return None;
    }
    if after.len() < length {
        env.want_bytes(true);
    }
    Some(Value::bin(&after[..after.len().min(length)]))
}
