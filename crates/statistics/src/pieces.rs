//! The rows of `show stat` and of the page in output pieces: CSV, typed and JSON, and the JSON schema.

use std::fmt::Write;
use std::sync::Arc;

use crate::column::{C, COLUMNS, ObjectRow};
use crate::config_view::ConfigView;
use crate::field;
use crate::info::InfoFormat;
use crate::row_objects::{RowObject, objects};
use crate::stat::{RowFilter, Show};

/// The number of rows per piece: a few hundred µs of work.
const ROWS_A_PIECE: usize = 64;

/// The statistics in pieces of several rows each, read from one proxy at a time.
pub struct StatPieces {
    pub(crate) view: Arc<ConfigView>,
    pub(crate) filter: RowFilter,
    pub(crate) show: Show,
    pub(crate) format: InfoFormat,
    pub(crate) describe: bool,
    /// The remaining objects of the current proxy.
    pending: std::vec::IntoIter<RowObject>,
    next_proxy: usize,
    rows: usize,
    stage: PageStage,
}

#[derive(PartialEq)]
enum PageStage {
    Title,
    Rows,
    End,
}

impl StatPieces {
    /// The rows of the proxies in `view` selected by `filter`. With `describe`, the typed format includes descriptions.
    pub fn new(
        view: Arc<ConfigView>,
        filter: RowFilter,
        show: Show,
        format: InfoFormat,
        describe: bool,
    ) -> Self {
        let (pending, stage) = (Vec::new().into_iter(), PageStage::Title);
        let show = Show { counts_servers: filter.up || filter.no_maintenance, ..show };
        Self { view, filter, show, format, describe, pending, next_proxy: 0, rows: 0, stage }
    }

    /// The next row, from the next proxy that has any.
    pub(crate) fn next_row(&mut self) -> Option<ObjectRow> {
        loop {
            if let Some(object) = self.pending.next() {
                let proxy = self.view.proxies.get(self.next_proxy.checked_sub(1)?)?;
                return Some(object.row(proxy, self.show));
            }
            let proxy = self.view.proxies.get(self.next_proxy)?;
            self.next_proxy += 1;
            if self.filter.wants(&proxy.state) {
                self.pending = objects(proxy, &self.filter).into_iter();
            }
        }
    }
}

impl Iterator for StatPieces {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut out = String::with_capacity(16 * 1024);
        match self.stage {
            PageStage::End => return None,
            PageStage::Title if self.format == InfoFormat::Plain => out.push_str(&csv_header()),
            PageStage::Title if self.format == InfoFormat::Json => out.push('['),
            _ => {}
        }
        self.stage = PageStage::Rows;
        for _ in 0..ROWS_A_PIECE {
            let Some(row) = self.next_row() else {
                self.stage = PageStage::End;
                out.push_str(if self.format == InfoFormat::Json { "]\n" } else { "" });
                break;
            };
            match self.format {
                InfoFormat::Plain => write_csv(&row, &mut out),
                InfoFormat::Typed => write_typed(&row, self.describe, &mut out),
                InfoFormat::Json => {
                    out.push_str(if self.rows > 0 { "," } else { "" });
                    write_json(&row, &mut out);
                }
            }
            self.rows += 1;
        }
        Some(out)
    }
}

/// The number of columns before the `-` that ends those present in every version; the columns of protocols follow it.
pub(crate) const COMMON_COLUMNS: usize = C::cache_hint_hits as usize + 1;

/// The title line of CSV.
pub(crate) fn csv_header() -> String {
    let mut out = "# ".to_owned();
    for (position, column) in COLUMNS.iter().enumerate() {
        if position == COMMON_COLUMNS {
            out.push_str("-,");
        }
        out.push_str(column.name);
        out.push(',');
    }
    out.push('\n');
    out
}

fn write_csv(row: &ObjectRow, out: &mut String) {
    for (position, value) in row.values.iter().enumerate() {
        if position == COMMON_COLUMNS {
            out.push_str("-,");
        }
        value.write_csv(out);
        out.push(',');
    }
    out.push('\n');
}

