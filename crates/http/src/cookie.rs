//! Cookies as HAProxy reads them: leniently, by position, so that a value can be rewritten or a
//! pair removed in place.
//!
//! `Cookie` and `Set-Cookie` lines alike are pairs between `;` or `,`, outside double quotes.
//! Ranges are within the header value; [`Head::splice_value_at`](crate::Head::splice_value_at)
//! applies an edit.

use std::ops::Range;

use crate::head::Head;
use crate::name::{KnownName, Name};

/// One `name=value` of a cookie header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The name, without spaces around.
    pub name: Range<usize>,
    /// The value, without spaces around, quotes included. Empty where there is no `=`.
    pub value: Range<usize>,
    /// Whether there was an `=`; without it HAProxy sees no cookie.
    pub has_value: bool,
    /// From the first byte of the name to the delimiter or end of the line.
    pub whole: Range<usize>,
}

/// Pairs of one header value, in order, nameless ones skipped.
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    line: &'a [u8],
    at: usize,
    set_cookie: bool,
}

/// Pairs of a `Cookie` value.
#[must_use]
pub fn pairs(line: &[u8]) -> Pairs<'_> {
    Pairs { line, at: 0, set_cookie: false }
}

/// The cookies of a `Set-Cookie` value: one, or several between commas; attributes are not listed.
#[must_use]
pub fn set_cookies(line: &[u8]) -> Pairs<'_> {
    Pairs { line, at: 0, set_cookie: true }
}

fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t')
}

fn trimmed(line: &[u8], mut range: Range<usize>) -> Range<usize> {
    while range.start < range.end && is_blank(line[range.start]) {
        range.start += 1;
    }
    while range.start < range.end && is_blank(line[range.end - 1]) {
        range.end -= 1;
    }
    range
}

/// First `;` or `,` at or after `at` outside quotes, or the length.
fn delimiter(line: &[u8], mut at: usize) -> usize {
    let mut quoted = false;
    while at < line.len() {
        match line[at] {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            b';' | b',' if !quoted => return at,
            _ => {}
        }
        at += 1;
    }
    line.len()
}

impl Iterator for Pairs<'_> {
    type Item = Pair;

    fn next(&mut self) -> Option<Pair> {
        loop {
            if self.at >= self.line.len() {
                return None;
            }
            let start = self.at;
            let end = delimiter(self.line, start);
            self.at = end + 1;
            if self.set_cookie {
                // Attributes run to the next comma.
                let mut stop = end;
                while self.line.get(stop) == Some(&b';') {
                    stop = delimiter(self.line, stop + 1);
                }
                self.at = stop + 1;
            }
            let whole = start..end;
            let (name, value) = match memchr::memchr(b'=', &self.line[start..end]) {
                Some(eq) => (start..start + eq, Some(start + eq + 1..end)),
                None => (whole.clone(), None),
            };
            let name = trimmed(self.line, name);
            if name.is_empty() {
                continue;
            }
            let has_value = value.is_some();
            let value = trimmed(self.line, value.unwrap_or(end..end));
            return Some(Pair { whole: name.start..end, name, value, has_value });
        }
    }
}

/// The cookie `name` of a `Cookie` value: the first one. Names are compared as they stand, case
/// included.
#[must_use]
pub fn find(line: &[u8], name: &[u8]) -> Option<Pair> {
    pairs(line).find(|pair| pair.has_value && &line[pair.name.clone()] == name)
}

/// What to cut out of `line` so that `pair` is gone with one delimiter. The whole line when it was
/// the only one.
#[must_use]
pub fn removal(line: &[u8], pair: &Pair) -> Range<usize> {
    let before = line[..pair.whole.start].iter().rposition(|b| matches!(b, b';' | b','));
    match before {
        Some(delimiter) => delimiter..pair.whole.end,
        None => {
            let mut end = (pair.whole.end + 1).min(line.len());
            while end < line.len() && is_blank(line[end]) {
                end += 1;
            }
            0..end
        }
    }
}

/// Attributes of a `Set-Cookie` value after its first pair: name and value, trimmed; no value for
/// flags like `Secure`.
pub fn attributes(line: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    line.split(|&b| b == b';').skip(1).map(|part| match memchr::memchr(b'=', part) {
        Some(eq) => (crate::scan::trim(&part[..eq]), Some(crate::scan::trim(&part[eq + 1..]))),
        None => (crate::scan::trim(part), None),
    })
}

