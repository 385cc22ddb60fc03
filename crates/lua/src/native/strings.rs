//! The pattern functions of Lua's `string` library, for subjects for which Lua's own functions might take long
//! (`prelude/bounds.lua`).

use mlua::{IntoLua, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};

use super::function;
use crate::budget;
use crate::matching::{MatchCapture, MatchFailed, Matcher, is_plain, longest_short};

/// Adds the functions to the prelude's table.
pub(super) fn fill(lua: &Lua, table: &Table) -> mlua::Result<()> {
    table
        .set("text_limit", function(lua, |_, pattern: LuaString| Ok(longest_short(&pattern.as_bytes())))?)?;
    type Find = (LuaString, LuaString, Option<i64>, bool);
    table.set(
        "text_find",
        function(lua, |lua, (text, pattern, first, plain): Find| {
            let (text, pattern) = (&*text.as_bytes(), &*pattern.as_bytes());
            let from = start(text.len(), first);
            if from > text.len() {
                return Value::Nil.into_lua_multi(lua);
            }
            if plain || is_plain(pattern) {
                let found = memchr::memmem::find(&text[from..], pattern).map(|at| from + at);
                return match found {
                    Some(at) => (at + 1, at + pattern.len()).into_lua_multi(lua),
                    None => Value::Nil.into_lua_multi(lua),
                };
            }
            searched(lua, text, pattern, from, |(start, end), captures, is_whole| {
                let mut values = (start + 1, end).into_lua_multi(lua)?;
                values.extend(if is_whole { MultiValue::new() } else { captures });
                Ok(values)
            })
        })?,
    )?;
    table.set(
        "text_match",
        function(lua, |lua, (text, pattern, first): (LuaString, LuaString, Option<i64>)| {
            let (text, pattern) = (&*text.as_bytes(), &*pattern.as_bytes());
            let from = start(text.len(), first);
            if from > text.len() {
                return Value::Nil.into_lua_multi(lua);
            }
            searched(lua, text, pattern, from, |_, captures, _| Ok(captures))
        })?,
    )?;
    table.set(
        "text_start",
        function(lua, |_, (text, first): (LuaString, Option<i64>)| {
            let length = text.as_bytes().len();
            Ok(start(length, first).min(length + 1) + 1)
        })?,
    )?;
    table.set("text_next", function(lua, next)?)?;
    table.set("text_replace", function(lua, replace)?)
}

/// Returns the byte at which a search begins, from 0. In scripts, positions count from 1, and negative ones from the end.
fn start(length: usize, first: Option<i64>) -> usize {
    match first.unwrap_or(1) {
        first if first > 0 => usize::try_from(first - 1).unwrap_or(usize::MAX),
        0 => 0,
        first => length.saturating_sub(usize::try_from(first.unsigned_abs()).unwrap_or(usize::MAX)),
    }
}

/// Returns a pattern without its anchor, and whether it had one.
fn anchor(pattern: &[u8]) -> (&[u8], bool) {
    pattern.strip_prefix(b"^").map_or((pattern, false), |rest| (rest, true))
}

fn failed(message: MatchFailed) -> mlua::Error {
    mlua::Error::runtime(message)
}

fn value(lua: &Lua, text: &[u8], captured: MatchCapture) -> mlua::Result<Value> {
    match captured {
        MatchCapture::Position(position) => Ok(Value::Integer(position)),
        MatchCapture::Part(start, length) => lua.create_string(&text[start..start + length])?.into_lua(lua),
    }
}

/// Searches, and passes the match to `found`, together with its captures and whether these are only the whole match because the
/// pattern has no captures.
fn searched(
    lua: &Lua,
    text: &[u8],
    pattern: &[u8],
    from: usize,
    found: impl FnOnce((usize, usize), MultiValue, bool) -> mlua::Result<MultiValue>,
) -> mlua::Result<MultiValue> {
    let (pattern, anchored) = anchor(pattern);
    let is_over = || budget::is_over(lua);
    let mut matcher = Matcher::new(text, pattern, &is_over);
    let Some((start, end)) = matcher.search(from, None, anchored).map_err(failed)? else {
        return Value::Nil.into_lua_multi(lua);
    };
    let captures = matcher.captured(start, end).map_err(failed)?;
    let values: mlua::Result<MultiValue> = captures.into_iter().map(|one| value(lua, text, one)).collect();
    found((start, end), values?, !matcher.has_captures())
}

/// The next of several matches: its start and end, both from 1, and its captures.
type Next = (LuaString, LuaString, usize, Option<usize>, bool);

fn next(lua: &Lua, (text, pattern, from, last, may_anchor): Next) -> mlua::Result<MultiValue> {
    let (text, pattern) = (&*text.as_bytes(), &*pattern.as_bytes());
    let (pattern, anchored) = if may_anchor { anchor(pattern) } else { (pattern, false) };
    let is_over = || budget::is_over(lua);
    let mut matcher = Matcher::new(text, pattern, &is_over);
    let last = last.map(|last| last.saturating_sub(1));
    let found = matcher.search(from.saturating_sub(1), last, anchored).map_err(failed)?;
    let Some((start, end)) = found else { return Value::Nil.into_lua_multi(lua) };
    let mut values = (start + 1, end + 1).into_lua_multi(lua)?;
    for captured in matcher.captured(start, end).map_err(failed)? {
        values.push_back(value(lua, text, captured)?);
    }
    Ok(values)
}

/// Replaces up to `most` matches with a text; returns their number.
fn replace(
    lua: &Lua,
    (text, pattern, by, most): (LuaString, LuaString, LuaString, f64),
) -> mlua::Result<(LuaString, usize)> {
    let (text, by) = (&*text.as_bytes(), &*by.as_bytes());
    let pattern = pattern.as_bytes();
    let (pattern, anchored) = anchor(&pattern);
    let is_over = || budget::is_over(lua);
    let mut matcher = Matcher::new(text, pattern, &is_over);
    let (mut out, mut done, mut copied, mut last) = (Vec::new(), 0, 0, None);
    while (done as f64) < most {
        let Some((start, end)) = matcher.search(copied, last, anchored).map_err(failed)? else { break };
        out.extend_from_slice(&text[copied..start]);
        expand(&matcher, (text, by), (start, end), &mut out).map_err(failed)?;
        (done, copied, last) = (done + 1, end, Some(end));
        if anchored {
            break;
        }
    }
    out.extend_from_slice(&text[copied..]);
    Ok((lua.create_string(&out)?, done))
}

/// Appends a replacement, with the captures that it refers to.
fn expand(
    matcher: &Matcher<'_>,
    (text, by): (&[u8], &[u8]),
    (start, end): (usize, usize),
    out: &mut Vec<u8>,
) -> Result<(), MatchFailed> {
    let mut rest = by.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let number = match rest.next() {
            Some(b'%') => {
                out.push(b'%');
                continue;
            }
            Some(b'0') => {
                out.extend_from_slice(&text[start..end]);
                continue;
            }
            Some(digit @ b'1'..=b'9') => usize::from(digit - b'1'),
            _ => return Err("invalid use of '%' in replacement string".to_owned()),
        };
        match matcher.capture(number, start, end) {
            Ok(MatchCapture::Part(start, length)) => out.extend_from_slice(&text[start..start + length]),
            Ok(MatchCapture::Position(position)) => out.extend_from_slice(position.to_string().as_bytes()),
            Err(message) => return Err(message + " in replacement string"),
        }
    }
    Ok(())
}
