//! The class `Patref`: a pattern list (of an ACL or a map) that scripts read and change, line by line or as a whole.

use std::sync::{Arc, Mutex, MutexGuard};

use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, UserData, Value};
use sample::pattern::{List, NewLine, PatternLine, Watcher};

use super::events::Handle;
use super::function;
use crate::name_cache::Called;

/// A pattern list, and the replacement being prepared, if any.
struct Reference {
    list: Arc<List>,
    prepared: Mutex<Option<Vec<NewLine>>>,
}

/// The error of a value that a converter such as `map_str_int` cannot read.
const WRONG_TYPE: &str = "the value does not have the type of the map's values";

impl Reference {
    fn prepared(&self) -> MutexGuard<'_, Option<Vec<NewLine>>> {
        self.prepared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn add(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), &'static str> {
        if self.list.is_map && value.is_none() {
            return Err("a map key requires a value");
        }
        let value = value.filter(|_| self.list.is_map);
        if value.is_some_and(|value| self.list.check_value(value).is_err()) {
            return Err(WRONG_TYPE);
        }
        match &mut *self.prepared() {
            Some(lines) => lines.push((key.into(), value.map(Into::into))),
            None => self.list.add(key, value),
        }
        Ok(())
    }

    fn set(&self, key: &[u8], value: &[u8], may_add: bool) -> Result<(), &'static str> {
        if !self.list.is_map {
            return Err("this is not a map: its keys have no values");
        }
        if self.list.check_value(value).is_err() {
            return Err(WRONG_TYPE);
        }
        let mut prepared = self.prepared();
        let is_there = match &mut *prepared {
            Some(lines) => {
                let same = lines.iter_mut().filter(|(own, _)| **own == *key);
                same.map(|(_, own)| *own = Some(value.into())).count() > 0
            }
            None if may_add => {
                self.list.set_or_add(key, value);
                true
            }
            None => self.list.set(key, value),
        };
        match (&mut *prepared, is_there) {
            (_, true) => Ok(()),
            (Some(lines), false) if may_add => {
                lines.push((key.into(), Some(value.into())));
                Ok(())
            }
            _ => Err("no such key"),
        }
    }

    fn remove(&self, key: &[u8]) -> bool {
        match &mut *self.prepared() {
            Some(lines) => {
                let before = lines.len();
                lines.retain(|(own, _)| **own != *key);
                lines.len() < before
            }
            None => self.list.remove(key),
        }
    }

    /// Returns some lines, starting at an index.
    fn portion(&self, from: usize, most: usize) -> Vec<NewLine> {
        if let Some(lines) = &*self.prepared() {
            return lines.iter().skip(from).take(most).cloned().collect();
        }
        let ids = self.list.ids();
        let ids = &ids[from.min(ids.len())..ids.len().min(from.saturating_add(most))];
        self.list.lines(ids).into_iter().map(|PatternLine { key, value, .. }| (key, value)).collect()
    }

    /// Returns the value of the first line with that key; for an ACL, an empty text.
    fn find(&self, key: &[u8]) -> Option<Vec<u8>> {
        let value = match &*self.prepared() {
            Some(lines) => lines.iter().find(|(own, _)| **own == *key)?.1.clone(),
            None => self.list.line_of(key)?.value,
        };
        Some(value.map(Into::into).unwrap_or_default())
    }
}

/// Returns true, or nil and the reason for a failure.
fn outcome(lua: &Lua, done: Result<(), &'static str>) -> mlua::Result<MultiValue> {
    match done {
        Ok(()) => true.into_lua_multi(lua),
        Err(why) => (Value::Nil, why).into_lua_multi(lua),
    }
}

impl UserData for Reference {}

type Own = mlua::UserDataRef<Reference>;

