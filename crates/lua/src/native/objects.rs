//! Classes independent of requests: `Map`, `Regex`, and the signals of queues.

use mlua::{Lua, LuaString, MultiValue, Table, UserData, UserDataMethods, Value};
use sample::pattern::{MatchMethod, View};
use sample::regex::Regex;

use super::function;
use crate::convert;
use crate::loading::{Loading, loading};
use crate::signal::Signal;

/// The match methods for maps, by their names in scripts.
const METHODS: [(&str, MatchMethod); 9] = [
    ("int", MatchMethod::Int),
    ("ip", MatchMethod::Ip),
    ("str", MatchMethod::Str),
    ("beg", MatchMethod::Beg),
    ("sub", MatchMethod::Sub),
    ("dir", MatchMethod::Dir),
    ("dom", MatchMethod::Dom),
    ("end", MatchMethod::End),
    ("reg", MatchMethod::Reg),
];

/// A map used by scripts.
struct Map {
    view: View,
    method: MatchMethod,
}

impl UserData for Map {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("lookup", |lua, map, key: Value| {
            Ok(map
                .find(&key, |value| lua.create_string(value))
                .transpose()?
                .map_or(Value::Nil, Value::String))
        });
        methods.add_method("slookup", |lua, map, key: Value| {
            map.find(&key, |value| lua.create_string(value)).unwrap_or_else(|| lua.create_string(b""))
        });
    }
}

impl Map {
    fn find<R>(&self, key: &Value, take: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let key = convert::from_lua(key).cast(self.method.expects())?;
        self.view.lookup(&key, take)
    }
}

/// A regular expression.
struct Expression {
    regex: Regex,
    /// Number of groups.
    groups: usize,
}

impl UserData for Expression {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("exec", |_, own, text: LuaString| Ok(own.regex.is_match(&text.as_bytes())));
        methods.add_method("match", |lua, own, text: LuaString| {
            let (text, found) = (text.as_bytes(), lua.create_table()?);
            for group in 0..=own.groups.min(9) {
                let mut value = Vec::new();
                if !own.regex.expand(&text, format!("\\{group}").as_bytes(), &mut value) {
                    return Ok((false, found));
                }
                found.raw_set(group + 1, lua.create_string(value)?)?;
            }
            Ok((true, found))
        });
    }
}

/// Returns the number of groups in a pattern.
fn groups(pattern: &str) -> usize {
    let (mut groups, mut bytes) = (0, pattern.bytes().peekable());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'(' if bytes.peek() != Some(&b'?') => groups += 1,
            _ => {}
        }
    }
    groups
}

impl UserData for Signal {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("count", |_, signal, ()| Ok(signal.count()));
        methods.add_method("notify", |_, signal, ()| {
            signal.notify();
            Ok(())
        });
    }
}

/// Creates the classes.
pub(super) fn fill(lua: &Lua, native: &Table) -> mlua::Result<()> {
    let map = lua.create_table()?;
    for (number, (name, _)) in METHODS.iter().enumerate() {
        map.set(*name, number)?;
        map.set(format!("_{name}"), number)?;
    }
    map.set("new", function(lua, new_map)?)?;
    lua.globals().set("Map", map)?;
    let regex = lua.create_table()?;
    regex.set("new", function(lua, new_regex)?)?;
    lua.globals().set("Regex", regex)?;
    native.set("signal", function(lua, |_, ()| Ok(Signal::default()))?)
}

/// `Map.new(file, method)`. The file is read together with the configuration.
fn new_map(_: &Lua, (name, method): (String, Option<usize>)) -> mlua::Result<Map> {
    let (_, method) = *METHODS
        .get(method.unwrap_or(2))
        .ok_or_else(|| mlua::Error::runtime("Map.new: unknown match method"))?;
    let opened = loading(|loading: &dyn Loading| loading.map(&name, method)).ok_or_else(|| {
        mlua::Error::runtime("`Map.new` is only available while a file is loaded and in `core.register_init`")
    })?;
    let view = opened.map_err(|error| mlua::Error::runtime(format!("Map.new: {error}")))?;
    Ok(Map { view, method })
}

/// `Regex.new(pattern, case_sensitive)`: returns true and the expression, or false and the error.
fn new_regex(lua: &Lua, (pattern, sensitive): (String, Option<bool>)) -> mlua::Result<MultiValue> {
    use mlua::IntoLuaMulti;
    match Regex::new(&pattern, !sensitive.unwrap_or(true)) {
        Ok(regex) => (true, Expression { regex, groups: groups(&pattern) }).into_lua_multi(lua),
        Err(error) => (false, error).into_lua_multi(lua),
    }
}
