//! Stick tables: `show table`, `set table`, `clear table` (management manual, 9.3). Tables are traversed in pieces, so that a large
//! one does not block the worker.

use std::fmt::Write;
use std::sync::Arc;

use base::clock::now_ms;
use state::table::{
    Column, DataType, EntryValues, KeyType, Operator, Table, TableCursor, TableEntry, ValueForm,
};

use crate::invocation::{Call, CommandReply, error};

/// The number of slots visited per turn.
const TURN: usize = 512;

/// The maximum number of data filters in a command.
const MOST_FILTERS: usize = 4;

/// The action on the selected entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Show,
    Clear,
    Set,
}

impl Deed {
    fn usage(self) -> &'static str {
        match self {
            Self::Show => {
                "Optional argument only supports \"data.<store_data_type>\" <operator> <value> or key <key> or ptr <ptr>"
            }
            Self::Clear => {
                "Required arguments: <table> \"data.<store_data_type>\" <operator> <value> or <table> key <key> or <table> ptr <ptr>"
            }
            Self::Set => {
                "Required arguments: <table> key <key> [data.<store_data_type> <value>]* or <table> ptr <ptr> [data.<store_data_type> <value>]*"
            }
        }
    }
}

/// A condition on stored data.
#[derive(Debug, Clone, Copy)]
struct DataFilter {
    column: Column,
    element: usize,
    operator: Operator,
    value: i64,
}

impl DataFilter {
    fn holds(&self, entry: &EntryValues<'_>, now_ms: u64) -> bool {
        // Missing array elements match nothing.
        if self.element >= self.column.count as usize {
            return false;
        }
        let value = entry.read(&self.column, self.element, now_ms) as i64;
        self.operator.holds(value, self.value)
    }
}

pub(crate) fn show(call: &mut Call<'_>) -> CommandReply {
    let view = call.runtime.view();
    if call.arg(0).is_empty() {
        // The order is the same as in HAProxy: the last one is first.
        let mut out = String::new();
        view.tables.iter().rev().for_each(|table| summary(table, &mut out));
        return CommandReply::Text(out);
    }
    run(call, Deed::Show)
}

pub(crate) fn clear(call: &mut Call<'_>) -> CommandReply {
    run(call, Deed::Clear)
}

pub(crate) fn set(call: &mut Call<'_>) -> CommandReply {
    run(call, Deed::Set)
}

fn run(call: &mut Call<'_>, deed: Deed) -> CommandReply {
    let view = call.runtime.view();
    if call.arg(0).is_empty() {
        return error(deed.usage());
    }
    let Some(table) = view.tables.iter().find(|table| table.name() == call.arg(0)) else {
        return error("No such table");
    };
    let outcome = match call.arg(1) {
        "key" => by_key(call, table, deed),
        "ptr" => by_pointer(call, table, deed),
        word if word.starts_with("data.") && deed != Deed::Set => by_data(call, table, deed),
        "" if deed != Deed::Set => Ok(all(table, Vec::new(), deed)),
        "" => Ok(CommandReply::Done),
        _ => Err(deed.usage().into()),
    };
    outcome.unwrap_or_else(error)
}

/// The summary line of a table.
fn summary(table: &Table, out: &mut String) {
    let (name, kind, size) = (table.name(), table.settings.kind.name(), table.settings.size);
    // Writing to text cannot fail.
    let _ = writeln!(out, "# table: {name}, type: {kind}, size:{size}, used:{}", table.used());
}

fn by_key(call: &Call<'_>, table: &Arc<Table>, deed: Deed) -> Result<CommandReply, String> {
    if call.arg(2).is_empty() {
        return Err("Key value expected".into());
    }
    let key = table.settings.kind.key_of(call.arg(2)).map_err(|text| match deed {
        Deed::Show => text.replace("Inserting", "Showing").replace("into", "from"),
        Deed::Clear => text.replace("Inserting", "Removing").replace("into", "from"),
        Deed::Set => text,
    })?;
    let now = now_ms();
    if deed == Deed::Set {
        let changes = changes(call, table)?;
        return match table.get(&key, now) {
            Some(entry) => Ok(change(&entry, &changes, now)),
            None => Err("Unable to allocate a new entry".into()),
        };
    }
    Ok(match table.find(&key, now) {
        Some(entry) => one(table, entry, deed, now),
        None => CommandReply::Done,
    })
}