fn write_typed(row: &ObjectRow, describe: bool, out: &mut String) {
    let letter = row.kind.names().0;
    for (position, (value, column)) in row.values.iter().zip(COLUMNS).enumerate() {
        if *value != field::StatValue::Empty {
            let _ = write!(out, "{letter}.{}.{}.{position}.{}.1", row.proxy, row.id, column.name);
            row.kind.describe(position, column).write_typed(value, describe, out);
        }
    }
}

fn write_json(row: &ObjectRow, out: &mut String) {
    let name = row.kind.names().1;
    let lead = format!("\"objType\":\"{name}\",\"proxyId\":{},\"id\":{},", row.proxy, row.id);
    let mut separator = '[';
    for (position, (value, column)) in row.values.iter().zip(COLUMNS).enumerate() {
        if *value != field::StatValue::Empty {
            out.push(separator);
            separator = ',';
            row.kind.describe(position, column).write_json(&lead, position, value, out);
        }
    }
    out.push(']');
}

/// A JSON schema (draft 4) of `show info json` and `show stat json`.
pub fn schema_text() -> String {
    let words =
        |table: &[(u8, &str)]| table.iter().map(|row| format!("\"{}\"", row.1)).collect::<Vec<_>>().join(",");
    let integer = |name: &str, min: i64, max: u64| {
        format!(
            "{{\"title\":\"{name}\",\"type\":\"object\",\"properties\":{{\"type\":{{\"enum\":[\"{name}\"]}},\
             \"value\":{{\"type\":\"integer\",\"minimum\":{min},\"maximum\":{max}}}}},\"required\":[\"type\",\"value\"]}}"
        )
    };
    let refs = "\"field\":{\"$ref\":\"#/definitions/field\"},\"processNum\":{\"$ref\":\"#/definitions/processNum\"},\
                \"tags\":{\"$ref\":\"#/definitions/tags\"},\"value\":{\"$ref\":\"#/definitions/typedValue\"}";
    let required = "\"field\",\"processNum\",\"tags\",\"value\"";
    // The range of integers that every JSON reader represents exactly.
    const EXACT: u64 = (1 << 53) - 1;
    format!(
        "{{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"oneOf\":[\
         {{\"title\":\"Info\",\"type\":\"array\",\"items\":{{\"title\":\"InfoItem\",\"type\":\"object\",\
         \"properties\":{{{refs}}},\"required\":[{required}]}}}},\
         {{\"title\":\"Stat\",\"type\":\"array\",\"items\":{{\"title\":\"Object\",\"type\":\"array\",\"items\":\
         {{\"title\":\"StatItem\",\"type\":\"object\",\"properties\":{{\"objType\":{{\"enum\":[\"Frontend\",\
         \"Backend\",\"Listener\",\"Server\",\"Unknown\"]}},\"proxyId\":{{\"type\":\"integer\",\"minimum\":0}},\
         \"id\":{{\"type\":\"integer\",\"minimum\":0}},{refs}}},\"required\":[\"objType\",\"proxyId\",\"id\",{required}]}}}}}}],\
         \"definitions\":{{\"field\":{{\"type\":\"object\",\"pos\":{{\"type\":\"integer\",\"minimum\":0}},\
         \"name\":{{\"type\":\"string\"}},\"required\":[\"pos\",\"name\"]}},\
         \"processNum\":{{\"type\":\"integer\",\"minimum\":1}},\
         \"tags\":{{\"type\":\"object\",\"origin\":{{\"type\":\"string\",\"enum\":[{}]}},\
         \"nature\":{{\"type\":\"string\",\"enum\":[{}]}},\"scope\":{{\"type\":\"string\",\"enum\":[{}]}},\
         \"required\":[\"origin\",\"nature\",\"scope\"]}},\"typedValue\":{{\"type\":\"object\",\"oneOf\":[{},{},{},{},\
         {{\"title\":\"str\",\"type\":\"object\",\"properties\":{{\"type\":{{\"enum\":[\"str\"]}},\
         \"value\":{{\"type\":\"string\"}}}},\"required\":[\"type\",\"value\"]}}]}}}}}}\n",
        words(field::ORIGINS),
        words(field::NATURES),
        words(field::SCOPES),
        integer("s32", i64::from(i32::MIN), i32::MAX as u64),
        integer("s64", -(EXACT as i64), EXACT),
        integer("u32", 0, u64::from(u32::MAX)),
        integer("u64", 0, EXACT),
    )
}
