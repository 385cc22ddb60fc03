//! The class `StickTable`: the properties of a stick table, one of its entries, and all of them.

use std::sync::Arc;

use base::clock::now_ms;
use mlua::{Lua, LuaString, Table, Value};
use state::table::{self, Column, DataType, EntryValues, KeyType, Operator, TableCursor, ValueForm};

use super::function;
use crate::name_cache::Called;

/// How many positions of a table are visited in one turn.
const TURN: usize = 512;

/// Maximum number of conditions for a walk through a table.
const MOST_FILTERS: usize = 4;

/// Adds the functions to the prelude's table. Each takes the name of a table first.
pub(super) fn fill(lua: &Lua, native: &Table, called: &Arc<Called>) -> mlua::Result<()> {
    let own = called.clone();
    native.set("has_table", function(lua, move |_, name: String| Ok(find(&own, &name).is_ok()))?)?;
    let own = called.clone();
    native.set("table_info", function(lua, move |lua, name: String| info(lua, &*find(&own, &name)?))?)?;
    let own = called.clone();
    native.set(
        "table_lookup",
        function(lua, move |lua, (name, key): (String, LuaString)| {
            let table = find(&own, &name)?;
            let (kind, key) = (table.settings.kind, key.as_bytes());
            let key = match kind {
                KeyType::Str | KeyType::Bin => key.to_vec(),
                _ => kind.key_of(&String::from_utf8_lossy(&key)).map_err(mlua::Error::runtime)?,
            };
            match table.find(&key, now_ms()) {
                Some(found) => entry(lua, &found).map(Value::Table),
                None => Ok(Value::Nil),
            }
        })?,
    )?;
    let own = called.clone();
    type Arguments = (String, u64, Table, Option<Table>);
    native.set(
        "table_walk",
        function(lua, move |lua, (name, from, found, filters): Arguments| {
            walk(lua, &*find(&own, &name)?, from, &found, filters.as_ref())
        })?,
    )
}

fn find(called: &Called, name: &str) -> mlua::Result<Arc<table::Table>> {
    let found = called.shared.known().and_then(|known| known.tables.get(name)).cloned();
    found.ok_or_else(|| mlua::Error::runtime(format!("there is no stick table `{name}`")))
}

fn info(lua: &Lua, table: &table::Table) -> mlua::Result<Table> {
    let settings = &table.settings;
    let (info, data) = (lua.create_table()?, lua.create_table()?);
    info.set("expire", settings.expire_ms)?;
    info.set("size", settings.size)?;
    info.set("used", table.used())?;
    info.set("length", settings.key_length)?;
    info.set("nopurge", settings.nopurge)?;
    info.set("type", settings.kind.name())?;
    for column in table.columns() {
        let period = if column.data.form() == ValueForm::Rate { i64::from(column.period_ms) } else { -1 };
        data.set(column.data.name(), period)?;
    }
    info.set("data", data)?;
    Ok(info)
}

/// Returns an entry: its holders, expiry, and values.
fn entry(lua: &Lua, view: &EntryValues<'_>) -> mlua::Result<Table> {
    let (now, entry) = (now_ms(), lua.create_table()?);
    // The reader holds the entry too.
    entry.set("use", view.holders().saturating_sub(1))?;
    entry.set("expire", view.expires_in(now))?;
    for column in view.table().columns() {
        let name = column.data.name();
        if column.data.form() == ValueForm::Text {
            if let Some(text) = view.server_key() {
                entry.set(name, &**text)?;
            }
        } else if column.data.is_array() {
            let all = lua.create_table()?;
            for element in 0..column.count as usize {
                all.raw_push(number(view, column, element, now))?;
            }
            entry.set(name, all)?;
        } else {
            entry.set(name, number(view, column, 0, now))?;
        }
    }
    Ok(entry)
}

fn number(view: &EntryValues<'_>, column: &Column, element: usize, now: u64) -> i64 {
    let factor = match column.data {
        DataType::BytesInRate | DataType::BytesOutRate => u64::from(view.table().settings.bytes_factor),
        _ => 1,
    };
    i64::try_from(view.read(column, element, now).saturating_mul(factor)).unwrap_or(i64::MAX)
}

/// Adds entries that match all filters to `found`, starting at a position, for one turn; returns the position at which to continue,
/// or nil at the end.
fn walk(
    lua: &Lua,
    table: &table::Table,
    from: u64,
    found: &Table,
    filters: Option<&Table>,
) -> mlua::Result<Option<u64>> {
    let filters = filters.map(|filters| read(table, filters)).transpose()?.unwrap_or_default();
    let (mut cursor, now, kind) = (TableCursor::from(from), now_ms(), table.settings.kind);
    for _ in 0..TURN {
        match table.next(cursor, now, TURN) {
            Ok((own, next)) => {
                cursor = next;
                let holds = |(column, operator, value): &(Column, Operator, i64)| {
                    operator.holds(number(&own, column, 0, now), *value)
                };
                if filters.iter().all(holds) {
                    let mut key = Vec::new();
                    own.key(&mut key);
                    let key = match kind.written(&key) {
                        Some(text) => lua.create_string(text)?,
                        None => lua.create_string(&key)?,
                    };
                    found.raw_set(key, entry(lua, &own)?)?;
                }
            }
            Err(next) => return Ok(next.map(u64::from)),
        }
    }
    Ok(Some(cursor.into()))
}

/// Parses filters: each is the name of a data type, an operator and a number.
fn read(table: &table::Table, filters: &Table) -> mlua::Result<Vec<(Column, Operator, i64)>> {
    let mut all = Vec::new();
    for filter in filters.clone().sequence_values::<Table>() {
        let filter = filter?;
        let (name, operator, value): (String, String, i64) = (filter.get(1)?, filter.get(2)?, filter.get(3)?);
        let wrong = |why: String| mlua::Error::runtime(format!("StickTable.dump: {why}"));
        if all.len() == MOST_FILTERS {
            return Err(wrong(format!("there are more than {MOST_FILTERS} filters")));
        }
        let data = DataType::find(&name)
            .ok_or_else(|| wrong(format!("`{name}` is not a data type of stick tables")))?;
        let column = table
            .column(data)
            .ok_or_else(|| wrong(format!("table `{}` does not store `{name}`", table.name())))?;
        let operator = Operator::named(&operator)
            .ok_or_else(|| wrong(format!("unknown operator `{operator}`; use eq, ne, le, lt, ge or gt")))?;
        all.push((*column, operator, value));
    }
    Ok(all)
}