fn by_pointer(call: &Call<'_>, table: &Arc<Table>, deed: Deed) -> Result<CommandReply, String> {
    let digits = call.arg(2).strip_prefix("0x").unwrap_or_default();
    let pointer = u64::from_str_radix(digits, 16).map_err(|_| "Pointer expected (0xffff notation)")?;
    let now = now_ms();
    let entry = table.by_pointer(pointer, now).ok_or("No entry can be found matching ptr.")?;
    if deed == Deed::Set {
        let changes = changes(call, table)?;
        return Ok(change(&entry, &changes, now));
    }
    Ok(one(table, entry, deed, now))
}

/// Shows or removes one entry.
fn one(table: &Table, entry: TableEntry<'_>, deed: Deed, now: u64) -> CommandReply {
    if deed == Deed::Clear {
        return if table.remove(entry) {
            CommandReply::Done
        } else {
            error("Entry currently in use, cannot remove")
        };
    }
    let mut out = String::new();
    summary(table, &mut out);
    line(&entry, now, &mut out);
    CommandReply::Text(out)
}

/// Parses `data.<type>` or `data.<type>[<element>]` into column and element.
fn stored(word: &str, table: &Table) -> Result<(Column, usize), String> {
    let name = word.strip_prefix("data.").ok_or("\"data.<type>\" followed by a value expected")?;
    let (name, element) = match name.split_once('[') {
        Some((name, rest)) => {
            (name, rest.strip_suffix(']').and_then(|number| number.parse().ok()).ok_or("Unknown data type")?)
        }
        None => (name, 0),
    };
    let data = DataType::find(name).ok_or("Unknown data type")?;
    let column = table.column(data).ok_or("Data type not stored in this table")?;
    Ok((*column, element))
}

/// The changes of `set table`.
fn changes(call: &Call<'_>, table: &Table) -> Result<Vec<(Column, usize, u64)>, String> {
    let words = call.args.get(3..).unwrap_or_default();
    let mut changes = Vec::new();
    for pair in words.chunks(2) {
        let (column, element) = stored(&pair[0], table)?;
        if element >= column.count as usize {
            return Err("index out of range in this data array".into());
        }
        let number = pair.get(1).and_then(|value| value.parse::<i64>().ok());
        let number = number.filter(|_| column.data.form() != ValueForm::Text);
        changes.push((column, element, number.ok_or("Require a valid integer value to store")? as u64));
    }
    Ok(changes)
}

fn change(entry: &TableEntry<'_>, changes: &[(Column, usize, u64)], now: u64) -> CommandReply {
    for (column, element, value) in changes {
        entry.set(column.data, *element as u32, *value, now);
    }
    entry.touch(now);
    CommandReply::Done
}

fn by_data(call: &Call<'_>, table: &Arc<Table>, deed: Deed) -> Result<CommandReply, String> {
    let words = call.args.get(1..).unwrap_or_default();
    let mut filters = Vec::new();
    for (number, part) in words.chunks(3).enumerate() {
        if number == MOST_FILTERS {
            let before = words.get((number * 3).wrapping_sub(1)).map_or("", String::as_str);
            return Err(format!(
                "Detected extra data in filter, {}th word of input, after '{before}'",
                number * 3 + 4
            ));
        }
        filters.push(filter(part, table).map_err(|text| format!("Filter entry #{}: {text}", number + 1))?);
    }
    Ok(all(table, filters, deed))
}