impl Head {
    /// Cookies of a request (`Cookie`) or response (`Set-Cookie`), in order: line index, and the
    /// pair within that line.
    pub fn cookies(&self) -> impl Iterator<Item = (usize, Pair)> + '_ {
        let name = if self.is_response() { KnownName::SetCookie } else { KnownName::Cookie };
        self.known_indices(name).flat_map(move |index| {
            let line = self.value_at(index).unwrap_or_default();
            let pairs = if self.is_response() { set_cookies(line) } else { pairs(line) };
            pairs.filter(|pair| pair.has_value).map(move |pair| (index, pair))
        })
    }

    /// Names and values of the cookies, in order.
    pub fn cookie_values(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.cookies().map(|(index, pair)| {
            let line = self.value_at(index).unwrap_or_default();
            (&line[pair.name], &line[pair.value])
        })
    }

    /// The last cookie `name`, or the first of all without a name: what `req.cook` and `res.cook`
    /// return.
    #[must_use]
    pub fn cookie(&self, name: Option<&[u8]>) -> Option<&[u8]> {
        match name {
            Some(name) => self.cookie_values().filter(|(found, _)| *found == name).last().map(|(_, v)| v),
            None => self.cookie_values().next().map(|(_, v)| v),
        }
    }

    /// Rewrites the value of every cookie `name`: `edit` gets the value and gives `Some` new one,
    /// or `None` to remove the pair; a line left empty is removed. How many were edited.
    pub fn edit_cookies(&mut self, name: &[u8], mut edit: impl FnMut(&[u8]) -> Option<Vec<u8>>) -> usize {
        let known = if self.is_response() { KnownName::SetCookie } else { KnownName::Cookie };
        let indices: Vec<usize> = self.known_indices(known).collect();
        let mut edited = 0;
        for index in indices {
            let mut line = self.value_at(index).unwrap_or_default().to_vec();
            let mut from = 0;
            let before = edited;
            while let Some(pair) = self.next_named(&line, name, from) {
                edited += 1;
                match edit(&line[pair.value.clone()]) {
                    Some(value) => {
                        from = pair.value.start + value.len();
                        line.splice(pair.value, value);
                    }
                    None if self.is_response() => {
                        line.clear();
                        break;
                    }
                    None => {
                        let cut = removal(&line, &pair);
                        from = cut.start;
                        line.drain(cut);
                    }
                }
            }
            if line.is_empty() {
                self.remove_at(index);
            } else if edited > before {
                self.replace_value_at(index, &line);
            }
        }
        edited
    }

    fn next_named(&self, line: &[u8], name: &[u8], from: usize) -> Option<Pair> {
        let pairs = if self.is_response() { set_cookies(line) } else { pairs(line) };
        pairs.filter(|p| p.has_value && p.whole.start >= from).find(|p| &line[p.name.clone()] == name)
    }

    fn known_indices(&self, known: KnownName) -> impl Iterator<Item = usize> + '_ {
        let possible = self.seen & known.bit() != 0;
        self.fields
            .iter()
            .enumerate()
            .filter(move |(_, f)| possible && f.known == known && !f.is_dead())
            .map(|(i, _)| i)
    }
}

/// The header name cookies are read from.
#[must_use]
pub fn header_name(response: bool) -> Name {
    Name::from(if response { KnownName::SetCookie } else { KnownName::Cookie })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_lines_are_read_leniently() {
        for (line, name, value, count) in [
            ("a=1; a=2", "a", Some("2"), 2),
            ("a = 1 ;b=2", "a", Some("1"), 2),
            ("a=\"x;y\"; b=3", "a", Some("\"x;y\""), 2),
            ("$V=1; a=4; $Path=/", "a", Some("4"), 3),
            ("a", "a", None, 0),
            ("b; a=2", "a", Some("2"), 1),
            ("a=1,a=2", "a", Some("2"), 2),
            ("a=1;;a=3", "a", Some("3"), 2),
            ("=1; a=2", "a", Some("2"), 1),
            ("a=1 2; b=3", "a", Some("1 2"), 2),
            ("ab=1; ba=2;a=", "a", Some(""), 3),
            ("A=1", "a", None, 1),
            ("a=\"open;b=2", "a", Some("\"open;b=2"), 1),
        ] {
            let mut head = Head::new();
            head.start_request(b"GET", b"/");
            head.append(b"Cookie", line.as_bytes());
            assert_eq!(head.cookie(Some(name.as_bytes())), value.map(str::as_bytes), "{line}");
            assert_eq!(head.cookies().count(), count, "{line}");
        }
    }

    #[test]
    fn a_removed_cookie_takes_one_delimiter_with_it() {
        for (line, left) in [
            ("a=1", None),
            ("a=1; b=2", Some("b=2")),
            ("b=2; a=1", Some("b=2")),
            ("b=2; a=1; c=3", Some("b=2; c=3")),
            ("a=1; b=2; a=3", Some("b=2")),
            ("b=2", Some("b=2")),
        ] {
            let mut head = Head::new();
            head.start_request(b"GET", b"/");
            head.append(b"cookie", line.as_bytes());
            head.edit_cookies(b"a", |_| None);
            assert_eq!(head.get_known(KnownName::Cookie), left.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn set_cookie_values_can_be_rewritten_and_attributes_read() {
        let mut head = Head::new();
        head.start_response(200, None);
        head.append(b"Set-Cookie", b"S=abc; Path=/; Secure");
        head.append(b"Set-Cookie", b"T=1");
        let edited = head.edit_cookies(b"S", |value| Some([b"srv1~", value].concat()));
        assert_eq!((edited, head.cookie(Some(b"S"))), (1, Some(&b"srv1~abc"[..])));
        let line = head.get_known(KnownName::SetCookie).unwrap();
        assert_eq!(line, b"S=srv1~abc; Path=/; Secure");
        let attributes: Vec<_> = attributes(line).collect();
        assert_eq!(attributes, [(&b"Path"[..], Some(&b"/"[..])), (&b"Secure"[..], None)]);
        assert_eq!(head.edit_cookies(b"S", |_| None), 1);
        assert_eq!((head.len(), head.cookie(None)), (1, Some(&b"1"[..])));
    }
}
