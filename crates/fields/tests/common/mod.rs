//! Field sections without compression: lists of names and values.

#![allow(dead_code, reason = "each program uses a part")]

use std::convert::Infallible;

use fields::{Field, FieldName, FieldSink, FieldSource, NameKind};
use http::{Head, Version};

/// A section with these names and values.
pub(crate) struct Section<'a, T>(pub(crate) &'a [(T, T)]);

impl<T: AsRef<[u8]>> FieldSource for Section<'_, T> {
    type Error = Infallible;

    const VERSION: Version = Version::Other(2, 0);

    fn decode(self, each: &mut impl FnMut(Field<'_>) -> bool) -> Result<(), Infallible> {
        for (name, value) in self.0 {
            let (name, value) = (name.as_ref(), value.as_ref());
            let name = NameKind::of(name).name(name);
            if !each(Field { name, value, sound: false, never_indexed: false }) {
                break;
            }
        }
        Ok(())
    }
}

/// A written section as text: `name: value|`, secret fields in brackets.
#[derive(Debug, Default)]
pub(crate) struct Written(pub(crate) String);

impl Written {
    fn put(&mut self, name: FieldName<'_>, value: &[u8], marks: [&str; 2]) {
        let name = name.bytes().to_ascii_lowercase();
        let field = format!("{}: {}", name.escape_ascii(), value.escape_ascii());
        self.0.extend([marks[0], &field, marks[1], "|"]);
    }

    /// Returns the fields as a section that can be read.
    pub(crate) fn pairs(&self) -> Vec<(&str, &str)> {
        self.0.split_terminator('|').filter_map(|field| field.split_once(": ")).collect()
    }
}

impl FieldSink for Written {
    fn field(&mut self, name: FieldName<'_>, value: &[u8]) {
        self.put(name, value, ["", ""]);
    }

    fn secret(&mut self, name: FieldName<'_>, value: &[u8]) {
        self.put(name, value, ["[", "]"]);
    }
}

/// Returns a head in HTTP/1 form, with `|` for line breaks.
pub(crate) fn written(head: &Head) -> String {
    let mut out = Vec::new();
    head.write_to(&mut out);
    let text: Vec<String> =
        out.split(|b| *b == b'\n').map(|line| line.trim_ascii_end().escape_ascii().to_string()).collect();
    text.join("|").trim_end_matches('|').to_string()
}