/// Adds the functions to the prelude's table. Each takes a reference first.
pub(super) fn fill(lua: &Lua, native: &Table, called: &Arc<Called>) -> mlua::Result<()> {
    let known = called.clone();
    native.set("pattern_list", function(lua, move |_, name: String| open(&known, &name))?)?;
    native.set("pattern_name", function(lua, |_, own: Own| Ok(own.list.name().to_owned()))?)?;
    native.set("pattern_is_map", function(lua, |_, own: Own| Ok(own.list.is_map))?)?;
    versions(lua, native)?;
    lines(lua, native)?;
    native.set(
        "pattern_watch",
        function(lua, |_, (own, changes, handle): (Own, u8, mlua::UserDataRef<Handle>)| {
            let watcher: Arc<dyn Watcher> = handle.0.clone();
            own.list.watch(changes, &watcher);
            Ok(())
        })?,
    )
}

fn open(called: &Called, name: &str) -> mlua::Result<Reference> {
    let known = called
        .shared
        .known()
        .ok_or_else(|| mlua::Error::runtime("core.get_patref: the configuration has not been read yet"))?;
    let list = known
        .list(name)
        .ok_or_else(|| mlua::Error::runtime(format!("core.get_patref: `{name}` is not in use")))?;
    Ok(Reference { list, prepared: Mutex::default() })
}

/// Adds the functions for whole lists.
fn versions(lua: &Lua, native: &Table) -> mlua::Result<()> {
    native.set(
        "pattern_purge",
        function(lua, |_, own: Own| {
            own.list.clear();
            Ok(())
        })?,
    )?;
    native.set(
        "pattern_prepare",
        function(lua, |_, own: Own| {
            *own.prepared() = Some(Vec::new());
            Ok(())
        })?,
    )?;
    native.set(
        "pattern_commit",
        function(lua, |lua, own: Own| {
            let lines = own.prepared().take();
            outcome(lua, lines.map(|lines| own.list.replace(lines)).ok_or("no prepared version"))
        })?,
    )?;
    native.set(
        "pattern_giveup",
        function(lua, |_, own: Own| {
            own.prepared().take();
            Ok(())
        })?,
    )
}

/// Adds the functions for lines.
fn lines(lua: &Lua, native: &Table) -> mlua::Result<()> {
    native.set(
        "pattern_add",
        function(lua, |lua, (own, key, value): (Own, LuaString, Option<LuaString>)| {
            let value = value.as_ref().map(|value| value.as_bytes());
            outcome(lua, own.add(&key.as_bytes(), value.as_deref()))
        })?,
    )?;
    native.set(
        "pattern_add_bulk",
        function(lua, |lua, (own, all): (Own, Table)| outcome(lua, add_all(&own, &all)?))?,
    )?;
    native.set(
        "pattern_del",
        function(lua, |_, (own, key): (Own, LuaString)| Ok(own.remove(&key.as_bytes())))?,
    )?;
    type Setting = (Own, LuaString, LuaString, Option<bool>);
    native.set(
        "pattern_set",
        function(lua, |lua, (own, key, value, may_add): Setting| {
            outcome(lua, own.set(&key.as_bytes(), &value.as_bytes(), may_add.unwrap_or(false)))
        })?,
    )?;
    native.set(
        "pattern_find",
        function(lua, |lua, (own, key): (Own, LuaString)| {
            let found = own.find(&key.as_bytes());
            found.map(|value| lua.create_string(value)).transpose()
        })?,
    )?;
    native.set(
        "pattern_lines",
        function(lua, |lua, (own, from, most): (Own, usize, usize)| {
            let shown = lua.create_table()?;
            for (key, value) in own.portion(from, most) {
                let value = lua.create_string(value.unwrap_or_default())?;
                shown.raw_push(lua.create_sequence_from([lua.create_string(key)?, value])?)?;
            }
            Ok(shown)
        })?,
    )
}

/// Adds many lines: those of an ACL as a sequence, those of a map as key-value pairs.
fn add_all(own: &Reference, all: &Table) -> mlua::Result<Result<(), &'static str>> {
    for pair in all.pairs::<Value, LuaString>() {
        let (key, value) = pair?;
        let done = match key {
            Value::String(key) if own.list.is_map => own.add(&key.as_bytes(), Some(&value.as_bytes())),
            _ if own.list.is_map => Err("a map requires pairs of key and value"),
            _ => own.add(&value.as_bytes(), None),
        };
        if done.is_err() {
            return Ok(done);
        }
    }
    Ok(Ok(()))
}
