//! Typed values with their tags, and the three output formats: CSV or plain, typed, JSON (management manual 9.2).

use std::borrow::Cow;
use std::fmt::Write;

/// A metric that HAProxy does not have: object, name without `weir_` and the object, type, description, labels.
pub(crate) type DescribedMetric = (&'static str, String, &'static str, &'static str, &'static [&'static str]);

/// A value of a statistic.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum StatValue {
    /// Not available for this object.
    #[default]
    Empty,
    /// Signed 32 bits.
    S32(i32),
    /// Unsigned 32 bits.
    U32(u32),
    /// Unsigned 64 bits.
    U64(u64),
    /// A floating-point number.
    F64(f64),
    /// Text.
    Str(Cow<'static, str>),
}

impl From<u32> for StatValue {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}

impl From<u64> for StatValue {
    fn from(value: u64) -> Self {
        Self::U64(value)
    }
}

impl From<i32> for StatValue {
    fn from(value: i32) -> Self {
        Self::S32(value)
    }
}

impl From<String> for StatValue {
    fn from(value: String) -> Self {
        Self::Str(Cow::Owned(value))
    }
}

impl From<&'static str> for StatValue {
    fn from(value: &'static str) -> Self {
        Self::Str(Cow::Borrowed(value))
    }
}

impl<T: Into<StatValue>> From<Option<T>> for StatValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}

impl StatValue {
    /// The type's name in typed and JSON output.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Empty => "",
            Self::S32(_) => "s32",
            Self::U32(_) => "u32",
            Self::U64(_) => "u64",
            Self::F64(_) => "flt",
            Self::Str(_) => "str",
        }
    }

    /// Appends the value without quoting.
    pub(crate) fn write(&self, out: &mut String) {
        // Writing into a String cannot fail.
        let _ = match self {
            Self::Empty => Ok(()),
            Self::S32(value) => write!(out, "{value}"),
            Self::U32(value) => write!(out, "{value}"),
            Self::U64(value) => write!(out, "{value}"),
            Self::F64(value) => write!(out, "{value:.6}"),
            Self::Str(value) => out.write_str(value),
        };
    }

    /// Appends the value for CSV: quoted if it contains a comma, a quote or a line break.
    pub(crate) fn write_csv(&self, out: &mut String) {
        match self {
            Self::Str(text) if text.contains([',', '"', '\n']) => {
                let _ = write!(out, "\"{}\"", text.replace('"', "\"\""));
            }
            _ => self.write(out),
        }
    }

    /// Appends the value for JSON. Numbers beyond 2^53 are written exactly; readers may round them.
    pub(crate) fn write_json(&self, out: &mut String) {
        match self {
            Self::Str(text) => write_json_string(text, out),
            Self::Empty => out.push_str("null"),
            _ => self.write(out),
        }
    }
}

/// Appends a JSON string with its quotes.
pub(crate) fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A field's name and meaning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatColumn {
    /// Its name.
    pub(crate) name: &'static str,
    /// Origin, nature and scope: three letters of the manual's 9.2.
    pub(crate) tags: &'static str,
    /// A description.
    pub(crate) text: &'static str,
}

impl StatColumn {
    /// The fourth letter: whether a reload keeps the value (counters and rates).
    pub(crate) fn persistence(&self) -> char {
        let tags = self.tags.as_bytes();
        if let Some(&tag) = tags.get(3) {
            return tag.into();
        }
        if tags[0] == b'M' && matches!(tags[1], b'C' | b'R') { 'P' } else { 'V' }
    }

    /// Appends `tags:type:value` and the description if requested: the end of a typed line.
    pub(crate) fn write_typed(&self, value: &StatValue, describe: bool, out: &mut String) {
        let _ = write!(out, ":{}{}:{}:", &self.tags[..3], self.persistence(), value.kind());
        value.write(out);
        if describe {
            let _ = write!(out, ":\"{}\"", self.text);
        }
        out.push('\n');
    }

    /// Appends one JSON object; `lead` precedes the field itself.
    pub(crate) fn write_json(&self, lead: &str, position: usize, value: &StatValue, out: &mut String) {
        let word = |letter: u8, words: &[(u8, &'static str)]| {
            words.iter().find(|row| row.0 == letter).map_or("Unknown", |row| row.1)
        };
        let tags = self.tags.as_bytes();
        let _ = write!(
            out,
            "{{{lead}\"field\":{{\"pos\":{position},\"name\":\"{}\"}},\"processNum\":1,",
            self.name
        );
        let _ = write!(
            out,
            "\"tags\":{{\"origin\":\"{}\",\"nature\":\"{}\",\"scope\":\"{}\"}},\"value\":{{\"type\":\"{}\",\"value\":",
            word(tags[0], ORIGINS),
            word(tags[1], NATURES),
            word(tags[2], SCOPES),
            value.kind()
        );
        value.write_json(out);
        out.push_str("}}");
    }
}

/// Words of the first letter, for JSON.
pub(crate) const ORIGINS: &[(u8, &str)] =
    &[(b'M', "Metric"), (b'S', "Status"), (b'K', "Key"), (b'C', "Config"), (b'P', "Product")];
/// Words of the second letter.
pub(crate) const NATURES: &[(u8, &str)] = &[
    (b'G', "Gauge"),
    (b'L', "Limit"),
    (b'm', "Min"),
    (b'M', "Max"),
    (b'R', "Rate"),
    (b'C', "Counter"),
    (b'D', "Duration"),
    (b'A', "Age"),
    (b'T', "Time"),
    (b'N', "Name"),
    (b'O', "Output"),
    (b'a', "Avg"),
];
/// Words of the third letter.
pub(crate) const SCOPES: &[(u8, &str)] =
    &[(b'C', "Cluster"), (b'P', "Process"), (b'S', "Service"), (b's', "System")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_only_what_is_ambiguous() {
        for (text, csv) in [("a b", "a b"), ("a,b", "\"a,b\""), ("a\"b", "\"a\"\"b\"")] {
            let mut out = String::new();
            StatValue::from(text).write_csv(&mut out);
            assert_eq!(out, csv);
        }
    }

    #[test]
    fn typed_lines_carry_tags_type_and_persistence() {
        let column = StatColumn { name: "stot", tags: "MCP", text: "Sessions" };
        let mut out = String::new();
        column.write_typed(&StatValue::U64(7), true, &mut out);
        assert_eq!(out, ":MCPP:u64:7:\"Sessions\"\n");
        out.clear();
        column.write_json("", 7, &StatValue::Str("a\"\n\u{1}".into()), &mut out);
        let parsed: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(parsed["value"]["value"], "a\"\n\u{1}");
        assert_eq!(parsed["tags"]["nature"], "Counter");
    }
}