fn filter(words: &[String], table: &Table) -> Result<DataFilter, String> {
    let (column, element) = match words[0].starts_with("data.") {
        true => stored(&words[0], table)?,
        false => return Err("Unknown data type".into()),
    };
    let operator = words.get(1).and_then(|word| Operator::named(word)).ok_or_else(|| {
        "Require and operator among \"eq\", \"ne\", \"le\", \"ge\", \"lt\", \"gt\"".to_owned()
    })?;
    let value = words.get(2).and_then(|value| value.parse().ok());
    let value = value.ok_or("Require a valid integer value to compare against")?;
    Ok(DataFilter { column, element, operator, value })
}

/// Processes all entries that pass the filters, in pieces.
fn all(table: &Arc<Table>, filters: Vec<DataFilter>, deed: Deed) -> CommandReply {
    let mut first = String::new();
    if deed == Deed::Show {
        table.sweep(now_ms(), TURN);
        summary(table, &mut first);
    }
    let (table, mut at) = (table.clone(), Some(TableCursor::default()));
    let pieces = std::iter::from_fn(move || {
        let mut cursor = at?;
        let (mut out, now) = (std::mem::take(&mut first), now_ms());
        // The length of a turn does not depend on the number of matching entries.
        for _ in 0..TURN {
            match table.next(cursor, now, TURN) {
                Ok((entry, next)) => {
                    cursor = next;
                    if filters.iter().all(|filter| filter.holds(&entry, now)) {
                        match deed {
                            Deed::Show => line(&entry, now, &mut out),
                            // Entries in use remain.
                            _ => drop(table.remove(entry)),
                        }
                    }
                }
                Err(next) => {
                    at = next;
                    return Some(out);
                }
            }
        }
        at = Some(cursor);
        Some(out)
    });
    CommandReply::Pieces(Box::new(pieces))
}

/// The line of an entry.
fn line(entry: &TableEntry<'_>, now: u64, out: &mut String) {
    let table = entry.table();
    let _ = write!(out, "{:#x}: key=", entry.pointer());
    key(entry, out);
    // The reader of this list holds a reference too.
    let (holders, left) = (entry.holders().saturating_sub(1), entry.expires_in(now));
    let _ = write!(out, " use={holders} exp={left} shard=0");
    for column in table.columns() {
        for element in 0..column.count as usize {
            let (name, bare) = (column.data.name(), column.data.name().trim_end_matches("_rate"));
            out.push(' ');
            match (column.data.is_array(), column.data.form()) {
                (true, ValueForm::Rate) => {
                    let _ = write!(out, "{bare}{element}_rate");
                }
                (true, _) => {
                    let _ = write!(out, "{name}{element}");
                }
                _ => out.push_str(name),
            }
            if column.period_ms > 0 {
                let _ = write!(out, "({})", column.period_ms);
            }
            if column.data.form() == ValueForm::Text {
                let _ = write!(out, "={}", entry.server_key().map_or("-", |text| text));
                continue;
            }
            let factor = match column.data {
                DataType::BytesInRate | DataType::BytesOutRate => u64::from(table.settings.bytes_factor),
                _ => 1,
            };
            let _ = write!(out, "={}", entry.read(column, element, now) * factor);
        }
    }
    out.push('\n');
}

/// Writes the key as text.
fn key(entry: &TableEntry<'_>, out: &mut String) {
    let mut bytes = Vec::new();
    entry.key(&mut bytes);
    if let Some(text) = entry.table().settings.kind.written(&bytes) {
        return out.push_str(&text);
    }
    if entry.table().settings.kind == KeyType::Bin {
        for byte in bytes {
            let _ = write!(out, "{byte:02X}");
        }
        return;
    }
    for byte in bytes {
        match byte {
            b' '..=b'~' if !matches!(byte, b' ' | b'=' | b'\\') => out.push(char::from(byte)),
            b'\\' | b' ' | b'=' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            27 => out.push_str("\\e"),
            _ => {
                let _ = write!(out, "\\x{byte:02X}");
            }
        }
    }
}
