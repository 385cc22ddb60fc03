//! Comma-separated header values and occurrence numbers, with the rules of `req.hdr` and `req.fhdr`
//! (manual 7.3.6).

use crate::head::{Field, Head};
use crate::name::Name;
use crate::scan::{list_stop, trim};

/// The values of one header line: split at commas outside double quotes, and trimmed. Empty values count.
#[derive(Debug, Clone)]
pub struct ListValues<'a> {
    rest: Option<&'a [u8]>,
}

/// The comma-separated values of `line`. An empty line has one empty value, as in HAProxy.
#[must_use]
pub fn list_values(line: &[u8]) -> ListValues<'_> {
    ListValues { rest: Some(line) }
}

/// The end of the value starting at 0: the first comma outside quotes, or the length. An unterminated quote extends to the end.
fn value_end(line: &[u8]) -> usize {
    let first = list_stop(line);
    if line.get(first) != Some(&b'"') {
        return first;
    }
    let mut quoted = false;
    let mut at = first;
    while at < line.len() {
        match line[at] {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            b',' if !quoted => return at,
            _ => {}
        }
        at += 1;
    }
    line.len()
}

impl<'a> Iterator for ListValues<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let line = self.rest?;
        let end = value_end(line);
        self.rest = line.get(end + 1..);
        Some(trim(&line[..end]))
    }
}

impl Head {
    /// The comma-separated values of `name` in all its lines, in order.
    pub fn values<'a, 'n>(&'a self, name: &'n Name) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.get_all(name).flat_map(list_values)
    }

    /// Whether `look` accepts any of the comma-separated values of `name`; stops at the first accepted one.
    pub fn any_value<'a>(&'a self, name: &Name, mut look: impl FnMut(&'a [u8]) -> bool) -> bool {
        let named = |field: &&Field| field.is(&self.bytes, name);
        self.may_have(name)
            && (self.fields.iter().filter(named))
                .any(|field| list_values(field.value(&self.bytes)).any(&mut look))
    }

    /// The number of comma-separated values (`req.hdr_cnt`).
    #[must_use]
    pub fn count_values(&self, name: &Name) -> usize {
        self.values(name).count()
    }

    /// The number of lines (`req.fhdr_cnt`).
    #[must_use]
    pub fn count_lines(&self, name: &Name) -> usize {
        self.get_all(name).count()
    }

    /// A single comma-separated value: 1 is the first, -1 the last. 0 also means the last, which is the default of `req.hdr`.
    #[must_use]
    pub fn nth_value(&self, name: &Name, occurrence: i32) -> Option<&[u8]> {
        if matches!(occurrence, 0 | -1) {
            return self.get_all(name).next_back().and_then(|line| list_values(line).last());
        }
        let count = if occurrence < 0 { self.count_values(name) } else { 0 };
        self.values(name).nth(position(occurrence, count)?)
    }

    /// A single whole line of `name` (`req.fhdr`), with occurrences as in [`Head::nth_value`].
    #[must_use]
    pub fn nth_line(&self, name: &Name, occurrence: i32) -> Option<&[u8]> {
        let nth = occurrence.unsigned_abs() as usize;
        if occurrence > 0 {
            self.get_all(name).nth(nth - 1)
        } else {
            self.get_all(name).nth_back(nth.max(1) - 1)
        }
    }
}

/// The zero-based position of an occurrence among `count`.
fn position(occurrence: i32, count: usize) -> Option<usize> {
    let nth = occurrence.unsigned_abs() as usize;
    if occurrence > 0 { Some(nth - 1) } else { count.checked_sub(nth) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Vec<String> {
        list_values(line.as_bytes()).map(|v| String::from_utf8_lossy(v).into_owned()).collect()
    }

    #[test]
    fn commas_split_outside_quotes_only() {
        for (line, values) in [
            ("a,b,c", &["a", "b", "c"][..]),
            ("a,\"b,c\",d", &["a", "\"b,c\"", "d"]),
            ("a,,b", &["a", "", "b"]),
            ("", &[""]),
            (" a , b ", &["a", "b"]),
            (",a", &["", "a"]),
            ("a,", &["a", ""]),
            (r#""a\",b",c"#, &[r#""a\",b""#, "c"]),
            ("\"a,b", &["\"a,b"]),
            ("a \"b,c\" d,e", &["a \"b,c\" d", "e"]),
        ] {
            assert_eq!(split(line), values, "{line}");
        }
    }

    #[test]
    fn occurrences_count_from_either_end_over_all_lines() {
        let mut head = Head::new();
        head.start_request(b"GET", b"/");
        head.append(b"x-y", b"a, b");
        head.append(b"Host", b"h");
        head.append(b"X-Y", b"c");
        let name = Name::new(b"x-y");
        for (occurrence, value) in
            [(1, Some("a")), (2, Some("b")), (3, Some("c")), (4, None), (0, Some("c")), (-1, Some("c"))]
        {
            assert_eq!(head.nth_value(&name, occurrence), value.map(str::as_bytes), "{occurrence}");
        }
        assert_eq!(head.nth_value(&name, -3), Some(&b"a"[..]));
        assert_eq!(head.nth_value(&name, -4), None);
        assert_eq!(head.nth_line(&name, 1), Some(&b"a, b"[..]));
        assert_eq!(head.nth_line(&name, -1), Some(&b"c"[..]));
        assert_eq!(head.nth_line(&name, -3), None);
        assert_eq!((head.count_values(&name), head.count_lines(&name)), (3, 2));
        assert_eq!((head.count_values(&Name::any()), head.count_lines(&Name::any())), (4, 3));
    }
}
